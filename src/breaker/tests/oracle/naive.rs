//! A naive model of one breaker, which keeps a list of events.

use crate::breaker::*;

/// A simple implementation of one breaker. Times are in milliseconds.
pub(super) struct Naive {
    pub(super) spec: BreakerSpec,
    /// The ratio of the rule, if its limit is a ratio.
    pub(super) ratio: Option<f64>,
    pub(super) state: State,
    /// The number of bad probes since the breaker was closed.
    pub(super) failed: u32,
    /// The number of generations so far.
    pub(super) generation: u32,
    /// The number of times that places have been given on.
    pub(super) given_on: u32,
    /// The numbers of ends of probes without a place that have closed the breaker, and that have
    /// opened it.
    pub(super) late: [u32; 2],
    /// The newest bucket in which a call has ended.
    pub(super) head: u64,
    /// The ended calls, each as its generation, its bucket, and whether it was bad.
    pub(super) ended: Vec<(u32, u64, bool)>,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Closed,
    /// Open until this time; `None` means until an operator closes the breaker.
    Open(Option<u64>),
    HalfOpen {
        /// The number of running probes that hold a place.
        running: u32,
        /// The number of good probes so far.
        good: u32,
        /// The time at which the lease of the newest probe is over.
        lease_end: u64,
        /// Whether a place has been given on.
        is_outlived: bool,
    },
}

/// The state of one breaker that a call keeps from its start to its end.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The generation in which the call was admitted.
    pub(super) generation: u32,
    /// How many times places had been given on by then.
    pub(super) given_on: u32,
    /// Whether the call is a probe.
    pub(super) is_probe: bool,
}

impl Naive {
    pub(super) fn new(spec: BreakerSpec, ratio: Option<f64>, now: u64) -> Self {
        let head = now / Self::bucket_ms(&spec);
        Self {
            spec,
            ratio,
            state: State::Closed,
            failed: 0,
            generation: 0,
            given_on: 0,
            late: [0; 2],
            head,
            ended: Vec::new(),
        }
    }

    /// The length of a bucket, in ms.
    pub(super) fn bucket_ms(spec: &BreakerSpec) -> u64 {
        spec.interval.as_millis() as u64 / u64::from(spec.buckets)
    }

    /// The initial open time, in ms.
    pub(super) fn open_ms(&self) -> u64 {
        self.spec.open_for.as_millis() as u64
    }

    /// The current open time, which has grown with bad probes.
    pub(super) fn grown_ms(&self) -> u64 {
        self.grown(self.open_ms()).min(self.longest_ms())
    }

    /// The longest open time, in ms.
    pub(super) fn longest_ms(&self) -> u64 {
        let longest = self.spec.open_up_to.unwrap_or(self.spec.open_for);
        longest.as_millis() as u64
    }

    /// Returns `ms`, doubled for each bad probe, at most seven times.
    pub(super) fn grown(&self, ms: u64) -> u64 {
        (0..self.failed.min(7)).fold(ms, |ms, _| 2 * ms)
    }

    /// The lease of a probe, in ms.
    pub(super) fn lease_ms(&self) -> u64 {
        match self.spec.strategy {
            Strategy::Slow(max) => self.open_ms().max(max.as_millis() as u64),
            Strategy::Error | Strategy::Pushback => self.open_ms(),
        }
    }

    /// Begins another state, in a new generation.
    pub(super) fn set(&mut self, state: State) {
        if state == State::Closed {
            self.failed = 0;
        }
        self.state = state;
        self.generation += 1;
    }

