//! The flow rules of one node in the form in which calls are judged.
//!
//! Rules whose buckets fit on one grid of at most so many buckets share the
//! node's ring, so one compare-and-swap judges them all; each keeps its own
//! buckets there. A rule far off that grid (a day beside a second) has a ring of
//! its own, which is asked first and refunded when a later one refuses.
//!
//! ```text
//! figures        2 × 500 ms   ┐
//! 10 per second  2 × 500 ms   ├ grid 500 ms, 120 buckets: one ring
//! 100 per minute 2 × 30 s     ┘
//! 1000 per day   2 × 12 h       grid 12 h: a ring of its own
//! ```

use std::ops::Deref;
use std::time::Duration;

use super::FlowRule;
use super::flow::MOST_WAITING;
use super::line::Line;
use super::threshold::Threshold;
use crate::clock::Tick;
use crate::partners::partners;
use crate::stat::{Grid, LeapArray, Node, Quota, Shape};
use crate::sync::{Arc, shared_size};
use crate::system::Sampler;

/// Most buckets ahead that a call may wait for.
const MOST_AHEAD: u64 = 512;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Gate {
    quotas: Box<[Quota]>,
    /// The index in the rule set of each quota's rule.
    rules: Box<[u32]>,
    /// What most gates do not have.
    apart: Option<Box<Apart>>,
    max_waiting: u32,
}

/// Rules that are not judged on the node's ring alone.
#[derive(Debug)]
struct Apart {
    sides: Box<[Side]>,
    lines: Box<[Line]>,
}

/// A ring beside the node's.
#[derive(Debug)]
pub(crate) struct Side {
    index: [u32; 1],
    rule: FlowRule,
    threshold: Threshold,
    quota: Quota,
    /// Shared with the side that it goes on from, for the calls that it counts.
    ring: Arc<LeapArray>,
}

/// The quotas of one ring, as they are now.
pub(crate) enum Quotas<'a> {
    Fixed(&'a [Quota]),
    Now([Quota; 1], &'a Side),
}

/// A node with the gate over it, which other rules go on from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    pub(crate) node: &'a Node,
    pub(crate) gate: &'a Gate,
}

/// Which rules share the ring, and the shape that it must have.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    grid: Grid,
    shared: Vec<(u32, &'a FlowRule)>,
    /// With the rings of their own that they go on from. Where there is none they
    /// go on from the ring that they shared, or that counted beside them.
    apart: Vec<(u32, &'a FlowRule, Option<&'a Side>)>,
    paced: Vec<(u32, &'a FlowRule)>,
    before: Option<Before<'a>>,
    patience: Duration,
}

/// A rule that takes its tokens from a window.
#[derive(Debug)]
struct Windowed<'a> {
    index: u32,
    rule: &'a FlowRule,
    /// How far back the node's ring went before.
    known_ns: u64,
}

impl Windowed<'_> {
    /// Whether `old` may know of calls that the rule counts, and the node's ring does
    /// not.
    fn learns_from(&self, old: &Side) -> bool {
        self.rule.span_ns().min(old.rule.span_ns()) > self.known_ns
    }
}

