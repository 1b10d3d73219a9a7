//! The permits of shared rules that a waiting call needs: asked for, held, or still to be taken.

use std::mem;
use std::task::Waker;
use std::time::Duration;

use crate::base::small_vec::SmallVec;
use crate::clock::Tick;
use crate::engine::resource::{Asking, HeldLeases, LeaseTargets, Taking};
use crate::rule::{LeaseAccount, NoShare};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct WaitLeases {
    /// Where the call takes its permits when its turn has come; empty if it is judged again.
    targets: LeaseTargets,
    held: Option<HeldLeases>,
    asking: Option<Asking>,
    refusal: Option<NoShare>,
}

/// The next step of a call whose turn has come.
pub(crate) enum Next {
    /// The call has all its permits.
    Starts,
    /// The call waits for the store.
    Asks,
}

impl WaitLeases {
    pub(crate) fn needed(targets: LeaseTargets) -> Self {
        Self {
            targets,
            ..Self::default()
        }
    }

    /// The permits of a call that uses the ones that it `held` already.
    pub(crate) fn held(targets: LeaseTargets, held: HeldLeases) -> Self {
        Self {
            targets,
            held: Some(held),
            ..Self::default()
        }
    }

    pub(crate) fn asking(asking: Asking) -> Self {
        Self {
            asking: Some(asking),
            ..Self::default()
        }
    }

    /// Returns whether all that were asked have answered; if not, `waker` is woken when one more
    /// has.
    pub(crate) fn is_answered(&self, waker: Option<&Waker>) -> bool {
        let asking = self.asking.as_ref();
        asking.is_some_and(|asking| asking.is_answered(waker))
    }

    /// Takes the permits granted by now. False if some were not: then there is a
    /// [refusal](Self::refusal).
    pub(crate) fn settle(&mut self, now: Tick) -> bool {
        match self.asking.take().map(|asking| asking.settle(now)) {
            None => {}
            Some(Ok(held)) => self.held = Some(held),
            Some(Err(none)) => self.refusal = Some(none),
        }
        self.refusal.is_none()
    }

    /// Why the call got no permits.
    pub(crate) const fn refusal(&self) -> Option<NoShare> {
        self.refusal
    }

    /// Takes the permits of a call whose turn has come, or asks for them.
    pub(crate) fn take(&mut self, now: Tick) -> Result<Next, NoShare> {
        let had = self.held.take().unwrap_or_default();
        // It has waited for the turn or the loan that has come, so it waits for no other bucket.
        let held = match self.targets.take(now, had, None)? {
            Taking::All(held) => Ok(held),
            Taking::MustAsk(held, _) => self.targets.ask(now, held, None)?,
        };
        Ok(match held {
            Ok(held) => {
                self.held = Some(held);
                Next::Starts
            }
            Err(asking) => {
                self.asking = Some(asking);
                Next::Asks
            }
        })
    }

    /// How long the call waits for the store at most.
    pub(crate) fn most(&self) -> Duration {
        let asking = self.asking.as_ref();
        asking.map_or(Duration::ZERO, |asking| asking.most)
    }

    /// When the call may start, if its permits are of a bucket to come at `now`.
    pub(crate) fn start_after(&self, now: Tick) -> Option<Tick> {
        let start = self.held.as_ref()?.start();
        (start > now).then_some(start)
    }

    /// The leases of the call, for its next judgement.
    pub(crate) fn hand_over(&mut self) -> Option<Box<HeldLeases>> {
        self.held.take().map(Box::new)
    }

    /// Refunds the permits of the call: it does not start now.
    pub(crate) fn refund(&mut self) {
        self.held = None;
    }

    /// The call runs. Returns the accounts of what it costs.
    pub(crate) fn spend(&mut self) -> SmallVec<LeaseAccount, 1> {
        let held = mem::take(&mut self.held);
        held.map_or_else(SmallVec::default, |mut held| held.spend())
    }
}
