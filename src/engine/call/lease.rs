//! The permits of shared rules for a waiting call: requested, held, or still to be taken.

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
    /// The counters from which the call takes its permits when its turn comes. Empty if the call
    /// will be judged again instead.
    targets: LeaseTargets,
    /// The permits that the call has.
    held: Option<HeldLeases>,
    /// The tickets for whose answers the call waits.
    asking: Option<Asking>,
    /// The reason why the call got no permits, once known.
    refusal: Option<NoShare>,
}

/// The next step of a call whose turn has come.
pub(crate) enum TurnStep {
    /// The call has all its permits.
    Starts,
    /// The call now waits for the store.
    Asks,
}

impl WaitLeases {
    /// Creates the leases of a call that takes its permits when its turn comes.
    pub(crate) fn needed(targets: LeaseTargets) -> Self {
        Self {
            targets,
            ..Self::default()
        }
    }

    /// Creates the leases of a call that already has the permits `held`.
    pub(crate) fn held(targets: LeaseTargets, held: HeldLeases) -> Self {
        Self {
            targets,
            held: Some(held),
            ..Self::default()
        }
    }

    /// Creates the leases of a call that waits for the store.
    pub(crate) fn asking(asking: Asking) -> Self {
        Self {
            asking: Some(asking),
            ..Self::default()
        }
    }

    /// Returns whether all counters that were asked have answered. If not, `waker` is woken at the
    /// next answer.
    pub(crate) fn is_answered(&self, waker: Option<&Waker>) -> bool {
        let asking = self.asking.as_ref();
        asking.is_some_and(|asking| asking.is_answered(waker))
    }

    /// Takes the answers. Counters without an answer decide without the store. Returns false if a
    /// counter granted no permits: [`refusal`](Self::refusal) then returns the reason.
    pub(crate) fn settle(&mut self, now: Tick) -> bool {
        match self.asking.take().map(|asking| asking.settle(now)) {
            None => {}
            Some(Ok(held)) => self.held = Some(held),
            Some(Err(none)) => self.refusal = Some(none),
        }
        self.refusal.is_none()
    }

    /// Returns the reason why the call got no permits, if it got none.
    pub(crate) const fn refusal(&self) -> Option<NoShare> {
        self.refusal
    }

    /// Takes the permits of a call whose turn has come, or asks for them.
    pub(crate) fn take(&mut self, now: Tick) -> Result<TurnStep, NoShare> {
        let had = self.held.take().unwrap_or_default();
        // The call has already waited for its turn or loan, so it does not wait for another bucket.
        let held = match self.targets.take(now, had, None)? {
            Taking::All(held) => Ok(held),
            Taking::MustAsk(held, _) => self.targets.ask(now, held, None)?,
        };
        Ok(match held {
            Ok(held) => {
                self.held = Some(held);
                TurnStep::Starts
            }
            Err(asking) => {
                self.asking = Some(asking);
                TurnStep::Asks
            }
        })
    }

    /// Returns the maximum time that the call waits for the store.
    pub(crate) fn most(&self) -> Duration {
        let asking = self.asking.as_ref();
        asking.map_or(Duration::ZERO, |asking| asking.most)
    }

    /// Returns the time at which the call may start, if its permits are of a bucket that has not
    /// begun at `now`.
    pub(crate) fn start_after(&self, now: Tick) -> Option<Tick> {
        let start = self.held.as_ref()?.start();
        (start > now).then_some(start)
    }

    /// Takes the permits of the call, for its next judgement.
    pub(crate) fn hand_over(&mut self) -> Option<Box<HeldLeases>> {
        self.held.take().map(Box::new)
    }

    /// Refunds the permits of a call that does not start now.
    pub(crate) fn refund(&mut self) {
        self.held = None;
    }

    /// Spends the permits of a call that starts. Returns the accounts of its cost.
    pub(crate) fn spend(&mut self) -> SmallVec<LeaseAccount, 1> {
        let held = mem::take(&mut self.held);
        held.map_or_else(SmallVec::default, |mut held| held.spend())
    }
}
