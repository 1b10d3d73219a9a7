//! Calls that wait for an answer from the store.

use std::task::Waker;

use super::cell::BucketEnd;
use super::quota::SharedQuota;
use crate::base::sync::{Arc, Bug, Lock, planted};
use crate::clock::Tick;

/// The answer to a call that has asked for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call has its permits, with this validity.
    Granted(Validity),
    /// The call passes without permits: the store has not answered, and the rule limits nothing
    /// without the store.
    Open,
    /// No permits are available before this time; `None` means never.
    Refused(Option<Tick>),
    /// The store has not answered, and the rule refuses every call without the store.
    Closed,
}

/// The time in which a call can use its permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// For permits of the next bucket: the time at which this bucket has certainly begun. Otherwise
    /// zero.
    pub(crate) from: Tick,
    /// When the bucket of the permits ends.
    pub(crate) end: BucketEnd,
}

/// A waiting call, from the refiller's side.
#[derive(Debug)]
pub(super) struct Asker {
    /// The number of permits that the call needs.
    pub(super) weight: u32,
    /// If the call also accepts permits of the next bucket: the time before which that bucket must
    /// begin.
    pub(super) latest: Option<Tick>,
    /// When the call began to wait.
    pub(super) asked: Tick,
    pub(super) slot: Arc<Slot>,
}

/// A waiting call, from the call's side. Dropping the ticket stops the wait, and refunds permits
/// that were already granted.
#[derive(Debug)]
pub(crate) struct Ticket {
    quota: Arc<SharedQuota>,
    slot: Arc<Slot>,
    weight: u32,
}

/// The state that the call and the refiller share.
#[derive(Debug, Default)]
pub(crate) struct Slot(Lock<State>);

/// The state of a waiting call.
#[derive(Debug, Default)]
enum State {
    #[default]
    New,
    Waiting(Waker),
    Answered(Answer),
    /// The call has left.
    Gone,
}

impl Validity {
    /// Creates the validity of permits of a bucket that has begun.
    pub(crate) const fn until(end: BucketEnd) -> Self {
        Self {
            from: Tick::ZERO,
            end,
        }
    }

    /// Returns whether the permits are borrowed: they belong to the bucket after the one in which
    /// the call asked.
    pub(crate) fn is_borrowed(self) -> bool {
        self.from > Tick::ZERO
    }
}

impl Slot {
    /// Gives the call its answer and wakes it. Returns false if the call has left or already has an
    /// answer.
    pub(super) fn answer(&self, answer: Answer) -> bool {
        let mut state = self.0.lock();
        let before = match *state {
            State::New => State::New,
            State::Waiting(_) => std::mem::replace(&mut *state, State::New),
            State::Answered(_) | State::Gone => return planted(Bug::TicketAnswersGone),
        };
        *state = State::Answered(answer);
        drop(state);
        // Called without the lock, as a waker runs foreign code.
        if let State::Waiting(waker) = before {
            waker.wake();
        }
        true
    }

    /// Returns whether the call has left.
    pub(super) fn is_gone(&self) -> bool {
        matches!(*self.0.lock(), State::Gone)
    }

    /// Returns the answer, if there is one. Otherwise, `waker` is woken once there is an answer.
    fn poll(&self, waker: Option<&Waker>) -> Option<Answer> {
        let mut state = self.0.lock();
        if let State::Answered(answer) = *state {
            return Some(answer);
        }
        if planted(Bug::TicketLooksThenWaits) {
            drop(state);
            state = self.0.lock();
        }
        if let Some(waker) = waker {
            *state = State::Waiting(waker.clone());
        }
        None
    }

    /// Marks the call as gone. Returns its answer, if there is one.
    fn leave(&self) -> Option<Answer> {
        if planted(Bug::TicketLooksThenLeaves) {
            let answer = self.poll(None);
            *self.0.lock() = State::Gone;
            return answer;
        }
        let state = std::mem::replace(&mut *self.0.lock(), State::Gone);
        match state {
            State::Answered(answer) => Some(answer),
            State::New | State::Waiting(_) | State::Gone => None,
        }
    }
}

impl Ticket {
    pub(super) fn new(quota: Arc<SharedQuota>, slot: Arc<Slot>, weight: u32) -> Self {
        Self {
            quota,
            slot,
            weight,
        }
    }

    /// Returns whether there is an answer. If not, `waker` is woken once there is an answer.
    pub(crate) fn is_answered(&self, waker: Option<&Waker>) -> bool {
        self.slot.poll(waker).is_some()
    }

    /// Returns the answer. If there is none yet, the rule decides without the store.
    pub(crate) fn take(self, now: Tick) -> Answer {
        let answer = self.slot.leave();
        answer.unwrap_or_else(|| SharedQuota::without_store(&self.quota, now, self.weight))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(Answer::Granted(valid)) = self.slot.leave() {
            SharedQuota::refund_now(&self.quota, valid, self.weight);
        }
    }
}
