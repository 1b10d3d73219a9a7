//! Reloading rules: what is kept, what changes, and that no call ever meets a
//! half of it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::clock::Tick;
use tower_sentinel::hook::{BlockEvent, Hook};
use tower_sentinel::stat::{Event, NodeBucket, Totals};
use tower_sentinel::system::{Probe, Sampler};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Clock, Entry, FlowRule, IsolationRule,
    KeyedRule, ManualClock, NotAdmitted, Rule, Rules, Sentinel, SentinelLayer, SystemRule, Verdict,
};

use crate::support::{at, engine, get, ready};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn run(sentinel: &Sentinel) -> Option<Entry> {
    match sentinel.try_enter(Call::new("r")) {
        Verdict::Pass(entry) => Some(entry),
        _ => None,
    }
}

/// How many of `n` calls to "r" pass; they end at once.
fn passed(sentinel: &Sentinel, n: u32) -> usize {
    (0..n).filter(|_| run(sentinel).is_some()).count()
}

#[test]
fn of_rules_by_origin_that_change_places_each_keeps_its_counts_by_its_id() {
    let rule = |id: &str, limit: u32| FlowRule::per("r", limit, MINUTE).by_origin().id(id);
    let (sentinel, _clock) = engine(rule("a", 10));
    let passed = |n: u32| {
        let call = || sentinel.try_enter(Call::new("r").origin("x"));
        (0..n)
            .filter(|_| matches!(call(), Verdict::Pass(_)))
            .count()
    };
    assert_eq!(passed(4), 4);
    assert!(sentinel.try_reload([rule("a", 10), rule("b", 10)]).unwrap());
    assert_eq!(passed(1), 1);
    // Five are left of a, and the one that came since counts for b.
    assert!(sentinel.try_reload([rule("b", 9), rule("a", 8)]).unwrap());
    assert_eq!(passed(20), 3);
}

// === sets ===

#[test]
fn a_set_is_taken_apart_and_its_rules_tell_their_ids() {
    let named: Vec<Rule> = vec![
        FlowRule::per_second("r", 5).id("flow").into(),
        KeyedRule::per_second("r", 5).id("param").into(),
        IsolationRule::new("r", 3).id("isolation").into(),
        AdaptiveRule::new("r").id("adaptive").into(),
        CircuitBreakerRule::error_count("r", 5).id("breaker").into(),
        AuthorityRule::deny("r", ["bot"]).id("authority").into(),
        SystemRule::new().qps(5).id("system").into(),
        Rule::from(FlowRule::per_second("r", 4).id("shadow")).shadow(),
    ];
    let set = Rules::build(named.clone())
        .unwrap()
        .with(FlowRule::per_second("r", 9));
    let ids: Vec<_> = set.iter().map(Rule::id).collect();
    let expected = [
        Some("flow"),
        Some("param"),
        Some("isolation"),
        Some("adaptive"),
        Some("breaker"),
        Some("authority"),
        Some("system"),
        Some("shadow"),
        None,
    ];
    assert_eq!(ids, expected);
    assert_eq!(Rules::build(set.clone()).unwrap(), set);
    let kept = set.into_iter().filter(|rule| rule.id().is_some());
    assert_eq!(kept.collect::<Vec<_>>(), named);
}

// === what is kept ===

#[test]
fn equal_rules_change_nothing() {
    let rules = || {
        Rules::new()
            .with(FlowRule::per_second("r", 5))
            .with(IsolationRule::new("r", 3))
    };
    let (sentinel, _clock) = engine(rules());
    assert_eq!(passed(&sentinel, 9), 5);
    assert!(!sentinel.reload(rules()));
    assert_eq!(passed(&sentinel, 9), 0);
    assert!(sentinel.reload(rules().with(FlowRule::per_second("another", 5))));
    assert_eq!(passed(&sentinel, 9), 0);
    assert_eq!(sentinel.rules().len(), 3);
}

#[test]
fn a_changed_threshold_keeps_the_counts() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    clock.set(at(700));
    assert_eq!(passed(&sentinel, 20), 10);
    assert!(sentinel.reload(FlowRule::per_second("r", 13).into()));
    assert_eq!(passed(&sentinel, 20), 3);
    assert!(sentinel.reload(FlowRule::per_second("r", 4).into()));
    clock.set(at(1_499));
    assert_eq!(passed(&sentinel, 20), 0);
    clock.set(at(1_500));
    assert_eq!(passed(&sentinel, 20), 4);
    assert_eq!(sentinel.node("r").unwrap().totals().pass(), 17);
}

