//! The figures of engines for the recorder of the crate `metrics`.
//!
//! Whoever has such a recorder already, for StatsD or for a push gateway, gets the figures there,
//! too. A program whose only goal is Prometheus needs none of it: see [`super::Metrics`].
//!
//! Figures go to the recorder of `metrics` 0.24: a program that installs one of another minor sees
//! nothing, without an error. `cargo tree -d` shows whether there are two.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, SharedString, with_recorder};

use super::family::{Family, FamilyKind, Sample, Value};
use super::metrics::Metrics;
use crate::base::panics::catch_panic;
use crate::base::sync::Lock;
use crate::base::thread::{PeriodicThread, ThreadHandle};

/// Passes figures on to the recorder that the program has installed.
///
/// Counters have the names of their samples, with `_total`. Of times the number (`_count`, a
/// counter) and the sum (`_sum`, a gauge, in seconds) are told, without ranges. A gauge whose
/// series has gone becomes 0 once; counters stay as they are.
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
/// // Now and then by hand, which tells how many series there were, or by a thread.
/// assert!(facade.publish() > 20);
/// let thread = facade.spawn(Duration::from_secs(10))?;
/// thread.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a facade does nothing unless it publishes"]
pub struct Facade {
    metrics: Metrics,
    /// The gauges that were told last.
    gauges: Lock<HashMap<Key, ()>>,
}

const METADATA: Metadata<'static> =
    Metadata::new("tower_sentinel", Level::INFO, Some("tower_sentinel"));

impl Facade {
    /// Creates a facade of what `metrics` tells.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            gauges: Lock::default(),
        }
    }

    /// Passes the present figures on. Returns how many series there were. Without a recorder
    /// nothing else happens.
    pub fn publish(&self) -> usize {
        let (mut series, mut gauges) = (0, HashMap::new());
        for family in self.metrics.families() {
            describe(&family);
            for sample in family.samples() {
                series += 1;
                publish(&family, sample, &mut gauges);
            }
        }
        let before = std::mem::replace(&mut *self.gauges.lock(), gauges.clone());
        for (gone, ()) in before {
            if !gauges.contains_key(&gone) {
                set_gauge(&gone, 0.0);
            }
        }
        series
    }

    /// Publishes on a thread of its own, at once and then at intervals of `every` (at least 10 ms),
    /// until the handle is dropped. A process that forks from this one has no such thread.
    ///
    /// # Errors
    ///
    /// If the operating system cannot create the thread.
    pub fn spawn(self, every: Duration) -> io::Result<ThreadHandle> {
        let thread = PeriodicThread::spawn("sentinel-metrics", every, move || {
            // A recorder that panics loses these figures, and nothing else.
            let _ = catch_panic(|| self.publish());
        })?;
        Ok(ThreadHandle::new(thread))
    }
}

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

fn publish(family: &Family, sample: &Sample, gauges: &mut HashMap<Key, ()>) {
    let labels: Vec<_> = sample
        .labels()
        .map(|(name, text)| Label::new(name, text.to_owned()))
        .collect();
    let key = |suffix: &str| {
        let name = format!("{}{suffix}", family.name());
        Key::from_parts(name, labels.clone())
    };
    let mut gauge = |key: Key, figure: f64| {
        set_gauge(&key, figure);
        gauges.insert(key, ());
    };
    match (sample.value(), family.kind()) {
        (Value::Count(count), FamilyKind::Counter) => set_counter(&key("_total"), *count),
        (Value::Times { sum, count, .. }, _) => {
            set_counter(&key("_count"), *count);
            gauge(key("_sum"), *sum);
        }
        (value, _) => gauge(key(""), value.as_f64()),
    }
}

fn set_counter(key: &Key, count: u64) {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA).absolute(count));
}

fn set_gauge(key: &Key, figure: f64) {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA).set(figure));
}

impl fmt::Debug for Facade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facade").finish_non_exhaustive()
    }
}
