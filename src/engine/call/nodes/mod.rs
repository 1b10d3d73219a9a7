//! The nodes that count one call, and the rings on which it is judged, from narrow to wide.
//!
//! A call counts on the node of its resource, and on the resource's scope nodes for its origin and
//! its context, if they exist. All origins that no rule names can share a queue. A call of such an
//! origin also counts on the node of that queue. Each of these nodes has a [`LimitedRing`]: a ring
//! with the rules that are judged on it, from which the call takes its tokens. A rule can also have
//! a dedicated ring. Once the call passes, it also counts on the node of all inbound calls, on
//! which no rule takes tokens.

mod claims;
mod quota_left;
mod retry_at;
mod slots;

use crate::base::sync::Arc;
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::call::ring::{Held, LimitedRing, dedicated_ring, own_ring};
use crate::engine::registry::Registry;
use crate::engine::resource::Resource;
use crate::engine::resource::scope::{ScopeKind, ScopeNode};
use crate::rule::{Basis, CompiledRules, QueuedTurn, Turns};
use crate::stat::{Denied, Node, Reloaded};

pub(crate) use claims::Claims;
pub(crate) use quota_left::{QuotaLeft, QuotasLeft};

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct CallNodes {
    resource: Arc<Resource>,
    /// The other nodes that count the call. `None` for most calls, so that the creation writes only
    /// a single byte.
    others: Option<OtherNodes>,
}

/// The nodes that count a call in addition to the node of its resource.
#[derive(Clone, Debug)]
struct OtherNodes {
    /// The scope node of the call's origin, if it has one.
    origin: Option<Arc<ScopeNode>>,
    /// The scope node of the call's context, if it has one.
    context: Option<Arc<ScopeNode>>,
    /// Whether the call counts on the node of all inbound calls.
    is_inbound: bool,
}

/// The maximum number of nodes with rules that count one call: the nodes of its origin, of the
/// other origins, of its context and of its resource.
const MOST_WITH_RULES: usize = 4;

/// The nodes of a call with their rules, in the order in which they are judged.
type NodesWithRules<'a> = [Option<(&'a Node, &'a CompiledRules)>; MOST_WITH_RULES];

/// Iterates over the rings of the nodes: for each node, first the dedicated rings of single rules,
/// and then the node's own ring.
struct LimitedRings<'a> {
    nodes: NodesWithRules<'a>,
    now: Tick,
    /// The position of the next node in `nodes`.
    at: usize,
    /// The position of the next dedicated ring of this node.
    dedicated: usize,
}

// === impl CallNodes ===

impl CallNodes {
    /// Creates the nodes of a call that only counts on its resource.
    #[inline]
    pub(crate) const fn only(resource: Arc<Resource>) -> Self {
        Self {
            resource,
            others: None,
        }
    }

    /// Creates the nodes of a call without scope nodes: the node of its resource, and the node of
    /// all inbound calls if there is one.
    #[inline]
    pub(crate) fn without_scopes(resource: Arc<Resource>) -> Self {
        Self {
            others: OtherNodes::new(None, None, resource.is_counted_inbound()),
            resource,
        }
    }

    /// Returns whether this call takes all its tokens on the resource's own ring. This is possible
    /// on any [path](crate::engine::resource::PathKind), even if the call counts on other nodes as
    /// well.
    #[inline]
    pub(crate) fn has_one_ring(&self) -> bool {
        let has_scope = self.origin().is_some() || self.context().is_some();
        !has_scope && self.resource.compiled().has_one_ring()
    }

    /// Finds all nodes that count `call`.
    pub(crate) fn find(
        registry: &Registry,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Tick,
    ) -> Result<Self, Reloaded> {
        let shared = resource.shared();
        let mut room = None;
        let origin = call.origin.as_ref().and_then(|origin| {
            let origin = origin.shortened(&shared.hash, &mut room);
            let rules = resource.origins();
            let is_wanted =
                shared.config.origins || rules.is_some_and(|rules| rules.applies_to(origin));
            is_wanted.then_some((ScopeKind::Origin, origin))
        });
        let mut room = None;
        let context = call.context.as_ref().and_then(|context| {
            let context = context.shortened(&shared.hash, &mut room);
            let rules = resource.contexts();
            let is_wanted =
                shared.config.contexts || rules.is_some_and(|rules| rules.names(context));
            is_wanted.then_some((ScopeKind::Context, context))
        });
        let scope = |wanted| match wanted {
            Some((kind, name)) => registry.scope(resource, kind, name, now),
            None => Ok(None),
        };
        Ok(Self {
            resource: resource.clone(),
            others: OtherNodes::new(
                scope(origin)?,
                scope(context)?,
                resource.is_counted_inbound(),
            ),
        })
    }