#[test]
fn a_new_rule_counts_what_has_passed_before_it_and_a_removed_one_is_gone() {
    let (sentinel, clock) = engine(Rules::new());
    clock.set(at(700));
    assert_eq!(passed(&sentinel, 8), 8);
    assert!(sentinel.reload(FlowRule::per_second("r", 10).into()));
    assert_eq!(passed(&sentinel, 8), 2);
    assert!(sentinel.reload(Rules::new()));
    assert_eq!(passed(&sentinel, 8), 8);
    assert!(sentinel.reload(FlowRule::per_second("r", 10).into()));
    assert_eq!(passed(&sentinel, 8), 0);
    assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 18);
}

#[test]
fn a_rule_with_a_ring_of_its_own_keeps_it() {
    let day = |limit: u32| FlowRule::per("r", limit, MINUTE * 60 * 24);
    let rules = |limit| {
        Rules::new()
            .with(FlowRule::per_second("r", 5))
            .with(day(limit))
    };
    let (sentinel, clock) = engine(rules(12));
    assert_eq!(passed(&sentinel, 9), 5);
    clock.advance(MINUTE);
    assert!(sentinel.reload(rules(8)));
    assert_eq!(passed(&sentinel, 9), 3);
    clock.advance(MINUTE);
    assert_eq!(passed(&sentinel, 9), 0);
}

#[test]
fn a_rule_that_gets_or_loses_a_ring_of_its_own_forgets_nothing() {
    let whose: [fn(FlowRule) -> FlowRule; 3] = [
        |rule| rule,
        |rule| rule.for_origin("a"),
        |rule| rule.in_context("a"),
    ];
    for of in whose {
        let minute = || of(FlowRule::per("r", 10, MINUTE));
        let day = |buckets| of(FlowRule::per("r", 10, MINUTE * 60 * 24).buckets(buckets));
        // Too fine for a ring of a minute: the second one of the two has its own.
        let fine = || of(FlowRule::per_second("r", 99).buckets(10));
        let warm = minute().warm_up(MINUTE);
        let minutes: [(Rules, usize); 6] = [
            (minute().into(), 10),
            (Rules::new().with(minute()).with(fine()), 10),
            (Rules::new().with(fine()).with(minute()), 10),
            (warm.into(), 3),
            (day(2).into(), 10),
            (day(24).into(), 10),
        ];
        for (from, first) in &minutes {
            for (to, limit) in &minutes {
                let (sentinel, clock) = engine(from.clone());
                let passed = || {
                    let call = Call::new("r").origin("a").context("a");
                    let calls = (0..20).map(|_| sentinel.try_enter(call));
                    calls
                        .filter(|verdict| matches!(verdict, Verdict::Pass(_)))
                        .count()
                };
                assert_eq!(passed(), *first, "{from:?}");
                clock.advance(MINUTE / 4);
                sentinel.reload(to.clone());
                assert_eq!(passed(), limit.saturating_sub(*first), "{from:?} to {to:?}");
            }
        }
    }
}

#[test]
fn what_is_read_after_a_reload_is_of_the_new_rules() {
    let (sentinel, _clock) = engine(Rules::new());
    let call = Call::new("r").param("a");
    assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
    let rules = Rules::new()
        .with(CircuitBreakerRule::error_count("r", 1).id("errors"))
        .with(KeyedRule::per_second("r", 3).id("each"))
        .with(AdaptiveRule::new("r").burst(Duration::ZERO).start(7));
    assert!(sentinel.reload(rules));
    // Nobody has called since.
    let node = sentinel.node("r").unwrap();
    assert_eq!(node.breakers()[0].rule(), "errors");
    assert_eq!(node.keyed_rules()[0].rule(), "each");
    assert_eq!(node.adaptive_limit(), Some(7));
    assert_eq!(node.totals().pass(), 1);
    node.breakers()[0].force_open();
    assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
}

#[test]
fn an_adaptive_limit_learns_on_while_other_rules_are_reloaded() {
    let rules = |ceiling: u32, id: u32, other: u32| {
        let adaptive = AdaptiveRule::new("r")
            .burst(Duration::ZERO)
            .start(4)
            .ceiling(ceiling);
        let rules = Rules::new().with(FlowRule::per_second("else", other));
        rules.with(adaptive.id(id.to_string()))
    };
    let limit = |sentinel: &Sentinel| sentinel.node("r").unwrap().adaptive_limit();
    let [(quiet, one), (edited, other)] = [(); 2].map(|()| engine(rules(50, 0, 0)));
    for n in 1..400 {
        // Each reload comes while calls run, which end later.
        let [calls, others] = [&quiet, &edited].map(|sentinel| {
            let running = std::iter::from_fn(|| run(sentinel));
            running.collect::<Vec<_>>()
        });
        assert_eq!(calls.len(), others.len(), "after {n} reloads");
        assert!(edited.reload(rules(50, n, n)));
        for clock in [&one, &other] {
            clock.advance(Duration::from_millis(20));
        }
        drop((calls, others));
        assert_eq!(limit(&quiet), limit(&edited), "after {n} reloads");
    }
    assert!(limit(&edited) > Some(20), "{:?}", limit(&edited));
    // Other bounds hold at once.
    assert!(edited.reload(rules(9, 0, 0)));
    assert_eq!(limit(&edited), Some(9));
}

