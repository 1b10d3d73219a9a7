//! Calls of plain threads, which block until their turn.

use std::thread;
use std::time::Duration;

use tower_sentinel::clock::MonotonicClock;
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, Clock, FlowRule, IsolationRule, Rules, Sentinel, Verdict,
};

use crate::support::{assert_at_rest, engine, ms};

const JOB: &str = "job";

#[test]
fn threads_that_block_start_at_their_turns() {
    let sentinel = Sentinel::new(FlowRule::per_second(JOB, 500).throttle(ms(60_000)));
    let clock = MonotonicClock::new();
    let began = clock.now();
    let mut starts = thread::scope(|scope| {
        let enter = || {
            let _running = sentinel.enter_blocking(Call::new(JOB)).unwrap();
            clock.now()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(enter)).collect();
        let starts = threads.into_iter().map(|thread| thread.join().unwrap());
        starts.collect::<Vec<_>>()
    });
    starts.sort_unstable();
    for (turn, start) in (0..).zip(starts) {
        assert!(start >= began + turn * ms(2), "{turn}: {start:?}");
    }
    let totals = assert_at_rest(&sentinel, JOB);
    assert_eq!((totals.complete(), totals.error()), (8, 0));
}

#[test]
fn a_thread_wakes_although_the_clock_of_the_engine_stands_still() {
    let (sentinel, clock) = engine(FlowRule::per_second(JOB, 1_000).throttle(ms(60_000)));
    let before = clock.now();
    for _ in 0..3 {
        let mut running = sentinel.enter_blocking(Call::new(JOB)).unwrap();
        running.fail();
    }
    assert_eq!(clock.now(), before);
    let totals = assert_at_rest(&sentinel, JOB);
    assert_eq!((totals.complete(), totals.error()), (3, 3));
}

#[test]
fn a_prioritized_call_of_a_thread_borrows() {
    let rule = FlowRule::per(JOB, 1, ms(2)).lend(true);
    let sentinel = Sentinel::new(rule);
    let clock = MonotonicClock::new();
    let call = Call::new(JOB).prioritized(true);
    let began = clock.now();
    for _ in 0..5 {
        drop(sentinel.enter_blocking(call).unwrap());
    }
    // Five windows of 2 ms, of which the first had begun.
    assert!(clock.now() >= began + ms(6));
    assert_at_rest(&sentinel, JOB);
}

#[test]
fn a_thread_is_refused_as_other_callers_are() {
    let rules = Rules::new()
        .with(FlowRule::per_second("spent", 0))
        .with(CircuitBreakerRule::error_ratio("open", 0.5))
        .with(FlowRule::per_second("full", 1).throttle(Duration::ZERO));
    let (sentinel, _clock) = engine(rules);
    let refusal = |name| sentinel.enter_blocking(Call::new(name)).unwrap_err().kind();
    assert_eq!(refusal("spent"), BlockKind::Flow);
    drop(sentinel.enter_blocking(Call::new("open")).unwrap());
    sentinel.node("open").unwrap().breakers()[0].force_open();
    assert_eq!(refusal("open"), BlockKind::CircuitBreaker);
    drop(sentinel.enter_blocking(Call::new("full")).unwrap());
    assert_eq!(refusal("full"), BlockKind::Flow);
}

#[test]
fn a_thread_may_be_refused_after_its_wait() {
    let rules = Rules::new()
        .with(FlowRule::per_second(JOB, 1_000).throttle(ms(60_000)))
        .with(IsolationRule::new(JOB, 1));
    let (sentinel, _clock) = engine(rules);
    let Verdict::Wait(_turn) = ({
        drop(sentinel.try_enter(Call::new(JOB)));
        sentinel.try_enter(Call::new(JOB))
    }) else {
        panic!("the first turn is taken");
    };
    let running = sentinel.enter_blocking(Call::new(JOB)).unwrap();
    let refused = sentinel.enter_blocking(Call::new(JOB)).unwrap_err();
    assert_eq!(refused.kind(), BlockKind::Isolation);
    drop(running);
    assert_eq!(sentinel.node(JOB).unwrap().slots_in_use(), 0);
}
