//! The same figures for the recorder of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit, with_local_recorder,
};
use tower_sentinel::observe::Metrics;
use tower_sentinel::observe::facade::Facade;
use tower_sentinel::{Call, CircuitBreakerRule, FlowRule, Rules};

use crate::support::{engine, ms, run};

/// Remembers the last figure of each series.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, f64>>>);

/// One series of it.
struct Series(Memory, String);

impl Series {
    fn of(memory: &Memory, key: &Key) -> Arc<Self> {
        let labels = key
            .labels()
            .map(|label| format!("{}={:?}", label.key(), label.value()));
        let labels = labels.collect::<Vec<_>>().join(",");
        Arc::new(Self(memory.clone(), format!("{}{{{labels}}}", key.name())))
    }

    fn note(&self, figure: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), figure);
    }
}

impl CounterFn for Series {
    fn increment(&self, _: u64) {
        panic!("the figures are those of the engine");
    }

    fn absolute(&self, value: u64) {
        self.note(value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, _: f64) {
        panic!("the figures are those of the engine");
    }

    fn decrement(&self, _: f64) {
        panic!("the figures are those of the engine");
    }

    fn set(&self, value: f64) {
        self.note(value);
    }
}

impl Recorder for Memory {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, help: SharedString) {
        assert!(!help.is_empty());
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, help: SharedString) {
        assert!(!help.is_empty());
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("there are none");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::of(self, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::of(self, key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("there are none");
    }
}

#[test]
fn a_recorder_is_told_the_figures_and_of_what_has_gone() {
    const MARKER: &str = "k3y-0f-a-c4ll3r";
    let rules = Rules::new()
        .with(FlowRule::per_second("/a", 2).id("two"))
        .with(CircuitBreakerRule::error_count("/a", 9).id("nine"));
    let (sentinel, clock) = engine(rules);
    let facade = Facade::new(&Metrics::new(&sentinel));
    let memory = Memory::default();
    let publish = || with_local_recorder(&memory, || facade.publish());
    let told = |series: &str| memory.0.lock().unwrap().get(series).copied();
    let running = run(&sentinel, Call::new("/a").origin(MARKER));
    clock.advance(ms(250));
    drop(running);
    drop(run(&sentinel, Call::new("/a")));
    drop(sentinel.try_enter(Call::new("/a").batch(3)));
    drop(run(&sentinel, Call::new(MARKER).param(MARKER)));
    assert!(publish() > 40);
    let own = "resource=\"/a\",direction=\"inbound\"";
    for (series, figure) in [
        (format!("sentinel_completed_total{{{own}}}"), 2.0),
        (
            format!("sentinel_blocked_total{{{own},reason=\"flow\"}}"),
            3.0,
        ),
        (
            format!("sentinel_call_duration_seconds_count{{{own}}}"),
            2.0,
        ),
        (format!("sentinel_call_duration_seconds_sum{{{own}}}"), 0.25),
        (
            format!("sentinel_breaker_state{{{own},rule=\"nine\",state=\"closed\"}}"),
            1.0,
        ),
        ("sentinel_engine_completed_total{}".to_owned(), 3.0),
        (
            "sentinel_rule_limit{rule=\"two\",kind=\"flow\",resource=\"/a\"}".to_owned(),
            2.0,
        ),
    ] {
        assert_eq!(told(&series), Some(figure), "{series}");
    }
    assert!(
        memory
            .0
            .lock()
            .unwrap()
            .keys()
            .all(|series| !series.contains(MARKER))
    );
    // A gauge of a rule that has gone becomes 0, once.
    sentinel.reload(Rules::new());
    publish();
    let gone = "sentinel_rule_limit{rule=\"two\",kind=\"flow\",resource=\"/a\"}";
    assert_eq!(told(gone), Some(0.0));
    memory.0.lock().unwrap().clear();
    publish();
    assert_eq!(told(gone), None);
}

#[test]
fn a_facade_without_a_recorder_harms_nobody_and_its_thread_ends() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/a", 2));
    let facade = Facade::new(&Metrics::new(&sentinel));
    assert!(facade.publish() > 20);
    facade.spawn(ms(3_600_000)).unwrap().stop();
}
