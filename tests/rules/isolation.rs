//! Isolation: how many calls run at once, however they begin and end.

use std::future;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::from_fn;
use tower_sentinel::middleware::Completion;
use tower_sentinel::stat::Event;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, Blocked, BoxError, Call, CircuitBreakerRule,
    Criticality, Entry, FlowRule, IsolationRule, Key, ManualClock, Rules, Sentinel, SentinelLayer,
    Verdict,
};

use crate::support::{engine, enter, get, ready};

fn run(sentinel: &Sentinel) -> Result<Entry, Blocked> {
    enter(sentinel, Call::new("r"))
}

fn slots(sentinel: &Sentinel) -> u32 {
    sentinel.node("r").unwrap().slots_in_use()
}

#[test]
fn the_fourth_of_three_is_refused_until_one_ends() {
    let (sentinel, _) = engine(IsolationRule::new("r", 3).id("three"));
    let mut running: Vec<_> = (0..3).map(|_| run(&sentinel).unwrap()).collect();
    let blocked = run(&sentinel).unwrap_err();
    assert_eq!(
        (blocked.kind(), blocked.rule(), blocked.limit()),
        (BlockKind::Isolation, "three", Some(3))
    );
    // Nobody can tell when a call ends.
    assert_eq!((blocked.retry_after(), blocked.interval()), (None, None));
    assert_eq!(slots(&sentinel), 3);

    drop(running.pop());
    running.push(run(&sentinel).unwrap());
    assert!(run(&sentinel).is_err());
    drop(running);
    assert_eq!(slots(&sentinel), 0);
    let node = sentinel.node("r").unwrap();
    assert_eq!(
        [Event::Pass, Event::Block].map(|event| node.sum(event)),
        [4, 2]
    );
}

#[test]
fn a_call_takes_one_slot_whatever_its_weight() {
    let (sentinel, _) = engine(IsolationRule::new("r", 2));
    let heavy = Call::new("r").batch(1_000);
    let running = [0, 1].map(|_| enter(&sentinel, heavy).unwrap());
    assert!(enter(&sentinel, Call::new("r").batch(0)).is_err());
    assert_eq!(slots(&sentinel), 2);
    drop(running);
    assert_eq!(slots(&sentinel), 0);
}

#[test]
fn a_slot_is_free_again_however_the_call_ends() {
    let (sentinel, _) = engine(IsolationRule::new("r", 1));
    let endings: [fn(Entry); 5] = [
        drop,
        |mut entry| entry.fail(),
        |mut entry| entry.ignore(),
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
        let entry = run(&sentinel).unwrap();
        assert!(run(&sentinel).is_err());
        end(entry);
        assert_eq!(slots(&sentinel), 0);
    }
    let totals = sentinel.node("r").unwrap().totals();
    assert_eq!(
        (
            totals.pass(),
            totals.complete(),
            totals.error(),
            totals.cancelled(),
            totals.panicked()
        ),
        (5, 4, 2, 1, 1)
    );
}

#[test]
fn a_limit_of_zero_refuses_every_call() {
    let (sentinel, _) = engine(IsolationRule::new("r", 0));
    assert!((0..10).all(|_| run(&sentinel).is_err()));
    assert_eq!(slots(&sentinel), 0);
}

#[test]
fn of_several_rules_the_tightest_holds_and_is_named() {
    let rules = Rules::new()
        .with(IsolationRule::new("r", 5).id("five"))
        .with(IsolationRule::new("r", 2).id("two"))
        .with(IsolationRule::new("r", 2).id("two as well"))
        .with(IsolationRule::new("r", 7).id("seven"))
        .with(IsolationRule::new("other", 1));
    let (sentinel, _) = engine(rules);
    let _running = [0, 1].map(|_| run(&sentinel).unwrap());
    assert_eq!(run(&sentinel).unwrap_err().rule(), "two");
    assert!(enter(&sentinel, Call::new("other")).is_ok());
}

#[test]
fn a_call_refused_by_a_flow_rule_keeps_no_slot_and_the_other_way_takes_no_token() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2))
        .with(FlowRule::per_second("r", 1).for_origin("small"))
        .with(IsolationRule::new("r", 2));
    let (sentinel, _) = engine(rules);
    let small = Call::new("r").origin("small");
    let first = enter(&sentinel, small).unwrap();
    for _ in 0..5 {
        assert_eq!(enter(&sentinel, small).unwrap_err().kind(), BlockKind::Flow);
        assert_eq!(slots(&sentinel), 1);
    }
    let second = run(&sentinel).unwrap();
    for _ in 0..5 {
        // Isolation is asked first.
        assert_eq!(run(&sentinel).unwrap_err().kind(), BlockKind::Isolation);
    }
    drop((first, second));
    assert_eq!(run(&sentinel).unwrap_err().kind(), BlockKind::Flow);
    let node = sentinel.node("r").unwrap();
    assert_eq!((node.slots_in_use(), node.sum(Event::Pass)), (0, 2));
}

