//! Circuit breakers at random, and what a naive engine makes of them.

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{BreakerState, CircuitBreakerRule};

use crate::setup::{NS, RESOURCES};
use crate::support::ms;

/// One rule. Times are in ms.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    pub(crate) resource: &'static str,
    /// What is slow; `None`: what fails is bad.
    slow: Option<u64>,
    limit: Limit,
    exceeds: bool,
    min_calls: usize,
    open_for: u64,
    interval: u64,
    buckets: u64,
    probes: u32,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Of so many calls so many.
    Ratio(usize, usize),
    Count(usize),
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Good,
    Failed,
    Ignored,
    Cancelled,
}

/// What one breaker has seen.
#[derive(Debug)]
pub(crate) struct Circuit {
    pub(crate) rule: Breaker,
    state: State,
    generation: u32,
    /// In which generation, in which bucket, and whether it was bad.
    ended: Vec<(u32, u64, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    /// Until then, in ns.
    Open(u64),
    HalfOpen {
        running: u32,
        good: u32,
        lease: u64,
    },
}

/// What a call remembers of one breaker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    generation: u32,
    is_probe: bool,
}

impl Breaker {
    pub(crate) fn rule(&self, index: usize) -> CircuitBreakerRule {
        let rule = match (self.slow, self.limit) {
            (Some(slow), Limit::Ratio(bad, all)) => {
                CircuitBreakerRule::slow_ratio(self.resource, ms(slow), bad as f64 / all as f64)
            }
            (_, Limit::Ratio(bad, all)) => {
                CircuitBreakerRule::error_ratio(self.resource, bad as f64 / all as f64)
            }
            (_, Limit::Count(most)) => CircuitBreakerRule::error_count(self.resource, most as u32),
        };
        let rule = if self.exceeds { rule.exceeds() } else { rule };
        rule.min_calls(self.min_calls as u32)
            .open_for(ms(self.open_for))
            .interval(ms(self.interval))
            .buckets(self.buckets as u32)
            .probes(self.probes)
            .id(format!("breaker-{index}"))
    }

    /// The same for another resource.
    pub(crate) fn of(self, resource: &'static str) -> Self {
        Self { resource, ..self }
    }

    fn lease(&self) -> u64 {
        self.open_for.max(self.slow.unwrap_or(0)) * NS
    }
}

impl Circuit {
    pub(crate) fn new(rule: Breaker) -> Self {
        Self {
            rule,
            state: State::Closed,
            generation: 0,
            ended: Vec::new(),
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open(_) => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    fn set(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }

    /// From when on it lets a call pass.
    pub(crate) fn room_at(&self, now: u64) -> u64 {
        match self.state {
            State::Closed => now,
            State::Open(until) => now.max(until),
            State::HalfOpen { running, .. } if running < self.rule.probes => now,
            State::HalfOpen { lease, .. } => now.max(lease),
        }
    }

    /// A call passes, as a probe unless it is closed.
    pub(crate) fn admit(&mut self, now: u64) -> Part {
        let lease = now + self.rule.lease();
        let (running, good) = match self.state {
            State::HalfOpen { running, good, .. } if running < self.rule.probes => (running, good),
            State::Closed => (0, 0),
            _ => {
                self.generation += 1;
                (0, 0)
            }
        };
        let is_probe = self.state != State::Closed;
        if is_probe {
            let running = running + 1;
            self.state = State::HalfOpen {
                running,
                good,
                lease,
            };
        }
        Part {
            generation: self.generation,
            is_probe,
        }
    }

    /// A call does not run that had passed, or says nothing.
    pub(crate) fn give_back(&mut self, part: Part) {
        if let State::HalfOpen { running, good, .. } = &mut self.state {
            if part.is_probe && part.generation == self.generation {
                *running -= 1;
                if (*running, *good) == (0, 0) {
                    self.set(State::Open(0));
                }
            }
        }
    }

    /// A call ends that began at `start`.
    pub(crate) fn end(&mut self, part: Part, start: u64, now: u64, end: End) {
        let is_slow = self.rule.slow.is_some_and(|slow| now - start > slow * NS);
        let is_failed = self.rule.slow.is_none() && end == End::Failed;
        let is_bad = is_slow || is_failed;
        if !is_bad && matches!(end, End::Ignored | End::Cancelled) {
            return self.give_back(part);
        }
        if part.generation != self.generation {
            return;
        }
        let open = State::Open(now + self.rule.open_for * NS);
        match &mut self.state {
            State::HalfOpen { .. } if is_bad => self.set(open),
            State::HalfOpen { running, good, .. } => {
                *running -= 1;
                *good += 1;
                if *good == self.rule.probes {
                    self.set(State::Closed);
                }
            }
            State::Closed => {
                let bucket = now / (self.rule.interval / self.rule.buckets * NS);
                self.ended.push((self.generation, bucket, is_bad));
                if self.is_met(bucket) {
                    self.set(open);
                }
            }
            State::Open(_) => {}
        }
    }

    fn is_met(&self, newest: u64) -> bool {
        let counts = |(generation, bucket, _): &&(u32, u64, bool)| {
            *generation == self.generation && bucket + self.rule.buckets > newest
        };
        let ended: Vec<_> = self.ended.iter().filter(counts).collect();
        let bad = ended.iter().filter(|(.., is_bad)| *is_bad).count();
        let (found, limit) = match self.rule.limit {
            Limit::Ratio(part, all) => (bad * all, part * ended.len()),
            Limit::Count(most) => (bad, most),
        };
        let is_met = if self.rule.exceeds {
            found > limit
        } else {
            found >= limit
        };
        ended.len() >= self.rule.min_calls && is_met
    }
}

pub(crate) fn breaker() -> impl Strategy<Value = Breaker> {
    let ratio = select(&[(1, 10), (1, 4), (1, 3), (1, 2), (2, 3), (9, 10), (1, 1)][..]);
    let ratio = || ratio.clone().prop_map(|(bad, all)| Limit::Ratio(bad, all));
    let bad = prop_oneof![
        (0_u64..900, ratio()).prop_map(|(slow, limit)| (Some(slow), limit)),
        ratio().prop_map(|limit| (None, limit)),
        (1_usize..4).prop_map(|count| (None, Limit::Count(count))),
    ];
    let window = select(&[(1_000, 1), (1_000, 10), (100, 4), (3_000, 5), (20, 2)][..]);
    let calls = (1_usize..4, 1_u32..4, prop::bool::weighted(0.2));
    (select(&RESOURCES[..]), bad, calls, 1_u64..800, window).prop_map(
        |(resource, (slow, limit), (min_calls, probes, exceeds), open_for, (interval, buckets))| {
            Breaker {
                resource,
                slow,
                limit,
                exceeds,
                min_calls,
                open_for,
                interval,
                buckets,
                probes,
            }
        },
    )
}
