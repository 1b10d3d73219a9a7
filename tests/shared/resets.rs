//! Keys that are given their whole quota back, over several engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_sentinel::read::SharedKeyedView;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Fault, MemoryStore, QuotaStore, StoreError, StoreErrorKind,
    StoreFuture, StoreSettings,
};
use tower_sentinel::{Call, FlowRule, KeyedRule, Rule, Rules, Sentinel};

use super::{Fleet, SECOND, ms};

/// Longer than it takes until all engines have heard of a reset: a beat, and two requests.
const HEARD: std::time::Duration = ms(260);

fn window() -> KeyedRule {
    KeyedRule::per_hour("/v1", 10).window().shared()
}

fn by(user: &str) -> Call<'_> {
    Call::new("/v1").param(user).origin(user)
}

fn view(engine: &Sentinel) -> SharedKeyedView {
    engine.node("/v1").unwrap().shared_keyed_rules().remove(0)
}

fn resets(engine: &Sentinel) -> u64 {
    engine.snapshot().shared_rules()[0].resets()
}

/// How many of 40 calls pass on one engine.
async fn passed(engine: &Sentinel, call: Call<'_>) -> usize {
    let mut passed = 0;
    for _ in 0..40 {
        passed += usize::from(engine.enter(call).await.is_ok());
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_reset_has_its_whole_quota_over_all_engines() {
    let flow = |buckets| FlowRule::per_hour("/v1", 10).by_origin().buckets(buckets);
    let rules: [Rule; 6] = [
        window().into(),
        window().exact().into(),
        window().cost("tokens").into(),
        flow(1).shared().into(),
        flow(2).shared().exact().into(),
        flow(10).shared().into(),
    ];
    for rule in rules {
        let fleet = Fleet::new::<2>(Rules::new().with(rule.clone())).await;
        let [one, two] = [fleet.engine(0), fleet.engine(1)];
        let reserve = |user| by(user).reserve("tokens", 1);
        // Both know of both keys that nothing is left of them.
        for user in ["ann", "bob"] {
            assert_eq!(fleet.passed(40, reserve(user)).await, 10, "{rule:?}");
        }
        tokio::time::sleep(SECOND).await;
        for user in ["ann", "bob"] {
            assert_eq!(fleet.passed(40, reserve(user)).await, 0, "{rule:?}");
        }
        assert_eq!(view(one).reset("ann").await, Ok(true));
        assert_eq!(view(one).left("ann"), Some(10));
        assert_eq!(
            passed(one, reserve("ann").batch(2)).await,
            match rule {
                Rule::Keyed(ref rule) if rule.get_cost().is_some() => 10,
                _ => 5,
            }
        );
        tokio::time::sleep(HEARD).await;
        assert_eq!(passed(two, reserve("ann")).await, 0, "{rule:?}");
        // All of it is spent, and the other engine is the first to use what comes then.
        assert_eq!(view(one).reset("ann").await, Ok(true));
        tokio::time::sleep(HEARD).await;
        assert_eq!(passed(two, reserve("ann")).await, 10, "{rule:?}");
        assert_eq!(passed(one, reserve("ann")).await, 0, "{rule:?}");
        assert_eq!(fleet.passed(40, reserve("bob")).await, 0, "{rule:?}");
        // Who has spent nothing has its whole quota as before.
        assert_eq!(view(two).reset("eve").await, Ok(false));
        assert_eq!(fleet.passed(40, reserve("eve")).await, 10, "{rule:?}");
        assert_eq!([resets(one), resets(two)], [2, 0]);
        // The window goes on with what was taken since.
        tokio::time::sleep(SECOND).await;
        assert_eq!(fleet.passed(40, reserve("ann")).await, 0, "{rule:?}");
        fleet.begin_minute().await;
        tokio::time::sleep(SECOND * 7_200).await;
        assert_eq!(fleet.passed(40, reserve("ann")).await, 10, "{rule:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_in_earlier_buckets_is_forgotten_as_well() {
    let flow = |buckets| {
        let rule = FlowRule::per_minute("/v1", 10).by_origin();
        Rule::from(rule.buckets(buckets).shared().exact())
    };
    let keyed = KeyedRule::per_minute("/v1", 10).window().shared().exact();
    for (rule, bucket) in [(flow(10), 6), (flow(3), 20), (keyed.into(), 30)] {
        let fleet = Fleet::new::<2>(Rules::new().with(rule)).await;
        fleet.begin_minute().await;
        assert_eq!(fleet.passed(6, by("ann")).await, 6);
        tokio::time::sleep(SECOND * bucket).await;
        assert_eq!(fleet.passed(40, by("ann")).await, 4);
        assert_eq!(view(fleet.engine(0)).reset("ann").await, Ok(true));
        tokio::time::sleep(HEARD).await;
        assert_eq!(fleet.passed(40, by("ann")).await, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn permits_in_hand_and_those_that_are_borrowed_are_forgotten_with_the_key() {
    let rule = FlowRule::per_second("/v1", 100).by_origin().buckets(1);
    let fleet = Fleet::new::<1>(rule.shared()).await;
    let engine = fleet.engine(0);
    // A busy key, of which some are drawn ahead.
    let in_hand = || engine.snapshot().shared_rules()[0].in_hand();
    for _ in 0..80 {
        assert!(engine.enter(by("ann")).await.is_ok());
        tokio::time::sleep(ms(2)).await;
    }
    assert!(in_hand() > 0);
    assert_eq!(view(engine).reset("ann").await, Ok(true));
    assert_eq!((in_hand(), view(engine).left("ann")), (0, Some(100)));
    assert_eq!(fleet.passed(300, by("ann")).await, 100);
    // Late in the second, calls may borrow of the next one.
    tokio::time::sleep(ms(600)).await;
    let waits: Vec<_> = (0..30)
        .map(|_| engine.try_enter(by("ann").prioritized(true)))
        .collect();
    tokio::time::sleep(ms(10)).await;
    assert!(fleet.passed(10, by("ann")).await == 0);
    assert_eq!(view(engine).reset("ann").await, Ok(true));
    drop(waits);
    fleet.begin_second().await;
    assert_eq!(fleet.passed(300, by("ann")).await, 100);
}

#[tokio::test(start_paused = true)]
async fn what_runs_over_a_reset_counts_no_more_and_may_be_given_back() {
    let rule = KeyedRule::per_hour("/v1", 100).window().cost("tokens");
    let fleet = Fleet::new::<2>(rule.shared()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let reserve = |n| by("ann").reserve("tokens", n);
    let mut here = one.enter(reserve(30)).await.unwrap();
    let mut there = two.enter(reserve(60)).await.unwrap();
    assert!(one.enter(reserve(50)).await.is_err());
    assert_eq!(view(one).reset("ann").await, Ok(true));
    let whole = one.enter(reserve(100)).await.unwrap();
    tokio::time::sleep(HEARD).await;
    assert!(two.enter(reserve(1)).await.is_err());
    // 50 come back of what does not count, as the other engine has not forgotten it.
    there.settle("tokens", 10);
    tokio::time::sleep(HEARD).await;
    assert!(one.enter(reserve(51)).await.is_err());
    assert!(one.enter(reserve(50)).await.is_ok());
    // An excess is booked as ever.
    assert_eq!(view(two).reset("ann").await, Ok(true));
    here.settle("tokens", 40);
    tokio::time::sleep(HEARD).await;
    assert!(two.enter(reserve(91)).await.is_err());
    assert!(two.enter(reserve(90)).await.is_ok());
    drop(whole);
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_the_store_does_not_answer_says_so_and_can_be_made_again() {
    let fleet = Fleet::new::<2>(window().exact()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    assert_eq!(fleet.passed(40, by("ann")).await, 10);
    tokio::time::sleep(SECOND).await;
    let kind = |reset: Result<bool, StoreError>| reset.map_err(|error| error.kind());
    // Each of its three requests, before and after it has arrived.
    for answered in 0..3 {
        for fault in [Fault::LostRequest, Fault::LostAnswer] {
            assert_eq!(fleet.passed(40, by("ann")).await, 0);
            let faults = (0..answered).map(|_| Fault::SlowRequest(ms(0)));
            fleet.store.inject(faults.chain([fault]));
            let view = view(one);
            let reset = kind(view.reset("ann").await);
            assert_eq!(reset, Err(StoreErrorKind::Late), "{fault:?} of {answered}");
            let before = resets(one);
            view.reset("ann").await.unwrap();
            tokio::time::sleep(HEARD * 2).await;
            assert_eq!(passed(two, by("ann")).await, 10, "{fault:?} of {answered}");
            assert_eq!(passed(one, by("ann")).await, 0, "{fault:?} of {answered}");
            assert!(resets(one) <= before + 1);
        }
    }
    let refused = Fault::Error(StoreErrorKind::ReadOnly);
    fleet.store.inject([refused]);
    assert_eq!(
        kind(view(one).reset("ann").await),
        Err(StoreErrorKind::ReadOnly)
    );
    // While it is away nothing is sent to it.
    fleet.store.set_fault(Some(refused));
    tokio::time::sleep(SECOND).await;
    let trips = fleet.store.trips();
    let away = view(one).reset("ann").await.unwrap_err();
    assert_eq!(away.to_string(), "the store cannot be reached: it is away");
    assert_eq!(fleet.store.trips(), trips);
    fleet.store.set_fault(None);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(kind(view(two).reset("ann").await), Ok(true));
    assert_eq!(passed(two, by("ann")).await, 10);
    // Nor by an engine of which nobody has started the store.
    let idle = Sentinel::builder()
        .rules(window())
        .store(fleet.store.clone());
    let idle = idle.build();
    drop(idle.try_enter(by("ann")));
    let idle = view(&idle).reset("ann").await.unwrap_err();
    assert_eq!(
        idle.to_string(),
        "the store cannot be reached: it was not started"
    );
}

/// A store that some engines do not reach.
#[derive(Clone, Debug)]
struct Far {
    store: MemoryStore,
    is_cut: Arc<AtomicBool>,
}

impl Far {
    fn check(&self) -> Result<(), StoreError> {
        let error = || StoreError::new(StoreErrorKind::Unreachable, "cut off");
        (!self.is_cut.load(Ordering::Relaxed))
            .then_some(())
            .ok_or_else(error)
    }
}

impl QuotaStore for Far {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(async move {
            self.check()?;
            self.store.draw(draws).await
        })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(async move {
            self.check()?;
            self.store.beat(alive).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_was_cut_off_hears_of_a_reset_when_it_is_back() {
    let fleet = Fleet::new::<1>(window().exact()).await;
    let far = Far {
        store: fleet.store.clone(),
        is_cut: Arc::default(),
    };
    let two = Sentinel::builder()
        .rules(window().exact())
        .clock(fleet.clock)
        .store(far.clone())
        .store_settings(StoreSettings::new().nodes(2))
        .build();
    let handle = two.start_store().unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(passed(&two, by("ann")).await, 10);
    assert_eq!(passed(&two, by("ann")).await, 0);
    tokio::time::sleep(SECOND).await;
    far.is_cut.store(true, Ordering::Relaxed);
    tokio::time::sleep(SECOND).await;
    assert_eq!(fleet.passed(1, by("ann")).await, 0);
    assert_eq!(view(fleet.engine(0)).reset("ann").await, Ok(true));
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(passed(&two, by("ann")).await, 0);
    far.is_cut.store(false, Ordering::Relaxed);
    // Probes come at least every 240 ms; half a second later it draws more than its share.
    tokio::time::sleep(SECOND).await;
    assert_eq!(passed(&two, by("ann")).await, 10);
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_reset_that_comes_after_it_refuses_nobody_for_long() {
    for rule in [window(), window().exact()] {
        let settings = StoreSettings::new().nodes(2).store_wait(SECOND * 4);
        let fleet = Fleet::with::<2>(rule, settings).await;
        let [one, two] = [fleet.engine(0), fleet.engine(1)];
        assert_eq!(passed(two, by("bob")).await, 10);
        assert_eq!(passed(one, by("ann")).await, 10);
        tokio::time::sleep(SECOND).await;
        let asks = {
            let two = two.clone();
            fleet.store.inject([Fault::SlowAnswer(SECOND * 2)]);
            tokio::spawn(async move { two.enter(by("ann")).await.is_ok() })
        };
        tokio::time::sleep(ms(1)).await;
        assert_eq!(view(one).reset("ann").await, Ok(true));
        assert!(!asks.await.unwrap());
        assert_eq!(passed(two, by("ann")).await, 10);
        assert_eq!(fleet.passed(40, by("bob")).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn to_hear_of_resets_costs_no_draws_and_one_reset_costs_each_key_one_more() {
    let fleet = Fleet::new::<2>(window().exact()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    for user in ["ann", "bob"] {
        assert_eq!(fleet.passed(40, by(user)).await, 10);
    }
    let draws = fleet.store.draws();
    for _ in 0..500 {
        assert_eq!(passed(two, by("bob")).await, 0);
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(fleet.store.draws(), draws);
    assert_eq!(view(one).reset("ann").await, Ok(true));
    let reset = fleet.store.draws() - draws;
    for _ in 0..500 {
        assert_eq!(passed(two, by("bob")).await, 0);
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(fleet.store.draws(), draws + reset + 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_started_again_hears_of_what_was_reset_meanwhile() {
    let fleet = Fleet::new::<1>(window().exact()).await;
    let two = Sentinel::builder()
        .rules(window().exact())
        .clock(fleet.clock)
        .store(fleet.store.clone())
        .build();
    let handle = two.start_store().unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(passed(&two, by("ann")).await, 10);
    drop(handle);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(fleet.passed(1, by("ann")).await, 0);
    assert_eq!(view(fleet.engine(0)).reset("ann").await, Ok(true));
    let handle = two.start_store().unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(passed(&two, by("ann")).await, 10);
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_loses_its_data_learns_what_others_had_drawn_before_a_reset() {
    let fleet = Fleet::new::<2>(window().exact()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    for (engine, calls) in [(one, 6), (two, 4)] {
        for _ in 0..calls {
            assert!(engine.enter(by("ann")).await.is_ok());
        }
    }
    assert_eq!(view(one).reset("ann").await, Ok(true));
    assert!(one.enter(by("ann")).await.is_ok());
    fleet.store.flush();
    tokio::time::sleep(SECOND * 2).await;
    // One since the reset, and the four of the second engine.
    assert_eq!(fleet.passed(40, by("ann")).await, 5);
}
