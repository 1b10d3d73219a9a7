//! Judges calls: finds the resource of a call, and applies its rules in their order.

pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod pipeline;
pub(crate) mod registry;
pub(crate) mod resource;
pub(crate) mod shadow;

use std::sync::{Arc as StdArc, Weak};

use crate::base::sync::Arc;
use crate::blocked::Blocked;
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::call::arrival::Arrival;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::verdict::{FastPass, Open, SlowVerdict, Started};
use crate::engine::call::waiting::JudgeAgain;
use crate::engine::context::EngineContext;
use crate::engine::pipeline::{
    EngineRef, Fallback, blocked_by_share, fall_back, judge, refuse_in_crowd, try_after_lease,
    try_beside_ring, try_fast_path,
};
use crate::engine::registry::{Found, Registry};
use crate::engine::resource::{PathKind, Resource, ResourceQuery};
use crate::rule::NumberedRules;
use crate::stat::{Node, Reloaded};

pub use call::entry::Entry;
pub use call::meter::Meter;
pub use call::verdict::Verdict;
pub use call::waiting::{NotAdmitted, Waiting};
pub(crate) use core::Core;

/// See the [module](self). An engine does not know about the engines of rules in shadow mode; the
/// [`Core`] holds them.
#[derive(Debug)]
pub(crate) struct Engine {
    registry: Registry,
    /// Judges calls that have waited: this engine, or the core that holds it.
    again: Weak<dyn JudgeAgain>,
}

impl Engine {
    pub(crate) fn new(
        rules: NumberedRules,
        shared: EngineContext,
        again: Weak<dyn JudgeAgain>,
    ) -> Self {
        let registry = Registry::new(rules, shared);
        Self { registry, again }
    }