/// How many calls of a lone caller isolation refuses, beside a flood that the `rules` of rates
/// refuse.
fn refused_beside_a_flood(rules: Rules, flood: Call<'_>) -> usize {
    const CALLS: usize = 20_000;
    let (sentinel, _) = engine(rules.with(IsolationRule::new("r", 1)));
    while enter(&sentinel, flood).is_ok() {}
    let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                assert!(enter(&sentinel, flood).is_err());
            }
        });
        start.wait();
        let refused =
            (0..CALLS).filter(|_| enter(&sentinel, Call::new("r").origin("lone")).is_err());
        let refused = refused.count();
        stop.store(true, Ordering::Relaxed);
        refused
    })
}

#[test]
fn calls_that_a_spent_quota_refuses_take_no_slot_from_others() {
    let flow = || FlowRule::per_second("r", 1_000_000);
    let flood = Call::new("r").origin("flood");
    let deny = || AuthorityRule::deny("r", ["nobody"]);
    let cases = [
        ("a share", Rules::from(flow().by_origin()), flood),
        ("the ring", flow().into(), flood.batch(2_000_000)),
        (
            "the ring, on the slow path",
            Rules::new().with(flow()).with(deny()),
            flood.batch(2_000_000),
        ),
        (
            "the ring of an origin",
            FlowRule::per_second("r", 5).for_origin("flood").into(),
            flood,
        ),
        (
            "slots of an origin",
            IsolationRule::new("r", 0).for_origin("flood").into(),
            flood,
        ),
        (
            "a queue",
            FlowRule::per_second("r", 5)
                .for_origin("flood")
                .throttle(Duration::ZERO)
                .into(),
            flood,
        ),
        (
            "an adaptive limit",
            Rules::new()
                .with(flow())
                .with(AdaptiveRule::new("r").floor(1).ceiling(1)),
            flood.batch(2_000_000),
        ),
    ];
    for (what, rules, flood) in cases {
        assert_eq!(refused_beside_a_flood(rules, flood), 0, "{what}");
    }
}

#[test]
fn inbound_and_outbound_calls_have_slots_of_their_own() {
    let (sentinel, _) = engine(IsolationRule::new("r", 1));
    let _inbound = run(&sentinel).unwrap();
    let _outbound = enter(&sentinel, Call::new("r").outbound()).unwrap();
    assert!(run(&sentinel).is_err());
    assert!(enter(&sentinel, Call::new("r").outbound()).is_err());
}

#[test]
fn eight_threads_never_run_more_than_the_limit_and_reach_it() {
    const THREADS: usize = 8;
    const CALLS: u32 = 2_000;
    for limit in [1, 2, 7] {
        let (sentinel, _) = engine(IsolationRule::new("r", limit));
        let (running, peak, passed) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // All enter before any of them leaves, once.
                    barrier.wait();
                    let first = run(&sentinel);
                    barrier.wait();
                    let used = sentinel.node("r").unwrap().slots_in_use();
                    barrier.wait();
                    assert_eq!(used, limit);
                    drop(first);
                    for _ in 0..CALLS {
                        let Ok(entry) = run(&sentinel) else { continue };
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        peak.fetch_max(now, Ordering::SeqCst);
                        passed.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(entry);
                    }
                });
            }
        });
        let peak = peak.into_inner();
        assert!(peak <= limit, "{peak} of {limit} at once");
        let node = sentinel.node("r").unwrap();
        let totals = node.totals();
        assert_eq!((node.slots_in_use(), node.concurrency()), (0, 0));
        assert_eq!(totals.pass(), u64::from(passed.into_inner() + limit));
        assert_eq!(
            totals.pass() + totals.block(),
            THREADS as u64 * u64::from(CALLS + 1)
        );
    }
}

