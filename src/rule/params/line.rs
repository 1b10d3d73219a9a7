//! Calls that wait for a place of their value, where a rule that counts calls at once has a
//! queue.

use std::sync::Arc as StdArc;
use std::task::Waker;
use std::time::Duration;

use super::{KeyedRules, KeyedState, NoShare, Share, Shares};
use crate::base::sync::Arc;
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::keyed::{Digest, HotKeys, KeyLimit, KeyLimitNow, KeyTokens, LineTicket, Most};
use crate::rule::KeyedRule;

/// Where a call stands in the line of its value, or has stood.
#[derive(Clone, Debug)]
pub(crate) struct ValuePlaceInLine {
    keys: Arc<HotKeys>,
    key: Digest,
    ticket: LineTicket,
    /// The rule in the set.
    pub(crate) rule: u32,
    /// How long it may wait there in all that is to come.
    pub(crate) left: Duration,
}

/// A share that a call has got in line. A call that does not use it returns it.
#[derive(Debug)]
#[must_use]
pub(crate) struct OwnShare {
    keys: Arc<HotKeys>,
    taken: KeyTokens,
}

// === impl PlaceInLine ===

impl ValuePlaceInLine {
    /// Returns whether the call has got its share. If not, `waker` is woken when it has.
    pub(crate) fn has_share(&self, waker: Option<&Waker>) -> bool {
        self.keys.has_place(self.ticket, waker)
    }

    /// Leaves the line: with a share, if the call has got one.
    pub(crate) fn cancel(&self, now: Tick) -> Option<OwnShare> {
        Some(OwnShare {
            taken: self.keys.cancel_wait(now, self.key, self.ticket)?,
            keys: self.keys.clone(),
        })
    }

    /// Returns whether both stand in lines of one table.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys)
    }
}

// === impl OwnShare ===

impl OwnShare {
    /// Gives it to the next call.
    pub(crate) fn release(self, now: Tick) {
        let time: &dyn Fn() -> Tick = &|| now;
        self.keys.refund(time, &self.taken);
    }
}

// === impl KeyedRules ===

impl KeyedRules {
    /// [`take`](Self::take) with the share that a call has got in line. It is left there, if no
    /// rule asks for it.
    #[cold]
    pub(crate) fn take_with(
        &self,
        own: &mut Option<OwnShare>,
        call: &Call<'_>,
        now: Tick,
        time: impl Fn() -> Tick,
    ) -> Result<Shares, NoShare> {
        let mut shares = Shares::default();
        for (place, rule) in self.0.iter().enumerate() {
            let taken = match own.take_if(|own| rule.asks_for(own, call)) {
                Some(own) => Ok(Some(own.taken)),
                None => rule.take(call, now, &time),
            };
            match taken {
                Ok(None) => {}
                Ok(Some(taken)) => shares.push(Share {
                    place: place as u32,
                    rule: rule.index,
                    taken,
                }),
                Err(none) => {
                    self.refund(&shares, &time);
                    return Err(none);
                }
            }
        }
        Ok(shares)
    }

    /// Stands in the line of its value for a share that there was not, unless the call may not
    /// wait there. One that has stood in lines `before` keeps its place.
    pub(crate) fn stand_in_line(
        &self,
        none: &NoShare,
        call: &Call<'_>,
        before: &[ValuePlaceInLine],
    ) -> Option<ValuePlaceInLine> {
        let param = self.full(none)?;
        let queue = param.rule.place_queue()?;
        let before = before
            .iter()
            .find(|place| Arc::ptr_eq(&place.keys, &param.keys));
        let left = before.map_or(queue.max_wait, |place| place.left);
        let left = left.min(call.patience.unwrap_or(Duration::MAX));
        let (key, limit) = param.at_once(call)?;
        // A limit of 0 lets no call in.
        if left.is_zero() || limit == 0 {
            return None;
        }
        let most = Most {
            of_key: queue.max_waiting,
            of_all: KeyedRule::most_waiting(queue.max_waiting),
        };
        let number = before.map(|place| place.ticket.number);
        let tier = call.tier.as_ref();
        Some(ValuePlaceInLine {
            ticket: param.keys.line_up(key, tier, most, number)?,
            keys: param.keys.clone(),
            key,
            rule: param.index,
            left,
        })
    }

