//! The engine's answer to a call, and the two forms in which it is handed up.
//!
//! Most calls pass on the [fast path](crate::engine::pipeline), and returning a whole [`Verdict`]
//! through several functions would cost each of them some 30 instructions. So inside of
//! the crate the answer is split: a call that passed on the fast path is returned as a
//! small [`FastPass`], and any other verdict is written to a [`SlowVerdict`], which the
//! caller lends.

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
    /// The call has a place in the future, and may run then.
    Wait(Waiting),
    /// The call is refused.
    Block(Blocked),
}

/// The facts of a call that starts on the fast path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) at: Tick,
    pub(crate) weight: u32,
    pub(crate) has_slot: bool,
    /// The call's admission by circuit breakers, if there were any.
    pub(crate) closed: Option<AllClosed>,
}

/// A call that passed on the fast path, before its [`Entry`] is made where it is needed.
/// It counts as started: dropping it ends the call.
#[derive(Debug)]
pub(crate) struct FastPass {
    /// `None` once the entry is made.
    resource: Option<Arc<Resource>>,
    started: Started,
}

/// Where the answer to a call is written that did not pass on the fast path.
///
/// A function that takes one returns `Some` [`FastPass`], or `None`. With `None` the verdict
/// is in here, unless the call is not settled.
#[derive(Debug)]
pub(crate) struct SlowVerdict {
    verdict: Option<Verdict>,
    open: Open,
}

/// Why there is no verdict on a call that did not pass on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// There is one; if not, a layer has skipped the call.
    Nothing,
    /// Other rules are in force than those that have named the call: by their templates it may
    /// have another name, and must be described once more.
    Renamed,
    /// Rules in shadow mode are to judge it as well.
    HasShadows,
}

// === impl Started ===

impl Started {
    /// The holdings of a call of `weight` that starts `at` a time, to a resource with only slots
    /// and rings.
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

    /// The resource, if a layer must [mark](Resource::wants_mark) the request.
    #[inline(always)]
    pub(crate) fn to_mark(&self) -> Option<&Arc<Resource>> {
        let resource = self.resource.as_ref()?;
        resource.wants_mark(self.started.at).then_some(resource)
    }

    /// The call, from now on.
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

    /// Writes the `verdict`, and returns what the writer returns: that there is no
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

    /// Writes why there is no verdict.
    #[inline(always)]
    pub(crate) fn leave_open(&mut self, why: Open) {
        self.open = why;
    }

    #[inline(always)]
    pub(crate) const fn open(&self) -> Open {
        self.open
    }

    /// For a call that passed on the fast path: nothing was written, so nothing needs to
    /// be dropped.
    #[inline(always)]
    pub(crate) fn forget_empty(self) {
        debug_assert!(self.verdict.is_none(), "a call that passed has one verdict");
        mem::forget(self);
    }

    /// The verdict that was written; `None` if the call was skipped.
    #[inline(always)]
    pub(crate) fn into_inner(self) -> Option<Verdict> {
        debug_assert_eq!(self.open, Open::Nothing, "the call has been settled");
        self.verdict
    }
}
