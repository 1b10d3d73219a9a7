//! `Cohort`: a part of the calls of a class, whose calls are refused or admitted together.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;

use super::{Criticality, Key};
use crate::base::wall::since_1970;

/// The number of cohorts. Their numbers have seven bits.
const COHORTS: u8 = 128;
/// The time for which a key stays in its cohort.
const TURN: Duration = Duration::from_secs(3_600);

/// A part of the calls of one class. If an [`AdaptiveRule`](crate::AdaptiveRule) must refuse some
/// calls of a class, it refuses calls of higher cohorts first.
///
/// A page that needs three calls fails if one of them is refused. If a third of the calls pass,
/// each judged independently, only one such page in twenty-seven succeeds. If all calls of one user
/// are in one cohort, they mostly pass or are refused together, and more pages succeed with the
/// same number of calls: see [`SentinelLayer::cohort`](crate::SentinelLayer::cohort).
///
/// Cohorts have the numbers 0 to 127. A call without a cohort is judged like a call of cohort 0.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Call;
/// use tower_sentinel::call::Cohort;
///
/// let ann = Cohort::of_key("ann");
/// assert!(ann.number() < 128);
/// let call = Call::new("/list").cohort(ann);
/// # let _ = call;
/// assert_eq!(Cohort::new(37).map(Cohort::number), Some(37));
/// assert_eq!(Cohort::new(128), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cohort(
    /// The number plus one, so that 0 can stand for a call without a cohort.
    NonZeroU8,
);

/// The class and cohort of a call, by which calls are compared in overload. They are packed into
/// one word, which is copied with every call. The low two bits are the index of the class. The next
/// [bit is always set](Importance::SET), so that an `Option` needs no more memory. The high byte is
/// the number of the cohort plus one, or 0 for none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Importance(NonZeroU16);

/// FNV-1a with 64 bits, which gives the same hashes in all processes.
struct Fnv(u64);

// === impl Cohort ===

impl Cohort {
    /// The name of the cohort in a header.
    pub(crate) const NAME: &'static str = "cohort";

    /// The middle cohort, for calls without a known cohort where other calls have one.
    pub(crate) const MIDDLE: Self = Self::of_number(COHORTS / 2);

    /// Returns the cohort with this number, which must be below 128; otherwise `None`.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < COHORTS {
            Some(Self::of_number(number))
        } else {
            None
        }
    }

    /// Returns the cohort of the lowest seven bits of `number`.
    const fn of_number(number: u8) -> Self {
        Self(NonZeroU8::MIN.saturating_add(number % COHORTS))
    }

    /// Returns the cohort of `key`, such as the name of a user. The cohort is a hash of the key and
    /// of the hour of the wall clock, so that no user is always among the first to be refused. It
    /// is the same in all processes.
    ///
    /// Reads the system clock.
    #[must_use]
    pub fn of_key<'a>(key: impl Into<Key<'a>>) -> Self {
        Self::at(key.into(), since_1970())
    }

    /// Returns the cohort of `key` at a time since 1970.
    fn at(key: Key<'_>, time: Duration) -> Self {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        key.hash(&mut hash);
        hash.write(&(time.as_secs() / TURN.as_secs()).to_le_bytes());
        // The high bits are used, as the low bits of FNV depend mostly on the last bytes.
        Self::of_number((hash.finish() >> 57) as u8)
    }

    /// Returns the number, 0 to 127.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0.get() - 1
    }

    /// Returns the part of `room` that calls of this cohort may not use.
    #[inline]
    pub(crate) fn share(self, room: u32) -> u32 {
        (u64::from(room) * u64::from(self.number()) / u64::from(COHORTS)) as u32
    }
}

impl Importance {
    /// All bits that can be set.
    pub(crate) const BITS: u16 = 0xff03 | Self::SET;
    /// A bit that is always set, so that the word is not zero.
    const SET: u16 = 1 << 2;

    pub(crate) const fn of(criticality: Criticality) -> Self {
        Self::of_bits(criticality.index() as u16)
    }

    /// Creates the importance from its [`bits`](Self::bits). Other bits are ignored.
    #[inline]
    pub(crate) const fn of_bits(bits: u16) -> Self {
        match NonZeroU16::new(bits & Self::BITS | Self::SET) {
            Some(bits) => Self(bits),
            None => unreachable!(),
        }
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0.get()
    }

    /// Returns this importance with another class.
    pub(crate) const fn with_criticality(self, criticality: Criticality) -> Self {
        Self::of_bits(self.bits() & 0xff00 | criticality.index() as u16)
    }

    /// Returns this importance with another cohort.
    pub(crate) const fn with_cohort(self, cohort: Option<Cohort>) -> Self {
        let byte = match cohort {
            None => 0,
            Some(cohort) => cohort.0.get(),
        };
        Self::of_bits(self.bits() & 0x00ff | (byte as u16) << 8)
    }

    /// Returns the [index](Criticality::index) of the class.
    #[inline]
    pub(crate) const fn class(self) -> usize {
        (self.bits() & 3) as usize
    }

    pub(crate) const fn criticality(self) -> Criticality {
        Criticality::ALL[self.class()]
    }

    /// Returns whether the call has a cohort.
    #[inline]
    pub(crate) const fn has_cohort(self) -> bool {
        self.bits() >> 8 != 0
    }

    #[inline]
    pub(crate) const fn cohort(self) -> Option<Cohort> {
        match NonZeroU8::new((self.bits() >> 8) as u8) {
            None => None,
            Some(number) => Some(Cohort(number)),
        }
    }
}

impl fmt::Debug for Importance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.criticality(), self.cohort())
    }
}

impl Default for Importance {
    fn default() -> Self {
        Self::of(Criticality::default())
    }
}

impl fmt::Display for Cohort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number(), f)
    }
}

// === impl Fnv ===

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_its_cohort_every_hour() {
        let hour = |hour: u64, second: u64| Duration::from_secs(hour * 3_600 + second);
        let at = |time| Cohort::at(Key::Str("ann"), time);
        assert_eq!(at(hour(7, 0)), at(hour(7, 3_599)));
        let numbers: std::collections::BTreeSet<_> =
            (0..1_000).map(|it| at(hour(it, 0)).number()).collect();
        assert!(numbers.len() > 120, "{}", numbers.len());
        // All processes agree.
        assert_eq!(
            at(hour(7, 0)).number(),
            Cohort::at("ann".into(), hour(7, 1)).number()
        );
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut counts = [0_u32; 128];
        for key in 0..128_000_u64 {
            counts[usize::from(Cohort::at(Key::Int(key), Duration::ZERO).number())] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(
            (800..=1_200).contains(least) && *most <= 1_200,
            "{least} to {most}"
        );
    }

    #[test]
    fn the_share_grows_with_the_cohort_and_is_never_the_whole() {
        let share = |number, room| Cohort::new(number).unwrap().share(room);
        assert_eq!((share(0, 8), share(64, 8), share(127, 8)), (0, 4, 7));
        assert_eq!(share(127, u32::MAX), u32::MAX / 128 * 127 + 126);
    }
}
