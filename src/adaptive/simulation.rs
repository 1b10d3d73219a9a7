//! A service in virtual time, and open-loop traffic against it.
//!
//! The service works on as many calls at once as it has slots, and further calls wait in a FIFO
//! queue. In another mode, all calls share its processors. Calls arrive regardless of whether
//! earlier ones have ended. A call that finds as many calls in flight as the policy allows for its
//! class is shed, and its client can retry. Everything is computed from one seed, so the same model
//! gives the same run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::trace::{ServedCall, Trace};
use crate::clock::{Tick, nanos};

/// The index of the class of calls in models with one class.
pub(crate) const CRITICAL: usize = 1;
/// The index of the middle class in models with several classes.
pub(crate) const NORMAL: usize = 2;
/// The index of the least important class in models with several classes.
pub(crate) const SHEDDABLE: usize = 3;

/// Decides how many calls may be in flight.
pub(crate) trait Policy {
    /// Returns the current limit on the calls in flight.
    fn limit(&self) -> u32;

    /// Returns whether a call of this class is admitted while `in_flight` other calls are in
    /// flight.
    fn admits(&self, _class: usize, in_flight: u32) -> bool {
        in_flight < self.limit()
    }

    /// Reports the end of a call at `now` that took `rt`. `in_flight` calls are in flight, this
    /// call included, and `ended` calls have ended before it.
    fn ended(&self, now: Tick, rt: Duration, in_flight: u32, ended: u64);
}

/// The distribution of the work of a call around the mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Always the mean.
    Fixed,
    /// Uniformly between 80 % and 120 % of the mean.
    Even,
    /// Exponentially distributed.
    Exponential,
    /// One call in twenty takes nineteen times as long as the other calls.
    Bimodal,
}

/// How a service works on concurrent calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// The service works on as many calls as it has slots; further calls wait.
    Queue,
    /// The service works on all calls, which share as many processors as there are slots. From
    /// three calls per processor on, each further call per processor makes the service a tenth
    /// slower.
    Shared,
}

/// The times between arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// Uniformly between 50 % and 150 % of the mean.
    Even,
    /// Exponentially distributed.
    Random,
}

/// A change of the service or its load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The service has this many slots from now on.
    Slots(u32),
    /// Work that begins from now on takes this many times as long.
    Slowdown(f64),
    /// The arrivals of each class from now on, as multiples of the capacity at the start.
    Loads([f64; 4]),
}

/// A service and its traffic.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) slots: u32,
    pub(crate) mean: Duration,
    pub(crate) work: Work,
    pub(crate) service: Serving,
    pub(crate) arrivals: Arrivals,
    /// The arrivals of each class, as multiples of the capacity.
    pub(crate) loads: [f64; 4],
    /// Changes, with their times after the start, in order.
    pub(crate) changes: Vec<(Duration, Trouble)>,
    /// The number of times that a client retries, 50 to 400 ms after each refusal.
    pub(crate) retries: u32,
    /// Whether the trace keeps each call; otherwise it only counts refusals.
    pub(crate) keeps_visits: bool,
    pub(crate) seed: u64,
}

/// The generator xorshift64*, which is good enough for a traffic model and portable.
struct Dice(u64);

/// An admitted call. Times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    arrived: u64,
    class: usize,
    work: u64,
}

/// The state of a run: the service, its queue and clients, and the trace so far.
struct SimulatedRun<'a, P: ?Sized> {
    model: &'a Model,
    policy: &'a P,
    dice: Dice,
    slots: u32,
    slowdown: f64,
    loads: [f64; 4],
    in_flight: u32,
    busy: u32,
    ended: u64,
    queue: VecDeque<Running>,
    /// The calls that are being worked on, each with its end: a time, or, for a shared service, the
    /// value of `done` at which the call ends.
    work: BinaryHeap<Reverse<(u64, Running)>>,
    /// For a shared service: the work in ns that a call since the start would have received.
    done: f64,
    /// The time for which `done` is computed.
    done_at: u64,
    /// The clients that will retry: the time of the retry, the retries left, the first arrival of
    /// the call, and its class.
    again: BinaryHeap<Reverse<(u64, u32, u64, usize)>>,
    trace: Trace,
}

