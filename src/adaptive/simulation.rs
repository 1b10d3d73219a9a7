//! A service in virtual time, and open-loop traffic against it.
//!
//! The service works on as many calls at once as it has slots; further ones
//! wait in a queue, first come, first served. Calls arrive whether or not earlier
//! ones have ended. One that finds as many calls in flight as the limit says is
//! shed. Everything is computed from one seed, so the same model gives the same
//! run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::clock::{Tick, nanos};

/// Decides how many calls may be in flight.
pub(crate) trait Policy {
    fn limit(&self) -> u32;

    /// A call ended at `now` that took `rt`, with `in_flight` calls in flight,
    /// itself included.
    fn ended(&self, now: Tick, rt: Duration, in_flight: u32);
}

/// How long the work of one call takes, around the mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Always the mean.
    Fixed,
    /// Evenly spread between 80 % and 120 % of it.
    Even,
    /// Exponential.
    Exponential,
}

/// Something that happens to the service at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The service has this many slots from now on.
    Slots(u32),
    /// Work that begins from now on takes this many times as long.
    Slowdown(f64),
    /// Arrivals from now on, as a multiple of those at the start.
    Load(f64),
}

/// A service and its traffic.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) slots: u32,
    pub(crate) mean: Duration,
    pub(crate) work: Work,
    /// Arrivals, as a multiple of those that the slots can serve.
    pub(crate) load: f64,
    pub(crate) changes: Vec<(Duration, Change)>,
    pub(crate) seed: u64,
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The limit, at its beginning and whenever it changed.
    limits: Vec<(Duration, u32)>,
    /// When each call ended, and its response time.
    ended: Vec<(Duration, Duration)>,
    shed: usize,
    arrived: usize,
}

/// xorshift64*: enough for a traffic model, and the same everywhere.
struct Dice(u64);

struct Run<'a, P: ?Sized> {
    model: &'a Model,
    policy: &'a P,
    dice: Dice,
    slots: u32,
    slowdown: f64,
    load: f64,
    busy: u32,
    in_flight: u32,
    /// When each waiting call arrived.
    queue: VecDeque<u64>,
    /// Calls in work: when each ends and when it arrived.
    work: BinaryHeap<Reverse<(u64, u64)>>,
    trace: Trace,
}

// === impl Model ===

impl Model {
    /// The service of the documentation: 20 slots, 50 ms of work, 3 × overload.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            slots: 20,
            mean: Duration::from_millis(50),
            work: Work::Fixed,
            load: 3.0,
            changes: Vec::new(),
            seed,
        }
    }

    pub(crate) fn with_work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// The service with a change `at` this time after the beginning; changes
    /// are given in order.
    pub(crate) fn then(mut self, at: Duration, change: Change) -> Self {
        self.changes.push((at, change));
        self
    }

    /// Runs `policy` against the service for `length`.
    pub(crate) fn run(&self, policy: &(impl Policy + ?Sized), length: Duration) -> Trace {
        let mut run = Run {
            model: self,
            policy,
            dice: Dice::new(self.seed),
            slots: self.slots,
            slowdown: 1.0,
            load: self.load,
            busy: 0,
            in_flight: 0,
            queue: VecDeque::new(),
            work: BinaryHeap::new(),
            trace: Trace::default(),
        };
        run.note_limit(0);
        run.go(nanos(length));
        run.trace
    }
}

// === impl Run ===

