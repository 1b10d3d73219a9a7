//! Shared rules in shadow mode: what they count, and that nobody notices them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tower_sentinel::clock::TokioClock;
use tower_sentinel::document::{Document, Format};
use tower_sentinel::hook::{BlockEvent, Hook};
use tower_sentinel::observe::Metrics;
use tower_sentinel::read::ShadowView;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Fault, MemoryStore, QuotaStore, StoreError, StoreErrorKind,
    StoreFuture, StoreSettings, WhenDown,
};
use tower_sentinel::{Call, Clock, FlowRule, Key, KeyedRule, Rule, Rules, Sentinel};

use super::{Fleet, SECOND, ms};

fn exact(limit: u32) -> FlowRule {
    FlowRule::per_minute("/v1", limit).shared().exact()
}

fn would_block(sentinel: &Sentinel) -> u64 {
    sentinel.shadows().iter().map(ShadowView::would_block).sum()
}

/// How many calls all engines together would have let pass and refused, when all answers are there.
async fn judged(fleet: &Fleet) -> (u64, u64) {
    tokio::time::sleep(ms(1)).await;
    let mut judged = (0, 0);
    for (engine, _) in &fleet.engines {
        for shadow in engine.shadows() {
            let totals = *shadow.snapshot().totals();
            assert_eq!(shadow.would_block(), totals.block());
            judged.0 += totals.pass();
            judged.1 += totals.block();
        }
    }
    judged
}

#[tokio::test(start_paused = true)]
async fn engines_count_one_limit_together_and_refuse_nothing() {
    for rule in [
        exact(100).shadow(),
        FlowRule::per_minute("*", 100).shared().exact().shadow(),
        KeyedRule::per_minute("/v1", 100).window().shared().shadow(),
        exact(100).by_origin().shadow(),
    ] {
        let fleet = Fleet::new::<3>(rule).await;
        let call = Call::new("/v1").param("ann").origin("ann");
        let start = fleet.clock.now();
        assert_eq!(fleet.passed(300, call).await, 300);
        assert_eq!(fleet.clock.now(), start, "no call has waited");
        assert_eq!(judged(&fleet).await, (100, 200));
        // Once all have heard that nothing is left, they ask nobody.
        assert_eq!(fleet.passed(9, call).await, 9);
        assert_eq!(judged(&fleet).await, (100, 209));
        let draws = fleet.store.draws();
        assert_eq!(fleet.passed(90, call).await, 90);
        assert_eq!(judged(&fleet).await, (100, 299));
        assert_eq!(fleet.store.draws(), draws);
    }
}

/// The verdicts on calls in a pattern, one by one; with `pause` after each.
async fn script(fleet: &Fleet) -> Vec<bool> {
    let mut passed = Vec::new();
    for number in 0..1_200_u64 {
        let engine = fleet.engine((number % 5 / 3) as usize);
        let call = Call::new("/v1").batch(1 + (number % 7 / 6) as u32);
        passed.push(engine.enter(call).await.is_ok());
        tokio::time::sleep(ms(number % 4)).await;
    }
    tokio::time::sleep(ms(100)).await;
    passed
}

#[tokio::test(start_paused = true)]
async fn a_rule_in_shadow_mode_refuses_as_many_as_if_it_were_enforced() {
    for rule in [
        FlowRule::per_second("/v1", 200).shared().exact(),
        FlowRule::per_second("/v1", 200).shared().buckets(1),
        FlowRule::per_second("/v1", 300).shared().buckets(10),
    ] {
        let enforced = Fleet::new::<2>(rule.clone()).await;
        let passed = script(&enforced).await;
        let blocked = (0..2).map(|index| {
            let node = enforced.engine(index).node("/v1").unwrap();
            (node.totals().pass(), node.totals().block())
        });
        let blocked = blocked.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert!(passed.contains(&false) && passed.contains(&true));

        let shadow = Fleet::new::<2>(rule.shadow()).await;
        assert!(script(&shadow).await.iter().all(|passed| *passed));
        assert_eq!(judged(&shadow).await, blocked);
    }
}

