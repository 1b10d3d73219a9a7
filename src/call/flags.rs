//! `Flags`: the boolean settings and the importance of a call, packed into one word.
//!
//! A call is copied several times, field by field. One word costs one load and one store, while six
//! fields of a byte would cost six loads and six stores.

use std::fmt;

use super::{Cohort, Criticality, Direction, Importance};

/// The settings of a call: see the [module](self). Contains the bits of the [`Importance`], and four flags in bits that the
/// importance does not use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

/// The call may borrow from a coming bucket.
const PRIORITIZED: u32 = 1 << 3;
/// The call is outbound.
const OUTBOUND: u32 = 1 << 4;
/// The caller wants to know its remaining quota.
const WANTS_QUOTA: u32 = 1 << 5;
/// Callers cannot invent the name of the resource.
const IS_MATCHED: u32 = 1 << 6;
const _: () =
    assert!((PRIORITIZED | OUTBOUND | WANTS_QUOTA | IS_MATCHED) & Importance::BITS as u32 == 0);

impl Flags {
    /// The flags of a call without settings: inbound, critical, not prioritized.
    pub(crate) const DEFAULT: Self = Self(Importance::of(Criticality::Critical).bits() as u32);

    /// Returns these flags with `flag` set or cleared.
    const fn with(self, flag: u32, is_set: bool) -> Self {
        Self(if is_set {
            self.0 | flag
        } else {
            self.0 & !flag
        })
    }

    pub(crate) const fn with_prioritized(self, prioritized: bool) -> Self {
        self.with(PRIORITIZED, prioritized)
    }

    pub(crate) const fn with_direction(self, direction: Direction) -> Self {
        self.with(OUTBOUND, matches!(direction, Direction::Outbound))
    }

    pub(crate) const fn with_wants_quota(self, wants_quota: bool) -> Self {
        self.with(WANTS_QUOTA, wants_quota)
    }

    pub(crate) const fn with_is_matched(self, is_matched: bool) -> Self {
        self.with(IS_MATCHED, is_matched)
    }

    pub(crate) const fn with_importance(self, importance: Importance) -> Self {
        Self(self.0 & !(Importance::BITS as u32) | importance.bits() as u32)
    }

    pub(crate) const fn with_criticality(self, criticality: Criticality) -> Self {
        self.with_importance(self.importance().with_criticality(criticality))
    }

    pub(crate) const fn with_cohort(self, cohort: Cohort) -> Self {
        self.with_importance(self.importance().with_cohort(Some(cohort)))
    }

    #[inline]
    pub(crate) const fn prioritized(self) -> bool {
        self.0 & PRIORITIZED != 0
    }

    #[inline]
    pub(crate) const fn direction(self) -> Direction {
        if self.0 & OUTBOUND == 0 {
            Direction::Inbound
        } else {
            Direction::Outbound
        }
    }

    /// Returns whether the caller wants to know its remaining quota.
    #[inline]
    pub(crate) const fn wants_quota(self) -> bool {
        self.0 & WANTS_QUOTA != 0
    }

    /// Returns whether callers cannot invent the name of the resource, because a router has matched
    /// it, or its layer uses only this name.
    #[inline]
    pub(crate) const fn is_matched(self) -> bool {
        self.0 & IS_MATCHED != 0
    }

    #[inline]
    pub(crate) const fn importance(self) -> Importance {
        Importance::of_bits(self.0 as u16)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flags")
            .field("prioritized", &self.prioritized())
            .field("direction", &self.direction())
            .field("wants_quota", &self.wants_quota())
            .field("is_matched", &self.is_matched())
            .field("importance", &self.importance())
            .finish()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_set_and_cleared_without_the_others() {
        let parts = |flags: Flags| {
            let flag = [flags.prioritized(), flags.wants_quota(), flags.is_matched()];
            (flag, flags.direction(), flags.importance())
        };
        let importance = Importance::of(Criticality::Sheddable).with_cohort(Cohort::new(127));
        let some = Flags::DEFAULT.with_importance(importance);
        for flags in [Flags::DEFAULT, some] {
            let (_, _, importance) = parts(flags);
            let inbound = Direction::Inbound;
            assert_eq!(parts(flags), ([false; 3], inbound, importance));
            let set = flags.with_prioritized(true);
            assert_eq!(parts(set), ([true, false, false], inbound, importance));
            let set = flags.with_wants_quota(true);
            assert_eq!(parts(set), ([false, true, false], inbound, importance));
            let set = flags.with_is_matched(true);
            assert_eq!(parts(set), ([false, false, true], inbound, importance));
            let set = flags.with_direction(Direction::Outbound);
            assert_eq!(parts(set), ([false; 3], Direction::Outbound, importance));
            let all = set
                .with_prioritized(true)
                .with_wants_quota(true)
                .with_is_matched(true);
            assert_eq!(parts(all), ([true; 3], Direction::Outbound, importance));
            let none = all
                .with_prioritized(false)
                .with_wants_quota(false)
                .with_is_matched(false)
                .with_direction(inbound);
            assert_eq!(none, flags);
        }
        let class = some.with_criticality(Criticality::CriticalPlus);
        assert_eq!(class.importance().cohort(), Cohort::new(127));
        let cohort = class.with_cohort(Cohort::new(0).unwrap());
        assert_eq!(cohort.importance().criticality(), Criticality::CriticalPlus);
        assert_eq!(cohort.importance().cohort(), Cohort::new(0));
    }
}