impl<P: Policy + ?Sized> Run<'_, P> {
    fn go(&mut self, end: u64) {
        let mut changes = self.model.changes.iter().peekable();
        let mut arrival = self.gap();
        loop {
            let ends = self.work.peek().map_or(u64::MAX, |Reverse(next)| next.0);
            let change = changes.peek().map_or(u64::MAX, |next| nanos(next.0));
            let now = ends.min(change).min(arrival);
            if now > end {
                return;
            }
            if now == change {
                let (_, change) = changes.next().unwrap();
                self.change(now, *change);
            } else if now == ends {
                let Reverse((_, arrived)) = self.work.pop().unwrap();
                self.end(now, arrived);
            } else {
                self.arrive(now);
                arrival = now + self.gap();
            }
        }
    }

    /// The time to the next arrival: between half of the mean and half as much
    /// again.
    fn gap(&mut self) -> u64 {
        let model = self.model;
        let rate = f64::from(model.slots) * self.load;
        let mean = model.mean.as_nanos() as f64 / rate;
        (mean * (0.5 + self.dice.next())) as u64 + 1
    }

    fn change(&mut self, now: u64, change: Change) {
        match change {
            Change::Slots(slots) => self.slots = slots,
            Change::Slowdown(factor) => self.slowdown = factor,
            Change::Load(load) => self.load = load,
        }
        self.work_on(now);
    }

    fn arrive(&mut self, now: u64) {
        self.trace.arrived += 1;
        if self.in_flight >= self.policy.limit() {
            self.trace.shed += 1;
            return;
        }
        self.in_flight += 1;
        self.queue.push_back(now);
        self.work_on(now);
    }

    fn work_on(&mut self, now: u64) {
        while self.busy < self.slots {
            let Some(arrived) = self.queue.pop_front() else {
                return;
            };
            self.busy += 1;
            let shape = match self.model.work {
                Work::Fixed => 1.0,
                Work::Even => 0.8 + 0.4 * self.dice.next(),
                Work::Exponential => -(1.0 - self.dice.next()).ln(),
            };
            let work = self.model.mean.as_nanos() as f64 * self.slowdown * shape;
            self.work.push(Reverse((now + work as u64 + 1, arrived)));
        }
    }

    fn end(&mut self, now: u64, arrived: u64) {
        let rt = Duration::from_nanos(now - arrived);
        self.policy.ended(Tick::from_nanos(now), rt, self.in_flight);
        self.in_flight -= 1;
        self.busy -= 1;
        self.trace.ended.push((Duration::from_nanos(now), rt));
        self.note_limit(now);
        self.work_on(now);
    }

    fn note_limit(&mut self, now: u64) {
        let limit = self.policy.limit();
        if self.trace.limits.last().is_none_or(|last| last.1 != limit) {
            self.trace.limits.push((Duration::from_nanos(now), limit));
        }
    }
}

// === impl Trace ===

impl Trace {
    /// The limit at a moment.
    pub(crate) fn limit_at(&self, at: Duration) -> u32 {
        let after = self.limits.partition_point(|&(since, _)| since <= at);
        self.limits[after - 1].1
    }

    /// The smallest and the largest limit from `from` to `to`.
    pub(crate) fn limits_between(&self, from: Duration, to: Duration) -> (u32, u32) {
        let within = self
            .limits
            .iter()
            .filter(|&&(since, _)| from < since && since <= to)
            .map(|&(_, limit)| limit);
        let limits = || within.clone().chain([self.limit_at(from)]);
        (limits().min().unwrap(), limits().max().unwrap())
    }

    /// For which part of the time from `from` to `to` the limit was within `limits`, both included.
    pub(crate) fn share_within(&self, limits: (u32, u32), from: Duration, to: Duration) -> f64 {
        let ends = self.limits.iter().skip(1).map(|&(since, _)| since);
        let spans = self.limits.iter().zip(ends.chain([Duration::MAX]));
        let within: Duration = spans
            .filter(|((_, limit), _)| (limits.0..=limits.1).contains(limit))
            .map(|(&(since, _), end)| end.clamp(from, to) - since.clamp(from, to))
            .sum();
        within.as_secs_f64() / (to - from).as_secs_f64()
    }

    /// The response time that `quantile` of the calls which ended from `from`
    /// to `to` did not exceed.
    pub(crate) fn quantile(&self, quantile: f64, from: Duration, to: Duration) -> Duration {
        let mut times: Vec<_> = self
            .ended
            .iter()
            .filter(|(at, _)| (from..=to).contains(at))
            .map(|&(_, rt)| rt)
            .collect();
        times.sort_unstable();
        let rank = (quantile * times.len() as f64).ceil() as usize;
        times[rank.clamp(1, times.len()) - 1]
    }

    /// Calls that ended per second from `from` to `to`.
    pub(crate) fn throughput(&self, from: Duration, to: Duration) -> f64 {
        let ended = self.ended.iter();
        let count = ended.filter(|(at, _)| (from..=to).contains(at)).count();
        count as f64 / (to - from).as_secs_f64()
    }

    pub(crate) fn shed(&self) -> usize {
        self.shed
    }

    pub(crate) fn arrived(&self) -> usize {
        self.arrived
    }
}

// === impl Dice ===

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Evenly between 0 and 1, 1 excluded.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}
