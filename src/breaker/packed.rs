//! The packed words of a breaker. Each has 64 bits, so that one compare-and-swap can change all its
//! fields.
//!
//! ```text
//! Word    [ since:32 | version:14 | running:6 | good:6 | failed:3 | kind:3 ]
//! Moment  [ time:48  | version:16 ]
//! ```
//!
//! Each change of a word that changes its kind, or that is followed by a new moment, increments the
//! version. So a word does not repeat until versions wrap, and a moment contains the version to
//! which it belongs.

use super::BreakerState;
use crate::clock::{SLACK_NS, Tick};

// The lowest bit of each field of a word, and the masks of the fields.
const SINCE: u32 = 32;
const VERSION: u32 = 18;
const RUNNING: u32 = 12;
const GOOD: u32 = 6;
const FAILED: u32 = 3;
const KIND_MASK: u64 = 7;
const FAILED_MASK: u64 = 7;
// The mask of `running` and of `good`.
const SMALL_MASK: u64 = 63;
const VERSION_MASK: u64 = 0x3fff;

/// The unit of moments, 8 µs. A moment is later than another moment if it is ahead of it by less
/// than 2⁴⁷ units, which are 35 years.
const UNIT_NS: u64 = 8_000;
/// The mask of the time of a moment, in units.
const TIME_MASK: u64 = (1 << 48) - 1;
/// The mask of the version of a moment.
const STAMP_MASK: u64 = 0xffff;

/// The largest count of failed probes in a row: three bits in the word.
const MOST_FAILED: u32 = FAILED_MASK as u32;

/// The state of a breaker, in more detail than the public [`BreakerState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    /// All calls pass, and their ends are counted.
    Closed,
    /// Open until the moment of the word's version.
    OpenUntil,
    /// Open, and the next call may probe.
    Ready,
    /// Open until an operator closes it.
    Forced,
    /// Half-open: `since` is the epoch at which the half-open period began.
    HalfOpen,
    /// Half-open, and places of probes have been given on: `since` is the epoch of the oldest probe
    /// that holds a place, and not the epoch at which the period began.
    Outlived,
}

/// The state of a breaker, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateWord(pub(super) u64);

/// The time at which a state of a breaker ends, with the version of that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(pub(super) u64);

/// Returns whether the epoch `a` is later than the epoch `b`.
pub(super) const fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

// === impl StateWord ===

impl StateWord {
    /// The first word of a breaker.
    pub(super) const fn first(kind: StateKind, since: u32) -> Self {
        Self((since as u64) << SINCE | kind as u64)
    }

    /// The kind of the state.
    pub(super) const fn kind(self) -> StateKind {
        match self.0 & KIND_MASK {
            0 => StateKind::Closed,
            1 => StateKind::OpenUntil,
            2 => StateKind::Ready,
            3 => StateKind::Forced,
            4 => StateKind::HalfOpen,
            _ => StateKind::Outlived,
        }
    }

    /// The public state.
    pub(super) const fn state(self) -> BreakerState {
        match self.kind() {
            StateKind::Closed => BreakerState::Closed,
            StateKind::OpenUntil | StateKind::Ready | StateKind::Forced => BreakerState::Open,
            StateKind::HalfOpen | StateKind::Outlived => BreakerState::HalfOpen,
        }
    }

    pub(super) const fn is_half_open(self) -> bool {
        matches!(self.kind(), StateKind::HalfOpen | StateKind::Outlived)
    }

    /// The epoch at which the generation began, in a closed or half-open state. In the state
    /// [`Outlived`](StateKind::Outlived), the epoch of the oldest probe that holds a place.
    pub(super) const fn since(self) -> u32 {
        (self.0 >> SINCE) as u32
    }

    /// The version of the state.
    pub(super) const fn version(self) -> u16 {
        (self.0 >> VERSION & VERSION_MASK) as u16
    }

    /// The number of running probes that hold a place.
    pub(super) const fn running(self) -> u32 {
        (self.0 >> RUNNING & SMALL_MASK) as u32
    }

    /// The number of good probes in this half-open period.
    pub(super) const fn good(self) -> u32 {
        (self.0 >> GOOD & SMALL_MASK) as u32
    }

