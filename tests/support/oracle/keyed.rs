//! Rules on parameters: a quota for each value.

use tower_sentinel::{KeyedRule, MissingKey, Rule};

use super::call::{Asks, Given, NS};
use super::flow::turn;
use super::rules::Kind;
use crate::support::ms;

/// No limit, in the place of half tokens.
pub(crate) const UNLIMITED: u32 = u32::MAX;
/// Parts of a nanosecond in which a refilled quota is reckoned.
const UNITS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Of {
    At(i32),
    Named,
    Origin,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    Refill,
    Window,
    /// A call waits for its turn as long as this, in ms.
    Queue(u64),
    Running,
}

#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) resource: &'static str,
    pub(crate) of: Of,
    pub(crate) count: Count,
    /// Half tokens, in an interval in ms.
    pub(crate) halves: u32,
    pub(crate) interval: u64,
    pub(crate) burst: u32,
    pub(crate) exception: Option<(&'static str, u32)>,
    pub(crate) tier: Option<u32>,
    pub(crate) missing: MissingKey,
    /// How many values it knows at least.
    pub(crate) keys: u32,
}

/// A call that a rule has counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Which one among all.
    pub(crate) call: usize,
    pub(crate) asks: Asks,
    /// When it came, in ns.
    pub(crate) at: u64,
    /// What it has cost by the rule of its time.
    pub(crate) cost: u64,
    /// What a token has cost then.
    pub(crate) single: u64,
    /// When its turn is in a queue.
    pub(crate) turn: u64,
    /// Whether it waits or runs.
    pub(crate) is_there: bool,
}

impl Keyed {
    /// It has no id yet.
    pub(crate) fn rule(&self) -> KeyedRule {
        // Where whole calls are counted, a half would let nobody pass, and is no rule.
        let is_whole = match self.count {
            Count::Refill => self.burst == 0,
            Count::Window => true,
            Count::Queue(_) | Count::Running => false,
        };
        let halves = |halves: u32| match halves {
            1 if is_whole => 0.0,
            halves => f64::from(halves) / 2.0,
        };
        let mut rule = KeyedRule::per(self.resource, halves(self.halves), ms(self.interval));
        rule = match self.count {
            Count::Refill => rule.burst(self.burst),
            Count::Window => rule.window(),
            Count::Queue(max_wait) => rule.throttle(ms(max_wait)),
            Count::Running => KeyedRule::concurrency(self.resource, self.halves / 2),
        };
        rule = match self.of {
            Of::At(index) => rule.param_at(index),
            Of::Named => rule.param("user"),
            Of::Origin => rule.by_origin(),
        };
        rule = match self.exception {
            Some((value, UNLIMITED)) => rule.except_unlimited(value),
            Some((value, own)) => rule.except(value, halves(own)),
            None => rule,
        };
        rule = match self.tier {
            Some(UNLIMITED) => rule.tier_unlimited("pro"),
            Some(own) => rule.tier("pro", halves(own)),
            None => rule,
        };
        rule.missing(self.missing).max_keys(self.keys)
    }

