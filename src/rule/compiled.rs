//! The flow rules of one node in the form in which the engine judges calls.
//!
//! Most rules are judged on the node's ring, some on a dedicated ring, and some have a queue. A
//! [plan](super::plan) determines where each rule is judged, and which state outlasts a reload.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use super::FlowRule;
use super::plan::PreviousRules;
use super::queue::Queue;
use super::threshold::Threshold;
use crate::base::sync::{Arc, shared_size};
use crate::clock::Tick;
use crate::stat::{Denied, LeapArray, Node, Quota, Taken};
use crate::system::Sampler;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CompiledRules {
    /// The quotas that are judged on the node's ring.
    quotas: Box<[Quota]>,
    /// For each quota, the index of its rule in the set.
    rules: Box<[u32]>,
    /// Dedicated rings and queues; `None` for most resources, which have neither.
    extra: Option<Box<ExtraRings>>,
    /// How many calls can wait at once.
    max_waiting: u32,
}

/// The dedicated rings and the queues of a node.
#[derive(Debug)]
struct ExtraRings {
    dedicated: Box<[DedicatedRing]>,
    queues: Box<[Queue]>,
}

/// A flow rule with a dedicated ring, in which it counts in addition to the node's ring.
#[derive(Debug)]
pub(crate) struct DedicatedRing {
    /// The index of the rule in its set, as a slice for [`Denied::by`].
    index: [u32; 1],
    rule: FlowRule,
    threshold: Threshold,
    quota: Quota,
    /// Kept over reloads: the rule that inherits the ring shares it, so the counted calls stay.
    ring: Arc<LeapArray>,
}

/// The quotas of one ring at one time.
pub(crate) enum Quotas<'a> {
    Fixed(&'a [Quota]),
    Now([Quota; 1], &'a DedicatedRing),
}

impl DedicatedRing {
    /// Creates the state of `rule`, which counts in `ring` and inherits the state of its threshold
    /// from `old`.
    pub(super) fn new(
        index: u32,
        rule: &FlowRule,
        ring: Arc<LeapArray>,
        old: Option<&Self>,
        sampler: Option<&Sampler>,
    ) -> Self {
        Self {
            index: [index],
            threshold: Threshold::new(rule, old.map(|old| &old.threshold), sampler),
            quota: rule.quota(rule.bucket_ns()),
            rule: rule.clone(),
            ring,
        }
    }

    /// Bytes that the rule and its ring occupy, heap included.
    fn footprint(&self) -> usize {
        let ring = self.ring.footprint() - size_of::<LeapArray>() + shared_size::<LeapArray>();
        size_of::<Self>() + ring + self.rule.heap() + self.threshold.heap()
    }

    /// The rule that the ring counts for.
    pub(super) const fn rule(&self) -> &FlowRule {
        &self.rule
    }

    /// Returns whether the rule's limit never changes.
    const fn is_fixed(&self) -> bool {
        matches!(self.threshold, Threshold::Fixed(_))
    }

    /// Returns the ring, which the rule that inherits it in the next set continues to use.
    pub(super) fn shared_ring(&self) -> Arc<LeapArray> {
        self.ring.clone()
    }

    pub(crate) fn ring(&self) -> &LeapArray {
        &self.ring
    }

    /// The quotas of the ring at `now`.
    pub(crate) fn quotas(&self, now: Tick) -> Quotas<'_> {
        match &self.threshold {
            Threshold::Fixed(_) => Quotas::Fixed(std::slice::from_ref(&self.quota)),
            changing => {
                let limit = changing.whole_tokens(changing.now(now, None, &self.ring));
                Quotas::Now([self.quota.limited_to(limit)], self)
            }
        }
    }

    /// Returns when the rule has room for `weight` tokens if no other call comes, judged for a call
    /// that passes at `from` or later; `None` if never.
    fn available_at(&self, now: Tick, from: Tick, weight: u32) -> Option<Tick> {
        self.threshold
            .available_at(now, from, None, &self.ring, &|threshold| {
                let quota = self
                    .quota
                    .limited_to(self.threshold.whole_tokens(threshold));
                self.ring.available_from(now, weight, &quota)
            })
    }

    /// The quotas of the ring at the future time `at`, if no other call comes.
    fn quotas_at(&self, now: Tick, at: Tick) -> Quotas<'_> {
        // The closure is called with each threshold in turn; the last threshold is in force at
        // `at`.
        let limit = Cell::new(self.quota.limit());
        let available_at = |threshold| {
            limit.set(self.threshold.whole_tokens(threshold));
            Some(now)
        };
        let _ = self
            .threshold
            .available_at(now, at, None, &self.ring, &available_at);
        Quotas::Now([self.quota.limited_to(limit.get())], self)
    }

    // --- for a rule whose limit never changes ---

    /// Takes `weight` tokens if the rule has room for them, in [one
    /// attempt](LeapArray::acquire_at_once).
    #[inline(always)]
    pub(crate) fn take_at_once(&self, now: Tick, weight: u32) -> Option<Result<Taken, Denied>> {
        let taken = self
            .ring
            .acquire_at_once(now, weight, std::slice::from_ref(&self.quota));
        taken.map(|taken| taken.map_err(|denied| denied.by(&self.index)))
    }

    /// Takes `weight` tokens if the rule has room for them.
    pub(crate) fn take(&self, now: Tick, weight: u32) -> Result<Taken, Denied> {
        self.ring
            .acquire(now, weight, std::slice::from_ref(&self.quota))
            .map_err(|denied| denied.by(&self.index))
    }

    /// Returns whether the rule has room for `weight` tokens now. Takes none.
    pub(crate) fn check_room(&self, now: Tick, weight: u32) -> Result<(), Denied> {
        self.ring
            .check_room(now, weight, std::slice::from_ref(&self.quota))
            .map_err(|denied| denied.by(&self.index))
    }

    /// Refunds tokens that were taken for a call that does not start. Tokens whose bucket has left
    /// the ring stay spent, which has no effect, as no statistics are read from this ring.
    #[cold]
    pub(crate) fn refund(&self, taken: Taken, weight: u32) {
        let _ = self.ring.refund_at(taken.bucket, weight);
    }

    /// Returns when the rule has room for `weight` tokens if no other call comes; `None` if never.
    pub(crate) fn room_at(&self, now: Tick, weight: u32) -> Option<Tick> {
        self.ring.available_from(now, weight, &self.quota)
    }

    /// The index of the rule in its set.
    pub(crate) const fn index(&self) -> &[u32; 1] {
        &self.index
    }
}