#[test]
fn the_quotas_of_origins_are_kept() {
    let rule = |limit: u32| FlowRule::per_second("r", limit).by_origin();
    let (sentinel, _clock) = engine(rule(3));
    let passed = |origin| {
        let call = Call::new("r").origin(origin);
        (0..9)
            .filter(|_| matches!(sentinel.try_enter(call), Verdict::Pass(_)))
            .count()
    };
    assert_eq!(["a", "b"].map(passed), [3, 3]);
    assert!(sentinel.reload(rule(5).into()));
    assert_eq!(["a", "b", "c"].map(passed), [2, 2, 5]);
    assert!(sentinel.reload(rule(4).into()));
    assert_eq!(["a", "b", "c", "d"].map(passed), [0, 0, 0, 4]);
}

#[test]
fn calls_in_flight_settle_under_whatever_rules_are_in_force_when_they_end() {
    let (sentinel, clock) = engine(IsolationRule::new("r", 2));
    let node = || sentinel.node("r").unwrap();
    let two = [0, 1].map(|_| run(&sentinel).unwrap());
    // A lower limit disturbs nobody, and holds for new calls.
    assert!(sentinel.reload(IsolationRule::new("r", 1).into()));
    assert!(run(&sentinel).is_none());
    assert_eq!(node().slots_in_use(), 2);
    // Without the rule everybody passes; the two give back what they took.
    assert!(sentinel.reload(Rules::new()));
    let third = run(&sentinel).unwrap();
    assert_eq!((node().slots_in_use(), node().concurrency()), (2, 3));
    clock.advance(MINUTE);
    drop(two);
    assert_eq!((node().slots_in_use(), node().concurrency()), (0, 1));
    // A rule that is new counts the call that runs.
    assert!(sentinel.reload(IsolationRule::new("r", 1).into()));
    assert!(run(&sentinel).is_none());
    assert!(sentinel.reload(IsolationRule::new("r", 2).into()));
    let fourth = run(&sentinel).unwrap();
    assert!(run(&sentinel).is_none());
    drop((third, fourth));
    assert_eq!((node().slots_in_use(), node().concurrency()), (0, 0));
    assert_eq!(node().totals().complete(), 4);
}

#[test]
fn a_view_and_a_call_from_before_follow_the_resource_to_another_ring() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 9));
    let running = run(&sentinel).unwrap();
    let view = sentinel.node("r").unwrap();
    // Finer buckets: the resource counts on a ring of another shape.
    assert!(sentinel.reload(FlowRule::per_second("r", 9).buckets(4).into()));
    assert_eq!(passed(&sentinel, 3), 3);
    assert_eq!((view.sum(Event::Pass), view.totals().pass()), (4, 4));
    assert_eq!(view.concurrency(), 1);
    // Nobody has called for two seconds when it ends.
    clock.advance(2 * SECOND);
    drop(running);
    for view in [view, sentinel.node("r").unwrap()] {
        assert_eq!(view.sum(Event::Complete), 1);
        assert_eq!(view.average_rt(), Some(2 * SECOND));
        assert_eq!(view.concurrency(), 0);
        let seconds = view.seconds().unwrap();
        let passed: Vec<_> = seconds.iter().map(NodeBucket::pass).collect();
        assert_eq!(passed, [4, 0, 0]);
    }
}

/// A clock during one of whose readings something else happens.
#[derive(Clone, Debug, Default)]
struct Slow {
    clock: ManualClock,
    meanwhile: Arc<OnceLock<Meanwhile>>,
    /// Counted down to that reading.
    readings: Arc<AtomicU32>,
}

impl Clock for Slow {
    fn now(&self) -> Tick {
        let now = self.clock.now();
        if self.readings.fetch_sub(1, Ordering::Relaxed) == 1 {
            let meanwhile = self.meanwhile.get().and_then(|it| it.0.get());
            meanwhile.unwrap()();
        }
        now
    }
}

