//! The place that a call gets at its resource, or is refused: a slot, and admission by the
//! circuit breakers.

use std::time::Duration;

use super::Resource;
use crate::block_kind::BlockKind;
use crate::blocked::Blocked;
use crate::breaker::{Admission, Breakers, Change, Refusal};
use crate::call::Call;
use crate::clock::Tick;
use crate::rule::SlotLimit;

/// What a call takes of its resource itself, besides tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) has_slot: bool,
    pub(crate) admission: Option<Admission>,
}

// === impl Resource ===

impl Resource {
    /// A refusal by the rule with this index.
    pub(crate) fn blocked(&self, kind: BlockKind, rule: u32) -> Blocked {
        Blocked::by(kind, self.rules.label(rule).clone(), &self.text)
    }

    /// The rule that refuses `call` because it has no origin.
    #[inline]
    pub(crate) fn refusing_without_origin(&self, call: &Call<'_>) -> Option<u32> {
        match call.origin {
            Some(_) => None,
            None => self.origins()?.refusing(),
        }
    }

    /// Refuses a call if no slot is free. It takes none.
    #[inline]
    pub(crate) fn check_slots(&self) -> Result<(), Blocked> {
        match self.slot_limit() {
            Some(slots) if !self.node.has_free_slot(slots.limit) => {
                Err(self.blocked_by_slots(slots))
            }
            _ => Ok(()),
        }
    }

    /// Takes a slot, if a rule says how many there are: whether it did.
    #[inline]
    fn take_slot(&self) -> Result<bool, Blocked> {
        let Some(slots) = self.slot_limit() else {
            return Ok(false);
        };
        if self.node.take_slot(slots.limit) {
            Ok(true)
        } else {
            Err(self.blocked_by_slots(slots))
        }
    }

    /// Whether a call can need a [`Place`].
    #[inline]
    pub(crate) fn has_places(&self) -> bool {
        self.slot_limit().is_some() || self.breakers().is_some()
    }

    /// Takes a slot and passes the circuit breakers, as a probe if need be; or does neither.
    #[inline]
    pub(crate) fn take_place(&self, now: Tick) -> Result<Place, Blocked> {
        let has_slot = self.take_slot()?;
        match self.admit(now) {
            Ok(admission) => Ok(Place {
                has_slot,
                admission,
            }),
            Err(blocked) => {
                if has_slot {
                    self.node.free_slot();
                }
                Err(blocked)
            }
        }
    }

    /// Gives back the place of a call that does not start.
    #[cold]
    pub(crate) fn leave(&self, place: Place) {
        if place.has_slot {
            self.node.free_slot();
        }
        if let Some(admission) = place.admission {
            self.with_breakers(|breakers, notify| breakers.give_back(admission, notify));
        }
    }

    /// A refusal for want of a slot. Nobody can tell when one will be free.
    pub(crate) fn blocked_by_slots(&self, slots: SlotLimit) -> Blocked {
        self.blocked(BlockKind::Isolation, slots.rule)
            .with_limit(slots.limit, Duration::ZERO)
    }

    /// Refuses a call that the circuit breakers would not admit. It takes no probe.
    #[inline]
    pub(crate) fn check_breakers(&self, now: Tick) -> Result<(), Blocked> {
        let checked = self.breakers().map_or(Ok(()), |all| all.check(now));
        checked.map_err(|refusal| self.blocked_by_breaker(refusal, now))
    }

    /// Passes the circuit breakers, as a probe if need be.
    #[inline]
    fn admit(&self, now: Tick) -> Result<Option<Admission>, Blocked> {
        let admitted = self.with_breakers(|breakers, notify| breakers.admit(now, notify));
        let admission = admitted.transpose();
        admission.map_err(|refusal| self.blocked_by_breaker(refusal, now))
    }

    fn blocked_by_breaker(&self, refusal: Refusal, now: Tick) -> Blocked {
        self.blocked(
            BlockKind::CircuitBreaker,
            self.breaker_rules()[refusal.index],
        )
        .with_retry_after(refusal.retry_at.map(|at| at - now))
    }

    /// Does something with the circuit breakers, if there are any. Hooks are told how
    /// that changes them.
    #[inline]
    pub(crate) fn with_breakers<R>(
        &self,
        f: impl FnOnce(&Breakers, &mut dyn FnMut(Change)) -> R,
    ) -> Option<R> {
        let breakers = self.breakers()?;
        Some(f(breakers, &mut |change| {
            self.notify_breaker(breakers, change);
        }))
    }
}