impl<'a> Plan<'a> {
    /// A plan for `rules` on a node with figures of `shape`, whose ring may have
    /// `most` buckets, and whose calls wait for less than `patience`. It goes on
    /// from what was there `before`.
    ///
    /// A rule that counts in a ring of its own keeps one, though it might share the
    /// node's: that may not know what passed before it went so far back. All rings of
    /// a node count the same calls, so a rule with another window than before goes on
    /// from a ring that a rule has left, where that goes back further than the node's.
    pub(crate) fn new(
        rules: impl IntoIterator<Item = (u32, &'a FlowRule)>,
        before: Option<Before<'a>>,
        shape: &Shape,
        most: u64,
        patience: Duration,
    ) -> Self {
        let known_ns = before.map_or(0, |before| reach_ns(before.node.ring()));
        let (mut windowed, mut paced) = (Vec::new(), Vec::new());
        for (index, rule) in rules {
            if rule.shaping().max_wait.is_some() {
                paced.push((index, rule));
            } else {
                windowed.push(Windowed {
                    index,
                    rule,
                    known_ns,
                });
            }
        }
        let old_sides = before.map_or(&[][..], |before| before.gate.sides());
        let sides = partners(
            &windowed,
            old_sides,
            &[
                |new, old| *new.rule == old.rule,
                |new, old| new.rule.is_named_like(&old.rule) && new.rule.counts_like(&old.rule),
                |new, old| new.rule.counts_like(&old.rule),
                |new, old| new.rule.is_named_like(&old.rule) && new.learns_from(old),
                |new, old| new.learns_from(old),
            ],
        );
        let mut bucket_ns = shape.step_ns;
        let figures_ns = shape.step_ns * u64::from(shape.stride) * u64::from(shape.buckets);
        let mut span_ns = figures_ns;
        let (mut shared, mut apart) = (Vec::new(), Vec::new());
        for (Windowed { index, rule, .. }, side) in windowed.into_iter().zip(sides) {
            let finer = gcd(bucket_ns, rule.bucket_ns());
            let longer = span_ns.max(rule.span_ns());
            let fits = longer / finer <= most && !rule.shaping().is_changing();
            if fits && side.is_none() {
                (bucket_ns, span_ns) = (finer, longer);
                shared.push((index, rule));
            } else {
                apart.push((index, rule, side));
            }
        }
        Self {
            grid: Grid {
                bucket_ns,
                buckets: (span_ns / bucket_ns) as u32,
                ahead: ahead(bucket_ns, patience),
            },
            shared,
            apart,
            paced,
            before,
            patience,
        }
    }

    /// The shape of the ring.
    pub(crate) const fn grid(&self) -> Grid {
        self.grid
    }

    /// Whether a ring that is there already serves: it is as fine and as long, and
    /// no rule goes on from it in a ring of its own, which calls that go on counting
    /// on the old one would pass by.
    pub(crate) fn is_served_by(&self, ring: &LeapArray) -> bool {
        let old = ring.grid();
        self.apart.iter().all(|(.., side)| side.is_some())
            && self.grid.bucket_ns % old.bucket_ns == 0
            && u64::from(self.grid.buckets) * self.grid.bucket_ns <= reach_ns(ring)
            && ahead(old.bucket_ns, self.patience) <= old.ahead
    }

    /// The gate over `ring`. Rules with rings or lines of their own go on from
    /// those of before: from that of an equal rule, else of one with the same id,
    /// else of one that counts and paces alike.
    pub(crate) fn build(self, ring: &LeapArray, sampler: Option<&Sampler>, now: Tick) -> Gate {
        let bucket_ns = ring.grid().bucket_ns;
        let apart = self.apart.iter().map(|(_, rule, _)| rule);
        let others = self.shared.iter().chain(&self.paced).map(|(_, rule)| rule);
        let max_waiting = others
            .chain(apart)
            .filter_map(|rule| rule.most_waiting())
            .min();
        let (quotas, rules) = self
            .shared
            .iter()
            .map(|(index, rule)| (rule.quota(bucket_ns), index))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let sides: Box<[_]> = self
            .apart
            .iter()
            .map(|&(index, rule, old)| {
                Side::new(index, rule, (old, self.before), self.patience, sampler, now)
            })
            .collect();
        let old_lines = self.before.map_or(&[][..], |before| before.gate.lines());
        let lines = partners(
            &self.paced,
            old_lines,
            &[
                |(_, new), old| *new == old.rule(),
                |(_, new), old| new.is_named_like(old.rule()),
                |(_, new), old| new.paces_like(old.rule()),
            ],
        );
        let lines: Box<[_]> = self
            .paced
            .iter()
            .zip(lines)
            .map(|(&(index, rule), old)| Line::new(index, rule, old, sampler))
            .collect();
        Gate {
            quotas: quotas.into(),
            rules: rules.into_iter().copied().collect(),
            apart: (!sides.is_empty() || !lines.is_empty())
                .then(|| Box::new(Apart { sides, lines })),
            max_waiting: max_waiting.unwrap_or(MOST_WAITING),
        }
    }
}

/// How far back `ring` goes.
fn reach_ns(ring: &LeapArray) -> u64 {
    u64::from(ring.reach()) * ring.grid().bucket_ns
}

/// How many buckets ahead a call may wait that waits for less than `patience`.
fn ahead(bucket_ns: u64, patience: Duration) -> u32 {
    let buckets = crate::clock::nanos(patience).div_ceil(bucket_ns);
    buckets.clamp(1, MOST_AHEAD).next_power_of_two() as u32
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Side {
    fn new(
        index: u32,
        rule: &FlowRule,
        (old, before): (Option<&Self>, Option<Before<'_>>),
        patience: Duration,
        sampler: Option<&Sampler>,
        now: Tick,
    ) -> Self {
        let bucket_ns = rule.bucket_ns();
        let grid = Grid {
            bucket_ns,
            buckets: rule.counted_buckets(),
            ahead: ahead(bucket_ns, patience),
        };
        let ring = match (old, before) {
            (Some(old), _) if old.ring.grid() == grid => old.ring.clone(),
            (Some(old), _) => Arc::new(old.ring.move_to(grid, now)),
            // The node has moved off it, so nothing more is counted there.
            (None, Some(before)) => Arc::new(before.node.ring().move_to(grid, now)),
            (None, None) => Arc::new(LeapArray::with_grid(grid, now)),
        };
        Self {
            index: [index],
            threshold: Threshold::new(rule, old.map(|old| &old.threshold), sampler),
            quota: rule.quota(bucket_ns),
            rule: rule.clone(),
            ring,
        }
    }

    fn footprint(&self) -> usize {
        let ring = self.ring.footprint() - size_of::<LeapArray>() + shared_size::<LeapArray>();
        size_of::<Self>() + ring + self.rule.heap() + self.threshold.heap()
    }

    pub(crate) fn ring(&self) -> &LeapArray {
        &self.ring
    }

    /// What the ring limits now.
    pub(crate) fn quotas(&self, now: Tick) -> Quotas<'_> {
        match &self.threshold {
            Threshold::Fixed(_) => Quotas::Fixed(std::slice::from_ref(&self.quota)),
            changing => {
                let limit = changing.whole(now, &self.ring);
                Quotas::Now([self.quota.limited_to(limit)], self)
            }
        }
    }

    /// When the rule has room for `n` tokens, `from` some time on, if nobody else comes;
    /// `None` if never.
    fn room_at(&self, now: Tick, from: Tick, n: u32) -> Option<Tick> {
        self.threshold
            .room_at(now, from, None, &self.ring, |threshold| {
                let quota = self.quota.limited_to(self.threshold.cut(threshold));
                room_at(&self.ring, now, n, &quota)
            })
    }

    /// The rule that the ring counts for.
    pub(crate) const fn index(&self) -> &[u32; 1] {
        &self.index
    }
}

/// When `ring` has room for `n` tokens under `quota`; `None` if never.
#[inline]
fn room_at(ring: &LeapArray, now: Tick, n: u32, quota: &Quota) -> Option<Tick> {
    if ring.has_room(now, n, quota) {
        return Some(now);
    }
    ring.room_at(now, n, quota)
}

impl Quotas<'_> {
    /// When each has room in `ring` for `n` tokens, `from` some time on, if nobody else
    /// comes; `None` if one never has. It may be before `from`: then it has room all
    /// the time since.
    #[inline]
    pub(crate) fn room_at(&self, ring: &LeapArray, now: Tick, from: Tick, n: u32) -> Option<Tick> {
        match self {
            Quotas::Fixed(quotas) => quotas.iter().try_fold(now, |latest, quota| {
                Some(latest.max(room_at(ring, now, n, quota)?))
            }),
            Quotas::Now(_, side) => Some(now.max(side.room_at(now, from, n)?)),
        }
    }
}

impl Deref for Quotas<'_> {
    type Target = [Quota];

