//! Histograms of response times and of waits: what is counted where, and through what it stays.

use std::time::Duration;

use tower_sentinel::stat::Histogram;
use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

use crate::support::{configured, ms, run};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// An engine whose histograms end at 10 ms, 100 ms and a minute.
fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    let edges = [ms(10), ms(100), ms(60_000)];
    configured(rules, |builder| builder.histograms_with(&edges).unwrap())
}

/// What each range has, that without an end last.
fn ranges(histogram: &Histogram) -> Vec<u64> {
    let mut before = 0;
    let ranges = histogram.buckets().map(|(_, count)| {
        let own = count - before;
        before = count;
        own
    });
    ranges.collect()
}

fn rt(sentinel: &Sentinel) -> Vec<u64> {
    ranges(&sentinel.node("r").unwrap().rt_histogram().unwrap())
}

fn waits(sentinel: &Sentinel) -> Vec<u64> {
    ranges(&sentinel.node("r").unwrap().wait_histogram().unwrap())
}

#[test]
fn a_time_belongs_to_the_first_edge_that_is_no_shorter() {
    let cases = [
        (Duration::ZERO, 0),
        (10 * MS, 0),
        // Times are whole microseconds, rounded down.
        (10 * MS + US - Duration::from_nanos(1), 0),
        (10 * MS + US, 1),
        (100 * MS, 1),
        (101 * MS, 2),
        (60_000 * MS, 2),
        // It is added up as a minute, and is longer than that.
        (60_000 * MS + US, 3),
        (3_600_000 * MS, 3),
    ];
    for (took, range) in cases {
        let (sentinel, clock) = engine(Rules::new());
        let running = run(&sentinel, Call::new("r").batch(7));
        clock.advance(took);
        drop(running);
        let mut expected = [0; 4];
        // It is one call, whatever its weight.
        expected[range] = 1;
        assert_eq!(rt(&sentinel), expected, "{took:?}");
        assert_eq!(waits(&sentinel), [0; 4]);
    }
}

#[test]
fn each_call_that_ends_with_an_answer_is_in_it_through_all_reloads() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 100));
    let call = |took: Duration| {
        let running = run(&sentinel, Call::new("r"));
        clock.advance(took);
        running
    };
    drop(call(5 * MS));
    call(50 * MS).fail();
    call(500 * MS).cancel();
    let before = call(50 * MS);
    sentinel.reload(FlowRule::per_second("r", 90).buckets(10).into());
    drop(call(5 * MS));
    drop(before);
    sentinel.reload(Rules::new());
    drop(call(61_000 * MS));
    assert_eq!(rt(&sentinel), [2, 2, 0, 1]);
    let calls = sentinel.node("r").unwrap().totals().calls();
    let times = sentinel.node("r").unwrap().rt_histogram().unwrap();
    assert_eq!((calls, times.count()), (5, 5));
    // Outbound calls of the same name are others.
    assert!(sentinel.outbound_node("r").is_none());
}

#[test]
fn a_wait_is_counted_when_its_call_starts() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 10).throttle(ms(10_000)));
    drop(run(&sentinel, Call::new("r")));
    let wait = || match sentinel.try_enter(Call::new("r")) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("its turn comes later: {other:?}"),
    };
    let [first, dropped] = [(); 2].map(|()| wait());
    drop(dropped);
    assert_eq!(waits(&sentinel), [0; 4]);
    clock.advance(ms(100));
    drop(first.admit().unwrap());
    assert_eq!(waits(&sentinel), [0, 1, 0, 0]);
    let late = wait();
    clock.advance(ms(4_000));
    drop(late.admit().unwrap());
    assert_eq!(waits(&sentinel), [0, 1, 1, 0]);
    assert_eq!(rt(&sentinel), [3, 0, 0, 0]);
}

#[test]
fn there_are_none_unless_they_are_asked_for() {
    let (sentinel, _clock) = configured(Rules::new(), |builder| builder);
    drop(run(&sentinel, Call::new("r")));
    let node = sentinel.node("r").unwrap();
    assert!(node.rt_histogram().is_none() && node.wait_histogram().is_none());
    // A window that is set later changes nothing of them.
    let (sentinel, _clock) = configured(Rules::new(), |builder| {
        builder.histograms().window(ms(60_000), 60).unwrap()
    });
    drop(run(&sentinel, Call::new("r")));
    let times = sentinel.node("r").unwrap().rt_histogram().unwrap();
    assert_eq!((times.buckets().count(), times.count()), (18, 1));
}

#[test]
fn bad_edges_are_told_with_their_place_and_what_is_allowed() {
    let whole = "whole microseconds between 1 µs and 60 s";
    let many = (1..=33).map(|n| n * MS).collect();
    let cases: [(Vec<Duration>, String); 7] = [
        (vec![], "there are 0 edges, must be between 1 and 32".into()),
        (
            many,
            "there are more than 32 edges, must be between 1 and 32".into(),
        ),
        (
            vec![Duration::ZERO],
            format!("edge 0 is 0ns, must be {whole}"),
        ),
        (
            vec![MS, 61_000 * MS],
            format!("edge 1 is 61s, must be {whole}"),
        ),
        (
            vec![Duration::from_nanos(1_500)],
            format!("edge 0 is 1.5µs, must be {whole}"),
        ),
        (
            vec![MS, MS],
            "edge 1 is 1ms, must be longer than the one before, 1ms".into(),
        ),
        (
            vec![Duration::MAX],
            format!("edge 0 is {:?}, must be {whole}", Duration::MAX),
        ),
    ];
    for (edges, told) in cases {
        let error = Sentinel::builder().histograms_with(&edges).unwrap_err();
        assert_eq!(error.to_string(), told);
    }
    let most: Vec<_> = (1..=32).map(|n| n * MS).collect();
    assert!(Sentinel::builder().histograms_with(&most).is_ok());
}
