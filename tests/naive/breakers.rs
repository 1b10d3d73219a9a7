//! Circuit breakers at random, and what a naive engine makes of them.

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{BreakerState, CircuitBreakerRule, Rule};

use crate::setup::{NS, RESOURCES};
use crate::support::ms;
use crate::versions::{Kind, Named};

/// One rule. Times are in ms.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    pub(crate) resource: &'static str,
    /// What is slow; `None`: what fails is bad.
    slow: Option<u64>,
    limit: Limit,
    exceeds: bool,
    min_calls: usize,
    /// Instead of the interval.
    last_calls: Option<usize>,
    open_for: u64,
    open_up_to: Option<u64>,
    interval: u64,
    buckets: u64,
    probes: u32,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Of so many calls so many.
    Ratio(usize, usize),
    Count(usize),
    /// One after the other.
    Consecutive(usize),
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Good,
    Failed,
    Ignored,
    Cancelled,
}

/// The rule of a breaker, from what that has changed, and to what.
pub(crate) type Change = (String, BreakerState, BreakerState);

/// What one breaker has seen.
#[derive(Debug)]
pub(crate) struct Circuit {
    /// Tells it from others.
    pub(crate) number: usize,
    /// Those that it has had, the one in force last.
    rules: Vec<Named<Breaker>>,
    state: State,
    /// Probes that were bad since it was closed.
    failed: u32,
    /// Its changes that nobody has asked for yet.
    pub(crate) told: Vec<Change>,
    /// What its rule in force is called.
    name: String,
    generation: u32,
    /// How often places of probes have been given on.
    given_on: u32,
    /// In which generation, in which bucket, and whether it was bad.
    ended: Vec<(u32, u64, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    /// Until then, in ns.
    Open(u64),
    /// By hand.
    Forced,
    HalfOpen {
        running: u32,
        good: u32,
        lease: u64,
        /// Whether a place has been given on.
        is_outlived: bool,
    },
}

/// Which circuit it is, and which of its rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) circuit: usize,
    rule: usize,
}

/// What a call remembers of one breaker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) place: Place,
    generation: u32,
    given_on: u32,
    is_probe: bool,
}

impl Breaker {
    /// It has no id yet.
    pub(crate) fn rule(&self) -> CircuitBreakerRule {
        let rule = match (self.slow, self.limit) {
            (Some(slow), Limit::Ratio(bad, all)) => {
                CircuitBreakerRule::slow_ratio(self.resource, ms(slow), bad as f64 / all as f64)
            }
            (_, Limit::Ratio(bad, all)) => {
                CircuitBreakerRule::error_ratio(self.resource, bad as f64 / all as f64)
            }
            (_, Limit::Count(most)) => CircuitBreakerRule::error_count(self.resource, most as u32),
            (_, Limit::Consecutive(most)) => {
                CircuitBreakerRule::consecutive_errors(self.resource, most as u32)
            }
        };
        let rule = if self.exceeds { rule.exceeds() } else { rule };
        let rule = rule.open_for(ms(self.open_for)).probes(self.probes);
        let rule = match self.open_up_to {
            Some(longest) => rule.open_up_to(ms(longest)),
            None => rule,
        };
        if self.is_consecutive() {
            return rule;
        }
        let rule = rule.min_calls(self.min_calls as u32);
        match self.last_calls {
            Some(calls) => rule.last_calls(calls as u32),
            None => rule
                .interval(ms(self.interval))
                .buckets(self.buckets as u32),
        }
    }

    fn is_consecutive(&self) -> bool {
        matches!(self.limit, Limit::Consecutive(_))
    }

    /// The same for another resource.
    pub(crate) fn of(self, resource: &'static str) -> Self {
        Self { resource, ..self }
    }

    /// For how long it is open after so many bad probes.
    fn open_after(&self, failed: u32) -> u64 {
        let longest = self.open_up_to.unwrap_or(self.open_for);
        (self.open_for << failed.min(7)).min(longest) * NS
    }

    fn lease(&self) -> u64 {
        self.open_for.max(self.slow.unwrap_or(0)) * NS
    }
}

impl Kind for Breaker {
    const NAME: &'static str = "breaker";
    const OWN_NAME: &'static str = "circuit-breaker";

    fn build(&self, id: Option<String>) -> Rule {
        match id {
            Some(id) => self.rule().id(id).into(),
            None => self.rule().into(),
        }
    }

    fn counts_like(&self, other: &Self) -> bool {
        let is_alike = (self.resource, self.slow, self.is_consecutive())
            == (other.resource, other.slow, other.is_consecutive());
        let window = |breaker: &Self| match breaker.last_calls {
            Some(calls) => (Some(calls), 0, 0),
            None => (None, breaker.interval, breaker.buckets),
        };
        is_alike && (self.is_consecutive() || window(self) == window(other))
    }

