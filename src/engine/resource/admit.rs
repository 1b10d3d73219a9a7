//! Gives a call its place at a resource: a slot, and an admission by circuit breakers. Also creates
//! refusals.

use std::time::Duration;

use super::Resource;
use crate::blocked::{BlockKind, Blocked};
use crate::breaker::{Admission, Breakers, Change};
use crate::call::{Call, Criticality, Importance};
use crate::clock::Tick;
use crate::rule::{KeyedRules, NoShare, SlotLimit, SlotQueue};
use crate::stat::{Refusal, SlotHold};

/// The `Retry-After` of a call that is refused because the store did not answer. It is a guess, as
/// the time of the next answer is unknown.
const RETRY: Duration = Duration::from_secs(1);

/// The slot and the admission that a call takes in addition to tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) slot: Option<SlotHold>,
    pub(crate) admission: Option<Admission>,
}

// === impl Place ===

impl Place {
    /// Returns whether the call holds a slot.
    #[inline]
    pub(crate) const fn has_slot(&self) -> bool {
        self.slot.is_some()
    }
}

// === impl Resource ===

impl Resource {
    /// Creates a refusal by the rule with this index.
    pub(crate) fn blocked(&self, kind: BlockKind, rule: u32) -> Blocked {
        Blocked::by(kind, self.rules.label(rule).clone(), &self.text)
    }

    /// Makes the rules of this resource limit the node's slots, instead of the rules of `old`.
    pub(super) fn begin_slots(&self, old: Option<&Self>) {
        if self.gives_out_slots() && old.is_some_and(|old| !old.gives_out_slots()) {
            // The running calls were admitted without a slot.
            self.node.mark_older();
        }
        let fixed = self.slots;
        let has_queue = fixed.is_some_and(|slots| self.slot_queue(slots).is_some());
        if has_queue || self.node.has_line() {
            let adaptive = self
                .extras
                .as_ref()
                .and_then(|extras| extras.adaptive.clone());
            self.node.set_slot_limit(Box::new(move || {
                let fixed = fixed.map_or(u32::MAX, |slots| slots.limit);
                // Calls in line are served in their order, independent of their classes, so the
                // bound of the default class applies.
                let adaptive = adaptive.as_ref().map(|(_, limiter)| limiter.bounds());
                let adaptive = adaptive.map(|bounds| bounds[Criticality::default().index()]);
                adaptive.map_or(fixed, |limit| limit.min(fixed))
            }));
        }
    }

    /// Gives free slots and shares to waiting calls, under these rules or under the rules of the
    /// `old` resource.
    pub(crate) fn let_in(&self, old: Option<&Self>) {
        self.node.let_in();
        KeyedRules::let_in(self.params(), old.and_then(Self::params));
    }

