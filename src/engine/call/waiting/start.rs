//! The start of a call that has been promised its tokens and whose wait is over.

use super::{Rest, Waiting, WaitingInner};
use crate::blocked::Blocked;
use crate::clock::Tick;
use crate::engine::call::arrival::stand_in_line;
use crate::engine::call::entry::{Entry, Permits};
use crate::engine::call::nodes::QuotasLeft;
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Place;
use crate::rule::Accounts;
use crate::stat::SlotHold;

/// The accounts of a call's cost, and the remaining budgets of its values.
type Reserved = (Accounts, QuotasLeft);

// === impl WaitingInner ===

impl WaitingInner {
    /// Starts a call that has its tokens. Makes it wait in line if no slot is free.
    pub(super) fn start(mut self: Box<Self>, now: Tick, mut slot: Option<SlotHold>) -> Verdict {
        let Rest::Promised(promised) = &self.rest else {
            unreachable!("only what is promised starts");
        };
        let (patience, importance) = (promised.patience, promised.importance);
        match self.take_leases(now, patience, &mut slot) {
            Ok(true) => {}
            Ok(false) => return Verdict::Wait(Waiting { inner: Some(self) }),
            Err(blocked) => return Verdict::Block(blocked),
        }
        let resource = self.nodes.resource();
        let of_origin = match self.nodes.take_origin_slot() {
            Ok(hold) => hold,
            Err(slots) => return self.refuse_without_slot(now, slots, slot),
        };
        let slot = match resource.take_slot(importance, &mut slot) {
            Ok(slot) => slot,
            Err(slots) => {
                self.nodes.release_origin_slot(of_origin);
                let place = stand_in_line(resource, slots, patience, self.place);
                let Some(place) = place else {
                    return self.refuse_without_slot(now, slots, None);
                };
                self.stand_in_line(now, place);
                return Verdict::Wait(Waiting { inner: Some(self) });
            }
        };
        let place = match resource.take_place(now, slot) {
            Ok(place) => place,
            Err(blocked) => {
                self.nodes.release_origin_slot(of_origin);
                return Verdict::Block(self.refuse(now, blocked));
            }
        };
        match self.reserve(now) {
            Ok(reserved) => Verdict::Pass(self.enter(now, place, of_origin, reserved)),
            Err(blocked) => {
                resource.release(place);
                self.nodes.release_origin_slot(of_origin);
                Verdict::Block(self.refuse(now, *blocked))
            }
        }
    }

    /// Reserves the cost of the call, if a rule limits it. This is done at the start, as a waiting
    /// call holds no reservation. Also returns the remaining budgets of the call's values, if the
    /// caller wants them.
    fn reserve(&self, now: Tick) -> Result<Option<Reserved>, Box<Blocked>> {
        let resource = self.nodes.resource();
        let (Some(costs), Rest::Promised(promised)) = (resource.costs(), &self.rest) else {
            return Ok(None);
        };
        let Some(call) = &promised.for_costs else {
            return Ok(None);
        };
        call.with(|call| {
            let mut accounts = Accounts::default();
            match costs.reserve(call, now, &|| resource.now(), &mut accounts) {
                Ok(()) => Ok(Some((accounts, self.nodes.key_costs_left(call, now)))),
                Err(none) => {
                    let at = costs.room_at(call, now);
                    Err(Box::new(resource.blocked_by_cost(none, call, at, now)))
                }
            }
        })
    }

    /// Creates the entry of the call, with its tokens, its `place`, its slot of the origin, and the
    /// accounts of its cost.
    fn enter(
        mut self,
        now: Tick,
        place: Place,
        of_origin: Option<SlotHold>,
        reserved: Option<Reserved>,
    ) -> Entry {
        let leases = self.leases.as_mut();
        let leased = leases.map(|leases| leases.spend()).unwrap_or_default();
        let Rest::Promised(promised) = self.rest else {
            unreachable!("only what is promised starts");
        };
        let (nodes, weight) = (self.nodes, self.weight);
        let (claims, start) = (promised.claims, promised.start);
        let (resource, waited) = (nodes.resource(), now - self.since);
        // A call that only waited for a turn has borrowed nothing. A call that starts after its
        // last turn has waited for borrowed tokens.
        let turn = claims.last_turn();
        let is_borrowed = turn.is_none_or(|(turn, _)| start > turn);
        let occupied = if is_borrowed { weight } else { 0 };
        nodes.take_inbound(now, weight);
        nodes.each(|node| {
            node.stop_waiting();
            node.start_waited(now, weight, occupied, waited);
        });
        resource.place_started(place);
        nodes.origin_slot_started(of_origin);
        resource.count_class(promised.importance, weight);
        resource.notify_passed(weight, None, waited);
        let permits = Permits::new(resource, place.admission, &claims);
        let mut entry = Entry::new(nodes, now, weight, place.has_slot(), permits);
        if !claims.quotas.is_empty() {
            entry.note_param_quotas(claims.quotas.after(waited));
        }
        if let Some((accounts, left)) = reserved {
            if !left.is_empty() {
                entry.note_param_quotas(left);
            }
            entry.set_accounts(accounts);
        }
        entry.set_leased(leased);
        entry
    }
}
