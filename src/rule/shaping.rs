//! How a flow rule lets calls pass: at once, in a line, or more and more.

use std::time::Duration;

use super::FlowRule;
use super::problem::Inspector;

/// Longest wait in a line, and longest warm-up.
const DAY: Duration = Duration::from_secs(86_400);
/// Largest cold factor.
const COLDEST: f64 = 1_000.0;

/// What shapes the calls that a rule admits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shaping {
    /// The longest wait in the line; `None`: there is no line but a window.
    pub(crate) max_wait: Option<Duration>,
    /// How long a cold rule takes to its whole threshold.
    pub(crate) warm_up: Option<Duration>,
    /// How much less a cold rule admits.
    pub(crate) cold_factor: Option<f64>,
}

impl FlowRule {
    /// Calls pass one after the other, evenly spaced, instead of as many as fit
    /// into a window: 10 per second means one every 100 ms. A call that comes
    /// before its turn waits for it, at most `max_wait`, and is refused if that
    /// would not do. Zero: nobody waits, and a call that comes too early is
    /// refused.
    ///
    /// Idle time is no credit: there are no bursts. A call of weight `n` takes
    /// `n` turns, and the next one waits for them. The turn of a call that is
    /// dropped while it waits goes to the next one, unless somebody stands
    /// behind it already. Buckets and loans mean nothing to such a rule.
    ///
    /// A response time begins with the call's turn. At most
    /// [`max_waiting`](Self::max_waiting) calls wait at once, and no call longer
    /// than 512 buckets of its resource, which is 256 s unless other rules need
    /// finer ones.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("job", 10).throttle(Duration::from_millis(250)))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// let mut waits = Vec::new();
    /// let mut waiting = Vec::new();
    /// for _ in 0..5 {
    ///     match sentinel.try_enter(Call::new("job")) {
    ///         Verdict::Pass(_) => waits.push(Some(0)),
    ///         Verdict::Wait(turn) => {
    ///             waits.push(Some(turn.delay().as_millis()));
    ///             waiting.push(turn);
    ///         }
    ///         _ => waits.push(None), // refused: 300 ms are too long
    ///     }
    /// }
    /// assert_eq!(waits, [Some(0), Some(100), Some(200), None, None]);
    /// ```
    ///
    /// # Source
    ///
    /// The rate limiter of Sentinel, after the leaky bucket; there threads sleep
    /// while they wait, and a call that is refused may push others back.
    #[must_use]
    pub fn throttle(mut self, max_wait: Duration) -> Self {
        self.shaping_mut().max_wait = Some(max_wait);
        self
    }

    /// A rule that has been idle is cold and admits less: a third of the
    /// threshold, unless [`cold_factor`](Self::cold_factor) says otherwise.
    /// Under load it admits more and more, and all of the threshold after about
    /// `period`. When the load falls below a third it cools down again.
    ///
    /// With [`throttle`](Self::throttle), the spacing shrinks accordingly.
    ///
    /// # Source
    ///
    /// The warm-up of Sentinel, after Guava's `SmoothWarmingUp`. Sentinel counts
    /// in whole tokens, so that small thresholds stick at zero; this does not.
    #[must_use]
    pub fn warm_up(mut self, period: Duration) -> Self {
        self.shaping_mut().warm_up = Some(period);
        self
    }

    /// What part of the threshold a [cold](Self::warm_up) rule admits: one in
    /// `factor`, above 1 and at most 1000. Default 3.
    #[must_use]
    pub fn cold_factor(mut self, factor: f64) -> Self {
        self.shaping_mut().cold_factor = Some(factor);
        self
    }
}

impl Shaping {
    pub(crate) fn cold_factor(&self) -> f64 {
        self.cold_factor.unwrap_or(3.0)
    }

    pub(super) fn inspect(&self, is_strict: bool, inspector: &mut Inspector<'_>) {
        if let Some(wait) = self.max_wait.filter(|wait| *wait > DAY) {
            inspector.refuse("max_wait", format_args!("{wait:?}"), "at most one day");
        }
        if let Some(period) = self.warm_up {
            if period.is_zero() || period > DAY {
                let value = format_args!("{period:?}").to_string();
                inspector.refuse("warm_up", value, "above 0 and at most one day");
            }
        }
        if let Some(factor) = self.cold_factor {
            if !(factor > 1.0 && factor <= COLDEST) {
                let allowed = format!("above 1 and at most {COLDEST}");
                inspector.refuse("cold_factor", factor, allowed);
            } else if self.warm_up.is_none() {
                inspector.refuse("cold_factor", factor, "given only with a warm-up");
            }
        }
        if is_strict && *self != Self::default() {
            let allowed = "false for a rule with a line or a warm-up";
            inspector.refuse("strict", true, allowed);
        }
    }
}
