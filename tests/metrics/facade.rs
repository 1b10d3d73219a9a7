//! The same figures for the recorder of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit, with_local_recorder,
};
use tower_sentinel::observe::Metrics;
use tower_sentinel::observe::facade::Facade;
use tower_sentinel::{Call, CircuitBreakerRule, FlowRule, Rules, Sentinel};

use crate::support::{engine, ms, run};

/// Remembers the total of each series that grows, and the last figure of others.
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

    fn add(&self, more: f64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += more;
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("it stands still where a count begins anew");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        assert!(value >= 0.0, "a total never falls");
        self.add(value);
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
fn a_total_grows_on_where_its_count_begins_anew() {
    let rules = || Rules::new().with(FlowRule::per_second("/a", 2).id("two"));
    let (sentinel, _clock) = engine(rules());
    let facade = Facade::new(&Metrics::new(&sentinel));
    let memory = Memory::default();
    let publish = || with_local_recorder(&memory, || facade.publish());
    let refuse = |weight| drop(sentinel.try_enter(Call::new("/a").batch(weight)));
    let told = |labels: &str| {
        let memory = memory.0.lock().unwrap();
        memory[&format!("sentinel_rule_blocked_total{{{labels}}}")]
    };
    let rule = "rule=\"two\",kind=\"flow\"";
    refuse(11);
    publish();
    publish();
    assert_eq!(told(rule), 11.0);
    // The count falls between two publications.
    sentinel.reload(Rules::new());
    sentinel.reload(rules());
    refuse(10);
    publish();
    assert_eq!(told(rule), 21.0);
    // The rule is away for one of them, and counts beyond where it was.
    sentinel.reload(Rules::new());
    publish();
    sentinel.reload(rules());
    refuse(30);
    publish();
    assert_eq!(told(rule), 51.0);
    // One that stays counts through a reload.
    sentinel.reload(rules().with(FlowRule::per_second("/b", 2)));
    refuse(3);
    publish();
    assert_eq!(told(rule), 54.0);
}

#[test]
fn a_series_that_was_left_out_goes_up_by_what_it_has_counted_meanwhile() {
    let own = FlowRule::per_second("/a", 2).id("two");
    let other = FlowRule::per_second("/b", 2).id("other");
    let (sentinel, _clock) = engine(Rules::new().with(own.clone()));
    let facade = Facade::new(&Metrics::new(&sentinel).max_rules(1));
    let memory = Memory::default();
    let publish = || with_local_recorder(&memory, || facade.publish());
    let refuse = |weight| drop(sentinel.try_enter(Call::new("/a").batch(weight)));
    refuse(11);
    publish();
    sentinel.reload(Rules::new().with(other).with(own.clone()));
    refuse(4);
    publish();
    sentinel.reload(Rules::new().with(own));
    publish();
    let memory = memory.0.lock().unwrap();
    let told = memory["sentinel_rule_blocked_total{rule=\"two\",kind=\"flow\"}"];
    assert_eq!(told, 15.0);
}

#[test]
fn a_resource_that_was_evicted_adds_to_its_total() {
    let rules = || Rules::new().with(FlowRule::per_second("/a", 99));
    let sentinel = Sentinel::builder()
        .rules(rules())
        .max_resources(1)
        .idle_after(ms(0))
        .build();
    let facade = Facade::new(&Metrics::new(&sentinel));
    let memory = Memory::default();
    let publish = || with_local_recorder(&memory, || facade.publish());
    let call = |name| drop(run(&sentinel, Call::new(name)));
    call("/a");
    call("/a");
    publish();
    // Only a resource that no rule names can be evicted.
    sentinel.reload(Rules::new());
    publish();
    call("/b");
    sentinel.reload(rules());
    for _ in 0..3 {
        call("/a");
    }
    assert!(sentinel.snapshot().evicted() > 0);
    publish();
    let memory = memory.0.lock().unwrap();
    let own = "resource=\"/a\",direction=\"inbound\"";
    for name in ["completed_total", "call_duration_seconds_count"] {
        assert_eq!(memory[&format!("sentinel_{name}{{{own}}}")], 5.0, "{name}");
    }
}

#[test]
fn a_facade_without_a_recorder_harms_nobody_and_its_thread_ends() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/a", 2));
    let facade = Facade::new(&Metrics::new(&sentinel));
    assert!(facade.publish() > 20);
    facade.spawn(ms(3_600_000)).unwrap().stop();
}
