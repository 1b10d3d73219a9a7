//! The keys of one rule: how their calls are counted, taken and refunded.

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
    /// Made for these keys alone.
    hash: Sip,
    /// The digest of calls without a key.
    missing: Digest,
    /// Whether a call with a key has passed without a limit.
    has_passed_uncounted: AtomicBool,
    pub(super) resets: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) count: Counting,
    pub(super) interval: Duration,
    /// The [slack](WindowCall::slack) of windows.
    slack: u32,
    /// The days or months, where these are counted.
    pub(super) periods: Option<Periods>,
    /// When the table was made: its times are counted from there.
    pub(super) origin: Tick,
    /// The rates of a quota that is refilled.
    pub(super) rates: Rates,
    /// The calls at once that wait, if any ever could.
    pub(super) lines: OnceLock<Box<Lines>>,
    /// What is reserved, where costs are counted.
    pub(super) costs: Option<Box<KeyCosts>>,
}

/// The settings that the keys of a rule share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    pub(crate) count: Counting,
    /// At least 1 µs for a refilled quota, and 1 ms for others. Of no meaning for
    /// [`Counting::Calendar`] and [`Counting::Running`].
    pub(crate) interval: Duration,
    /// How many keys that are not at rest have a word of their own.
    pub(crate) max_keys: u32,
}

/// How the calls of one key are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// A quota that is refilled all the time.
    Refill,
    /// A number of tokens in a sliding window of two buckets.
    Window,
    /// A number of tokens in each day or month.
    Calendar(CalendarPeriod),
    /// One after the other, each waiting no longer than this, unless its limit
    /// [says otherwise](KeyLimit::waiting).
    Queue(Duration),
    /// A number of calls at once.
    Running,
}

/// The limit of one key, made ready by the [`HotKeys`] that it is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KeyLimit {
    Refill(Rate),
    Window(u32),
    Calendar(u32),
    Queue(Pace, Duration),
    Running(u32),
    /// Nothing is counted.
    Unlimited,
}

/// The tokens, turn or place that a call has taken. It is either used or, once, returned.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct KeyTokens {
    start: Tick,
    digest: Digest,
    /// `None` if nothing was taken.
    place: Option<WordPlace>,
    /// For a queue the word before the call, else the cost that the call has paid.
    pub(super) paid: u64,
    /// The word after the call.
    after: u64,
    /// The word before it, if that was a debt at another rate; else 0.
    pub(super) other: u64,
}

// === impl HotKeys ===