    /// The value that the call has for the rule.
    fn given(&self, asks: &Asks) -> Option<&'static str> {
        match (self.of, asks.given) {
            (Of::Origin, _) => asks.origin,
            (Of::At(0 | -1), Given::One(value)) => Some(value),
            (Of::At(0 | -2), Given::Two([value, _])) => value,
            (Of::At(1 | -1) | Of::Named, Given::Two([_, value])) => value,
            _ => None,
        }
    }

    pub(crate) fn is_missed(&self, asks: &Asks) -> bool {
        asks.resource == self.resource && self.given(asks).is_none()
    }

    pub(crate) fn refuses_missing(&self, asks: &Asks) -> bool {
        self.missing == MissingKey::Refuse && self.is_missed(asks)
    }

    /// By what the rule tells calls apart; `None` if this one is not its business.
    pub(crate) fn key(&self, asks: &Asks) -> Option<&'static str> {
        if asks.resource != self.resource {
            return None;
        }
        let missing = (self.missing == MissingKey::Share).then_some("-");
        self.given(asks).or(missing)
    }

    /// Whether the rule counts the call.
    pub(crate) fn counts(&self, asks: &Asks) -> bool {
        self.key(asks).is_some() && self.halves(asks) != UNLIMITED
    }

    fn halves(&self, asks: &Asks) -> u32 {
        match (self.exception, self.tier) {
            (Some((value, halves)), _) if self.given(asks) == Some(value) => halves,
            (_, Some(halves)) if asks.has_tier => halves,
            _ => self.halves,
        }
    }

    /// What `n` tokens cost: the time in which they are earned, or a queue needs.
    pub(crate) fn cost(&self, asks: &Asks) -> Option<u64> {
        let halves = u64::from(self.halves(asks));
        let twice = 2 * self.interval * NS;
        let n = u64::from(asks.weight);
        (halves > 0).then(|| match self.count {
            Count::Refill => twice.div_ceil(halves) * UNITS * n,
            _ => (twice * n).div_ceil(halves),
        })
    }

    /// The time in which all that a value may have is earned.
    pub(crate) fn tolerance(&self, asks: &Asks) -> u64 {
        let halves = u64::from(self.halves(asks));
        let single = (2 * self.interval * NS).div_ceil(halves.max(1)) * UNITS;
        (halves / 2 + u64::from(self.burst)) * single + halves % 2 * (single / 2)
    }

    /// What of `counted` has the key of the call; `None` if it has none for the rule.
    fn alike<'a>(
        &'a self,
        asks: &Asks,
        counted: &'a [Counted],
    ) -> Option<impl DoubleEndedIterator<Item = &'a Counted> + Clone> {
        let key = self.key(asks).filter(|_| self.counts(asks))?;
        let counted = counted.iter();
        Some(counted.filter(move |other| self.key(&other.asks) == Some(key)))
    }

    /// The turn of the call in the queue of its value, and from when on it may come to wait
    /// for that; `None`: never.
    pub(crate) fn turn(&self, asks: &Asks, now: u64, counted: &[Counted]) -> Option<(u64, u64)> {
        let Count::Queue(max_wait) = self.count else {
            return Some((now, now));
        };
        let Some(alike) = self.alike(asks, counted).filter(|_| asks.weight > 0) else {
            return Some((now, now));
        };
        let last = alike.rev().find(|other| other.asks.weight > 0);
        turn(now, last.map(|last| last.turn), self.cost(asks), max_wait)
    }

    /// From when on the rule lets the call pass, beside those that it has counted.
    pub(crate) fn available_at(&self, asks: &Asks, now: u64, counted: &[Counted]) -> Option<u64> {
        if self.refuses_missing(asks) {
            return None;
        }
        let Some(alike) = self.alike(asks, counted) else {
            return Some(now);
        };
        let (weight, limit) = (asks.weight, self.halves(asks) / 2);
        match self.count {
            Count::Running => {
                // Whenever one of them ends.
                let is_full = alike.filter(|other| other.is_there).count() >= limit as usize;
                (limit > 0).then_some(if is_full { now + 1 } else { now })
            }
            _ if weight == 0 => Some(now),
            Count::Queue(_) => self.turn(asks, now, counted).map(|(at, _)| at),
            Count::Window => {
                let bucket = self.interval * NS / 2;
                let first = now / bucket;
                let fits = |number: &u64| {
                    let inside = alike
                        .clone()
                        .filter(|other| other.at / bucket + 1 >= *number);
                    inside.map(|other| other.asks.weight).sum::<u32>() + weight <= limit
                };
                let number = (first..=first + 2).find(fits)?;
                Some(now.max(number * bucket))
            }
            Count::Refill => {
                let cost = self.cost(asks)?;
                let (single, most) = (cost / u64::from(weight), self.tolerance(asks));
                let (debt, rate) = owed(alike, now, single);
                // It is paid back by the rate of the last call, until the tokens leave room.
                let leaves_room = |ns: u64| {
                    tokens_kept(debt.saturating_sub(ns * UNITS), rate, single) + cost <= most
                };
                let (mut too_soon, mut late) = (0, debt.div_ceil(UNITS));
                while too_soon < late {
                    let half = u64::midpoint(too_soon, late);
                    if leaves_room(half) {
                        late = half;
                    } else {
                        too_soon = half + 1;
                    }
                }
                (cost <= most).then_some(now + late)
            }
        }
    }

    /// By what the rule knows a call of [`Asks::with_all`].
    pub(crate) fn value(&self, asks: &Asks) -> &'static str {
        self.given(asks).unwrap_or("-")
    }

    /// Whether the call could take so many tokens now, one by one, and no more.
    pub(crate) fn has_left(&self, asks: &Asks, left: u32, now: u64, counted: &[Counted]) -> bool {
        if !self.counts(asks) {
            return left == u32::MAX;
        }
        let fits = |weight| {
            let asks = Asks { weight, ..*asks };
            self.available_at(&asks, now, counted) == Some(now)
        };
        match self.count {
            Count::Running => {
                let running = counted.iter().filter(|other| other.is_there);
                let running = running.filter(|other| self.key(&other.asks) == self.key(asks));
                left == (self.halves(asks) / 2).saturating_sub(running.count() as u32)
            }
            Count::Queue(max_wait) => {
                let one = Asks { weight: 1, ..*asks };
                let cost = self.cost(&one);
                let turn = self.turn(&one, now, counted).filter(|(at, _)| *at == now);
                let more = |(_, turn): (u64, u64)| {
                    (now + max_wait * NS - turn).checked_div(cost.unwrap_or(0))
                };
                u64::from(left) == turn.map_or(0, |turn| 1 + more(turn).unwrap_or(0))
            }
            Count::Refill | Count::Window => fits(left) && !fits(left + 1),
        }
    }
}