    fn blend(&self, other: &Self, mask: u8) -> Self {
        let mut blend = self.clone();
        let has = |bit: u8| mask >> bit & 1 == 1;
        if has(0) {
            blend.min_calls = other.min_calls;
            blend.exceeds = other.exceeds;
            if blend.slow.is_none() || matches!(other.limit, Limit::Ratio(..)) {
                blend.limit = other.limit;
            }
        }
        if has(1) {
            (blend.open_for, blend.open_up_to) = (other.open_for, other.open_up_to);
        }
        if has(2) {
            blend.probes = other.probes;
        }
        if has(3) {
            (blend.slow, blend.limit) = (other.slow, other.limit);
        }
        if has(4) {
            (blend.interval, blend.buckets) = (other.interval, other.buckets);
            blend.last_calls = other.last_calls;
        }
        blend
    }
}

impl Circuit {
    pub(crate) fn new(rule: Named<Breaker>, number: usize) -> Self {
        Self {
            number,
            rules: vec![rule],
            state: State::Closed,
            failed: 0,
            told: Vec::new(),
            name: String::new(),
            generation: 0,
            given_on: 0,
            ended: Vec::new(),
        }
    }

    /// It gets another rule, which counts the same.
    pub(crate) fn go_on(mut self, rule: Named<Breaker>) -> Self {
        if self.named().built() != rule.built() {
            self.rules.push(rule);
        }
        self
    }

    /// One for a rule that counts otherwise, and open as long.
    pub(crate) fn opened_alike(&self, rule: Named<Breaker>, number: usize) -> Self {
        let state = match self.state {
            State::HalfOpen { .. } => State::Open(0),
            other => other,
        };
        Self {
            state,
            failed: self.failed,
            ..Self::new(rule, number)
        }
    }

    /// Its rule in force is called `name`.
    pub(crate) fn called(self, name: String) -> Self {
        Self { name, ..self }
    }

    pub(crate) fn named(&self) -> &Named<Breaker> {
        self.rules.last().unwrap()
    }

    pub(crate) fn rule(&self) -> &Breaker {
        self.named()
    }

