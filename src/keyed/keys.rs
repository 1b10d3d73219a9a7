//! The keys of one rule: how the tokens of their calls are counted, taken and refunded.

use std::sync::OnceLock;
use std::time::Duration;

use super::calendar;
use super::costs::KeyCosts;
use super::digest::{Digest, Sip};
use super::line::Lines;
use super::queue::{self, Pace, QueueCall};
use super::rates::Rates;
use super::refill::{self, OTHER_RATE, Paid, Rate, Refill};
use super::running::{self, Pinned, RunningCall};
use super::table::{KeyTable, WordChange, WordPlace};
use super::wide::WideWindows;
use super::{Judge, window};
use crate::base::sync::{AtomicBool, AtomicU64, Bug, Ordering, planted};
use crate::call::Key;
use crate::clock::{CalendarPeriod, Periods, Tick};
use crate::stat::{MAX_TOKENS, Refusal};

use window::WindowCall;

/// A quota for each key, in a table of fixed size. See the [module](super).
#[derive(Debug)]
pub(crate) struct HotKeys {
    pub(super) table: KeyTable,
    /// The keyed hash, with random hash keys that only this table uses.
    hash: Sip,
    /// The digest of calls without a key.
    pub(super) missing: Digest,
    /// Whether a call with a key has passed without a limit, so that no word shows it.
    pub(super) has_passed_uncounted: AtomicBool,
    /// The number of times that keys were reset.
    pub(super) resets: AtomicU64,
    /// The number of times that keys were blocked.
    pub(super) blocks: AtomicU64,
    pub(super) count: Counting,
    pub(super) interval: Duration,
    /// The [slack](WindowCall::slack) of windows.
    slack: u32,
    /// The calendar periods, if the keys are counted by them.
    pub(super) periods: Option<Periods>,
    /// The creation time of the table, from which the times in words are counted.
    pub(super) origin: Tick,
    /// The rates of refilled quotas.
    pub(super) rates: Rates,
    /// The lines of waiting calls, once they have been created.
    pub(super) lines: OnceLock<Box<Lines>>,
    /// The second table of windows with large limits.
    pub(super) wide: Option<Box<WideWindows>>,
    /// The reservations of budgets, if the rule has budgets.
    pub(super) costs: Option<Box<KeyCosts>>,
}

/// The settings that the keys of a rule share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    pub(crate) count: Counting,
    /// The interval of the limit: at least 1 µs for a refilled quota, and at least 1 ms for windows
    /// and queues. [`Counting::Calendar`] and [`Counting::Running`] ignore it.
    pub(crate) interval: Duration,
    /// The number of keys not at rest for which the table guarantees a separate word each.
    pub(crate) max_keys: u32,
}

/// What is counted, and limited, for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// A quota that is refilled continuously.
    Refill,
    /// The tokens in a sliding window of two buckets.
    Window,
    /// The tokens in each calendar day or month.
    Calendar(CalendarPeriod),
    /// A queue, in which calls start one after the other. No call waits longer than this time,
    /// unless its limit sets [another time](KeyLimit::waiting).
    Queue(Duration),
    /// The number of calls that run at once.
    Running,
}

/// The limit of one key, as [`HotKeys::limit`] prepares it for a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KeyLimit {
    Refill(Rate),
    Window(u32),
    /// The tokens in a window whose limit can be larger than 2²⁰ − 1.
    WideWindow(u32),
    Calendar(u32),
    Queue(Pace, Duration),
    Running(u32),
    /// Calls pass without being counted.
    Unlimited,
}

/// The tokens, turn or place that a call has taken. They can be refunded once, if the call does not
/// run.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct KeyTokens {
    /// The time from which on the call may run.
    start: Tick,
    /// The digest of the key.
    digest: Digest,
    /// The place of the word from which the tokens were taken; `None` if nothing was taken.
    place: Option<WordPlace>,
    /// For a queue, the word before the call; otherwise the cost that the call has paid.
    pub(super) paid: u64,
    /// The word after the call.
    after: u64,
    /// The word before the call, if that was a debt at another rate; otherwise 0.
    pub(super) other: u64,
}

// === impl HotKeys ===

impl HotKeys {
    /// Creates an empty table. Times before `now` count as `now`.
    pub(crate) fn new(spec: KeySpec, now: Tick) -> Self {
        Self::of_table(KeyTable::new(spec.max_keys), spec, now)
    }

    /// Creates the keys over an empty `table`.
    pub(super) fn of_table(table: KeyTable, spec: KeySpec, now: Tick) -> Self {
        let hash = Sip::random();
        Self {
            table,
            hash,
            missing: hash.digest(&Key::MISSING),
            has_passed_uncounted: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            count: spec.count,
            interval: spec.interval,
            slack: WindowCall::slack(spec.interval),
            periods: calendar::periods(spec.count),
            origin: now,
            rates: Rates::new(),
            lines: OnceLock::new(),
            wide: None,
            costs: None,
        }
    }

