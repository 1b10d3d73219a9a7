//! How one circuit breaker judges calls, counts their ends, opens and closes.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::super::breakers::Change;
use super::super::counts::{Ended, OutcomeCounts, Sum};
use super::super::history::History;
use super::super::packed::{Moment, StateKind, StateWord, is_newer};
use super::super::spec::{BadLimit, BreakerSpec};
use super::{Breaker, Circuit, CircuitAnswer, End, Longest, OLD, RENEWED, StateChanges};
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Bug, Lock, Ordering, planted, shared_size};
use crate::clock::{Tick, nanos};

// === impl Longest ===

impl Longest {
    /// Returns the longest times of a rule.
    fn of(spec: &BreakerSpec) -> Self {
        // A pushback can be as long as the longest open time, even before a probe has failed.
        let lease = match spec.is_pushback() {
            true => spec.lease().max(spec.longest_open()),
            false => spec.lease(),
        };
        Self {
            lease: AtomicU64::new(nanos(lease)),
            open: AtomicU64::new(nanos(spec.longest_open())),
        }
    }

    /// Raises each time to the corresponding time of `other`, if that time is longer.
    fn include(&self, other: &Self) {
        for (own, other) in [(&self.lease, &other.lease), (&self.open, &other.open)] {
            own.fetch_max(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The maximum time by which the moment of `word` can be ahead, in ns.
    fn of_word(&self, word: StateWord) -> u64 {
        let lease = self.lease.load(Ordering::Relaxed);
        if word.kind() != StateKind::OpenUntil {
            return lease;
        }
        let grown = lease.saturating_mul(1 << word.failed());
        grown.min(self.open.load(Ordering::Relaxed))
    }
}

// === impl Breaker ===

impl Breaker {
    /// Creates a closed breaker, or a breaker that continues in the state of `old`.
    pub(in crate::breaker) fn new(
        spec: BreakerSpec,
        index: usize,
        now: Tick,
        epoch: u32,
        old: Option<&Self>,
    ) -> Self {
        let longest = Longest::of(&spec);
        if let Some(old) = old {
            if spec.counts_like(&old.spec) {
                old.circuit.longest.include(&longest);
                let revision = if spec == old.spec {
                    old.revision
                } else {
                    // Relaxed: calls that end meanwhile may be judged by either rule.
                    old.circuit.revision.fetch_add(1, Ordering::Relaxed) + 1
                };
                let circuit = old.circuit.clone();
                return Self {
                    spec,
                    index,
                    circuit,
                    revision,
                };
            }
            longest.include(&old.circuit.longest);
        }
        let (word, moment) = match old {
            Some(old) => old.opened_alike(epoch),
            None => (StateWord::first(StateKind::Closed, epoch), Moment(0)),
        };
        let circuit = Circuit {
            word: AtomicU64::new(word.0),
            moment: AtomicU64::new(moment.0),
            period: AtomicU32::new(0),
            counts: OutcomeCounts::new(&spec, now),
            history: match old {
                Some(old) => old.circuit.history.clone(),
                None => History::new(now),
            },
            revision: AtomicU32::new(0),
            longest,
            name: Lock::new(None),
        };
        Self {
            spec,
            index,
            circuit: Arc::new(circuit),
            revision: 0,
        }
    }

    /// Returns the first word and moment of a new breaker that continues in the state of this
    /// breaker: if this breaker is open, the new one is open until the same time. If this breaker
    /// is half-open, the new one can be probed at once, because the running probes report to this
    /// breaker.
    fn opened_alike(&self, epoch: u32) -> (StateWord, Moment) {
        loop {
            let word = self.word();
            let kind = match word.kind() {
                StateKind::HalfOpen | StateKind::Outlived => StateKind::Ready,
                kind => kind,
            };
            let first = StateWord::first(kind, epoch).with_failed(word.failed());
            let moment = Moment(self.circuit.moment.load(Ordering::Acquire));
            if kind != StateKind::OpenUntil || moment.version() == word.version() {
                return (first, moment.with_version(first.version()));
            }
            if self.word() == word {
                // The moment of this open breaker is not written yet. The returned moment has a
                // version that matches no word, so the first call that asks the new breaker writes
                // a moment, as it would do in this breaker.
                return (first, Moment(0).with_version(!first.version()));
            }
        }
    }

    /// Returns whether both breakers share one circuit, and so one state.
    pub(in crate::breaker) fn inherits(&self, old: &Self) -> bool {
        Arc::ptr_eq(&self.circuit, &old.circuit)
    }

    /// Sets the name of the rule in force. `None` means that the circuit has no rule any more: only
    /// calls and views of older rules refer to it.
    pub(in crate::breaker) fn rename(&self, name: Option<StdArc<str>>) {
        *self.circuit.name.lock() = name;
    }

    /// The name of the rule in force, which can be newer than the rule of this breaker.
    pub(in crate::breaker) fn name(&self) -> Option<StdArc<str>> {
        self.circuit.name.lock().clone()
    }

    /// Bytes that the breaker's circuit occupies.
    pub(in crate::breaker) fn heap(&self) -> usize {
        shared_size::<Circuit>() + self.circuit.counts.heap() + History::heap()
    }

    pub(in crate::breaker) const fn spec(&self) -> &BreakerSpec {
        &self.spec
    }

    /// The breaker's history.
    pub(in crate::breaker) fn history(&self) -> &History {
        &self.circuit.history
    }

    /// The number of bad calls that the breaker counts at `now` or, if it is not closed, with which
    /// it has opened.
    pub(in crate::breaker) fn bad_calls(&self, now: Tick) -> u64 {
        let word = self.word();
        match word.kind() {
            StateKind::Closed => self.circuit.counts.bad(now, word.version()),
            _ => self.circuit.history.opened_by(),
        }
    }

    /// The longest time for which the breaker is open before it can be probed, under any rule that
    /// its circuit has had.
    pub(in crate::breaker) fn longest_open(&self) -> Duration {
        Duration::from_nanos(self.circuit.longest.open.load(Ordering::Relaxed))
    }

    /// The state word. Acquire: a thread that sees a state sees the epoch that was drawn for it.
    #[inline]
    pub(in crate::breaker) fn word(&self) -> StateWord {
        StateWord(self.circuit.word.load(Ordering::Acquire))
    }

    /// Returns whether the breaker is closed and does not need to be [renewed](Self::renew). The
    /// caller must have read `epoch` before.
    #[inline]
    pub(in crate::breaker) fn is_closed_for(&self, epoch: u32) -> bool {
        let word = self.word();
        word.kind() == StateKind::Closed && epoch.wrapping_sub(word.since()) < OLD
    }

    /// Returns the answer to a call that comes at `now`, and the state on which it is based.
    /// Changes no state.
    pub(in crate::breaker) fn ask(&self, now: Tick) -> (StateWord, CircuitAnswer) {
        loop {
            let word = self.word();
            let until = match word.kind() {
                StateKind::Closed => return (word, CircuitAnswer::Pass),
                StateKind::Ready => return (word, CircuitAnswer::Probe),
                StateKind::Forced => return (word, CircuitAnswer::Refuse(None)),
                StateKind::OpenUntil if self.spec.is_pushback() => {
                    self.circuit.counts.pushed_back_until()
                }
                StateKind::OpenUntil => now + self.spec.open_time(word),
                StateKind::HalfOpen | StateKind::Outlived if self.has_place(word) => {
                    return (word, CircuitAnswer::Probe);
                }
                StateKind::HalfOpen | StateKind::Outlived => now + self.spec.lease(),
            };
            let longest = || self.circuit.longest.of_word(word);
            let early = planted(Bug::LongestBeforeMoment).then(longest);
            if let Some(moment) = self.moment_of(word, until) {
                // Read after the moment (acquire), so that it includes the times of the rule that
                // wrote the moment.
                let longest_ns = early.unwrap_or_else(longest);
                let answer = match moment.ahead_of(now, longest_ns) {
                    None => CircuitAnswer::Probe,
                    retry_at => CircuitAnswer::Refuse(retry_at),
                };
                return (word, answer);
            }
        }
    }

    /// Counts the end of a call that was not a probe of this breaker, and opens the breaker if its
    /// limit is met.
    #[inline]
    pub(in crate::breaker) fn count(&self, end: End, changes: &mut StateChanges) {
        let Some(word) = self.closed_for(end.epoch) else {
            return;
        };
        let ended = Ended {
            version: word.version(),
            is_bad: end.is_bad,
            keeps_ratio: matches!(self.spec.limit, BadLimit::Ratio(_)),
        };
        let is_over = || self.word() != word && self.renewed(word, end.epoch).is_none();
        let Some(sum) = self.circuit.counts.count(end.now, ended, is_over) else {
            return;
        };
        if end.is_bad {
            self.circuit.history.note_bad(end.now);
        }
        // A breaker of a replaced rule still counts, for the new rule, but no longer opens.
        let in_force = self.circuit.revision.load(Ordering::Relaxed);
        if !self.spec.is_met(sum) || in_force != self.revision {
            return;
        }
        self.open(word, end, sum, changes);
    }

    /// Opens the breaker, which has counted `sum` while it was closed with the state `word`.
    #[cold]
    fn open(&self, mut word: StateWord, end: End, sum: Sum, changes: &mut StateChanges) {
        let next = word.opened(StateKind::OpenUntil);
        while !self.swap(word, next) && !planted(Bug::TellWithoutWinning) {
            match self.renewed(word, end.epoch) {
                Some(renewed) => word = renewed,
                // A faster thread has opened the breaker.
                None => return,
            }
        }
        self.circuit.history.note_opened_by(sum.bad);
        self.publish(next, end.now + self.spec.open_time(next));
        self.tell(changes, word, next, Some(self.spec.value(sum)));
    }

    /// The state word, if the breaker is closed and a call that was admitted at `epoch` counts in
    /// it.
    #[inline]
    fn closed_for(&self, epoch: u32) -> Option<StateWord> {
        let word = self.word();
        (word.kind() == StateKind::Closed && !is_newer(word.since(), epoch)).then_some(word)
    }

    /// The current word, if `word` has only been renewed since, and a call that was admitted at
    /// `epoch` counts in it.
    #[cold]
    fn renewed(&self, word: StateWord, epoch: u32) -> Option<StateWord> {
        let present = self.closed_for(epoch)?;
        (present.version() == word.version()).then_some(present)
    }

    /// Moves the beginning of a closed generation to a later epoch if it is [`OLD`], so that its
    /// distance from `epoch`, the newest epoch, stays small.
    pub(in crate::breaker) fn renew(&self, word: StateWord, epoch: u32) {
        if epoch.wrapping_sub(word.since()) >= OLD {
            self.swap(word, word.renewed(epoch.wrapping_sub(RENEWED)));
        }
    }

    /// Opens the breaker for at least `after`, because the callee has asked at `now` not to be
    /// called for this time.
    ///
    /// Epochs are ignored: a response to a call of an older generation says as much about the
    /// callee as any other response. A probe that still runs no longer decides.
    #[cold]
    pub(in crate::breaker) fn push_back(
        &self,
        now: Tick,
        after: Duration,
        changes: &mut StateChanges,
    ) {
        let longest = self.spec.longest_open();
        let until = now + after.min(longest);
        let note = || self.circuit.counts.note_pushback(until, now + longest);
        let is_late = planted(Bug::PushbackAfterState);
        if !is_late {
            note();
        }
        loop {
            let word = self.word();
            match word.kind() {
                StateKind::Forced => return,
                StateKind::OpenUntil => {
                    self.publish(word, until);
                    if self.word().version() == word.version() {
                        return;
                    }
                }
                _ => {
                    let next = word.opened(StateKind::OpenUntil);
                    if self.swap(word, next) {
                        self.circuit.history.note_bad(now);
                        self.circuit.history.note_opened_by(1);
                        if is_late {
                            note();
                        }
                        self.publish(next, until);
                        return self.tell(changes, word, next, None);
                    }
                }
            }
        }
    }

    /// Opens the breaker until it is forced closed.
    pub(in crate::breaker) fn force_open(&self, changes: &mut StateChanges) {
        loop {
            let word = self.word();
            let next = word.opened(StateKind::Forced);
            if word.kind() == StateKind::Forced {
                return;
            }
            if self.swap(word, next) {
                if word.kind() == StateKind::Closed {
                    self.circuit.history.note_opened_by(0);
                }
                return self.tell(changes, word, next, None);
            }
        }
    }

    /// Closes the breaker in a new generation without counts. `draw` draws its epoch.
    pub(in crate::breaker) fn force_close(
        &self,
        draw: impl Fn() -> u32,
        changes: &mut StateChanges,
    ) {
        loop {
            let word = self.word();
            // A closed breaker is changed too, because the new generation begins without counts.
            let next = self.closed(word, draw());
            if self.swap(word, next) {
                // Writes a moment, which a closed breaker does not need. Otherwise repeated closing
                // would be the only change of versions without a moment, and an old moment would
                // match once versions wrap.
                self.publish(next, Tick::ZERO);
                return self.tell(changes, word, next, None);
            }
        }
    }

    /// Returns the closed form of `word`, in the generation that begins at `epoch`. Before that,
    /// empties counts that have the stamp of the new version because versions have wrapped.
    pub(super) fn closed(&self, word: StateWord, epoch: u32) -> StateWord {
        let next = word.closed(epoch);
        let is_over = || self.word() != word;
        self.circuit.counts.forget(next.version(), is_over);
        next
    }

    /// Replaces the state. Release: a thread that sees the new state sees the epoch that was drawn
    /// for it.
    pub(in crate::breaker) fn swap(&self, from: StateWord, to: StateWord) -> bool {
        self.circuit
            .word
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the moment of `word`. If none has been written yet, first writes `otherwise`.
    /// Returns `None` if the state has changed.
    fn moment_of(&self, word: StateWord, otherwise: Tick) -> Option<Moment> {
        let load = || Moment(self.circuit.moment.load(Ordering::Acquire));
        let mut moment = load();
        if moment.version() != word.version() {
            self.publish(word, otherwise);
            moment = load();
        }
        (moment.version() == word.version()).then_some(moment)
    }

    /// Adds a change that this call has made to `changes`, if it changes the public state.
    pub(super) fn tell(
        &self,
        changes: &mut StateChanges,
        from: StateWord,
        to: StateWord,
        value: Option<f64>,
    ) {
        let (from, to) = (from.state(), to.state());
        if from != to {
            changes.push(Change {
                index: self.index,
                from,
                to,
                value,
            });
        }
    }

    /// Writes `time` as the moment of `word`, unless a moment that is at least as late has been
    /// written, or the state has changed.
    pub(super) fn publish(&self, word: StateWord, time: Tick) {
        let moment = Moment::new(time, word.version());
        let cell = &self.circuit.moment;
        loop {
            // Acquire: if this moment is of a newer version, the state that is read below is as
            // well.
            let found = Moment(cell.load(Ordering::Acquire));
            let is_written = found.version() == word.version()
                && (!found.is_before(moment) || planted(Bug::FirstMomentStands));
            let is_obsolete = is_written || self.word().version() != word.version();
            if is_obsolete && !planted(Bug::BlindMoment) {
                return;
            }
            if cell
                .compare_exchange(found.0, moment.0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }
}