#[test]
fn who_reads_figures_while_a_reload_changes_the_buckets_sees_what_has_passed_since() {
    let readers: [fn(&Sentinel) -> Totals; 3] = [
        |sentinel| sentinel.inbound().totals(),
        |sentinel| sentinel.entrance("web").totals(),
        |sentinel| *sentinel.snapshot().totals(),
    ];
    let rule = |buckets| {
        let rule = FlowRule::per_second("r", 9).buckets(buckets);
        Rules::new().with(rule.clone()).with(rule.in_context("web"))
    };
    for read in readers {
        let slow = Slow::default();
        let builder = Sentinel::builder().contexts(true).clock(slow.clone());
        let sentinel = builder.rules(rule(2)).build();
        let call = |name| drop(sentinel.try_enter(Call::new(name).context("web")));
        call("first");
        slow.clock.set(at(10_000));
        call("r");
        let other = sentinel.clone();
        let run: Box<dyn Fn() + Send + Sync> = Box::new(move || {
            assert!(other.reload(rule(4)));
            drop(other.try_enter(Call::new("r").context("web")));
        });
        slow.meanwhile.set(Meanwhile(run.into())).unwrap();
        // The second reading is for the first node, as nobody has called for long.
        slow.clock.set(at(11_500));
        slow.readings.store(2, Ordering::Relaxed);
        let totals = read(&sentinel);
        assert_eq!((totals.pass(), totals.complete()), (3, 3));
    }
}

#[test]
fn who_is_dropped_while_it_waits_leaves_its_tokens_if_the_buckets_have_changed() {
    let queue = || FlowRule::per("r", 1, 2 * SECOND).throttle(3 * SECOND);
    let window = |buckets| FlowRule::per_second("r", 2).buckets(buckets);
    // The buckets of another rule, and what its window has left at the turn.
    for (buckets, left) in [(2, 2), (4, 1)] {
        let (sentinel, clock) = engine(queue());
        drop(run(&sentinel));
        let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r")) else {
            panic!("its turn comes in two seconds");
        };
        assert!(sentinel.reload(Rules::new().with(queue()).with(window(buckets))));
        assert_eq!(sentinel.node("r").unwrap().held(), 1);
        drop(waiting);
        clock.advance(2 * SECOND);
        assert!(sentinel.reload(window(buckets).into()));
        assert_eq!(passed(&sentinel, 3), left, "{buckets} buckets");
        let node = sentinel.node("r").unwrap();
        let totals = node.totals();
        assert_eq!((node.held(), node.waiting()), (0, 0));
        let cancelled = 2 - left as u64;
        assert_eq!((totals.pass(), totals.cancelled()), (3, cancelled));
    }
}

#[test]
fn who_starts_on_shorter_buckets_than_it_waited_for_does_not_move_time_on() {
    let window = |buckets| FlowRule::per_second("r", 1).buckets(buckets);
    for buckets in [1, 4, 10] {
        let (sentinel, clock) = engine(window(2));
        assert_eq!(passed(&sentinel, 1), 1);
        clock.set(at(600));
        let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r").prioritized(true)) else {
            panic!("the first one leaves at 1000 ms");
        };
        assert!(sentinel.reload(window(buckets).into()));
        assert_eq!(passed(&sentinel, 1), 0);
        clock.set(at(1_000));
        drop(waiting.admit().unwrap());
        // It has its place until 2000 ms, and nobody is told anything else.
        let Verdict::Block(blocked) = sentinel.try_enter(Call::new("r")) else {
            panic!("the window is full");
        };
        assert_eq!(blocked.retry_after(), Some(SECOND), "{buckets}");
        for (ms, passes) in [(1_300, 0), (1_999, 0), (2_000, 1), (2_999, 0), (3_000, 1)] {
            clock.set(at(ms));
            assert_eq!(
                passed(&sentinel, 1),
                passes,
                "at {ms} ms, {buckets} buckets"
            );
        }
        let last = sentinel.node("r").unwrap().seconds().unwrap().pop();
        assert_eq!(last.map(|second| second.start()), Some(at(3_000)));
    }
}

