//! Shared rules: one quota over several engines of one store.
//!
//! Time is tokio's, paused. Each engine has a task of its own that asks the store, as each
//! process of a service has.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::key::Bearer;
use tower_sentinel::store::{
    CannotStart, Fault, MemoryStore, StoreErrorKind, StoreHandle, StoreSettings, StoreState,
    WhenDown,
};
use tower_sentinel::{
    BlockKind, Call, Clock, FlowRule, IsolationRule, KeyedRule, MissingKey, Rule, Rules, Sentinel,
    SentinelLayer, Tick, Verdict,
};

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Engines over one store, which are all there.
struct Fleet {
    store: MemoryStore,
    clock: TokioClock,
    engines: Vec<(Sentinel, StoreHandle)>,
}

impl Fleet {
    async fn new<const N: usize>(rules: impl Into<Rules>) -> Self {
        Self::with::<N>(rules, StoreSettings::new().nodes(N as u32)).await
    }

    async fn with<const N: usize>(rules: impl Into<Rules>, settings: StoreSettings) -> Self {
        let (rules, clock) = (rules.into(), TokioClock::new());
        let store = MemoryStore::with_clock(clock);
        let engines = (0..N).map(|_| {
            let sentinel = Sentinel::builder()
                .rules(rules.clone())
                .clock(clock)
                .store(store.clone())
                .store_settings(settings.clone())
                .build();
            let handle = sentinel.start_store().unwrap();
            (sentinel, handle)
        });
        let engines = engines.collect();
        let fleet = Self {
            store,
            clock,
            engines,
        };
        // All have said that they are there, and a second begins.
        tokio::time::sleep(ms(600)).await;
        fleet.begin_second().await;
        fleet
    }

    async fn begin_second(&self) {
        let since = self.clock.now() - Tick::ZERO;
        let left = SECOND - Duration::from_nanos(u64::from(since.subsec_nanos()));
        tokio::time::sleep(left + ms(1)).await;
    }

    fn engine(&self, index: usize) -> &Sentinel {
        &self.engines[index].0
    }

    /// How many of `calls` pass on each engine in turn.
    async fn passed(&self, calls: usize, call: Call<'_>) -> usize {
        let mut passed = 0;
        for index in 0..calls {
            let engine = self.engine(index % self.engines.len());
            passed += usize::from(engine.enter(call).await.is_ok());
        }
        passed
    }
}

