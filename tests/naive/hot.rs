//! Rules on parameters at random, and what a naive engine makes of them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{KeyedRule, MissingKey, Rule};

use crate::setup::{Asks, NS, RESOURCES};
use crate::support::ms;
use crate::versions::Kind;
use crate::wants::{Given, VALUES, Wants};

/// Parts of a nanosecond in which a refilled quota is reckoned.
const UNITS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
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
pub(crate) struct Hot {
    pub(crate) resource: &'static str,
    of: Of,
    pub(crate) count: Count,
    /// Half tokens, in an interval in ms.
    halves: u32,
    pub(crate) interval: u64,
    burst: u32,
    exception: Option<(&'static str, u32)>,
    tier: Option<u32>,
    missing: MissingKey,
    /// How many values it knows at least.
    keys: u32,
}

/// A call that a rule has counted, when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) wants: Wants,
    pub(crate) is_running: bool,
}

/// The same, and what it has cost by the rule of its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paid {
    pub(crate) seen: Seen,
    pub(crate) cost: u64,
}

impl Hot {
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
        if let Some((value, own)) = self.exception {
            rule = rule.except(value, halves(own));
        }
        if let Some(own) = self.tier {
            rule = rule.tier("pro", halves(own));
        }
        rule.missing(self.missing).max_keys(self.keys)
    }

    /// The value that the call has for the rule.
    fn given(&self, wants: &Wants) -> Option<&'static str> {
        match (self.of, wants.given) {
            (Of::Origin, _) => wants.call.origin,
            (Of::At(0 | -1), Given::One(value)) => Some(value),
            (Of::At(0 | -2), Given::Two([value, _])) => value,
            (Of::At(1 | -1) | Of::Named, Given::Two([_, value])) => value,
            _ => None,
        }
    }

    pub(crate) fn is_missed(&self, wants: &Wants) -> bool {
        wants.call.resource == self.resource && self.given(wants).is_none()
    }

    pub(crate) fn refuses_missing(&self, wants: &Wants) -> bool {
        self.missing == MissingKey::Refuse && self.is_missed(wants)
    }

    /// By what the rule tells calls apart; `None` if this one is not its business.
    pub(crate) fn key(&self, wants: &Wants) -> Option<&'static str> {
        if wants.call.resource != self.resource {
            return None;
        }
        let missing = (self.missing == MissingKey::Share).then_some("-");
        self.given(wants).or(missing)
    }

    fn halves(&self, wants: &Wants) -> u32 {
        match (self.exception, self.tier) {
            (Some((value, halves)), _) if self.given(wants) == Some(value) => halves,
            (_, Some(halves)) if wants.has_tier => halves,
            _ => self.halves,
        }
    }

    /// What `n` tokens cost: the time in which they are earned, or a queue needs.
    pub(crate) fn cost(&self, wants: &Wants) -> Option<u64> {
        let halves = u64::from(self.halves(wants));
        let twice = 2 * self.interval * NS;
        let n = u64::from(wants.call.n);
        (halves > 0).then(|| match self.count {
            Count::Refill => (twice * UNITS).div_ceil(halves) * n,
            _ => (twice * n).div_ceil(halves),
        })
    }

    /// The time in which all that a value may have is earned.
    pub(crate) fn tolerance(&self, wants: &Wants) -> u64 {
        let halves = u64::from(self.halves(wants));
        let single = (2 * self.interval * NS * UNITS).div_ceil(halves.max(1));
        (halves / 2 + u64::from(self.burst)) * single + halves % 2 * (single / 2)
    }

    /// From when on the rule lets the call pass, if that has been `paid`.
    pub(crate) fn available_at(&self, wants: &Wants, now: u64, paid: &[Paid]) -> Option<u64> {
        if self.refuses_missing(wants) {
            return None;
        }
        let Some(key) = self.key(wants) else {
            return Some(now);
        };
        let paid = paid
            .iter()
            .filter(|paid| self.key(&paid.seen.wants) == Some(key));
        let seen = paid.clone().map(|paid| paid.seen);
        let (n, limit) = (wants.call.n, self.halves(wants) / 2);
        match self.count {
            Count::Running => {
                // Whenever one of them ends.
                let running = seen.filter(|seen| seen.is_running).count();
                let is_full = running >= limit as usize;
                (limit > 0).then_some(if is_full { now + 1 } else { now })
            }
            _ if n == 0 => Some(now),
            Count::Window => {
                let bucket = self.interval * NS / 2;
                let first = now / bucket;
                let fits = |number: &u64| {
                    let inside = seen.clone().filter(|seen| seen.at / bucket + 1 >= *number);
                    inside.map(|seen| seen.wants.call.n).sum::<u32>() + n <= limit
                };
                let number = (first..=first + 2).find(fits)?;
                Some(now.max(number * bucket))
            }
            Count::Queue(_) => {
                // Nobody waits, so a turn is the time of a call.
                let cost = self.cost(wants)?;
                let last = seen.rev().find(|seen| seen.wants.call.n > 0);
                Some(last.map_or(now, |last| now.max(last.at + cost)))
            }
            Count::Refill => {
                let cost = self.cost(wants)?;
                // Since no time may more have passed than is earned and may be owed.
                let (mut debt, mut sum) = (0, 0);
                for Paid { seen, cost } in paid.rev() {
                    sum += cost;
                    debt = debt.max(sum.saturating_sub((now - seen.at) * UNITS));
                }
                let most = self.tolerance(wants);
                let over = (debt + cost).saturating_sub(most);
                (cost <= most).then_some(now + over.div_ceil(UNITS))
            }
        }
    }

    /// By what the rule knows a call of [`Wants::with_all`].
    pub(crate) fn value(&self, wants: &Wants) -> &'static str {
        self.given(wants).unwrap_or("-")
    }

    /// Whether the call could take so many tokens now, one by one, and no more.
    pub(crate) fn has_left(&self, wants: &Wants, left: u32, now: u64, paid: &[Paid]) -> bool {
        let fits = |n| {
            let call = Asks { n, ..wants.call };
            self.available_at(&Wants { call, ..*wants }, now, paid) == Some(now)
        };
        match self.count {
            Count::Running => {
                let seen = paid.iter().map(|paid| paid.seen);
                let running = seen.filter(|seen| seen.is_running);
                let running = running.filter(|seen| self.key(&seen.wants) == self.key(wants));
                left == (self.halves(wants) / 2).saturating_sub(running.count() as u32)
            }
            Count::Queue(_) => left == u32::from(fits(1)),
            Count::Refill | Count::Window => fits(left) && !fits(left + 1),
        }
    }
}