/// A store that writes down what is drawn from it.
#[derive(Clone, Debug)]
struct Recorded {
    store: MemoryStore,
    draws: Sender<(String, Vec<u64>)>,
}

impl QuotaStore for Recorded {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        for draw in draws {
            let drawn = (draw.key(), draw.arguments());
            self.draws.send(drawn).unwrap();
        }
        self.store.draw(draws)
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        self.store.beat(alive)
    }
}

/// What enforced calls get by these rules, and what is drawn for the first of them.
async fn enforced(rules: Rules) -> (Vec<bool>, Vec<Vec<u64>>) {
    let clock = TokioClock::new();
    let (sender, drawn) = channel();
    let store = Recorded {
        store: MemoryStore::with_clock(clock),
        draws: sender,
    };
    store.store.set_fault(Some(Fault::SlowRequest(ms(3))));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock)
        .store(store)
        .build();
    let handle = sentinel.start_store().unwrap();
    tokio::time::sleep(ms(500)).await;
    let start = clock.now();
    let mut passed = Vec::new();
    for number in 0..900 {
        passed.push(sentinel.enter(Call::new("/v1")).await.is_ok());
        tokio::time::sleep(ms(number % 4)).await;
    }
    let took = clock.now() - start;
    passed.push(took < SECOND * 4);
    let key = sentinel.snapshot().shared_rules()[0]
        .store_key()
        .unwrap()
        .to_owned();
    handle.shutdown().await;
    let drawn = drawn.try_iter().filter(|(of, _)| *of == key);
    (passed, drawn.map(|(_, arguments)| arguments).collect())
}

