//! Families of samples: the figures that all exports are written from.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::small_vec::SmallVec;
use crate::stat::Histogram;

/// The kind of the samples of a [`Family`].
///
/// ```
/// use tower_sentinel::observe::FamilyKind;
///
/// assert_eq!(FamilyKind::Counter.as_str(), "counter");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FamilyKind {
    /// A total that only grows.
    Counter,
    /// A figure that can rise and fall.
    Gauge,
    /// The number of durations in each range, with the sum and the number of all durations.
    Histogram,
    /// The sum and the number of durations.
    Summary,
}

/// The number of samples in a part. A single list of 30 000 samples would hold a worker for more
/// than a millisecond when it is moved as it grows, or when it is freed.
const PART: usize = 256;

/// Samples of one name, kind and unit.
///
/// ```
/// use tower_sentinel::observe::{FamilyKind, Metrics};
/// use tower_sentinel::{Rules, Sentinel};
///
/// let families = Metrics::new(&Sentinel::new(Rules::new())).families();
/// let interval = families.iter().find(|it| it.name() == "sentinel_rule_interval_seconds");
/// let interval = interval.expect("it is always there");
/// assert_eq!((interval.kind(), interval.unit()), (FamilyKind::Gauge, Some("seconds")));
/// assert!(interval.samples().is_empty(), "there are no rules");
/// ```
#[derive(Clone, Debug)]
pub struct Family {
    spec: &'static FamilySpec,
    /// Differs from `spec.kind` only for durations with ranges, which are a histogram.
    kind: FamilyKind,
    samples: Vec<Sample>,
    /// The samples that come before those in `samples`, in parts of `PART`. Empty once the family
    /// is [whole](Self::into_whole).
    parts: Vec<Vec<Sample>>,
}

/// One figure, or the durations of one kind, with its labels.
///
/// ```
/// use tower_sentinel::observe::Metrics;
/// use tower_sentinel::{FlowRule, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5).id("five"));
/// let families = Metrics::new(&sentinel).families();
/// let limits = families.iter().find(|it| it.name() == "sentinel_rule_limit");
/// let sample = &limits.expect("it is always there").samples()[0];
/// assert_eq!(sample.labels().next(), Some(("rule", "five")));
/// assert_eq!(sample.value().as_f64(), 5.0);
/// ```
#[derive(Clone, Debug)]
pub struct Sample {
    labels: Labels,
    value: Value,
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "the facade reads it")
    )]
    resource_id: u64,
}

/// The value of a [`Sample`].
///
/// ```
/// use tower_sentinel::observe::Value;
///
/// assert_eq!(Value::Count(3).as_f64(), 3.0);
/// assert_eq!(Value::Figure(0.5).as_f64(), 0.5);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A whole number, of a counter or a gauge.
    Count(u64),
    /// Any other number, of a gauge.
    Figure(f64),
    /// Durations.
    #[non_exhaustive]
    Times {
        /// The sum of all durations, in seconds.
        sum: f64,
        /// The number of durations.
        count: u64,
        /// The durations by ranges, if the engine [counts these](crate::Builder::histograms).
        histogram: Option<Histogram>,
    },
}

