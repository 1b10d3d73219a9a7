//! How the flow rules of one node are laid out: which rules share its ring, which have a dedicated
//! ring, which have a queue, and which state each rule inherits.
//!
//! Rules whose buckets fit on one grid of a limited number of buckets share the node's ring, so one
//! compare-and-swap judges them all; each keeps its own buckets there. A rule that does not fit
//! that grid, such as a rule per day among rules per second, has a *dedicated ring*. Tokens are
//! taken from the dedicated ring first, and refunded if a later rule refuses. A rule whose
//! threshold changes by itself has a dedicated ring as well.
//!
//! ```text
//! figures        2 × 500 ms   ┐
//! 10 per second  2 × 500 ms   ├ grid 500 ms, 120 buckets: one ring
//! 100 per minute 2 × 30 s     ┘
//! 1000 per day   2 × 12 h       grid 12 h: a ring of its own
//! ```
//!
//! # Reloads
//!
//! An old ring whose shape still serves stays in use. Any other ring is
//! [moved](LeapArray::move_to): the old ring ends, and its counts are *cast* into the new shape. A
//! call judged by older rules can take nothing from a ring that has ended, and is judged again.
//! Three invariants must hold. [`Plan`] alone ensures them, since no other code moves a ring:
//!
//! - A reload ends a ring at most once, and only if the ring does not stay in use. A ring that
//!   stays in use is never cast: tokens that pass there later would be missing from the copy.
//! - The dedicated ring of a rule becomes the ring of one later rule at most, as [`carry_over`]
//!   hands out no predecessor twice.
//! - The node's ring may be cast several times: for the node, and for every rule that gets a
//!   dedicated ring without inheriting one, as the node's ring has counted the calls of that rule.
//!   In that case the node's ring must be ended and replaced, even if it still
//!   [serves](Plan::is_served_by). A ring that has ended yields the same counts in each cast.
//!
//! A reload rebuilds the nodes of a resource and of its scopes under one lock, so no other thread
//! moves the same rings.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::FlowRule;
use super::compiled::{CompiledRules, DedicatedRing};
use super::flow::MOST_WAITING;
use super::queue::Queue;
use crate::base::carry_over::carry_over;
use crate::base::sync::Arc;
use crate::clock::Tick;
use crate::stat::{Grid, LeapArray, MOST_AHEAD, Node, Shape};
use crate::system::Sampler;

/// The previous node of a resource and its compiled rules, whose state the new ones inherit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreviousRules<'a> {
    pub(crate) node: &'a Node,
    pub(crate) compiled: &'a CompiledRules,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The shape that the node's ring must have at least.
    grid: Grid,
    /// Rules that are judged on the node's ring. They inherit its counts.
    shared: Vec<(u32, &'a FlowRule)>,
    /// Rules with a dedicated ring. A new dedicated ring inherits the node's counts, if there was a
    /// node.
    dedicated_rules: Vec<Placed<'a, DedicatedRing>>,
    /// Rules whose calls wait in a queue. They take no tokens.
    queued: Vec<Placed<'a, Queue>>,
    /// The previous node and rules of the resource, if there are any.
    before: Option<PreviousRules<'a>>,
    /// Calls wait for less than this time.
    patience: Duration,
}

/// A rule with a dedicated ring or a queue.
#[derive(Debug)]
struct Placed<'a, T> {
    index: u32,
    rule: &'a FlowRule,
    /// The ring or queue of a previous rule that this rule continues, if there is one.
    inherits: Option<&'a T>,
}

/// The buckets that a ring needs.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The length of a bucket, in nanoseconds.
    bucket_ns: u64,
    /// How far back the buckets reach, in nanoseconds.
    span_ns: u64,
}

// === impl Plan ===

