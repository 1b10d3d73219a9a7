//! `FlowRule::cost`, which makes a rule count costs instead of calls.

use super::{Basis, FlowRule, Who};
use crate::budget::MAX_BUDGET;
use crate::rule::cost::inspect_unit;
use crate::rule::problem::Inspector;

impl FlowRule {
    /// Counts the cost called `unit` instead of calls: the threshold is the maximum cost of all
    /// calls in the interval. Use it where a cost is known only after a call, or bit by bit while
    /// it runs: tokens of a language model, KiB, rows.
    ///
    /// A call passes if what was charged in the window, what running calls have reserved and what
    /// the call itself [reserves](crate::Call::reserve) add up to at most the threshold. A call
    /// that reserves nothing passes while anything is left. A call is charged by its
    /// [`Entry`](crate::Entry::charge), or from anywhere by a [`Meter`](crate::Meter). A charge
    /// counts at the time at which it is made. What is left of the reservation becomes free when
    /// the call is [settled](crate::Entry::settle), or when it has ended and its last meter is
    /// dropped.
    ///
    /// In the end a call was charged:
    ///
    /// | the call | charged |
    /// |---|---|
    /// | reported a cost, by `charge` or `settle` | that cost |
    /// | reported no cost | the reservation |
    /// | reported no cost, and [failed](crate::Entry::fail) or panicked | nothing |
    /// | was refused, or dropped while it waited | nothing |
    /// | ran while rules were reloaded | as above, by the rule that took over |
    ///
    /// The unit is 1 to 64 visible ASCII characters; `requests` is refused, as a rule without
    /// `cost` counts requests. The threshold is at most 2³⁰. [`strict`](Self::strict) and
    /// [`buckets`](Self::buckets) are allowed; the rule must count all callers together, never
    /// lends, and has no queue, warm-up or memory. A single charge counts as at most 2²⁴, or as
    /// what is still reserved if that is more.
    ///
    /// A [default](crate::rule#default-rules) on costs is replaced only by a rule on costs of the
    /// same unit.
    ///
    /// If the rule is [shared](Self::shared), all processes have one budget. Then a cost counts in
    /// the bucket in which it was reserved, a call that reserves nothing takes one unit at first,
    /// and a reservation above 1 048 574 is refused. The [guide](crate::guide::replicas) explains
    /// the rest.
    ///
    /// # Accuracy
    ///
    /// Take any window that ends with a bucket. The sum of what was charged in the window, and of
    /// what the calls that run at its end have reserved, is at most the limit plus what all calls
    /// cost beyond their reservations. So if each call reserves its maximum cost, no window exceeds
    /// the limit. If no call reserves anything, a window exceeds it by at most what the running
    /// calls may still cost.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};
    ///
    /// let rules = Rules::new()
    ///     .with(FlowRule::per_minute("chat", 500))
    ///     .with(FlowRule::per_minute("chat", 10_000).cost("tokens"));
    /// let sentinel = Sentinel::builder().rules(rules).clock(ManualClock::new()).build();
    /// let call = Call::new("chat").reserve("tokens", 4_096);
    /// let Verdict::Pass(mut first) = sentinel.try_enter(call) else {
    ///     panic!("10000 are left");
    /// };
    /// let Verdict::Pass(_second) = sentinel.try_enter(call) else {
    ///     panic!("5904 are left");
    /// };
    /// // 4096 are reserved twice, so 1808 are left.
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    /// first.settle("tokens", 500);
    /// // Now 500 are charged and 4096 reserved.
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
    /// ```
    #[doc(alias("tokens", "bytes", "budget"))]
    #[must_use]
    pub fn cost(mut self, unit: impl Into<String>) -> Self {
        self.cost = Some(unit.into());
        self
    }

    /// Reports the settings that a rule on costs cannot have.
    pub(super) fn inspect_cost(&self, unit: &str, inspector: &mut Inspector) {
        inspect_unit(unit, inspector);
        inspector.number("threshold", self.threshold, 0..=MAX_BUDGET);
        self.shaping
            .inspect_absent(inspector, "left out with `cost`: a cost has no turn");
        if self.lend == Some(true) {
            let allowed = "left out with `cost`: nothing is lent of what is not known";
            inspector.refuse("lend", true, allowed);
        }
        let field = match (&self.basis, &self.who) {
            (Basis::Own, Who::Anyone) => None,
            (Basis::Related(_), _) => Some("when"),
            (Basis::Context(_), _) => Some("in_context"),
            (_, Who::Each) => Some("by_origin"),
            (_, Who::Only(_) | Who::Other) => Some("for_origin"),
        };
        if let Some(field) = field {
            let allowed = format!("left out with `{field}`: it counts all callers together");
            inspector.refuse("cost", format_args!("{unit:?}"), allowed);
        }
    }
}