    /// Where a call stands that comes now.
    pub(crate) fn place(&self) -> Place {
        Place {
            circuit: self.number,
            rule: self.rules.len() - 1,
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open(_) | State::Forced => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// An operator opens it, or closes it.
    pub(crate) fn force(&mut self, opens: bool) {
        if !opens {
            self.set(State::Closed);
        } else if self.state != State::Forced {
            self.set(State::Forced);
        }
    }

    fn set(&mut self, state: State) {
        self.change(state);
        self.generation += 1;
    }

    fn change(&mut self, state: State) {
        let from = self.state();
        if state == State::Closed {
            self.failed = 0;
        }
        self.state = state;
        if self.state() != from {
            self.told.push((self.name.clone(), from, self.state()));
        }
    }

    /// From when on it lets a call pass; `None`: nobody knows.
    pub(crate) fn available_at(&self, now: u64) -> Option<u64> {
        self.room_by(self.place(), now)
    }

    /// The same for a call that is judged by an older rule.
    pub(crate) fn room_by(&self, place: Place, now: u64) -> Option<u64> {
        let probes = self.rules[place.rule].probes;
        match self.state {
            State::Closed => Some(now),
            State::Open(until) => Some(now.max(until)),
            State::Forced => None,
            State::HalfOpen { running, .. } if running < probes => Some(now),
            State::HalfOpen { lease, .. } => Some(now.max(lease)),
        }
    }

    /// A call passes, as a probe unless it is closed.
    pub(crate) fn admit(&mut self, now: u64) -> Part {
        self.admit_by(self.place(), now)
    }

    /// The same for a call that is judged by an older rule.
    pub(crate) fn admit_by(&mut self, place: Place, now: u64) -> Part {
        let rule = &self.rules[place.rule];
        let (lease, probes) = (now + rule.lease(), rule.probes);
        let (running, good, is_outlived) = match self.state {
            State::HalfOpen {
                running,
                good,
                is_outlived,
                ..
            } if running < probes => (running, good, is_outlived),
            State::HalfOpen { good, .. } => {
                self.given_on += 1;
                (0, good, true)
            }
            State::Closed => (0, 0, false),
            _ => {
                self.generation += 1;
                (0, 0, false)
            }
        };
        let is_probe = self.state != State::Closed;
        if is_probe {
            let running = running + 1;
            self.change(State::HalfOpen {
                running,
                good,
                lease,
                is_outlived,
            });
        }
        Part {
            place,
            generation: self.generation,
            given_on: self.given_on,
            is_probe,
        }
    }

    /// A call does not run that had passed, or says nothing.
    fn give_back(&mut self, part: Part) {
        if let State::HalfOpen {
            running,
            good,
            is_outlived,
            ..
        } = &mut self.state
        {
            if part.is_probe && (part.generation, part.given_on) == (self.generation, self.given_on)
            {
                *running -= 1;
                if (*running, *good, *is_outlived) == (0, 0, false) {
                    self.set(State::Open(0));
                }
            }
        }
    }

    /// A call ends that began at `start`: by the rule that let it pass.
    pub(crate) fn end(&mut self, part: Part, start: u64, now: u64, end: End) {
        let rule = self.rules[part.place.rule].rule.clone();
        let is_slow = rule.slow.is_some_and(|slow| now - start > slow * NS);
        let is_failed = rule.slow.is_none() && end == End::Failed;
        let is_bad = is_slow || is_failed;
        if !is_bad && matches!(end, End::Ignored | End::Cancelled) {
            return self.give_back(part);
        }
        if part.generation != self.generation {
            return;
        }
        if is_bad && matches!(self.state, State::HalfOpen { .. }) {
            self.failed += 1;
        }
        let open = State::Open(now + rule.open_after(self.failed));
        match &mut self.state {
            State::HalfOpen { .. } if is_bad => self.set(open),
            State::HalfOpen { running, good, .. } => {
                *running -= u32::from(part.given_on == self.given_on);
                *good += 1;
                if *good >= rule.probes {
                    self.set(State::Closed);
                }
            }
            State::Closed => {
                let bucket = now / (rule.interval / rule.buckets * NS);
                self.ended.push((self.generation, bucket, is_bad));
                // One that is replaced counts for the new one.
                if part.place.rule + 1 == self.rules.len() && self.is_met(bucket) {
                    self.set(open);
                }
            }
            State::Open(_) | State::Forced => {}
        }
    }

    fn is_met(&self, newest: u64) -> bool {
        let rule = self.rule();
        if let Limit::Consecutive(most) = rule.limit {
            let all = self.ended.iter().rev();
            let row =
                all.take_while(|(generation, _, is_bad)| *is_bad && *generation == self.generation);
            return row.count() >= most + usize::from(rule.exceeds);
        }
        let counts = |(generation, bucket, _): &&(u32, u64, bool)| {
            let is_recent = rule.last_calls.is_some() || bucket + rule.buckets > newest;
            *generation == self.generation && is_recent
        };
        let newest_first = self.ended.iter().rev().filter(counts);
        let ended: Vec<_> = newest_first
            .take(rule.last_calls.unwrap_or(usize::MAX))
            .collect();
        let bad = ended.iter().filter(|(.., is_bad)| *is_bad).count();
        let (found, limit) = match rule.limit {
            Limit::Ratio(part, all) => (bad * all, part * ended.len()),
            Limit::Count(most) | Limit::Consecutive(most) => (bad, most),
        };
        let is_met = if rule.exceeds {
            found > limit
        } else {
            found >= limit
        };
        ended.len() >= rule.min_calls && is_met
    }
}

pub(crate) fn breaker() -> impl Strategy<Value = Breaker> {
    let ratio = select(&[(1, 10), (1, 4), (1, 3), (1, 2), (2, 3), (9, 10), (1, 1)][..]);
    let ratio = || ratio.clone().prop_map(|(bad, all)| Limit::Ratio(bad, all));
    let bad = prop_oneof![
        (0_u64..900, ratio()).prop_map(|(slow, limit)| (Some(slow), limit)),
        ratio().prop_map(|limit| (None, limit)),
        (1_usize..4).prop_map(|count| (None, Limit::Count(count))),
        (1_usize..4).prop_map(|count| (None, Limit::Consecutive(count))),
    ];
    let window = select(&[(1_000, 1), (1_000, 10), (100, 4), (3_000, 5), (20, 2)][..]);
    let calls = (1_usize..4, 1_u32..4, prop::bool::weighted(0.2));
    // More than are asked for, as that may have to be exceeded.
    let last_calls = prop::option::weighted(0.25, 4_usize..8);
    let window = (window, last_calls);
    let open_for = prop_oneof![3 => 1_u64..800, 1 => 1_500_u64..9_000];
    // How much longer it may become.
    let growth = prop::option::weighted(0.4, 0_u64..2_000);
    let open = (open_for, growth)
        .prop_map(|(open_for, growth)| (open_for, growth.map(|growth| open_for + growth)));
    (select(&RESOURCES[..]), bad, calls, open, window).prop_map(
        |(resource, (slow, limit), (min_calls, probes, exceeds), open, window)| {
            let (open_for, open_up_to) = open;
            let ((interval, buckets), last_calls) = window;
            Breaker {
                resource,
                slow,
                limit,
                exceeds,
                min_calls,
                last_calls,
                open_for,
                open_up_to,
                interval,
                buckets,
                probes,
            }
        },
    )
}