    fn deref(&self) -> &[Quota] {
        match self {
            Quotas::Fixed(quotas) => quotas,
            Quotas::Now(quotas, _) => quotas,
        }
    }
}

impl Gate {
    /// What other rules on `node`, which this gate is for, go on from.
    pub(crate) fn on<'a>(&'a self, node: &'a Node) -> Before<'a> {
        Before { node, gate: self }
    }

    /// The quotas on the node's ring.
    pub(crate) const fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The rules of those quotas.
    pub(crate) const fn rules(&self) -> &[u32] {
        &self.rules
    }

    /// The rules with rings of their own.
    pub(crate) fn sides(&self) -> &[Side] {
        self.apart.as_ref().map_or(&[], |apart| &apart.sides)
    }

    /// The rules whose calls stand in a line.
    pub(crate) fn lines(&self) -> &[Line] {
        self.apart.as_ref().map_or(&[], |apart| &apart.lines)
    }

    /// Whether the node's ring is all that judges: no rule has a ring or a line of
    /// its own.
    #[inline]
    pub(crate) const fn is_one_lane(&self) -> bool {
        self.apart.is_none()
    }

    /// Whether a rule warms up, which may have room at one time and none later.
    pub(crate) fn warms_up(&self) -> bool {
        let sides = self.sides().iter().map(|side| &side.rule);
        let mut rules = sides.chain(self.lines().iter().map(Line::rule));
        rules.any(|rule| rule.shaping().warm_up.is_some())
    }

