//! What a breaker has counted: in a window of time, among the last calls, or in a row.

use super::last_calls::LastCalls;
use super::spec::{Span, Spec};
use super::streak::Streak;
use super::window::Window;
use crate::clock::{Tick, nanos};

/// Where the calls of a closed breaker are counted when they end.
#[derive(Debug)]
pub(super) enum Counts {
    Window(Window),
    LastCalls(LastCalls),
    Streak(Streak),
}

/// Calls that ended, and how many of them were bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) total: u64,
    pub(super) bad: u64,
}

/// One call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// That of the breaker's word, as the call found it closed.
    pub(super) version: u16,
    pub(super) is_bad: bool,
    /// What a full cell of a window keeps: the ratio of its counts, or the bad ones.
    pub(super) keeps_ratio: bool,
}

// === impl Counts ===

impl Counts {
    pub(super) fn new(spec: &Spec, now: Tick) -> Self {
        match spec.span() {
            Span::Window(interval, buckets) => {
                let bucket_ns = (nanos(interval) / u64::from(buckets)).max(1);
                Self::Window(Window::new(bucket_ns, buckets, now))
            }
            Span::LastCalls(most) => Self::LastCalls(LastCalls::new(most)),
            Span::Row => Self::Streak(Streak::new()),
        }
    }

    /// Bytes that they occupy on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Window(window) => window.heap(),
            Self::LastCalls(_) | Self::Streak(_) => 0,
        }
    }

    /// Counts a call that ended at `now`, and tells what its generation has counted
    /// that still matters. `None` if `is_over` says that there is a newer one: then
    /// it is counted nowhere.
    pub(super) fn count(&self, now: Tick, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        match self {
            Self::Window(window) => window.count(now, ended, is_over),
            Self::LastCalls(calls) => calls.count(ended, is_over),
            Self::Streak(streak) => streak.count(ended, is_over),
        }
    }

    /// Leaves nothing that was counted under the stamp of `version`, before that
    /// begins, unless `is_over` says that another change was faster.
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        match self {
            Self::Window(window) => window.forget(version, is_over),
            Self::LastCalls(calls) => calls.forget(version, is_over),
            Self::Streak(streak) => streak.forget(version, is_over),
        }
    }
}
