//! The rules of one resource on what calls cost, with their budgets.

use std::time::Duration;

use super::{FlowRule, RuleSet};
use crate::base::carry_over::carry_over;
use crate::base::small_vec::SmallVec;
use crate::base::sync::Arc;
use crate::budget::{Account, BudgetFigures, CostBudget};
use crate::call::Reserves;
use crate::clock::Tick;
use crate::stat::{Grid, Quota};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CostRules(Box<[CostRule]>);

/// One rule.
#[derive(Debug)]
struct CostRule {
    index: u32,
    rule: FlowRule,
    /// Shared with the rule of before that it inherits, for the calls in flight.
    budget: Arc<CostBudget>,
}

/// The accounts of one call: one for each rule, in the order of the rules.
pub(crate) type Accounts = SmallVec<Account, 2>;

// === impl CostRules ===

impl CostRules {
    /// The rules of `set` at `indices`. Each inherits what was charged and is reserved from one of
    /// `old` that counts the same unit: from an equal rule, else from one of the same id, else from
    /// one with the same window, else from any.
    pub(crate) fn new(
        set: &RuleSet,
        indices: &[u32],
        old: Option<&Self>,
        now: Tick,
    ) -> Option<Self> {
        let mut rules = Vec::with_capacity(indices.len());
        for &index in indices {
            if let Some(rule) = set.flow(index) {
                rules.push((index, rule));
            }
        }
        let is_unit = |new: &FlowRule, old: &CostRule| new.get_cost() == old.rule.get_cost();
        let carry_over = carry_over(
            &rules,
            old.map_or(&[][..], |old| &old.0),
            &[
                &|(_, new), old| **new == old.rule,
                &|(_, new), old| is_unit(new, old) && new.is_named_like(&old.rule),
                &|(_, new), old| is_unit(new, old) && new.counts_like(&old.rule),
                &|(_, new), old| is_unit(new, old),
            ],
        );
        let mut all = Vec::with_capacity(rules.len());
        for ((index, rule), old) in rules.into_iter().zip(carry_over) {
            all.push(CostRule::new(index, rule, old, now));
        }
        (!all.is_empty()).then(|| Self(all.into()))
    }

    /// Reserves what a call `wants` by every rule, or by none. The error is the first rule that has
    /// nothing left for it.
    pub(crate) fn reserve(&self, wants: Reserves<'_>, now: Tick) -> Result<Accounts, u32> {
        let mut accounts = Accounts::default();
        for rule in &self.0 {
            match rule.budget.admit(now, rule.wanted(wants)) {
                Some(account) => accounts.push(account),
                None => {
                    self.cancel(&accounts);
                    return Err(rule.index);
                }
            }
        }
        Ok(accounts)
    }

    /// The call of `accounts` runs.
    pub(crate) fn start(&self, accounts: &Accounts) {
        for (rule, account) in self.0.iter().zip(accounts.iter()) {
            rule.budget.start(account);
        }
    }

    /// Takes back the reservations of a call that does not run.
    #[cold]
    pub(crate) fn cancel(&self, accounts: &Accounts) {
        for (rule, account) in self.0.iter().zip(accounts.iter()) {
            rule.budget.cancel(account);
        }
    }

    /// The call has cost `units` more of `unit`. Returns whether each rule on that has something
    /// left for it.
    pub(crate) fn charge(&self, accounts: &Accounts, now: Tick, unit: &str, units: u32) -> bool {
        let mut goes_on = true;
        for (rule, account) in self.0.iter().zip(accounts.iter()) {
            if rule.rule.get_cost() == Some(unit) {
                goes_on &= rule.budget.charge(account, now, units);
            }
        }
        goes_on
    }

    /// The call costs `total` of `unit` in all.
    pub(crate) fn settle(&self, accounts: &Accounts, now: Tick, unit: &str, total: u32) {
        for (rule, account) in self.0.iter().zip(accounts.iter()) {
            if rule.rule.get_cost() == Some(unit) {
                rule.budget.settle(account, now, total);
            }
        }
    }

    /// The call has ended, and nobody can charge it any more.
    pub(crate) fn close(&self, accounts: &Accounts, now: Tick, has_failed: bool) {
        for (rule, account) in self.0.iter().zip(accounts.iter()) {
            rule.budget.close(account, now, has_failed);
        }
    }

    /// When all rules let a call in that `wants` to reserve this, if no other call comes; `None` if
    /// one never does.
    pub(crate) fn room_at(&self, wants: Reserves<'_>, now: Tick) -> Option<Tick> {
        let mut latest = now;
        for rule in &self.0 {
            latest = latest.max(rule.budget.room_at(now, rule.wanted(wants))?);
        }
        Some(latest)
    }

    /// The rest of each rule: its index, its limit and in which time, the rest, and when there is
    /// more.
    pub(crate) fn left(
        &self,
        now: Tick,
    ) -> impl Iterator<Item = (u32, (u32, Duration), u32, Tick)> {
        self.0.iter().map(move |it| {
            let left = it.budget.left(now);
            let more = it.budget.more_at(now, left);
            let limit = (it.budget.limit(), it.rule.interval());
            (it.index, limit, left, more.unwrap_or(now))
        })
    }

    /// The figures of each rule: its index, its unit, and those of its budget.
    pub(crate) fn figures(&self, now: Tick) -> impl Iterator<Item = (u32, &str, BudgetFigures)> {
        self.0.iter().map(move |it| {
            let unit = it.rule.get_cost().unwrap_or_default();
            (it.index, unit, it.budget.figures(now))
        })
    }

    /// What a call that `wants` this reserves by the rule at `index` in the set.
    pub(crate) fn wanted(&self, index: u32, wants: Reserves<'_>) -> u32 {
        let rule = self.0.iter().find(|rule| rule.index == index);
        rule.map_or(0, |rule| rule.wanted(wants))
    }

    /// How long what was charged matters.
    pub(crate) fn memory(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for rule in &self.0 {
            longest = longest.max(rule.budget.memory());
        }
        longest
    }

    /// Bytes that the rules occupy on the heap.
    pub(crate) fn footprint(&self) -> usize {
        let mut bytes = size_of_val(&*self.0);
        for rule in &self.0 {
            bytes += rule.rule.heap() + rule.budget.footprint();
        }
        bytes
    }
}

// === impl CostRule ===

impl CostRule {
    fn new(index: u32, rule: &FlowRule, old: Option<&Self>, now: Tick) -> Self {
        let bucket_ns = rule.bucket_ns();
        let grid = Grid {
            bucket_ns,
            buckets: rule.counted_buckets(),
            // Nothing is lent.
            ahead: 1,
        };
        let quota: Quota = rule.quota(bucket_ns);
        let budget = match old {
            Some(old) => {
                old.budget.change(grid, quota, now);
                old.budget.clone()
            }
            None => Arc::new(CostBudget::new(grid, quota, now)),
        };
        Self {
            index,
            rule: rule.clone(),
            budget,
        }
    }

    /// What a call that `wants` this reserves by this rule.
    fn wanted(&self, wants: Reserves<'_>) -> u32 {
        wants.of(self.rule.get_cost().unwrap_or_default())
    }
}
