//! An exact, simple and slow oracle for each kind of counting.

use std::time::Duration;

use super::super::Counting;
use crate::clock::CalendarPeriod;

/// The tokens that a call has taken, to be refunded or ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The id of the call.
    id: usize,
    /// The time of the call, in ns.
    now: i128,
    /// The number of tokens.
    n: i128,
}

/// The payment of a call to a refilled quota.
#[derive(Clone, Copy, Debug)]
struct Debt {
    /// The id of the call.
    id: usize,
    /// The cost of the call, in 1/16 ns.
    cost: i128,
    /// The cost of a token, in 1/16 ns.
    rate: i128,
    /// The end of the debt after the call, in 1/16 ns.
    after: i128,
    /// The end of the debt and its rate before the call, if there was a debt at another rate.
    other: Option<(i128, i128)>,
}

/// The history of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Exact {
    /// The end of the debt of a refilled quota, in 1/16 ns.
    paid_off: i128,
    /// The cost of a token at the rate of the last call, in 1/16 ns.
    rate: i128,
    /// Whether debts keep their end when the rate changes, instead of being converted.
    keeps_times: bool,
    /// The payment of each call.
    debts: Vec<Debt>,
    /// The calls counted by a window or calendar, each as its id, its bucket or period, and its
    /// tokens.
    counted: Vec<(usize, i128, i128)>,
    /// The ids and turns of the calls of a queue.
    queue: Vec<(usize, i128)>,
    /// The tokens of running calls.
    running: i128,
    /// The number of calls so far, which is the id of the last call.
    calls: usize,
    /// The time by which the calendar is ahead of the clock, in ns.
    ahead: i128,
}

/// Returns the number of the period in which `ns` lies, counted from the midnight that begins 1970.
/// Days before that have negative numbers.
fn periods(period: CalendarPeriod, ns: i128) -> i128 {
    let mut day = ns.div_euclid(86_400_000_000_000);
    if period == CalendarPeriod::Day || day < 0 {
        return day;
    }
    let (mut year, mut months) = (1970, 0);
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap { 29 } else { 28 };
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if day < length {
                return months;
            }
            day -= length;
            months += 1;
        }
        year += 1;
    }
}

impl Exact {
    pub(super) fn new(keeps_times: bool) -> Self {
        Self {
            keeps_times,
            ..Self::default()
        }
    }

    /// Sets by how much the calendar is ahead of the clock, in ns.
    pub(super) fn ahead(self, ahead: i128) -> Self {
        Self { ahead, ..self }
    }

    /// Takes `n` tokens from a limit of `threshold` and `burst` whole tokens in `interval`. Returns
    /// the start of the call if it passes.
    pub(super) fn take(
        &mut self,
        count: Counting,
        interval: Duration,
        (threshold, burst): (u32, u32),
        now: u64,
        n: u32,
    ) -> Option<(i128, Held)> {
        let (now, n) = (i128::from(now), i128::from(n));
        let (threshold, burst) = (i128::from(threshold), i128::from(burst));
        let interval = interval.as_nanos() as i128;
        self.calls += 1;
        let id = self.calls;
        let held = Held { id, now, n };
        if n == 0 {
            return Some((now, held));
        }
        if threshold == 0 {
            return None;
        }
        let ceil = |a: i128, b: i128| (a + b - 1) / b;
        let mut start = now;
        match count {
            Counting::Refill => {
                let part = if self.keeps_times { 1 } else { 16 };
                let cost = ceil(interval * 16, threshold * part) * part;
                let mut debt = (self.paid_off - now * 16).max(0);
                if debt > 0 && !self.keeps_times {
                    debt = ceil(ceil(debt * cost, self.rate), 16) * 16;
                }
                if debt + n * cost > (threshold + burst) * cost {
                    return None;
                }
                let is_other = self.paid_off > now * 16 && self.rate != cost;
                let before = (self.paid_off, self.rate);
                self.paid_off = now * 16 + debt + n * cost;
                self.rate = cost;
                self.debts.push(Debt {
                    id,
                    cost: n * cost,
                    rate: cost,
                    after: self.paid_off,
                    other: (is_other && !self.keeps_times).then_some(before),
                });
            }
            Counting::Window => {
                let bucket = now / (interval / 2);
                let counts =
                    |&&(_, at, _): &&(usize, i128, i128)| (bucket - 1..=bucket).contains(&at);
                let sum: i128 = self.counted.iter().filter(counts).map(|call| call.2).sum();
                if sum + n > threshold {
                    return None;
                }
                self.counted.push((id, bucket, n));
            }
            Counting::Calendar(period) => {
                let number = periods(period, now + self.ahead);
                let is_own = |call: &&(usize, i128, i128)| call.1 == number;
                let sum: i128 = self.counted.iter().filter(is_own).map(|call| call.2).sum();
                if sum + n > threshold {
                    return None;
                }
                self.counted.push((id, number, n));
            }
            Counting::Queue(max_wait) => {
                if let Some(&(_, last)) = self.queue.last() {
                    start = start.max(last + ceil(interval * n, threshold));
                }
                if start - now > max_wait.as_nanos() as i128 {
                    return None;
                }
                self.queue.push((id, start));
            }
            Counting::Running => {
                if self.running + n > threshold {
                    return None;
                }
                self.running += n;
            }
        }
        Some((start, held))
    }

