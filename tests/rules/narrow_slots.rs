//! Isolation of single origins, and by the calls of another resource.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use axum::body::Body;
use axum::http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::from_fn;
use tower_sentinel::read::Scope;
use tower_sentinel::stat::Event;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, Key,
    KeyedRule, NotAdmitted, Rules, Sentinel, SentinelLayer, Verdict,
};

use crate::support::{assert_at_rest, configured, engine, enter, get, ms, ready};

fn at_once(max: u32) -> IsolationRule {
    IsolationRule::new("r", max)
}

fn by<'a>(origin: &'a str) -> Call<'a> {
    Call::new("r").origin(origin)
}

/// Starts as many calls as may run.
fn fill(sentinel: &Sentinel, call: Call<'_>) -> Vec<Entry> {
    iter::from_fn(|| enter(sentinel, call).ok())
        .take(50)
        .collect()
}

/// How many calls may run at once, where none does.
fn most(sentinel: &Sentinel, call: Call<'_>) -> usize {
    fill(sentinel, call).len()
}

/// The slots in use by `origin`.
fn slots_of(sentinel: &Sentinel, origin: &str) -> u32 {
    let snapshot = sentinel.snapshot();
    let nodes = snapshot.nodes().iter();
    let mut own = nodes.filter(|node| *node.scope() == Scope::Origin(origin.to_owned()));
    own.next().unwrap().slots_in_use()
}

#[track_caller]
fn assert_refused_by(refused: Result<Entry, Blocked>, rule: &str, limit: u32) {
    let blocked = refused.unwrap_err();
    assert_eq!(
        (blocked.kind(), blocked.rule(), blocked.limit()),
        (BlockKind::Isolation, rule, Some(limit))
    );
    // Nobody can tell when a call ends.
    assert_eq!((blocked.retry_after(), blocked.interval()), (None, None));
}

#[test]
fn one_origin_has_its_own_limit_and_the_others_have_none() {
    let (sentinel, _) = engine(at_once(2).for_origin("batch").id("two"));
    let running = fill(&sentinel, by("batch"));
    assert_eq!(running.len(), 2);
    assert_eq!(slots_of(&sentinel, "batch"), 2);
    assert_refused_by(enter(&sentinel, by("batch")), "two", 2);
    assert_eq!(most(&sentinel, by("shop")), 50);
    assert_eq!(most(&sentinel, Call::new("r")), 50);
    drop(running);
    assert_eq!(slots_of(&sentinel, "batch"), 0);
    assert_eq!(most(&sentinel, by("batch").batch(1_000)), 2);
    assert_at_rest(&sentinel, "r");
}

#[test]
fn each_other_origin_has_its_own_slots_but_none_that_a_rule_names() {
    let other = || at_once(1).for_origin("other");
    let rules = Rules::new()
        .with(other())
        .with(at_once(3).for_origin("10.0.0.1"))
        .with(FlowRule::per_second("r", 1_000).for_origin("flow"))
        .with(at_once(9));
    let (sentinel, _) = engine(rules);
    // Nobody's slots are another one's.
    let _running = [by("a"), by("b")].map(|call| enter(&sentinel, call).unwrap());
    assert_eq!(most(&sentinel, by("a")), 0);
    assert_eq!(most(&sentinel, by("c")), 1);
    assert_eq!(most(&sentinel, by("10.0.0.1")), 3);
    let address = Key::Ip([10, 0, 0, 1].into());
    assert_eq!(most(&sentinel, Call::new("r").origin(address)), 3);
    // The rest is the limit on all of them.
    assert_eq!(most(&sentinel, by("flow")), 7);
    assert_eq!(most(&sentinel, Call::new("r")), 7);

    // The name "default" is as none at all.
    let (sentinel, _) = engine(at_once(2).for_origin("default"));
    let _one = enter(&sentinel, by("a")).unwrap();
    assert_eq!(most(&sentinel, by("b")), 1);
}

#[test]
fn origins_beyond_their_bound_share_the_slots_of_one_and_a_named_one_has_its_own() {
    let rules = Rules::new()
        .with(at_once(2).for_origin("other"))
        .with(at_once(1).for_origin("late"));
    let (sentinel, _) = configured(rules, |builder| builder.max_origins(4));
    let names: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let running: Vec<_> = names
        .iter()
        .flat_map(|name| fill(&sentinel, by(name)))
        .collect();
    assert!(
        (2..=2 * (4 + 1)).contains(&running.len()),
        "{}",
        running.len()
    );
    assert_eq!(most(&sentinel, by("late")), 1);
}

