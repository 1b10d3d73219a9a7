//! A ring with the rules that are judged on it, from which a call takes its tokens.

use crate::clock::Tick;
use crate::engine::resource::Resource;
use crate::rule::{CompiledRules, DedicatedRing, Quotas};
use crate::stat::{Denied, LeapArray, Loan, Node, Nothing, Quota, Taken, Visit, Wish};

/// The tokens that a waiting call holds on one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// Tokens of a coming bucket.
    Loan(Loan),
    /// Tokens of the present bucket, in which the call will also run.
    Taken(Taken),
}

/// See the [module](self).
pub(crate) struct LimitedRing<'a> {
    pub(crate) ring: &'a LeapArray,
    /// The node whose statistics come from the ring; `None` for the ring of a single rule.
    pub(crate) node: Option<&'a Node>,
    quotas: Quotas<'a>,
    /// The indices of the rules to which the quotas belong, in the order of the quotas.
    indices: &'a [u32],
}

// === impl Held ===

impl Held {
    /// Returns the bucket of the tokens.
    pub(crate) fn bucket(self) -> u64 {
        match self {
            Self::Loan(loan) => loan.bucket(),
            Self::Taken(taken) => taken.bucket,
        }
    }
}

// === impl LimitedRing ===

impl LimitedRing<'_> {
    /// Takes `weight` tokens, if all rules have room.
    pub(crate) fn take(&self, now: Tick, weight: u32) -> Result<Taken, Denied> {
        let taken = match self.node {
            Some(node) => node.acquire(now, weight, &self.quotas),
            None => self.ring.acquire(now, weight, &self.quotas),
        };
        taken.map_err(|denied| denied.by(self.indices))
    }

    /// Checks whether all rules have room for `weight` tokens now, without taking them.
    pub(crate) fn check_room(&self, now: Tick, weight: u32) -> Result<(), Denied> {
        let checked = self.ring.check_room(now, weight, &self.quotas);
        checked.map_err(|denied| denied.by(self.indices))
    }

    /// Refunds tokens that were taken and not used.
    pub(crate) fn refund(&self, taken: Taken, weight: u32) {
        match self.node {
            Some(node) => node.refund(taken, weight),
            // A refund that comes too late has no effect. Only nodes count such refunds, so without
            // a node the result is ignored.
            None => {
                let _ = self.ring.refund_at(taken.bucket, weight);
            }
        }
    }

    /// Iterates over the indices of the rules and their quotas.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (u32, &Quota)> {
        self.indices.iter().copied().zip(&*self.quotas)
    }

    /// Holds tokens for the first time from `wish.from` on at which there is room. If this time is
    /// in the present bucket, the tokens are taken at once. The present bucket is the newest one
    /// that any call has seen, which can be later than this call's clock.
    pub(crate) fn hold(&self, wish: Wish) -> Result<Held, Denied> {
        let present = self.ring.bring_to(wish.now)?;
        if self.ring.bucket_number(wish.from) <= present {
            match self.take(wish.now, wish.weight) {
                Err(Denied::Full(_)) => {}
                taken => return taken.map(Held::Taken),
            }
        }
        let loan = match self.node {
            Some(node) => node.borrow_for(wish, &self.quotas),
            None => self.ring.borrow_for(wish, &self.quotas, &mut 0),
        };
        loan.map(Held::Loan)
            .map_err(|denied| denied.by(self.indices))
    }

    /// Gives back the tokens `held` on this ring: refunds taken tokens, or cancels a loan.
    pub(crate) fn cancel(&self, now: Tick, held: Held, weight: u32) {
        match (held, self.node) {
            (Held::Taken(taken), _) => self.refund(taken, weight),
            (Held::Loan(loan), Some(node)) => node.cancel_loan(now, loan),
            (Held::Loan(loan), None) => {
                let _ = self.ring.cancel(now, loan);
            }
        }
    }

    /// Predicts the time from which the call of `visit` may run here, if no other call arrives
    /// until then. Takes no tokens.
    pub(crate) fn foresee(&self, now: Tick, visit: Visit) -> Result<Tick, Nothing> {
        self.ring
            .foresee(now, visit, &self.quotas.at(now, visit.at))
    }

    /// Returns the earliest time at which one of the rules without room for the call of `visit` has
    /// room.
    pub(crate) fn next_room(&self, now: Tick, visit: Visit) -> Option<Tick> {
        let quotas = self.quotas.at(now, visit.at);
        self.ring.next_room(now, visit.at, visit.weight, &quotas)
    }

    /// Returns the time at which all rules have room for `weight` tokens, asked from `from` on;
    /// `None` if one of them never has. The result can be before `from` if the rules already have
    /// room.
    pub(crate) fn available_at(&self, now: Tick, from: Tick, weight: u32) -> Option<Tick> {
        self.quotas.available_at(self.ring, now, from, weight)
    }
}

/// Returns the time at which every rule of the resource's own ring has room for `weight` tokens;
/// `None` if one of them never has.
pub(crate) fn own_ring_available_at(resource: &Resource, now: Tick, weight: u32) -> Option<Tick> {
    let ruled = own_ring(resource.node(), resource.compiled(), now);
    Some(now.max(ruled.available_at(now, now, weight)?))
}

/// Returns the ring of a node at `now`, with its rules.
pub(crate) fn own_ring<'a>(
    node: &'a Node,
    compiled: &'a CompiledRules,
    now: Tick,
) -> LimitedRing<'a> {
    LimitedRing {
        ring: node.ring_at(now),
        node: Some(node),
        quotas: Quotas::Fixed(compiled.quotas()),
        indices: compiled.rules(),
    }
}

/// Returns the ring of a single rule at `now`.
pub(crate) fn dedicated_ring(side: &DedicatedRing, now: Tick) -> LimitedRing<'_> {
    LimitedRing {
        ring: side.ring(),
        node: None,
        quotas: side.quotas(now),
        indices: side.index(),
    }
}
