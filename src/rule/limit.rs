//! The limit of a rule of any kind: for tables, exports and pages.

use std::time::Duration;

use super::Rule;

impl Rule {
    /// Returns the limit as it is configured; `None` for a rule that has no limit or several. A
    /// rule in shadow mode has the limit of the rule itself.
    ///
    /// | kind | the limit | its [interval](Self::interval) |
    /// |---|---|---|
    /// | `flow` | tokens that may pass, also a fraction | the window |
    /// | `keyed` | tokens that may pass for each value that has no limit of its own, or calls at once | the interval; for a month, the 31 days of the longest month; `None` for calls at once |
    /// | `isolation` | calls at once | `None` |
    /// | `adaptive` | the ceiling: the most calls at once | `None` |
    /// | `circuit-breaker` | bad calls that open it: a ratio from 0 to 1, or a number | the time over which they are counted; `None` for the last calls and for failures in a row. Limit and interval are `None` for a pushback |
    /// | `authority`, `system` | `None` | `None` |
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{AdaptiveRule, CircuitBreakerRule, FlowRule, IsolationRule, Rule, SystemRule};
    ///
    /// let limit = |rule: Rule| (rule.limit(), rule.interval());
    /// let second = Some(Duration::from_secs(1));
    /// assert_eq!(limit(FlowRule::per_second("/search", 5).shadow()), (Some(5.0), second));
    /// assert_eq!(limit(IsolationRule::new("/report", 2).into()), (Some(2.0), None));
    /// assert_eq!(limit(CircuitBreakerRule::error_ratio("/pay", 0.5).into()), (Some(0.5), second));
    /// assert_eq!(limit(AdaptiveRule::new("/pay").ceiling(64).into()), (Some(64.0), None));
    /// assert_eq!(limit(SystemRule::new().qps(100).cpu(0.9).into()), (None, None));
    /// ```
    #[doc(alias("threshold"))]
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        self.info().limit()
    }

    /// Returns the interval of the [limit](Self::limit); `None` if the limit is not per time.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.info().interval()
    }
}