impl HotKeys {
    /// An empty table, in which all times before `now` count as one.
    pub(crate) fn new(spec: KeySpec, now: Tick) -> Self {
        Self::of_table(KeyTable::new(spec.max_keys), spec, now)
    }

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
            costs: None,
        }
    }

    /// A limit of `threshold` tokens, and of `burst` more where the quota is
    /// refilled. For a window, a day or month, and calls at once, a fraction counts for nothing.
    pub(crate) fn limit(&self, threshold: f64, burst: u32) -> KeyLimit {
        // The conversion saturates, and reads NaN as 0.
        let whole = (threshold as u32).min(MAX_TOKENS);
        match self.count {
            Counting::Refill => {
                let rate = Rate::numbered(&self.rates, threshold, burst, self.interval);
                KeyLimit::Refill(rate)
            }
            Counting::Window => KeyLimit::Window(whole.min(window::MOST)),
            Counting::Calendar(_) => KeyLimit::Calendar(whole),
            Counting::Queue(max_wait) => {
                KeyLimit::Queue(Pace::new(threshold, self.interval), max_wait)
            }
            Counting::Running => KeyLimit::Running(whole),
        }
    }

    /// Returns whether a call with a key has passed since the table was made. Looks at slots until
    /// it finds one of a key.
    pub(crate) fn has_met_key(&self) -> bool {
        let missing = self.missing;
        let has_reserved = |costs: &KeyCosts| costs.knows_others_than(missing);
        self.has_passed_uncounted.load(Ordering::Relaxed)
            || self.table.has_owner_but(missing.0)
            || self.costs.as_deref().is_some_and(has_reserved)
    }

    /// The digest by which `key` is known.
    #[inline]
    pub(crate) fn digest(&self, key: &Key<'_>) -> Digest {
        self.hash.digest(key)
    }

    /// Takes `weight` tokens of `key`, which always has this limit. No tokens pass at any limit.
    ///
    /// # Errors
    ///
    /// Nothing has been taken, as there is no room.
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

    /// [`take`](Self::take) of a key whose limit may have been another one; `time` returns the
    /// present.
    ///
    /// # Errors
    ///
    /// Nothing has been taken, as there is no room.
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

    #[inline(never)]
    fn pass_uncounted(&self, now: Tick, key: Digest) -> KeyTokens {
        self.note_uncounted(key);
        KeyTokens::nothing(now, key)
    }

    /// Notes that a call of `key` passes without a limit.
    pub(crate) fn note_uncounted(&self, key: Digest) {
        // Written once, so that threads share the line.
        if key != self.missing && !self.has_passed_uncounted.load(Ordering::Relaxed) {
            self.has_passed_uncounted.store(true, Ordering::Relaxed);
        }
    }

    /// From when on `key` has room for `weight` tokens, `now` if it has; takes nothing.
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
        let mut room_at = None;
        self.judged(now, limit, weight, &mut |judge| {
            let verdict = judge.take(self.table.word(key.0, judge));
            let wait_ns = verdict.map_or_else(|wait_ns| wait_ns, |_| Some(0));
            room_at = wait_ns.map(|wait_ns| now + Duration::from_nanos(wait_ns));
        });
        room_at
    }

    /// How many tokens `key` could take now, one by one. What is reserved is not left.
    pub(crate) fn left(&self, now: Tick, key: Digest, limit: &KeyLimit) -> u32 {
        // The gauge first, as an admission does.
        let reserved = self.reserved(key);
        self.left_unreserved(now, key, limit)
            .saturating_sub(reserved)
    }

    /// How many tokens `key` could take if nothing was reserved.
    pub(super) fn left_unreserved(&self, now: Tick, key: Digest, limit: &KeyLimit) -> u32 {
        let mut left = 0;
        self.judged(now, limit, 1, &mut |judge| {
            left = judge.left(self.table.word(key.0, judge));
        });
        left
    }

    /// From when on a key that takes nothing has one more token; `now` if it never has.
    pub(crate) fn next_change(&self, now: Tick, key: Digest, limit: &KeyLimit) -> Tick {
        let left = self.left_unreserved(now, key, limit);
        let more = match *limit {
            // One more stands behind all that are left.
            KeyLimit::Queue(pace, max_wait) => pace
                .time_of(left)
                .and_then(|behind| max_wait.checked_sub(behind))
                .and_then(|most| self.available_at(now, key, &limit.waiting(most), 1)),
            // Nothing may leave when the next bucket of a window begins.
            _ => self.available_at(now, key, limit, left.saturating_add(1)),
        };
        more.unwrap_or(now)
    }

    /// Takes back the share of a call that does not run after all; `time` returns the present. A
    /// window is refunded while the call's bucket still counts, a day or month until it ends, a queue
    /// while no other call stands behind this one, and a quota that is refilled less the time since
    /// the call's start.
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
                    // After the word (acquire): so no call has changed that by a
                    // later reading, of which its new value was made.
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
            // `paid` came from a `u32`, here and below.
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

    /// A call of `weight` has ended that has kept its place. Nothing to do, unless calls
    /// at once are counted.
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

    /// Calls have given their places at once back at `place`, which has left this word there.
    #[inline]
    fn released(&self, place: Option<WordPlace>, left: Option<u64>) {
        if left.is_some_and(running::is_marked) {
            self.let_in(place);
        }
    }

    /// How many calls were judged on the word of all keys that have none of their
    /// own, because the table was full.
    pub(crate) fn overflows(&self) -> u64 {
        let of_gauges = self.costs.as_ref().map_or(0, |costs| costs.overflows());
        self.table.overflows() + of_gauges
    }

    /// How many keys are not at rest. Looks at the whole table.
    pub(crate) fn keys_in_use(&self, now: Tick) -> usize {
        let mut in_use = 0;
        self.judged(now, &self.limit(0.0, 0), 0, &mut |judge| {
            in_use = self.table.in_use(judge);
        });
        in_use
    }

    /// Its size in bytes: the same from the start, but for the lines of calls that may wait.
    pub(crate) fn footprint(&self) -> usize {
        let lines = self.lines.get().map_or(0, |lines| lines.footprint());
        let costs = self.costs.as_ref().map_or(0, |costs| costs.footprint());
        size_of::<Self>() - size_of::<KeyTable>() + self.table.footprint() + lines + costs
    }

    /// Calls `look` with what judges a call of `weight` at `limit`. Only for readers: calls that
    /// take have a code for each kind.
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
            KeyLimit::Calendar(limit) => look(&self.in_period(now, limit, weight)),
            KeyLimit::Queue(pace, max_wait) => {
                look(&QueueCall::new(self.origin, now, pace, max_wait, weight));
            }
            KeyLimit::Running(limit) => look(&RunningCall::new(limit, weight)),
            KeyLimit::Unlimited => {}
        }
    }

    #[inline]
    pub(super) fn window(&self, now: Tick, limit: u32, weight: u32) -> WindowCall {
        WindowCall::new(now, self.interval, self.slack, limit, weight)
    }

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

    #[inline]
    fn change(&self, taken: &KeyTokens, change: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        self.table.change(taken.place?, taken.digest.0, change)
    }
}

/// The refusal of a call at `now` that has room after so long, or never.
#[inline]
pub(super) fn refused(now: Tick, wait_ns: Option<u64>) -> Refusal {
    let at = wait_ns.map(|wait_ns| now + Duration::from_nanos(wait_ns));
    Refusal::new(0, now, at)
}

// === impl KeyLimit ===

impl KeyLimit {
    /// Returns this limit for calls that wait in a queue for at most `most`.
    pub(crate) fn waiting(self, most: Duration) -> Self {
        match self {
            Self::Queue(pace, _) => Self::Queue(pace, most),
            other => other,
        }
    }
}

// === impl KeyTokens ===

impl KeyTokens {
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

    /// One place at once, which a call of `digest` has at `place`.
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

    /// The digest by which the key is known.
    pub(crate) const fn digest(&self) -> Digest {
        self.digest
    }

    /// The place that the call keeps while it runs.
    pub(crate) const fn pinned(&self) -> Pinned {
        Pinned::at(self.place)
    }

    /// From when on the call may run: its now, unless it waits in a queue.
    pub(crate) const fn start(&self) -> Tick {
        self.start
    }
}
