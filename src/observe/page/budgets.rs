//! The budgets of rules on costs, summed over all resources, as the page shows them.

use std::borrow::Cow;
use std::collections::HashMap;

use super::json::Json;
use crate::read::BudgetSnapshot;

/// The sums of the budgets of each rule on costs, by the id of the rule.
#[derive(Debug, Default)]
pub(super) struct PageBudgets(HashMap<String, BudgetSum>);

/// The sum of the budgets of one rule, in its unit.
#[derive(Clone, Copy, Debug, Default)]
struct BudgetSum {
    /// Whether the rule counts each key separately.
    is_by_key: bool,
    /// What was used in the present window, if the rule counts all callers together.
    used: u64,
    /// What running calls have reserved.
    reserved: u64,
    /// What was charged since the start.
    charged: u64,
    /// The number of calls that reported no cost.
    untold: u64,
}

// === impl PageBudgets ===

impl PageBudgets {
    /// Adds the budgets of one resource.
    pub(super) fn add(&mut self, budgets: Vec<BudgetSnapshot>) {
        for budget in budgets {
            let sum = self.0.entry(budget.rule().to_owned()).or_default();
            sum.is_by_key = budget.is_by_key();
            sum.used += u64::from(budget.used());
            sum.reserved += u64::from(budget.reserved());
            sum.charged += budget.charged_total();
            sum.untold += budget.untold_total();
        }
    }

    /// Returns `words`, the description of the rule `id`, and appends what was used of its budget.
    pub(super) fn words<'a>(&self, id: &str, words: &'a str) -> Cow<'a, str> {
        let Some(budget) = self.0.get(id) else {
            return words.into();
        };
        let (spent, what) = match budget.is_by_key {
            // Each key has a separate window, so there is no common amount in use.
            true => (budget.charged, "charged so far"),
            false => (budget.used, "used"),
        };
        format!("{words}: {spent} {what}, {} reserved", budget.reserved).into()
    }

    /// Writes the budget of the rule `id`, or null.
    pub(super) fn write(&self, id: &str, json: &mut Json) {
        let Some(budget) = self.0.get(id) else {
            return json.plain("budget", "null");
        };
        json.member("budget", |json| {
            json.plain("used", budget.used);
            json.plain("reserved", budget.reserved);
            json.plain("charged", budget.charged);
            json.plain("untold", budget.untold);
        });
    }
}
