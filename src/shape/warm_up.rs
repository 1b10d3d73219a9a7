//! A threshold that starts low after idle times and grows with the load.
//!
//! ```text
//! threshold T, cold factor f, stored tokens S
//!
//! limit
//!   T ├───────────────╮                 f = 3, T = 100 per second, period 10 s:
//!     │                ╲                warning 500, max 1000
//!     │                 ╲____           S  499   500   750   1000
//! T/f ├                      ╲___       →  100   100    50   33.3
//!     └───────────────┼──────────┼─▶ S
//!     0            warning      max
//! ```
//!
//! Stored tokens measure how cold a rule is. A new rule has the maximum, and its limit is `T/f`.
//! Calls that pass use stored tokens up. From the warning line down, the rule is warm, and the
//! limit is `T`. While fewer tokens pass than a cold rule admits, stored tokens come back at a rate
//! of `T` per interval. With `q` tokens per second and a period `p`:
//!
//! ```text
//! warning = p·q / (f − 1)      max = warning + 2·p·q / (1 + f)
//! limit   = T / (1 + (f − 1)·(S − warning) / (max − warning))     above warning
//! ```
//!
//! Under full load, a rule then gets from the maximum to the warning line in exactly the period.
//! (In the sources, `1 / limit` is a straight line of slope `(f − 1) / q / (max − warning)`.)
//!
//! The first caller in each *step* refills. If the rule is warm, or if fewer tokens passed in the
//! previous step than a cold rule admits, the refill adds `q` times the time since the last refill.
//! Then it subtracts the tokens that passed; if no call came in the previous step, none passed.
//!
//! A step is a whole number of seconds. It is at least the interval, because a window can admit its
//! whole limit in one second of the interval, and at least the time of one token at the cold rate.
//! The limit of a cold rule is counted in whole tokens, as in a window. Otherwise the 3 tokens per
//! second that fit into a limit of 3.33 would look like too little load, and the rule would stay
//! cold for ever. If calls come in batches, there can be steps in which no call comes but a queue
//! has turns. One refill covers these steps together, with the tokens that passed in all of them.
//!
//! Tokens are `f64`. A ramp of less than one token, or of more tokens than an `f64` can distinguish
//! (2⁵³), is ignored, and the limit is `T`. This is the case for a period of 0, a cold factor of 1
//! and a threshold of 0. If the limit of a cold rule with `T < f` were cut to whole calls, it would
//! be 0, and the rule would block for ever. So [`WarmUp::whole`] admits at least one call.
//!
//! A caller claims the refill by a compare-and-swap of the time at which it is due. Callers that
//! lose the claim, or come before the refill is done, use the tokens of the previous step. The
//! winner changes the tokens by compare-and-swap, so that the refills of two successive steps both
//! count. A call with a late clock reading refills nothing.
//!
//! A refill writes the number of tokens that had passed, unless a later refill has been claimed
//! meanwhile. In that case the later refill subtracts the tokens of both steps. So the number never
//! decreases, and no tokens are subtracted twice. The number is stored with release and loaded with
//! acquire: a thread that finds the number of a later refill also sees that this refill was
//! claimed. All other words are relaxed, because each is valid by itself and publishes no other
//! data.
//!
//! # Accuracy
//!
//! Under full load, a rule with a queue is warm after the period, within two steps and two calls.
//! In a window the limit is cut to whole calls (at a limit of 1.9, one call passes), and warming up
//! can take up to twice as long.
//!
//! # Source
//!
//! `SmoothWarmingUp` of Guava's `RateLimiter`, in the form of the warm-up controller of Alibaba
//! Sentinel. That controller cuts tokens to whole numbers (so that short ramps block for ever),
//! never refills exactly at the warning line, and supports only intervals of a second.

use std::time::Duration;

use super::curve::{Curve, Ramp};
use crate::base::sync::{Arc, AtomicU64, Bug, Ordering, planted};
use crate::clock::Tick;

/// Stands for "never refilled": after any refill, the next refill is due later than at 0.
const NEVER: u64 = 0;
/// The maximum number of steps in which a prediction looks for room. It bounds the work of a
/// prediction, which then uses the limit of a cold rule.
const MOST_STEPS: u32 = 64;

