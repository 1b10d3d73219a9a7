//! The counts of a breaker: the calls in a window of time, the last calls, or the bad calls in a
//! row.

use super::last_calls::LastCalls;
use super::spec::{BreakerSpec, Span};
use super::stamped::Stamped;
use super::window::CountWindow;
use crate::base::sync::{AtomicU64, Ordering};
use crate::clock::{Tick, nanos};

/// The counts of the calls that end while a breaker is closed.
#[derive(Debug)]
pub(super) enum OutcomeCounts {
    /// The calls in a window of time.
    Window(CountWindow),
    /// The last calls, regardless of when they ended.
    LastCalls(LastCalls),
    /// The number of bad calls since the last good call. A good call that follows another good call
    /// writes nothing; see [`stamped`](super::stamped).
    Row(Stamped),
    /// No counts, but the time until which the callee has asked not to be called, in ns. It is
    /// written before the state changes, so that a thread that sees the breaker open also sees this
    /// time.
    Pushback(AtomicU64),
}

/// The count of bad calls in a row at which counting stops, because no limit is larger.
const LONGEST_ROW: u64 = u32::MAX as u64;

/// The number of calls that ended, and the number of bad calls among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) total: u64,
    pub(super) bad: u64,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// The version of the breaker's word in which the call found the breaker closed.
    pub(super) version: u16,
    /// Whether the call was bad by the criterion of the rule.
    pub(super) is_bad: bool,
    /// Whether a full cell of the window halves both counts, to keep their ratio. If not, it keeps
    /// the number of bad calls.
    pub(super) keeps_ratio: bool,
}

// === impl OutcomeCounts ===

impl OutcomeCounts {
    pub(super) fn new(spec: &BreakerSpec, now: Tick) -> Self {
        match spec.span() {
            Span::Window(interval, buckets) => {
                let bucket_ns = (nanos(interval) / u64::from(buckets)).max(1);
                Self::Window(CountWindow::new(bucket_ns, buckets, now))
            }
            Span::LastCalls(most) => Self::LastCalls(LastCalls::new(most)),
            Span::Row => Self::Row(Stamped::new()),
            Span::Nothing => Self::Pushback(AtomicU64::new(0)),
        }
    }

    /// The time until which the callee has asked not to be called; tick 0 if it never has, or if
    /// calls are counted.
    ///
    /// Relaxed: the caller has read the state (acquire), whose change has published the time.
    pub(super) fn pushed_back_until(&self) -> Tick {
        Tick::from_nanos(match self {
            Self::Pushback(until) => until.load(Ordering::Relaxed),
            _ => 0,
        })
    }

    /// Notes that a pushback lasts until `until`, unless an earlier pushback lasts longer. An
    /// earlier time beyond `most` is replaced, because the clock must have stepped back since.
    ///
    /// Relaxed: the change of state that follows publishes the time.
    pub(super) fn note_pushback(&self, until: Tick, most: Tick) {
        let (until, most) = (until.as_nanos(), most.as_nanos());
        let later = |noted| (noted < until || noted > most).then_some(until);
        if let Self::Pushback(cell) = self {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        }
    }

    /// Bytes that the counts occupy on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Window(window) => window.heap(),
            Self::LastCalls(_) | Self::Row(_) | Self::Pushback(_) => 0,
        }
    }

    /// Counts a call that ended at `now`. Returns the counts of its generation, without calls that
    /// have left the window. If `is_over` reports a newer generation, returns `None` and does not
    /// count the call.
    pub(super) fn count(&self, now: Tick, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        match self {
            Self::Window(window) => window.count(now, ended, is_over),
            Self::LastCalls(calls) => calls.count(ended, is_over),
            Self::Row(word) => {
                let next = |row: u64| match ended.is_bad {
                    true => LONGEST_ROW.min(row + 1),
                    false => 0,
                };
                let row = word.update(ended.version, is_over, next)?;
                Some(Sum {
                    total: row,
                    bad: row,
                })
            }
            Self::Pushback(_) => None,
        }
    }

    /// The number of bad calls that are counted in `version` and have not left the window at `now`.
    pub(super) fn bad(&self, now: Tick, version: u16) -> u64 {
        match self {
            Self::Window(window) => window.bad(now, version),
            Self::LastCalls(calls) => calls.bad(version),
            Self::Row(word) => word.count(version),
            Self::Pushback(_) => 0,
        }
    }

    /// Empties the counts that have the stamp of `version`, before the generation of that version
    /// begins. Stops once `is_over` reports that another change of state was faster.
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        match self {
            Self::Window(window) => window.forget(version, is_over),
            Self::LastCalls(calls) => calls.forget(version, is_over),
            Self::Row(word) => word.forget(version, is_over),
            Self::Pushback(_) => {}
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Counts calls, each given by whether it is bad, and asserts the length of the row after it.
    fn assert_rows(word: Stamped, calls: impl IntoIterator<Item = (bool, u64)>) {
        let counts = OutcomeCounts::Row(word);
        for (is_bad, row) in calls {
            let ended = Ended {
                version: 7,
                is_bad,
                keeps_ratio: false,
            };
            let sum = counts.count(Tick::ZERO, ended, || false).unwrap();
            assert_eq!((sum.total, sum.bad), (row, row));
        }
    }

    #[test]
    fn a_good_call_ends_the_row() {
        let calls = [true, true, false, true, false, false, true, true, true];
        let rows = [1, 2, 0, 1, 0, 0, 1, 2, 3];
        assert_rows(Stamped::new(), calls.into_iter().zip(rows));
    }

    #[test]
    fn a_full_count_stays() {
        let word = Stamped::new();
        word.update(7, || false, |_| LONGEST_ROW - 1);
        let calls = [(true, LONGEST_ROW), (true, LONGEST_ROW), (false, 0)];
        assert_rows(word, calls);
    }
}