    pub(crate) const fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Returns whether only the resource's node counts this call.
    #[inline]
    pub(crate) const fn is_one_node(&self) -> bool {
        self.others.is_none()
    }

    fn origin(&self) -> Option<&Arc<ScopeNode>> {
        self.others.as_ref()?.origin.as_ref()
    }

    fn context(&self) -> Option<&Arc<ScopeNode>> {
        self.others.as_ref()?.context.as_ref()
    }

    /// Returns the nodes that count the call and have rules, from narrow to wide, each with its
    /// rules.
    fn nodes_with_rules(&self) -> NodesWithRules<'_> {
        let resource = (self.resource.node(), self.resource.compiled());
        match &self.others {
            None => [Some(resource), None, None, None],
            Some(nodes) => [
                nodes.origin.as_ref().map(|it| (it.node(), it.compiled())),
                self.other_origins(),
                nodes.context.as_ref().map(|it| (it.node(), it.compiled())),
                Some(resource),
            ],
        }
    }

    /// Returns the node shared by all origins that no rule names, with its rules. `None` if a rule
    /// names the call's origin, or if the other origins share no queue.
    #[inline]
    fn other_origins(&self) -> Option<(&Node, &CompiledRules)> {
        let others = self.resource.others()?;
        self.origin()
            .is_some_and(|origin| origin.is_of_others())
            .then(|| others.node_with_rules())
    }

    /// Calls `f` with every node that counts the call.
    #[inline]
    pub(crate) fn each(&self, mut f: impl FnMut(&Node)) {
        f(self.resource.node());
        if let Some(origin) = self.origin() {
            f(origin.node());
        }
        if let Some((others, _)) = self.other_origins() {
            f(others);
        }
        if let Some(context) = self.context() {
            f(context.node());
        }
        if let Some(inbound) = self.inbound() {
            f(inbound);
        }
    }

    /// Returns the node of all inbound calls, if this call counts there.
    #[inline]
    fn inbound(&self) -> Option<&Node> {
        let is_inbound = self.others.as_ref()?.is_inbound;
        let inbound = self.resource.shared().inbound.get();
        inbound.filter(|_| is_inbound)
    }

    /// Finds the rules whose related resource has no room for `weight` tokens. Returns the index of
    /// the first such rule, and the time from which all of them have room; the time is `None` if
    /// one of them never has.
    ///
    /// The related resource is looked up under the current rules. If a reload has replaced the
    /// rules of the call meanwhile, the result would mix old and new rules, so the error
    /// [`Reloaded`] is returned.
    pub(crate) fn full_related(
        &self,
        registry: &Registry,
        now: Tick,
        weight: u32,
    ) -> Result<Option<(u32, Option<Tick>)>, Reloaded> {
        let mut full: Option<(u32, Option<Tick>)> = None;
        for &index in self.resource.related() {
            if let Some(at) = self.full_at(registry, index, now, weight) {
                full = Some(match full {
                    Some((first, latest)) => (first, later(latest, at)),
                    None => (index, at),
                });
            }
        }
        if self.resource.related().is_empty() || self.resource.is_fresh() {
            Ok(full)
        } else {
            Err(Reloaded)
        }
    }

    /// Checks the related resource of the rule `index`. Returns `None` if the resource has room now
    /// or was never called. Otherwise, returns the time at which it has room again; `Some(None)`
    /// means never.
    fn full_at(
        &self,
        registry: &Registry,
        index: u32,
        now: Tick,
        weight: u32,
    ) -> Option<Option<Tick>> {
        let rule = self.resource.rules().flow(index)?;
        let Basis::Related(related) = rule.basis() else {
            return None;
        };
        let glance = Glance::again(now);
        let related = registry.known(self.resource.direction(), related, glance)?;
        // Calls to the related resource may have seen a later time than this call.
        let there = related.check_time(glance);
        let related = Self::without_scopes(related);
        for ruled in related.limited_rings(there) {
            for (known, quota) in ruled.rules() {
                if known != index {
                    continue;
                }
                let quota = quota.limited_to(rule.limit());
                if ruled.ring.has_room(there, weight, &quota) {
                    return None;
                }
                let at = ruled.ring.available_at(there, weight, &quota);
                return Some(at.map(|at| now + related.resource.time_until(at, there)));
            }
        }
        None
    }

    /// Takes a turn in every queue for a call of `weight`; a call of weight 0 needs no turn. Stops
    /// at the first queue without a free place, and returns its rule as the error.
    pub(crate) fn queue_up(&self, now: Tick, weight: u32, turns: &mut Turns) -> Result<(), u32> {
        if weight == 0 {
            return Ok(());
        }
        for (node, compiled) in self.nodes_with_rules().into_iter().flatten() {
            for queue in compiled.queues() {
                let rule = queue.index();
                let turn = queue.join(now, weight, node.ring_at(now)).ok_or(rule)?;
                turns.push(QueuedTurn { rule, turn });
            }
        }
        Ok(())
    }

    /// Cancels the turns and shares of a call that does not run.
    pub(crate) fn release(&self, claims: &Claims) {
        let mut turns = claims.turns.iter();
        'queues: for (_, compiled) in self.nodes_with_rules().into_iter().flatten() {
            for queue in compiled.queues() {
                match turns.next() {
                    Some(queued) => queue.cancel(queued.turn),
                    None => break 'queues,
                }
            }
        }
        if let Some(params) = self.resource.params() {
            params.refund(&claims.shares, || self.resource.now());
        }
    }

    /// Checks that every rule has room for `weight` tokens now, without taking them.
    pub(crate) fn check_room(&self, now: Tick, weight: u32) -> Result<(), Denied> {
        for ruled in self.limited_rings(now) {
            ruled.check_room(now, weight)?;
        }
        Ok(())
    }

    /// Counts one more waiting call on every node. If a node already has its maximum, counts the
    /// call on no node and returns false.
    pub(crate) fn start_waiting(&self) -> bool {
        let limits = self.waiting_limits();
        for (place, limit) in limits.iter().enumerate() {
            if limit.is_some_and(|(node, most)| !node.start_waiting(most)) {
                for (node, _) in limits[..place].iter().flatten() {
                    node.stop_waiting();
                }
                return false;
            }
        }
        true
    }

    /// Returns the nodes that count a waiting call, and how many may wait on each.
    fn waiting_limits(&self) -> [Option<(&Node, u32)>; MOST_WITH_RULES + 1] {
        let mut limits = [None; MOST_WITH_RULES + 1];
        for (limit, node) in limits.iter_mut().zip(self.nodes_with_rules()) {
            *limit = node.map(|(node, compiled)| (node, compiled.max_waiting()));
        }
        limits[MOST_WITH_RULES] = self.inbound().map(|node| (node, u32::MAX));
        limits
    }

    /// Counts a passing call of `weight` on the node of all inbound calls, if it counts there.
    #[inline]
    pub(crate) fn pass_inbound(&self, now: Tick, weight: u32) {
        if let Some(inbound) = self.inbound() {
            inbound.pass(now, weight);
        }
    }

    /// Counts a call of `weight` that has waited and is about to start on the node of all inbound
    /// calls, if it counts there.
    pub(crate) fn take_inbound(&self, now: Tick, weight: u32) {
        if let Some(inbound) = self.inbound() {
            // Cannot fail: the node has no limit, and no reload replaces its ring.
            let _ = inbound.acquire(now, weight, &[]);
        }
    }

    /// Cancels the tokens `held` on the rings, in the order of
    /// [`limited_rings`](Self::limited_rings).
    pub(crate) fn cancel(&self, now: Tick, held: &[Held], weight: u32) {
        for (held, ruled) in held.iter().zip(self.limited_rings(now)) {
            ruled.cancel(now, *held, weight);
        }
    }

    /// Iterates over the rings of the call at `now`, from narrow to wide. The order is always the
    /// same, so a list in this order can record the tokens that a call has taken on each ring.
    pub(crate) fn limited_rings(&self, now: Tick) -> impl Iterator<Item = LimitedRing<'_>> {
        LimitedRings {
            nodes: self.nodes_with_rules(),
            now,
            at: 0,
            dedicated: 0,
        }
    }
}