/// The labels of a sample, stored in the sample itself. Many thousand small lists on the heap would
/// be freed one by one, and an allocator can then hold a thread while it goes through all of them.
pub(super) type Labels = SmallVec<(&'static str, Text), 4>;

/// The text of a label.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

/// The constant part of a family, which all engines share.
#[derive(Debug)]
pub(super) struct FamilySpec {
    pub(super) name: &'static str,
    pub(super) kind: FamilyKind,
    pub(super) unit: Option<&'static str>,
    pub(super) help: &'static str,
}

/// All families, in the order in which they are written: `Id: Kind "unit" "name" "help"`.
macro_rules! families {
    ($($id:ident: $kind:ident $unit:literal $name:literal $help:literal;)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Id { $($id),* }

        const SPECS: &[FamilySpec] = &[$(FamilySpec {
            name: $name,
            kind: FamilyKind::$kind,
            unit: if $unit.is_empty() { None } else { Some($unit) },
            help: $help,
        }),*];
    };
}

families! {
    Completed: Counter "" "sentinel_completed"
        "Calls that delivered a response or an error, by weight.";
    Failed: Counter "" "sentinel_failed"
        "Calls that failed, by weight; they are among the completed ones.";
    Cancelled: Counter "" "sentinel_cancelled"
        "Weight of the calls that were let in and delivered nothing.";
    Panicked: Counter "" "sentinel_panicked"
        "Calls that ended in a panic; they are among the completed ones.";
    Blocked: Counter "" "sentinel_blocked"
        "Calls that were refused, by weight, and by the kind of rule that refused them.";
    CallDuration: Summary "seconds" "sentinel_call_duration_seconds"
        "Time from the start of a call to its response or error, at most a minute each.";
    WaitDuration: Summary "seconds" "sentinel_wait_duration_seconds"
        "Time that calls waited before they started.";
    WaitsDropped: Counter "" "sentinel_waits_dropped"
        "Calls that were dropped while they waited.";
    Borrowed: Counter "" "sentinel_borrowed"
        "Weight of the calls that started with tokens borrowed from a later window.";
    ActiveCalls: Gauge "" "sentinel_active_calls"
        "Calls in flight.";
    WaitingCalls: Gauge "" "sentinel_waiting_calls"
        "Calls that wait for their turn, a coming window or a slot.";
    CallsLimit: Gauge "" "sentinel_calls_limit"
        "Calls in a second that the flow rules allow which count all calls of the resource.";
    SlotsUsed: Gauge "" "sentinel_slots_used"
        "Concurrency slots in use, where a rule limits calls at once.";
    SlotsLimit: Gauge "" "sentinel_slots_limit"
        "Concurrency slots that there are, by an isolation or adaptive rule.";
    Shedding: Gauge "" "sentinel_shedding"
        "How many classes of calls are shut by an adaptive rule, from the least important one.";
    CriticalityBound: Gauge "" "sentinel_criticality_bound"
        "Calls in flight up to which an adaptive rule admits one of a class.";
    CriticalityAdmitted: Counter "" "sentinel_criticality_admitted"
        "Calls of a class that an adaptive rule has admitted, by weight.";
    CriticalityBlocked: Counter "" "sentinel_criticality_blocked"
        "Calls of a class that an adaptive rule has refused, by weight.";
    BreakerState: Gauge "" "sentinel_breaker_state"
        "1 for the state that a circuit breaker is in, 0 for the others.";
    BreakerTransitions: Counter "" "sentinel_breaker_transitions"
        "How often a circuit breaker has entered a state.";
    KeysOverflowed: Counter "" "sentinel_keys_overflowed"
        "Calls judged on the quota that all values without a place of their own share.";
    KeysMissing: Counter "" "sentinel_keys_missing"
        "Calls that reached a rule by a parameter or an origin without one.";
    KeysReset: Counter "" "sentinel_keys_reset"
        "Values that were given their whole quota back by hand.";
    KeysBlocked: Counter "" "sentinel_keys_blocked"
        "How often values exceeded their limit and were blocked, by a rule that blocks them.";
    CostCharged: Counter "" "sentinel_cost_charged"
        "What a rule on costs has charged, in its unit.";
    CostReservedTotal: Counter "" "sentinel_cost_reservations"
        "What calls have reserved of a rule on costs, in its unit.";
    CostReserved: Gauge "" "sentinel_cost_reserved"
        "What running calls have reserved of a rule on costs and were not charged yet, in its unit.";
    CostOver: Counter "" "sentinel_cost_over"
        "What was charged beyond the limit of a rule on costs, in its unit.";
    CostUntold: Counter "" "sentinel_cost_untold"
        "Calls that told a rule on costs nothing, and were charged what they had reserved.";
    RuleLimit: Gauge "" "sentinel_rule_limit"
        "The limit of a rule, as it is configured.";
    RuleInterval: Gauge "seconds" "sentinel_rule_interval_seconds"
        "The time that the limit of a rule is for.";
    RuleBlocked: Counter "" "sentinel_rule_blocked"
        "Calls that a rule has refused, by weight.";
    ShadowBlocked: Counter "" "sentinel_shadow_blocked"
        "Calls that a rule in shadow mode would have refused, by weight.";
    EngineCompleted: Counter "" "sentinel_engine_completed"
        "Calls to all resources that delivered a response or an error, by weight.";
    EngineFailed: Counter "" "sentinel_engine_failed"
        "Calls to all resources that failed, by weight.";
    EngineCancelled: Counter "" "sentinel_engine_cancelled"
        "Weight of the calls to all resources that were let in and delivered nothing.";
    EnginePanicked: Counter "" "sentinel_engine_panicked"
        "Calls to all resources that ended in a panic.";
    EngineBlocked: Counter "" "sentinel_engine_blocked"
        "Calls to all resources that were refused, by weight, and by the kind of rule.";
    Resources: Gauge "" "sentinel_resources"
        "Resources that are counted apart.";
    ResourcesListed: Gauge "" "sentinel_resources_listed"
        "Resources that have series of their own here.";
    ResourcesLeftOut: Gauge "" "sentinel_resources_left_out"
        "Resources without series of their own, as there are too many; names that callers can make up apart.";
    Origins: Gauge "" "sentinel_origins"
        "Origins and contexts that have a place of their own.";
    Evicted: Counter "" "sentinel_evicted"
        "Resources, origins and contexts that were evicted for new ones.";
    Overflowed: Counter "" "sentinel_overflowed"
        "How often a call found no place for its resource, origin or context.";
    HookPanics: Counter "" "sentinel_hook_panics"
        "Notifications of hooks that ended in a panic.";
    Rules: Gauge "" "sentinel_rules"
        "Rules in force, by kind; those in shadow mode are one of their own.";
    RulesLeftOut: Gauge "" "sentinel_rules_left_out"
        "Rules without series of their own, as there are too many.";
    RulesReloads: Counter "" "sentinel_rules_reloads"
        "How often the rules were replaced by others.";
    RulesLastReload: Gauge "seconds" "sentinel_rules_last_reload_timestamp_seconds"
        "When the rules in force came into force, in seconds since 1970.";
    RuleSourceUp: Gauge "" "sentinel_rule_source_up"
        "0 while the rules cannot be read from their source, else 1.";
    SystemLoad: Gauge "" "sentinel_system_load"
        "Load of the machine, as it was read last.";
    SystemCpu: Gauge "ratio" "sentinel_system_cpu_ratio"
        "Share of the CPU in use, as it was read last.";
    SystemMemory: Gauge "bytes" "sentinel_system_memory_bytes"
        "Memory in use and memory that may be used, as it was read last.";
    SystemLimit: Gauge "" "sentinel_system_limit"
        "The tightest limit of each kind of all system rules.";
    StoreUp: Gauge "" "sentinel_store_up"
        "1 while the store of shared rules answers, else 0.";
    StoreNodes: Gauge "" "sentinel_store_nodes"
        "Processes that use the store, or the number set if that is larger.";
    StoreTrip: Gauge "seconds" "sentinel_store_trip_seconds"
        "How long a request to the store takes, as a mean of the last ones.";
    StoreDraws: Counter "" "sentinel_store_draws"
        "Draws of permits that were sent to the store.";
    StoreErrors: Counter "" "sentinel_store_errors"
        "Requests to the store, and draws, that have failed, by the kind of failure.";
    SharedGranted: Counter "" "sentinel_shared_granted"
        "Permits of the store that calls have taken, by weight.";
    SharedWaited: Counter "" "sentinel_shared_waited"
        "Calls that have waited for the store.";
    SharedRefused: Counter "" "sentinel_shared_refused"
        "Calls that a shared rule has refused for want of permits, or of the store.";
    SharedLocal: Counter "" "sentinel_shared_local"
        "Permits that calls have taken without the store, by weight.";
    SharedLost: Counter "" "sentinel_shared_lost"
        "Permits that were drawn and could be neither used nor sent back.";
    SharedReset: Counter "" "sentinel_shared_reset"
        "Keys of a shared rule that this process has given their whole quota back by hand.";
    BuildInfo: Gauge "" "sentinel_build_info"
        "1, with the version of tower-sentinel.";
}

// === impl FamilyKind ===

impl FamilyKind {
    /// Returns its name in Prometheus: `counter`, `gauge`, `histogram` or `summary`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl fmt::Display for FamilyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Family ===

impl Family {
    /// Returns all families, without samples.
    pub(super) fn all() -> Vec<Self> {
        let empty = |spec: &'static FamilySpec| Self {
            spec,
            kind: spec.kind,
            samples: Vec::new(),
            parts: Vec::new(),
        };
        SPECS.iter().map(empty).collect()
    }

    /// Adds a sample. The family becomes a histogram with the first durations by ranges.
    pub(super) fn push(&mut self, labels: Labels, value: Value, resource_id: u64) {
        if matches!(
            &value,
            Value::Times {
                histogram: Some(_),
                ..
            }
        ) {
            self.kind = FamilyKind::Histogram;
        }
        if self.samples.len() == PART {
            let next = Vec::with_capacity(PART);
            self.parts.push(std::mem::replace(&mut self.samples, next));
        }
        self.samples.push(Sample {
            labels,
            value,
            resource_id,
        });
    }

    /// Takes all samples out, in parts.
    pub(super) fn take_parts(&mut self) -> Vec<Vec<Sample>> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.push(std::mem::take(&mut self.samples));
        parts
    }

    /// Moves all samples into one list, which [`samples`](Self::samples) returns.
    pub(super) fn into_whole(mut self) -> Self {
        for part in self.take_parts() {
            self.samples.extend(part);
        }
        self
    }

    /// Returns the name, without the suffixes of samples such as `_total`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.spec.name
    }

    /// Returns the kind of its samples. Durations are a histogram as soon as one engine counts them
    /// by ranges.
    #[must_use]
    pub const fn kind(&self) -> FamilyKind {
        self.kind
    }

    /// Returns the unit, which is also the end of the name; `None` for plain numbers.
    #[must_use]
    pub const fn unit(&self) -> Option<&'static str> {
        self.spec.unit
    }

    /// Returns a description of one sentence, without quotes, backslashes and line ends.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        self.spec.help
    }

    /// Returns whether the samples are the numbers of rules that are left without series.
    #[cfg(feature = "metrics")]
    pub(super) fn is_rules_left_out(&self) -> bool {
        self.spec.name == SPECS[Id::RulesLeftOut as usize].name
    }

    /// Returns the samples. No two samples have the same labels. A figure that is not known has no
    /// sample.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