    /// The public state.
    pub(super) fn public(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open(_) => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns `None` if a call at `now` passes. Otherwise returns the time until which it is
    /// refused, if that is known.
    pub(super) fn refuses(&self, now: u64) -> Option<Option<u64>> {
        let end = match self.state {
            State::Closed => return None,
            State::HalfOpen { running, .. } if running < self.spec.probes => return None,
            State::Open(None) => return Some(None),
            State::Open(Some(end)) => end,
            State::HalfOpen { lease_end, .. } => lease_end,
        };
        // A time that is further ahead than the longest possible wait plus a second is ignored,
        // because the clock must have stepped back.
        let longest = match self.state {
            // As in the breaker, the bound is the lease, doubled for each bad probe. The lease is
            // at least the initial open time.
            State::Open(_) => self.grown(self.lease_ms()).min(self.longest_ms()),
            _ => self.lease_ms(),
        };
        let is_ahead = end > now && end - now <= longest + 1_000;
        is_ahead.then_some(Some(end))
    }

    /// Lets a call pass at `now`, as a probe unless the breaker is closed.
    pub(super) fn admit(&mut self, now: u64) -> Part {
        let is_probe = self.state != State::Closed;
        if is_probe {
            let lease_end = now + self.lease_ms();
            match &mut self.state {
                State::HalfOpen {
                    running,
                    lease_end: end,
                    ..
                } if *running < self.spec.probes => {
                    *running += 1;
                    *end = lease_end;
                }
                State::HalfOpen {
                    running,
                    lease_end: end,
                    is_outlived,
                    ..
                } => {
                    (*running, *end, *is_outlived) = (1, lease_end, true);
                    self.given_on += 1;
                }
                _ => self.set(State::HalfOpen {
                    running: 1,
                    good: 0,
                    lease_end,
                    is_outlived: false,
                }),
            }
        }
        Part {
            generation: self.generation,
            given_on: self.given_on,
            is_probe,
        }
    }

    /// Takes back the probe of a call without a result.
    pub(super) fn release(&mut self, part: Part) {
        if part.generation != self.generation || !part.is_probe {
            return;
        }
        if let State::HalfOpen {
            running,
            good,
            is_outlived,
            ..
        } = &mut self.state
        {
            if part.given_on != self.given_on {
                return;
            }
            *running -= 1;
            if *running == 0 && *good == 0 && !*is_outlived {
                self.set(State::Open(Some(0)));
            }
        }
    }

    /// Counts the end of a call, or decides by it if the call is a probe.
    pub(super) fn end(&mut self, now: u64, part: Part, is_bad: bool) {
        if part.generation != self.generation {
            return;
        }
        if is_bad && matches!(self.state, State::HalfOpen { .. }) {
            self.failed += 1;
        }
        let next_open = State::Open(Some(now + self.grown_ms()));
        match &mut self.state {
            State::HalfOpen { .. } if is_bad => {
                self.late[1] += u32::from(part.given_on != self.given_on);
                self.set(next_open);
            }
            State::HalfOpen { running, good, .. } => {
                let has_place = part.given_on == self.given_on;
                *running -= u32::from(has_place);
                *good += 1;
                if *good >= self.spec.probes {
                    self.late[0] += u32::from(!has_place);
                    self.set(State::Closed);
                }
            }
            State::Closed => {
                self.head = self.head.max(now / Self::bucket_ms(&self.spec));
                self.ended.push((self.generation, self.head, is_bad));
                if self.is_met() {
                    self.set(next_open);
                }
            }
            State::Open(_) => {}
        }
    }

    /// Returns how many calls count now, and how many of them were bad.
    pub(super) fn counted(&self) -> (usize, usize) {
        self.counted_by(self.head)
    }

    /// Returns the number of bad calls that a reader finds at `now` while the breaker is closed.
    pub(super) fn bad_at(&self, now: u64) -> u64 {
        let newest = self.head.max(now / Self::bucket_ms(&self.spec));
        self.counted_by(newest).1 as u64
    }

    /// Returns how many calls count in the window that ends with the bucket `newest`, and how many
    /// of them were bad.
    pub(super) fn counted_by(&self, newest: u64) -> (usize, usize) {
        if let BadLimit::Consecutive(_) = self.spec.limit {
            let all = self.ended.iter().rev();
            let row = all.take_while(|call| call.0 == self.generation && call.2);
            let row = row.count();
            return (row, row);
        }
        if let Some(most) = self.spec.last_calls {
            let all = self.ended.iter().rev();
            let last = all.take_while(|call| call.0 == self.generation);
            let last: Vec<_> = last.take(most as usize).collect();
            let bad = last.iter().filter(|call| call.2);
            return (last.len(), bad.count());
        }
        let counted = |&&(generation, bucket, _): &&(u32, u64, bool)| {
            generation == self.generation && bucket + u64::from(self.spec.buckets) > newest
        };
        let counted: Vec<_> = self.ended.iter().filter(counted).collect();
        let bad = counted.iter().filter(|call| call.2);
        (counted.len(), bad.count())
    }

    /// Returns whether the counted calls open the breaker.
    pub(super) fn is_met(&self) -> bool {
        let (total, bad) = self.counted();
        if total < self.spec.min_calls as usize {
            return false;
        }
        let (value, limit) = match (self.ratio, self.spec.limit) {
            (Some(ratio), _) => (bad as f64 / total as f64, ratio),
            (None, BadLimit::Count(limit) | BadLimit::Consecutive(limit)) => {
                (bad as f64, f64::from(limit))
            }
            (None, BadLimit::Ratio(_)) => unreachable!("a ratio is given twice"),
        };
        if self.spec.exceeds {
            value > limit
        } else {
            value >= limit
        }
    }
}
