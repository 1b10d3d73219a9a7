//! The set of breakers of one resource, which judge calls together.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::BreakerState;
use super::circuit::{Breaker, CircuitAnswer, End, StateChanges};
use super::packed::{StateKind, StateWord};
use super::spec::BreakerSpec;
use crate::base::carry_over::carry_over;
use crate::base::sync::{Arc, AtomicU32, Bug, Ordering, planted, shared_size};
use crate::clock::Tick;
use crate::stat::Refusal;

/// The maximum number of breakers of one resource: an admission has a bit for each.
pub(crate) const MAX_BREAKERS: usize = 32;

/// The breakers of one resource: see the [module](self). A clone shares the same breakers.
#[derive(Clone, Debug)]
pub(crate) struct Breakers {
    /// The breakers, in the order in which they judge calls.
    list: Box<[Breaker]>,
    /// The newest epoch, which counts generations; see [`breaker`](super).
    epoch: Arc<AtomicU32>,
}

/// The admission of a call. At its end, it must be passed once to [`complete`](Breakers::complete),
/// [`cancel`](Breakers::cancel) or [`release`](Breakers::release) of the same breakers. If that
/// never happens, the call's probes hold their places until their lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The epoch at which the call was admitted.
    epoch: u32,
    /// A bit for each breaker that the call probes.
    probes: u32,
}

/// An [`Admission`] by breakers that were all closed, so without probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllClosed {
    /// The epoch at which the call was admitted.
    epoch: u32,
}

/// A change of a breaker's state. It is reported once, by the thread that made it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// The index of the breaker in its set.
    pub(crate) index: usize,
    pub(crate) from: BreakerState,
    pub(crate) to: BreakerState,
    /// The value that opened the breaker: the ratio or the number of bad calls, or 1 for a bad
    /// probe.
    pub(crate) value: Option<f64>,
}

/// The state words of all breakers.
type StateWords = [StateWord; MAX_BREAKERS];

// === impl Admission ===

impl From<AllClosed> for Admission {
    fn from(AllClosed { epoch }: AllClosed) -> Self {
        Self { epoch, probes: 0 }
    }
}

impl Admission {
    /// Returns whether the call is a probe of the breaker at `index`.
    pub(super) const fn is_probe(self, index: usize) -> bool {
        self.probes >> index & 1 == 1
    }
}

// === impl Breakers ===

impl Breakers {
    /// Creates the breakers of `specs`, at most [`MAX_BREAKERS`], in the order in which they judge
    /// calls.
    ///
    /// Each breaker inherits from a breaker of `old`, if one fits: one with an equal rule, else one
    /// whose rule has the same id, else one that counts the same calls in the same window. A
    /// breaker that counts like its predecessor keeps its counts and its state, including the
    /// probes in flight. A breaker that counts differently begins without counts, but stays open as
    /// long as its predecessor.
    pub(crate) fn new(
        specs: impl IntoIterator<Item = BreakerSpec>,
        now: Tick,
        old: Option<&Breakers>,
    ) -> Self {
        let mut own = Vec::new();
        for spec in specs {
            if own.len() < MAX_BREAKERS {
                own.push(spec);
            }
        }
        Self::of(own, now, old)
    }

    /// Creates breakers of these rules, which inherit from `old`.
    fn of(specs: Vec<BreakerSpec>, now: Tick, old: Option<&Breakers>) -> Self {
        let epoch = match old {
            Some(old) => old.epoch.clone(),
            None => Arc::new(AtomicU32::new(0)),
        };
        let carry_over = carry_over(
            &specs,
            old.map_or(&[][..], |old| &old.list),
            &[
                &|new: &BreakerSpec, old: &Breaker| new == old.spec(),
                &|new, old| new.id.is_some() && new.id == old.spec().id,
                &|new, old| new.counts_like(old.spec()),
            ],
        );
        let since = epoch.load(Ordering::Acquire);
        let mut list = Vec::with_capacity(specs.len());
        for (spec, old) in specs.into_iter().zip(carry_over) {
            list.push(Breaker::new(spec, list.len(), now, since, old));
        }
        Self {
            list: list.into(),
            epoch,
        }
    }

