//! What readers get: totals, and what one bucket counted.

use std::time::Duration;

use crate::clock::Tick;

/// Counts that only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub(crate) pass: u64,
    pub(crate) block: u64,
    pub(crate) complete: u64,
    pub(crate) error: u64,
    pub(crate) cancelled: u64,
    pub(crate) occupied: u64,
    pub(crate) calls: u64,
    pub(crate) panicked: u64,
    pub(crate) rt_us: u64,
    pub(crate) waits: u64,
    pub(crate) waited_us: u64,
    pub(crate) waiting_dropped: u64,
}

/// What one bucket counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBucket {
    pub(crate) start: Tick,
    pub(crate) pass: u64,
    pub(crate) block: u64,
    pub(crate) complete: u64,
    pub(crate) error: u64,
    pub(crate) cancelled: u64,
    pub(crate) occupied: u64,
    pub(crate) calls: u64,
    pub(crate) rt_us: u64,
    pub(crate) min_rt_us: Option<u32>,
    pub(crate) max_concurrency: u32,
}

// === impl Totals ===

macro_rules! figures {
    ($type:ty { $($(#[$doc:meta])* $name:ident: $kind:ty),+ $(,)? }) => {
        impl $type {
            $($(#[$doc])*
            #[must_use]
            pub const fn $name(&self) -> $kind {
                self.$name
            })+
        }
    };
}

figures!(Totals {
    /// Calls that passed, by weight.
    pass: u64,
    /// Calls that were refused, by weight.
    block: u64,
    /// Calls that delivered a response or an error, by weight.
    complete: u64,
    /// Those of them that failed, by weight.
    error: u64,
    /// Weight that passed and delivered nothing.
    cancelled: u64,
    /// Weight that passed in a place borrowed from a later bucket.
    occupied: u64,
    /// Calls that delivered a response or an error, each counted as one.
    calls: u64,
    /// Those of them that ended in a panic.
    panicked: u64,
    /// Calls that waited and then started.
    waits: u64,
    /// Calls that were dropped while they waited.
    waiting_dropped: u64,
});

impl Totals {
    /// The response times of all calls together.
    #[must_use]
    pub const fn rt(&self) -> Duration {
        Duration::from_micros(self.rt_us)
    }

    /// The time that calls waited before they started, together.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us)
    }

    /// Adds what another node counted.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.pass, other.pass),
            (&mut self.block, other.block),
            (&mut self.complete, other.complete),
            (&mut self.error, other.error),
            (&mut self.cancelled, other.cancelled),
            (&mut self.occupied, other.occupied),
            (&mut self.calls, other.calls),
            (&mut self.panicked, other.panicked),
            (&mut self.rt_us, other.rt_us),
            (&mut self.waits, other.waits),
            (&mut self.waited_us, other.waited_us),
            (&mut self.waiting_dropped, other.waiting_dropped),
        ] {
            *mine = mine.wrapping_add(theirs);
        }
    }
}

// === impl NodeBucket ===

figures!(NodeBucket {
    /// When the bucket begins.
    start: Tick,
    /// Calls that passed, by weight.
    pass: u64,
    /// Calls that were refused, by weight.
    block: u64,
    /// Calls that delivered a response or an error, by weight.
    complete: u64,
    /// Those of them that failed, by weight.
    error: u64,
    /// Weight that passed and delivered nothing; not kept for whole seconds.
    cancelled: u64,
    /// Weight that passed in a borrowed place; kept for whole seconds only.
    occupied: u64,
    /// Calls that delivered a response or an error, each counted as one.
    calls: u64,
    /// The largest concurrency that a call found; not kept for whole seconds.
    max_concurrency: u32,
});

impl NodeBucket {
    /// Adds what another bucket counted; the start stays the earlier one that
    /// counted anything.
    pub(crate) fn merge(&mut self, other: &Self) {
        if *self == Self::default() {
            *self = *other;
            return;
        }
        for (mine, theirs) in [
            (&mut self.pass, other.pass),
            (&mut self.block, other.block),
            (&mut self.complete, other.complete),
            (&mut self.error, other.error),
            (&mut self.cancelled, other.cancelled),
            (&mut self.occupied, other.occupied),
            (&mut self.calls, other.calls),
            (&mut self.rt_us, other.rt_us),
        ] {
            *mine = mine.wrapping_add(theirs);
        }
        self.min_rt_us = match (self.min_rt_us, other.min_rt_us) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.max_concurrency = self.max_concurrency.max(other.max_concurrency);
    }

    /// The response times of the bucket's calls together.
    #[must_use]
    pub const fn rt(&self) -> Duration {
        Duration::from_micros(self.rt_us)
    }

    /// The average response time; `None` if no call ended.
    #[must_use]
    pub fn average_rt(&self) -> Option<Duration> {
        (self.calls > 0).then(|| Duration::from_nanos(self.rt_us * 1_000 / self.calls))
    }

    /// The smallest response time; `None` if no call ended. Not kept for whole
    /// seconds.
    #[must_use]
    pub fn min_rt(&self) -> Option<Duration> {
        self.min_rt_us.map(|us| Duration::from_micros(us.into()))
    }
}