    /// How many calls may wait at once.
    pub(crate) const fn max_waiting(&self) -> u32 {
        self.max_waiting
    }

    /// How long the longest window looks back, and the longest line, so how long a
    /// node matters after its last use.
    pub(crate) fn memory(&self, ring: &LeapArray) -> Duration {
        let shared = ring.bucket_length() * self.quotas.iter().map(Quota::span).max().unwrap_or(0);
        let apart = self.sides().iter().map(|side| side.ring.interval()).max();
        let lines = self.lines().iter().map(Line::memory).max();
        shared.max(apart.max(lines).unwrap_or_default())
    }

    /// Bytes that the gate occupies on the heap.
    pub(crate) fn footprint(&self) -> usize {
        let sides = self.sides().iter();
        let sides = sides.map(Side::footprint);
        size_of_val(&*self.quotas)
            + size_of_val(&*self.rules)
            + self.apart.as_deref().map_or(0, size_of_val)
            + sides.sum::<usize>()
            + self.lines().iter().map(Line::footprint).sum::<usize>()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape::new(500_000_000, 2, true)
    }

    fn plan(rules: &[FlowRule]) -> Plan<'_> {
        let rules = rules
            .iter()
            .enumerate()
            .map(|(index, rule)| (index as u32, rule));
        Plan::new(rules, None, &shape(), 256, Duration::from_millis(500))
    }

    #[test]
    fn seconds_and_minutes_share_a_ring_and_a_day_has_its_own() {
        let minute = Duration::from_secs(60);
        let rules = [
            FlowRule::per_second("r", 10),
            FlowRule::per("r", 100, minute),
            FlowRule::per("r", 1_000, minute * 60 * 24),
            FlowRule::per_second("r", 10).buckets(10),
        ];
        let two = plan(&rules[..2]);
        assert_eq!(
            two.grid(),
            Grid {
                bucket_ns: 500_000_000,
                buckets: 120,
                ahead: 1
            }
        );
        let all = plan(&rules);
        assert_eq!(
            all.apart
                .iter()
                .map(|(index, ..)| *index)
                .collect::<Vec<_>>(),
            [2, 3]
        );
        let fine = plan(&rules[3..]);
        assert_eq!(
            fine.grid(),
            Grid {
                bucket_ns: 100_000_000,
                buckets: 10,
                ahead: 8
            }
        );
    }

    #[test]
    fn a_finer_and_longer_ring_serves_and_a_coarser_or_shorter_one_does_not() {
        let second = [FlowRule::per_second("r", 10)];
        let minute = [FlowRule::per("r", 10, Duration::from_secs(60))];
        let tenths = [FlowRule::per_second("r", 10).buckets(10)];
        let ring = |rules: &[FlowRule]| LeapArray::with_grid(plan(rules).grid(), Tick::ZERO);
        assert!(plan(&second).is_served_by(&ring(&minute)));
        assert!(plan(&second).is_served_by(&ring(&tenths)));
        assert!(!plan(&minute).is_served_by(&ring(&second)));
        assert!(!plan(&tenths).is_served_by(&ring(&minute)));
    }

    #[test]
    fn strict_rules_look_one_bucket_further() {
        let strict = [FlowRule::per_second("r", 10).buckets(10).strict()];
        assert_eq!(plan(&strict).grid().buckets, 11);
    }
}