/// The state of a rule that warms up: see the [module](self).
#[derive(Debug)]
pub(crate) struct WarmUp {
    curve: Curve,
    /// The stored tokens, as bits of an `f64`.
    stored: AtomicU64,
    /// The time at which the next refill is due, in ns.
    due: AtomicU64,
    /// The total of tokens that had passed at the last refill.
    passed: AtomicU64,
}

/// Returns how many tokens have passed between two counts, which are kept modulo 2³²; 0 if the
/// later count is smaller.
fn since(before: u64, passed: u64) -> u64 {
    let since = (passed as u32).wrapping_sub(before as u32);
    (since as i32).max(0) as u64
}

// === impl WarmUp ===

impl WarmUp {
    /// Creates a cold rule of `threshold` tokens per `interval`, which admits
    /// `threshold / cold_factor` at first and is warm after `period` of full load.
    pub(crate) fn new(
        threshold: f64,
        interval: Duration,
        period: Duration,
        cold_factor: f64,
    ) -> Self {
        let ramp = Ramp::new(threshold, interval, period, cold_factor);
        Self {
            curve: Curve {
                threshold,
                interval,
                period,
                cold_factor,
                ramp,
            },
            stored: AtomicU64::new(ramp.map_or(0.0, |ramp| ramp.max).to_bits()),
            due: AtomicU64::new(NEVER),
            passed: AtomicU64::new(0),
        }
    }

    /// Returns the limit per interval at `now`. Does the refill that is due.
    ///
    /// `last_turn` is the last turn in the queue of the rule, before this call joins it; `None` if
    /// the rule has no queue.
    ///
    /// `passed` returns the total of tokens that have passed in the statistics of the rule, modulo
    /// 2³². It is called once in each step. If the total restarts at 0, the next refill subtracts
    /// nothing.
    pub(crate) fn limit(
        &self,
        now: Tick,
        last_turn: Option<Tick>,
        passed: impl FnOnce() -> u64,
    ) -> f64 {
        self.refill(now, last_turn, passed);
        self.curve.at(self.stored())
    }

    /// Does the refill that is due at `now`, as [`limit`](Self::limit) does.
    #[inline]
    pub(crate) fn refill(&self, now: Tick, last_turn: Option<Tick>, passed: impl FnOnce() -> u64) {
        if let Some(ramp) = &self.curve.ramp {
            let due = self.due.load(Ordering::Relaxed);
            if now.as_nanos() >= due {
                self.refill_from(ramp, now, due, last_turn, passed);
            }
        }
    }

    /// Returns the time, at `from` or later, at which a call can pass if no other call comes. Must
    /// be called after a [`refill`](Self::refill). `room` returns the time from which on the call
    /// could pass under a constant limit; `None` means never. `passed` returns the total of tokens
    /// that a refill at a later time would find; from `known` on, this includes all tokens that
    /// have passed by now.
    ///
    /// In the current step no refill is due, and the limit does not change. In the next step the
    /// tokens that passed in the current step are subtracted, which may warm the rule up. After
    /// that the rule only gets colder. Limits are tried in this order, because there can be room
    /// under an earlier limit and none under a later one.
    pub(crate) fn available_at(
        &self,
        from: Tick,
        last_turn: Option<Tick>,
        known: Tick,
        passed: &dyn Fn(Tick) -> u64,
        room: &dyn Fn(f64) -> Option<Tick>,
    ) -> Option<Tick> {
        let due = self.due.load(Ordering::Relaxed);
        let present = room(self.curve.at(self.stored())).map(|at| at.max(from));
        let Some(ramp) = self.curve.ramp.filter(|_| due != NEVER) else {
            return present;
        };
        let due_at = Tick::from_nanos(due);
        if present.is_some_and(|present| present < due_at) {
            return present;
        }
        let mut at = due_at.max(from);
        for _ in 0..MOST_STEPS {
            let begun = ramp.begin(at);
            let since_last = since(self.passed.load(Ordering::Relaxed), passed(at));
            let load = ramp.load(begun, due, last_turn, since_last);
            let stored = ramp.refilled(self.stored(), begun, due, load);
            let found = room(self.curve.at(stored));
            if found.is_some_and(|found| found <= at) {
                return Some(at);
            }
            // Tokens that passed before this step may become known only during this step.
            let is_known_later = begun == due && at < known && ramp.begin(known) == due;
            at = match found {
                Some(found) if is_known_later => found.min(known),
                Some(found) => found,
                None if is_known_later => known,
                None => return None,
            };
        }
        // No step with room was found: use the lowest limit, that of a cold rule.
        room(self.curve.at(ramp.max))
    }