impl Quotas<'_> {
    /// The quotas at the future time `at`, if no other call comes until then.
    pub(crate) fn at(&self, now: Tick, at: Tick) -> Quotas<'_> {
        match self {
            Quotas::Fixed(quotas) => Quotas::Fixed(quotas),
            Quotas::Now(_, ring) => ring.quotas_at(now, at),
        }
    }

    /// Returns when every quota has room in `ring` for `weight` tokens, if no other call comes,
    /// judged for a call that passes at `from` or later; `None` if a quota never has room. A time
    /// before `from` means that there is room at `from` as well.
    #[inline]
    pub(crate) fn available_at(
        &self,
        ring: &LeapArray,
        now: Tick,
        from: Tick,
        weight: u32,
    ) -> Option<Tick> {
        match self {
            Quotas::Fixed(quotas) => quotas.iter().try_fold(now, |latest, quota| {
                Some(latest.max(ring.available_from(now, weight, quota)?))
            }),
            Quotas::Now(_, ring) => Some(now.max(ring.available_at(now, from, weight)?)),
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

impl CompiledRules {
    /// Creates compiled rules from the quotas on the node's ring, the rules with dedicated rings,
    /// and the queues. At most `max_waiting` calls wait at once.
    pub(super) fn new(
        (rules, quotas): (Vec<u32>, Vec<Quota>),
        dedicated: Vec<DedicatedRing>,
        queues: Vec<Queue>,
        max_waiting: u32,
    ) -> Self {
        let has_any = !(dedicated.is_empty() && queues.is_empty());
        let extra = || ExtraRings {
            dedicated: dedicated.into(),
            queues: queues.into(),
        };
        Self {
            quotas: quotas.into(),
            rules: rules.into(),
            extra: has_any.then(|| Box::new(extra())),
            max_waiting,
        }
    }

    /// Returns these rules with their `node`. The next rules of the resource inherit state from
    /// both.
    pub(crate) fn on<'a>(&'a self, node: &'a Node) -> PreviousRules<'a> {
        PreviousRules {
            node,
            compiled: self,
        }
    }

    /// The quotas on the node's ring.
    pub(crate) const fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// For each quota, the index of its rule in the set.
    pub(crate) const fn rules(&self) -> &[u32] {
        &self.rules
    }

    /// The rules with dedicated rings.
    pub(crate) fn dedicated(&self) -> &[DedicatedRing] {
        self.extra.as_ref().map_or(&[], |extra| &extra.dedicated)
    }

    /// Returns whether there is exactly one dedicated ring, with a limit that never changes, and no
    /// queue.
    pub(crate) fn has_one_dedicated(&self) -> bool {
        match self.dedicated() {
            [ring] => self.queues().is_empty() && ring.is_fixed(),
            _ => false,
        }
    }

    /// The first dedicated ring, which is the only one if
    /// [`has_one_dedicated`](Self::has_one_dedicated).
    #[inline]
    pub(crate) fn only_dedicated(&self) -> &DedicatedRing {
        let extra = self.extra.as_ref();
        &extra.expect("it has a ring beside the node's").dedicated[0]
    }

    /// The rules whose calls wait in a queue.
    pub(crate) fn queues(&self) -> &[Queue] {
        self.extra.as_ref().map_or(&[], |extra| &extra.queues)
    }

    /// Returns whether calls are judged on the node's ring alone: no rule has a dedicated ring or a
    /// queue.
    #[inline]
    pub(crate) const fn has_one_ring(&self) -> bool {
        self.extra.is_none()
    }

    /// How many calls may wait at once.
    pub(crate) const fn max_waiting(&self) -> u32 {
        self.max_waiting
    }

    /// The longest time that a window or queue looks back. For this time after its last use, a
    /// node still affects calls.
    pub(crate) fn memory(&self, ring: &LeapArray) -> Duration {
        let mut longest = Duration::ZERO;
        for quota in &self.quotas {
            longest = longest.max(ring.bucket_length() * quota.span());
        }
        for ring in self.dedicated() {
            longest = longest.max(ring.ring.interval());
        }
        for queue in self.queues() {
            longest = longest.max(queue.memory());
        }
        longest
    }

    /// Bytes that the rules occupy on the heap.
    pub(crate) fn footprint(&self) -> usize {
        let mut bytes = size_of_val(&*self.quotas) + size_of_val(&*self.rules);
        bytes += self.extra.as_deref().map_or(0, size_of_val);
        for ring in self.dedicated() {
            bytes += ring.footprint();
        }
        for queue in self.queues() {
            bytes += queue.footprint();
        }
        bytes
    }
}