    /// Names the breakers after their rules, given in the order of the breakers.
    pub(crate) fn rename(&self, names: impl Iterator<Item = StdArc<str>>) {
        for (breaker, name) in self.list.iter().zip(names) {
            breaker.rename(Some(name));
        }
    }

    /// Removes the names of the breakers from which no breaker of `new` inherits, because they have
    /// no rule any more. Called when `new` replaces these breakers, or when they are removed.
    pub(crate) fn retire(&self, new: Option<&Breakers>) {
        let new = new.map_or(&[][..], |new| &new.list);
        for old in &self.list {
            if !new.iter().any(|new| new.inherits(old)) {
                old.rename(None);
            }
        }
    }

    /// Checks whether a call at `now` may pass. Takes nothing.
    ///
    /// # Errors
    ///
    /// Returns the first breaker that refuses the call, and the time from which on all breakers can
    /// be probed. If a probe in flight ends, they can be probed sooner. There is no such time if a
    /// breaker was forced open.
    pub(crate) fn check(&self, now: Tick) -> Result<(), Refusal> {
        let mut refusal: Option<Refusal> = None;
        for breaker in &self.list {
            let (_, CircuitAnswer::Refuse(retry_at)) = breaker.ask(now) else {
                continue;
            };
            let own = Refusal::new(breaker.index as u32, now, retry_at);
            refusal = Some(match refusal {
                Some(first) => first.and_until(own.available_at()),
                None => own,
            });
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Lets a call pass at `now`, as a probe of each breaker that needs one.
    ///
    /// While all breakers are closed this reads one word each and the epoch, and
    /// writes nothing.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Tick,
        notify: &mut dyn FnMut(Change),
    ) -> Result<Admission, Refusal> {
        match self.admit_if_closed() {
            Some(closed) => Ok(closed.into()),
            None => self.admit_as_probe(now, notify),
        }
    }

    /// Lets a call pass without probes, if all breakers are closed.
    #[inline]
    pub(crate) fn admit_if_closed(&self) -> Option<AllClosed> {
        // The epoch is read before the states. Acquire: pairs with the release in `draw`.
        let mut epoch = self.epoch.load(Ordering::Acquire);
        let are_closed = self.list.iter().all(|breaker| breaker.is_closed_for(epoch));
        if planted(Bug::EpochAfterStates) {
            epoch = self.epoch.load(Ordering::Acquire);
        }
        are_closed.then_some(AllClosed { epoch })
    }

    /// Lets a call pass at `now`, as a probe of each breaker that needs one. Tries again if a state
    /// changes meanwhile.
    #[cold]
    pub(super) fn admit_as_probe(
        &self,
        now: Tick,
        notify: &mut dyn FnMut(Change),
    ) -> Result<Admission, Refusal> {
        loop {
            self.check(now)?;
            let words = self.look();
            let epoch = self.draw();
            let take = |changes: &mut _| self.take_probes(now, &words, epoch, changes);
            if let Some(admission) = collect(notify, take) {
                return Ok(admission);
            }
        }
    }

    /// Reads the state words before a probe draws its epoch.
    fn look(&self) -> StateWords {
        let mut words = [StateWord(0); MAX_BREAKERS];
        for (word, breaker) in words.iter_mut().zip(&self.list) {
            *word = breaker.word();
        }
        words
    }

    /// Takes all probes that the breakers need, with the epoch `epoch`. Takes none if a state has
    /// changed since `words` were read.
    ///
    /// `epoch` was drawn after `words` were read, and each state is read again here and must be the
    /// same. So for each state that is changed here, `epoch` is newer than all earlier events, such
    /// as probes that have joined. For each state in which this call simply passes, `epoch` is
    /// older than every generation that begins after this state.
    fn take_probes(
        &self,
        now: Tick,
        words: &StateWords,
        epoch: u32,
        changes: &mut StateChanges,
    ) -> Option<Admission> {
        let mut admission = Admission { epoch, probes: 0 };
        for (breaker, &known) in self.list.iter().zip(words) {
            match breaker.ask(now) {
                (word, CircuitAnswer::Pass) if word == known => breaker.renew(word, epoch),
                (_, CircuitAnswer::Pass | CircuitAnswer::Refuse(_))
                    if planted(Bug::ProbeLooksOnce) => {}
                (word, CircuitAnswer::Probe)
                    if word == known && breaker.probe(word, now, epoch, changes) =>
                {
                    admission.probes |= 1 << breaker.index;
                }
                _ => {
                    self.release_all(admission, changes);
                    return None;
                }
            }
        }
        Some(admission)
    }

    /// Takes back the probes of a call that was admitted but does not run, because another call
    /// took its tokens. If a breaker has no other probe, it opens again, and the next call can
    /// probe it at once.
    pub(crate) fn release(&self, admission: Admission, notify: &mut dyn FnMut(Change)) {
        if admission.probes == 0 {
            return;
        }
        collect(notify, |changes| self.release_all(admission, changes));
    }

    /// Takes back all probes of a call.
    fn release_all(&self, admission: Admission, changes: &mut StateChanges) {
        for breaker in &self.list {
            if admission.is_probe(breaker.index) {
                breaker.release(admission.epoch, changes);
            }
        }
    }

    /// Notes that a call ended at `now`, `rt` after it started.
    pub(crate) fn complete(
        &self,
        now: Tick,
        admission: Admission,
        rt: Duration,
        is_error: bool,
        notify: &mut dyn FnMut(Change),
    ) {
        collect(notify, |changes| {
            for breaker in &self.list {
                let is_bad = breaker.spec().is_bad(rt, is_error);
                self.ended(breaker, now, admission, is_bad, changes);
            }
        });
    }

    /// Notes that the callee has asked at `now` not to be called for `after`. The breakers that
    /// observe pushback stay open for this time.
    pub(crate) fn push_back(&self, now: Tick, after: Duration, notify: &mut dyn FnMut(Change)) {
        collect(notify, |changes| {
            for breaker in &self.list {
                if breaker.spec().is_pushback() {
                    breaker.push_back(now, after, changes);
                }
            }
        });
    }

    /// Notes that a call was dropped at `now`, after `elapsed`, before it delivered anything. In a
    /// breaker for which it was already too slow, it counts as bad. In any other breaker its
    /// outcome is unknown, and its probe is taken back.
    pub(crate) fn cancel(
        &self,
        now: Tick,
        admission: Admission,
        elapsed: Duration,
        notify: &mut dyn FnMut(Change),
    ) {
        collect(notify, |changes| {
            for breaker in &self.list {
                if breaker.spec().is_bad_cancelled(elapsed) {
                    self.ended(breaker, now, admission, true, changes);
                } else if admission.is_probe(breaker.index) {
                    breaker.release(admission.epoch, changes);
                }
            }
        });
    }

    /// Reports the end of a call to one breaker, as that of a probe or of an ordinary call.
    fn ended(
        &self,
        breaker: &Breaker,
        now: Tick,
        admission: Admission,
        is_bad: bool,
        changes: &mut StateChanges,
    ) {
        let epoch = admission.epoch;
        let end = End { now, epoch, is_bad };
        if admission.is_probe(breaker.index) {
            breaker.decide(end, || self.draw(), changes);
        } else {
            breaker.count(end, changes);
        }
    }

    /// Returns whether all breakers are closed.
    pub(super) fn are_closed(&self) -> bool {
        let mut breakers = self.list.iter();
        breakers.all(|breaker| breaker.word().kind() == StateKind::Closed)
    }

    /// The number of breakers.
    pub(super) const fn len(&self) -> usize {
        self.list.len()
    }

    /// The state of the breaker at `index`. An open breaker whose recovery time is over stays open
    /// until a call comes.
    pub(crate) fn state(&self, index: usize) -> BreakerState {
        self.list[index].word().state()
    }

    /// Notes in the breaker's history that its state changed at `now`. Returns the name of its
    /// rule, if it has one.
    pub(crate) fn note_change(&self, change: &Change, now: Tick) -> Option<StdArc<str>> {
        let breaker = &self.list[change.index];
        breaker.history().note_change(now);
        let name = breaker.name()?;
        breaker.history().note_entered(change.to);
        Some(name)
    }

    /// The number of times that the breaker at `index` has entered `state`.
    pub(crate) fn entered(&self, index: usize, state: BreakerState) -> u64 {
        self.list[index].history().entered(state)
    }

    /// The time for which the breaker at `index` has been in its state.
    pub(crate) fn in_state_for(&self, index: usize, now: Tick) -> Duration {
        self.list[index].history().since_change(now)
    }

    /// The time since the end of the last bad call that the breaker at `index` has seen.
    pub(crate) fn since_last_bad_call(&self, index: usize, now: Tick) -> Option<Duration> {
        self.list[index].history().since_bad(now)
    }

    /// The number of bad calls that the breaker at `index` counts at `now` or, if it is not closed,
    /// with which it has opened.
    pub(crate) fn bad_calls(&self, index: usize, now: Tick) -> u64 {
        self.list[index].bad_calls(now)
    }

    /// The time from `now` on for which the breaker at `index` refuses calls; `None` if it does not
    /// refuse calls, or if only an operator can close it.
    pub(crate) fn retry_after(&self, index: usize, now: Tick) -> Option<Duration> {
        match self.list[index].ask(now).1 {
            CircuitAnswer::Refuse(Some(retry_at)) => Some(retry_at - now),
            CircuitAnswer::Refuse(None) | CircuitAnswer::Pass | CircuitAnswer::Probe => None,
        }
    }

    /// Bytes that the breakers occupy on the heap.
    pub(crate) fn footprint(&self) -> usize {
        let circuits = self.list.iter().map(Breaker::heap);
        size_of_val(&*self.list) + circuits.sum::<usize>() + shared_size::<AtomicU32>()
    }

    /// The time after the last call for which the resource must keep its place in the table because
    /// of its breakers. A closed breaker needs it for its interval. An open breaker needs it for
    /// its longest recovery time, after which it is [kept](super::KeptBreakers) elsewhere. If a
    /// breaker has been opened by hand, `None` means for ever. Counts of bad calls in a row and of
    /// the last calls never expire, but also keep the place only for the interval. Otherwise each
    /// name that fails once would occupy the table for ever.
    pub(crate) fn memory(&self) -> Option<Duration> {
        let memory = |breaker: &Breaker| match breaker.word().kind() {
            StateKind::Closed => Some(breaker.spec().interval),
            StateKind::Forced => None,
            _ => Some(breaker.longest_open()),
        };
        self.list.iter().try_fold(Duration::ZERO, |all, breaker| {
            Some(all.max(memory(breaker)?))
        })
    }

    /// Opens the breaker at `index` until [`force_close`](Self::force_close).
    pub(crate) fn force_open(&self, index: usize, notify: &mut dyn FnMut(Change)) {
        collect(notify, |changes| {
            self.list[index].force_open(changes);
        });
    }

    /// Closes the breaker at `index`, and resets its counts.
    pub(crate) fn force_close(&self, index: usize, notify: &mut dyn FnMut(Change)) {
        collect(notify, |changes| {
            self.list[index].force_close(|| self.draw(), changes);
        });
    }

    /// Draws a new epoch. Release: a thread that reads this epoch or a later one also sees every
    /// change of state that the caller has seen. Acquire: the states that the caller reads
    /// afterwards are at least as new as the states that threads had seen when they drew earlier
    /// epochs. The epoch is later than the epochs of all states that the caller has seen, because
    /// the states were read with acquire. No model tests this, because loom's read-modify-writes always find the
    /// newest value.
    fn draw(&self) -> u32 {
        self.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }
}

/// Runs `act`, and reports its changes only after all of them are made, because a listener can be
/// slow.
#[inline]
fn collect<R>(notify: &mut dyn FnMut(Change), act: impl FnOnce(&mut StateChanges) -> R) -> R {
    let mut changes = StateChanges::default();
    let done = act(&mut changes);
    for change in changes.iter() {
        notify(*change);
    }
    done
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::super::{BadLimit, Strategy};
    use super::*;

    fn spec() -> BreakerSpec {
        BreakerSpec {
            strategy: Strategy::Error,
            limit: BadLimit::Count(2),
            exceeds: false,
            min_calls: 1,
            open_for: Duration::from_secs(1),
            open_up_to: None,
            last_calls: None,
            interval: Duration::from_secs(1),
            buckets: 1,
            probes: 2,
            cancelled_as_slow: true,
            id: None,
        }
    }

    #[test]
    fn a_probe_with_an_older_epoch_does_not_replace_a_probe_that_has_joined() {
        let second = |n: u64| Tick::from_millis(n * 1_000);
        let breakers = Breakers::new([spec()], Tick::ZERO, None);
        for _ in 0..2 {
            let call = breakers.admit(Tick::ZERO, &mut |_| {}).unwrap();
            breakers.complete(Tick::ZERO, call, Duration::ZERO, true, &mut |_| {});
        }
        breakers.admit(second(1), &mut |_| {}).unwrap();
        // A call draws its epoch and sleeps. Meanwhile another call joins the first probe.
        let (words, epoch) = (breakers.look(), breakers.draw());
        let joined = breakers.admit(second(1), &mut |_| {}).unwrap();
        // At 2 s both leases are over, and the joined probe must lose its place. So the new places
        // must not begin at the epoch of the sleeping call, which is older than that of the joined
        // probe.
        let missed = breakers.take_probes(second(2), &words, epoch, &mut StateChanges::default());
        assert_eq!(missed, None);
        breakers.admit(second(2), &mut |_| {}).unwrap();
        breakers.release(joined, &mut |_| {});
        breakers.admit(second(2), &mut |_| {}).unwrap();
        assert!(breakers.check(second(2)).is_err(), "both places are taken");
    }

    #[test]
    fn a_call_that_runs_while_a_closed_generation_is_renewed_counts() {
        let breakers = Breakers::new([spec()], Tick::ZERO, None);
        let admit = || breakers.admit(Tick::ZERO, &mut |_| {}).unwrap();
        let end = |call| breakers.complete(Tick::ZERO, call, Duration::ZERO, true, &mut |_| {});
        for _ in 0..2 {
            breakers.epoch.fetch_add((1 << 30) - 5, Ordering::Relaxed);
            let running = admit();
            // Other breakers of the resource draw more epochs, so that the next call renews the
            // generation.
            breakers.epoch.fetch_add(9, Ordering::Relaxed);
            breakers.release(admit(), &mut |_| {});
            end(running);
        }
        assert_eq!(breakers.state(0), BreakerState::Open);
    }

    #[test]
    fn a_breaker_that_stays_closed_while_epochs_pass_keeps_counting() {
        let breakers = Breakers::new([spec()], Tick::ZERO, None);
        let notify = &mut |_| {};
        let mut fail = || {
            let admission = breakers.admit(Tick::ZERO, notify).unwrap();
            breakers.complete(Tick::ZERO, admission, Duration::ZERO, true, notify);
            breakers.state(0)
        };
        assert_eq!(fail(), BreakerState::Closed);
        for _ in 0..20 {
            breakers.epoch.fetch_add(1 << 29, Ordering::Relaxed);
            let admission = breakers.admit(Tick::ZERO, &mut |_| {}).unwrap();
            breakers.release(admission, &mut |_| {});
        }
        assert_eq!(fail(), BreakerState::Open);
    }
}