// === impl LimitedRings ===

impl<'a> Iterator for LimitedRings<'a> {
    type Item = LimitedRing<'a>;

    fn next(&mut self) -> Option<LimitedRing<'a>> {
        loop {
            let Some((node, compiled)) = *self.nodes.get(self.at)? else {
                self.at += 1;
                continue;
            };
            if let Some(side) = compiled.dedicated().get(self.dedicated) {
                self.dedicated += 1;
                return Some(dedicated_ring(side, self.now));
            }
            self.at += 1;
            self.dedicated = 0;
            return Some(own_ring(node, compiled, self.now));
        }
    }
}

impl OtherNodes {
    /// Creates the nodes that count the call in addition to its resource's node; `None` if there
    /// are none.
    fn new(
        origin: Option<Arc<ScopeNode>>,
        context: Option<Arc<ScopeNode>>,
        is_inbound: bool,
    ) -> Option<Self> {
        let has_any = origin.is_some() || context.is_some() || is_inbound;
        has_any.then_some(Self {
            origin,
            context,
            is_inbound,
        })
    }
}

/// Returns the later of two times, where `None` means never.
pub(crate) fn later(a: Option<Tick>, b: Option<Tick>) -> Option<Tick> {
    a.zip(b).map(|(a, b)| a.max(b))
}
