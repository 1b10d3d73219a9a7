//! The figures of engines for the recorder of the crate `metrics`.
//!
//! A program that already has a recorder, for StatsD or a push gateway, gets the figures there too.
//! A program that exports only to Prometheus does not need this: see [`super::Metrics`].
//!
//! Figures go to the recorder of `metrics` 0.24. A recorder that was installed with another minor
//! version of the crate receives nothing, and no error is reported. `cargo tree -d` shows whether a
//! program has two versions.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, SharedString, with_recorder};

use super::family::{Family, FamilyKind, Sample, Value};
use super::metrics::Metrics;
use crate::base::panics::catch_panic;
use crate::base::sync::Lock;
use crate::base::thread::{PeriodicThread, ThreadHandle};

/// The maximum number of absent series whose last figures are kept. It bounds the memory for series
/// that do not come back.
const MOST_ABSENT: usize = 10_000;

/// Passes figures on to the recorder that the program has installed.
///
/// Counters have the names of their samples, with `_total`. Times are published as their number
/// (`_count`, a counter) and their sum (`_sum`, a gauge, in seconds), without the counts by range.
/// A gauge whose series is gone is set to 0 once.
///
/// Totals, which are the counters and the sums, are passed on as increments: the growth of each
/// since the last publication. If a rule is removed and comes back, its count restarts at 0, and
/// the recorder's total continues to grow. Install the recorder before the first publication,
/// because earlier increments are not repeated. Use one facade per recorder: two facades would
/// count everything twice. The last figures of up to 10 000 absent series are kept.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::observe::Metrics;
/// use tower_sentinel::observe::facade::Facade;
/// use tower_sentinel::{FlowRule, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
/// let facade = Facade::new(&Metrics::new(&sentinel));
/// // Publish by hand, which returns the number of series, or on a thread.
/// assert!(facade.publish() > 20);
/// let thread = facade.spawn(Duration::from_secs(10))?;
/// thread.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a facade does nothing unless it publishes"]
pub struct Facade {
    metrics: Metrics,
    published: Lock<PublishedFigures>,
}

/// The figures of the last publication.
#[derive(Debug, Default)]
struct PublishedFigures {
    /// The number of publications.
    round: u64,
    /// The gauges that the last publication had, to set those that are gone to 0.
    gauges: HashMap<Key, ()>,
    totals: HashMap<Key, PublishedTotal>,
}

/// The last published total of a series.
#[derive(Debug, Default)]
struct PublishedTotal {
    count: u64,
    /// The sum of durations, in seconds; 0 for a counter.
    sum: f64,
    /// The last publication that had a sample of the series.
    round: u64,
    /// The [id of the resource](Sample::resource_id) of the sample.
    resource_id: u64,
}

/// The rules with series in a publication.
#[derive(Default)]
struct PresentRules {
    /// The rules, each with the name of its engine.
    rules: HashSet<[Option<String>; 2]>,
    /// The engines that have left rules out: their rules can be absent and still exist.
    partial: HashSet<Option<String>>,
}

/// The target, level and module with which series are registered.
const METADATA: Metadata<'static> =
    Metadata::new("tower_sentinel", Level::INFO, Some("tower_sentinel"));

impl Facade {
    /// Creates a facade that publishes the figures of `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            published: Lock::default(),
        }
    }

    /// Passes the current figures on to the recorder, if one is installed. Returns the number of
    /// series.
    pub fn publish(&self) -> usize {
        // Locked for the whole publication: if two publications overlapped, the older figures would
        // look like counts that have restarted.
        let published = &mut *self.published.lock();
        let (mut series, mut present) = (0, PresentRules::default());
        let before = std::mem::take(&mut published.gauges);
        published.round += 1;
        for family in self.metrics.families() {
            describe(&family);
            for sample in family.samples() {
                series += 1;
                present.note(&family, sample);
                published.publish(&family, sample);
            }
        }
        published.forget(&present);
        for (gone, ()) in before {
            if !published.gauges.contains_key(&gone) {
                set_gauge(&gone, 0.0);
            }
        }
        series
    }

    /// Publishes on a dedicated thread, at once and then at intervals of `every` (at least 10 ms),
    /// until the handle is dropped. A forked process does not have the thread.
    ///
    /// # Errors
    ///
    /// If the operating system cannot create the thread.
    pub fn spawn(self, every: Duration) -> io::Result<ThreadHandle> {
        let thread = PeriodicThread::spawn("sentinel-metrics", every, move || {
            // If the recorder panics, only the figures of this publication are lost.
            let _ = catch_panic(|| self.publish());
        })?;
        Ok(ThreadHandle::new(thread))
    }
}