impl<'a> Plan<'a> {
    /// Creates a plan for `rules` on a node with figures of `shape`, whose ring may have `most`
    /// buckets, and whose calls wait for less than `patience`. It inherits the state of `before`.
    pub(crate) fn new(
        rules: Vec<(u32, &'a FlowRule)>,
        before: Option<PreviousRules<'a>>,
        shape: &Shape,
        most: u64,
        patience: Duration,
    ) -> Self {
        let (mut queued, mut windowed) = (Vec::new(), Vec::new());
        for (index, rule) in rules {
            if rule.shaping.max_wait.is_some() {
                queued.push((index, rule));
            } else {
                windowed.push((index, rule));
            }
        }
        let dedicated = inherited_rings(&windowed, before);
        let mut extent = Extent::of_figures(shape);
        let (mut shared, mut dedicated_rules) = (Vec::new(), Vec::new());
        for ((index, rule), inherits) in windowed.into_iter().zip(dedicated) {
            let wider = extent.with(rule);
            let fits = wider.buckets() <= most && !rule.shaping.is_changing();
            // A rule that counted in a dedicated ring keeps a dedicated ring, even if it fits the
            // node's ring: the node's ring may have been too short to keep all calls of its window.
            if fits && inherits.is_none() {
                extent = wider;
                shared.push((index, rule));
            } else {
                dedicated_rules.push(Placed {
                    index,
                    rule,
                    inherits,
                });
            }
        }
        Self {
            grid: extent.grid(patience),
            shared,
            dedicated_rules,
            queued: with_old_queues(queued, before),
            before,
            patience,
        }
    }

    /// Carries the plan out: returns the node, whose figures are of `shape`, and the compiled rules
    /// over it. With `keeps_minute` the node keeps the seconds of the last minute from now on. This
    /// is the only place where rings are moved; see the [module](self).
    pub(crate) fn build(
        self,
        shape: &StdArc<Shape>,
        keeps_minute: bool,
        sampler: Option<&Sampler>,
        now: Tick,
    ) -> (Node, CompiledRules) {
        let node = match self.before.map(|before| before.node) {
            None => Node::with_grid(self.grid, shape.clone(), keeps_minute, now),
            Some(node) if self.is_served_by(node.ring()) => node.clone(),
            Some(node) => node.over(Arc::new(node.ring_at(now).move_to(self.grid, now))),
        };
        if keeps_minute {
            node.keep_minute();
        }
        let bucket_ns = node.ring().grid().bucket_ns;
        let mut quotas = (Vec::new(), Vec::new());
        for (index, rule) in &self.shared {
            quotas.0.push(*index);
            quotas.1.push(rule.quota(bucket_ns));
        }
        // Dedicated rings are built after the node: the node must have ended its old ring before a
        // new dedicated ring inherits from it.
        let mut dedicated = Vec::new();
        for it in &self.dedicated_rules {
            let ring = self.ring_of(it, now);
            dedicated.push(DedicatedRing::new(
                it.index,
                it.rule,
                ring,
                it.inherits,
                sampler,
            ));
        }
        let mut queues = Vec::new();
        for it in &self.queued {
            queues.push(Queue::new(it.index, it.rule, it.inherits, sampler));
        }
        let compiled = CompiledRules::new(quotas, dedicated, queues, self.max_waiting());
        (node, compiled)
    }

    /// Returns whether the node can keep its `ring`: the buckets are as long as the planned
    /// buckets, which decides what the ring lends; the ring reaches as far back and ahead as
    /// planned; and no rule gets a new dedicated ring.
    fn is_served_by(&self, ring: &LeapArray) -> bool {
        let old = ring.grid();
        self.dedicated_rules.iter().all(|it| it.inherits.is_some())
            && self.grid.bucket_ns == old.bucket_ns
            && u64::from(self.grid.buckets) * self.grid.bucket_ns <= reach_ns(ring)
            && ahead(old.bucket_ns, self.patience) <= old.ahead
    }

    /// Returns the dedicated ring of `placed`.
    fn ring_of(&self, placed: &Placed<'_, DedicatedRing>, now: Tick) -> Arc<LeapArray> {
        let bucket_ns = placed.rule.bucket_ns();
        let grid = Grid {
            bucket_ns,
            buckets: placed.rule.counted_buckets(),
            ahead: ahead(bucket_ns, self.patience),
        };
        let left = match (placed.inherits, self.before) {
            (Some(old), _) if serves(old.ring(), grid) => return old.shared_ring(),
            (Some(old), _) => old.ring(),
            // The rule gets a new dedicated ring, so the node has ended this ring.
            (None, Some(before)) => before.node.ring(),
            (None, None) => return Arc::new(LeapArray::with_grid(grid, now)),
        };
        Arc::new(left.move_to(grid, now))
    }

    /// How many calls may wait at once, by the tightest rule.
    fn max_waiting(&self) -> u32 {
        let mut least = None;
        let mut look = |rule: &FlowRule| {
            if let Some(most) = rule.most_waiting() {
                least = Some(least.map_or(most, |least: u32| least.min(most)));
            }
        };
        for (_, rule) in &self.shared {
            look(rule);
        }
        for it in &self.dedicated_rules {
            look(it.rule);
        }
        for it in &self.queued {
            look(it.rule);
        }
        least.unwrap_or(MOST_WAITING)
    }
}

/// The dedicated rings that `rules` inherit.
///
/// All rings of a node count the same calls. So a rule whose window has changed inherits a ring
/// that another rule no longer uses, if that ring reaches further back than the node's ring.
fn inherited_rings<'a>(
    rules: &[(u32, &'a FlowRule)],
    before: Option<PreviousRules<'a>>,
) -> Vec<Option<&'a DedicatedRing>> {
    let node_reach_ns = before.map_or(0, |before| reach_ns(before.node.ring()));
    // Whether the ring of `old` may have counted calls that `new` counts and that the node's ring
    // has forgotten.
    let adds_history =
        |new: &FlowRule, old: &FlowRule| new.span_ns().min(old.span_ns()) > node_reach_ns;
    carry_over(
        rules,
        before.map_or(&[], |before| before.compiled.dedicated()),
        &[
            &|(_, new), old| *new == old.rule(),
            &|(_, new), old| new.is_named_like(old.rule()) && new.counts_like(old.rule()),
            &|(_, new), old| new.counts_like(old.rule()),
            &|(_, new), old| new.is_named_like(old.rule()) && adds_history(new, old.rule()),
            &|(_, new), old| adds_history(new, old.rule()),
        ],
    )
}

/// `rules` with the queues that they inherit: a call that waits in such a queue keeps its place.
fn with_old_queues<'a>(
    rules: Vec<(u32, &'a FlowRule)>,
    before: Option<PreviousRules<'a>>,
) -> Vec<Placed<'a, Queue>> {
    let queues = carry_over(
        &rules,
        before.map_or(&[], |before| before.compiled.queues()),
        &[
            &|(_, new), old| *new == old.rule(),
            &|(_, new), old| new.is_named_like(old.rule()),
            &|(_, new), old| new.selects_like(old.rule()),
        ],
    );
    let mut placed = Vec::with_capacity(rules.len());
    for ((index, rule), inherits) in rules.into_iter().zip(queues) {
        placed.push(Placed {
            index,
            rule,
            inherits,
        });
    }
    placed
}