#[tokio::test(start_paused = true)]
async fn enforced_calls_get_and_draw_the_same_with_and_without_it() {
    for rule in [
        FlowRule::per_second("/v1", 200).shared(),
        FlowRule::per_second("/v1", 200).shared().exact(),
    ] {
        let alone = Rules::from(rule.clone());
        // It needs no id, as it counts apart.
        let beside = Rules::new().with(rule.clone()).with(rule.shadow());
        assert_eq!(enforced(beside).await, enforced(alone).await);
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_for_a_slow_or_silent_store() {
    let fleet = Fleet::new::<2>(exact(10).shadow()).await;
    fleet.store.set_fault(Some(Fault::SlowRequest(ms(140))));
    let start = fleet.clock.now();
    assert_eq!(fleet.passed(30, Call::new("/v1")).await, 30);
    assert_eq!(fleet.clock.now(), start);
    assert_eq!(judged(&fleet).await, (0, 0), "no answer is there");
    tokio::time::sleep(ms(300)).await;
    assert_eq!(judged(&fleet).await, (10, 20));

    fleet.begin_minute().await;
    fleet.store.set_fault(Some(Fault::LostRequest));
    let start = fleet.clock.now();
    assert_eq!(fleet.passed(30, Call::new("/v1")).await, 30);
    assert_eq!(fleet.clock.now(), start);
    tokio::time::sleep(ms(300)).await;
    // Without an answer each engine judges by its share.
    assert_eq!(judged(&fleet).await, (20, 40));
}

#[tokio::test(start_paused = true)]
async fn without_the_store_it_counts_what_the_rule_would_do() {
    for (rule, passed) in [
        (exact(20), 20),
        (exact(20).local_limit(3), 6),
        (exact(20).when_down(WhenDown::Open), 60),
        (exact(20).when_down(WhenDown::Closed), 0),
    ] {
        let fleet = Fleet::new::<2>(rule.shadow()).await;
        let error = Fault::Error(StoreErrorKind::Unreachable);
        fleet.store.set_fault(Some(error));
        tokio::time::sleep(SECOND).await;
        assert_eq!(fleet.passed(60, Call::new("/v1")).await, 60);
        assert_eq!(judged(&fleet).await, (passed, 60 - passed));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_without_an_answer_are_judged_when_the_task_ends() {
    let mut fleet = Fleet::new::<1>(exact(20).shadow()).await;
    fleet.store.set_fault(Some(Fault::LostRequest));
    assert_eq!(fleet.passed(30, Call::new("/v1")).await, 30);
    assert_eq!(judged(&fleet).await, (0, 0));
    let (sentinel, handle) = fleet.engines.remove(0);
    drop(handle);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(would_block(&sentinel), 10);
    // And those that come afterwards at once.
    drop(sentinel.try_enter(Call::new("/v1")));
    assert_eq!(would_block(&sentinel), 11);
}

#[tokio::test(start_paused = true)]
async fn a_reload_into_shadow_mode_and_back_finds_each_count_as_it_was() {
    let rule = exact(10).id("ten");
    let fleet = Fleet::new::<2>(rule.clone()).await;
    let reload = |rule: Rule| {
        for (engine, _) in &fleet.engines {
            assert!(engine.try_reload([rule.clone()]).unwrap());
        }
    };
    assert_eq!(fleet.passed(8, Call::new("/v1")).await, 8);
    reload(rule.clone().shadow());
    assert_eq!(fleet.passed(14, Call::new("/v1")).await, 14);
    assert_eq!(judged(&fleet).await, (10, 4), "it begins anew");
    reload(rule.clone().into());
    assert_eq!(
        fleet.passed(9, Call::new("/v1")).await,
        2,
        "of ten, eight are taken"
    );
    reload(rule.shadow());
    assert_eq!(fleet.passed(5, Call::new("/v1")).await, 5);
    assert_eq!(judged(&fleet).await, (0, 5), "its ten are taken too");
}

#[test]
fn a_document_may_have_both_and_gives_them_names_of_their_own() {
    let text = "[store]\n[[rules]]\nkind = 'flow'\nresource = '/v1'\nthreshold = 9\nshared = true\n\
        [[rules]]\nkind = 'flow'\nresource = '/v1'\nthreshold = 5\nshared = true\nshadow = true\n";
    let document = Document::read(text, Format::Toml).unwrap();
    let rules = document.strict().unwrap();
    let flow = |limit: u32| FlowRule::per_second("/v1", limit).shared();
    assert_eq!(rules, Rules::new().with(flow(9)).with(flow(5).shadow()));
    let again = Document::from_rules(&rules).write(Format::Toml);
    assert_eq!(
        Document::read(&again, Format::Toml)
            .unwrap()
            .strict()
            .unwrap()
            .len(),
        2
    );
    // Two candidates need ids, as two enforced rules do.
    let error = Rules::build([flow(9).shadow(), flow(5).shadow()]).unwrap_err();
    assert_eq!(error.problems()[0].field(), "id", "{error}");
    assert!(Rules::build([flow(9).id("a").shadow(), flow(5).id("b").shadow()]).is_ok());
}

/// Tells which calls would have been refused.
#[derive(Debug)]
struct Told(Sender<(String, String)>);

impl Hook for Told {
    fn on_block(&self, event: &BlockEvent<'_>) {
        panic!("nothing is refused: {event:?}");
    }

    fn on_shadow_block(&self, event: &BlockEvent<'_>) {
        let by = event.blocked().rule().to_owned();
        let origin = event
            .origin()
            .map(|key| key.to_string())
            .unwrap_or_default();
        self.0.send((by, origin)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_snapshots_and_series_tell_it_as_of_other_rules_in_shadow_mode() {
    let rules = Rules::new()
        .with(exact(100).id("enforced"))
        .with(exact(5).id("tried").shadow());
    let fleet = Fleet::new::<1>(rules).await;
    let engine = fleet.engine(0);
    let (sender, told): (_, Receiver<_>) = channel();
    engine.hooks().register("told", Arc::new(Told(sender)));
    assert_eq!(fleet.passed(7, Call::new("/v1").origin("ann")).await, 7);
    tokio::time::sleep(ms(1)).await;
    let ann = ("tried".to_owned(), "ann".to_owned());
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [ann.clone(), ann]);

    let snapshot = engine.snapshot();
    assert_eq!(snapshot.shadows().collect::<Vec<_>>(), [("tried", 2)]);
    let figures = snapshot.shared_rules().iter();
    let figures = figures.map(|it| (it.rule(), it.granted(), it.refused(), it.cells()));
    assert_eq!(
        figures.collect::<Vec<_>>(),
        [("enforced", 7, 0, 1), ("tried", 5, 2, 1)]
    );
    let key = |place: usize| snapshot.shared_rules()[place].store_key().unwrap();
    assert_ne!(key(0), key(1));
    let own = engine.shadows()[0].snapshot();
    assert_eq!(own.shared_rules().len(), 1);
    assert_eq!(own.shared_rules()[0].rule(), "tried");

    let families = Metrics::new(engine).families();
    let series = |name: &str| -> Vec<_> {
        let family = families.iter().find(|it| it.name() == name).unwrap();
        let samples = family.samples().iter();
        samples.map(|it| it.value().as_f64()).collect()
    };
    assert_eq!(series("sentinel_shadow_blocked"), [2.0]);
    assert_eq!(series("sentinel_shared_granted"), [7.0, 5.0]);
    assert_eq!(series("sentinel_shared_refused"), [0.0]);
    assert_eq!(series("sentinel_shared_waited"), [7.0]);
    assert_eq!(series("sentinel_rule_blocked"), [0.0]);
    assert_eq!(engine.findings(), []);
}

#[tokio::test(start_paused = true)]
async fn an_engine_in_shadow_mode_counts_its_shared_rules() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let engine = |is_shadow| {
        let sentinel = Sentinel::builder()
            .rules(Rules::new().with(exact(5)).with(exact(4).shadow()))
            .clock(clock)
            .store(store.clone())
            .store_settings(StoreSettings::new().nodes(2))
            .shadow(is_shadow)
            .build();
        let handle = sentinel.start_store().unwrap();
        (sentinel, handle)
    };
    let (whole, enforced) = (engine(true), engine(false));
    tokio::time::sleep(ms(600)).await;
    let (mut seen, mut passed) = (0, 0);
    for _ in 0..9 {
        seen += u32::from(whole.0.enter(Call::new("/v1")).await.is_ok());
        passed += u32::from(enforced.0.enter(Call::new("/v1")).await.is_ok());
    }
    tokio::time::sleep(ms(1)).await;
    // Of its rules the tightest one decides; and they take nothing from those of the other.
    assert_eq!((seen, would_block(&whole.0)), (9, 5));
    assert_eq!((passed, would_block(&enforced.0)), (5, 1));
}

/// A hook that holds something, as long as the engine does.
#[derive(Debug)]
struct Holds {
    _held: Arc<()>,
}

impl Hook for Holds {}

#[tokio::test(start_paused = true)]
async fn an_engine_that_goes_is_not_kept_by_calls_that_are_judged_late() {
    let fleet = Fleet::new::<1>(exact(5).shadow()).await;
    fleet.store.set_fault(Some(Fault::SlowRequest(ms(30))));
    let alive = Arc::new(());
    fleet.engine(0).hooks().register(
        "held",
        Arc::new(Holds {
            _held: alive.clone(),
        }),
    );
    assert_eq!(
        fleet.passed(9, Call::new("/v1").origin(Key::Int(3))).await,
        9
    );
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(fleet);
    tokio::time::sleep(SECOND).await;
    assert_eq!(Arc::strong_count(&alive), 1);
}