/// Registers the description of each series of `family` with the recorder.
fn describe(family: &Family) {
    let (name, help) = (family.name(), SharedString::const_str(family.help()));
    with_recorder(|recorder| match family.kind() {
        FamilyKind::Counter => {
            recorder.describe_counter(format!("{name}_total").into(), None, help);
        }
        FamilyKind::Gauge => recorder.describe_gauge(name.into(), None, help),
        FamilyKind::Histogram | FamilyKind::Summary => {
            recorder.describe_counter(format!("{name}_count").into(), None, help.clone());
            recorder.describe_gauge(format!("{name}_sum").into(), None, help);
        }
    });
}

impl PublishedFigures {
    /// Passes a sample on to the recorder: the growth of a total, or the figure of a gauge.
    fn publish(&mut self, family: &Family, sample: &Sample) {
        let labels: Vec<_> = sample
            .labels()
            .map(|(name, text)| Label::new(name, text.to_owned()))
            .collect();
        let key = |suffix: &str| {
            let name = format!("{}{suffix}", family.name());
            Key::from_parts(name, labels.clone())
        };
        match (sample.value(), family.kind()) {
            (Value::Count(count), FamilyKind::Counter) => {
                let key = key("_total");
                let (more, _) = self.grown(&key, sample.resource_id(), *count, 0.0);
                add_to_counter(&key, more);
            }
            (Value::Times { sum, count, .. }, _) => {
                let (counter, gauge) = (key("_count"), key("_sum"));
                let (more, longer) = self.grown(&counter, sample.resource_id(), *count, *sum);
                add_to_counter(&counter, more);
                add_to_gauge(&gauge, longer);
            }
            (value, _) => {
                let key = key("");
                set_gauge(&key, value.as_f64());
                self.gauges.insert(key, ());
            }
        }
    }

    /// Returns the growth of a series since the last publication; its whole total if it is new or
    /// has restarted.
    fn grown(&mut self, key: &Key, resource_id: u64, count: u64, sum: f64) -> (u64, f64) {
        let now = PublishedTotal {
            count,
            sum,
            round: self.round,
            resource_id,
        };
        let Some(last) = self.totals.get_mut(key) else {
            self.totals.insert(key.clone(), now);
            return (count, sum);
        };
        let last = std::mem::replace(last, now);
        if resource_id != last.resource_id || count < last.count || sum < last.sum {
            return (count, sum);
        }
        (count - last.count, sum - last.sum)
    }

    /// Forgets the series of removed rules and, if too many series are absent, the series that have
    /// been absent for longest. Other absent series are only left out of the export: their counts
    /// continue to grow, and the last total is needed when they are back.
    fn forget(&mut self, present: &PresentRules) {
        let round = self.round;
        self.totals
            .retain(|key, total| total.round == round || !present.lacks_rule_of(key));
        let rounds = self.totals.values().map(|total| total.round);
        let mut absent: Vec<_> = rounds.filter(|last| *last < round).collect();
        if absent.len() > MOST_ABSENT {
            absent.sort_unstable();
            let oldest = absent[absent.len() - MOST_ABSENT];
            self.totals.retain(|_, total| total.round >= oldest);
        }
    }
}

impl PresentRules {
    /// Notes the rule of a sample, and whether its engine has left rules out.
    fn note(&mut self, family: &Family, sample: &Sample) {
        let text = |name| {
            let mut labels = sample.labels();
            labels.find_map(|(label, text)| (label == name).then(|| text.to_owned()))
        };
        if let rule @ Some(_) = text("rule") {
            self.rules.insert([text("engine"), rule]);
        }
        if family.is_rules_left_out() && sample.value().as_f64() > 0.0 {
            self.partial.insert(text("engine"));
        }
    }

    /// Returns whether the series is of a rule that was certainly removed.
    fn lacks_rule_of(&self, key: &Key) -> bool {
        let text = |name| {
            let mut labels = key.labels();
            labels.find_map(|label| (label.key() == name).then(|| label.value().to_owned()))
        };
        let (engine, rule) = (text("engine"), text("rule"));
        rule.is_some() && !self.partial.contains(&engine) && !self.rules.contains(&[engine, rule])
    }
}

fn add_to_counter(key: &Key, more: u64) {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA).increment(more));
}

fn add_to_gauge(key: &Key, more: f64) {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA).increment(more));
}

fn set_gauge(key: &Key, figure: f64) {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA).set(figure));
}

impl fmt::Debug for Facade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facade").finish_non_exhaustive()
    }
}