    /// Returns `limit` in whole calls: at least one, if the threshold is at least one.
    pub(crate) fn whole(&self, limit: f64) -> u32 {
        // Conversions saturate.
        (limit as u32).max(u32::from(self.curve.threshold >= 1.0))
    }

    /// Returns the stored tokens. The more there are, the colder the rule is.
    pub(crate) fn stored(&self) -> f64 {
        f64::from_bits(self.stored.load(Ordering::Relaxed))
    }

    /// Returns `old` itself if both rules are equal, so that calls that still use the old rule
    /// count as well. Otherwise returns this rule with the state of `old`.
    ///
    /// This rule must not have been used by any call yet, and must share its statistics with `old`.
    pub(crate) fn inheriting(self, old: &Arc<Self>) -> Arc<Self> {
        if self.curve == old.curve {
            return old.clone();
        }
        self.take_over(old);
        Arc::new(self)
    }

    /// Takes over the stored tokens of `old`, in proportion, if only the thresholds differ.
    /// Otherwise this rule stays cold. A refill of `old` in progress can be lost.
    fn take_over(&self, old: &Self) {
        let (Some(scale), Some(ramp), Some(was)) = (
            self.curve.scale(&old.curve),
            self.curve.ramp,
            old.curve.ramp,
        ) else {
            return;
        };
        let due = old.due.load(Ordering::Relaxed);
        if due == NEVER {
            return;
        }
        // The time of the last refill: the start of a step of the old rule.
        let filled = due - was.step_ns;
        let due = (filled - filled % ramp.step_ns).saturating_add(ramp.step_ns);
        let stored = (old.stored() * scale).min(ramp.max);
        self.stored.store(stored.to_bits(), Ordering::Relaxed);
        self.due.store(due, Ordering::Relaxed);
        self.passed
            .store(old.passed.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Does the refill that is `due`, unless another call has claimed it.
    #[cold]
    fn refill_from(
        &self,
        ramp: &Ramp,
        now: Tick,
        due: u64,
        last_turn: Option<Tick>,
        passed: impl FnOnce() -> u64,
    ) {
        let begun = ramp.begin(now);
        let next = begun.saturating_add(ramp.step_ns);
        let claimed = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() && !planted(Bug::FillUnclaimed) {
            return;
        }
        let since_last = self.note(passed(), next);
        if due == NEVER {
            // This is the first refill. Nothing is known about the time before, so the rule stays
            // cold.
            return;
        }
        let load = ramp.load(begun, due, last_turn, since_last);
        let mut found = self.stored.load(Ordering::Relaxed);
        loop {
            let stored = ramp.refilled(f64::from_bits(found), begun, due, load);
            if planted(Bug::FillBlind) {
                return self.stored.store(stored.to_bits(), Ordering::Relaxed);
            }
            match self.stored.compare_exchange_weak(
                found,
                stored.to_bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => found = now,
            }
        }
    }

    /// Notes the total of tokens that had `passed` at this refill, after which the next refill is
    /// due at `next`. Returns how many passed since the last refill; 0 if a later refill accounts
    /// for them.
    fn note(&self, passed: u64, next: u64) -> u64 {
        let mut before = self.passed.load(Ordering::Acquire);
        loop {
            let is_newest = self.due.load(Ordering::Relaxed) == next;
            if !is_newest && !planted(Bug::PassedGoesBack) {
                return 0;
            }
            match self
                .passed
                .compare_exchange(before, passed, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return since(before, passed),
                Err(found) => before = found,
            }
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/warm_up/mod.rs"]
mod tests;
