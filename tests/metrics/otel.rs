//! The totals of the example `otel`, from which OpenTelemetry's counters are.

use tower_sentinel::observe::Metrics;
use tower_sentinel::{Call, FlowRule, Rules, Sentinel};

use crate::passes;
use crate::support::{engine, ms, run};

#[path = "../ecosystem/examples/otel/totals.rs"]
mod totals;

use totals::Totals;

/// The number and the sum of all series of a family.
fn total(totals: &Totals, metrics: &Metrics, family: &str) -> [f64; 2] {
    let family = crate::family(metrics, family);
    let samples = family.samples().iter();
    samples.fold([0.0; 2], |[number, sum], sample| {
        let [more, longer] = totals.of(family.name(), sample);
        [number + more, sum + longer]
    })
}

fn refusing() -> FlowRule {
    FlowRule::per_second("/search", 0).id("search")
}

fn refuse(sentinel: &Sentinel, times: usize) {
    for _ in 0..times {
        assert!(!passes(sentinel, Call::new("/search")));
    }
}

#[test]
fn totals_are_what_was_counted_however_often_they_are_read() {
    let (sentinel, clock) = engine(FlowRule::per_second("/search", 9));
    let metrics = Metrics::new(&sentinel);
    let mut totals = Totals::default();
    for calls in 1..=3 {
        let mut entry = run(&sentinel, Call::new("/search"));
        clock.advance(ms(5));
        entry.fail();
        drop(entry);
        for _ in 0..3 {
            totals.add(&metrics.families());
        }
        let calls = f64::from(calls);
        let total = |family| total(&totals, &metrics, family);
        assert_eq!(total("sentinel_failed"), [calls, 0.0]);
        let [count, sum] = total("sentinel_call_duration_seconds");
        assert_eq!(count, calls);
        assert!((sum - calls * 0.005).abs() < 1e-9, "{sum}");
    }
    // A gauge is no total.
    assert_eq!(total(&totals, &metrics, "sentinel_active_calls"), [0.0; 2]);
}

#[test]
fn a_total_grows_on_where_a_rule_goes_and_comes_back() {
    let (sentinel, _clock) = engine(refusing());
    let metrics = Metrics::new(&sentinel);
    let mut totals = Totals::default();
    let blocked = |totals: &Totals| total(totals, &metrics, "sentinel_rule_blocked")[0];
    refuse(&sentinel, 3);
    totals.add(&metrics.families());
    assert_eq!(blocked(&totals), 3.0);
    // It counts from 0 again, and beyond where it was.
    sentinel.reload(Rules::new());
    totals.add(&metrics.families());
    sentinel.reload(refusing().into());
    refuse(&sentinel, 5);
    totals.add(&metrics.families());
    assert_eq!(blocked(&totals), 8.0);
    // Nobody looks while it is gone; its count is below the last one.
    sentinel.reload(Rules::new());
    sentinel.reload(refusing().into());
    refuse(&sentinel, 2);
    totals.add(&metrics.families());
    assert_eq!(blocked(&totals), 10.0);
}

#[test]
fn a_resource_that_was_left_out_adds_what_it_has_counted_meanwhile() {
    let (sentinel, _clock) = engine(refusing());
    let metrics = Metrics::new(&sentinel);
    let others = Metrics::new(&sentinel).max_resources(0);
    let mut totals = Totals::default();
    refuse(&sentinel, 3);
    totals.add(&metrics.families());
    refuse(&sentinel, 4);
    totals.add(&others.families());
    totals.add(&metrics.families());
    assert_eq!(total(&totals, &metrics, "sentinel_blocked"), [7.0, 0.0]);
}