#[test]
fn buckets_of_a_rule_that_is_gone_take_no_turn_from_a_call() {
    let rules = || {
        let turns = FlowRule::per_second("r", 4).for_origin("y");
        let half = FlowRule::per("r", 2, SECOND)
            .buckets(1)
            .max_occupy_ratio(0.5);
        Rules::new().with(turns.throttle(SECOND)).with(half)
    };
    let finer = FlowRule::per("r", 9, SECOND / 10);
    let between: [Option<Rules>; 3] = [None, Some(Rules::new()), Some(rules().with(finer))];
    for between in between {
        let (sentinel, clock) = engine(rules());
        if let Some(between) = &between {
            clock.set(at(200));
            sentinel.reload(between.clone());
            assert_eq!(passed(&sentinel, 1), 1);
            sentinel.reload(rules());
            // What has passed has left all windows.
            clock.set(at(2_000));
        }
        clock.advance(Duration::from_millis(800));
        let call = Call::new("r").origin("y").prioritized(true);
        assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
        assert_eq!(passed(&sentinel, 1), 1);
        // The turn comes when the window of a second has just begun, which lends its half.
        let Verdict::Wait(waiting) = sentinel.try_enter(call) else {
            panic!("it has a turn and may borrow: {between:?}");
        };
        assert_eq!(waiting.start(), clock.now() + SECOND / 4);
    }
}

#[test]
fn a_waiting_call_keeps_its_place() {
    // The threshold, the buckets and the interval change, or the rule goes.
    let changes: [Rules; 4] = [
        FlowRule::per_second("r", 12).into(),
        FlowRule::per_second("r", 10).buckets(10).into(),
        FlowRule::per("r", 10, MINUTE).into(),
        Rules::new(),
    ];
    for rules in changes {
        let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
        let node = || sentinel.node("r").unwrap();
        clock.set(at(700));
        assert_eq!(passed(&sentinel, 10), 10);
        clock.set(at(1_200));
        let prioritized = Call::new("r").prioritized(true);
        let [runs, goes] = [0, 1].map(|_| match sentinel.try_enter(prioritized) {
            Verdict::Wait(waiting) => waiting,
            other => panic!("the window is full: {other:?}"),
        });
        assert!(sentinel.reload(rules.clone()));
        drop(run(&sentinel));
        assert_eq!((node().waiting(), node().held()), (2, 2), "{rules:?}");
        let runs = match runs.admit() {
            Err(NotAdmitted::TooEarly(waiting)) => waiting,
            other => panic!("the bucket has not begun: {other:?}"),
        };
        drop(goes);
        clock.set(at(1_500));
        drop(runs.admit().unwrap());
        assert_eq!(
            (node().waiting(), node().held(), node().concurrency()),
            (0, 0, 0)
        );
        assert_eq!(node().totals().occupied(), 1);
    }
}

#[test]
fn waiting_calls_keep_their_places_where_nobody_may_wait_so_long_any_more() {
    // The buckets change, of the ring that the rule shares or of its own, or only the longest
    // wait does.
    let window = || FlowRule::per_second("r", 4);
    // So short a ramp is none.
    let warm = || window().warm_up(Duration::from_millis(1));
    let cases = [
        (window(), window().buckets(10), 10),
        (warm(), warm().buckets(10), 10),
        (warm(), warm(), 2),
    ];
    for (before, after, buckets) in cases {
        let queue = FlowRule::per_second("r", 2).throttle(10 * SECOND);
        let (sentinel, clock) = engine(Rules::new().with(before).with(queue));
        let mut waiting: Vec<_> = (0..20)
            .filter_map(|_| match sentinel.try_enter(Call::new("r")) {
                Verdict::Wait(call) => Some(call),
                _ => None,
            })
            .collect();
        assert_eq!(waiting.len(), 19);
        assert!(sentinel.reload(after.into()));
        let bucket = |ms| ms * buckets / 1_000;
        let mut starts = Vec::new();
        for ms in (100..10_000).step_by(100) {
            clock.set(at(ms));
            while waiting.first().is_some_and(|call| call.start() <= at(ms)) {
                drop(waiting.remove(0).admit().unwrap());
                starts.push(ms);
            }
            starts.extend((0..passed(&sentinel, 9)).map(|_| ms));
            let is_in = |start: u64| bucket(start) + buckets > bucket(ms);
            let in_window = starts.iter().filter(|&&start| is_in(start)).count();
            assert!(in_window <= 4, "{in_window} of {buckets} buckets at {ms}");
        }
        assert!(waiting.is_empty());
        assert!(
            starts.len() > 19,
            "nobody has passed beside those who waited"
        );
    }
}

#[test]
fn a_set_with_a_bad_rule_leaves_the_old_one_in_force() {
    let (sentinel, _clock) = engine(FlowRule::per_second("r", 3));
    let rules: [Rule; 2] = [
        FlowRule::per_second("r", 1_000).into(),
        FlowRule::per_second("r", f64::NAN).into(),
    ];
    let error = sentinel.try_reload(rules).unwrap_err();
    assert_eq!(
        (error.problems().len(), error.problems()[0].index()),
        (1, 1)
    );
    assert_eq!(sentinel.rules(), FlowRule::per_second("r", 3).into());
    assert_eq!(passed(&sentinel, 9), 3);
    // A good one tells whether it changed anything.
    assert_eq!(
        sentinel.try_reload([FlowRule::per_second("r", 3)]),
        Ok(false)
    );
    assert_eq!(
        sentinel.try_reload([FlowRule::per_second("r", 5)]),
        Ok(true)
    );
    assert_eq!(passed(&sentinel, 9), 2);
}

