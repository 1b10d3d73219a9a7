//! The lines in which calls wait for a place of their value, under a concurrency rule with a queue.

use std::sync::Arc as StdArc;
use std::task::Waker;
use std::time::Duration;

use super::{KeyedRules, KeyedState, NoShare, Share, Shares};
use crate::base::sync::Arc;
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::keyed::{Digest, HotKeys, KeyLimit, KeyLimitNow, KeyTokens, LineTicket, WaitLimits};
use crate::rule::KeyedRule;

/// The place of a call in the line of its value. The call may have left the line in the meantime.
#[derive(Clone, Debug)]
pub(crate) struct ValuePlaceInLine {
    keys: Arc<HotKeys>,
    key: Digest,
    ticket: LineTicket,
    /// The index of the rule in the set.
    pub(crate) rule: u32,
    /// How long the call can still wait in this line.
    pub(crate) left: Duration,
}

/// A share that a call was given while it waited in line. A call that does not use it must release
/// it.
#[derive(Debug)]
#[must_use]
pub(crate) struct OwnShare {
    keys: Arc<HotKeys>,
    taken: KeyTokens,
}

// === impl ValuePlaceInLine ===

impl ValuePlaceInLine {
    /// Returns whether the call has been given its share. If not, `waker` is woken when it is.
    pub(crate) fn has_share(&self, waker: Option<&Waker>) -> bool {
        self.keys.has_place(self.ticket, waker)
    }

    /// Leaves the line. Returns the share if the call has already been given it.
    pub(crate) fn cancel(&self, now: Tick) -> Option<OwnShare> {
        Some(OwnShare {
            taken: self.keys.cancel_wait(now, self.key, self.ticket)?,
            keys: self.keys.clone(),
        })
    }

    /// Returns whether both are places in lines of the same table.
    pub(crate) fn is_in_same_table(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys)
    }
}

// === impl OwnShare ===

impl OwnShare {
    /// Gives the share to the next call in line.
    pub(crate) fn release(self, now: Tick) {
        let time: &dyn Fn() -> Tick = &|| now;
        self.keys.refund(time, &self.taken);
    }
}

// === impl KeyedRules ===

impl KeyedRules {
    /// Takes shares as [`take`](Self::take) does, but uses the share in `own`, which the call was
    /// given in line, for the rule that needs it. If no rule needs it, it stays in `own`.
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

    /// Puts a call that has found no room into the line of its value; `None` if it cannot wait
    /// there. A call that has waited in the same line `before` keeps its place.
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
        // A limit of 0 admits no call.
        if left.is_zero() || limit == 0 {
            return None;
        }
        let most = WaitLimits {
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

    /// Takes a share beyond the limit, in shadow mode, for a call that would wait if the rule were
    /// enforced. Takes none if the number of calls beyond the limit has reached `max_waiting`.
    pub(crate) fn share_beyond(&self, rule: u32, call: &Call<'_>, now: Tick) -> Option<OwnShare> {
        let param = self.0.iter().find(|param| param.index == rule)?;
        let queue = param.rule.place_queue()?;
        let (key, limit) = param.at_once(call)?;
        let most = limit.saturating_add(queue.max_waiting);
        Some(OwnShare {
            taken: param.keys.take_past_line(now, key, most)?,
            keys: param.keys.clone(),
        })
    }

    /// Returns whether calls can wait for the share that this call did not get.
    pub(crate) fn has_line(&self, none: &NoShare) -> bool {
        let param = self.full(none);
        param.is_some_and(|param| param.rule.place_queue().is_some())
    }

    /// The rule that had no room for the value of the call; `None` for other refusals.
    fn full(&self, none: &NoShare) -> Option<&KeyedState> {
        let NoShare::Full { rule, .. } = *none else {
            return None;
        };
        self.0.iter().find(|param| param.index == rule)
    }

    /// Gives the free shares to calls that wait under these rules. Calls that wait under rules of
    /// `old` that no rule continues all get a share.
    pub(crate) fn let_in(this: Option<&Self>, old: Option<&Self>) {
        let new = this.map_or(&[][..], |params| &params.0);
        let old = old.map_or(&[][..], |params| &params.0);
        for param in new {
            param.keys.let_all_in();
        }
        for old in old {
            let continues = new.iter().any(|new| Arc::ptr_eq(&new.keys, &old.keys));
            if !continues && old.keys.has_lines() {
                let no_limit: KeyLimitNow = StdArc::new(|_, _| u32::MAX);
                old.keys.set_limit(&no_limit);
                old.keys.let_all_in();
            }
        }
    }

    /// Returns whether a call waits for a share. After `false`, a call that lines up later sees all
    /// writes from before this check.
    pub(crate) fn have_waiting_calls(&self) -> bool {
        self.0.iter().any(|param| param.keys.is_waited_for())
    }

    /// How many calls wait in the lines of the rule at `place`.
    pub(crate) fn waiting(&self, place: usize) -> u32 {
        self.0[place].keys.waiting()
    }
}

// === impl KeyedState ===

impl KeyedState {
    /// Makes the limits of this rule apply to the calls that wait in its lines.
    pub(super) fn set_limit(&self) {
        if self.rule.place_queue().is_none() && !self.keys.has_lines() {
            return;
        }
        let quotas = self.quotas.clone();
        let limit = move |key, tier: Option<&Key<'_>>| match quotas.of(key, tier).prepared {
            KeyLimit::Running(limit) => limit,
            // The reload may have lifted the limit of calls that already wait.
            _ => u32::MAX,
        };
        let limit: KeyLimitNow = StdArc::new(limit);
        self.keys.set_limit(&limit);
    }

    /// The digest of the value of `call`, and its concurrency limit; `None` if the call has no
    /// value, or if the value has no limit.
    fn at_once(&self, call: &Call<'_>) -> Option<(Digest, u32)> {
        let key = self.keys.digest(self.value(call).ok()??);
        match self.quota(key, call).prepared {
            KeyLimit::Running(limit) => Some((key, limit)),
            _ => None,
        }
    }

    /// Returns whether `own` is the share that the rule needs for `call`.
    fn asks_for(&self, own: &OwnShare, call: &Call<'_>) -> bool {
        let is_of_value = |key| self.keys.digest(key) == own.taken.digest();
        Arc::ptr_eq(&self.keys, &own.keys)
            && self
                .value(call)
                .is_ok_and(|value| value.is_some_and(is_of_value))
    }
}
