//! What one circuit breaker has seen, whatever rules it has had.

use tower_sentinel::read::BreakerState;

use super::breaker::{Breaker, Limit};
use super::call::{End, NS};
use super::rules::Named;

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
    pub(crate) name: String,
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
    HalfOpen(Probing),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Probing {
    running: u32,
    good: u32,
    lease: u64,
    /// Whether a place has been given on.
    is_outlived: bool,
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
            State::HalfOpen(_) => State::Open(0),
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
            State::HalfOpen(_) => BreakerState::HalfOpen,
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

    /// From when on it lets a call pass that stands there, where an older rule may judge it;
    /// `None`: nobody knows.
    pub(crate) fn opens_at(&self, place: Place, now: u64) -> Option<u64> {
        let probes = self.rules[place.rule].probes;
        match self.state {
            State::Closed => Some(now),
            State::Open(until) => Some(now.max(until)),
            State::Forced => None,
            State::HalfOpen(probing) if probing.running < probes => Some(now),
            State::HalfOpen(probing) => Some(now.max(probing.lease)),
        }
    }

    /// The call passes that stands there, as a probe unless the circuit is closed.
    pub(crate) fn admit(&mut self, place: Place, now: u64) -> Part {
        let rule = &self.rules[place.rule];
        let (lease, probes) = (now + rule.lease(), rule.probes);
        let is_probe = self.state != State::Closed;
        let mut probing = Probing::default();
        match self.state {
            State::Closed => {}
            State::HalfOpen(own) if own.running < probes => probing = own,
            State::HalfOpen(own) => {
                self.given_on += 1;
                (probing.good, probing.is_outlived) = (own.good, true);
            }
            _ => self.generation += 1,
        }
        if is_probe {
            probing.running += 1;
            self.change(State::HalfOpen(Probing { lease, ..probing }));
        }
        Part {
            place,
            generation: self.generation,
            given_on: self.given_on,
            is_probe,
        }
    }

    /// A call does not run that had passed, or says nothing.
    fn release(&mut self, part: Part) {
        let is_present = (part.generation, part.given_on) == (self.generation, self.given_on);
        if let State::HalfOpen(own) = &mut self.state {
            if part.is_probe && is_present {
                own.running -= 1;
                if (own.running, own.good, own.is_outlived) == (0, 0, false) {
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
            return self.release(part);
        }
        if part.generation != self.generation {
            return;
        }
        if is_bad && matches!(self.state, State::HalfOpen(_)) {
            self.failed += 1;
        }
        let open = State::Open(now + rule.open_after(self.failed));
        match &mut self.state {
            State::HalfOpen(_) if is_bad => self.set(open),
            State::HalfOpen(own) => {
                own.running -= u32::from(part.given_on == self.given_on);
                own.good += 1;
                if own.good >= rule.probes {
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