// === windows of another shape ===

/// A rule's shape: interval in ms, buckets, limit.
type Shape = (u64, u32, u32);

fn rule((interval, buckets, limit): Shape) -> FlowRule {
    FlowRule::per("r", limit, Duration::from_millis(interval)).buckets(buckets)
}

/// How many of the calls in `log`, none of them before `from`, count in the
/// window of `shape` at `now`.
fn counted(log: &[u64], (interval, buckets, _): Shape, now: u64, from: u64) -> usize {
    let bucket = interval / u64::from(buckets);
    let start = (now / bucket + 1).saturating_sub(buckets.into()) * bucket;
    log.iter().filter(|&&then| then >= start.max(from)).count()
}

const SHAPES: [Shape; 7] = [
    (1_000, 2, 8),
    (1_000, 10, 12),
    (1_000, 1, 8),
    (3_000, 2, 15),
    (600, 6, 5),
    (60_000, 2, 40),
    // Too long for the ring of the node.
    (400_000, 2, 60),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_window_of_another_shape_never_forgets_what_the_old_one_knew(
        shapes in proptest::collection::vec(proptest::sample::select(&SHAPES), 2..6),
        gaps in proptest::collection::vec(prop_oneof![Just(0_u64), 1_u64..80, 80_u64..900], 200),
    ) {
        let (sentinel, clock) = engine(rule(shapes[0]));
        let mut log = Vec::new();
        // Since when everything that passed is known to the present rule.
        let (mut now, mut known, mut reloaded) = (0, 0, 0);
        for (turn, gap) in gaps.into_iter().enumerate() {
            now += gap;
            clock.set(at(now));
            let shape = shapes[turn / 40 % shapes.len()];
            if turn % 40 == 0 && turn > 0 {
                let before = shapes[(turn / 40 - 1) % shapes.len()];
                known = known.max(now.saturating_sub(before.0 - before.0 / u64::from(before.1)));
                reloaded = now;
                sentinel.reload(rule(shape).into());
            }
            let limit = shape.2 as usize;
            let passes = run(&sentinel).is_some();
            // What is known refuses; and what the new window has seen itself,
            // alone decides once the old counts have left it.
            let is_full = counted(&log, shape, now, known) >= limit;
            prop_assert!(!(passes && is_full), "passed at {now} under {shape:?}");
            if now >= reloaded + shape.0 + 1_500 {
                let is_full = counted(&log, shape, now, 0) >= limit;
                prop_assert_eq!(passes, !is_full, "at {} under {:?}", now, shape);
            }
            if passes {
                log.push(now);
            }
        }
    }
}

// === at any moment ===

