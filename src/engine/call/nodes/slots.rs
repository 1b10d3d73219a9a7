//! The slots of a call: of its resource, and of its origin where a rule limits that. And the limits
//! on the calls at once of other resources.
//!
//! A slot of the origin is taken before that of the resource, narrow to wide, and each is one step
//! on its own node. A call that gets only the first releases it.

use super::CallNodes;
use crate::blocked::Blocked;
use crate::breaker::Admission;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::registry::Registry;
use crate::rule::SlotLimit;
use crate::stat::{Node, SlotHold};

/// The parts of its resource that a call takes, besides tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    slots: HeldSlots,
    pub(crate) admission: Option<Admission>,
}

/// The slots that a call holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSlots {
    /// Of the resource.
    own: Option<SlotHold>,
    of_origin: Option<SlotHold>,
}

/// Where a call finds no slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoSlot {
    /// On its resource, where it may wait for one.
    Own(SlotLimit),
    /// On its origin.
    OfOrigin(SlotLimit),
}

// === impl Place ===

impl Place {
    /// Returns whether the call holds a slot of its resource.
    #[inline]
    pub(crate) const fn has_slot(&self) -> bool {
        self.slots.own.is_some()
    }
}

// === impl CallNodes ===

impl CallNodes {
    /// Returns whether a call can need a [`Place`].
    #[inline]
    pub(crate) fn have_places(&self) -> bool {
        self.resource.has_places() || self.origin_slots().is_some()
    }

    /// The node of the call's origin, if a rule says how many of its calls may run at once.
    #[inline]
    fn origin_slots(&self) -> Option<(&Node, SlotLimit)> {
        let origin = self.origin()?;
        Some((origin.node(), origin.slots()?))
    }

    /// Refuses a call whose origin has no free slot, or that another resource leaves no room for
    /// just now. It takes nothing.
    pub(crate) fn check_narrow_slots(
        &self,
        registry: &Registry,
        now: Tick,
    ) -> Result<(), SlotLimit> {
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

    /// Returns whether the resource that the rule of `slots` looks at has as many calls running as
    /// its limit. One that has never been called has none, whatever the limit is.
    fn runs_too_many_at(&self, registry: &Registry, slots: SlotLimit, now: Tick) -> bool {
        let rule = self.resource.rules().rule(slots.rule);
        let Some(related) = rule.and_then(|rule| rule.related()) else {
            return false;
        };
        let glance = Glance::again(now);
        let Some(related) = registry.known(self.resource.direction(), related, glance) else {
            return false;
        };
        // It may have seen the clock further on than the resource that is called.
        let there = related.check_time(glance);
        related.node().latest().concurrency(there) >= slots.limit
    }

    /// Takes the slots that rules ask for. That of the resource is the call's `own`, if it has one;
    /// that is released if the origin has none.
    #[inline]
    pub(crate) fn take_slots(&self, own: &mut Option<SlotHold>) -> Result<HeldSlots, NoSlot> {
        let of_origin = self.take_origin_slot().map_err(|slots| {
            self.release_slots(own.take(), None);
            NoSlot::OfOrigin(slots)
        })?;
        match self.resource.take_slot(own) {
            Ok(own) => Ok(HeldSlots { own, of_origin }),
            Err(slots) => {
                self.release_slots(None, of_origin);
                Err(NoSlot::Own(slots))
            }
        }
    }

    #[inline]
    fn take_origin_slot(&self) -> Result<Option<SlotHold>, SlotLimit> {
        let Some((node, slots)) = self.origin_slots() else {
            return Ok(None);
        };
        match node.take_slot(slots.limit) {
            None => Err(slots),
            hold => Ok(hold),
        }
    }

    fn release_slots(&self, own: Option<SlotHold>, of_origin: Option<SlotHold>) {
        if let Some(hold) = own {
            self.resource.node().release_slot(hold);
        }
        if let (Some(hold), Some(origin)) = (of_origin, self.origin()) {
            origin.node().release_slot(hold);
        }
    }

    /// Asks the circuit breakers for a call that holds `slots`, which may become a probe. A refusal
    /// releases the slots.
    #[inline]
    pub(crate) fn take_place(&self, now: Tick, slots: HeldSlots) -> Result<Place, Blocked> {
        match self.resource.admit(now) {
            Ok(admission) => Ok(Place { slots, admission }),
            Err(blocked) => {
                self.release_slots(slots.own, slots.of_origin);
                Err(blocked)
            }
        }
    }

    /// The call that has this place has its tokens.
    #[inline]
    pub(crate) fn place_started(&self, place: Place) {
        if let Some(hold) = place.slots.own {
            self.resource.node().slot_started(hold);
        }
        if let (Some(hold), Some(origin)) = (place.slots.of_origin, self.origin()) {
            origin.node().slot_started(hold);
        }
    }

    /// Releases the place of a call that does not start.
    #[cold]
    pub(crate) fn release_place(&self, place: Place) {
        self.release_slots(place.slots.own, place.slots.of_origin);
        if let Some(admission) = place.admission {
            self.resource.release_probe(admission);
        }
    }

    /// A call that has run releases the slot of its origin. It holds one if its scope node gives
    /// them out: that never changes.
    pub(crate) fn release_origin_slot(&self) {
        if let Some((node, _)) = self.origin_slots() {
            node.release_slot(SlotHold::RUNNING);
        }
    }
}