#[test]
fn the_tightest_rule_of_an_origin_holds_and_is_named() {
    let rules = Rules::new()
        .with(at_once(5).for_origin("a").id("five"))
        .with(at_once(2).for_origin("a").id("two"))
        .with(at_once(2).for_origin("a").id("two as well"));
    let (sentinel, _) = engine(rules);
    let _running = fill(&sentinel, by("a"));
    assert_refused_by(enter(&sentinel, by("a")), "two", 2);
}

#[test]
fn a_slot_of_an_origin_is_free_again_however_the_call_ends() {
    let rules = Rules::new()
        .with(at_once(1).for_origin("a"))
        .with(CircuitBreakerRule::error_ratio("r", 1.0).min_calls(1_000));
    let (sentinel, _) = engine(rules);
    let endings: [fn(Entry); 4] = [
        drop,
        |mut entry| entry.fail(),
        Entry::cancel,
        |entry| {
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _entry = entry;
                panic!("the call panics");
            }));
            assert!(unwound.is_err());
        },
    ];
    for end in endings {
        let entry = enter(&sentinel, by("a")).unwrap();
        assert!(enter(&sentinel, by("a")).is_err());
        end(entry);
        assert_eq!(slots_of(&sentinel, "a"), 0);
    }
    assert_at_rest(&sentinel, "r");
}

#[test]
fn a_call_that_another_rule_refuses_keeps_no_slot_of_its_origin() {
    let origin = || at_once(2).for_origin("a");
    let rules: [(&str, Rules); 4] = [
        ("slots of all", at_once(1).into()),
        ("a window", FlowRule::per_second("r", 1).into()),
        ("a value", KeyedRule::per_second("r", 1).by_origin().into()),
        (
            "a breaker",
            CircuitBreakerRule::error_count("r", 1).min_calls(1).into(),
        ),
    ];
    for (what, rules) in rules {
        let (sentinel, clock) = engine(rules.with(origin()));
        let mut first = enter(&sentinel, by("a")).unwrap();
        first.fail();
        let kept = (what == "slots of all").then_some(first);
        for _ in 0..3 {
            assert!(enter(&sentinel, by("a")).is_err(), "{what}");
        }
        assert_eq!(
            slots_of(&sentinel, "a"),
            u32::from(kept.is_some()),
            "{what}"
        );
        drop(kept);
        clock.advance(ms(60_000));
        assert!(enter(&sentinel, by("a")).is_ok(), "{what}");
        assert_at_rest(&sentinel, "r");
    }
}

#[test]
fn a_refusal_by_an_origin_takes_nothing_of_the_other_rules() {
    let rules = Rules::new()
        .with(at_once(1).for_origin("a"))
        .with(at_once(9))
        .with(FlowRule::per_second("r", 100))
        .with(FlowRule::per_second("r", 2).by_origin());
    let (sentinel, _) = engine(rules);
    let running = enter(&sentinel, by("a")).unwrap();
    for _ in 0..5 {
        assert_eq!(
            enter(&sentinel, by("a")).unwrap_err().kind(),
            BlockKind::Isolation
        );
    }
    let node = sentinel.node("r").unwrap();
    assert_eq!(
        (
            node.slots_in_use(),
            node.sum(Event::Pass),
            node.sum(Event::Block)
        ),
        (1, 1, 5)
    );
    drop(running);
    // The quota of its own has one call left.
    assert!(enter(&sentinel, by("a")).is_ok());
}

#[test]
fn calls_of_an_origin_count_on_through_reloads() {
    let origins = |builder: tower_sentinel::Builder| builder.origins(true);
    let (sentinel, _) = configured(Rules::new(), origins);
    let older = [0, 1].map(|_| enter(&sentinel, by("a")).unwrap());
    // Two run without a slot when the rule comes.
    sentinel.reload(at_once(3).for_origin("a").into());
    let newer = fill(&sentinel, by("a"));
    assert_eq!(newer.len(), 1);
    assert_eq!(slots_of(&sentinel, "a"), 3);
    // A tighter rule disturbs none, and lets none in until two have ended.
    sentinel.reload(at_once(2).for_origin("other").into());
    assert_eq!(most(&sentinel, by("a")), 0);
    drop(newer);
    assert_eq!(most(&sentinel, by("a")), 0);
    let [first, second] = older;
    drop(first);
    assert_eq!(most(&sentinel, by("a")), 1);
    // Without the rule anything runs, and counts when it is there again.
    sentinel.reload(Rules::new());
    let third = enter(&sentinel, by("a")).unwrap();
    sentinel.reload(at_once(2).for_origin("a").into());
    assert_eq!(most(&sentinel, by("a")), 0);
    drop((second, third));
    assert_eq!(most(&sentinel, by("a")), 2);
    assert_eq!(slots_of(&sentinel, "a"), 0);
}

