//! Calls that were admitted while a rule in shadow mode asks the store about them. They do not wait
//! for the answer, and are judged once it has arrived.
//!
//! The store's task judges answered calls after each trip. If a call is already answered when it is
//! added, or the task has ended, the adding thread judges the call at once. It checks this under
//! the lock of the list, so either the task finds the call in the list, or the check sees the
//! answer.

use std::fmt;

use crate::base::sync::{AtomicBool, Bug, Lock, Ordering, planted};

/// A call that is judged after it was admitted.
pub(crate) trait LateCall: fmt::Debug + Send {
    /// Returns whether the store has answered.
    fn is_answered(&self) -> bool;

    /// Judges the call by the answer; without an answer, by the rule's setting for an unavailable
    /// store. Runs hooks, so it must be called without locks.
    fn settle(self: Box<Self>);
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LateCalls {
    calls: Lock<Vec<Box<dyn LateCall>>>,
    /// Whether calls may have been answered since the list was last searched.
    has_answers: AtomicBool,
}

impl LateCalls {
    /// Keeps `call` until it is answered. Returns it if the caller must settle it now, because it
    /// is answered already or the task has ended.
    pub(super) fn keep(
        &self,
        call: Box<dyn LateCall>,
        is_gone: impl Fn() -> bool,
    ) -> Option<Box<dyn LateCall>> {
        let is_due = |call: &dyn LateCall| call.is_answered() || is_gone();
        let was_due = planted(Bug::LateLooksThenKeeps).then(|| is_due(&*call));
        let mut calls = self.calls.lock();
        if was_due.unwrap_or_else(|| is_due(&*call)) {
            return Some(call);
        }
        calls.push(call);
        None
    }

    /// Notes that calls may have been answered.
    pub(super) fn note_answers(&self) {
        self.has_answers.store(true, Ordering::Relaxed);
    }

    /// Settles the calls that are answered. Must be called by the task that notes answers.
    pub(super) fn settle_answered(&self) {
        if self.has_answers.swap(false, Ordering::Relaxed) {
            let mut calls = self.calls.lock();
            let all = std::mem::take(&mut *calls).into_iter();
            let (answered, others) = all.partition(|call| call.is_answered());
            *calls = others;
            drop(calls);
            settle(answered);
        }
    }

    /// Settles all calls, as no more answers will come.
    pub(super) fn settle_all(&self) {
        let calls = std::mem::take(&mut *self.calls.lock());
        settle(calls);
    }
}

/// Settles `calls`. Must be called without the lock, as hooks can call into the engine.
fn settle(calls: Vec<Box<dyn LateCall>>) {
    calls.into_iter().for_each(LateCall::settle);
}
