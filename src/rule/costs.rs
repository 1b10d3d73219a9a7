//! The cost rules of one resource, for all callers together and for each key, with their budgets.

use std::time::Duration;

use super::cost::UncountedUnit;
use super::params::{KeyAccounts, KeyedRules, NoShare};
use super::{FlowRule, LeaseAccount, RuleSet, SharedCostRule};
use crate::base::carry_over::carry_over;
use crate::base::small_vec::SmallVec;
use crate::budget::{Account, BudgetFigures, CostBudget, CostLedger};
use crate::call::Call;
use crate::clock::Tick;
use crate::stat::{Grid, Quota};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CostRules {
    /// The rules that count all callers together.
    all: Box<[CostRule]>,
    /// The rules that count each key separately.
    by_key: Option<KeyedRules>,
    /// The shared rules. The engine asks them along with the other [shared
    /// rules](super::SharedRule).
    shared: Box<[SharedCostRule]>,
    /// The first unit that a call has named and no rule counts.
    stray: UncountedUnit,
}

/// A rule that counts all callers together.
#[derive(Debug)]
struct CostRule {
    index: u32,
    rule: FlowRule,
    /// Kept over reloads: the rule that inherits the budget shares it, as calls in flight hold
    /// accounts.
    budget: CostBudget,
}

/// The accounts of one call with the cost rules of its resource.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// One account for each rule on all callers, in the order of the rules.
    all: SmallVec<Account, 2>,
    /// The accounts under keyed rules.
    by_key: KeyAccounts,
    /// The accounts under shared rules.
    pub(crate) shared: SmallVec<LeaseAccount, 1>,
}

/// A report about the cost of a call. It is applied to each account of the call that counts the
/// unit, with the budget of the account's rule.
#[derive(Clone, Copy, Debug)]
enum CostReport {
    /// Charges further units.
    Charge(u32),
    /// Charges further units, without checking whether the rules have budget left.
    Add(u32),
    /// Settles the call at a total cost.
    Settle(u32),
    /// Reports what a provider has left until its reset.
    ProviderLeft { left: u32, reset: Duration },
}

// === impl CostReport ===

impl CostReport {
    /// Applies the report to `account`, which is an account of `budget`. Returns false if a charge
    /// leaves no budget.
    #[inline]
    fn apply<L: CostLedger + ?Sized>(self, now: Tick, budget: &L, account: &Account) -> bool {
        match self {
            Self::Charge(units) => return budget.charge(account, now, units),
            Self::Add(units) => budget.add(account, now, units),
            Self::Settle(total) => budget.settle(account, now, total),
            Self::ProviderLeft { left, reset } => budget.note_provider_left(now, left, reset),
        }
        true
    }
}

// === impl Accounts ===

impl Accounts {
    /// Returns whether the accounts at keyed rules reserve nothing.
    fn by_key_reserve_nothing(&self) -> bool {
        self.by_key.iter().all(|(_, it)| it.account.is_empty())
    }
}

// === impl CostRules ===