#[test]
fn eight_threads_of_one_origin_never_run_more_than_its_limit_and_reach_it() {
    const THREADS: usize = 8;
    const CALLS: u32 = 10_000;
    // Of the last ones a call loses the slot of all when it has that of its origin.
    for (own, all) in [(1, 2), (3, 5), (2, 2), (1, 1)] {
        let rules = Rules::new()
            .with(at_once(own).for_origin("a"))
            .with(at_once(all));
        let (sentinel, _) = engine(rules);
        let (running, peak) = (AtomicU32::new(0), AtomicU32::new(0));
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (sentinel, barrier) = (&sentinel, &barrier);
                let (running, peak) = (&running, &peak);
                scope.spawn(move || {
                    barrier.wait();
                    let first = enter(sentinel, by("a"));
                    barrier.wait();
                    let used = slots_of(sentinel, "a");
                    barrier.wait();
                    assert_eq!(used, own);
                    drop(first);
                    let origin = if thread % 4 == 3 { "b" } else { "a" };
                    for _ in 0..CALLS {
                        let Ok(entry) = enter(sentinel, by(origin)) else {
                            continue;
                        };
                        if origin == "a" {
                            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                            peak.fetch_max(now, Ordering::SeqCst);
                            thread::yield_now();
                            running.fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(entry);
                    }
                });
            }
        });
        let peak = peak.into_inner();
        assert!(peak <= own, "{peak} of {own} at once");
        assert_eq!(slots_of(&sentinel, "a"), 0);
        assert_at_rest(&sentinel, "r");
        assert_eq!(most(&sentinel, by("a")), own as usize);
    }
}

#[test]
fn a_call_that_has_waited_for_its_turn_needs_a_slot_of_its_origin_then() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2).throttle(ms(10_000)))
        .with(at_once(1).for_origin("a"))
        .with(at_once(9));
    let (sentinel, clock) = engine(rules);
    drop(enter(&sentinel, by("a")).unwrap());
    let wait = || match sentinel.try_enter(by("a")) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("it has to wait for its turn: {other:?}"),
    };
    // None of them holds a slot while it waits.
    let (second, third, fourth) = (wait(), wait(), wait());
    assert_eq!(slots_of(&sentinel, "a"), 0);
    clock.advance(ms(1_500));
    let running = second.admit().unwrap();
    let Err(NotAdmitted::Blocked(blocked)) = third.admit() else {
        panic!("one at once");
    };
    assert_eq!(
        (blocked.kind(), blocked.limit()),
        (BlockKind::Isolation, Some(1))
    );
    assert_eq!(sentinel.node("r").unwrap().slots_in_use(), 1);
    drop(running);
    assert!(fourth.admit().is_ok());
    assert_at_rest(&sentinel, "r");
}

#[test]
fn a_call_that_is_refused_after_its_wait_keeps_no_slot_of_its_origin() {
    for kind in [BlockKind::Isolation, BlockKind::CircuitBreaker] {
        let rules = Rules::new()
            .with(FlowRule::per_second("r", 2).throttle(ms(10_000)))
            .with(at_once(1).for_origin("a"))
            .with(at_once(1).id("all"))
            .with(CircuitBreakerRule::error_count("r", 1).min_calls(1));
        let (sentinel, clock) = engine(rules);
        drop(enter(&sentinel, by("b")).unwrap());
        let wait = |origin: &str| match sentinel.try_enter(by(origin)) {
            Verdict::Wait(waiting) => waiting,
            other => panic!("it has to wait for its turn: {other:?}"),
        };
        let (other, own) = (wait("b"), wait("a"));
        clock.advance(ms(1_000));
        let mut running = Some(other.admit().unwrap());
        if kind == BlockKind::CircuitBreaker {
            let mut ends = running.take().unwrap();
            ends.fail();
        }
        let Err(NotAdmitted::Blocked(blocked)) = own.admit() else {
            panic!("{kind} has no place for it");
        };
        assert_eq!(blocked.kind(), kind);
        assert_eq!(slots_of(&sentinel, "a"), 0);
        drop(running);
        assert_at_rest(&sentinel, "r");
    }
}

#[test]
fn a_full_origin_waits_in_no_line_and_passes_on_a_slot_of_all() {
    let rules = Rules::new()
        .with(at_once(2).queue(ms(10_000)))
        .with(at_once(1).for_origin("a"));
    let (sentinel, _) = engine(rules);
    let in_line = |origin: &str| match sentinel.try_enter(by(origin)) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("there is no slot: {other:?}"),
    };
    let busy = [0, 1].map(|_| enter(&sentinel, by("b")).unwrap());
    let (first, second, third) = (in_line("a"), in_line("a"), in_line("b"));
    let [one, two] = busy;
    drop(one);
    let running = first.admit().unwrap();
    // The next one has a slot of all, and none of its own: that goes to the third.
    drop(two);
    let Err(NotAdmitted::Blocked(blocked)) = second.admit() else {
        panic!("its origin has one slot");
    };
    assert_eq!(blocked.limit(), Some(1));
    let third = third.admit().unwrap();
    // Both are full: the call of the full origin need not wait for the other one.
    assert_refused_by(enter(&sentinel, by("a")), "isolation-1", 1);
    drop((running, third));
    assert_at_rest(&sentinel, "r");
}