impl Kind for Hot {
    const NAME: &'static str = "hot";
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

/// A resource has at most two rules that count calls at once: those beyond go.
pub(crate) fn keep_two_at_once<T>(rules: &mut Vec<T>, hot_of: impl Fn(&T) -> Option<&Hot>) {
    let mut at_once = BTreeMap::<_, u32>::new();
    rules.retain(|rule| {
        let hot = hot_of(rule).filter(|hot| hot.count == Count::Running);
        hot.is_none_or(|hot| {
            let known = at_once.entry(hot.resource).or_default();
            *known += 1;
            *known <= 2
        })
    });
}

pub(crate) fn hot() -> impl Strategy<Value = Hot> {
    let of = prop_oneof![
        4 => select(&[0, 0, 1, -1][..]).prop_map(Of::At),
        1 => Just(Of::Named),
        1 => Just(Of::Origin),
    ];
    let count = prop_oneof![
        2 => Just(Count::Refill),
        1 => Just(Count::Window),
        1 => Just(Count::Queue(0)),
        1 => Just(Count::Running),
    ];
    let missing = prop_oneof![
        2 => Just(MissingKey::Share),
        1 => Just(MissingKey::Skip),
        1 => Just(MissingKey::Refuse),
    ];
    let interval = select(&[10_u64, 300, 1_000, 7, 2_000][..]);
    let exception = prop::option::weighted(0.3, (select(&VALUES[..]), 0_u32..9));
    let tier = prop::option::weighted(0.3, 0_u32..14);
    let whose = (select(&RESOURCES[..]), of, missing);
    (whose, count, 0_u32..12, interval, 0_u32..4, exception, tier).prop_map(
        |((resource, of, missing), count, halves, interval, burst, exception, tier)| Hot {
            resource,
            of,
            count,
            halves,
            interval,
            burst: if count == Count::Refill { burst } else { 0 },
            exception,
            tier,
            missing,
            keys: 16,
        },
    )
}