    /// Creates an engine that judges waiting calls itself, without a core.
    pub(crate) fn alone(rules: NumberedRules, shared: EngineContext) -> StdArc<Self> {
        StdArc::new_cyclic(|own: &Weak<Self>| Self::new(rules, shared, own.clone()))
    }

    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    const fn by_ref(&self) -> EngineRef<'_> {
        EngineRef {
            registry: &self.registry,
            again: &self.again,
        }
    }

    /// Judges `call`, and starts it if it passes at once.
    pub(crate) fn try_enter(&self, call: &Call<'_>) -> Verdict {
        let mut slow = SlowVerdict::empty();
        match self.judge(call, None, &mut slow) {
            Some(pass) => Verdict::Pass(pass.into_entry()),
            None => slow.into_inner().expect("only layers skip calls"),
        }
    }

    /// Judges a call, with the answer in two forms: see [`SlowVerdict`]. A call to a known resource
    /// needs a single lookup. If the call was `named_by` rules of another version than the rules in
    /// force, it is left open as [renamed](Open::Renamed).
    #[inline(always)]
    pub(crate) fn judge(
        &self,
        call: &Call<'_>,
        named_by: Option<u64>,
        slow: &mut SlowVerdict,
    ) -> Option<FastPass> {
        let now = self.registry.shared().time.read();
        let mut buffer = None;
        let query = self.query(call, &mut buffer);
        let has_named = |found: &Arc<Resource>| named_by.is_none_or(|it| it == found.version());
        let recent = self.registry.find_recent(&query);
        let found = recent.or_else(|| self.find_in_table(&query, call, named_by, now, slow));
        if let Some(resource) = found.filter(has_named) {
            let judged = match try_fast_path(&resource, call, now) {
                Ok(started) => return Some(FastPass::new(resource, started)),
                Err(Fallback::HasSide) => self.judge_beside(&resource, call, now, slow),
                Err(Fallback::MoreToAsk) => self.judge_elsewhere(&resource, call, now, slow),
                Err(why) => unstarted(self.judge_further(&resource, call, now, why, slow)),
            };
            match judged {
                Ok(Some(at)) => {
                    let started = Started::without_breakers(&resource, at, call.weight);
                    return Some(FastPass::new(resource, started));
                }
                Ok(None) => return None,
                Err(Reloaded) => {}
            }
        }
        if !slow.is_settled() {
            self.judge_on_new(&query, call, named_by, now, slow);
        }
        None
    }

    /// Finds a resource that this thread has not called recently. A crowded resource can refuse the
    /// call at once, without a change of its reference count.
    #[inline(never)]
    fn find_in_table(
        &self,
        query: &ResourceQuery<'_>,
        call: &Call<'_>,
        named_by: Option<u64>,
        now: Glance,
        slow: &mut SlowVerdict,
    ) -> Option<Arc<Resource>> {
        let has_named = |found: &Resource| named_by.is_none_or(|it| it == found.version());
        let found = self.registry.find_fresh(query, |crowded| {
            let refused = || refuse_in_crowd(crowded, call, now);
            has_named(crowded).then(refused).flatten()
        });
        match found {
            Found::Nothing => None,
            Found::Fresh(resource) => Some(resource),
            Found::Refused(blocked) => {
                slow.set(Verdict::Block(blocked));
                None
            }
        }
    }

    /// Continues where the fast path has stopped. Returns false if a reload is replacing the rings,
    /// so the resource belongs to older rules. Never inlined, as callers would pay for it on the
    /// fast path.
    #[inline(never)]
    fn judge_further(
        &self,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Glance,
        why: Fallback,
        slow: &mut SlowVerdict,
    ) -> bool {
        settle(fall_back(self.by_ref(), resource, call, now, why), slow)
    }

    /// Judges a call for which the fast path has done nothing. Returns when the call starts, or
    /// `None` if `slow` has the verdict. Never inlined, for the same reason as
    /// [`judge_further`](Self::judge_further). The result fits into registers.
    #[inline(never)]
    fn judge_elsewhere(
        &self,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Glance,
        slow: &mut SlowVerdict,
    ) -> Result<Option<Tick>, Reloaded> {
        if resource.path_kind() == PathKind::FastAfterLease {
            if let Some(at) = try_after_lease(resource, call, now) {
                return Ok(Some(at));
            }
        }
        if resource.rules().has_shadows() {
            // Rules in shadow mode must judge the call as well, in their own engines.
            slow.leave_open(Open::HasShadows);
            return Ok(None);
        }
        unstarted(self.judge_further(resource, call, now, Fallback::MoreToAsk, slow))
    }

    /// Judges a call to a resource with a second ring, for which the fast path has done nothing.
    /// See [`judge_elsewhere`](Self::judge_elsewhere).
    #[inline(never)]
    fn judge_beside(
        &self,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Glance,
        slow: &mut SlowVerdict,
    ) -> Result<Option<Tick>, Reloaded> {
        match try_beside_ring(resource, call, now) {
            Ok(at) => Ok(Some(at)),
            Err(why) => unstarted(self.judge_further(resource, call, now, why, slow)),
        }
    }

    #[inline(always)]
    fn query<'a>(
        &self,
        call: &'a Call<'_>,
        buffer: &'a mut Option<Key<'static>>,
    ) -> ResourceQuery<'a> {
        ResourceQuery {
            direction: call.flags.direction(),
            name: call
                .resource
                .shortened(&self.registry.shared().hash, buffer),
        }
    }

    /// Judges a call whose resource is not known, or was made by older rules.
    #[cold]
    fn judge_on_new(
        &self,
        query: &ResourceQuery<'_>,
        call: &Call<'_>,
        named_by: Option<u64>,
        now: Glance,
        slow: &mut SlowVerdict,
    ) {
        if named_by.is_none() {
            self.registry.shared().provided.note_direct_call();
        }
        loop {
            let resource = self
                .registry
                .find_or_make(query, call.flags.is_matched(), now);
            if named_by.is_some_and(|version| version != resource.version()) {
                return slow.leave_open(Open::Renamed);
            }
            if resource.rules().has_shadows() {
                return slow.leave_open(Open::HasShadows);
            }
            match self.judge_on(&resource, call, now, &mut Arrival::default()) {
                Ok(verdict) => {
                    slow.set(verdict);
                    return;
                }
                // The call is judged again, by the new rules.
                Err(Reloaded) => self.registry.wait_for_reload(),
            }
        }
    }

    /// Returns the resource of `call` under the current rules, and a reading of the clock.
    #[cold]
    pub(crate) fn resource_of(&self, call: &Call<'_>) -> (Arc<Resource>, Glance) {
        let now = self.registry.shared().time.read();
        let mut buffer = None;
        let query = self.query(call, &mut buffer);
        let resource = self
            .registry
            .find_or_make(&query, call.flags.is_matched(), now);
        (resource, now)
    }

    /// Judges `call` to `resource` by all checks, but not by rules in shadow mode.
    pub(crate) fn judge_on(
        &self,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Glance,
        arrived: &mut Arrival,
    ) -> Result<Verdict, Reloaded> {
        judge(self.by_ref(), resource, call, now, arrived)
    }

    /// Does the work of [`JudgeAgain::judge_again`], with `judge` for a single attempt to judge the
    /// call.
    #[cold]
    pub(crate) fn judge_from_line(
        &self,
        call: &Call<'_>,
        node: &Node,
        arrived: &mut Arrival,
        judge: impl Fn(&Arc<Resource>, Glance, &mut Arrival) -> Result<Verdict, Reloaded>,
    ) -> Verdict {
        let now = self.registry.shared().time.read();
        let mut buffer = None;
        let query = self.query(call, &mut buffer);
        let verdict = loop {
            let resource = self
                .registry
                .find_or_make(&query, call.flags.is_matched(), now);
            if !resource.node().counts_with(node) {
                // The slot and the place belong to a node that no longer counts the call.
                if let Some(hold) = arrived.slot.take() {
                    node.release_slot(hold);
                }
                arrived.place = None;
            }
            match judge(&resource, now, arrived) {
                Ok(verdict) => break verdict,
                Err(Reloaded) => self.registry.wait_for_reload(),
            }
        };
        if let Some(hold) = arrived.slot.take() {
            node.release_slot(hold);
        }
        if let Some(share) = arrived.take_share() {
            share.release(now.undoubted());
        }
        verdict
    }
}

/// Writes the verdict. Returns false if a reload has prevented a verdict.
#[inline(always)]
fn settle(judged: Result<Verdict, Reloaded>, slow: &mut SlowVerdict) -> bool {
    judged.map(|verdict| slow.set(verdict)).is_ok()
}

/// Converts the result for a call that has not started. If there is no verdict, a reload is the
/// reason.
#[inline(always)]
const fn unstarted(is_settled: bool) -> Result<Option<Tick>, Reloaded> {
    if is_settled { Ok(None) } else { Err(Reloaded) }
}

impl JudgeAgain for Engine {
    fn judge_again(&self, call: &Call<'_>, node: &Node, arrived: &mut Arrival) -> Verdict {
        self.judge_from_line(call, node, arrived, |resource, now, arrived| {
            self.judge_on(resource, call, now, arrived)
        })
    }

    fn blocked_by_share(
        &self,
        nodes: &CallNodes,
        call: &Call<'_>,
        now: Tick,
        rule: u32,
    ) -> Blocked {
        blocked_by_share(&self.registry, nodes, call, now, rule)
    }

    fn catch_up(&self, resource: &Resource, now: Tick) {
        self.registry.catch_up(resource, now);
    }
}
