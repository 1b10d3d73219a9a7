//! Shared helpers of the breaker tests: settings of breakers, and breakers that record their
//! reports.

use std::time::Duration;

use crate::breaker::*;
use crate::clock::Tick;

/// The index of the breaker that refuses a call, and the time from which on all breakers can be
/// probed.
pub(in crate::breaker) type RefusedBy = (usize, Option<Tick>);

pub(in crate::breaker) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(in crate::breaker) fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

/// Returns the settings of a breaker that opens for 2 s at an error ratio of 0.5, of at least 5
/// calls in 1 s.
pub(in crate::breaker) fn spec() -> BreakerSpec {
    BreakerSpec {
        strategy: Strategy::Error,
        limit: BadLimit::ratio(0.5),
        exceeds: false,
        min_calls: 5,
        open_for: ms(2_000),
        open_up_to: None,
        last_calls: None,
        interval: ms(1_000),
        buckets: 10,
        probes: 1,
        cancelled_as_slow: true,
        id: None,
    }
}

/// Returns the settings [`spec`], but calls longer than `max_ms` are bad.
pub(in crate::breaker) fn slow(max_ms: u64) -> BreakerSpec {
    BreakerSpec {
        strategy: Strategy::Slow(ms(max_ms)),
        ..spec()
    }
}

/// A pseudo-random generator (SplitMix64).
pub(in crate::breaker) struct Rng(pub(in crate::breaker) u64);

impl Rng {
    /// Returns a number below `end`.
    pub(in crate::breaker) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Returns the seed of a randomised test, and prints it.
pub(in crate::breaker) fn seed() -> u64 {
    let seed = std::env::var("SENTINEL_SEED").map_or(20_261_121, |seed| seed.parse().unwrap());
    println!("SENTINEL_SEED={seed}");
    seed
}

/// Breakers that record the changes that they report.
pub(in crate::breaker) struct Stage {
    pub(in crate::breaker) breakers: Breakers,
    /// The changes reported so far.
    pub(in crate::breaker) told: Vec<ReportedChange>,
}

/// A reported change: the index of the breaker, its old and new state, and the value that opened
/// it.
type ReportedChange = (usize, BreakerState, BreakerState, Option<f64>);

/// Returns a listener that appends reported changes to `changes`.
fn note(changes: &mut Vec<ReportedChange>) -> impl FnMut(Change) {
    |change| changes.push((change.index, change.from, change.to, change.value))
}

impl Stage {
    pub(in crate::breaker) fn new(specs: impl IntoIterator<Item = BreakerSpec>) -> Self {
        Self {
            breakers: Breakers::new(specs, Tick::ZERO, None),
            told: Vec::new(),
        }
    }

    /// Replaces the breakers by breakers of `specs`, which inherit from them. Returns the old ones.
    pub(in crate::breaker) fn reload(
        &mut self,
        now: u64,
        specs: impl IntoIterator<Item = BreakerSpec>,
    ) -> Breakers {
        let new = Breakers::new(specs, at(now), Some(&self.breakers));
        std::mem::replace(&mut self.breakers, new)
    }

    /// Asks the breakers to admit a call at `now`.
    pub(in crate::breaker) fn enter(&mut self, now: u64) -> Result<Admission, RefusedBy> {
        let admitted = self.breakers.admit(at(now), &mut note(&mut self.told));
        admitted.map_err(|refusal| (refusal.index(), refusal.available_at()))
    }

    /// Ends a call at `now`, `rt` ms after it started.
    pub(in crate::breaker) fn end(
        &mut self,
        now: u64,
        admission: Admission,
        rt: u64,
        is_error: bool,
    ) {
        let notify = &mut note(&mut self.told);
        self.breakers
            .complete(at(now), admission, ms(rt), is_error, notify);
    }

    /// Cancels a call at `now`, `elapsed` ms after it started.
    pub(in crate::breaker) fn cancel(&mut self, now: u64, admission: Admission, elapsed: u64) {
        let notify = &mut note(&mut self.told);
        self.breakers
            .cancel(at(now), admission, ms(elapsed), notify);
    }

    /// Takes back the probes of a call that does not run.
    pub(in crate::breaker) fn release(&mut self, admission: Admission) {
        self.breakers.release(admission, &mut note(&mut self.told));
    }

    /// Makes a call that must pass and ends at once.
    pub(in crate::breaker) fn call(&mut self, now: u64, is_error: bool) {
        let admission = self.enter(now).expect("it passes");
        self.end(now, admission, 0, is_error);
    }

    /// Makes five failed calls, which open a breaker like [`spec`].
    pub(in crate::breaker) fn trip(&mut self, now: u64) {
        self.trip_after(now, 0);
    }

    /// Like [`trip`](Self::trip), but with calls that took `rt` ms, for a breaker that counts slow
    /// calls.
    pub(in crate::breaker) fn trip_after(&mut self, now: u64, rt: u64) {
        for _ in 0..5 {
            let call = self.enter(now).expect("it passes");
            self.end(now, call, rt, true);
        }
    }

    /// The states of all breakers.
    pub(in crate::breaker) fn states(&self) -> Vec<BreakerState> {
        (0..self.breakers.len())
            .map(|index| self.breakers.state(index))
            .collect()
    }
}

/// The expected answer to a call that the breaker at `index` refuses until `retry_at`, in ms.
pub(in crate::breaker) fn refused(index: usize, retry_at: u64) -> Result<Admission, RefusedBy> {
    Err((index, Some(at(retry_at))))
}
