//! What rules do while the store cannot be asked.

use std::time::Duration;

use tower_sentinel::clock::TokioClock;
use tower_sentinel::store::{
    Fault, MemoryStore, StoreErrorKind, StoreSettings, StoreState, WhenDown,
};
use tower_sentinel::{BlockKind, Call, Clock, FlowRule, Rules, Sentinel, Verdict};

use super::{Fleet, SECOND, ms};

#[tokio::test(start_paused = true)]
async fn no_call_waits_longer_than_it_may_and_the_store_is_not_asked_when_it_is_down() {
    let rule = FlowRule::per_second("/v1", 100).shared().exact();
    let fleet = Fleet::new::<2>(rule).await;
    fleet.store.set_fault(Some(Fault::LostRequest));
    let start = fleet.clock.now();
    drop(fleet.engine(0).enter(Call::new("/v1")).await.unwrap());
    let waited = fleet.clock.now() - start;
    assert!(waited <= ms(200), "{waited:?}");
    // Three beats are late.
    tokio::time::sleep(ms(800)).await;
    assert_eq!(fleet.engine(0).store().unwrap().state(), StoreState::Down);
    // Its share is the half, and asks nobody.
    fleet.begin_second().await;
    let before = fleet.clock.now();
    let engine = fleet.engine(0);
    let mut passed = 0;
    for _ in 0..200 {
        passed += usize::from(engine.enter(Call::new("/v1")).await.is_ok());
    }
    assert!((49..=50).contains(&passed), "{passed}");
    assert_eq!(fleet.clock.now(), before);
    fleet.store.set_fault(None);
    tokio::time::sleep(SECOND).await;
    assert_eq!(engine.store().unwrap().state(), StoreState::Live);
    assert!(engine.store().unwrap().errors(StoreErrorKind::Late) > 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_rule_does_what_it_says() {
    let rules = Rules::new()
        .with(
            FlowRule::per_second("/closed", 9)
                .shared()
                .when_down(WhenDown::Closed),
        )
        .with(
            FlowRule::per_second("/open", 9)
                .shared()
                .when_down(WhenDown::Open),
        )
        .with(FlowRule::per_second("/some", 9).shared().local_limit(7));
    let fleet = Fleet::new::<2>(rules).await;
    let error = Fault::Error(StoreErrorKind::Unreachable);
    fleet.store.set_fault(Some(error));
    tokio::time::sleep(SECOND).await;
    fleet.begin_second().await;
    assert_eq!(fleet.passed(40, Call::new("/closed")).await, 0);
    assert_eq!(fleet.passed(40, Call::new("/open")).await, 40);
    assert_eq!(fleet.passed(40, Call::new("/some")).await, 14);
    let refused = fleet
        .engine(0)
        .enter(Call::new("/closed"))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.kind(), refused.rule()),
        (BlockKind::Store, "flow-0")
    );
    assert_eq!(
        refused.to_string(),
        "call to \"/closed\" refused without its store by rule \"flow-0\"",
    );
}

#[tokio::test(start_paused = true)]
async fn before_the_start_and_after_the_end_each_has_its_share() {
    let clock = TokioClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_minute("/v1", 9).shared())
        .clock(clock)
        .store(MemoryStore::with_clock(clock))
        .store_settings(StoreSettings::new().nodes(3))
        .build();
    let passed = |sentinel: &Sentinel| {
        let call = || sentinel.try_enter(Call::new("/v1"));
        (0..40)
            .filter(|_| matches!(call(), Verdict::Pass(_)))
            .count()
    };
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Idle);
    assert_eq!(passed(&sentinel), 3);
    let handle = sentinel.start_store().unwrap();
    let error = sentinel.start_store().unwrap_err();
    assert_eq!(error.to_string(), "the store was started before");
    tokio::time::sleep(ms(10)).await;
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
    drop(handle);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Idle);
    assert_eq!(passed(&sentinel), 3);
}

/// How many of 20 calls to each of five engines pass without their store.
async fn passed_by_five(limit: u32, knows_ranks: bool, is_by_key: bool) -> usize {
    let rule = || FlowRule::per_minute("/v1", limit).shared();
    let rules: Rules = if is_by_key {
        rule().by_origin().into()
    } else {
        rule().into()
    };
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let away = Some(Fault::Error(StoreErrorKind::Unreachable));
    store.set_fault(away.filter(|_| !knows_ranks));
    let engines = (0..5).map(|_| {
        let sentinel = Sentinel::builder()
            .rules(rules.clone())
            .clock(clock)
            .store(store.clone())
            .store_settings(StoreSettings::new().nodes(5))
            .build();
        let handle = sentinel.start_store().unwrap();
        (sentinel, handle)
    });
    let engines: Vec<_> = engines.collect();
    tokio::time::sleep(SECOND).await;
    store.set_fault(away);
    tokio::time::sleep(SECOND * 120).await;
    let mut passed = 0;
    for (sentinel, _) in &engines {
        for _ in 0..20 {
            let call = Call::new("/v1").origin("ann");
            passed += usize::from(sentinel.enter(call).await.is_ok());
        }
    }
    passed
}

/// Five replicas whose ranks are known admit the limit, and one each without ranks.
#[tokio::test(start_paused = true)]
async fn a_limit_below_the_number_of_processes_admits_calls_without_the_store() {
    for (limit, with_ranks, without) in [(0, 0, 0), (1, 1, 5), (3, 3, 5), (5, 5, 5), (9, 9, 5)] {
        for is_by_key in [false, true] {
            let passed = [
                passed_by_five(limit, true, is_by_key).await,
                passed_by_five(limit, false, is_by_key).await,
            ];
            assert_eq!(
                passed,
                [with_ranks, without],
                "{limit} a minute, {is_by_key}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_when_the_task_ends_have_the_whole_share() {
    let rule = FlowRule::per_minute("/v1", 20).shared().exact();
    let mut fleet = Fleet::new::<1>(rule).await;
    fleet.store.set_fault(Some(Fault::LostRequest));
    let calls = (0..30).map(|_| {
        let sentinel = fleet.engine(0).clone();
        tokio::spawn(async move { sentinel.enter(Call::new("/v1")).await.is_ok() })
    });
    let calls: Vec<_> = calls.collect();
    tokio::time::sleep(ms(1)).await;
    drop(fleet.engines.remove(0).1);
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap());
    }
    assert_eq!(passed, 20);
}

/// Else the windows of two processes would overlap, and both shares of one would be in a window of
/// the other. Nothing is waited for: a refusal says when the window ends.
#[test]
fn before_the_first_answer_windows_end_by_the_wall_clock() {
    for hours in [1_u64, 24] {
        let window = SECOND * 3_600 * hours as u32;
        let sentinel = Sentinel::builder()
            .rules(FlowRule::per("/v1", 1, window).buckets(1).shared())
            .store(MemoryStore::new())
            .build();
        let first = sentinel.try_enter(Call::new("/v1"));
        assert!(matches!(first, Verdict::Pass(_)), "{first:?}");
        let Verdict::Block(refused) = sentinel.try_enter(Call::new("/v1")) else {
            panic!("the share is one call");
        };
        let ends = wall() + refused.retry_after().unwrap();
        let off = ends.as_secs() % window.as_secs();
        // Both clocks are read one after the other, on a machine that may be busy.
        let most = 60;
        assert!(
            off < most || off > window.as_secs() - most,
            "{hours} h: the window ends {off} s after one of the wall clock"
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "windows go by it")]
fn wall() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap()
}