#[test]
fn the_body_of_a_response_holds_the_slot_of_its_origin() {
    let (sentinel, _) = engine(IsolationRule::new("/r", 1).for_origin("ann"));
    let service = SentinelLayer::with(sentinel)
        .origin(from_fn(|_| Some(Key::Str("ann"))))
        .layer(service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::new(Body::from("a page")))
        }));
    let call = || ready(service.clone().oneshot(get("/r"))).unwrap();
    let first = call();
    assert_eq!(
        (first.status().as_u16(), call().status().as_u16()),
        (200, 429)
    );
    drop(first);
    assert_eq!(call().status(), 200);
}

#[test]
fn rules_in_shadow_mode_count_the_slots_of_origins_and_refuse_nothing() {
    let rules = Rules::new()
        .with(at_once(1).for_origin("other").id("origin").shadow())
        .with(at_once(1).when("s").id("related").shadow());
    let (sentinel, _) = engine(rules);
    let blocked = |id: &str| {
        let shadows = sentinel.shadows();
        let mut own = shadows.iter().filter(|shadow| shadow.rule() == id);
        own.next().unwrap().would_block()
    };
    let running = [0, 1, 2].map(|_| enter(&sentinel, by("a")).unwrap());
    let _other = enter(&sentinel, by("b")).unwrap();
    assert_eq!((blocked("origin"), blocked("related")), (2, 0));
    drop(running);
    drop(enter(&sentinel, by("a")).unwrap());
    let related = enter(&sentinel, Call::new("s")).unwrap();
    drop(enter(&sentinel, Call::new("r")).unwrap());
    drop(related);
    drop(enter(&sentinel, Call::new("r")).unwrap());
    assert_eq!((blocked("origin"), blocked("related")), (2, 1));
}

#[test]
fn calls_yield_to_those_of_another_resource() {
    let (sentinel, clock) = engine(at_once(2).when("s").id("two"));
    let other = || Call::new("s");
    assert_eq!(most(&sentinel, Call::new("r")), 50);
    let first = enter(&sentinel, other().batch(7)).unwrap();
    assert_eq!(most(&sentinel, Call::new("r")), 50);
    let second = enter(&sentinel, other().batch(0)).unwrap();
    let third = enter(&sentinel, other()).unwrap();
    assert_refused_by(enter(&sentinel, Call::new("r")), "two", 2);
    // It limits the other resource as little as calls the other way.
    assert_eq!(most(&sentinel, other()), 50);
    assert!(enter(&sentinel, Call::new("r").outbound()).is_ok());
    clock.advance(ms(3_600_000));
    assert_refused_by(enter(&sentinel, by("anyone")), "two", 2);
    // A call counts whatever its weight.
    drop(third);
    assert_eq!(most(&sentinel, Call::new("r")), 0);
    drop(first);
    assert_eq!(most(&sentinel, Call::new("r")), 50);
    drop(second);
    assert_at_rest(&sentinel, "r");
}

#[test]
fn calls_of_another_resource_count_from_before_the_rule_and_with_its_own_rules() {
    let (sentinel, _) = engine(Rules::new());
    let running = [0, 1].map(|_| enter(&sentinel, Call::new("s")).unwrap());
    let rule = || Rules::from(at_once(2).when("s"));
    sentinel.reload(rule());
    assert_eq!(most(&sentinel, Call::new("r")), 0);
    // As well where that has other rules, or a ring of another shape.
    let other = FlowRule::per_second("s", 9).buckets(10);
    sentinel.reload(rule().with(IsolationRule::new("s", 5)).with(other));
    assert_eq!(most(&sentinel, Call::new("r")), 0);
    drop(running);
    assert_eq!(most(&sentinel, Call::new("r")), 50);
    sentinel.reload(at_once(0).when("s").into());
    assert_eq!(most(&sentinel, Call::new("r")), 0);
}

#[test]
fn a_rule_by_another_resource_applies_once_that_was_called() {
    let (sentinel, _) = engine(at_once(0).when("s"));
    assert_eq!(most(&sentinel, Call::new("r")), 50);
    drop(enter(&sentinel, Call::new("s")).unwrap());
    assert_eq!(most(&sentinel, Call::new("r")), 0);
}