    /// The number of failed probes in a row since the breaker was closed, up to [`MOST_FAILED`].
    pub(super) const fn failed(self) -> u32 {
        (self.0 >> FAILED & FAILED_MASK) as u32
    }

    /// Returns this word with `failed` failures of probes.
    pub(super) const fn with_failed(self, failed: u32) -> Self {
        Self(self.0 & !(FAILED_MASK << FAILED) | (failed as u64) << FAILED)
    }

    /// The next version, with the same number of failures.
    const fn next(self, kind: StateKind, since: u32, running: u32, good: u32) -> Self {
        let version = self.version().wrapping_add(1) as u64 & VERSION_MASK;
        Self(
            (since as u64) << SINCE
                | version << VERSION
                | (running as u64) << RUNNING
                | (good as u64) << GOOD
                | (self.failed() as u64) << FAILED
                | kind as u64,
        )
    }

    /// The next version, open, of the given kind.
    pub(super) const fn opened(self, kind: StateKind) -> Self {
        self.next(kind, self.since(), 0, 0)
    }

    /// The next version, open because a probe has failed.
    pub(super) fn failed_once_more(self) -> Self {
        let failed = (self.failed() + 1).min(MOST_FAILED);
        self.opened(StateKind::OpenUntil).with_failed(failed)
    }

    /// The next version, closed, in the generation that begins at `epoch`.
    pub(super) const fn closed(self, epoch: u32) -> Self {
        self.next(StateKind::Closed, epoch, 0, 0).with_failed(0)
    }

    /// The next version, half-open, in the generation that begins at `epoch`, with one probe.
    pub(super) const fn half_opened(self, epoch: u32) -> Self {
        self.next(StateKind::HalfOpen, epoch, 1, 0)
    }

    /// The next version, with another probe. There must be fewer than 63 probes.
    pub(super) const fn joined(self) -> Self {
        let running = self.running() + 1;
        self.next(self.kind(), self.since(), running, self.good())
    }

    /// The next version in the same period, with one probe that began at `epoch`. All other probes
    /// have lost their places.
    pub(super) const fn given_on(self, epoch: u32) -> Self {
        self.next(StateKind::Outlived, epoch, 1, self.good())
    }

    /// Returns this word with one place less in use. At least one place must be in use.
    pub(super) const fn left(self) -> Self {
        Self(self.0 - (1 << RUNNING))
    }

    /// Returns this word with another good probe. There must be fewer than 63 good probes.
    pub(super) const fn with_good(self) -> Self {
        Self(self.0 + (1 << GOOD))
    }

    /// Returns this word with `epoch` as the beginning of its generation.
    pub(super) const fn renewed(self, epoch: u32) -> Self {
        Self((epoch as u64) << SINCE | self.0 & (u64::MAX >> SINCE))
    }
}

// === impl Moment ===

impl Moment {
    /// The moment of `time`, rounded up to a unit, for `version`.
    pub(super) const fn new(time: Tick, version: u16) -> Self {
        let units = time.as_nanos().div_ceil(UNIT_NS);
        Self((units & TIME_MASK) << 16 | version as u64)
    }

    /// The version of the state that ends at this moment.
    pub(super) const fn version(self) -> u16 {
        self.0 as u16
    }

    /// Returns the moment of the same time for another version.
    pub(super) const fn with_version(self, version: u16) -> Self {
        Self(self.0 & !STAMP_MASK | version as u64)
    }

    /// Returns whether this moment is before `other`.
    pub(super) const fn is_before(self, other: Self) -> bool {
        let ahead = (other.0 >> 16).wrapping_sub(self.0 >> 16) & TIME_MASK;
        ahead != 0 && ahead <= TIME_MASK / 2
    }

