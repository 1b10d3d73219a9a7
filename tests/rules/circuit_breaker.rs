//! Circuit breakers in the engine and in the layer.
#![allow(clippy::disallowed_types, reason = "a hook of a test keeps a list")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures_util::stream;
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::hook::{BreakerEvent, Hook};
use tower_sentinel::key::from_fn;
use tower_sentinel::middleware::{ByStatus, Classify, Judgement, ResponseHead};
use tower_sentinel::read::{BreakerState, BreakerView};
use tower_sentinel::stat::Outcome;
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, Key, ManualClock,
    NotAdmitted, Rules, Sentinel, SentinelLayer, Verdict,
};

use crate::support::{Rng, bench, get, ms, ready};

/// What breakers told, as `from → to`.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<String>>);

impl Hook for Changes {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let change = format!("{} {:?} → {:?}", event.rule(), event.from(), event.to());
        self.0.lock().unwrap().push(change);
    }
}

struct Bench {
    sentinel: Sentinel,
    clock: ManualClock,
    changes: Arc<Changes>,
}

impl Bench {
    fn new(rules: impl Into<Rules>) -> Self {
        let changes = Arc::new(Changes::default());
        let bench::Bench { sentinel, clock } =
            bench::Bench::with(rules, |builder| builder.hook("changes", changes.clone()));
        Self {
            sentinel,
            clock,
            changes,
        }
    }

    fn enter(&self) -> Result<Entry, BlockKind> {
        match self.sentinel.try_enter(Call::new("r")) {
            Verdict::Pass(entry) => Ok(entry),
            Verdict::Block(blocked) => Err(blocked.kind()),
            other => panic!("{other:?}"),
        }
    }

    fn calls(&self, failures: usize, successes: usize) {
        for _ in 0..failures {
            self.enter().unwrap().fail();
        }
        for _ in 0..successes {
            drop(self.enter().unwrap());
        }
    }

    /// A layer whose requests are calls to "r".
    fn layer(&self) -> SentinelLayer {
        layer(&self.sentinel)
    }

    fn state(&self) -> BreakerState {
        self.sentinel.node("r").unwrap().breakers()[0].state()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.changes.0.lock().unwrap())
    }
}

fn layer(sentinel: &Sentinel) -> SentinelLayer {
    SentinelLayer::with(sentinel.clone()).resource(from_fn(|_| Some(Key::Str("r"))))
}

/// Half of at least five calls in a second; two seconds of rest.
fn errors() -> CircuitBreakerRule {
    CircuitBreakerRule::error_ratio("r", 0.5)
        .min_calls(5)
        .open_for(ms(2_000))
        .id("errors")
}

/// A bench whose breaker has just opened.
fn open(rules: impl Into<Rules>) -> Bench {
    let bench = Bench::new(rules);
    bench.calls(5, 0);
    assert_eq!(bench.state(), BreakerState::Open);
    bench.told();
    bench
}

// === the engine ===

