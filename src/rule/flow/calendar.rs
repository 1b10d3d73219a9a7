//! Flow rules that count by the calendar: a quota for each day or month.

use super::{Basis, FlowRule, Who};
use crate::base::number::{Number, WholeNumber};
use crate::clock::CalendarPeriod;
use crate::rule::keyed_rule::inspect_offset;
use crate::rule::problem::Inspector;

/// The allowed value, in a problem, of a setting that a rule by the calendar cannot have.
const NOT_BY_CALENDAR: &str = "left out for a day or month of the calendar";

impl FlowRule {
    /// Allows at most `threshold` calls of `resource` in each day of the calendar, of all callers
    /// together or [of each origin](Self::by_origin): from midnight to midnight, by UTC unless
    /// [`utc_offset`](Self::utc_offset) says otherwise. See
    /// [`per_calendar_month`](Self::per_calendar_month).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let clock = ManualClock::new(); // 1970-01-01 00:00 by UTC
    /// let rule = FlowRule::per_calendar_day("export", 1);
    /// let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    /// let call = || sentinel.try_enter(Call::new("export"));
    ///
    /// clock.advance(Duration::from_secs(23 * 3_600));
    /// assert!(matches!(call(), Verdict::Pass(_)));
    /// let Verdict::Block(blocked) = call() else { panic!("a second one on this day") };
    /// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(3_600)));
    /// ```
    #[doc(alias("daily", "per_day"))]
    #[must_use]
    pub fn per_calendar_day(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        let period = CalendarPeriod::Day;
        Self::per(resource, threshold, period.longest()).in_period(period)
    }

    /// Allows at most `threshold` calls of `resource` in each month of the calendar, whatever its
    /// length, of all callers together or [of each origin](Self::by_origin).
    /// [`KeyedRule::per_calendar_month`](crate::KeyedRule::per_calendar_month) describes how it
    /// counts, and by what time.
    ///
    /// The threshold is at most 2³¹ − 1, or 2³⁰ for a rule on [costs](Self::cost). The resource has
    /// one count. [`NodeView::keyed_rules`](crate::read::NodeView::keyed_rules) reads what is left
    /// of it and can reset it, with any text as the value. The rule lends nothing. It has no
    /// [buckets](Self::buckets), queue, warm-up or memory, applies to no single origin or context,
    /// and cannot be for [all resources](crate::rule#default-rules). If it is
    /// [shared](Self::shared), the store determines the date.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// // What a model provider may cost in a month.
    /// let rule = FlowRule::per_calendar_month("chat", 50_000_000).cost("tokens");
    /// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
    /// let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("chat")) else {
    ///     panic!("nothing is used")
    /// };
    /// (0..5).for_each(|_| _ = entry.charge("tokens", 10_000_000));
    /// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("chat")) else {
    ///     panic!("all of it is used")
    /// };
    /// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(31 * 86_400)));
    /// ```
    #[doc(alias("monthly", "per_month"))]
    #[must_use]
    pub fn per_calendar_month(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        let period = CalendarPeriod::Month;
        Self::per(resource, threshold, period.longest()).in_period(period)
    }

    /// Returns this rule, which now counts in each `period`.
    pub(super) fn in_period(self, period: CalendarPeriod) -> Self {
        Self {
            calendar: Some(period),
            interval: period.longest(),
            ..self
        }
    }

    /// Sets how many minutes the days and months of a rule by the calendar begin before those of
    /// UTC, between -1439 and 1439. Default 0. Only for a rule
    /// [by the calendar](Self::per_calendar_month); see
    /// [`KeyedRule::utc_offset`](crate::KeyedRule::utc_offset).
    ///
    /// ```
    /// use tower_sentinel::{FlowRule, Rules};
    ///
    /// let rule = FlowRule::per_calendar_day("export", 1).utc_offset(-5 * 60);
    /// assert_eq!(rule.get_utc_offset(), -300);
    /// assert!(Rules::build([rule]).is_ok());
    /// assert!(Rules::build([FlowRule::per_hour("export", 1).utc_offset(60)]).is_err());
    /// ```
    #[doc(alias("timezone", "time_zone"))]
    #[must_use]
    pub fn utc_offset(mut self, minutes: impl Into<WholeNumber>) -> Self {
        self.utc_offset = Some(Box::new(minutes.into()));
        self
    }

    /// Returns the [period of the calendar](Self::per_calendar_month) in which the rule counts;
    /// `None` if it does not count by the calendar.
    #[must_use]
    pub const fn calendar(&self) -> Option<CalendarPeriod> {
        self.calendar
    }

    /// Returns how many minutes the rule's days [begin before](Self::utc_offset) those of UTC; 0
    /// unless set.
    #[must_use]
    pub fn get_utc_offset(&self) -> i32 {
        self.utc_offset
            .as_deref()
            .map_or(0, |minutes| minutes.get_signed())
    }

    /// Reports the settings that a rule by the calendar cannot have and, for other rules, the
    /// settings that only a rule by the calendar can have.
    pub(super) fn inspect_calendar(&self, inspector: &mut Inspector) {
        inspect_offset(
            self.utc_offset.as_deref().copied(),
            self.calendar,
            inspector,
        );
        if self.calendar.is_none() {
            return;
        }
        self.inspect_in_table(inspector, [NOT_BY_CALENDAR; 2]);
        let field = match (&self.basis, &self.who) {
            (Basis::Own, Who::Anyone | Who::Each) => None,
            (Basis::Related(_), _) => Some("when"),
            (Basis::Context(_), _) => Some("in_context"),
            (Basis::Own, Who::Only(_) | Who::Other) => Some("for_origin"),
        };
        if let Some(field) = field {
            inspector.refuse(field, true, NOT_BY_CALENDAR);
        }
    }
}
