//! A hundred thousand calls at once on one rule.

use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict, Waiting};

use crate::support::Rng;

const CALLS: usize = 100_000;
const MOST: u32 = 1_000;

fn engine(rule: FlowRule) -> (Sentinel, ManualClock) {
    let clock = ManualClock::starting_at(Tick::from_millis(10_700));
    let sentinel = Sentinel::builder()
        .rules(rule)
        .clock(clock.clone())
        .occupy_timeout(Duration::from_secs(1))
        .build();
    (sentinel, clock)
}

/// What passed, and who waits.
fn storm(sentinel: &Sentinel) -> (u32, Vec<Waiting>) {
    let (mut passed, mut queue) = (0, Vec::new());
    for _ in 0..CALLS {
        match sentinel.try_enter(Call::new("r").prioritized(true)) {
            Verdict::Pass(_) => passed += 1,
            Verdict::Wait(waiting) => queue.push(waiting),
            Verdict::Block(_) => {}
            other => panic!("{other:?}"),
        }
    }
    (passed, queue)
}

/// Drops about half of `queue`.
fn drop_half(queue: Vec<Waiting>) -> Vec<Waiting> {
    let mut rng = Rng::seeded();
    queue.into_iter().filter(|_| rng.one_in(2)).collect()
}

#[test]
fn prioritized_calls_wait_up_to_the_bound_and_half_of_them_may_go() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", MOST).max_waiting(600));
    let (passed, queue) = storm(&sentinel);
    assert_eq!((passed, queue.len()), (MOST, 600));
    let node = sentinel.node("r").unwrap();
    assert_eq!((node.waiting(), node.held()), (600, 600));
    assert_eq!(node.totals().block(), CALLS as u64 - 1_600);

    let queue = drop_half(queue);
    let left = u32::try_from(queue.len()).unwrap();
    assert_eq!((node.waiting(), node.held()), (left, left));
    // What they held can be lent again.
    let (_, more) = storm(&sentinel);
    assert_eq!(more.len(), 600 - queue.len());
    clock.set(Tick::from_millis(11_500));
    for waiting in queue.into_iter().chain(more) {
        drop(waiting.admit().unwrap());
    }
    // The rest of the window is there for others.
    assert_eq!(storm(&sentinel).0, MOST - 600);
    assert_eq!((node.waiting(), node.concurrency()), (0, 0));
}

#[test]
fn a_queue_holds_as_many_as_its_time_and_its_bound_allow() {
    let rule = || FlowRule::per_second("r", MOST).throttle(Duration::from_millis(500));
    let (sentinel, _) = engine(rule());
    let (passed, queue) = storm(&sentinel);
    assert_eq!((passed, queue.len()), (1, 500));
    let (sentinel, clock) = engine(rule().max_waiting(100));
    let (passed, queue) = storm(&sentinel);
    assert_eq!((passed, queue.len()), (1, 100));
    let node = sentinel.node("r").unwrap();
    let queue = drop_half(queue);
    assert_eq!(node.waiting() as usize, queue.len());
    clock.advance(Duration::from_secs(1));
    for waiting in queue {
        drop(waiting.admit().unwrap());
    }
    assert_eq!((node.waiting(), node.held(), node.concurrency()), (0, 0, 0));
}

#[test]
fn a_runtime_that_goes_takes_its_waiters_along() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let (sentinel, _) = engine(FlowRule::per_second("r", MOST));
    for _ in 0..CALLS {
        let sentinel = sentinel.clone();
        runtime.spawn(async move { sentinel.enter(Call::new("r").prioritized(true)).await });
    }
    let node = loop {
        // Some wait, or have waited already.
        let has_waiters =
            |node: &tower_sentinel::read::NodeView| node.waiting() > 0 || node.totals().waits() > 0;
        if let Some(node) = sentinel.node("r").filter(has_waiters) {
            break node;
        }
        std::thread::yield_now();
    };
    runtime.shutdown_timeout(Duration::from_secs(60));
    assert_eq!((node.waiting(), node.concurrency()), (0, 0));
    // Who had waited for long enough ran, and has its token in a bucket to come,
    // as the clock stands still; nobody else has one.
    assert_eq!(u64::from(node.held()), node.totals().occupied());
}
