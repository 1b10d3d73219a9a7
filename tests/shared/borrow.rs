//! Prioritized calls that borrow from the next bucket of a shared rule, and wait for it.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::store::{Fault, StoreErrorKind, StoreSettings, StoreState, WhenDown};
use tower_sentinel::{
    Blocked, Call, Clock, FlowRule, IsolationRule, KeyedRule, NotAdmitted, Rule, Rules,
    SentinelLayer, Verdict,
};

use super::{Fleet, SECOND, ms};

/// A window of one bucket of a second.
fn second(limit: u32) -> FlowRule {
    FlowRule::per_second("/v1", limit)
        .buckets(1)
        .shared()
        .exact()
}

/// Engines whose prioritized calls wait for less than two seconds.
async fn patient<const N: usize>(rules: impl Into<Rules>) -> Fleet {
    let settings = StoreSettings::new().nodes(N as u32);
    Fleet::patient::<N>(rules, settings, SECOND * 2).await
}

fn plain() -> Call<'static> {
    Call::new("/v1")
}

fn prioritized() -> Call<'static> {
    plain().prioritized(true)
}

impl Fleet {
    /// How far its second is.
    fn at(&self) -> Duration {
        let since = self.clock.now() - tower_sentinel::clock::Tick::ZERO;
        Duration::from_nanos(u64::from(since.subsec_nanos()))
    }

    async fn go_to(&self, at: Duration) {
        sleep(at - self.at()).await;
    }

    /// A call of the engine at `index`, which waits in a task. Returns how far the second was when
    /// it passed.
    fn spawn(&self, index: usize, call: Call<'static>) -> JoinHandle<Result<Duration, Blocked>> {
        let (engine, clock) = (self.engine(index).clone(), self.clock);
        tokio::spawn(async move {
            drop(engine.enter(call).await?);
            let since = clock.now() - tower_sentinel::clock::Tick::ZERO;
            Ok(Duration::from_nanos(u64::from(since.subsec_nanos())))
        })
    }

    /// The verdict to wait for the next bucket, once the store has lent.
    async fn lent(&self, index: usize, call: Call<'_>) -> tower_sentinel::Waiting {
        let Verdict::Wait(asking) = self.engine(index).try_enter(call) else {
            panic!("it asks the store");
        };
        sleep(ms(5)).await;
        let Err(NotAdmitted::TooEarly(waiting)) = asking.admit() else {
            panic!("its bucket has not begun");
        };
        waiting
    }
}