/// Calls of two threads while `sets` are put in force in turns, `reloads` times
/// and each time after another call. Returns how many calls passed.
fn storm(sentinel: &Sentinel, sets: &[Rules], reloads: usize) -> u32 {
    let (calls, passed) = (AtomicU32::new(0), AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers = ["a", "b"].map(|origin| {
            let (calls, passed, is_over) = (&calls, &passed, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let call = Call::new("r").origin(origin);
                    if let Verdict::Pass(_) = sentinel.try_enter(call) {
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for rules in sets.iter().cycle().skip(1).take(reloads) {
            let before = calls.load(Ordering::Relaxed);
            while calls.load(Ordering::Relaxed) == before
                && !callers.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                thread::yield_now();
            }
            sentinel.reload(rules.clone());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    passed.into_inner()
}

#[test]
fn no_call_is_judged_by_a_half_of_two_sets() {
    const OPEN: u32 = 1_000_000;
    // Two rules that are always changed together, one of them closed: a call
    // that passes has met the open halves of both.
    let all = |limit: u32| FlowRule::per_second("r", limit);
    let fine = |limit: u32| FlowRule::per_second("r", limit).buckets(10);
    let long = |limit: u32| FlowRule::per("r", limit, Duration::from_secs(3));
    let each = |limit: u32| FlowRule::per_second("r", limit).by_origin();
    let day = |limit: u32| FlowRule::per("r", limit, MINUTE * 60 * 24);
    let slots = |limit| IsolationRule::new("r", limit);
    let pairs: [[Rules; 2]; 4] = [
        [(OPEN, 0), (0, OPEN)].map(|(a, b)| Rules::new().with(all(a)).with(each(b))),
        [(OPEN, 0), (0, OPEN)].map(|(a, b)| Rules::new().with(all(a)).with(slots(b))),
        [(OPEN, 0), (0, OPEN)].map(|(a, b)| Rules::new().with(fine(a)).with(day(b))),
        // Here each reload replaces the ring.
        [
            Rules::new().with(long(OPEN)).with(each(0)),
            Rules::new().with(fine(0)).with(each(OPEN)),
        ],
    ];
    for sets in pairs {
        let (sentinel, _clock) = engine(sets[0].clone());
        let passed = storm(&sentinel, &sets, 200);
        assert_eq!(passed, 0, "{sets:?}");
        let node = sentinel.node("r").unwrap();
        assert_eq!(
            (
                node.totals().pass() - node.totals().cancelled(),
                node.slots_in_use()
            ),
            (0, 0)
        );
    }
}

/// Names of a request for "/users/7": by two templates, by one above, and by none.
const NAMES: [&str; 4] = ["/users/{id}", "/users/{name}", "/{*all}", "/users/7"];

/// The status of a request for "/users/7" through `layer`.
fn status(layer: &SentinelLayer) -> u16 {
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let response = ready(service.oneshot(get("/users/7")));
    response.unwrap().status().as_u16()
}

#[test]
fn a_request_is_named_and_judged_by_one_set() {
    // Each set refuses the request under the only name that it has there.
    let closed = |name: &str| Rules::from(FlowRule::per_second(name, 0));
    for (before, after) in NAMES.iter().flat_map(|a| NAMES.map(|b| (*a, b))) {
        for is_known in [false, true] {
            let (sentinel, _clock) = engine(closed(before));
            let layer = SentinelLayer::with(sentinel.clone());
            if is_known {
                sentinel.reload(closed(after));
                assert_eq!(status(&layer), 429);
                sentinel.reload(closed(before));
                assert_eq!(status(&layer), 429);
            }
            for looks_again in [false, true] {
                sentinel.reload(closed(before));
                let changing = sentinel.clone();
                // Between naming and judging.
                let reloading = layer.clone().weight(move |head| {
                    changing.reload(closed(after));
                    if looks_again {
                        let _ = head.route();
                    }
                    1
                });
                assert_eq!(status(&reloading), 429, "{before} {after} {looks_again}");
            }
        }
    }
}

#[test]
fn under_a_storm_of_reloads_no_request_slips_between_two_names() {
    let sets = NAMES.map(|name| Rules::from(FlowRule::per_second(name, 0)));
    let (sentinel, _clock) = engine(sets[0].clone());
    let layer = SentinelLayer::with(sentinel.clone());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut passed = 0;
                while !is_over.load(Ordering::Relaxed) {
                    passed += u32::from(status(&layer) == 200);
                }
                passed
            })
        });
        for rules in sets.iter().cycle().skip(1).take(2_000) {
            sentinel.reload(rules.clone());
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(callers.map(|caller| caller.join().unwrap()), [0, 0]);
    });
}

/// A probe that puts other rules in force when it is asked: a call has found its
/// resource by then.
#[derive(Debug, Default)]
struct Reloading(OnceLock<(Sentinel, Rules)>);

impl Probe for Reloading {
    fn load(&self) -> Option<f64> {
        if let Some((sentinel, rules)) = self.0.get() {
            sentinel.reload(rules.clone());
        }
        Some(0.0)
    }

    fn cpu(&self) -> Option<f64> {
        None
    }
}

#[test]
fn a_call_that_looks_at_another_resource_meets_no_half_of_two_sets() {
    let load = || SystemRule::new().load(9.0);
    let when = Rules::new()
        .with(load())
        .with(FlowRule::per_second("r", 5).when("other"));
    // In the place of the rule that looks at the other resource, one of that.
    let minute = Rules::new()
        .with(load())
        .with(FlowRule::per("other", 100, MINUTE));
    let (clock, probe) = (ManualClock::new(), Arc::new(Reloading::default()));
    let sentinel = Sentinel::builder()
        .rules(minute.clone())
        .clock(clock.clone())
        .sampler(Sampler::new(probe.clone()))
        .build();
    for _ in 0..6 {
        drop(sentinel.try_enter(Call::new("other")));
    }
    assert!(sentinel.reload(when));
    clock.advance(MINUTE / 4);
    assert_eq!(passed(&sentinel, 3), 3);
    clock.advance(MINUTE / 4);
    // It has let none pass for a second, and the new rules say nothing about "r".
    probe.0.set((sentinel.clone(), minute.clone())).unwrap();
    assert_eq!(passed(&sentinel, 1), 1);
    assert_eq!(sentinel.rules(), minute);
}