    /// Prepares a limit of `threshold` tokens, plus `burst` if the quota is refilled. The fraction
    /// of `threshold` is ignored for windows, calendar periods and concurrent calls.
    pub(crate) fn limit(&self, threshold: f64, burst: u32) -> KeyLimit {
        // The conversion saturates, and reads NaN as 0.
        let whole = (threshold as u32).min(MAX_TOKENS);
        match self.count {
            Counting::Refill => {
                let rate = Rate::numbered(&self.rates, threshold, burst, self.interval);
                KeyLimit::Refill(rate)
            }
            Counting::Window if self.wide.is_some() => KeyLimit::WideWindow(whole),
            Counting::Window => KeyLimit::Window(whole.min(window::MOST)),
            Counting::Calendar(_) => KeyLimit::Calendar(whole),
            Counting::Queue(max_wait) => {
                KeyLimit::Queue(Pace::new(threshold, self.interval), max_wait)
            }
            Counting::Running => KeyLimit::Running(whole),
        }
    }

    /// Returns the digest that identifies `key` in this table.
    #[inline]
    pub(crate) fn digest(&self, key: &Key<'_>) -> Digest {
        self.hash.digest(key)
    }

    /// Takes `weight` tokens of `key`, whose limit must never change. A call of weight 0 always
    /// passes.
    ///
    /// # Errors
    ///
    /// Returns the refusal if there is no room; nothing has been taken then.
    #[inline]
    pub(crate) fn take(
        &self,
        now: Tick,
        key: Digest,
        limit: &KeyLimit,
        weight: u32,
    ) -> Result<KeyTokens, Refusal> {
        self.take_by(now, key, limit, weight, || now)
    }

    /// Takes `weight` tokens like [`take`](Self::take), but earlier calls of the key may have had
    /// another limit. `time` reads the clock.
    ///
    /// # Errors
    ///
    /// Returns the refusal if there is no room; nothing has been taken then.
    #[inline]
    pub(crate) fn take_by(
        &self,
        now: Tick,
        key: Digest,
        limit: &KeyLimit,
        weight: u32,
        time: impl Fn() -> Tick,
    ) -> Result<KeyTokens, Refusal> {
        if weight == 0 {
            return Ok(KeyTokens::nothing(now, key));
        }
        let mut other = 0;
        let (change, start, paid) = match *limit {
            KeyLimit::Refill(rate) => {
                let judge = Refill::new(self.origin, now, rate, weight);
                let change = match self.table.take(key.0, judge) {
                    Ok(change) => change,
                    Err(Some(OTHER_RATE)) => {
                        let change = self.take_anew(now, key, judge, &time)?;
                        other = change.before;
                        change
                    }
                    Err(wait_ns) => return Err(refused(now, wait_ns)),
                };
                (change, now, judge.cost())
            }
            KeyLimit::Window(limit) => {
                let judge = self.window(now, limit, weight);
                (self.decide(now, key, judge)?, now, weight.into())
            }
            KeyLimit::WideWindow(limit) => (
                self.take_in_wide_window(now, key, limit, weight)?,
                now,
                weight.into(),
            ),
            KeyLimit::Calendar(limit) => (
                self.take_in_period(now, key, limit, weight)?,
                now,
                weight.into(),
            ),
            KeyLimit::Queue(pace, max_wait) => {
                let judge = QueueCall::new(self.origin, now, pace, max_wait, weight);
                let change = self.decide(now, key, judge)?;
                let wait = Duration::from_nanos(judge.wait_ns(change.after));
                (change, now + wait, change.before)
            }
            KeyLimit::Running(limit) => {
                let judge = RunningCall::new(limit, weight);
                (self.decide(now, key, judge)?, now, weight.into())
            }
            KeyLimit::Unlimited => return Ok(self.pass_uncounted(now, key)),
        };
        Ok(KeyTokens {
            start,
            digest: key,
            place: Some(change.place),
            paid,
            after: change.after,
            other,
        })
    }

    /// Lets a call of `key` pass without a limit.
    #[inline(never)]
    fn pass_uncounted(&self, now: Tick, key: Digest) -> KeyTokens {
        self.note_uncounted(key);
        KeyTokens::nothing(now, key)
    }

    /// Notes that a call of `key` passes without a limit.
    pub(crate) fn note_uncounted(&self, key: Digest) {
        // Written only once, so that the cache line stays shared between threads.
        if key != self.missing && !self.has_passed_uncounted.load(Ordering::Relaxed) {
            self.has_passed_uncounted.store(true, Ordering::Relaxed);
        }
    }