#[test]
fn the_adaptive_limit_that_is_told_is_the_one_that_is_kept() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(AdaptiveRule::new("r").burst(Duration::ZERO))
        .clock(clock.clone())
        .build();
    let mut limits = Vec::new();
    for _ in 0..500 {
        let node = sentinel.node("r");
        let bound = node.map(|node| node.shedding().unwrap().bound(Criticality::Critical));
        let running: Vec<_> = iter::from_fn(|| run(&sentinel).ok()).collect();
        assert_eq!(running.len() as u32, bound.unwrap_or(20));
        let limit = sentinel.node("r").unwrap().adaptive_limit().unwrap();
        clock.advance(Duration::from_millis(10));
        limits.push(limit);
    }
    assert!(limits[0] == 20 && limits[499] > 40, "{limits:?}");
}

#[test]
fn an_adaptive_limit_learns_of_a_call_when_that_ends() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(AdaptiveRule::new("r").burst(Duration::ZERO))
        .clock(clock.clone())
        .build();
    let let_in = || iter::from_fn(|| run(&sentinel).ok()).collect::<Vec<_>>();
    let running = let_in();
    assert_eq!(running.len(), 20);
    // They end after a window, of which the first one is followed by a probe.
    clock.advance(Duration::from_millis(600));
    drop(running);
    assert_eq!(let_in().len(), 15);
}

#[test]
fn quick_calls_without_a_response_of_the_service_teach_an_adaptive_limit_nothing() {
    // As one that another layer has refused: that is `ignore`.
    let ends: [fn(Entry); 3] = [
        |mut entry| entry.fail(),
        |mut entry| entry.ignore(),
        Entry::cancel,
    ];
    for (index, end) in ends.into_iter().enumerate() {
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder()
            .rules(AdaptiveRule::new("r").burst(Duration::ZERO))
            .clock(clock.clone())
            .build();
        for _ in 0..100 {
            let running: Vec<_> = iter::from_fn(|| run(&sentinel).ok()).collect();
            clock.advance(Duration::from_millis(10));
            running.into_iter().for_each(end);
        }
        let limit = sentinel.node("r").unwrap().adaptive_limit();
        assert_eq!(limit, Some(20), "end {index}");
    }
}

#[test]
fn an_adaptive_limit_learns_the_time_of_the_head_however_long_a_body_lasts() {
    // Alone, or on a node of its origin as well.
    for origins in [false, true] {
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder()
            .rules(AdaptiveRule::new("/x").burst(Duration::ZERO))
            .clock(clock.clone())
            .origins(origins)
            .build();
        let served = clock.clone();
        let service = SentinelLayer::with(sentinel.clone())
            .origin(from_fn(|_| Some(Key::Str("ann"))))
            .layer(service_fn(move |_: Request<Body>| {
                served.advance(Duration::from_millis(10));
                future::ready(Ok::<_, BoxError>(Response::new(Body::from("a page"))))
            }));
        let limits = [1, 2_000].map(|body| {
            for _ in 0..100 {
                let call = || ready(service.clone().oneshot(get("/x"))).unwrap();
                let running: Vec<_> = (0..20).map(|_| call()).collect();
                clock.advance(Duration::from_millis(body));
                drop(running);
            }
            sentinel.node("/x").unwrap().adaptive_limit().unwrap()
        });
        assert!(limits.is_sorted() && limits[0] > 20, "{origins} {limits:?}");
    }
}