/// What is owed at `now` for calls that were counted in this order, and what a token costs of it;
/// `single` if nothing is.
fn owed<'a>(counted: impl Iterator<Item = &'a Counted>, now: u64, single: u64) -> (u64, u64) {
    let (mut debt, mut rate, mut at) = (0_u64, single, 0);
    for other in counted.filter(|other| other.asks.weight > 0) {
        let own = other.single;
        let left = debt.saturating_sub((other.at - at) * UNITS);
        debt = tokens_kept(left, rate, own) + other.cost;
        (rate, at) = (own, other.at);
    }
    (debt.saturating_sub((now - at) * UNITS), rate)
}

/// The debt of as many tokens as `debt` is of, at another cost of each, in whole nanoseconds.
fn tokens_kept(debt: u64, from: u64, to: u64) -> u64 {
    let debt = (u128::from(debt) * u128::from(to)).div_ceil(u128::from(from));
    debt.next_multiple_of(u128::from(UNITS)) as u64
}

impl Kind for Keyed {
    const NAME: &'static str = "key";
    const OWN_NAME: &'static str = "keyed";

    fn build(&self, id: Option<String>) -> Rule {
        match id {
            Some(id) => self.rule().id(id).into(),
            None => self.rule().into(),
        }
    }

    fn counts_like(&self, other: &Self) -> bool {
        let is_same = match (self.count, other.count) {
            (Count::Queue(_), Count::Queue(_)) => true,
            (own, other) => own == other,
        };
        let has_interval = self.count != Count::Running;
        is_same
            && (self.resource, self.of, self.keys) == (other.resource, other.of, other.keys)
            && (self.interval == other.interval || !has_interval)
    }

    fn blend(&self, other: &Self, mask: u8) -> Self {
        let mut blend = self.clone();
        let has = |bit: u8| mask >> bit & 1 == 1;
        if has(0) {
            blend.halves = other.halves;
            blend.exception = other.exception;
            blend.tier = other.tier;
            blend.burst = other.burst;
        }
        if has(1) {
            blend.missing = other.missing;
        }
        if has(2) {
            blend.interval = other.interval;
        }
        if has(3) {
            blend.count = other.count;
        }
        if has(4) {
            blend.of = other.of;
        }
        if has(5) {
            blend.keys = 16 + 8 * u32::from(self.keys == 16);
        }
        if blend.count != Count::Refill {
            blend.burst = 0;
        }
        blend
    }
}
