//! `KeyedRule::block_for`, which blocks a value for a while after it exceeds its limit.

use std::time::Duration;

use super::{Counting, KeyedRule, LONGEST_SHOWN};
use crate::clock::LONGEST_INTERVAL;
use crate::rule::problem::{Inspector, brief};

/// The shortest time between two calls of a value that can be blocked, in nanoseconds. At faster
/// rates the words of the table have no bit left to mark a block.
const SHORTEST_NS: u32 = 16_384;

impl KeyedRule {
    /// Refuses a value that exceeds its limit for this long, even if it stops calling meanwhile:
    /// from the interval to 366 days. Default: a value is admitted again as soon as it has earned a
    /// call. Use it against guessing, as for [logins](crate::guide::floods#logins).
    ///
    /// The first call beyond the limit blocks the value; calls that are refused meanwhile do not
    /// prolong the block. `Retry-After` says when it ends. The value then has its whole quota
    /// again. If a [burst](Self::burst) takes longer than `block_for` to earn, the block lasts
    /// until the quota is whole. A call that weighs more than the whole quota is always refused,
    /// and does not block its value.
    ///
    /// [`KeyedView::reset`](crate::read::KeyedView::reset) lifts a block. Calls under an exception
    /// or a tier [without a limit](Self::except_unlimited) pass in spite of a block, but calls
    /// under an exception or tier with another limit do not.
    /// [`KeyedView::blocks`](crate::read::KeyedView::blocks) counts the blocks.
    ///
    /// A blocked value keeps its place in the [table](Self::max_keys) until the block ends. Values
    /// that find no place are never blocked, as they share one quota with other values. Calls
    /// [without a value](Self::missing) are blocked together.
    ///
    /// In a rule on [costs](Self::cost) a refused call blocks the value if what its calls were
    /// charged leaves too little; what running calls have reserved blocks nobody. Charges during a
    /// block count, but do not prolong it. A call that is judged in the moment of the block can
    /// still pass. This blocks whoever fails too often, as under
    /// [only logins that fail](crate::guide::budgets#only-logins-that-fail).
    ///
    /// Only for a refilled quota in one process, with limits of up to one call or unit in
    /// 16.384 µs, about 61 000 per second. If a reload adds `block_for` to a rule that had higher
    /// limits, the rule gets a new table.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// let hour = Duration::from_secs(3_600);
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder()
    ///     .rules(KeyedRule::per_minute("login", 5).block_for(hour))
    ///     .clock(clock.clone())
    ///     .build();
    /// let attempt = || sentinel.try_enter(Call::new("login").param("ann"));
    /// assert!((0..5).all(|_| matches!(attempt(), Verdict::Pass(_))));
    /// let Verdict::Block(blocked) = attempt() else { panic!("a sixth one") };
    /// assert_eq!(blocked.retry_after(), Some(hour));
    ///
    /// clock.advance(hour - Duration::from_secs(1));
    /// assert!(matches!(attempt(), Verdict::Block(_)));
    /// clock.advance(Duration::from_secs(1));
    /// assert!((0..5).all(|_| matches!(attempt(), Verdict::Pass(_))));
    /// ```
    #[doc(alias("penalty", "ban", "lockout"))]
    #[must_use]
    pub const fn block_for(mut self, length: Duration) -> Self {
        self.block_for = Some(length);
        self
    }

    /// Reports the settings that a rule that blocks values cannot have.
    pub(super) fn inspect_block(&self, inspector: &mut Inspector) {
        let Some(length) = self.block_for else {
            return;
        };
        let refuse = |inspector: &mut Inspector, allowed: String| {
            inspector.refuse("block_for", format!("{length:?}"), allowed);
        };
        if self.count != Counting::Refill {
            let allowed = match self.count {
                Counting::Calendar(_) => "left out for a day or month of the calendar",
                _ => "left out with `window`, `throttle` or `concurrency`",
            };
            return refuse(inspector, allowed.to_owned());
        }
        if !(self.interval..=LONGEST_INTERVAL).contains(&length) {
            let allowed = format!("between the interval, {:?}, and 366 days", self.interval);
            return refuse(inspector, allowed);
        }
        let most = self.interval.as_nanos() as f64 / f64::from(SHORTEST_NS);
        let allowed = format!("at most {most:.0} with `block_for`: one call in {SHORTEST_NS} ns");
        if self.threshold > most {
            inspector.refuse("threshold", brief(self.threshold), &allowed);
        }
        let exceptions = self.exceptions.iter().map(|own| ("except", own));
        let tiers = self.tiers.iter().map(|own| ("tier", own));
        for (field, (name, threshold)) in exceptions.chain(tiers) {
            if *threshold > most {
                let start: String = name.chars().take(LONGEST_SHOWN).collect();
                let value = format!("{} for {start:?}", brief(*threshold));
                inspector.refuse(field, value, &allowed);
            }
        }
    }
}