/// How many of a thousand streams that nobody closes are let in under `rule`.
async fn streams(rule: AdaptiveRule, completion: Completion) -> usize {
    let endless = || futures_util::stream::pending::<Result<&'static str, BoxError>>();
    let service = SentinelLayer::with(engine(Rules::new().with(rule)).0)
        .completion(completion)
        .layer(service_fn(move |_: Request<Body>| async move {
            Ok::<_, BoxError>(Response::new(Body::from_stream(endless())))
        }));
    let mut open = Vec::new();
    for _ in 0..1_000 {
        let request = Request::get("/events").body(Body::empty()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        if response.status() == 200 {
            open.push(response);
        }
    }
    open.len()
}

#[tokio::test]
async fn streams_hold_an_adaptive_limit_where_it_is_unless_they_end_with_their_heads() {
    let rule = || AdaptiveRule::new("/events").burst(Duration::ZERO);
    let floor = rule().floor(500).ceiling(500);
    assert_eq!(streams(rule(), Completion::Body).await, 20);
    assert_eq!(streams(floor, Completion::Body).await, 500);
    assert_eq!(streams(rule(), Completion::Head).await, 1_000);
}

/// Rules that let two calls run at once, and count those of everybody.
fn limits_of_two() -> Vec<(&'static str, Rules)> {
    let two = || IsolationRule::new("r", 2);
    let any = || Rules::new();
    vec![
        ("isolation", two().into()),
        ("the default", IsolationRule::new("*", 2).into()),
        (
            "an adaptive limit",
            AdaptiveRule::new("r").floor(2).ceiling(2).into(),
        ),
        (
            "beside a window",
            any().with(two()).with(FlowRule::per_second("r", 1_000)),
        ),
        (
            "beside a window that makes another ring",
            any()
                .with(two())
                .with(FlowRule::per_second("r", 1_000).buckets(10)),
        ),
        (
            "beside origins",
            any()
                .with(two())
                .with(FlowRule::per_second("r", 1_000).for_origin("a")),
        ),
        (
            "beside breakers and callers",
            any()
                .with(two())
                .with(AuthorityRule::deny("r", ["nobody"]))
                .with(CircuitBreakerRule::error_ratio("r", 0.5)),
        ),
    ]
}

#[test]
fn calls_that_run_count_when_a_limit_comes() {
    let before = [
        Rules::new(),
        FlowRule::per_second("r", 1_000).into(),
        FlowRule::per_second("r", 1_000).for_origin("a").into(),
        CircuitBreakerRule::error_ratio("r", 0.5).into(),
    ];
    for (what, limit) in limits_of_two() {
        for old in &before {
            let (sentinel, _) = engine(old.clone());
            // Of any weight, each is one.
            let call = |n| enter(&sentinel, Call::new("r").origin("a").batch(n));
            let mut running: Vec<_> = [1, 0, 7, 1, 1].map(|n| call(n).unwrap()).into();
            sentinel.reload(limit.clone());
            for left in (2..=5).rev() {
                assert!(call(1).is_err(), "{what} after {old:?}: {left} run");
                assert_eq!(slots(&sentinel), left, "{what} after {old:?}");
                drop(running.remove(0));
            }
            running.push(call(1).unwrap());
            assert!(call(1).is_err(), "{what} after {old:?}");
            running.clear();
            let _both = [call(3).unwrap(), call(0).unwrap()];
            assert!(call(1).is_err(), "{what} after {old:?}");
            assert_eq!(slots(&sentinel), 2);
        }
    }
}

#[test]
fn calls_of_every_set_of_rules_count_under_a_limit_that_comes_again() {
    let (sentinel, _) = engine(IsolationRule::new("r", 9));
    let mut running = vec![run(&sentinel).unwrap()];
    sentinel.reload(Rules::new());
    running.push(run(&sentinel).unwrap());
    sentinel.reload(FlowRule::per_second("r", 100).into());
    running.push(run(&sentinel).unwrap());
    sentinel.reload(AdaptiveRule::new("r").floor(4).ceiling(4).into());
    running.push(run(&sentinel).unwrap());
    assert!(run(&sentinel).is_err());
    sentinel.reload(Rules::new());
    running.push(run(&sentinel).unwrap());
    sentinel.reload(IsolationRule::new("r", 5).into());
    assert!(run(&sentinel).is_err());
    for turn in 0..20 {
        // Whichever ends, one more may run.
        drop(running.remove(turn % 5));
        running.push(run(&sentinel).unwrap());
        assert!(run(&sentinel).is_err());
        assert_eq!(slots(&sentinel), 5);
    }
}

#[test]
fn a_call_that_waits_by_older_rules_counts_when_it_starts() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 2).throttle(Duration::from_secs(9)));
    let mut running = vec![run(&sentinel).unwrap()];
    let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r")) else {
        panic!("its turn comes later");
    };
    sentinel.reload(IsolationRule::new("r", 2).into());
    clock.advance(Duration::from_millis(500));
    // By the rules that gave it its turn, it starts; by the others, it is the second one.
    running.push(waiting.admit().unwrap());
    assert!(run(&sentinel).is_err());
    drop(running.pop());
    assert!(run(&sentinel).is_ok());
}

#[test]
fn a_limit_that_comes_while_threads_call_loses_no_slot() {
    const LIMIT: u32 = 2;
    for _ in 0..200 {
        let (sentinel, _) = engine(Rules::new());
        let start = Barrier::new(5);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..50 {
                        let Ok(entry) = run(&sentinel) else { continue };
                        thread::yield_now();
                        drop(entry);
                    }
                });
            }
            start.wait();
            sentinel.reload(IsolationRule::new("r", LIMIT).into());
        });
        // Nothing is left over: exactly so many run at once.
        let all: Vec<_> = iter::from_fn(|| run(&sentinel).ok()).take(9).collect();
        assert_eq!((all.len(), slots(&sentinel)), (2, 2));
        drop(all);
        assert_eq!(slots(&sentinel), 0);
    }
}
