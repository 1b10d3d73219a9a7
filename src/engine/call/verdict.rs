//! The engine's answer to a call, and the two forms in which the crate passes it on internally.
//!
//! Most calls pass on the [fast path](crate::engine::pipeline), and returning a whole [`Verdict`]
//! through several functions would cost each of them some 30 instructions. So the answer is split:
//! a call that passes on the fast path is returned as a small [`FastPass`], and any other verdict
//! is written to a [`SlowVerdict`] of the caller.

use std::mem;

use crate::base::sync::Arc;
use crate::blocked::Blocked;
use crate::breaker::{Admission, AllClosed};
use crate::clock::Tick;
use crate::engine::call::entry::Entry;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::waiting::Waiting;
use crate::engine::resource::Resource;

/// The engine's answer to a call.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let clock = ManualClock::new();
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 1))
///     .clock(clock.clone())
///     .build();
/// let answer = |call| match sentinel.try_enter(call) {
///     Verdict::Pass(_entry) => "now".to_owned(),
///     Verdict::Wait(waiting) => format!("in {:?}", waiting.delay()),
///     Verdict::Block(blocked) => format!("not within {:?}", blocked.retry_after()),
///     _ => unreachable!("no other verdict yet"),
/// };
/// let call = Call::new("job");
/// assert_eq!(answer(call), "now");
/// clock.advance(Duration::from_millis(600));
/// assert_eq!(answer(call), "not within Some(400ms)");
/// assert_eq!(answer(call.prioritized(true)), "in 400ms");
/// ```
#[derive(Debug)]
#[must_use = "an entry that is dropped ends the call"]
#[non_exhaustive]
pub enum Verdict {
    /// The call runs now.
    Pass(Entry),
    /// The call must wait: for a later time, or in line.
    Wait(Waiting),
    /// The call is refused.
    Block(Blocked),
}

/// The facts about a call that starts on the fast path. Its entry is made from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// When the call starts.
    pub(crate) at: Tick,
    pub(crate) weight: u32,
    /// Whether the call holds a concurrency slot.
    pub(crate) has_slot: bool,
    /// The call's admission by circuit breakers, if the resource has any.
    pub(crate) closed: Option<AllClosed>,
}

/// A call that has passed on the fast path, whose [`Entry`] is made only at its destination. The
/// call counts as started: dropping the `FastPass` ends it.
#[derive(Debug)]
pub(crate) struct FastPass {
    /// `None` once the entry is made.
    resource: Option<Arc<Resource>>,
    started: Started,
}

/// Holds the verdict on a call that did not pass on the fast path.
///
/// A function that takes a `SlowVerdict` returns a [`FastPass`], or `None` if it has written the
/// verdict here, or has left it [open](Self::open).
#[derive(Debug)]
pub(crate) struct SlowVerdict {
    verdict: Option<Verdict>,
    open: Open,
}

/// The reason why there is no verdict on a call that did not pass on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// There is a verdict, or a layer has skipped the call.
    Nothing,
    /// The rules whose templates named the call are no longer in force. The layer must name the
    /// call again.
    Renamed,
    /// Rules in shadow mode must judge the call as well, which the caller does on the slow path.
    HasShadows,
}

// === impl Started ===

impl Started {
    /// Creates the facts about a call of `weight` that starts at `at`, to a resource with only
    /// slots and rings.
    #[inline(always)]
    pub(crate) fn without_breakers(resource: &Resource, at: Tick, weight: u32) -> Self {
        Self {
            at,
            weight,
            has_slot: resource.fixed_slot_limit().is_some(),
            closed: None,
        }
    }
}

// === impl FastPass ===

impl FastPass {
    #[inline(always)]
    pub(crate) const fn new(resource: Arc<Resource>, started: Started) -> Self {
        Self {
            resource: Some(resource),
            started,
        }
    }

    /// Returns the resource, if a layer must [mark](Resource::wants_mark) the request.
    #[inline(always)]
    pub(crate) fn to_mark(&self) -> Option<&Arc<Resource>> {
        let resource = self.resource.as_ref()?;
        resource.wants_mark(self.started.at).then_some(resource)
    }

    /// Converts to the entry of the running call.
    #[inline(always)]
    pub(crate) fn into_entry(mut self) -> Entry {
        self.take_entry()
    }

    /// Takes the entry without moving `self`. May be called once.
    #[inline(always)]
    pub(crate) fn take_entry(&mut self) -> Entry {
        let resource = self.resource.take().expect("only this takes it");
        let Started {
            at,
            weight,
            has_slot,
            closed,
        } = self.started;
        let permits = closed.map(|closed| Admission::from(closed).into());
        Entry::new(CallNodes::only(resource), at, weight, has_slot, permits)
    }
}

impl Drop for FastPass {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take() {
            end_unused(Self::new(resource, self.started));
        }
    }
}

/// Ends a call that was dropped before its entry was made.
#[cold]
fn end_unused(pass: FastPass) {
    drop(pass.into_entry());
}

// === impl SlowVerdict ===

impl SlowVerdict {
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        Self {
            verdict: None,
            open: Open::Nothing,
        }
    }

    /// Writes the `verdict`. Returns `None`, which the caller can return in place of a
    /// [`FastPass`].
    #[inline(always)]
    pub(crate) fn set(&mut self, verdict: Verdict) -> Option<FastPass> {
        debug_assert!(self.verdict.is_none(), "a call has one verdict");
        // Nothing was written, so nothing needs to be dropped.
        mem::forget(self.verdict.replace(verdict));
        None
    }

    /// Returns whether there is a verdict.
    pub(crate) const fn is_settled(&self) -> bool {
        self.verdict.is_some()
    }

    /// Sets the reason why there is no verdict.
    #[inline(always)]
    pub(crate) fn leave_open(&mut self, why: Open) {
        self.open = why;
    }

    #[inline(always)]
    pub(crate) const fn open(&self) -> Open {
        self.open
    }

    /// Discards a `SlowVerdict` without a verdict, after a call has passed on the fast path. Avoids
    /// the cost of a drop.
    #[inline(always)]
    pub(crate) fn forget_empty(self) {
        debug_assert!(self.verdict.is_none(), "a call that passed has one verdict");
        mem::forget(self);
    }

    /// Returns the verdict; `None` if the call was skipped.
    #[inline(always)]
    pub(crate) fn into_inner(self) -> Option<Verdict> {
        debug_assert_eq!(self.open, Open::Nothing, "the call has been settled");
        self.verdict
    }
}
