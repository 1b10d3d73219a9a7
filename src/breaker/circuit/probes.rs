//! The probes of one breaker: which calls become probes, and how their ends decide.
//!
//! While a breaker is half-open, the epoch in its state is the epoch of the oldest probe that holds
//! a place. An older probe of the same period has lost its place, but its end still decides. So the
//! start of the period is kept in a separate word. This word is written before places are given on
//! for the first time in a period, and does not change until places are given on in a later period.

use super::{Breaker, End, StateChanges};
use crate::base::sync::{Bug, Ordering, planted};
use crate::breaker::packed::{StateKind, StateWord, is_newer};
use crate::clock::Tick;

// === impl Breaker ===

impl Breaker {
    /// Returns whether a call may join the probes of `word`.
    pub(super) fn has_place(&self, word: StateWord) -> bool {
        word.is_half_open() && word.running() < self.spec.probes
    }

    /// Takes a probe at `now`, after [`ask`](Self::ask) has answered for `word` that the call may
    /// probe. `epoch` was drawn before that answer. Returns false if the state has changed.
    pub(in crate::breaker) fn probe(
        &self,
        word: StateWord,
        now: Tick,
        epoch: u32,
        changes: &mut StateChanges,
    ) -> bool {
        let next = if self.has_place(word) {
            word.joined()
        } else if word.is_half_open() {
            // The current probes have not ended in time. They lose their places now, but their ends
            // still count.
            if !self.note_period(word) {
                return false;
            }
            word.given_on(epoch)
        } else {
            word.half_opened(epoch)
        };
        if planted(Bug::BlindProbe) {
            self.circuit.word.store(next.0, Ordering::Release);
        } else if !self.swap(word, next) {
            return false;
        }
        let is_first = (word.kind(), next.kind()) == (StateKind::HalfOpen, StateKind::Outlived);
        if is_first && planted(Bug::PeriodAfterPlaces) {
            self.circuit.period.store(word.since(), Ordering::Release);
        }
        self.publish(next, now + self.spec.lease());
        self.tell(changes, word, next, None);
        true
    }

    /// Writes the epoch at which the period of `word` began, before its places are given on for the
    /// first time. Returns false if the state has changed.
    ///
    /// A late thread never replaces a newer period: it finds that the state has changed, or its
    /// swap fails because the word was written since. If it writes its period after the end of this
    /// period, the next period that is written replaces it.
    fn note_period(&self, word: StateWord) -> bool {
        let (cell, start) = (&self.circuit.period, word.since());
        if word.kind() == StateKind::Outlived || planted(Bug::PeriodAfterPlaces) {
            return true;
        }
        loop {
            // Acquire: if this word is of a newer period, the state that is read below is as well.
            let found = cell.load(Ordering::Acquire);
            if self.word() != word {
                return false;
            }
            if planted(Bug::BlindPeriod) {
                cell.store(start, Ordering::Release);
                return true;
            }
            // Release: pairs with the load in `half_open_for`.
            let is_written = found == start
                || cell
                    .compare_exchange(found, start, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            if is_written {
                return true;
            }
        }
    }

    /// Ends a probe without a result.
    pub(in crate::breaker) fn release(&self, epoch: u32, changes: &mut StateChanges) {
        while let Some((word, has_place)) = self.half_open_for(epoch) {
            if !has_place {
                return;
            }
            // The period continues while other probes may still run.
            let is_last = word.running() == 1 && word.good() == 0;
            let next = if is_last && word.kind() != StateKind::Outlived {
                word.opened(StateKind::Ready)
            } else {
                word.left()
            };
            if self.swap(word, next) {
                self.tell(changes, word, next, None);
                return;
            }
        }
    }

    /// Ends a probe with a result. `draw` draws an epoch.
    pub(in crate::breaker) fn decide(
        &self,
        end: End,
        draw: impl Fn() -> u32,
        changes: &mut StateChanges,
    ) {
        while let Some((word, has_place)) = self.half_open_for(end.epoch) {
            let (next, value) = if end.is_bad {
                (word.failed_once_more(), Some(1.0))
            } else if word.good() + 1 >= self.spec.probes {
                (self.closed(word, draw()), None)
            } else if has_place {
                (word.left().with_good(), None)
            } else {
                (word.with_good(), None)
            };
            if self.swap(word, next) {
                if end.is_bad {
                    self.circuit.history.note_bad(end.now);
                    self.publish(next, end.now + self.spec.open_time(next));
                }
                self.tell(changes, word, next, value);
                return;
            }
            if planted(Bug::EndTriesOnce) {
                return;
            }
        }
    }

    /// Returns the state, if the breaker is half-open in the period in which a probe of `epoch` was
    /// admitted, so that the probe may decide. Also returns whether this probe still holds a place.
    fn half_open_for(&self, epoch: u32) -> Option<(StateWord, bool)> {
        loop {
            let word = self.word();
            if !word.is_half_open() {
                return None;
            }
            if !is_newer(word.since(), epoch) {
                return (word.running() > 0).then_some((word, true));
            }
            if word.kind() == StateKind::HalfOpen {
                return None;
            }
            // Read after the state (acquire), so it is the start of that state's period or of a
            // newer one.
            let period = self.circuit.period.load(Ordering::Acquire);
            if !is_newer(period, epoch) {
                return Some((word, false));
            }
            if self.word() == word {
                return None;
            }
        }
    }
}
