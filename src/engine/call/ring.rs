//! A ring with the rules that are judged on it: a call takes its tokens there.

use crate::clock::Tick;
use crate::engine::resource::Resource;
use crate::rule::{CompiledRules, DedicatedRing, Quotas};
use crate::stat::{Denied, LeapArray, Loan, Node, Nothing, Quota, Taken, Visit, Wish};

/// Tokens that a waiting call holds on one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// In a coming bucket.
    Loan(Loan),
    /// In the present bucket, which the call will run in as well.
    Taken(Taken),
}

/// See the [module](self).
pub(crate) struct LimitedRing<'a> {
    pub(crate) ring: &'a LeapArray,
    /// The node whose figures come from the ring.
    pub(crate) node: Option<&'a Node>,
    quotas: Quotas<'a>,
    /// The rules of the quotas.
    indices: &'a [u32],
}

// === impl Held ===

impl Held {
    /// The bucket that the tokens are of.
    pub(crate) fn bucket(self) -> u64 {
        match self {
            Self::Loan(loan) => loan.bucket(),
            Self::Taken(taken) => taken.bucket,
        }
    }
}

// === impl LimitedRing ===

impl LimitedRing<'_> {
    pub(crate) fn take(&self, now: Tick, weight: u32) -> Result<Taken, Denied> {
        let taken = match self.node {
            Some(node) => node.acquire(now, weight, &self.quotas),
            None => self.ring.acquire(now, weight, &self.quotas),
        };
        taken.map_err(|denied| denied.by(self.indices))
    }

    /// Returns whether its rules have room for `weight` tokens now. It takes none.
    pub(crate) fn check_room(&self, now: Tick, weight: u32) -> Result<(), Denied> {
        let checked = self.ring.check_room(now, weight, &self.quotas);
        checked.map_err(|denied| denied.by(self.indices))
    }

    pub(crate) fn refund(&self, taken: Taken, weight: u32) {
        match self.node {
            Some(node) => node.refund(taken, weight),
            // A ring without figures: tokens whose refund comes too late just stay spent.
            None => {
                let _ = self.ring.refund_at(taken.bucket, weight);
            }
        }
    }

    /// The rules that are judged here, and their quotas.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (u32, &Quota)> {
        self.indices.iter().copied().zip(&*self.quotas)
    }

    /// Holds tokens for `wish.from` or, if there is no room then, for the next
    /// time at which there is. A ring that has room now and whose present
    /// bucket is still open at that time takes them at once. Others may have come
    /// further than the call's own clock: the present bucket is the newest one.
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

    /// Refunds or cancels the tokens `held` here.
    pub(crate) fn cancel(&self, now: Tick, held: Held, weight: u32) {
        match (held, self.node) {
            (Held::Taken(taken), _) => self.refund(taken, weight),
            (Held::Loan(loan), Some(node)) => node.cancel_loan(now, loan),
            (Held::Loan(loan), None) => {
                let _ = self.ring.cancel(now, loan);
            }
        }
    }

    /// The outcome for the call of `visit` here if no other call comes until then: from when on it
    /// may run. It takes nothing.
    pub(crate) fn foresee(&self, now: Tick, visit: Visit) -> Result<Tick, Nothing> {
        self.ring
            .foresee(now, visit, &self.quotas.at(now, visit.at))
    }

    /// When the next of its rules has room for that call that has none when it comes.
    pub(crate) fn next_room(&self, now: Tick, visit: Visit) -> Option<Tick> {
        let quotas = self.quotas.at(now, visit.at);
        self.ring.next_room(now, visit.at, visit.weight, &quotas)
    }

    /// When each of its rules has room for `weight` tokens, `from` some time on; `None` if one
    /// never has. It may be before `from`: then it has room all the time since.
    pub(crate) fn available_at(&self, now: Tick, from: Tick, weight: u32) -> Option<Tick> {
        self.quotas.available_at(self.ring, now, from, weight)
    }
}

/// When every rule of the resource's own ring has room for `weight` tokens; `None` if
/// one never has.
pub(crate) fn own_ring_available_at(resource: &Resource, now: Tick, weight: u32) -> Option<Tick> {
    let ruled = own_ring(resource.node(), resource.compiled(), now);
    Some(now.max(ruled.available_at(now, now, weight)?))
}

/// The ring of a node, at `now`.
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

/// The ring beside it that a rule has of its own.
pub(crate) fn dedicated_ring(side: &DedicatedRing, now: Tick) -> LimitedRing<'_> {
    LimitedRing {
        ring: side.ring(),
        node: None,
        quotas: side.quotas(now),
        indices: side.index(),
    }
}
