//! The probes of one breaker: which call is one, and how it ends.
//!
//! While it is half-open, the epoch in the state is that of the oldest probe that holds a
//! place: an older probe of the same period has lost its place. It still decides, so the
//! start of the period is kept as well, in a word of its own. That is written before places
//! are given on for the first time in a period, and does not change until the next one.

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

    /// Takes a probe at `now` that [`ask`](Self::ask) has promised for `word`, in the
    /// name of `epoch`, which was drawn before that. False if the state has changed.
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
            // Its probes have not answered in time: they hold no place from now on, and
            // their ends count all the same.
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

    /// Writes when the period of `word` began, before its places are given on for the first
    /// time. False if the state has changed.
    ///
    /// A thread that is late replaces no newer period: it finds the state changed, or the word
    /// written since it looked. Should it write its own after the end of its period, the next
    /// one that is written replaces that.
    fn note_period(&self, word: StateWord) -> bool {
        let (cell, start) = (&self.circuit.period, word.since());
        if word.kind() == StateKind::Outlived || planted(Bug::PeriodAfterPlaces) {
            return true;
        }
        loop {
            // Acquire: if this is of a newer period, so is the state below.
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

    /// A probe ends without saying anything.
    pub(in crate::breaker) fn release(&self, epoch: u32, changes: &mut StateChanges) {
        while let Some((word, has_place)) = self.half_open_for(epoch) {
            if !has_place {
                return;
            }
            // The period lasts while other probes may still run.
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

    /// A probe ends. `draw` draws an epoch.
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

    /// The state, if a probe of `epoch` may decide it: if it is half-open in the period in
    /// which that probe was admitted. And whether the probe still holds a place.
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
            // After the state (acquire), so of its period or of a newer one.
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
