//! Keyed rules that count costs.

use super::{KeyedRules, KeyedState, NoShare};
use crate::base::small_vec::SmallVec;
use crate::budget::{Account, BudgetFigures, CostLedger};
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::keyed::{KeyAccount, KeyBudget};
use crate::rule::keyed_rule::ParamOf;

/// The accounts of one call under keyed rules, each with the place of its rule in the list. A rule
/// that finds no value in the call opens no account.
pub(crate) type KeyAccounts = SmallVec<(u32, KeyAccount), 1>;

// === impl KeyedRules ===

impl KeyedRules {
    /// Reserves what `call` may cost with every rule, or with none. `time` returns the present time.
    /// The error names the first rule without room for the call.
    pub(crate) fn reserve(
        &self,
        call: &Call<'_>,
        now: Tick,
        time: &dyn Fn() -> Tick,
        accounts: &mut KeyAccounts,
    ) -> Result<(), NoShare> {
        for (place, rule) in self.0.iter().enumerate() {
            match rule.reserve(call, now, time) {
                Ok(None) => {}
                Ok(Some(account)) => accounts.push((place as u32, account)),
                Err(none) => {
                    self.cancel(accounts);
                    return Err(none);
                }
            }
        }
        Ok(())
    }

    /// Takes back the reservations of a call that does not run.
    pub(crate) fn cancel(&self, accounts: &KeyAccounts) {
        self.each_account(accounts, &mut |_, budget, account| {
            budget.cancel(account);
        });
    }

    /// Calls `f` with the unit, the budget and the account of each account of a call.
    pub(crate) fn each_account(
        &self,
        accounts: &KeyAccounts,
        f: &mut dyn FnMut(&str, &dyn CostLedger, &Account),
    ) {
        for (place, account) in accounts.iter() {
            let rule = &self.0[*place as usize];
            f(rule.unit(), &rule.keys.budget_of(account), &account.account);
        }
    }

    /// Returns when all rules have room for `call` if no other call comes; `None` if a rule never
    /// has room.
    pub(crate) fn cost_room_at(&self, call: &Call<'_>, now: Tick) -> Option<Tick> {
        let mut latest = now;
        for rule in &self.0 {
            if let Some((budget, wanted)) = rule.budget(call).ok()? {
                latest = latest.max(budget.room_at(now, wanted)?);
            }
        }
        Some(latest)
    }

    /// The unit of each rule.
    pub(crate) fn units(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(KeyedState::unit)
    }

    /// The figures of each rule: its index, its unit, whether each key has a budget, and the
    /// figures of its budget, or else the sums over its budgets.
    pub(crate) fn cost_figures(&self, now: Tick) -> Vec<(u32, &str, bool, BudgetFigures)> {
        let mut all = Vec::new();
        for rule in &self.0 {
            let (limit, is_by_key) = (rule.rule.threshold() as u32, rule.is_by_key());
            let figures = if is_by_key {
                let sums = rule.keys.cost_figures();
                BudgetFigures { limit, ..sums }
            } else {
                let key = rule.keys.digest(&Key::MISSING);
                rule.keys.figures_of(now, key, limit)
            };
            all.push((rule.index, rule.unit(), is_by_key, figures));
        }
        all
    }
}

// === impl KeyedState ===

impl KeyedState {
    /// Returns whether each key has a quota, in place of one quota for all callers.
    fn is_by_key(&self) -> bool {
        !matches!(self.rule.of, ParamOf::Anyone)
    }

    /// The unit that the rule counts.
    fn unit(&self) -> &str {
        self.rule.get_cost().unwrap_or_default()
    }

    /// Reserves what `call` may cost with this rule; `None` if the rule does not limit the call.
    fn reserve(
        &self,
        call: &Call<'_>,
        now: Tick,
        time: &dyn Fn() -> Tick,
    ) -> Result<Option<KeyAccount>, NoShare> {
        let Some(value) = self.value_to_take(call)? else {
            return Ok(None);
        };
        let key = self.keys.digest(value);
        let quota = self.quota_to_take(key, call);
        if quota.is_unlimited() {
            self.keys.note_uncounted(key);
            return Ok(None);
        }
        let wanted = call.reserves.of(self.unit());
        let budget = self.keys.budget(key, quota.prepared);
        match budget.admit(now, wanted, time) {
            Some(account) => Ok(Some(account)),
            None => {
                // Only what was charged blocks a value, and not what its other calls have reserved.
                let room_at = budget.room_at(now, wanted);
                Err(NoShare::Full {
                    rule: self.index,
                    limit: self.advertised(quota, now),
                    available_at: self.block(now, key, quota, wanted.max(1), room_at),
                })
            }
        }
    }

    /// The budget of the value of `call`, and what the call reserves; `None` if the rule does not
    /// limit it.
    fn budget(&self, call: &Call<'_>) -> Result<Option<(KeyBudget<'_>, u32)>, NoShare> {
        let Some(value) = self.value(call)? else {
            return Ok(None);
        };
        let key = self.keys.digest(value);
        let quota = self.quota(key, call);
        let budget = || self.keys.budget(key, quota.prepared);
        let wanted = call.reserves.of(self.unit());
        Ok((!quota.is_unlimited()).then(|| (budget(), wanted)))
    }
}
