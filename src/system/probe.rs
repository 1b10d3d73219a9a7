//! The interface of probes: the load, the CPU use and the memory of the machine.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::Lock;

/// A source of load, CPU use and memory.
///
/// A [`Sampler`](super::Sampler) reads load and CPU use about once a second, and memory up to seven
/// times a second if a rule needs it. It never reads the same figure twice at the same time. An
/// implementation may read a few small files, but should not block, because it can run on the path
/// of a request. It must not panic; if it does, the figure is unknown and the call continues.
///
/// # Examples
///
/// ```
/// use tower_sentinel::system::Probe;
///
/// /// Takes its figures from a monitoring agent.
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
    /// Returns the load: the number of threads that run or are ready to run, averaged over the last
    /// minute. It is 0 on an idle machine, and `None` if unknown.
    fn load(&self) -> Option<f64>;

    /// Returns the share of the CPU that is in use, between 0 and 1. `None` if unknown.
    fn cpu(&self) -> Option<f64>;

    /// Returns the used memory and its limit. `None`, the default, means unknown.
    fn memory(&self) -> Option<Memory> {
        None
    }
}

impl<P: Probe + ?Sized> Probe for Arc<P> {
    fn load(&self) -> Option<f64> {
        (**self).load()
    }

    fn cpu(&self) -> Option<f64> {
        (**self).cpu()
    }

    fn memory(&self) -> Option<Memory> {
        (**self).memory()
    }
}

/// The memory that a process uses, and the memory that it may use, in bytes.
///
/// ```
/// use tower_sentinel::system::Memory;
///
/// let memory = Memory::new(96 << 20, 128 << 20).expect("there is a limit");
/// assert_eq!(memory.share(), 0.75);
/// assert_eq!(Memory::new(96 << 20, 0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    used: u64,
    limit: u64,
}

/// The load and the CPU use that a probe has reported. A value that is negative or not a
/// finite number counts as unknown.
///
/// # Examples
///
/// ```
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::system::{ManualProbe, Readings, Sampler};
///
/// let probe = ManualProbe::new();
/// let sampler = Sampler::new(probe.clone());
/// assert_eq!(sampler.readings(), Readings::UNKNOWN);
/// probe.set_load(2.5);
/// probe.set_cpu(0.35);
/// assert_eq!(sampler.sample(Tick::ZERO), Readings::new(Some(2.5), Some(0.35)));
///
/// // Impossible values count as unknown.
/// let readings = Readings::new(Some(-1.0), Some(f64::NAN));
/// assert_eq!((readings.load(), readings.cpu()), (None, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    load: Option<f64>,
    cpu: Option<f64>,
}

/// A probe whose figures are set by the program, for tests.
///
/// Clones share their values. At first all values are unknown. A value that is negative or
/// not a finite number counts as unknown, as in [`Readings`].
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
/// probe.set_cpu(f64::NAN);
/// assert_eq!(probe.cpu(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualProbe(Arc<Lock<(Readings, Option<Memory>)>>);

// === impl Readings ===

impl Readings {
    /// Readings with unknown load and CPU use.
    pub const UNKNOWN: Self = Self {
        load: None,
        cpu: None,
    };

    /// Creates readings from `load` and `cpu`.
    #[must_use]
    pub fn new(load: Option<f64>, cpu: Option<f64>) -> Self {
        let known = |value: &f64| value.is_finite() && *value >= 0.0;
        Self {
            load: load.filter(known),
            cpu: cpu.filter(known),
        }
    }

    /// Returns the load; see [`Probe::load`].
    #[must_use]
    pub const fn load(&self) -> Option<f64> {
        self.load
    }

    /// Returns the share of the CPU in use; see [`Probe::cpu`].
    #[must_use]
    pub const fn cpu(&self) -> Option<f64> {
        self.cpu
    }
}

// === impl Memory ===

impl Memory {
    /// Creates the figures, both in bytes; `None` if the limit is 0.
    #[must_use]
    pub const fn new(used: u64, limit: u64) -> Option<Self> {
        if limit == 0 {
            None
        } else {
            Some(Self { used, limit })
        }
    }

    /// Returns the used memory in bytes.
    #[must_use]
    pub const fn used(self) -> u64 {
        self.used
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub const fn limit(self) -> u64 {
        self.limit
    }

    /// Returns the share of the limit that is used; 1 if all of it is used.
    #[must_use]
    pub fn share(self) -> f64 {
        self.used as f64 / self.limit as f64
    }
}

// === impl ManualProbe ===

impl ManualProbe {
    /// Creates a probe whose figures are all unknown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the load that is reported from now on.
    pub fn set_load(&self, load: impl Into<Option<f64>>) {
        let load = load.into();
        let readings = &mut self.0.lock().0;
        *readings = Readings::new(load, readings.cpu);
    }

    /// Sets the share of the CPU in use that is reported from now on.
    pub fn set_cpu(&self, cpu: impl Into<Option<f64>>) {
        let cpu = cpu.into();
        let readings = &mut self.0.lock().0;
        *readings = Readings::new(readings.load, cpu);
    }

    /// Sets the memory that is reported from now on.
    pub fn set_memory(&self, memory: impl Into<Option<Memory>>) {
        self.0.lock().1 = memory.into();
    }
}

impl Probe for ManualProbe {
    fn load(&self) -> Option<f64> {
        self.0.lock().0.load
    }

    fn cpu(&self) -> Option<f64> {
        self.0.lock().0.cpu
    }

    fn memory(&self) -> Option<Memory> {
        self.0.lock().1
    }
}