// === impl Model ===

impl Model {
    /// Creates the service that the documentation uses: 20 slots, 50 ms of work per call, and a
    /// load of three times its capacity.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            slots: 20,
            mean: Duration::from_millis(50),
            work: Work::Fixed,
            service: Serving::Queue,
            arrivals: Arrivals::Even,
            loads: Self::alone(3.0),
            changes: Vec::new(),
            retries: 0,
            keeps_visits: true,
            seed,
        }
    }

    /// Returns the loads of a service whose calls are all of one class.
    pub(crate) const fn alone(load: f64) -> [f64; 4] {
        [0.0, load, 0.0, 0.0]
    }

    pub(crate) fn with_work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// Adds a change at the time `at` after the start. Changes must be added in order.
    pub(crate) fn then(mut self, at: Duration, change: Trouble) -> Self {
        self.changes.push((at, change));
        self
    }

    /// Returns the calls per second that the slots can serve.
    pub(crate) fn capacity(&self) -> f64 {
        f64::from(self.slots) / self.mean.as_secs_f64()
    }

    /// Runs `policy` against the service for `length`.
    pub(crate) fn run(&self, policy: &(impl Policy + ?Sized), length: Duration) -> Trace {
        let mut run = SimulatedRun {
            model: self,
            policy,
            dice: Dice::new(self.seed),
            slots: self.slots,
            slowdown: 1.0,
            loads: self.loads,
            in_flight: 0,
            busy: 0,
            ended: 0,
            queue: VecDeque::new(),
            work: BinaryHeap::new(),
            done: 0.0,
            done_at: 0,
            again: BinaryHeap::new(),
            trace: Trace::default(),
        };
        run.note_limit(0);
        run.go(nanos(length));
        run.trace
    }
}

// === impl SimulatedRun ===