/// Returns whether `ring`, which belongs to one rule alone, has the shape of `grid`. The ring may
/// reach further ahead, as previous rules may have let calls wait longer.
fn serves(ring: &LeapArray, grid: Grid) -> bool {
    let old = ring.grid();
    let ahead = grid.ahead.max(old.ahead);
    old == Grid { ahead, ..grid }
}

/// How far back `ring` reaches, in nanoseconds.
fn reach_ns(ring: &LeapArray) -> u64 {
    u64::from(ring.reach()) * ring.grid().bucket_ns
}

/// The number of coming buckets for which calls may wait, if no call waits for `patience` or
/// longer.
fn ahead(bucket_ns: u64, patience: Duration) -> u32 {
    let buckets = crate::clock::nanos(patience).div_ceil(bucket_ns);
    buckets.clamp(1, MOST_AHEAD).next_power_of_two() as u32
}

/// The greatest common divisor.
const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

// === impl Extent ===

impl Extent {
    /// The buckets that the figures of a node need.
    fn of_figures(shape: &Shape) -> Self {
        let bucket_ns = shape.step_ns;
        Self {
            bucket_ns,
            span_ns: bucket_ns * u64::from(shape.stride) * u64::from(shape.buckets),
        }
    }

    /// Returns the extent that covers both `self` and the window of `rule`.
    fn with(self, rule: &FlowRule) -> Self {
        Self {
            bucket_ns: gcd(self.bucket_ns, rule.bucket_ns()),
            span_ns: self.span_ns.max(rule.span_ns()),
        }
    }

    /// The number of buckets.
    const fn buckets(self) -> u64 {
        self.span_ns / self.bucket_ns
    }

    /// The shape of a ring with these buckets, in which calls wait for less than `patience`.
    fn grid(self, patience: Duration) -> Grid {
        Grid {
            bucket_ns: self.bucket_ns,
            buckets: self.buckets() as u32,
            ahead: ahead(self.bucket_ns, patience),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape::new(500_000_000, 2)
    }

    fn plan(rules: &[FlowRule]) -> Plan<'_> {
        let rules = (0..).zip(rules).collect();
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
            two.grid,
            Grid {
                bucket_ns: 500_000_000,
                buckets: 120,
                ahead: 1
            }
        );
        let all = plan(&rules);
        assert_eq!(
            all.dedicated_rules
                .iter()
                .map(|it| it.index)
                .collect::<Vec<_>>(),
            [2, 3]
        );
        let fine = plan(&rules[3..]);
        assert_eq!(
            fine.grid,
            Grid {
                bucket_ns: 100_000_000,
                buckets: 10,
                ahead: 8
            }
        );
    }

    #[test]
    fn a_longer_ring_serves_and_a_shorter_finer_or_coarser_one_does_not() {
        let second = [FlowRule::per_second("r", 10)];
        let minute = [FlowRule::per("r", 10, Duration::from_secs(60))];
        let tenths = [FlowRule::per_second("r", 10).buckets(10)];
        let ring = |rules: &[FlowRule]| LeapArray::with_grid(plan(rules).grid, Tick::ZERO);
        assert!(plan(&second).is_served_by(&ring(&minute)));
        assert!(!plan(&second).is_served_by(&ring(&tenths)));
        assert!(!plan(&minute).is_served_by(&ring(&second)));
        assert!(!plan(&tenths).is_served_by(&ring(&minute)));
    }

    #[test]
    fn strict_rules_look_one_bucket_further() {
        let strict = [FlowRule::per_second("r", 10).buckets(10).strict()];
        assert_eq!(plan(&strict).grid.buckets, 11);
    }
}
