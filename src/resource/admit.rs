//! What a call gets of its resource itself, or is refused: a slot, and admission by the
//! circuit breakers.

use std::time::Duration;

use super::Resource;
use crate::block_kind::BlockKind;
use crate::blocked::Blocked;
use crate::breaker::{Admission, Breakers, Change, Refusal};
use crate::call::Call;
use crate::clock::Tick;
use crate::rule::SlotLimit;

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

    /// Takes a slot, if a rule says how many there are: whether it did.
    #[inline]
    pub(crate) fn take_slot(&self) -> Result<bool, Blocked> {
        let Some(slots) = self.slot_limit() else {
            return Ok(false);
        };
        if self.node.take_slot(slots.limit) {
            Ok(true)
        } else {
            Err(self.blocked_by_slots(slots))
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
    pub(crate) fn admit(&self, now: Tick) -> Result<Option<Admission>, Blocked> {
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