    /// Returns the time of this moment; `None` if it is over at `now`. A moment that is further
    /// ahead than `longest_ns` plus the slack of the clock is treated as over too, because the
    /// clock must have stepped back since.
    pub(super) const fn ahead_of(self, now: Tick, longest_ns: u64) -> Option<Tick> {
        let present = now.as_nanos() / UNIT_NS;
        let ahead = (self.0 >> 16).wrapping_sub(present) & TIME_MASK;
        if ahead == 0 || ahead > longest_ns.saturating_add(SLACK_NS).div_ceil(UNIT_NS) + 1 {
            return None;
        }
        Some(Tick::from_nanos(
            present.saturating_add(ahead).saturating_mul(UNIT_NS),
        ))
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the time `n` units after the start of the clock.
    fn unit(n: u64) -> Tick {
        Tick::from_nanos(n * UNIT_NS)
    }

    #[test]
    fn moments_are_compared_correctly_across_the_wrap() {
        let half = TIME_MASK / 2;
        for start in [0, 1, half, TIME_MASK - 1, TIME_MASK] {
            let moment = |ahead: u64, version| {
                let units = start.wrapping_add(ahead) & TIME_MASK;
                Moment(units << 16 | version)
            };
            for (ahead, is_before) in [
                (0, false),
                (1, true),
                (1 << 20, true),
                (half, true),
                (half + 1, false),
                (TIME_MASK, false),
            ] {
                // Versions do not matter.
                for (one, other) in [(7, 7), (0, 0xffff), (0xffff, 0)] {
                    let (first, second) = (moment(0, one), moment(ahead, other));
                    assert_eq!(first.is_before(second), is_before, "{start} {ahead}");
                }
            }
        }
    }

    #[test]
    fn versions_wrap_and_touch_nothing_else() {
        let first = StateWord::first(StateKind::HalfOpen, u32::MAX - 1).with_failed(MOST_FAILED);
        let mut word = first;
        for version in 1..=1 << 14 {
            word = word.opened(StateKind::Ready);
            assert_eq!(u64::from(word.version()), version & VERSION_MASK);
            let known = (word.since(), word.failed(), word.running(), word.good());
            assert_eq!(known, (u32::MAX - 1, MOST_FAILED, 0, 0));
        }
        let full = (0..63).fold(first, |word, _| word.joined());
        let full = (0..62).fold(full, |word, _| word.left().with_good());
        assert_eq!((full.running(), full.good(), full.failed()), (1, 62, 7));
        assert_eq!(
            (full.since(), full.kind()),
            (u32::MAX - 1, StateKind::HalfOpen)
        );
        assert_eq!(full.failed_once_more().failed(), MOST_FAILED);
        let given_on = full.given_on(9).joined();
        let known = (given_on.since(), given_on.failed(), given_on.running());
        assert_eq!((known, given_on.good()), ((9, MOST_FAILED, 2), 62));
        assert_eq!(given_on.kind(), StateKind::Outlived);
        assert_eq!(full.closed(3).failed(), 0);
    }

    #[test]
    fn a_time_is_up_to_a_unit_longer_and_never_shorter() {
        for end in (1_000_000..1_000_000 + UNIT_NS).step_by(57) {
            let moment = Moment::new(Tick::from_nanos(end), 7);
            for now in (end - 2 * UNIT_NS..end + 2 * UNIT_NS)
                .step_by(61)
                .chain([end - 1])
            {
                let is_over = moment
                    .ahead_of(Tick::from_nanos(now), 1_000_000_000)
                    .is_none();
                assert!(!is_over || now >= end, "{now} of {end}");
                assert!(is_over || now < end + UNIT_NS, "{now} of {end}");
            }
        }
    }

    #[test]
    fn a_moment_is_ahead_for_the_longest_time_and_the_slack_and_no_longer() {
        // A second is a whole number of units, as is the slack.
        let longest_ns = 1_000_000_000;
        let most = (longest_ns + SLACK_NS) / UNIT_NS;
        let ahead = |moment: Tick, now| Moment::new(moment, 7).ahead_of(now, longest_ns);
        assert_eq!(ahead(unit(100), unit(100)), None, "it is over");
        assert_eq!(ahead(unit(100), unit(99)), Some(unit(100)));
        assert_eq!(ahead(unit(100 + most), unit(100)), Some(unit(100 + most)));
        // The two times are rounded in different directions, which can make a difference of one
        // unit.
        let odd = |n| unit(n) + Duration::from_nanos(1);
        let rounded = Some(unit(101 + most));
        assert_eq!(ahead(odd(100 + most), odd(100)), rounded);
        assert_eq!(
            ahead(unit(102 + most), unit(100)),
            None,
            "a clock went back"
        );
    }
}