// === impl Sample ===

impl Sample {
    /// Iterates over the names and the texts of the labels, in their order. Texts are not escaped.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.labels.iter().map(|(name, text)| (*name, &**text))
    }

    /// Returns the id of the resource whose count this is, or 0 for other samples. A resource that
    /// takes the name of an evicted resource has another id, and its counts restart at 0.
    #[cfg(feature = "metrics")]
    pub(super) const fn resource_id(&self) -> u64 {
        self.resource_id
    }

    /// Returns the value.
    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.value
    }
}

// === impl Value ===

impl Value {
    /// Returns the figure; for durations, their sum in seconds.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        match self {
            Self::Count(count) => *count as f64,
            Self::Figure(figure) => *figure,
            Self::Times { sum, .. } => *sum,
        }
    }
}

// === impl Text ===

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<&Arc<str>> for Text {
    fn from(text: &Arc<str>) -> Self {
        Self::Shared(text.clone())
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_units_and_descriptions_fit_both_formats() {
        let mut names = HashSet::new();
        for spec in SPECS {
            let (name, help) = (spec.name, spec.help);
            assert!(names.insert(name), "{name}");
            assert!(name.starts_with("sentinel_") && !name.ends_with("_total"));
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            if let Some(unit) = spec.unit {
                assert!(name.ends_with(&format!("_{unit}")), "{name} in {unit}");
            }
            assert!(
                !help.contains(['\\', '"', '\n']) && help.ends_with('.'),
                "{help}"
            );
            // No sample of another family, with its suffix, has the name of this family.
            for suffix in ["_total", "_sum", "_count", "_bucket", "_created", "_info"] {
                let stem = name.strip_suffix(suffix);
                assert!(stem.is_none_or(|stem| !names.contains(stem)), "{name}");
            }
        }
    }
}