    /// Returns whether a call waits for a slot or a share. A call that begins to wait after this
    /// check sees all writes before it.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.node.is_waited_for() || self.params().is_some_and(KeyedRules::have_waiting_calls)
    }

    /// Returns whether a rule limits the slots.
    fn gives_out_slots(&self) -> bool {
        self.slots.is_some() || self.limiter().is_some()
    }

    /// Returns the limit on concurrent calls for a call of this importance, if a rule sets one.
    #[inline]
    pub(crate) fn slot_limit(&self, importance: Importance) -> Option<SlotLimit> {
        let Some((rule, limiter)) = self.limiter() else {
            return self.slots;
        };
        let limit = limiter.bound(importance);
        let fixed = self.slots.filter(|fixed| fixed.limit <= limit);
        Some(fixed.unwrap_or(SlotLimit {
            rule,
            limit,
            is_adaptive: true,
        }))
    }

    /// Returns the queue for `slots`, if the rule has one.
    pub(crate) fn slot_queue(&self, slots: SlotLimit) -> Option<SlotQueue> {
        self.rules.slot_queue(slots.rule)
    }

    /// Returns the fixed limit on concurrent calls, which ignores an adaptive limit. For the fast
    /// path; see [`slot_limit`](Self::slot_limit).
    #[inline]
    pub(crate) const fn fixed_slot_limit(&self) -> Option<SlotLimit> {
        self.slots
    }

    /// Refuses a call if no slot is free, without taking a slot.
    #[inline]
    pub(crate) fn check_slots(&self, importance: Importance) -> Result<(), SlotLimit> {
        match self.slot_limit(importance) {
            Some(slots) if !self.node.has_free_slot(slots.limit) => Err(slots),
            _ => Ok(()),
        }
    }

    /// Takes a slot for a call of this importance, if a rule limits slots. A call that already has
    /// its `own` slot uses it.
    #[inline]
    pub(crate) fn take_slot(
        &self,
        importance: Importance,
        own: &mut Option<SlotHold>,
    ) -> Result<Option<SlotHold>, SlotLimit> {
        if own.is_some() {
            return Ok(own.take());
        }
        let Some(slots) = self.slot_limit(importance) else {
            return Ok(None);
        };
        match self.node.take_slot(slots.limit) {
            None => Err(slots),
            hold => Ok(hold),
        }
    }

    /// Counts an admitted call of this importance, if an adaptive limit counts classes.
    #[inline]
    pub(crate) fn count_class(&self, importance: Importance, weight: u32) {
        if let Some((_, limiter)) = self.limiter() {
            limiter.count_admitted(importance.class(), weight);
        }
    }

    /// Returns whether a call can need a [`Place`].
    #[inline]
    pub(crate) fn has_places(&self) -> bool {
        self.gives_out_slots()
            || self.breakers().is_some()
            || self.has_narrow_slots()
            || self.costs().is_some()
    }

    /// Asks the circuit breakers to admit a call that holds `slot`. The call can become a probe. A
    /// refusal releases the slot.
    #[inline]
    pub(crate) fn take_place(&self, now: Tick, slot: Option<SlotHold>) -> Result<Place, Blocked> {
        match self.admit(now) {
            Ok(admission) => Ok(Place { slot, admission }),
            Err(blocked) => {
                if let Some(hold) = slot {
                    self.node.release_slot(hold);
                }
                Err(blocked)
            }
        }
    }

    /// Notes that the call with this place has its tokens and starts.
    #[inline]
    pub(crate) fn place_started(&self, place: Place) {
        if let Some(hold) = place.slot {
            self.node.slot_started(hold);
        }
    }

    /// Releases the place of a call that does not start.
    #[cold]
    pub(crate) fn release(&self, place: Place) {
        if let Some(hold) = place.slot {
            self.node.release_slot(hold);
        }
        if let Some(admission) = place.admission {
            self.with_breakers(|breakers, notify| breakers.release(admission, notify));
        }
    }

    /// Creates the refusal of a call of this importance without a free slot, and reports it to an
    /// adaptive limit. The time at which a slot becomes free is unknown. Only an adaptive limit
    /// gives a retry time.
    pub(crate) fn blocked_by_slots(&self, slots: SlotLimit, importance: Importance) -> Blocked {
        let blocked = self
            .blocked(BlockKind::Isolation, slots.rule)
            .with_limit(slots.limit, Duration::ZERO);
        let (true, Some((_, limiter))) = (slots.is_adaptive, self.limiter()) else {
            return blocked;
        };
        let wait = limiter.refused(importance, || self.node.slots_in_use());
        blocked
            .with_criticality(importance.criticality())
            .with_retry_after(wait)
    }

    /// Creates the refusal of a call that gets no permits, and counts it for the shared rule.
    pub(crate) fn blocked_without_lease(&self, none: NoShare, now: Tick) -> Blocked {
        if let NoShare::Full { rule, .. } | NoShare::NoStore { rule } = none {
            let counts = self.rules.shared_counts(rule);
            counts.into_iter().for_each(|counts| counts.refused.add(1));
        }
        self.blocked_without_share(none, now)
    }

    /// Creates the refusal of `call` by a rule on costs. The rules have room again at `at`; `None`
    /// means never.
    #[cold]
    pub(crate) fn blocked_by_cost(
        &self,
        mut none: NoShare,
        call: &Call<'_>,
        at: Option<Tick>,
        now: Tick,
    ) -> Blocked {
        let reserved = self.reserved_for_ever(&none, call);
        if let NoShare::Full { available_at, .. } = &mut none {
            *available_at = available_at.and(at);
        }
        self.blocked_without_share(none, now)
            .with_reserved(reserved)
    }

    /// Returns the reservation of `call` at the rule that refuses it, if the rule can never admit a
    /// reservation of this size; otherwise 0.
    #[cold]
    pub(crate) fn reserved_for_ever(&self, none: &NoShare, call: &Call<'_>) -> u32 {
        let NoShare::Full {
            rule,
            available_at: None,
            ..
        } = none
        else {
            return 0;
        };
        let unit = self.rules.rule(*rule).and_then(|rule| rule.info().unit());
        unit.map_or(0, |unit| call.reserves.of(unit))
    }

    /// Creates the refusal of a call that gets no share, or no permits from a store.
    #[cold]
    pub(crate) fn blocked_without_share(&self, none: NoShare, now: Tick) -> Blocked {
        match none {
            NoShare::Full {
                rule,
                limit: (tokens, interval),
                available_at,
            } => {
                let retry_after = available_at.map(|at| self.time_until(at, now));
                let blocked = self.blocked(self.rules.kind_of_rate(rule), rule);
                blocked
                    .with_retry_after(retry_after)
                    .with_limit(tokens, interval)
            }
            NoShare::Missing { rule } => self.blocked(BlockKind::MissingKey, rule),
            NoShare::NoStore { rule } => {
                let blocked = self.blocked(BlockKind::Store, rule);
                blocked.with_retry_after(Some(RETRY))
            }
        }
    }

    /// Refuses a call that the circuit breakers would not admit. Takes no probe.
    #[inline]
    pub(crate) fn check_breakers(&self, now: Tick) -> Result<(), Blocked> {
        let checked = self.breakers().map_or(Ok(()), |all| all.check(now));
        checked.map_err(|refusal| self.blocked_by_breaker(refusal))
    }

    /// Asks the circuit breakers to admit the call, which can make the call a probe.
    #[inline]
    fn admit(&self, now: Tick) -> Result<Option<Admission>, Blocked> {
        let admitted = self.with_breakers(|breakers, notify| breakers.admit(now, notify));
        let admission = admitted.transpose();
        admission.map_err(|refusal| self.blocked_by_breaker(refusal))
    }

    fn blocked_by_breaker(&self, refusal: Refusal) -> Blocked {
        self.blocked(
            BlockKind::CircuitBreaker,
            self.breaker_rules()[refusal.index()],
        )
        .with_retry_after(refusal.retry_after())
    }

    /// Runs `f` on the circuit breakers, if there are any. Hooks are notified of each change.
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
