//! The bounds and counts of an adaptive rule for each class of calls.

use crate::adaptive::Limiter;
use crate::call::Criticality;

/// The bounds up to which an [adaptive rule](crate::AdaptiveRule) of a resource admits each class
/// of calls, and how many calls it has admitted and refused.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{AdaptiveRule, Call, Criticality, Sentinel};
///
/// let sentinel = Sentinel::new(AdaptiveRule::new("/search"));
/// drop(sentinel.try_enter(Call::new("/search").criticality(Criticality::Sheddable)));
/// let shedding = sentinel.node("/search").unwrap().shedding().unwrap();
/// assert!(shedding.shut().is_empty(), "there is no overload");
/// assert_eq!(shedding.admitted(Criticality::Sheddable), 1);
/// assert!(shedding.bound(Criticality::Critical) > shedding.bound(Criticality::Sheddable));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shedding {
    /// The number of classes that are shut, from the least important one on.
    shut: u8,
    /// The number of calls in flight up to which each class is admitted.
    bounds: [u32; 4],
    /// The weights that were admitted and refused, for each class.
    counts: [(u64, u64); 4],
}

impl Shedding {
    pub(super) fn of(limiter: &Limiter) -> Self {
        Self {
            shut: limiter.shut(),
            bounds: limiter.bounds(),
            counts: limiter.counts(),
        }
    }

    /// Merges the figures of two resources whose names are written alike: adds the counts, and
    /// keeps the larger number of shut classes.
    #[cfg(feature = "observe")]
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.shut = self.shut.max(other.shut);
        for (own, other) in self.counts.iter_mut().zip(other.counts) {
            own.0 = own.0.saturating_add(other.0);
            own.1 = own.1.saturating_add(other.1);
        }
        self
    }

    /// Returns the classes that are shut, the most important one first. The first class gets the
    /// capacity that the open classes leave; the classes after it get only idle workers. The list
    /// is empty while there is no overload.
    #[must_use]
    pub fn shut(&self) -> &'static [Criticality] {
        &Criticality::ALL[Criticality::ALL.len() - usize::from(self.shut)..]
    }

    /// Returns the number of calls in flight up to which a call of this class is admitted.
    #[must_use]
    pub const fn bound(&self, criticality: Criticality) -> u32 {
        self.bounds[criticality.index()]
    }

    /// Returns the weight of the calls of this class that were admitted.
    #[must_use]
    pub const fn admitted(&self, criticality: Criticality) -> u64 {
        self.counts[criticality.index()].0
    }

    /// Returns the weight of the calls of this class that the rule has refused.
    #[must_use]
    pub const fn refused(&self, criticality: Criticality) -> u64 {
        self.counts[criticality.index()].1
    }
}