    /// Returns when `key` has room for `weight` tokens: `now` if it has room already, `None` if it
    /// never has. Takes nothing.
    pub(crate) fn available_at(
        &self,
        now: Tick,
        key: Digest,
        limit: &KeyLimit,
        weight: u32,
    ) -> Option<Tick> {
        if weight == 0 || *limit == KeyLimit::Unlimited {
            return Some(now);
        }
        if let KeyLimit::WideWindow(limit) = *limit {
            return self.wide_room_at(now, key, limit, weight);
        }
        let mut room_at = None;
        self.judged(now, limit, weight, &mut |judge| {
            let verdict = judge.take(self.table.word(key.0, judge));
            let wait_ns = verdict.map_or_else(|wait_ns| wait_ns, |_| Some(0));
            room_at = wait_ns.map(|wait_ns| now + Duration::from_nanos(wait_ns));
        });
        room_at
    }

    /// Returns how many tokens `key` could take now, one by one. Reserved tokens are subtracted.
    pub(crate) fn left(&self, now: Tick, key: Digest, limit: &KeyLimit) -> u32 {
        // Reads the gauge first, as an admission does.
        let reserved = self.reserved(key);
        self.left_unreserved(now, key, limit)
            .saturating_sub(reserved)
    }

    /// Returns how many tokens `key` could take now if none were reserved, or how many a
    /// [provider](Self::for_all_callers) has left, if these are fewer.
    pub(super) fn left_unreserved(&self, now: Tick, key: Digest, limit: &KeyLimit) -> u32 {
        let left = self.left_by_word(now, key, limit);
        // The number of the provider is read after the word, as a charge moves the word first.
        self.provider_left(now).unwrap_or(left).min(left)
    }

    /// Returns how many tokens `key` could take now by its word alone.
    pub(super) fn left_by_word(&self, now: Tick, key: Digest, limit: &KeyLimit) -> u32 {
        if let KeyLimit::WideWindow(limit) = *limit {
            return self.left_in_wide_window(now, key, limit);
        }
        let mut left = 0;
        self.judged(now, limit, 1, &mut |judge| {
            left = judge.left(self.table.word(key.0, judge));
        });
        left
    }

    /// Returns the time at which the key has one more token left, if it takes nothing before; `now`
    /// if it never will have more.
    pub(crate) fn next_change(&self, now: Tick, key: Digest, limit: &KeyLimit) -> Tick {
        let left = self.left_unreserved(now, key, limit);
        let more = match *limit {
            // One more call would queue behind all calls that could be made now.
            KeyLimit::Queue(pace, max_wait) => pace
                .time_of(left)
                .and_then(|behind| max_wait.checked_sub(behind))
                .and_then(|most| self.available_at(now, key, &limit.waiting(most), 1)),
            // Asks for room for one more token, because the start of the next bucket of a window
            // may bring none.
            _ => {
                let wanted = left.saturating_add(1);
                let more = self.available_at(now, key, limit, wanted);
                more.map(|at| self.after_reset(now, wanted, at))
            }
        };
        more.unwrap_or(now)
    }

    /// Refunds a call that does not run after all. `time` reads the clock. A window is refunded
    /// while it contains the call's bucket, a calendar period until it ends, and a queue while no
    /// later call stands in it. The refund of a refilled quota is reduced by the tokens earned
    /// since the call's start.
    pub(crate) fn refund(&self, time: impl Fn() -> Tick, taken: &KeyTokens) {
        let KeyTokens {
            start,
            paid,
            after,
            other,
            ..
        } = *taken;
        match self.count {
            Counting::Refill => {
                let early = planted(Bug::RefundByEarlierTime).then(&time);
                self.change(taken, &|word| {
                    // The clock is read after the word (acquire), so the word was not written with
                    // a later clock reading.
                    let now = early.unwrap_or_else(&time);
                    let cost = paid;
                    let paid = Paid {
                        start,
                        cost,
                        after,
                        other,
                    };
                    refill::refund(&self.rates, self.origin, now, word, paid)
                });
            }
            // The conversions are exact, because here and below `paid` was converted from a `u32`.
            Counting::Window if self.wide.is_some() => self.refund_wide_window(taken, paid as u32),
            Counting::Window => {
                self.change(taken, &|word| window::refund(word, after, paid as u32));
            }
            Counting::Calendar(_) => {
                self.change(taken, &|word| calendar::refund(word, after, paid as u32));
            }
            Counting::Queue(_) => {
                self.change(taken, &|word| queue::cancel(word, paid, after));
            }
            Counting::Running => {
                let left = self.change(taken, &|word| running::release(word, paid as u32));
                self.released(taken.place, left);
            }
        }
    }