impl CostRules {
    /// Creates the rules of `set` at `indices`, with its keyed rules `by_key` and its `shared`
    /// rules. Each rule inherits what was charged and what is reserved from a rule of `old` that
    /// counts the same unit: from an equal rule, else from a rule with the same id, else from a
    /// rule with the same window, else from any.
    pub(crate) fn new(
        set: &RuleSet,
        indices: &[u32],
        old: Option<&Self>,
        now: Tick,
        by_key: Option<KeyedRules>,
        shared: Vec<SharedCostRule>,
    ) -> Option<Self> {
        let mut rules = Vec::with_capacity(indices.len());
        for &index in indices {
            if let Some(rule) = set.flow(index).filter(|rule| !rule.is_in_table()) {
                rules.push((index, rule));
            }
        }
        let is_unit = |new: &FlowRule, old: &CostRule| new.get_cost() == old.rule.get_cost();
        let carry_over = carry_over(
            &rules,
            old.map_or(&[][..], |old| &old.all),
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
        let has_any = !all.is_empty() || by_key.is_some() || !shared.is_empty();
        has_any.then(|| Self {
            all: all.into(),
            by_key,
            shared: shared.into(),
            stray: UncountedUnit::default(),
        })
    }

    /// The rules that count each key separately.
    pub(crate) const fn by_key(&self) -> Option<&KeyedRules> {
        self.by_key.as_ref()
    }

    /// Reserves what `call` may cost with every rule, or with none. Fills `accounts` in place,
    /// which avoids a copy. `time` returns the present time. The error names the first rule without
    /// room for the call.
    #[inline]
    pub(crate) fn reserve(
        &self,
        call: &Call<'_>,
        now: Tick,
        time: &dyn Fn() -> Tick,
        accounts: &mut Accounts,
    ) -> Result<(), NoShare> {
        // Keys go first: a call that exceeds its own key's budget then takes nothing from other
        // callers.
        if let Some(by_key) = &self.by_key {
            by_key.reserve(call, now, time, &mut accounts.by_key)?;
        }
        let mut is_reserved = false;
        for rule in &self.all {
            let wanted = rule.wanted(call);
            if let Some(account) = rule.budget.admit(now, wanted) {
                is_reserved |= wanted > 0;
                accounts.all.push(account);
                continue;
            }
            self.cancel(accounts);
            return Err(NoShare::Full {
                rule: rule.index,
                limit: rule.rule.advertised(),
                available_at: rule.budget.room_at(now, wanted),
            });
        }
        if !is_reserved && accounts.by_key_reserve_nothing() {
            call.reserves.each_unit(&mut |unit| self.note_stray(unit));
        }
        Ok(())
    }

    /// Counts the reservations of a call that now runs.
    pub(crate) fn start(&self, accounts: &Accounts) {
        for (place, rule) in self.all.iter().enumerate() {
            if let Some(account) = accounts.all.get(place) {
                rule.budget.start(account);
            }
        }
        if self.has_keyed_or_shared() {
            self.each_keyed_or_shared(accounts, &mut |_, budget, account| budget.start(account));
        }
    }

    /// Counts the reservations of a running call under shared rules. They are made after all other
    /// reservations.
    #[cold]
    pub(crate) fn start_shared(&self, accounts: &Accounts) {
        for shared in accounts.shared.iter() {
            shared.start(shared.account());
        }
    }

    /// Takes back the reservations of a call that will not run.
    #[cold]
    pub(crate) fn cancel(&self, accounts: &Accounts) {
        self.each_account(accounts, &mut |budget, account| budget.cancel(account));
    }

    /// Charges a call `units` more of `unit`. Returns whether every rule on this unit has budget
    /// left for it.
    pub(crate) fn charge(&self, accounts: &Accounts, now: Tick, unit: &str, units: u32) -> bool {
        self.report(accounts, now, unit, CostReport::Charge(units))
    }

    /// Charges a call `units` more of `unit`, as `charge` does, but does not check the budgets.
    pub(crate) fn add(&self, accounts: &Accounts, now: Tick, unit: &str, units: u32) {
        self.report(accounts, now, unit, CostReport::Add(units));
    }

    /// Settles a call at a `total` cost of `unit`.
    pub(crate) fn settle(&self, accounts: &Accounts, now: Tick, unit: &str, total: u32) {
        self.report(accounts, now, unit, CostReport::Settle(total));
    }

    /// Passes on what a provider has reported: `left` units of `unit` until `reset` has passed.
    pub(crate) fn note_provider_left(
        &self,
        accounts: &Accounts,
        now: Tick,
        (unit, left): (&str, u32),
        reset: Duration,
    ) {
        let report = CostReport::ProviderLeft { left, reset };
        self.report(accounts, now, unit, report);
    }

    /// Applies `report` to each account of the call that counts `unit`. Notes the unit if no rule
    /// counts it. Returns false if a charge leaves one of the rules without budget.
    // Always inlined, so that each caller has only the code of its kind of report.
    #[inline(always)]
    fn report(&self, accounts: &Accounts, now: Tick, unit: &str, report: CostReport) -> bool {
        let (mut is_counted, mut has_budget) = (false, true);
        for (place, rule) in self.all.iter().enumerate() {
            let Some(account) = accounts.all.get(place) else {
                break;
            };
            if rule.unit() == unit {
                is_counted = true;
                has_budget &= report.apply(now, &rule.budget, account);
            }
        }
        if self.has_keyed_or_shared() {
            self.each_keyed_or_shared(accounts, &mut |of, budget, account| {
                if of == unit {
                    is_counted = true;
                    has_budget &= report.apply(now, budget, account);
                }
            });
        }
        if !is_counted {
            self.note_stray(unit);
        }
        has_budget
    }

    /// Notes a `unit` that a call has named and that no account of the call counts, unless another
    /// rule counts it.
    #[cold]
    fn note_stray(&self, unit: &str) {
        let keyed = self.by_key.iter().flat_map(KeyedRules::units);
        let shared = self.shared.iter().map(SharedCostRule::unit);
        let mut units = self
            .all
            .iter()
            .map(CostRule::unit)
            .chain(keyed)
            .chain(shared);
        if units.all(|counted| counted != unit) {
            self.stray.note(unit);
        }
    }

    /// The first unit that a call has named and no rule counts.
    pub(crate) fn stray(&self) -> Option<&str> {
        self.stray.get()
    }

    /// Closes the accounts of a call that has ended and can no longer be charged. Calls `now` for
    /// the time only if an account is not settled, or may be kept by a keyed or shared rule.
    pub(crate) fn close(&self, accounts: &Accounts, now: impl Fn() -> Tick, has_failed: bool) {
        for (place, rule) in self.all.iter().enumerate() {
            if let Some(account) = accounts.all.get(place) {
                // Nothing is posted for a settled account, whatever the time is.
                let now = if account.is_empty() {
                    Tick::ZERO
                } else {
                    now()
                };
                rule.budget.close(account, now, has_failed);
            }
        }
        if self.has_keyed_or_shared() {
            let now = now();
            self.each_keyed_or_shared(accounts, &mut |_, budget, account| {
                budget.close(account, now, has_failed);
            });
        }
    }

    /// Calls `f` with the budget and the account of each account of a call.
    fn each_account(&self, accounts: &Accounts, f: &mut dyn FnMut(&dyn CostLedger, &Account)) {
        for (rule, account) in self.all.iter().zip(accounts.all.iter()) {
            f(&rule.budget, account);
        }
        self.each_keyed_or_shared(accounts, &mut |_, budget, account| f(budget, account));
    }

    /// Returns whether there are keyed or shared rules.
    #[inline]
    fn has_keyed_or_shared(&self) -> bool {
        self.by_key.is_some() || !self.shared.is_empty()
    }

    /// Calls `f` for each account of a call at a keyed or shared rule: with the unit, the budget and
    /// the account.
    fn each_keyed_or_shared(
        &self,
        accounts: &Accounts,
        f: &mut dyn FnMut(&str, &dyn CostLedger, &Account),
    ) {
        if let Some(by_key) = &self.by_key {
            by_key.each_account(&accounts.by_key, f);
        }
        for shared in accounts.shared.iter() {
            f(shared.unit(), shared, shared.account());
        }
    }

    /// Returns when all rules have room for `call` if no other call comes; `None` if a rule never
    /// has room.
    pub(crate) fn room_at(&self, call: &Call<'_>, now: Tick) -> Option<Tick> {
        let mut latest = now;
        if let Some(by_key) = &self.by_key {
            latest = by_key.cost_room_at(call, now)?;
        }
        for rule in &self.all {
            latest = latest.max(rule.budget.room_at(now, rule.wanted(call))?);
        }
        Some(latest)
    }

    /// The remaining budget of each rule on all callers: the rule's index, its limit and interval,
    /// the units left, and the time at which more units become available.
    pub(crate) fn left(
        &self,
        now: Tick,
    ) -> impl Iterator<Item = (u32, (u32, Duration), u32, Tick)> {
        self.all.iter().map(move |it| {
            let left = it.budget.left(now);
            let more = it.budget.more_at(now, left);
            let limit = (it.budget.limit(), it.rule.interval());
            (it.index, limit, left, more.unwrap_or(now))
        })
    }

    /// The figures of each rule: its index, its unit, whether it counts each key separately, and
    /// the figures of its budget. The rules on all callers come before those for each key.
    pub(crate) fn figures(&self, now: Tick) -> Vec<(u32, &str, bool, BudgetFigures)> {
        let mut figures = Vec::new();
        for it in &self.all {
            figures.push((it.index, it.unit(), false, it.budget.figures(now)));
        }
        let by_key = self.by_key.iter().flat_map(|it| it.cost_figures(now));
        let (by_key, of_all): (Vec<_>, Vec<_>) = by_key.partition(|it| it.2);
        figures.extend(of_all);
        for it in &self.shared {
            figures.push((it.index(), it.unit(), it.is_by_key(), it.figures(now)));
        }
        figures.extend(by_key);
        figures
    }

    /// Returns whether a provider has reported its remaining units, and their reset is still ahead.
    pub(crate) fn has_provider_left(&self, now: Tick) -> bool {
        self.all
            .iter()
            .any(|rule| rule.budget.has_provider_left(now))
    }

    /// How long after the last call a charge still matters. A resource with keyed rules is kept
    /// anyway.
    pub(crate) fn memory(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for rule in &self.all {
            longest = longest.max(rule.budget.memory());
        }
        longest
    }

    /// Bytes that the rules occupy on the heap.
    pub(crate) fn footprint(&self) -> usize {
        let by_key = self.by_key.as_ref().map_or(0, KeyedRules::footprint);
        let mut bytes = size_of_val(&*self.all) + size_of_val(&*self.shared) + by_key;
        for rule in &self.all {
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
            Some(old) => old.budget.change(grid, quota, now),
            None => CostBudget::new(grid, quota, now),
        };
        Self {
            index,
            rule: rule.clone(),
            budget,
        }
    }

    /// The unit that the rule counts.
    fn unit(&self) -> &str {
        self.rule.get_cost().unwrap_or_default()
    }

    /// What `call` reserves with this rule.
    fn wanted(&self, call: &Call<'_>) -> u32 {
        call.reserves.of(self.unit())
    }
}