impl<P: Policy + ?Sized> SimulatedRun<'_, P> {
    /// Runs the simulation until the time `end`.
    fn go(&mut self, end: u64) {
        let model = self.model;
        let mut changes = model.changes.iter().peekable();
        let mut arrival = self.gap();
        loop {
            let ends = self.next_end();
            let change = changes.peek().map_or(u64::MAX, |next| nanos(next.0));
            let again = self.again.peek().map_or(u64::MAX, |Reverse(next)| next.0);
            let now = ends.min(change).min(arrival).min(again);
            if now > end {
                return;
            }
            if now == change {
                let (_, change) = changes.next().unwrap();
                self.change(now, *change);
            } else if now == ends {
                let Reverse((_, call)) = self.work.pop().unwrap();
                self.end(now, call);
            } else if now == again {
                let Reverse((_, tries, since, class)) = self.again.pop().unwrap();
                self.arrive(now, class, tries, since);
            } else {
                let class = self.class();
                self.arrive(now, class, model.retries, now);
                arrival = now + self.gap();
            }
        }
    }

    /// Returns the time to the next arrival.
    fn gap(&mut self) -> u64 {
        let rate = self.model.capacity() * self.loads.iter().sum::<f64>();
        let dice = self.dice.next();
        let shape = match self.model.arrivals {
            Arrivals::Even => 0.5 + dice,
            Arrivals::Random => -(1.0 - dice).ln(),
        };
        (1e9 / rate * shape) as u64 + 1
    }

    /// Returns the class of the next arrival.
    fn class(&mut self) -> usize {
        let mut dice = self.dice.next() * self.loads.iter().sum::<f64>();
        for (class, load) in self.loads.iter().enumerate() {
            dice -= load;
            if dice < 0.0 {
                return class;
            }
        }
        SHEDDABLE
    }

    /// Applies a change of the service or its load.
    fn change(&mut self, now: u64, change: Trouble) {
        self.advance(now);
        match change {
            Trouble::Slots(slots) => self.slots = slots,
            Trouble::Slowdown(factor) => self.slowdown = factor,
            Trouble::Loads(loads) => self.loads = loads,
        }
        self.work_on(now);
    }

    /// Handles the arrival of a call that first arrived at `since`. Its client can retry `tries`
    /// more times.
    fn arrive(&mut self, now: u64, class: usize, tries: u32, since: u64) {
        if tries == self.model.retries {
            self.trace.arrive(now, class);
        }
        if !self.policy.admits(class, self.in_flight) {
            self.trace.shed(now, class, tries == 0);
            if tries > 0 {
                let pause = 5e7 + 3.5e8 * self.dice.next();
                self.again
                    .push(Reverse((now + pause as u64, tries - 1, since, class)));
            }
            return;
        }
        self.in_flight += 1;
        self.queue.push_back(Running {
            arrived: now,
            class,
            work: 0,
        });
        self.work_on(now);
    }

    /// Starts the work on waiting calls while slots are free.
    fn work_on(&mut self, now: u64) {
        while self.model.service == Serving::Shared || self.busy < self.slots {
            let Some(mut call) = self.queue.pop_front() else {
                return;
            };
            self.advance(now);
            self.busy += 1;
            let dice = self.dice.next();
            let shape = match self.model.work {
                Work::Fixed => 1.0,
                Work::Even => 0.8 + 0.4 * dice,
                Work::Exponential => -(1.0 - dice).ln(),
                Work::Bimodal if dice < 0.05 => 10.0,
                Work::Bimodal => 10.0 / 19.0,
            };
            let work = self.model.mean.as_nanos() as f64 * self.slowdown * shape;
            let start = match self.model.service {
                Serving::Queue => now,
                Serving::Shared => self.done as u64,
            };
            call.work = work as u64 + 1;
            self.work.push(Reverse((start + call.work, call)));
        }
    }

    /// Returns the work that a shared service does per nanosecond for each call.
    fn speed(&self) -> f64 {
        let each = f64::from(self.busy) / f64::from(self.slots);
        (1.0 / each).min(1.0) / (1.0 + 0.1 * (each - 2.0).max(0.0))
    }

    /// Updates the work done by a shared service to the time `now`.
    fn advance(&mut self, now: u64) {
        if self.model.service == Serving::Shared && self.busy > 0 {
            self.done += (now - self.done_at) as f64 * self.speed();
        }
        self.done_at = now;
    }

    /// Returns when the next call ends.
    fn next_end(&self) -> u64 {
        let Some(Reverse((end, _))) = self.work.peek() else {
            return u64::MAX;
        };
        match self.model.service {
            Serving::Queue => *end,
            Serving::Shared => {
                let rest = (*end as f64 - self.done).max(0.0);
                self.done_at + (rest / self.speed()) as u64 + 1
            }
        }
    }

    /// Ends the work on `call`, reports it to the policy, and starts waiting calls.
    fn end(&mut self, now: u64, call: Running) {
        self.advance(now);
        let rt = now - call.arrived;
        self.policy.ended(
            Tick::from_nanos(now),
            Duration::from_nanos(rt),
            self.in_flight,
            self.ended,
        );
        self.ended += 1;
        self.in_flight -= 1;
        self.busy -= 1;
        if self.model.keeps_visits {
            self.trace.ended.push(ServedCall {
                arrived: call.arrived,
                took: rt,
                work: call.work,
                class: call.class,
            });
        }
        self.note_limit(now);
        self.work_on(now);
    }

    /// Records the limit of the policy.
    fn note_limit(&mut self, now: u64) {
        self.trace
            .note_limit(Duration::from_nanos(now), self.policy.limit());
    }
}

// === impl Dice ===

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a uniform number from 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}
