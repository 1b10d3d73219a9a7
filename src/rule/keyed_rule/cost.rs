//! `KeyedRule::cost`, which makes a rule count costs instead of calls.

use super::{Counting, KeyedRule};
use crate::budget::MAX_BUDGET;
use crate::keyed::{Burst, MOST_IN_WINDOW, most_in_window};
use crate::rule::cost::inspect_unit;
use crate::rule::problem::Inspector;
use crate::stat::MAX_TOKENS;

impl KeyedRule {
    /// Counts the cost called `unit` instead of calls: the threshold is the maximum cost of the
    /// calls of one value in the interval. [`FlowRule::cost`](crate::FlowRule::cost) describes how
    /// a call reserves and is charged, and what it is charged when it ends.
    ///
    /// A call passes if what its value has used, what running calls of the value have reserved and
    /// what the call itself [reserves](crate::Call::reserve) add up to at most the value's
    /// threshold. A call that reserves nothing passes while anything is left.
    ///
    /// By default the quota is refilled continuously. What calls cost beyond it is a debt, which is
    /// paid off as the quota refills: until then the value is refused, for at most ten intervals.
    /// In a [window](Self::window) an excess leaves with its bucket, so it keeps a value out for at
    /// most one interval; [by the calendar](Self::per_calendar_month) it leaves with its day or
    /// month. The count of a window stops at 1 048 575, unless the rule has a larger limit. A
    /// single charge counts as at most 2²⁴, or as what is still reserved if that is more.
    /// [Budgets](crate::guide::budgets) says which to use when.
    ///
    /// The unit is 1 to 64 visible ASCII characters other than `requests`. The threshold and the
    /// [burst](Self::burst) are at most 2³⁰ each, or 1 048 575 for a window shorter than a second
    /// that is not [shared](Self::shared).
    /// [Exceptions](Self::except), [tiers](Self::tier) and [`missing`](Self::missing) work as for
    /// calls. The rule cannot have a [queue](Self::throttle) or limit
    /// [concurrency](Self::concurrency).
    ///
    /// Reservations are held in a second table, which takes 32 bytes more for each of
    /// [`max_keys`](Self::max_keys). A value with a reservation is not evicted from it.
    ///
    /// In a window or by the calendar the rule can be [shared](Self::shared): then each value has
    /// one budget for all processes. A cost counts in the bucket, day or month in which it was
    /// reserved, a call that reserves nothing takes one unit at first, and a reservation above
    /// 1 048 574 is refused. There is no second table: a value with running calls keeps its place
    /// among the counters of the process. The [guide](crate::guide::replicas#one-budget) explains
    /// the rest.
    ///
    /// # Reloads
    ///
    /// A rule takes over what is charged and reserved from a previous rule that counted the same
    /// unit of the same values in the same way; see [`max_keys`](Self::max_keys). Running calls are
    /// charged at the limit that admitted them.
    ///
    /// # Accuracy
    ///
    /// What a value has used plus what its calls have reserved is at most its limit plus what its
    /// calls have cost beyond their reservations, for every aligned window, or at any time for a
    /// refilled quota. So if each call reserves its maximum cost, no limit is exceeded. Values
    /// without a place in a full table share one limit and one sum of reservations while their
    /// calls run.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// let rule = KeyedRule::per_minute("chat", 10_000).cost("tokens").tier("pro", 60_000);
    /// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
    /// let chat = |user| Call::new("chat").param(user).reserve("tokens", 6_000);
    ///
    /// let Verdict::Pass(mut first) = sentinel.try_enter(chat("ann")) else {
    ///     panic!("ann has 10000");
    /// };
    /// assert!(matches!(sentinel.try_enter(chat("ann")), Verdict::Block(_)));
    /// assert!(matches!(sentinel.try_enter(chat("bob")), Verdict::Pass(_)));
    /// // It costs 500, and 5500 are free again.
    /// first.settle("tokens", 500);
    /// assert!(matches!(sentinel.try_enter(chat("ann")), Verdict::Pass(_)));
    /// ```
    #[doc(alias("tokens", "bytes", "budget"))]
    #[must_use]
    pub fn cost(mut self, unit: impl Into<String>) -> Self {
        self.cost = Some(unit.into());
        self
    }

    /// The largest valid threshold.
    pub(super) fn most(&self) -> u32 {
        let most = match self.count {
            // A shared rule counts in the store, in one counter for each value.
            Counting::Window if !self.sharing.is_shared => most_in_window(self.interval),
            _ => MAX_TOKENS,
        };
        if self.cost.is_some() {
            most.min(MAX_BUDGET)
        } else {
            most
        }
    }

    /// Returns whether any limit of the rule is too large for a window of one word.
    pub(in crate::rule) fn has_wide_windows(&self) -> bool {
        let is_wide = |threshold: &f64| *threshold > f64::from(MOST_IN_WINDOW);
        let mut others = self.exceptions.iter().chain(&self.tiers);
        self.count == Counting::Window
            && (is_wide(&self.threshold) || others.any(|(_, threshold)| is_wide(threshold)))
    }

    /// Reports the settings that a rule on costs cannot have.
    pub(super) fn inspect_cost(&self, unit: &str, inspector: &mut Inspector) {
        inspect_unit(unit, inspector);
        match self.count {
            Counting::Refill | Counting::Window | Counting::Calendar(_) => {}
            Counting::Queue(wait) => {
                let allowed = "left out with `cost`: a cost has no turn";
                inspector.refuse("max_wait", format_args!("{wait:?}"), allowed);
            }
            Counting::Running => {
                let allowed = "left out with `concurrency`: that counts calls";
                inspector.refuse("cost", format_args!("{unit:?}"), allowed);
            }
        }
        let (field, burst) = match self.burst {
            Burst::AboveThreshold(burst) => ("burst", burst),
            Burst::Capacity(capacity) => ("capacity", capacity),
        };
        if burst.is_within(0, MAX_TOKENS) {
            inspector.number(field, burst, 0..=MAX_BUDGET);
        }
    }
}
