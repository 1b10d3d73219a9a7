//! What the machine says: load and CPU, by a probe of choice.

use std::fmt;
use std::sync::Arc;

use crate::sync::Lock;

/// A source of load and CPU use.
///
/// A [`Sampler`](super::Sampler) asks it about once a second, never twice at
/// once. An implementation may read a few small files, but should not wait: it
/// may run on the path of a request. It must not panic; if it does, the reading
/// is unknown and the call goes on.
///
/// # Examples
///
/// ```
/// use tower_sentinel::system::Probe;
///
/// /// A machine that other programs watch as well.
/// #[derive(Debug)]
/// struct FromAgent;
///
/// impl Probe for FromAgent {
///     fn load(&self) -> Option<f64> {
///         None // not known: limits on the load refuse nothing
///     }
///
///     fn cpu(&self) -> Option<f64> {
///         Some(0.35)
///     }
/// }
///
/// let probe: Box<dyn Probe> = Box::new(FromAgent);
/// assert_eq!(probe.cpu(), Some(0.35));
/// ```
pub trait Probe: fmt::Debug + Send + Sync + 'static {
    /// How many threads run or want to, averaged over the last minute; 0 on an
    /// idle machine. `None`: not known.
    fn load(&self) -> Option<f64>;

    /// The share of the CPU that is in use, between 0 and 1. `None`: not known.
    fn cpu(&self) -> Option<f64>;
}

impl<P: Probe + ?Sized> Probe for Arc<P> {
    fn load(&self) -> Option<f64> {
        (**self).load()
    }

    fn cpu(&self) -> Option<f64> {
        (**self).cpu()
    }
}

/// What a probe said. A value that is negative or not a finite number is not
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    load: Option<f64>,
    cpu: Option<f64>,
}

/// A probe that says what it is told; for tests.
///
/// Clones share their values. At first nothing is known.
///
/// # Examples
///
/// ```
/// use tower_sentinel::system::{ManualProbe, Probe};
///
/// let probe = ManualProbe::new();
/// assert_eq!(probe.load(), None);
/// probe.set_load(2.5);
/// assert_eq!(probe.clone().load(), Some(2.5));
/// probe.set_load(None);
/// assert_eq!(probe.load(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualProbe(Arc<Lock<Readings>>);

// === impl Readings ===

impl Readings {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        load: None,
        cpu: None,
    };

    /// The readings `load` and `cpu`.
    #[must_use]
    pub fn new(load: Option<f64>, cpu: Option<f64>) -> Self {
        let known = |value: &f64| value.is_finite() && *value >= 0.0;
        Self {
            load: load.filter(known),
            cpu: cpu.filter(known),
        }
    }

    /// The load; see [`Probe::load`].
    #[must_use]
    pub const fn load(&self) -> Option<f64> {
        self.load
    }

    /// The share of the CPU in use; see [`Probe::cpu`].
    #[must_use]
    pub const fn cpu(&self) -> Option<f64> {
        self.cpu
    }
}

// === impl ManualProbe ===

impl ManualProbe {
    /// A probe that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the load is said to be from now on.
    pub fn set_load(&self, load: impl Into<Option<f64>>) {
        self.0.lock().load = load.into();
    }

    /// What the share of the CPU in use is said to be from now on.
    pub fn set_cpu(&self, cpu: impl Into<Option<f64>>) {
        self.0.lock().cpu = cpu.into();
    }
}

impl Probe for ManualProbe {
    fn load(&self) -> Option<f64> {
        self.0.lock().load
    }

    fn cpu(&self) -> Option<f64> {
        self.0.lock().cpu
    }
}
