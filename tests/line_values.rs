//! Calls that wait in line for a place among those at once of their value.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tower_sentinel::{
    BoxError, Call, HotParamRule, NodeView, NotAdmitted, Sentinel, Verdict, Waiting,
};

use support::{assert_at_rest, engine, enter, ms};

fn by(value: &str) -> Call<'_> {
    Call::new("r").param(value)
}

/// At most `max` of a value at once; others wait for up to a second.
fn queue(max: u32) -> HotParamRule {
    HotParamRule::concurrency("r", max).queue(ms(1_000))
}

#[track_caller]
fn wait(sentinel: &Sentinel, call: Call<'_>) -> Waiting {
    match sentinel.try_enter(call) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("it has to wait: {other:?}"),
    }
}

#[track_caller]
fn not_yet(waiting: Waiting) -> Waiting {
    match waiting.admit() {
        Err(NotAdmitted::TooEarly(waiting)) => waiting,
        other => panic!("it has no place: {other:?}"),
    }
}

fn node(sentinel: &Sentinel) -> NodeView {
    sentinel.node("r").unwrap()
}

/// How many wait by the node, and by the first rule on a parameter.
fn waiting(sentinel: &Sentinel) -> (u32, u32) {
    let node = node(sentinel);
    (node.waiting(), node.hot_params()[0].waiting())
}

/// Nothing is left over of any call, and every value has its whole limit.
#[track_caller]
fn assert_idle(sentinel: &Sentinel) -> tower_sentinel::stat::Totals {
    for params in node(sentinel).hot_params() {
        assert_eq!((params.values(), params.waiting()), (0, 0));
    }
    assert_at_rest(sentinel, "r")
}

#[test]
fn places_of_each_value_go_to_calls_in_the_order_in_which_they_came() {
    let (sentinel, clock) = engine(queue(2));
    let mut running: Vec<_> = (0..2).map(|_| enter(&sentinel, by("a")).unwrap()).collect();
    let mut line: Vec<_> = (0..4).map(|_| wait(&sentinel, by("a"))).collect();
    assert_eq!(line[0].delay(), ms(1_000));
    assert_eq!(waiting(&sentinel), (4, 4));
    // Other values have places of their own, and stand in lines of their own.
    let others = [0, 1].map(|_| enter(&sentinel, by("b")).unwrap());
    let other = wait(&sentinel, by("b"));
    for step in 0..4 {
        line = line.into_iter().map(not_yet).collect();
        clock.advance(ms(100));
        drop(running.remove(0));
        // A new call stands behind those that wait, also before the first of them looks.
        let newcomer = wait(&sentinel, by("a"));
        let others: Vec<_> = line.drain(1..).map(not_yet).collect();
        let next = line.pop().unwrap().admit().unwrap();
        running.push(next);
        line = others;
        drop(newcomer);
        assert_eq!(node(&sentinel).concurrency(), 4, "{step}");
    }
    let other = not_yet(other);
    drop(others);
    drop(other.admit().unwrap());
    drop(running);
    let totals = assert_idle(&sentinel);
    assert_eq!((totals.pass(), totals.block(), totals.waits()), (9, 0, 5));
    let waited = ms(100 + 200 + 300 + 400 + 400);
    assert_eq!((totals.waited(), totals.waiting_dropped()), (waited, 4));
    // Response times begin after the wait.
    let of_a = ms(100 + 200 + 200 + 200 + 100);
    assert_eq!(totals.rt(), of_a + ms(400 + 400));
}

#[tokio::test]
async fn run_waits_and_two_hundred_of_each_value_pass_two_at_a_time() {
    const VALUES: [&str; 3] = ["a", "b", "c"];
    let sentinel = Sentinel::new(queue(2).queue(Duration::from_secs(60)));
    let running: HashMap<_, _> = VALUES.map(|value| (value, AtomicU32::new(0))).into();
    let running = Arc::new(running);
    let most = Arc::new(AtomicU32::new(0));
    let calls = (0..600).map(|index| {
        let value = VALUES[index % 3];
        let (sentinel, running, most) = (sentinel.clone(), running.clone(), most.clone());
        tokio::spawn(async move {
            let work = async {
                let now = running[value].fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running[value].fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(())
            };
            sentinel.run(by(value), work).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(assert_idle(&sentinel).pass(), 600);
}