    /// Refunds what a call has taken, and ends it.
    pub(super) fn refund(&mut self, now: u64, held: Held) {
        let now = i128::from(now) * 16;
        let debt = self.debts.iter().find(|debt| debt.id == held.id);
        let is_last = |debt: &Debt| {
            // A key that is at rest by now already has its whole quota, so its earlier debt is not
            // restored.
            (debt.after, debt.rate) == (self.paid_off, self.rate) && self.paid_off >= now
        };
        if let Some(&Debt {
            other: Some((paid_off, rate)),
            ..
        }) = debt.filter(|debt| is_last(debt))
        {
            // No other call has come since, so the state before the call is restored.
            (self.paid_off, self.rate) = (paid_off.max(now), rate);
        } else if let Some(&Debt { cost, rate, .. }) = debt {
            let since = (now - held.now * 16).max(0);
            let mut open = (cost - since).max(0);
            if !self.keeps_times && rate != self.rate {
                let at_new = |time: i128| time * self.rate / rate;
                open = at_new(open).min(at_new(cost) - since).max(0) / 16 * 16;
            }
            self.paid_off = self.paid_off.min((self.paid_off - open).max(now));
        }
        self.counted.retain(|call| call.0 != held.id);
        if self.queue.last().is_some_and(|turn| turn.0 == held.id) {
            self.queue.pop();
        }
        self.end(held);
    }

    /// Returns the end of the debt of a refilled quota, in ns.
    pub(super) fn paid_off_ns(&self) -> u64 {
        (self.paid_off / 16) as u64
    }

    /// Ends a running call.
    pub(super) fn end(&mut self, held: Held) {
        self.running = (self.running - held.n).max(0);
    }

    /// Returns whether the key is at rest, that is, has had its whole quota since before `now`.
    /// `touched` is the time of the last call that was counted in the key's slot. It is needed
    /// because a window, day or month whose tokens were all refunded keeps its word.
    pub(super) fn rests(
        &self,
        count: Counting,
        interval: Duration,
        now: u64,
        touched: Option<u64>,
    ) -> bool {
        let now = i128::from(now);
        match count {
            Counting::Refill => self.debts.is_empty() || self.paid_off < now * 16,
            Counting::Window => {
                let bucket = |ns: i128| ns / (interval.as_nanos() as i128 / 2);
                touched.is_none_or(|ns| bucket(ns.into()) + 1 < bucket(now))
            }
            Counting::Calendar(period) => {
                let number = |ns: i128| periods(period, ns + self.ahead);
                touched.is_none_or(|ns| number(ns.into()) < number(now))
            }
            Counting::Running => self.running == 0,
            // Not computed: the implementation rounds gaps up, and no test depends on when a queue
            // is at rest.
            Counting::Queue(_) => false,
        }
    }
}

impl Held {
    /// The time of the call, in ns.
    pub(super) const fn taken_at(self) -> i128 {
        self.now
    }
}
