//! The budgets of rules on costs, copied for a snapshot.

use super::NodeView;
use crate::budget::BudgetFigures;
use crate::clock::Tick;
use crate::engine::resource::Resource;

/// The budget of a rule on [costs](crate::FlowRule::cost) for one resource: what its calls have
/// reserved and were charged.
///
/// A reload keeps the counts if the new rule replaces a rule of the same unit.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let rule = FlowRule::per_minute("chat", 10_000).cost("tokens").id("tpm");
/// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
/// let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("chat").reserve("tokens", 4_096))
/// else {
///     panic!("10000 are left");
/// };
/// entry.charge("tokens", 96);
/// let budgets = sentinel.node("chat").expect("it has been called").budgets();
/// let budget = &budgets[0];
/// assert_eq!((budget.rule(), budget.unit(), budget.limit()), ("tpm", "tokens", 10_000));
/// assert_eq!((budget.used(), budget.reserved(), budget.left()), (96, 4_000, 5_904));
/// assert_eq!((budget.charged_total(), budget.reserved_total()), (96, 4_096));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSnapshot {
    rule: String,
    unit: String,
    is_by_key: bool,
    figures: BudgetFigures,
}

impl BudgetSnapshot {
    /// Copies the budgets of `resource`, in the order of their rules.
    pub(super) fn of(resource: &Resource, now: Tick) -> Vec<Self> {
        let mut budgets = Vec::new();
        if let Some(costs) = resource.costs() {
            for (rule, unit, is_by_key, figures) in costs.figures(now) {
                budgets.push(Self {
                    rule: resource.rules().id(rule).to_string(),
                    unit: unit.to_owned(),
                    is_by_key,
                    figures,
                });
            }
        }
        budgets
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the unit of the costs.
    #[must_use]
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns whether the rule limits the costs of [each key](crate::KeyedRule::cost). Then
    /// [`reserved`](Self::reserved) and the totals are sums over all values.
    #[must_use]
    pub const fn is_by_key(&self) -> bool {
        self.is_by_key
    }

    /// Returns the maximum cost of calls in the interval of the rule. If each key has a budget,
    /// this is the limit of a value without an individual limit.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.figures.limit
    }

    /// Returns what was charged in the present window. It is 0 for a keyed rule:
    /// [`KeyedView::left`](crate::read::KeyedView::left) returns what a value has left.
    #[must_use]
    pub const fn used(&self) -> u32 {
        self.figures.used
    }

    /// Returns the part of the reservations of running calls that was not charged yet.
    #[must_use]
    pub const fn reserved(&self) -> u32 {
        self.figures.reserved
    }

    /// Returns what new calls can cost: the remaining budget, less what is reserved. The remaining
    /// budget is the limit less what is used or, if the provider has reported that less is
    /// [left](crate::Meter::left), the reported figure. For a keyed rule, returns the whole limit,
    /// as for a new value.
    #[must_use]
    pub const fn left(&self) -> u32 {
        if self.is_by_key {
            return self.figures.limit;
        }
        let BudgetFigures {
            limit,
            used,
            reserved,
            provider_left,
            ..
        } = self.figures;
        let left = limit.saturating_sub(used);
        let left = match provider_left {
            Some(provider) if provider < left => provider,
            _ => left,
        };
        left.saturating_sub(reserved)
    }

    /// Returns the total that was charged.
    #[must_use]
    pub const fn charged_total(&self) -> u64 {
        self.figures.charged_total
    }

    /// Returns the total that calls have reserved. The quotient of what was charged and this total
    /// shows how good the reservations are.
    #[must_use]
    pub const fn reserved_total(&self) -> u64 {
        self.figures.reserved_total
    }

    /// Returns the total that was charged beyond the limits of windows. If many threads charge at
    /// once, a part of it can be missing.
    #[must_use]
    pub const fn over_total(&self) -> u64 {
        self.figures.over_total
    }

    /// Returns how many calls ended without reporting a cost, and so were charged what they had
    /// reserved.
    #[must_use]
    pub const fn untold_total(&self) -> u64 {
        self.figures.untold_total
    }

    /// Returns the total that was reported but not charged, because a single report was above 2²⁴
    /// or the window held 2³⁰ already.
    #[must_use]
    pub const fn cut_total(&self) -> u64 {
        self.figures.cut_total
    }
}

impl NodeView {
    /// Returns the budgets of the rules on [costs](crate::FlowRule::cost): first of the rules for
    /// all callers together, then of the rules for [each key](crate::KeyedRule::cost), each in the
    /// order of the rules.
    #[must_use]
    pub fn budgets(&self) -> Vec<BudgetSnapshot> {
        BudgetSnapshot::of(&self.resource, self.resource.now())
    }
}