#[test]
fn under_a_storm_of_reloads_no_window_exceeds_the_larger_limit() {
    // One is finer and the other longer, so each reload replaces the ring.
    let shapes = [(3_000, 2, 40), (1_000, 10, 60)];
    let sets = shapes.map(|shape| Rules::from(rule(shape)));
    let (sentinel, clock) = engine(sets[0].clone());
    let mut log: Vec<(u64, u32)> = Vec::new();
    // The clock stands still during each storm, so it is known when calls pass.
    for step in 0..60 {
        let now = step * 130;
        clock.set(at(now));
        log.push((now, storm(&sentinel, &sets, 11)));
    }
    // What both rules remember is a second, in buckets of 100 ms.
    let second = |&(end, _): &(u64, u32)| -> u32 {
        let start = (end / 100 + 1).saturating_sub(10) * 100;
        let within = log.iter().filter(|(then, _)| (start..=end).contains(then));
        within.map(|(_, passed)| passed).sum()
    };
    let fullest = log.iter().map(second).max().unwrap();
    assert!((30..=60).contains(&fullest), "{fullest}: {log:?}");
    let node = sentinel.node("r").unwrap();
    let ran: u32 = log.iter().map(|(_, passed)| passed).sum();
    let totals = node.totals();
    assert_eq!((totals.complete(), node.concurrency()), (ran.into(), 0));
}

#[test]
fn under_a_storm_of_reloads_a_rule_that_changes_its_ring_lets_no_more_pass() {
    let minute = || FlowRule::per("r", 400, MINUTE);
    let fine = || FlowRule::per_second("r", 9_999).buckets(10);
    // Which of them shares the ring of the node depends on which comes first.
    let sets = [
        minute().into(),
        Rules::new().with(fine()).with(minute()),
        Rules::new().with(minute().warm_up(MINUTE)).with(fine()),
        Rules::new().with(minute()).with(fine()),
    ];
    let (sentinel, clock) = engine(sets[0].clone());
    let mut passed = 0;
    for _ in 0..40 {
        clock.advance(Duration::from_millis(130));
        passed += storm(&sentinel, &sets, 11);
    }
    assert_eq!(passed, 400);
    let node = sentinel.node("r").unwrap();
    assert_eq!((node.totals().complete(), node.concurrency()), (400, 0));
}

/// What happens while a call is being refused.
struct Meanwhile(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Hook for Meanwhile {
    fn on_block(&self, event: &BlockEvent<'_>) {
        if let ("r", Some(run)) = (event.resource(), self.0.get()) {
            run();
        }
    }
}

#[test]
fn what_comes_back_after_a_reload_is_judged_by_the_new_rules() {
    let closed = || FlowRule::per_second("r", 0);
    let clock = ManualClock::new();
    let meanwhile = Arc::new(Meanwhile(OnceLock::new()));
    let sentinel = Sentinel::builder()
        .rules(closed())
        .clock(clock.clone())
        .max_resources(2)
        .idle_after(Duration::from_millis(1))
        .hook("meanwhile", meanwhile.clone())
        .build();
    let enter = {
        let sentinel = sentinel.clone();
        move |resource: &str| matches!(sentinel.try_enter(Call::new(resource)), Verdict::Pass(_))
    };
    assert!(enter("x") && !enter("r"));
    clock.advance(Duration::from_secs(60));
    let other = sentinel.clone();
    let call = enter.clone();
    let run = Box::new(move || {
        // This one takes the place of "x", which others may still be looking at.
        assert!(call("y"));
        other.reload(
            Rules::new()
                .with(closed())
                .with(SystemRule::new().concurrency(0)),
        );
        assert!(!call("x"), "by the rules of before");
    });
    assert!(meanwhile.0.set(run).is_ok());
    assert!(!enter("r"));
    assert_eq!(sentinel.hooks().panics(), 0);
}

#[test]
fn a_system_rule_of_another_id_is_named_by_it_where_no_other_rule_is() {
    let rule = |id: &str| SystemRule::new().qps(0).id(id);
    let sentinel = Sentinel::builder()
        .rules(rule("old"))
        .clock(ManualClock::new())
        .build();
    let refused = || match sentinel.try_enter(Call::new("/any")) {
        Verdict::Block(blocked) => blocked.rule().to_owned(),
        _ => panic!("nothing may pass"),
    };
    assert_eq!(refused(), "old");
    assert!(sentinel.reload(rule("new").into()));
    assert_eq!(refused(), "new");
}
