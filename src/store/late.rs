//! Calls that run already, and about which a rule in shadow mode has asked the store: they are
//! judged when it has answered, and wait for nothing.
//!
//! The task of the store judges them after each answer. A call that is too late for that, because
//! its answer is there or the task is gone, is judged at once by the thread that brings it. Which
//! of the two it is, is looked at under the lock of the list: it is in there before the task
//! looks, or the task has answered before.

use std::fmt;

use crate::base::sync::{AtomicBool, Bug, Lock, Ordering, planted};

/// A call that is judged late.
pub(crate) trait LateCall: fmt::Debug + Send {
    /// Returns whether the store has answered.
    fn is_answered(&self) -> bool;

    /// Judges it: without an answer, as the rule does without the store. Runs code of others.
    fn settle(self: Box<Self>);
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LateCalls {
    calls: Lock<Vec<Box<dyn LateCall>>>,
    /// Whether a counter has answered since they were last looked at.
    has_answers: AtomicBool,
}

impl LateCalls {
    /// Keeps `call` until it is answered. Returns it if it must be settled now: it is answered, or
    /// the task `is_gone`.
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

    /// Settles those that are answered, by the task that notes answers.
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

    /// Settles all, as nobody will answer any more.
    pub(super) fn settle_all(&self) {
        let calls = std::mem::take(&mut *self.calls.lock());
        settle(calls);
    }
}

/// Outside of the lock, as hooks may look at the engine.
fn settle(calls: Vec<Box<dyn LateCall>>) {
    calls.into_iter().for_each(LateCall::settle);
}