    /// Releases the place that a call of `weight` kept until its end. Does nothing unless
    /// concurrent calls are counted.
    #[inline]
    pub(crate) fn release(&self, pinned: Pinned, weight: u32) {
        let Some(place) = pinned.place() else {
            return;
        };
        if self.count == Counting::Running {
            let change = |word| running::release(word, weight);
            let left = self.table.change_pinned(place, change);
            self.released(Some(place), left);
        }
    }

    /// Gives the free place to a waiting call if `left`, the word at `place` after a release, is
    /// marked.
    #[inline]
    fn released(&self, place: Option<WordPlace>, left: Option<u64>) {
        if left.is_some_and(running::is_marked) {
            self.let_in(place);
        }
    }

    /// Calls `look` with the judge of a call of `weight` at `limit`. Only for readers: calls that
    /// take tokens use code that is specialized for each kind of judge.
    pub(super) fn judged(
        &self,
        now: Tick,
        limit: &KeyLimit,
        weight: u32,
        look: &mut dyn FnMut(&dyn Judge),
    ) {
        match *limit {
            KeyLimit::Refill(rate) => {
                let call = Refill::new(self.origin, now, rate, weight);
                look(&call.at_any_rate(&self.rates, None));
            }
            KeyLimit::Window(limit) => look(&self.window(now, limit, weight)),
            // A wide window has two tables, which the callers read themselves.
            KeyLimit::WideWindow(_) => {}
            KeyLimit::Calendar(limit) => look(&self.in_period(now, limit, weight)),
            KeyLimit::Queue(pace, max_wait) => {
                look(&QueueCall::new(self.origin, now, pace, max_wait, weight));
            }
            KeyLimit::Running(limit) => look(&RunningCall::new(limit, weight)),
            KeyLimit::Unlimited => {}
        }
    }

    /// Returns the judge of a call of `weight` in a sliding window.
    #[inline]
    pub(super) fn window(&self, now: Tick, limit: u32, weight: u32) -> WindowCall {
        WindowCall::new(now, self.interval, self.slack, limit, weight)
    }

    /// Takes the tokens of `key` if `judge` lets the call pass.
    #[inline]
    pub(super) fn decide(
        &self,
        now: Tick,
        key: Digest,
        judge: impl Judge + Copy,
    ) -> Result<WordChange, Refusal> {
        let outcome = self.table.take(key.0, judge);
        outcome.map_err(|wait_ns| refused(now, wait_ns))
    }

    /// Changes the word from which `taken` was taken, if it still belongs to its key. Returns the
    /// new word.
    #[inline]
    fn change(&self, taken: &KeyTokens, change: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        self.table.change(taken.place?, taken.digest.0, change)
    }
}

/// Creates the refusal of a call at `now` for which there is room after `wait_ns`; `None` means
/// never.
#[inline]
pub(super) fn refused(now: Tick, wait_ns: Option<u64>) -> Refusal {
    let at = wait_ns.map(|wait_ns| now + Duration::from_nanos(wait_ns));
    Refusal::new(0, now, at)
}

// === impl KeyLimit ===

impl KeyLimit {
    /// Returns this limit for calls that wait at most `max_wait` in a queue. Other limits are
    /// unchanged.
    pub(crate) fn waiting(self, max_wait: Duration) -> Self {
        match self {
            Self::Queue(pace, _) => Self::Queue(pace, max_wait),
            other => other,
        }
    }
}

// === impl KeyTokens ===

impl KeyTokens {
    /// The value for a call that has taken no tokens.
    const fn nothing(now: Tick, digest: Digest) -> Self {
        Self {
            start: now,
            digest,
            place: None,
            paid: 0,
            after: 0,
            other: 0,
        }
    }

    /// The value for a running call of `digest`, which counts in the word at `place`.
    pub(super) const fn at_once(now: Tick, digest: Digest, place: WordPlace) -> Self {
        Self {
            start: now,
            digest,
            place: Some(place),
            paid: 1,
            after: 0,
            other: 0,
        }
    }

    /// The place of the word that the call has changed, if it has changed one.
    pub(super) const fn place(&self) -> Option<WordPlace> {
        self.place
    }

    /// The word after the call.
    pub(super) const fn after(&self) -> u64 {
        self.after
    }

    /// The digest of the key.
    pub(crate) const fn digest(&self) -> Digest {
        self.digest
    }

    /// The place in the table that the call keeps while it runs.
    pub(crate) const fn pinned(&self) -> Pinned {
        Pinned::at(self.place)
    }

    /// The time from which on the call may run: the time of the call, unless it waits in a queue.
    pub(crate) const fn start(&self) -> Tick {
        self.start
    }
}