#[tokio::test(start_paused = true)]
async fn two_engines_admit_one_limit_in_every_second() {
    let fleet = Fleet::new::<2>(FlowRule::per_second("/search", 100).buckets(1).shared()).await;
    for _ in 0..5 {
        let passed = fleet.passed(300, Call::new("/search")).await;
        // The permits that the slower one has ahead at the end are lost.
        assert!((90..=100).contains(&passed), "{passed}");
        fleet.begin_second().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_exact_rule_leaves_nothing_over() {
    let rule = FlowRule::per_second("/search", 100).shared().exact();
    let fleet = Fleet::new::<3>(rule).await;
    assert_eq!(fleet.passed(300, Call::new("/search")).await, 100);
    let refused = fleet
        .engine(0)
        .enter(Call::new("/search"))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.kind(), refused.limit()),
        (BlockKind::Flow, Some(100))
    );
    let retry_after = refused.retry_after().unwrap();
    assert!(
        retry_after > ms(900) && retry_after < ms(1_100),
        "{retry_after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn callers_who_are_refused_cost_the_store_nothing() {
    let rule = FlowRule::per_minute("/search", 10).by_origin().shared();
    let fleet = Fleet::new::<2>(rule).await;
    let call = Call::new("/search").origin("ann");
    assert_eq!(fleet.passed(40, call).await, 10);
    let draws = fleet.store.draws();
    assert_eq!(fleet.passed(1_000, call).await, 0);
    assert_eq!(fleet.store.draws(), draws);
    // And another caller has a quota of its own.
    assert_eq!(
        fleet.passed(40, Call::new("/search").origin("bob")).await,
        10
    );
}

#[tokio::test(start_paused = true)]
async fn each_value_of_a_parameter_has_one_quota_over_all_engines() {
    let rule = KeyedRule::per_minute("/v1", 5)
        .window()
        .except("ann", 2)
        .tier("pro", 8)
        .shared();
    let fleet = Fleet::new::<3>(rule).await;
    let by = |user| Call::new("/v1").param(user);
    assert_eq!(fleet.passed(30, by("bob")).await, 5);
    assert_eq!(fleet.passed(30, by("ann")).await, 2);
    assert_eq!(fleet.passed(30, by("eve").tier("pro")).await, 8);
    assert_eq!(
        fleet.passed(30, Call::new("/v1")).await,
        5,
        "those without one share"
    );
    let refused = fleet.engine(0).enter(by("ann")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.limit()),
        (BlockKind::Keyed, Some(2))
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_key_is_what_the_rule_says() {
    let rule = |missing| {
        FlowRule::per_minute("/v1", 1)
            .by_origin()
            .missing(missing)
            .shared()
    };
    let fleet = Fleet::new::<1>(rule(MissingKey::Refuse)).await;
    let refused = fleet.engine(0).enter(Call::new("/v1")).await.unwrap_err();
    assert_eq!(refused.kind(), BlockKind::MissingKey);
    let fleet = Fleet::new::<1>(rule(MissingKey::Skip)).await;
    assert_eq!(fleet.passed(9, Call::new("/v1")).await, 9);
}

#[tokio::test(start_paused = true)]
async fn one_api_key_has_one_quota_over_three_engines() {
    let rule = || KeyedRule::per_minute("/v1", 5).window().shared();
    let fleet = Fleet::new::<3>(rule()).await;
    let request = |token: &str| {
        let token = format!("Bearer {token}");
        Request::get("/v1")
            .header("authorization", token)
            .body(())
            .unwrap()
    };
    // Each layer has an extractor of its own, as each process has.
    let services: Vec<_> = (0..3)
        .map(|index| {
            let layer = SentinelLayer::with(fleet.engine(index).clone());
            let layer = layer.param(Bearer::new().agreed("hush"));
            layer.layer(service_fn(|_: Request<()>| async {
                Ok::<_, Infallible>(Response::new(String::new()))
            }))
        })
        .collect();
    let mut passed = 0;
    for index in 0..30 {
        let service = services[index % 3].clone();
        let response = service.oneshot(request("k-1f9c")).await.unwrap();
        passed += usize::from(response.status() == 200);
    }
    assert_eq!(passed, 5);
    let response = services[0]
        .clone()
        .oneshot(request("k-77d0"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_each_process_hashes_by_itself_is_refused_loudly() {
    let fleet = Fleet::new::<1>(KeyedRule::per_minute("/v1", 5).window().shared()).await;
    let layer = SentinelLayer::with(fleet.engine(0).clone()).param(Bearer::new());
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let request = Request::get("/v1").header("authorization", "Bearer k-1f9c");
    let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 403);
}

#[tokio::test(start_paused = true)]
async fn rules_for_one_origin_or_context_leave_others_alone() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 2).for_origin("ann").shared())
        .with(FlowRule::per_minute("/v1", 3).in_context("batch").shared());
    let fleet = Fleet::new::<2>(rules).await;
    let call = Call::new("/v1");
    assert_eq!(fleet.passed(9, call.origin("ann")).await, 2);
    assert_eq!(fleet.passed(9, call.context("batch")).await, 3);
    assert_eq!(fleet.passed(9, call.origin("bob").context("web")).await, 9);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_one_rule_refuses_costs_the_others_nothing() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 5).shared().exact().id("all"))
        .with(
            FlowRule::per_minute("/v1", 2)
                .by_origin()
                .shared()
                .exact()
                .id("each"),
        )
        .with(FlowRule::per_minute("/v1", 3).id("local"));
    let fleet = Fleet::new::<1>(rules).await;
    let (engine, call) = (fleet.engine(0), Call::new("/v1"));
    assert_eq!(fleet.passed(9, call.origin("ann")).await, 2);
    let refused = engine.enter(call.origin("ann")).await.unwrap_err();
    assert_eq!(refused.rule(), "each");
    // Of the five for all three are left, but only one of the local rule.
    assert_eq!(fleet.passed(9, call.origin("bob")).await, 1);
    let refused = engine.enter(call.origin("eve")).await.unwrap_err();
    assert_eq!(refused.rule(), "local");
    // What was refused has given back what it had: two are still there.
    engine.reload(
        Rules::build(
            engine
                .rules()
                .into_iter()
                .filter(|rule| rule.id() != Some("local")),
        )
        .unwrap(),
    );
    assert_eq!(fleet.passed(9, call.origin("eve")).await, 2);
    assert_eq!(
        engine.enter(call.origin("zoe")).await.unwrap_err().rule(),
        "all"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_drawn_for_a_call_that_a_local_rule_refuses() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 100).shared().exact())
        .with(FlowRule::per_minute("/v1", 0).id("local"));
    let fleet = Fleet::new::<1>(rules).await;
    assert_eq!(fleet.passed(9, Call::new("/v1")).await, 0);
    assert_eq!(fleet.store.draws(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_counts_by_its_weight() {
    let fleet = Fleet::new::<2>(FlowRule::per_minute("/v1", 10).shared()).await;
    let heavy = Call::new("/v1").batch(4);
    assert_eq!(fleet.passed(6, heavy).await, 2);
    assert_eq!(fleet.passed(6, Call::new("/v1")).await, 2);
    let refused = fleet
        .engine(0)
        .enter(Call::new("/v1").batch(11))
        .await
        .unwrap_err();
    assert_eq!(refused.retry_after(), None, "it never passes");
    assert_eq!(fleet.passed(3, Call::new("/v1").batch(0)).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_queue_asks_when_its_turn_has_come() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/v1", 10).throttle(SECOND))
        .with(FlowRule::per_minute("/v1", 3).shared().exact().id("all"));
    let fleet = Fleet::new::<1>(rules).await;
    let engine = fleet.engine(0);
    let start = fleet.clock.now();
    for turn in 0..3 {
        drop(engine.enter(Call::new("/v1")).await.unwrap());
        let waited = fleet.clock.now() - start;
        assert!(
            waited >= ms(100) * turn && waited < ms(100) * turn + ms(60),
            "{waited:?}"
        );
    }
    assert_eq!(
        engine.enter(Call::new("/v1")).await.unwrap_err().rule(),
        "all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_slot_takes_its_permit_with_it() {
    let rules = Rules::new()
        .with(IsolationRule::new("/v1", 1).queue(SECOND))
        .with(FlowRule::per_minute("/v1", 2).shared().exact().id("all"));
    let fleet = Fleet::new::<1>(rules).await;
    let engine = fleet.engine(0);
    let running = engine.enter(Call::new("/v1")).await.unwrap();
    let (next, ()) = tokio::join!(engine.enter(Call::new("/v1")), async {
        tokio::time::sleep(ms(300)).await;
        drop(running);
    });
    drop(next.unwrap());
    assert_eq!(
        engine.enter(Call::new("/v1")).await.unwrap_err().rule(),
        "all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_verdict_to_wait_can_be_admitted_by_hand_or_dropped() {
    let fleet = Fleet::new::<1>(FlowRule::per_minute("/v1", 2).shared().exact()).await;
    let engine = fleet.engine(0);
    let Verdict::Wait(waiting) = engine.try_enter(Call::new("/v1")) else {
        panic!("the store must be asked");
    };
    assert_eq!(waiting.delay(), ms(50));
    tokio::time::sleep(ms(5)).await;
    drop(waiting.admit().unwrap());
    // Whoever is gone before the answer leaves the permit in the lease.
    drop(engine.try_enter(Call::new("/v1")));
    tokio::time::sleep(ms(5)).await;
    assert!(matches!(
        engine.try_enter(Call::new("/v1")),
        Verdict::Pass(_)
    ));
    let Verdict::Wait(last) = engine.try_enter(Call::new("/v1")) else {
        panic!("it must be asked again");
    };
    assert!(last.ready().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_after_its_answer_refunds_its_permit() {
    let fleet = Fleet::new::<1>(FlowRule::per_minute("/v1", 1).shared().exact()).await;
    let engine = fleet.engine(0);
    let waiting = engine.try_enter(Call::new("/v1"));
    tokio::time::sleep(ms(5)).await;
    drop(waiting);
    assert!(matches!(
        engine.try_enter(Call::new("/v1")),
        Verdict::Pass(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_patience_is_refused_and_warms_the_lease() {
    let fleet = Fleet::new::<1>(FlowRule::per_minute("/v1", 1).shared()).await;
    let engine = fleet.engine(0);
    let call = Call::new("/v1").patience(Duration::ZERO);
    let Verdict::Block(blocked) = engine.try_enter(call) else {
        panic!("it does not wait");
    };
    assert_eq!(
        (blocked.kind(), blocked.retry_after()),
        (BlockKind::Store, Some(SECOND))
    );
    tokio::time::sleep(ms(5)).await;
    assert!(matches!(engine.try_enter(call), Verdict::Pass(_)));
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_longer_than_it_may_and_the_store_is_not_asked_when_it_is_down() {
    let rule = FlowRule::per_second("/v1", 100).shared().exact();
    let fleet = Fleet::new::<2>(rule).await;
    fleet.store.set_fault(Some(Fault::LostRequest));
    let start = fleet.clock.now();
    drop(fleet.engine(0).enter(Call::new("/v1")).await.unwrap());
    let waited = fleet.clock.now() - start;
    assert!(waited <= ms(50), "{waited:?}");
    tokio::time::sleep(ms(200)).await;
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
async fn a_limit_per_node_grows_with_the_processes() {
    let rule = FlowRule::per_minute("/v1", 10).shared().exact().per_node();
    let fleet = Fleet::new::<3>(rule).await;
    assert_eq!(fleet.passed(90, Call::new("/v1")).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_was_counted_and_goes_by_the_new_limit() {
    let rule = |limit: u32| FlowRule::per_minute("/v1", limit).shared().exact();
    let fleet = Fleet::new::<2>(rule(10)).await;
    assert_eq!(fleet.passed(40, Call::new("/v1")).await, 10);
    for (engine, _) in &fleet.engines {
        assert!(engine.try_reload([rule(12)]).unwrap());
    }
    assert_eq!(fleet.passed(40, Call::new("/v1")).await, 2);
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_permits_go_back_and_others_have_them() {
    let rule = FlowRule::per("/v1", 200, Duration::from_secs(60))
        .buckets(1)
        .shared();
    let mut fleet = Fleet::new::<2>(rule).await;
    let mut passed = 0;
    for _ in 0..100 {
        passed += usize::from(fleet.engine(0).enter(Call::new("/v1")).await.is_ok());
        tokio::time::sleep(ms(1)).await;
    }
    let (_, handle) = fleet.engines.remove(0);
    handle.shutdown().await;
    for _ in 0..200 {
        passed += usize::from(fleet.engine(0).enter(Call::new("/v1")).await.is_ok());
    }
    assert_eq!(passed, 200);
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
    assert_eq!(sentinel.start_store().unwrap_err(), CannotStart::Runs);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
    drop(handle);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Idle);
    assert_eq!(passed(&sentinel), 3);
}

#[test]
fn a_shared_rule_without_a_store_is_an_error_that_says_so() {
    let rule = || FlowRule::per_second("/v1", 9).shared();
    let message = "rule 0 (flow \"/v1\"): shared is true, must be left out where the engine has \
         no store: give it one by `Builder::store`";
    assert_eq!(
        Sentinel::try_new([rule()]).unwrap_err().to_string(),
        message
    );
    let sentinel = Sentinel::new(Rules::new());
    assert_eq!(
        sentinel.try_reload([rule()]).unwrap_err().to_string(),
        message
    );
    assert!(sentinel.rules().is_empty());
    let build = std::panic::catch_unwind(|| Sentinel::new(rule()));
    assert_eq!(
        build.unwrap_err().downcast_ref::<String>().unwrap(),
        message
    );
    assert_eq!(sentinel.start_store().unwrap_err(), CannotStart::NoStore);
    // Put in force all the same, it limits the process alone, by all of the limit.
    assert!(sentinel.reload(rule().into()));
    let call = || sentinel.try_enter(Call::new("/v1"));
    assert_eq!(
        (0..40)
            .filter(|_| matches!(call(), Verdict::Pass(_)))
            .count(),
        9
    );
}

#[test]
fn the_store_cannot_be_started_without_a_runtime() {
    let builder = || Sentinel::builder().store(MemoryStore::new());
    assert_eq!(
        builder().build().start_store().unwrap_err(),
        CannotStart::NoRuntime
    );
    let bad = std::panic::catch_unwind(|| {
        builder()
            .store_settings(StoreSettings::new().nodes(0))
            .build()
    });
    let message = bad.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert_eq!(
        message,
        "store settings: nodes is 0, must be between 1 and 65535"
    );
}

#[test]
fn what_cannot_be_shared_says_why() {
    let flow = || FlowRule::per_second("/v1", 9).shared();
    let param = || KeyedRule::per_second("/v1", 9).shared();
    let cases: Vec<(Rule, &str, &str)> = vec![
        (
            flow().throttle(SECOND).into(),
            "shared",
            "one queue and one clock cannot be shared",
        ),
        (
            flow().when("/other").into(),
            "shared",
            "nothing is taken there",
        ),
        (
            flow().for_origin("other").into(),
            "shared",
            "name the origins",
        ),
        (flow().lend(true).into(), "lend", "does not lend"),
        (
            flow().buckets(200).into(),
            "buckets",
            "at most 128 with `shared`",
        ),
        (
            flow().buckets(125).into(),
            "interval",
            "a bucket lasts 10 ms",
        ),
        (
            param().into(),
            "shared",
            "a refilled quota has no buckets to lease from",
        ),
        (param().throttle(SECOND).into(), "shared", "one queue"),
        (
            KeyedRule::concurrency("/v1", 3).shared().into(),
            "shared",
            "an owner and an expiry",
        ),
        (flow().shadow(), "shared", "in shadow mode"),
        (
            FlowRule::per_second("/v1", 9).exact().into(),
            "exact",
            "left out without `shared`",
        ),
        (
            FlowRule::per_second("/v1", 9).per_node().into(),
            "per_node",
            "without `shared`",
        ),
        (
            FlowRule::per_second("/v1", 9).local_limit(3).into(),
            "local_limit",
            "without `shared`",
        ),
        (
            FlowRule::per_second("/v1", 9).store_wait(ms(3)).into(),
            "store_wait",
            "without",
        ),
        (
            FlowRule::per_second("/v1", 9)
                .when_down(WhenDown::Open)
                .into(),
            "when_down",
            "left out without `shared`",
        ),
        (
            flow().store_wait(ms(0)).into(),
            "store_wait",
            "between 1 ms and 10 s",
        ),
        (
            flow().when_down(WhenDown::Open).local_limit(3).into(),
            "local_limit",
            "unless `when_down` is local-share",
        ),
    ];
    for (rule, field, why) in cases {
        let error = Rules::build([rule.clone()]).unwrap_err();
        let problem = &error.problems()[0];
        assert_eq!(problem.field(), field, "{error}");
        assert!(problem.allowed().contains(why), "{error}");
    }
    let error = Rules::build([flow(), flow()]).unwrap_err();
    assert_eq!(error.problems()[0].field(), "id", "{error}");
    assert!(Rules::build([flow().id("a"), flow().id("b"), flow().by_origin()]).is_ok());
}