#[tokio::test(start_paused = true)]
async fn a_prioritized_call_waits_for_the_next_bucket_and_runs_in_it() {
    let rule = FlowRule::per_second("/v1", 10).shared().exact();
    let fleet = Fleet::new::<2>(rule).await;
    assert_eq!(fleet.passed(30, plain()).await, 10);
    fleet.go_to(ms(600)).await;
    assert_eq!(fleet.passed(2, plain()).await, 0, "others do not wait");
    let call = fleet.spawn(0, prioritized());
    let at = call.await.unwrap().unwrap();
    assert!(at < ms(3), "it runs when the bucket begins: {at:?}");
    // Its permit is one of the ten of that window.
    assert_eq!(fleet.passed(30, plain()).await, 9);
    let node = fleet.engine(0).node("/v1").unwrap();
    assert_eq!((node.totals().occupied(), node.waiting()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_layer_has_a_prioritized_request_wait_for_the_next_bucket() {
    let fleet = patient::<1>(second(1)).await;
    let layer = SentinelLayer::with(fleet.engine(0).clone())
        .named("/v1")
        .prioritize(|head| head.uri().path() == "/pay");
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let get = |path| {
        let request = Request::get(path).body(()).unwrap();
        let response = service.clone().oneshot(request);
        async { response.await.unwrap().status().as_u16() }
    };
    assert_eq!(get("/other").await, 200);
    assert_eq!(get("/other").await, 429);
    fleet.go_to(ms(700)).await;
    assert_eq!(get("/pay").await, 200);
    assert!(fleet.at() < ms(3), "{:?}", fleet.at());
    assert_eq!(get("/other").await, 429, "that was the one of this second");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_can_be_admitted_by_hand_once_its_bucket_has_begun() {
    let fleet = patient::<1>(second(1)).await;
    drop(fleet.engine(0).enter(plain()).await.unwrap());
    fleet.go_to(ms(600)).await;
    let waiting = fleet.lent(0, prioritized()).await;
    let delay = waiting.delay();
    assert!(delay > ms(394) && delay < ms(396), "{delay:?}");
    fleet.go_to(ms(999)).await;
    let Err(NotAdmitted::TooEarly(waiting)) = waiting.admit() else {
        panic!("its bucket has not begun");
    };
    sleep(ms(2)).await;
    drop(waiting.admit().unwrap());
    assert!(fleet.engine(0).enter(plain()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn engines_that_borrow_all_of_a_bucket_admit_one_limit() {
    let fleet = patient::<3>(second(10)).await;
    assert_eq!(fleet.passed(60, plain()).await, 10);
    fleet.go_to(ms(500)).await;
    let calls: Vec<_> = (0..30)
        .map(|at| fleet.spawn(at % 3, prioritized()))
        .collect();
    let mut passed = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(at) => {
                assert!(at < ms(3), "{at:?}");
                passed += 1;
            }
            Err(blocked) => {
                // The second after that one.
                let retry = blocked.retry_after().unwrap();
                assert!(retry > ms(1_490) && retry < ms(1_510), "{retry:?}");
            }
        }
    }
    assert_eq!(passed, 10);
    assert_eq!(fleet.passed(30, plain()).await, 0, "the bucket is lent");
    fleet.begin_second().await;
    assert_eq!(fleet.passed(30, plain()).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_several_buckets_lends_only_what_leaves_it() {
    let rule = FlowRule::per_second("/v1", 10).shared().exact();
    let fleet = Fleet::new::<2>(rule).await;
    assert_eq!(fleet.passed(6, plain()).await, 6);
    fleet.go_to(ms(550)).await;
    assert_eq!(fleet.passed(20, plain()).await, 4);
    // At 1 000 ms the six leave, and the four at 1 500 ms.
    let calls: Vec<_> = (0..20)
        .map(|at| fleet.spawn(at % 2, prioritized()))
        .collect();
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap().is_ok());
    }
    assert_eq!(passed, 6);
    assert!(fleet.at() < ms(3));
    assert_eq!(fleet.passed(20, plain()).await, 0);
    fleet.go_to(ms(501)).await;
    assert_eq!(fleet.passed(20, plain()).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_while_it_waits_gives_its_permit_back() {
    let fleet = patient::<2>(second(10)).await;
    assert_eq!(fleet.passed(40, plain()).await, 10);
    fleet.go_to(ms(500)).await;
    // Before the answer, after it, and while it sleeps in a task.
    drop(fleet.engine(0).try_enter(prioritized()));
    let Verdict::Wait(answered) = fleet.engine(1).try_enter(prioritized()) else {
        panic!("it asks the store");
    };
    sleep(ms(5)).await;
    drop(answered);
    drop(fleet.lent(0, prioritized().batch(3)).await);
    let ready = fleet.engine(1).enter(prioritized());
    assert!(timeout(ms(100), ready).await.is_err(), "it waits");
    assert_eq!(
        fleet.passed(20, plain()).await,
        0,
        "nobody has them too soon"
    );
    fleet.begin_second().await;
    assert_eq!(fleet.passed(40, plain()).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_wait_so_long_is_refused_without_a_trip() {
    let fleet = Fleet::new::<1>(second(1)).await;
    assert_eq!(fleet.passed(2, plain()).await, 1);
    let (draws, at) = (fleet.store.draws(), fleet.at());
    let blocked = fleet.engine(0).enter(prioritized()).await.unwrap_err();
    assert_eq!(
        blocked.retry_after().unwrap().as_millis(),
        (SECOND - at).as_millis()
    );
    fleet.go_to(ms(600)).await;
    let hasty = prioritized().patience(ms(350));
    assert!(fleet.engine(0).enter(hasty).await.is_err());
    let none = prioritized().patience(Duration::ZERO);
    assert!(matches!(fleet.engine(0).try_enter(none), Verdict::Block(_)));
    assert_eq!((fleet.store.draws(), fleet.at()), (draws, ms(600)));
    assert!(
        fleet
            .engine(0)
            .enter(prioritized().patience(ms(450)))
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_next_bucket_that_is_lent_costs_the_store_nothing_more() {
    let fleet = patient::<1>(second(2)).await;
    assert_eq!(fleet.passed(3, plain()).await, 2);
    fleet.go_to(ms(500)).await;
    let waiting = fleet.lent(0, prioritized().batch(2)).await;
    assert!(fleet.engine(0).enter(prioritized()).await.is_err());
    let draws = fleet.store.draws();
    for _ in 0..100 {
        assert!(fleet.engine(0).enter(prioritized()).await.is_err());
    }
    assert_eq!(fleet.store.draws(), draws);
    drop(waiting.ready().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_full_long_window_is_not_asked_for_a_bucket_that_frees_nothing() {
    let rule = FlowRule::per("/v1", 5, SECOND * 10).buckets(10);
    let fleet = patient::<1>(rule.shared().exact()).await;
    assert_eq!(fleet.passed(6, plain()).await, 5);
    let draws = fleet.store.draws();
    for _ in 0..100 {
        assert!(fleet.engine(0).enter(prioritized()).await.is_err());
    }
    assert_eq!(fleet.store.draws(), draws);
}

#[tokio::test(start_paused = true)]
async fn a_call_borrows_by_its_weight() {
    let fleet = patient::<2>(second(10)).await;
    assert_eq!(fleet.passed(20, plain()).await, 10);
    fleet.go_to(ms(500)).await;
    let calls: Vec<_> = (0..4)
        .map(|at| fleet.spawn(at % 2, prioritized().batch(4)))
        .collect();
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap().is_ok());
    }
    assert_eq!(passed, 2);
    assert_eq!(fleet.passed(20, plain()).await, 2);
    let heavy = prioritized().batch(11);
    assert_eq!(
        fleet
            .engine(0)
            .enter(heavy)
            .await
            .unwrap_err()
            .retry_after(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn each_key_borrows_from_its_own_bucket() {
    let rules: [Rule; 2] = [
        FlowRule::per_second("/v1", 3)
            .by_origin()
            .shared()
            .exact()
            .into(),
        KeyedRule::per_second("/v1", 3)
            .window()
            .by_origin()
            .shared()
            .exact()
            .into(),
    ];
    for rule in rules {
        let fleet = Fleet::new::<2>([rule]).await;
        let of = |user| plain().origin(user);
        assert_eq!(fleet.passed(9, of("ann")).await, 3);
        assert_eq!(fleet.passed(1, of("bob")).await, 1);
        fleet.go_to(ms(600)).await;
        let ann = fleet.spawn(0, of("ann").prioritized(true));
        let bob = fleet.spawn(1, of("bob").prioritized(true));
        let (ann, bob) = (ann.await.unwrap().unwrap(), bob.await.unwrap().unwrap());
        assert!(ann < ms(3) && bob >= ms(600), "{ann:?} {bob:?}");
        assert_eq!(fleet.passed(9, of("ann")).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_borrows_no_more_than_its_part_of_the_limit() {
    for (rule, most) in [
        (second(10).max_occupy_ratio(0.3), 3),
        (second(10).max_waiting(2), 2),
        (second(10).max_occupy_ratio(0.05), 0),
        (second(10).max_waiting(0), 0),
        (second(10).lend(false), 0),
        (second(10).strict(), 0),
        (second(10).per_node().max_occupy_ratio(0.3), 3),
    ] {
        let what = format!("{rule:?}");
        let fleet = patient::<2>(rule).await;
        let _ = fleet.passed(60, plain()).await;
        fleet.go_to(ms(500)).await;
        // In two waves: what the first one has counts for the second.
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.extend((0..8).map(|at| fleet.spawn(at % 2, prioritized())));
            sleep(ms(20)).await;
        }
        let mut passed = 0;
        for call in calls {
            passed += usize::from(call.await.unwrap().is_ok());
        }
        assert_eq!(passed, 2 * most, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_strict_rule_that_lends_counts_one_bucket_more() {
    let rule = FlowRule::per_second("/v1", 10).strict().lend(true);
    let fleet = Fleet::new::<2>(rule.shared().exact()).await;
    assert_eq!(fleet.passed(20, plain()).await, 10);
    fleet.go_to(ms(600)).await;
    assert!(fleet.engine(0).enter(prioritized()).await.is_err());
    fleet.begin_second().await;
    fleet.go_to(ms(100)).await;
    let at = fleet.spawn(0, prioritized()).await.unwrap().unwrap();
    assert!(at >= ms(500) && at < ms(503), "{at:?}");
    assert_eq!(fleet.passed(20, plain()).await, 9);
}

#[tokio::test(start_paused = true)]
async fn two_rules_that_are_exhausted_both_lend_or_none_does() {
    let rules = Rules::new()
        .with(second(4).id("all"))
        .with(second(2).by_origin().id("each"));
    let fleet = patient::<2>(rules).await;
    let of = |user| plain().origin(user);
    assert_eq!(fleet.passed(9, of("ann")).await, 2);
    assert_eq!(fleet.passed(9, of("bob")).await, 2);
    fleet.go_to(ms(500)).await;
    let mut calls = Vec::new();
    for user in ["ann", "ann", "ann", "bob", "eve", "zoe"] {
        calls.push(fleet.spawn(calls.len() % 2, of(user).prioritized(true)));
        sleep(ms(5)).await;
    }
    let mut passed = Vec::new();
    for call in calls {
        passed.push(
            call.await
                .unwrap()
                .map_err(|blocked| blocked.rule().to_owned()),
        );
    }
    let is_refused_by = |at: usize, rule| passed[at].as_ref().is_err_and(|by| by == rule);
    // The third one of ann took nothing of the other rule.
    assert!(
        is_refused_by(2, "each") && is_refused_by(5, "all"),
        "{passed:?}"
    );
    assert_eq!(passed.iter().filter(|it| it.is_ok()).count(), 4);
    assert_eq!(fleet.passed(9, of("zoe")).await, 0);
    fleet.begin_second().await;
    assert_eq!(fleet.passed(9, of("zoe")).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_has_room_is_asked_when_the_borrowed_bucket_begins() {
    let rules = Rules::new().with(second(1).id("second")).with(
        FlowRule::per("/v1", 9, ms(200))
            .buckets(1)
            .shared()
            .exact()
            .id("short"),
    );
    let fleet = patient::<1>(rules).await;
    assert_eq!(fleet.passed(3, plain()).await, 1);
    fleet.go_to(ms(700)).await;
    let at = fleet.spawn(0, prioritized()).await.unwrap().unwrap();
    assert!(at < ms(5), "{at:?}");
    // One of the nine was spent in this bucket, and none in the one in which it came.
    fleet.engine(0).reload(
        FlowRule::per("/v1", 9, ms(200))
            .buckets(1)
            .shared()
            .exact()
            .id("short")
            .into(),
    );
    assert_eq!(fleet.passed(20, plain()).await, 8);
}

#[tokio::test(start_paused = true)]
async fn a_local_window_has_its_say_when_the_bucket_begins() {
    // The local second is full until 1 300 ms, which is in the borrowed bucket.
    let rules = Rules::new()
        .with(second(3).id("all"))
        .with(FlowRule::per_second("/v1", 2).buckets(10).id("local"));
    let fleet = patient::<2>(rules).await;
    fleet.go_to(ms(310)).await;
    assert_eq!(fleet.passed(9, plain()).await, 3);
    fleet.go_to(ms(600)).await;
    let waits = fleet.spawn(0, prioritized());
    let at = waits.await.unwrap().unwrap();
    assert!(
        at >= ms(300) && at < ms(303),
        "the later of the two: {at:?}"
    );
    assert_eq!(fleet.passed(9, plain()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_local_loan_beyond_the_borrowed_bucket_refuses_the_call() {
    let rules = |local| {
        Rules::new()
            .with(
                FlowRule::per("/v1", 3, ms(200))
                    .buckets(1)
                    .shared()
                    .exact()
                    .id("short"),
            )
            .with(FlowRule::per_second("/v1", local).buckets(10).id("local"))
    };
    let fleet = patient::<2>(rules(3)).await;
    fleet.go_to(ms(110)).await;
    // Two of three on the first engine, so that only the shared rule is exhausted there.
    for index in [0, 0, 1] {
        drop(fleet.engine(index).enter(plain()).await.unwrap());
    }
    let waiting = fleet.spawn(0, prioritized());
    sleep(ms(20)).await;
    // Now the local window is full until 1 100 ms, and the borrowed bucket ends at 400 ms.
    fleet.engine(0).reload(rules(2));
    let blocked = waiting.await.unwrap().unwrap_err();
    assert_eq!(blocked.rule(), "short");
    assert!(
        fleet.at() >= ms(200) && fleet.at() < ms(203),
        "{:?}",
        fleet.at()
    );
    let node = fleet.engine(0).node("/v1").unwrap();
    assert_eq!((node.waiting(), node.totals().waiting_dropped()), (0, 0));
    // It has given its permit back.
    let (engine, mut passed) = (fleet.engine(1), 0);
    engine.reload(rules(9));
    for _ in 0..9 {
        passed += usize::from(engine.enter(plain()).await.is_ok());
    }
    assert_eq!(passed, 2, "that one is in the lease of the first engine");
    fleet.engine(0).reload(rules(9));
    assert_eq!(fleet.passed(9, plain()).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_local_window_that_lends_nothing_draws_nothing() {
    let rules = Rules::new()
        .with(second(2).id("all"))
        .with(FlowRule::per_minute("/v1", 2).id("local"));
    let fleet = patient::<1>(rules).await;
    assert_eq!(fleet.passed(2, plain()).await, 2);
    let draws = fleet.store.draws();
    fleet.go_to(ms(500)).await;
    assert_eq!(
        fleet.engine(0).enter(plain()).await.unwrap_err().rule(),
        "local"
    );
    let blocked = fleet.engine(0).enter(prioritized()).await.unwrap_err();
    assert_eq!((blocked.rule(), fleet.at()), ("local", ms(500)));
    assert!(
        fleet.store.draws() <= draws + 1,
        "it only learns that there are none"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_slot_then_gives_its_permit_to_others() {
    let rules = Rules::new()
        .with(second(2).id("all"))
        .with(IsolationRule::new("/v1", 1).id("slot"));
    let fleet = patient::<1>(rules).await;
    assert_eq!(fleet.passed(2, plain()).await, 2);
    fleet.go_to(ms(600)).await;
    let waiting = fleet.spawn(0, prioritized());
    fleet.go_to(ms(800)).await;
    let running = fleet.spawn(0, prioritized());
    fleet.begin_second().await;
    let (one, two) = (waiting.await.unwrap(), running.await.unwrap());
    assert!(one.is_ok() && two.is_ok(), "one after the other");
    // The same while another call keeps the slot.
    fleet.go_to(ms(600)).await;
    let lent = fleet.lent(0, prioritized()).await;
    fleet.go_to(ms(990)).await;
    fleet.engine(0).reload(second(2).id("all").into());
    fleet.begin_second().await;
    let long = fleet.engine(0).enter(plain()).await.unwrap();
    let rules = Rules::new()
        .with(second(2).id("all"))
        .with(IsolationRule::new("/v1", 1).id("slot"));
    fleet.engine(0).reload(rules);
    let NotAdmitted::Blocked(blocked) = lent.admit().unwrap_err() else {
        panic!("it has waited");
    };
    assert_eq!(blocked.rule(), "slot");
    drop(long);
    assert_eq!(
        fleet.passed(9, plain()).await,
        1,
        "the permit is there for others"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_lent_stays_good_when_the_store_goes_away() {
    let fleet = patient::<2>(second(10)).await;
    assert_eq!(fleet.passed(20, plain()).await, 10);
    fleet.go_to(ms(500)).await;
    let calls: Vec<_> = (0..6)
        .map(|at| fleet.spawn(at % 2, prioritized()))
        .collect();
    sleep(ms(10)).await;
    let error = Fault::Error(StoreErrorKind::Unreachable);
    fleet.store.set_fault(Some(error));
    fleet.go_to(ms(990)).await;
    assert_eq!(fleet.engine(0).store().unwrap().state(), StoreState::Down);
    for call in calls {
        assert!(call.await.unwrap().unwrap() < ms(3));
    }
    // Each has a share of five, of which three are spent.
    assert_eq!(fleet.passed(40, plain()).await, 4);
    // Nothing is borrowed without it.
    assert!(fleet.engine(0).enter(prioritized()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_store_does_not_answer_borrows_nothing() {
    for (when_down, passes) in [
        (WhenDown::LocalShare, false),
        (WhenDown::Closed, false),
        (WhenDown::Open, true),
    ] {
        let fleet = patient::<2>(second(10).when_down(when_down)).await;
        assert_eq!(fleet.passed(20, plain()).await, 10);
        fleet.go_to(ms(500)).await;
        fleet.store.set_fault(Some(Fault::LostRequest));
        let result = fleet.engine(0).enter(prioritized()).await;
        assert_eq!(result.is_ok(), passes, "{when_down:?}");
        assert!(fleet.at() <= ms(701), "{:?}", fleet.at());
        fleet.store.set_fault(None);
        sleep(SECOND * 3).await;
        fleet.begin_second().await;
        assert_eq!(fleet.passed(20, plain()).await, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lent_is_told_to_a_store_that_has_lost_its_data() {
    let fleet = patient::<2>(second(10)).await;
    assert_eq!(fleet.passed(20, plain()).await, 10);
    fleet.go_to(ms(100)).await;
    let calls: Vec<_> = (0..6)
        .map(|at| fleet.spawn(at % 2, prioritized()))
        .collect();
    sleep(ms(10)).await;
    fleet.store.flush();
    fleet.go_to(ms(990)).await;
    for call in calls {
        assert!(call.await.unwrap().unwrap() < ms(3));
    }
    assert_eq!(fleet.passed(20, plain()).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_bucket_outlives_the_task_of_the_store() {
    let mut fleet = patient::<2>(second(10)).await;
    assert_eq!(fleet.passed(20, plain()).await, 10);
    fleet.go_to(ms(500)).await;
    let asking = fleet.engine(0).try_enter(prioritized());
    let lent = fleet.spawn(0, prioritized());
    sleep(ms(5)).await;
    let last = fleet.spawn(0, prioritized());
    tokio::task::yield_now().await;
    let (engine, handle) = fleet.engines.remove(0);
    handle.shutdown().await;
    assert!(lent.await.unwrap().unwrap() < ms(3));
    assert!(
        last.await.unwrap().unwrap() < ms(3),
        "the store has answered it"
    );
    // Two of ten are spent, and that of the third is not given back any more.
    drop(asking);
    assert_eq!(fleet.passed(20, plain()).await, 7);
    drop(engine);
}

#[tokio::test(start_paused = true)]
async fn a_reload_while_a_call_waits_judges_it_by_the_new_rules() {
    let new: [(Rules, usize); 3] = [
        (second(3).into(), 2),
        (second(0).into(), 0),
        (
            FlowRule::per_minute("/v1", 9)
                .buckets(1)
                .shared()
                .exact()
                .into(),
            8,
        ),
    ];
    for (rules, left) in new {
        let fleet = patient::<1>(second(10)).await;
        assert_eq!(fleet.passed(20, plain()).await, 10);
        fleet.go_to(ms(500)).await;
        let waiting = fleet.spawn(0, prioritized());
        sleep(ms(10)).await;
        fleet.engine(0).reload(rules.clone());
        let passed = waiting.await.unwrap();
        assert!(passed.as_ref().is_ok_and(|at| *at < ms(6)), "{passed:?}");
        assert_eq!(fleet.passed(20, plain()).await, left, "{rules:?}");
    }
    // Without the rule, too.
    let fleet = patient::<1>(second(10)).await;
    assert_eq!(fleet.passed(20, plain()).await, 10);
    fleet.go_to(ms(500)).await;
    let waiting = fleet.spawn(0, prioritized());
    sleep(ms(10)).await;
    fleet.engine(0).reload(Rules::new());
    assert!(waiting.await.unwrap().is_ok_and(|at| at < ms(3)));
}

/// By the old time, permits in hand are still good, and those of the next bucket become so. By the
/// new one, another bucket has begun meanwhile.
#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_steps_ahead_gives_three_limits_where_calls_borrow() {
    let fleet = patient::<2>(second(2)).await;
    fleet.go_to(ms(100)).await;
    // Calls that leave before the answer leave their permits in hand.
    drop([0, 1].map(|_| fleet.engine(0).try_enter(plain())));
    sleep(ms(5)).await;
    let borrowed = [
        fleet.lent(1, prioritized()).await,
        fleet.lent(1, prioritized()).await,
    ];
    fleet.go_to(ms(400)).await;
    fleet.store.step_ahead(ms(1_700));
    // The server is in its third second now, until 1.3.
    let mut passed = 0;
    for _ in 0..2 {
        let verdict = fleet.engine(0).try_enter(plain());
        passed += u32::from(matches!(verdict, Verdict::Pass(_)));
    }
    for waiting in borrowed {
        passed += u32::from(waiting.ready().await.is_ok());
    }
    sleep(ms(50)).await;
    assert!(fleet.at() < ms(300));
    for _ in 0..4 {
        passed += u32::from(fleet.engine(1).enter(plain()).await.is_ok());
    }
    assert!(fleet.at() < ms(300));
    assert_eq!(passed, 6);
}
