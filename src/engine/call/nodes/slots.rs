//! The slots of a call: a slot of its resource and, if a rule limits each origin, a slot of its
//! origin. Also checks limits on concurrent calls of related resources.
//!
//! The slot of the origin is taken before the slot of the resource. Each is taken in one atomic
//! step on its own node. A call that gets only the slot of the origin releases it.

use super::CallNodes;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::registry::Registry;
use crate::rule::SlotLimit;
use crate::stat::{Node, SlotHold};

// === impl CallNodes ===

impl CallNodes {
    /// Refuses a call whose origin has no free slot, or that must yield to a related resource.
    /// Takes no slot.
    #[inline]
    pub(crate) fn check_narrow_slots(
        &self,
        registry: &Registry,
        now: Tick,
    ) -> Result<(), SlotLimit> {
        if self.resource.has_narrow_slots() {
            self.check_origin_and_related(registry, now)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn check_origin_and_related(&self, registry: &Registry, now: Tick) -> Result<(), SlotLimit> {
        if let Some((node, slots)) = self.origin_slots() {
            if !node.has_free_slot(slots.limit) {
                return Err(slots);
            }
        }
        for slots in self.resource.related_slots() {
            if self.runs_too_many_at(registry, *slots, now) {
                return Err(*slots);
            }
        }
        Ok(())
    }

    /// Returns whether the related resource of the rule of `slots` has reached the limit on running
    /// calls. Returns false for a resource that was never called.
    fn runs_too_many_at(&self, registry: &Registry, slots: SlotLimit, now: Tick) -> bool {
        let rule = self.resource.rules().rule(slots.rule);
        let Some(related) = rule.and_then(|rule| rule.related()) else {
            return false;
        };
        let glance = Glance::again(now);
        let Some(related) = registry.known(self.resource.direction(), related, glance) else {
            return false;
        };
        // The related resource may have seen a later time than the resource of the call.
        let there = related.check_time(glance);
        related.node().latest().concurrency(there) >= slots.limit
    }

    /// Returns the node of the call's origin and the limit of its slots, if a rule limits the
    /// concurrent calls of an origin.
    #[inline]
    fn origin_slots(&self) -> Option<(&Node, SlotLimit)> {
        if !self.resource.has_narrow_slots() {
            return None;
        }
        let origin = self.origin()?;
        Some((origin.node(), origin.slots()?))
    }

    /// Takes a slot of the call's origin, if a rule limits the slots of an origin.
    #[inline]
    pub(crate) fn take_origin_slot(&self) -> Result<Option<SlotHold>, SlotLimit> {
        let Some((node, slots)) = self.origin_slots() else {
            return Ok(None);
        };
        match node.take_slot(slots.limit) {
            None => Err(slots),
            hold => Ok(hold),
        }
    }

    /// Notes that the call with this slot of its origin has its tokens and starts.
    #[inline]
    pub(crate) fn origin_slot_started(&self, hold: Option<SlotHold>) {
        if let (Some(hold), Some((node, _))) = (hold, self.origin_slots()) {
            node.slot_started(hold);
        }
    }

    /// Releases the origin's slot of a call that does not start.
    #[cold]
    pub(crate) fn release_origin_slot(&self, hold: Option<SlotHold>) {
        if let (Some(hold), Some((node, _))) = (hold, self.origin_slots()) {
            node.release_slot(hold);
        }
    }

    /// Releases the origin's slot of a call that has run. The call holds such a slot if and only if
    /// the scope node of its origin has slots, which never changes for a scope node.
    #[inline]
    pub(crate) fn end_origin_slot(&self) {
        if let Some((node, _)) = self.origin_slots() {
            node.release_slot(SlotHold::RUNNING);
        }
    }
}