    /// A share for a call that waits for none, unless as many calls run beyond the limit as
    /// may wait.
    pub(crate) fn share_beyond(&self, rule: u32, call: &Call<'_>, now: Tick) -> Option<OwnShare> {
        let param = self.0.iter().find(|param| param.index == rule)?;
        let queue = param.rule.place_queue()?;
        let (key, limit) = param.at_once(call)?;
        let most = limit.saturating_add(queue.max_waiting);
        Some(OwnShare {
            taken: param.keys.take_beside(now, key, most)?,
            keys: param.keys.clone(),
        })
    }

    /// Returns whether calls may wait for a share that there was not.
    pub(crate) fn has_line(&self, none: &NoShare) -> bool {
        let param = self.full(none);
        param.is_some_and(|param| param.rule.place_queue().is_some())
    }

    /// The rule that has no room for a value.
    fn full(&self, none: &NoShare) -> Option<&KeyedState> {
        let NoShare::Full { rule, .. } = *none else {
            return None;
        };
        self.0.iter().find(|param| param.index == rule)
    }

    /// Gives shares that there may be by now to calls that wait: by these rules, and to all that
    /// wait by `old` ones that are gone.
    pub(crate) fn let_in(this: Option<&Self>, old: Option<&Self>) {
        let new = this.map_or(&[][..], |params| &params.0);
        let old = old.map_or(&[][..], |params| &params.0);
        for param in new {
            param.keys.let_all_in();
        }
        for old in old {
            let goes_on = new.iter().any(|new| Arc::ptr_eq(&new.keys, &old.keys));
            if !goes_on && old.keys.has_lines() {
                let no_limit: KeyLimitNow = StdArc::new(|_, _| u32::MAX);
                old.keys.set_limit(&no_limit);
                old.keys.let_all_in();
            }
        }
    }

    /// Returns whether a call waits for a share: one that lines up after this answer sees all that
    /// was done before it.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.0.iter().any(|param| param.keys.is_waited_for())
    }

    /// How many calls wait in the lines of the rule at `place`.
    pub(crate) fn waiting(&self, place: usize) -> u32 {
        self.0[place].keys.waiting()
    }
}

// === impl Keyed ===

impl KeyedState {
    /// From here on the rule says how many calls may run, for those that wait.
    pub(super) fn set_limit(&self) {
        if self.rule.place_queue().is_none() && !self.keys.has_lines() {
            return;
        }
        let quotas = self.quotas.clone();
        let limit = move |key, tier: Option<&Key<'_>>| match quotas.of(key, tier).prepared {
            KeyLimit::Running(limit) => limit,
            // Calls that wait may have no limit since a reload.
            _ => u32::MAX,
        };
        let limit: KeyLimitNow = StdArc::new(limit);
        self.keys.set_limit(&limit);
    }

    /// The digest of the value of `call`, and how many of its calls may run at once.
    fn at_once(&self, call: &Call<'_>) -> Option<(Digest, u32)> {
        let key = self.keys.digest(self.value(call).ok()??);
        match self.quota(key, call).prepared {
            KeyLimit::Running(limit) => Some((key, limit)),
            _ => None,
        }
    }

    /// Returns whether `own` is the share that the rule asks of `call`.
    fn asks_for(&self, own: &OwnShare, call: &Call<'_>) -> bool {
        let is_of_value = |key| self.keys.digest(key) == own.taken.digest();
        Arc::ptr_eq(&self.keys, &own.keys)
            && self
                .value(call)
                .is_ok_and(|value| value.is_some_and(is_of_value))
    }
}
