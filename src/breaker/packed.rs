//! The packed words of a breaker: 64 bits each, so that one compare-and-swap
//! decides.
//!
//! ```text
//! Word    [ since:32 | version:14 | running:6 | good:6 | failed:3 | kind:3 ]
//! Moment  [ time:48  | version:16 ]
//! ```
//!
//! Each change of a word that is followed by a new time, and each that changes
//! the kind, steps its version. So a word never comes back, and a moment tells
//! which version it belongs to.

use super::BreakerState;
use crate::clock::{SLACK_NS, Tick};

const SINCE: u32 = 32;
const VERSION: u32 = 18;
const RUNNING: u32 = 12;
const GOOD: u32 = 6;
const FAILED: u32 = 3;
const KIND_MASK: u64 = 7;
const FAILED_MASK: u64 = 7;
const SMALL_MASK: u64 = 63;
const VERSION_MASK: u64 = 0x3fff;

/// One unit of a moment: a whole part of a millisecond, and 2⁴⁷ of them last 35
/// years: of two moments the one that is less than that ahead is the later one.
const UNIT_NS: u64 = 8_000;
const TIME_MASK: u64 = (1 << 48) - 1;
const STAMP_MASK: u64 = 0xffff;

/// How many failures of probes in a row are counted: as many as their place in the word holds.
const MOST_FAILED: u32 = FAILED_MASK as u32;

/// How a breaker treats calls, in more detail than users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Closed,
    /// Open until the moment of this version.
    OpenUntil,
    /// Open, and the next call may probe.
    Ready,
    /// Open until an operator closes it.
    Forced,
    HalfOpen,
    /// Half-open, and the place of at least one probe has been given on: the epoch is that
    /// at which the present places began, and not that of the period.
    Outlived,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateWord(pub(super) u64);

/// When a version of a word becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(pub(super) u64);

/// Returns whether the epoch `a` is later than the epoch `b`.
pub(super) const fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

// === impl StateWord ===

impl StateWord {
    /// The first version of a breaker.
    pub(super) const fn first(kind: StateKind, since: u32) -> Self {
        Self((since as u64) << SINCE | kind as u64)
    }

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

    /// The epoch at which the generation began, if it is closed or half-open; while it is
    /// [outlived](StateKind::Outlived), the epoch of the oldest probe that holds a place.
    pub(super) const fn since(self) -> u32 {
        (self.0 >> SINCE) as u32
    }

    pub(super) const fn version(self) -> u16 {
        (self.0 >> VERSION & VERSION_MASK) as u16
    }

    /// Probes that run and hold a place.
    pub(super) const fn running(self) -> u32 {
        (self.0 >> RUNNING & SMALL_MASK) as u32
    }

    /// Probes of the period that were good.
    pub(super) const fn good(self) -> u32 {
        (self.0 >> GOOD & SMALL_MASK) as u32
    }

    /// Times in a row that probes have failed since it was closed, up to
    /// [`MOST_FAILED`].
    pub(super) const fn failed(self) -> u32 {
        (self.0 >> FAILED & FAILED_MASK) as u32
    }

    /// Returns this word with another number of `failed` probes.
    pub(super) const fn with_failed(self, failed: u32) -> Self {
        Self(self.0 & !(FAILED_MASK << FAILED) | (failed as u64) << FAILED)
    }

    /// The next version, as often failed.
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

    /// Open, in one way or another.
    pub(super) const fn opened(self, kind: StateKind) -> Self {
        self.next(kind, self.since(), 0, 0)
    }

    /// Open because a probe has failed.
    pub(super) fn failed_once_more(self) -> Self {
        let failed = (self.failed() + 1).min(MOST_FAILED);
        self.opened(StateKind::OpenUntil).with_failed(failed)
    }

    /// Closed, in the generation that begins at `epoch`.
    pub(super) const fn closed(self, epoch: u32) -> Self {
        self.next(StateKind::Closed, epoch, 0, 0).with_failed(0)
    }

    /// Half-open, in the generation that begins at `epoch`, with one probe.
    pub(super) const fn half_opened(self, epoch: u32) -> Self {
        self.next(StateKind::HalfOpen, epoch, 1, 0)
    }

    /// With one more probe; there are fewer than 63.
    pub(super) const fn joined(self) -> Self {
        let running = self.running() + 1;
        self.next(self.kind(), self.since(), running, self.good())
    }

    /// In the same period, with one probe that began at `epoch` in the place of all others.
    pub(super) const fn given_on(self, epoch: u32) -> Self {
        self.next(StateKind::Outlived, epoch, 1, self.good())
    }

    /// With one place less in use, of which there is one.
    pub(super) const fn left(self) -> Self {
        Self(self.0 - (1 << RUNNING))
    }

    /// With one more good probe; there are fewer than 63.
    pub(super) const fn with_good(self) -> Self {
        Self(self.0 + (1 << GOOD))
    }

    /// Returns this generation with `epoch` as its beginning.
    pub(super) const fn renewed(self, epoch: u32) -> Self {
        Self((epoch as u64) << SINCE | self.0 & (u64::MAX >> SINCE))
    }
}

// === impl Moment ===

impl Moment {
    /// `time`, rounded up to a unit, for `version`.
    pub(super) const fn new(time: Tick, version: u16) -> Self {
        let units = time.as_nanos().div_ceil(UNIT_NS);
        Self((units & TIME_MASK) << 16 | version as u64)
    }

    pub(super) const fn version(self) -> u16 {
        self.0 as u16
    }

    /// Returns this time for another version.
    pub(super) const fn with_version(self, version: u16) -> Self {
        Self(self.0 & !STAMP_MASK | version as u64)
    }

    /// Returns whether it comes before `other`.
    pub(super) const fn is_before(self, other: Self) -> bool {
        let ahead = (other.0 >> 16).wrapping_sub(self.0 >> 16) & TIME_MASK;
        ahead != 0 && ahead <= TIME_MASK / 2
    }

    /// When it comes; `None` if it is over. One that is further away than
    /// `longest_ns`, and some slack, is over as well: the clock has stepped back
    /// since.
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

    /// So many units from the start.
    fn unit(n: u64) -> Tick {
        Tick::from_nanos(n * UNIT_NS)
    }

    #[test]
    fn of_two_moments_the_later_one_is_known_also_where_time_comes_round() {
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
                // The versions may be any.
                for (one, other) in [(7, 7), (0, 0xffff), (0xffff, 0)] {
                    let (first, second) = (moment(0, one), moment(ahead, other));
                    assert_eq!(first.is_before(second), is_before, "{start} {ahead}");
                }
            }
        }
    }

    #[test]
    fn versions_come_round_and_touch_nothing_else() {
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
        // A second, which is whole units, as is the slack.
        let longest_ns = 1_000_000_000;
        let most = (longest_ns + SLACK_NS) / UNIT_NS;
        let ahead = |moment: Tick, now| Moment::new(moment, 7).ahead_of(now, longest_ns);
        assert_eq!(ahead(unit(100), unit(100)), None, "it is over");
        assert_eq!(ahead(unit(100), unit(99)), Some(unit(100)));
        assert_eq!(ahead(unit(100 + most), unit(100)), Some(unit(100 + most)));
        // Both are rounded, in different directions: that may be a unit.
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
