//! Flow rules: windows, and queues of calls one after the other.

use tower_sentinel::{FlowRule, MissingKey};

use super::call::{Asks, NS};
use crate::support::ms;

/// Whose calls a rule counts, and limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Whose {
    All,
    /// Of each origin, in a table.
    Each(MissingKey),
    Origin(&'static str),
    OtherOrigins,
    Context(&'static str),
    /// It counts those of another resource.
    Related(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) resource: &'static str,
    pub(crate) whose: Whose,
    pub(crate) limit: u32,
    /// In ms, each.
    pub(crate) buckets: u64,
    pub(crate) bucket: u64,
    pub(crate) is_strict: bool,
    /// One call after the other, which may wait for so long, in ms.
    pub(crate) queue: Option<u64>,
    /// Of what leaves its window, so much may be lent.
    pub(crate) ratio: f64,
    /// Whether it was told to lend.
    pub(crate) lend: Option<bool>,
}

/// When a queue has a turn for a call of that cost, and from when on the call may come to
/// wait for it; `None`: never.
pub(crate) fn turn(
    now: u64,
    last: Option<u64>,
    cost: Option<u64>,
    max_wait: u64,
) -> Option<(u64, u64)> {
    let turn = last.map_or(Some(now), |last| Some(now.max(last + cost?)))?;
    cost.map(|_| (now.max(turn.saturating_sub(max_wait * NS)), turn))
}

impl Flow {
    pub(crate) fn rule(&self, id: usize) -> FlowRule {
        let interval = ms(self.buckets * self.bucket);
        let mut rule = FlowRule::per(self.resource, self.limit, interval)
            .buckets(self.buckets as u32)
            .max_occupy_ratio(self.ratio)
            .id(id.to_string());
        if self.is_strict {
            rule = rule.strict();
        }
        if let Some(max_wait) = self.queue {
            rule = rule.throttle(ms(max_wait));
        }
        if let Some(lend) = self.lend {
            rule = rule.lend(lend);
        }
        match self.whose {
            Whose::All => rule,
            Whose::Each(missing) => rule.by_origin().missing(missing),
            Whose::Origin(origin) => rule.for_origin(origin),
            Whose::OtherOrigins => rule.for_origin("other"),
            Whose::Context(context) => rule.in_context(context),
            Whose::Related(related) => rule.when(related),
        }
    }

    pub(crate) fn misses_key(&self, call: &Asks) -> bool {
        matches!(self.whose, Whose::Each(MissingKey::Refuse)) && call.origin.is_none()
    }

    /// Whether it keeps a few bytes for each origin, and so counts a call when it comes.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.whose, Whose::Each(_))
    }

    pub(crate) fn is_related(&self) -> bool {
        matches!(self.whose, Whose::Related(_))
    }

    /// The resource whose calls it counts.
    pub(crate) fn counts(&self) -> &'static str {
        match self.whose {
            Whose::Related(related) => related,
            _ => self.resource,
        }
    }

    /// What a call costs in its queue, in ns.
    pub(crate) fn cost(&self, weight: u32) -> Option<u64> {
        let interval = u128::from(self.buckets * self.bucket * NS) * u128::from(weight);
        (self.limit > 0).then(|| interval.div_ceil(self.limit.into()) as u64)
    }

    /// The length of a bucket, in ns, and how many of them are counted together.
    pub(crate) fn window(&self) -> (u64, u64) {
        let counted = self.buckets + u64::from(self.is_strict);
        (self.bucket * NS, counted)
    }

    /// Whether the window that ends with `bucket` has room for so much more, beside all
    /// that passed in it or later.
    pub(crate) fn fits(&self, bucket: u64, weight: u32, passed: &[(u64, u32)]) -> bool {
        let (length, counted) = self.window();
        let inside = |at: u64| at / length + counted > bucket;
        let inside = passed.iter().filter(|(at, _)| inside(*at));
        inside.map(|(_, weight)| weight).sum::<u32>() + weight <= self.limit
    }

    /// From when on a window has room for so much more, in ns, of what passed at which
    /// time; `None`: never.
    pub(crate) fn available_at(&self, now: u64, weight: u32, passed: &[(u64, u32)]) -> Option<u64> {
        let (length, counted) = self.window();
        let first = now / length;
        let last = passed.iter().map(|(at, _)| at / length).max();
        let mut buckets = first..=last.unwrap_or(first).max(first) + counted;
        let bucket = buckets.find(|bucket| self.fits(*bucket, weight, passed))?;
        Some(now.max(bucket * length))
    }
}