#[test]
fn it_opens_rests_probes_and_closes() {
    let bench = Bench::new(errors());
    bench.calls(4, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    // The fifth is good, and four of five are bad.
    bench.calls(0, 1);
    assert_eq!(bench.state(), BreakerState::Open);
    assert_eq!(bench.told(), ["errors Closed → Open"]);

    bench.clock.advance(ms(1_500));
    let Verdict::Block(blocked) = bench.sentinel.try_enter(Call::new("r")) else {
        panic!("it rests");
    };
    assert_eq!(
        (blocked.kind(), blocked.rule()),
        (BlockKind::CircuitBreaker, "errors")
    );
    assert_eq!(blocked.retry_after(), Some(ms(500)));
    bench.clock.advance(ms(499));
    assert_eq!(bench.enter().err(), Some(BlockKind::CircuitBreaker));

    bench.clock.advance(ms(1));
    let probe = bench.enter().unwrap();
    assert_eq!(bench.state(), BreakerState::HalfOpen);
    assert_eq!(bench.enter().err(), Some(BlockKind::CircuitBreaker));
    drop(probe);
    assert_eq!(bench.state(), BreakerState::Closed);
    assert_eq!(
        bench.told(),
        ["errors Open → HalfOpen", "errors HalfOpen → Closed"]
    );
    // It begins with nothing.
    bench.calls(4, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
}

#[test]
fn a_count_below_five_needs_no_more_calls_than_it_says() {
    let bench = Bench::new(CircuitBreakerRule::error_count("r", 2));
    bench.calls(1, 1);
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.calls(1, 0);
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn a_share_says_nothing_before_five_calls_have_ended_unless_told_otherwise() {
    let bench = Bench::new(CircuitBreakerRule::error_ratio("r", 0.5));
    bench.calls(4, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.calls(1, 0);
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn an_answer_of_408_neither_ends_a_row_nor_belongs_to_it() {
    let bench = Bench::new(CircuitBreakerRule::consecutive_errors("r", 2));
    let layer = bench.layer();
    for status in [500, 408, 408, 500] {
        let answer = move |_: Request<Body>| async move {
            Response::builder().status(status).body(Body::empty())
        };
        ready(layer.layer(service_fn(answer)).oneshot(get("/"))).unwrap();
    }
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn errors_in_a_row_open_it_however_far_apart_they_are() {
    let bench = Bench::new(
        CircuitBreakerRule::consecutive_errors("r", 3)
            .open_for(ms(2_000))
            .id("row"),
    );
    // Two, and a good one; two, far apart, and some that say nothing.
    bench.calls(2, 1);
    bench.calls(1, 0);
    bench.clock.advance(ms(86_400_000));
    bench.calls(1, 0);
    bench.enter().unwrap().ignore();
    bench.enter().unwrap().cancel();
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.clock.advance(ms(86_400_000));
    bench.calls(1, 0);
    assert_eq!(bench.told(), ["row Closed → Open"]);
    assert_eq!(bench.enter().err(), Some(BlockKind::CircuitBreaker));

    // The probe is good, and it begins with no row.
    bench.clock.advance(ms(2_000));
    bench.calls(0, 1);
    bench.calls(2, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.calls(1, 0);
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn the_last_calls_open_it_however_long_ago_they_were() {
    let rule = CircuitBreakerRule::error_ratio("r", 0.5).open_for(ms(2_000));
    let bench = Bench::new(rule.last_calls(6).id("last"));
    // Five are enough for a judgement: two of them are bad, and those are pushed out.
    bench.calls(2, 3);
    bench.clock.advance(ms(86_400_000));
    bench.calls(0, 4);
    bench.calls(2, 0);
    bench.enter().unwrap().ignore();
    bench.enter().unwrap().cancel();
    bench.clock.advance(ms(86_400_000));
    assert_eq!(bench.told(), [""; 0]);
    bench.calls(1, 0);
    assert_eq!(bench.told(), ["last Closed → Open"], "three of six");

    // The probe is good, and it begins with no calls.
    bench.clock.advance(ms(2_000));
    bench.calls(0, 1);
    bench.calls(4, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.calls(1, 0);
    assert_eq!(bench.state(), BreakerState::Open, "five of five");
}

#[test]
fn so_many_of_the_last_calls_open_it() {
    let count = |count| CircuitBreakerRule::error_count("r", count).last_calls(3);
    for rule in [count(2), count(1).exceeds()] {
        let bench = Bench::new(rule);
        for _ in 0..5 {
            bench.calls(1, 2);
        }
        assert_eq!(bench.state(), BreakerState::Closed, "one of any three");
        bench.calls(1, 1);
        assert_eq!(bench.state(), BreakerState::Closed);
        bench.calls(1, 0);
        assert_eq!(bench.state(), BreakerState::Open);
    }
    // No more are waited for than are looked at.
    let bench = Bench::new(CircuitBreakerRule::error_ratio("r", 1.0).last_calls(3));
    bench.calls(2, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.calls(1, 0);
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn of_the_calls_of_many_threads_none_is_lost_and_none_counts_twice() {
    const CALLS: usize = 40;
    const THREADS: usize = 4;
    let count = || CircuitBreakerRule::error_count("r", CALLS as u32);
    let in_a_row = CircuitBreakerRule::consecutive_errors("r", CALLS as u32);
    for rule in [count(), count().last_calls(CALLS as u32), in_a_row] {
        let bench = Bench::new(rule.clone());
        drop(bench.enter().unwrap());
        let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
        for round in 0..200 {
            for (calls, state) in [
                (CALLS - 1, BreakerState::Closed),
                (CALLS, BreakerState::Open),
            ] {
                view.force_close();
                let barrier = Barrier::new(THREADS);
                thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let (bench, barrier) = (&bench, &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            bench.calls((thread..calls).step_by(THREADS).len(), 0);
                        });
                    }
                });
                assert_eq!(
                    view.state(),
                    state,
                    "{calls} calls in round {round}: {rule:?}"
                );
            }
        }
    }
}

#[test]
fn a_row_is_in_the_order_in_which_calls_end() {
    let bench = Bench::new(CircuitBreakerRule::consecutive_errors("r", 2));
    let (first, mut second, mut third) = (
        bench.enter().unwrap(),
        bench.enter().unwrap(),
        bench.enter().unwrap(),
    );
    second.fail();
    third.fail();
    drop(third);
    drop(first);
    drop(second);
    assert_eq!(bench.state(), BreakerState::Closed, "bad, good, bad");
    bench.calls(1, 0);
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn slow_calls_open_it_also_when_they_are_given_up() {
    let slow = || CircuitBreakerRule::slow_ratio("r", ms(100), 0.5).min_calls(4);
    let bench = Bench::new(slow());
    for given_up in [false, true, false, true] {
        let entry = bench.enter().unwrap();
        bench.clock.advance(ms(101));
        if given_up {
            entry.cancel();
        } else {
            drop(entry);
        }
    }
    assert_eq!(bench.state(), BreakerState::Open);
    // A quick one that is given up says nothing.
    let bench = Bench::new(slow());
    for _ in 0..10 {
        bench.enter().unwrap().cancel();
    }
    assert_eq!(bench.state(), BreakerState::Closed);
}

#[test]
fn a_call_from_before_decides_nothing() {
    let bench = Bench::new(errors());
    let old: Vec<_> = (0..3).map(|_| bench.enter().unwrap()).collect();
    bench.calls(5, 0);
    bench.clock.advance(ms(2_000));
    let probe = bench.enter().unwrap();
    for mut entry in old {
        entry.fail();
    }
    assert_eq!(bench.state(), BreakerState::HalfOpen);
    drop(probe);
    assert_eq!(bench.state(), BreakerState::Closed);
}

#[test]
fn however_a_probe_ends_it_never_sticks() {
    let mut rng = Rng::seeded();
    for round in 0..20 {
        let rules = Rules::new().with(errors()).with(IsolationRule::new("r", 1));
        let bench = open(rules);
        for _ in 0..50 {
            // Wait until somebody passes: at most the lease and one rest.
            let mut waited = ms(0);
            let probe = loop {
                match bench.enter() {
                    Ok(probe) => break probe,
                    Err(_) => {
                        bench.clock.advance(ms(100));
                        waited += ms(100);
                        assert!(waited <= ms(4_000), "stuck in round {round}");
                    }
                }
            };
            match rng.below(6) {
                0 => drop(probe),
                1 => {
                    let mut probe = probe;
                    probe.fail();
                }
                2 => probe.cancel(),
                3 => {
                    let mut probe = probe;
                    probe.ignore();
                }
                4 => {
                    let panics = std::panic::AssertUnwindSafe(|| {
                        let _probe = probe;
                        std::panic::resume_unwind(Box::new("a handler panics"));
                    });
                    assert!(std::panic::catch_unwind(panics).is_err());
                }
                _ => {
                    // It hangs, and others are refused until its lease is over.
                    bench.clock.advance(ms(rng.below(3_000) as u64));
                    drop(probe);
                }
            }
        }
        let node = bench.sentinel.node("r").unwrap();
        assert_eq!((node.concurrency(), node.slots_in_use()), (0, 0));
    }
}

#[test]
fn a_breaker_closes_although_each_call_takes_longer_than_it_is_open() {
    let seconds = Duration::from_secs;
    let errors = || CircuitBreakerRule::consecutive_errors("r", 3).open_for(ms(1_000));
    let ratio = || CircuitBreakerRule::error_ratio("r", 0.5);
    for (rule, rt) in [
        (errors(), ms(1_500)),
        (errors().open_up_to(seconds(60)), ms(1_500)),
        (errors().probes(3), ms(1_500)),
        (ratio().open_for(ms(1_000)), ms(9_950)),
        (ratio().last_calls(10).open_for(ms(1_000)), ms(1_500)),
        // By the defaults it is open for ten seconds.
        (ratio(), seconds(11)),
        (CircuitBreakerRule::error_count("r", 5), seconds(11)),
    ] {
        let bench = Bench::new(rule.clone());
        while bench.sentinel.node("r").is_none() || bench.state() == BreakerState::Closed {
            bench.calls(1, 0);
        }
        bench.told();
        let mut running = std::collections::VecDeque::new();
        let mut elapsed = ms(0);
        while bench.state() != BreakerState::Closed {
            assert!(elapsed < seconds(25), "{rule:?}");
            bench.clock.advance(ms(100));
            elapsed += ms(100);
            while running.front().is_some_and(|(end, _)| *end <= elapsed) {
                running.pop_front();
            }
            running.extend(bench.enter().map(|call| (elapsed + rt, call)));
        }
        assert_eq!(
            bench.told(),
            [
                "circuit-breaker-0 Open → HalfOpen",
                "circuit-breaker-0 HalfOpen → Closed"
            ],
        );
        // The other probes end when it is closed, and say nothing any more.
        for (_, mut probe) in running {
            probe.fail();
        }
        assert_eq!(bench.state(), BreakerState::Closed);
    }
}

#[test]
fn a_call_that_another_rule_refuses_is_no_probe() {
    let by_caller = FlowRule::per_second("r", 1_000).for_origin("other");
    // The ring of the resource alone, and one after that of the caller.
    for others in [Rules::new(), by_caller.into()] {
        let rules =
            others
                .clone()
                .with(errors())
                .with(FlowRule::per("r", 6, Duration::from_secs(60)));
        let bench = open(rules);
        bench.clock.advance(ms(2_000));
        drop(bench.enter().unwrap());
        assert_eq!(bench.state(), BreakerState::Closed);
        // The window is full now; the breaker opens by a longer way.
        let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
        view.force_open();
        view.force_close();
        assert_eq!(bench.enter().err(), Some(BlockKind::Flow));

        let rules = others
            .with(errors())
            .with(FlowRule::per("r", 5, Duration::from_secs(60)));
        let bench = open(rules);
        bench.clock.advance(ms(2_000));
        for _ in 0..3 {
            assert_eq!(bench.enter().err(), Some(BlockKind::Flow));
            assert_eq!(bench.state(), BreakerState::Open);
        }
        assert!(bench.told().is_empty());
        bench.clock.advance(Duration::from_secs(60));
        drop(bench.enter().unwrap());
        assert_eq!(bench.state(), BreakerState::Closed);
    }
}

/// At the first probe of a breaker, another call takes the tokens before it does.
#[derive(Debug, Default)]
struct Rival(OnceLock<Sentinel>);

impl Hook for Rival {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        if let (BreakerState::HalfOpen, Some(sentinel)) = (event.to(), self.0.get()) {
            assert!(matches!(
                sentinel.try_enter(Call::new("r")),
                Verdict::Pass(_)
            ));
        }
    }
}

#[test]
fn a_probe_whose_tokens_another_call_takes_is_given_back() {
    let by_caller = FlowRule::per_second("r", 1_000).for_origin("other");
    // The ring of the resource alone, and one after that of the caller.
    for others in [Rules::new(), by_caller.into()] {
        let rules = others
            .with(errors().probes(2))
            .with(IsolationRule::new("r", 2))
            .with(FlowRule::per("r", 6, Duration::from_secs(60)));
        let bench = open(rules);
        bench.clock.advance(ms(2_000));
        let rival = Arc::new(Rival::default());
        bench.sentinel.hooks().register("rival", rival.clone());
        rival.0.set(bench.sentinel.clone()).unwrap();
        assert_eq!(bench.enter().err(), Some(BlockKind::Flow));
        let node = bench.sentinel.node("r").unwrap();
        assert_eq!((node.slots_in_use(), node.totals().pass()), (0, 6));
        // The other one was a good probe, and both places are free. No token is.
        assert_eq!(bench.state(), BreakerState::HalfOpen);
        let probes = [(); 2].map(|()| bench.sentinel.try_enter(Call::new("r").batch(0)));
        assert!(
            probes.iter().all(|probe| matches!(probe, Verdict::Pass(_))),
            "{probes:?}"
        );
    }
}

#[test]
fn a_call_that_waited_is_a_probe_or_is_refused_when_its_turn_comes() {
    // It takes a slot before it asks the breaker, or there are none to take.
    for slots in [Rules::from(IsolationRule::new("r", 2)), Rules::new()] {
        let rules = slots
            .with(errors())
            .with(FlowRule::per_second("r", 10).throttle(ms(5_000)));
        let bench = Bench::new(rules);
        let mut waiting = Vec::new();
        let first = bench.enter().unwrap();
        for _ in 0..5 {
            match bench.sentinel.try_enter(Call::new("r")) {
                Verdict::Wait(turn) => waiting.push(turn),
                other => panic!("{other:?}"),
            }
        }
        drop(first);
        let last = waiting.pop().unwrap();
        for turn in waiting {
            bench.clock.advance(ms(100));
            turn.admit().unwrap().fail();
        }
        assert_eq!(bench.state(), BreakerState::Open);
        bench.clock.advance(ms(100));
        assert!(last.admit().is_err());
        let node = bench.sentinel.node("r").unwrap();
        assert_eq!((node.waiting(), node.concurrency()), (0, 0));
        assert_eq!(node.slots_in_use(), 0);
    }
}

#[test]
fn two_breakers_are_asked_before_either_is_probed() {
    let rules = Rules::new()
        .with(errors())
        .with(errors().open_for(ms(5_000)).id("slower"));
    let bench = open(rules);
    bench.clock.advance(ms(2_000));
    let Verdict::Block(blocked) = bench.sentinel.try_enter(Call::new("r")) else {
        panic!("the second one rests");
    };
    assert_eq!(blocked.rule(), "slower");
    let states: Vec<_> = bench.sentinel.node("r").unwrap().breakers();
    assert!(
        states
            .iter()
            .all(|breaker| breaker.state() == BreakerState::Open)
    );
    bench.clock.advance(ms(3_000));
    drop(bench.enter().unwrap());
    assert_eq!(bench.state(), BreakerState::Closed);
}

#[test]
fn exactly_so_many_probes_pass_at_a_time() {
    let bench = open(errors().probes(3));
    bench.clock.advance(ms(2_000));
    let probes: Vec<_> = (0..10).filter_map(|_| bench.enter().ok()).collect();
    assert_eq!(probes.len(), 3);
    drop(probes);
    assert_eq!(bench.state(), BreakerState::Closed);
}

#[test]
fn a_default_breaker_is_for_resources_without_their_own() {
    let rules = Rules::new()
        .with(
            CircuitBreakerRule::error_count("*", 2)
                .min_calls(1)
                .id("default"),
        )
        .with(errors());
    let bench = Bench::new(rules);
    bench.calls(2, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    for _ in 0..2 {
        let Verdict::Pass(mut entry) = bench.sentinel.try_enter(Call::new("other")) else {
            panic!("it is closed");
        };
        entry.fail();
    }
    let Verdict::Block(blocked) = bench.sentinel.try_enter(Call::new("other")) else {
        panic!("two errors open it");
    };
    assert_eq!(blocked.rule(), "default");
    assert!(bench.sentinel.reload(errors().into()));
    assert!(matches!(
        bench.sentinel.try_enter(Call::new("other")),
        Verdict::Pass(_)
    ));
}

#[test]
fn a_reload_keeps_what_is_open() {
    let bench = open(errors());
    let more = Rules::new()
        .with(FlowRule::per_second("s", 1))
        .with(errors());
    assert!(bench.sentinel.reload(more));
    assert_eq!(bench.enter().err(), Some(BlockKind::CircuitBreaker));
    bench.clock.advance(ms(2_000));
    assert!(bench.enter().is_ok());
    assert!(bench.sentinel.reload(Rules::new()));
    assert!(bench.enter().is_ok());
}

#[test]
fn who_waits_through_a_reload_knows_how_long_the_new_rule_stays_open() {
    let rules = |open_for| {
        let queue = FlowRule::per_second("r", 1).throttle(ms(5_000));
        Rules::new().with(queue).with(errors().open_for(open_for))
    };
    let bench = Bench::new(rules(ms(100)));
    let mut first = bench.enter().unwrap();
    let Verdict::Wait(waiting) = bench.sentinel.try_enter(Call::new("r")) else {
        panic!("its turn is in a second");
    };
    assert!(bench.sentinel.reload(rules(ms(60_000))));
    for _ in 0..5 {
        // What weighs nothing does not wait in the queue.
        match bench.sentinel.try_enter(Call::new("r").batch(0)) {
            Verdict::Pass(mut entry) => entry.fail(),
            other => panic!("{other:?}"),
        }
    }
    first.fail();
    drop(first);
    assert_eq!(bench.state(), BreakerState::Open);
    bench.clock.advance(ms(1_000));
    let Err(NotAdmitted::Blocked(blocked)) = waiting.admit() else {
        panic!("it is open for a minute");
    };
    assert_eq!(blocked.kind(), BlockKind::CircuitBreaker);
    assert_eq!(blocked.retry_after(), Some(ms(59_000)));
    assert_eq!(bench.state(), BreakerState::Open);
}

#[test]
fn a_view_knows_the_bad_calls_the_last_one_and_since_when_it_is_in_its_state() {
    let ratio = || CircuitBreakerRule::error_ratio("r", 1.0).open_for(ms(2_000));
    for (rule, after_a_second) in [
        (ratio().min_calls(3).interval(ms(1_000)), 0),
        (ratio().last_calls(3), 2),
        (
            CircuitBreakerRule::consecutive_errors("r", 3).open_for(ms(2_000)),
            2,
        ),
        (
            CircuitBreakerRule::error_count("r", 3).open_for(ms(2_000)),
            0,
        ),
        (
            CircuitBreakerRule::slow_ratio("r", ms(1), 1.0)
                .min_calls(3)
                .open_for(ms(2_000)),
            0,
        ),
    ] {
        let bench = Bench::new(rule.clone());
        // It takes 2 ms, and fails.
        let fail = || {
            let mut call = bench.enter().unwrap();
            bench.clock.advance(ms(2));
            call.fail();
        };
        drop(bench.enter().unwrap());
        let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
        let told = || {
            (
                view.in_state_for(),
                view.bad_calls(),
                view.since_last_bad_call(),
            )
        };
        view.force_close();
        assert_eq!(told(), (ms(0), 0, None));
        fail();
        fail();
        bench.clock.advance(ms(100));
        assert_eq!(told(), (ms(104), 2, Some(ms(100))), "{rule:?}");
        bench.clock.advance(ms(1_000));
        assert_eq!(view.bad_calls(), after_a_second, "{rule:?}");
        view.force_close();
        assert_eq!(
            told(),
            (ms(1_104), 0, Some(ms(1_100))),
            "it was closed before"
        );
        for _ in 0..3 {
            fail();
        }
        bench.clock.advance(ms(500));
        assert_eq!(told(), (ms(500), 3, Some(ms(500))), "with which it opened");
        bench.clock.advance(ms(1_500));
        let mut probe = bench.enter().unwrap();
        bench.clock.advance(ms(2));
        assert_eq!(told(), (ms(2), 3, Some(ms(2_002))));
        probe.fail();
        drop(probe);
        assert_eq!(told(), (ms(0), 3, Some(ms(0))));
        // A rule that goes on from it knows the same.
        bench.sentinel.reload(rule.clone().id("renamed").into());
        bench.clock.advance(ms(2_000));
        drop(bench.enter().unwrap());
        let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
        let told = || {
            (
                view.in_state_for(),
                view.bad_calls(),
                view.since_last_bad_call(),
            )
        };
        bench.clock.advance(ms(3));
        assert_eq!(told(), (ms(3), 0, Some(ms(2_003))), "closed");
        view.force_open();
        assert_eq!(told(), (ms(0), 0, Some(ms(2_003))), "by hand");
    }
}

#[test]
fn a_view_knows_how_long_a_breaker_refuses() {
    let bench = open(errors().open_up_to(ms(60_000)));
    let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
    let retry_after = || {
        let known = view.retry_after();
        if known.is_some() {
            // As a refusal says, and it is the truth.
            let Verdict::Block(blocked) = bench.sentinel.try_enter(Call::new("r")) else {
                panic!("it refuses for {known:?}");
            };
            assert_eq!(blocked.retry_after(), known);
        }
        known
    };
    assert_eq!(retry_after(), Some(ms(2_000)));
    bench.clock.advance(ms(1_500));
    assert_eq!(retry_after(), Some(ms(500)));
    bench.clock.advance(ms(500));
    assert_eq!((retry_after(), view.state()), (None, BreakerState::Open));
    let mut probe = bench.enter().unwrap();
    // Until the place of the probe is given to another one.
    assert_eq!(retry_after(), Some(ms(2_000)));
    probe.fail();
    drop(probe);
    assert_eq!(retry_after(), Some(ms(4_000)), "it has grown");
    view.force_open();
    assert_eq!(view.retry_after(), None, "nobody knows");
    view.force_close();
    assert_eq!(view.retry_after(), None);
}

#[test]
fn of_a_breaker_from_which_no_rule_goes_on_nothing_is_told() {
    let otherwise = CircuitBreakerRule::slow_ratio("r", ms(60_000), 1.0).id("errors");
    for rules in [Rules::new(), Rules::new().with(otherwise)] {
        let bench = Bench::new(errors());
        let calls: Vec<_> = (0..6).map(|_| bench.enter().unwrap()).collect();
        let old = bench.sentinel.node("r").unwrap().breakers().remove(0);
        assert!(bench.sentinel.reload(rules));
        drop(bench.enter().unwrap());
        for mut call in calls {
            call.fail();
        }
        old.force_open();
        assert!(bench.enter().is_ok());
        assert_eq!(bench.told(), [""; 0]);
    }
}

#[test]
fn whoever_changes_a_breaker_it_is_told_by_the_id_of_its_rule() {
    let by_errors = || CircuitBreakerRule::error_ratio("r", 0.5).min_calls(5);
    let by_time = || CircuitBreakerRule::slow_ratio("r", ms(60_000), 1.0);
    let ids = |bench: &Bench| {
        let breakers = bench.sentinel.node("r").unwrap().breakers();
        let open = |view: &&BreakerView| view.state() == BreakerState::Open;
        let open = breakers.iter().filter(open);
        open.map(|view| view.rule().to_owned()).collect::<Vec<_>>()
    };
    // Rules without ids are called by their places.
    let bench = Bench::new(Rules::new().with(by_errors()).with(by_time()));
    let calls: Vec<_> = (0..6).map(|_| bench.enter().unwrap()).collect();
    bench
        .sentinel
        .reload(Rules::new().with(by_time()).with(by_errors()));
    drop(bench.enter().unwrap());
    for mut call in calls {
        call.fail();
    }
    assert_eq!(ids(&bench), ["circuit-breaker-1"]);
    assert_eq!(bench.told(), ["circuit-breaker-1 Closed → Open"]);

    let bench = Bench::new(by_errors().id("old"));
    let mut calls: Vec<_> = (0..6).map(|_| bench.enter().unwrap()).collect();
    calls.drain(..5).for_each(|mut call| call.fail());
    bench.clock.advance(ms(10_000));
    let mut probe = bench.enter().unwrap();
    assert_eq!(bench.told().len(), 2);
    bench.sentinel.reload(by_errors().id("new").into());
    let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
    assert_eq!(view.rule(), "new");
    probe.fail();
    drop(probe);
    assert_eq!(bench.told(), ["new HalfOpen → Open"]);
}

#[test]
fn what_a_breaker_has_entered_is_counted_through_reloads_and_by_hand() {
    use BreakerState::{Closed, HalfOpen, Open};
    let bench = Bench::new(errors());
    drop(bench.enter().unwrap());
    let view = || bench.sentinel.node("r").unwrap().breakers().remove(0);
    let entered = || [Closed, Open, HalfOpen].map(|state| view().times_entered(state));
    assert_eq!(entered(), [0, 0, 0], "it begins closed");
    bench.calls(4, 0);
    assert_eq!(entered(), [0, 1, 0]);
    bench.clock.advance(ms(2_000));
    let probe = bench.enter().unwrap();
    assert_eq!(entered(), [0, 1, 1]);
    drop(probe);
    assert_eq!(entered(), [1, 1, 1]);
    view().force_open();
    view().force_open();
    assert_eq!(entered(), [1, 2, 1], "it was open");
    // A rule that counts the same, and one that counts otherwise: both go on.
    let others = [errors().open_for(ms(900)), errors().interval(ms(500))];
    for other in others {
        bench.sentinel.reload(other.into());
        assert_eq!(entered(), [1, 2, 1]);
    }
    view().force_close();
    assert_eq!(entered(), [2, 2, 1]);
    let told = bench.told();
    let of = |state: &str| told.iter().filter(|it| it.ends_with(state)).count() as u64;
    assert_eq!(
        entered(),
        ["Closed", "Open", "HalfOpen"].map(|it| of(&format!("→ {it}")))
    );
    // What it was before it goes on counts no more.
    let old = view();
    bench.sentinel.reload(errors().interval(ms(250)).into());
    drop(bench.enter().unwrap());
    old.force_open();
    assert_eq!((view().state(), entered()), (Closed, [2, 2, 1]));
}

#[test]
fn operators_open_and_close_it() {
    let bench = Bench::new(errors());
    drop(bench.enter().unwrap());
    let view = bench.sentinel.node("r").unwrap().breakers().remove(0);
    view.force_open();
    bench.clock.advance(Duration::from_secs(3_600));
    let Verdict::Block(blocked) = bench.sentinel.try_enter(Call::new("r")) else {
        panic!("an operator has opened it");
    };
    assert_eq!(blocked.retry_after(), None);
    view.force_close();
    assert!(bench.enter().is_ok());
}

#[test]
fn what_a_closed_breaker_has_counted_is_forgotten_when_an_operator_closes_it() {
    let bench = Bench::new(errors());
    bench.calls(4, 0);
    let mut in_flight = bench.enter().unwrap();
    bench.sentinel.node("r").unwrap().breakers()[0].force_close();
    in_flight.fail();
    drop(in_flight);
    bench.calls(4, 0);
    assert_eq!(bench.state(), BreakerState::Closed);
    bench.calls(1, 0);
    assert_eq!(bench.told(), ["errors Closed → Open"]);
}

// === the layer ===

#[test]
fn failing_responses_open_it_for_http() {
    let bench = Bench::new(errors());
    let fails = |_: Request<Body>| async {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        Ok::<_, Infallible>(response)
    };
    let mut service = bench.layer().layer(service_fn(fails));
    for _ in 0..5 {
        let response = ready(ready(service.ready()).unwrap().call(get("/"))).unwrap();
        // The verdict is at the head: the body has not been read.
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    let response = ready(ready(service.ready()).unwrap().call(get("/"))).unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "2");
}

#[test]
fn a_body_that_breaks_off_opens_it_where_answers_are_judged_at_their_end() {
    /// An answer is good when all of it has come.
    struct Whole;

    impl Classify for Whole {
        fn head(&self, head: ResponseHead<'_>) -> Judgement {
            match ByStatus.head(head) {
                Judgement::Now(Outcome::Success) => Judgement::AtTrailers,
                other => other,
            }
        }
    }

    let broken = service_fn(async |_: Request<Body>| {
        let parts = [Ok("one"), Err("broken")];
        let body = Body::from_stream(stream::iter(parts));
        Ok::<_, Infallible>(Response::new(body))
    });
    for (is_judged_whole, expected) in [(false, BreakerState::Closed), (true, BreakerState::Open)] {
        let bench = Bench::new(CircuitBreakerRule::error_count("r", 3).min_calls(3));
        let mut layer = bench.layer();
        if is_judged_whole {
            layer = layer.classify(Whole);
        }
        for _ in 0..3 {
            let response = ready(layer.layer(broken).oneshot(get("/"))).unwrap();
            assert!(ready(response.into_body().collect()).is_err());
        }
        assert_eq!(bench.state(), expected);
        // In the figures it is an error in any case.
        assert_eq!(bench.sentinel.node("r").unwrap().totals().error(), 3);
    }

    // Nobody knows how a body would have ended that is not read to its end.
    let bench = Bench::new(CircuitBreakerRule::consecutive_errors("r", 2));
    let layer = bench.layer().classify(Whole);
    for is_read in [true, false, true] {
        let response = ready(layer.layer(broken).oneshot(get("/"))).unwrap();
        if is_read {
            assert!(ready(response.into_body().collect()).is_err());
        }
    }
    assert_eq!(bench.state(), BreakerState::Closed);
}

#[test]
fn a_probe_whose_future_is_dropped_leaves_the_way_free() {
    let bench = open(errors());
    bench.clock.advance(ms(2_000));
    let hangs = |_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>();
    let mut service = bench.layer().layer(service_fn(hangs));
    for _ in 0..3 {
        let call = ready(service.ready()).unwrap().call(get("/"));
        assert_eq!(bench.state(), BreakerState::HalfOpen);
        drop(call);
        assert_eq!(bench.state(), BreakerState::Open);
    }
}

/// What the guide says of timeouts.
#[test]
fn a_timeout_is_seen_by_where_it_stands() {
    let errors = || CircuitBreakerRule::error_ratio("r", 0.5).min_calls(3);
    let slow = || CircuitBreakerRule::slow_ratio("r", ms(100), 0.5).min_calls(3);
    let patient = || slow().count_cancelled_as_slow(false);
    // What a timeout inside of the layer answers; one outside just drops the call.
    let (at_504, at_408) = (StatusCode::GATEWAY_TIMEOUT, StatusCode::REQUEST_TIMEOUT);
    let cases = [
        (errors(), Some(at_504), BreakerState::Open),
        (errors(), Some(at_408), BreakerState::Closed),
        (errors(), None, BreakerState::Closed),
        (slow(), Some(at_408), BreakerState::Open),
        (slow(), None, BreakerState::Open),
        (patient(), None, BreakerState::Closed),
    ];
    for (rule, inside, expected) in cases {
        let bench = Bench::new(rule.clone());
        let service = service_fn(move |_: Request<Body>| async move {
            let Some(status) = inside else {
                return std::future::pending().await;
            };
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        });
        let mut service = bench.layer().layer(service);
        for _ in 0..3 {
            let call = ready(service.ready()).unwrap().call(get("/"));
            bench.clock.advance(ms(150));
            if inside.is_some() {
                drop(ready(call).unwrap());
            } else {
                drop(call);
            }
        }
        assert_eq!(bench.state(), expected, "{rule:?} {inside:?}");
    }
}

/// Answers, after an error in `poll_ready` if it is told so.
#[derive(Clone)]
struct Moody {
    is_unready: Arc<AtomicBool>,
}

impl Service<Request<Body>> for Moody {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(if self.is_unready.load(Ordering::Relaxed) {
            Err("not ready")
        } else {
            Ok(())
        })
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_after_the_wait_leaves_the_way_free() {
    let mut rng = Rng::seeded();
    for round in 0..20 {
        let queue = FlowRule::per_second("r", 20).throttle(ms(5_000));
        let sentinel = Sentinel::builder()
            .rules(Rules::new().with(errors()).with(queue))
            .clock(TokioClock::new())
            .build();
        let is_unready = Arc::new(AtomicBool::new(false));
        let mut service = layer(&sentinel).refusals_as_errors().layer(Moody {
            is_unready: is_unready.clone(),
        });
        drop(sentinel.enter(Call::new("r")).await.unwrap());
        let breaker = sentinel.node("r").unwrap().breakers().remove(0);
        for _ in 0..6 {
            let mut entry = sentinel.enter(Call::new("r")).await.unwrap();
            entry.fail();
            drop(entry);
            if breaker.state() == BreakerState::Open {
                break;
            }
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        tokio::time::advance(ms(2_000)).await;
        for _ in 0..rng.below(4) {
            // The first is a probe that is given up; the second waits behind it.
            drop(service.ready().await.unwrap().call(get("/")));
            let second = service.ready().await.unwrap().call(get("/"));
            is_unready.store(true, Ordering::Relaxed);
            let error = second.await.unwrap_err();
            is_unready.store(false, Ordering::Relaxed);
            assert!(error.to_string().contains("not ready"), "{error}");
            assert_eq!(breaker.state(), BreakerState::Open, "round {round}");
        }
        tokio::time::advance(ms(5_000)).await;
        assert!(service.ready().await.unwrap().call(get("/")).await.is_ok());
        assert_eq!(breaker.state(), BreakerState::Closed, "round {round}");
        let node = sentinel.node("r").unwrap();
        assert_eq!((node.waiting(), node.concurrency()), (0, 0));
    }
}

#[test]
fn a_caller_whose_clock_is_a_little_older_than_the_opening_is_no_probe() {
    for older in [0, 1, 8_000, 30_000, 1_000_000, 900_000_000] {
        let rule = CircuitBreakerRule::error_count("r", 1)
            .min_calls(1)
            .open_for(ms(5_000));
        let clock = ManualClock::starting_at(Tick::from_millis(100_250));
        let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
        let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("r")) else {
            panic!("the first one");
        };
        entry.fail();
        drop(entry);
        // Its thread has slept between reading the clock and asking.
        clock.set(Tick::from_nanos(100_250_000_000 - older));
        let late = sentinel.try_enter(Call::new("r"));
        assert!(matches!(late, Verdict::Block(_)), "{older} ns");
        let breakers = sentinel.node("r").unwrap().breakers();
        assert_eq!(breakers[0].state(), BreakerState::Open, "{older} ns");
    }
}

#[tokio::test]
async fn a_breaker_under_two_layers_closes() {
    let named = |name: &'static str| from_fn(move |_| Some(Key::Str(name)));
    // One engine judges the call once under each name.
    for (name, is_one_engine) in [("r", true), ("r", false), ("other", true)] {
        let rules = CircuitBreakerRule::error_count("*", 1).min_calls(1);
        let bench = Bench::new(rules);
        let outer = if is_one_engine {
            bench.sentinel.clone()
        } else {
            Sentinel::new(Rules::new())
        };
        let is_down = Arc::new(AtomicBool::new(true));
        let seen = is_down.clone();
        let service = service_fn(move |_: Request<Body>| {
            let status = match seen.load(Ordering::Relaxed) {
                true => StatusCode::BAD_GATEWAY,
                false => StatusCode::OK,
            };
            async move {
                Ok::<_, Infallible>(
                    Response::builder()
                        .status(status)
                        .body(Body::empty())
                        .unwrap(),
                )
            }
        });
        let inner = bench.layer();
        let service = SentinelLayer::with(outer)
            .resource(named(name))
            .layer(inner.layer(service));
        let status = async || service.clone().oneshot(get("/")).await.unwrap().status();
        assert_eq!(status().await, 502);
        is_down.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            bench.clock.advance(Duration::from_secs(60));
            assert_eq!(status().await, 200, "{name}, one engine: {is_one_engine}");
        }
        assert_eq!(bench.state(), BreakerState::Closed);
    }
}
