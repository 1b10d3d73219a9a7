//! Keyed rules that count by the calendar: a number of calls of each value in each day or month.

use super::{Counting, KeyedRule};
use crate::base::number::{Number, WholeNumber};
use crate::clock::{CalendarPeriod, MOST_OFFSET};
use crate::rule::problem::Inspector;

impl KeyedRule {
    /// Allows at most `threshold` calls of `resource` for each value in each day of the calendar:
    /// from midnight to midnight, by UTC unless [`utc_offset`](Self::utc_offset) says otherwise.
    /// See [`per_calendar_month`](Self::per_calendar_month).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// // Five million tokens a day for each user.
    /// let rule = KeyedRule::per_calendar_day("chat", 5_000_000).cost("tokens");
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    /// let chat = || sentinel.try_enter(Call::new("chat").param("ann").reserve("tokens", 1_000));
    ///
    /// clock.advance(Duration::from_secs(20 * 3_600));
    /// let Verdict::Pass(mut entry) = chat() else { panic!("she has used nothing") };
    /// entry.settle("tokens", 4_999_500);
    /// let Verdict::Block(blocked) = chat() else { panic!("500 are left of the day") };
    /// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(4 * 3_600)));
    /// ```
    #[doc(alias("daily", "per_day"))]
    #[must_use]
    pub fn per_calendar_day(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::by_calendar(resource.into(), threshold.into(), CalendarPeriod::Day)
    }

    /// Allows at most `threshold` calls of `resource` for each value in each month of the calendar,
    /// whatever its length. A month begins at midnight of its first day, by UTC unless
    /// [`utc_offset`](Self::utc_offset) says otherwise.
    ///
    /// Each month counts by itself: a value has its whole quota at the start, and the unused rest
    /// is lost at the end. So a value can make up to twice as many calls around the midnight
    /// between two months. The threshold is at most 2³¹ − 1, or 2³⁰ for a rule on
    /// [costs](Self::cost), and its fraction is ignored. For a refused call, the time to retry and
    /// the reset in the fields of the response are the start of the next month.
    ///
    /// [Exceptions](Self::except), [tiers](Self::tier), [`cost`](Self::cost) and shadow mode work
    /// as for other keyed rules. The rule has no [burst](Self::burst), no [queue](Self::throttle)
    /// and no [block](Self::block_for). Its counts are lost when the process ends, unless it is
    /// [shared](Self::shared). A value keeps its place in the [table](Self::max_keys) until the
    /// period ends, so `max_keys` is the number of values that call in one day or month.
    ///
    /// # Time
    ///
    /// The engine's [clock](crate::Clock::epoch) determines the date. The clocks of the operating
    /// system take the wall time at the start of the program and measure from there. If the wall
    /// time is set later, or the machine sleeps, periods keep their length and begin too early or
    /// too late by the difference until the program is restarted. If the clock steps back, no
    /// earlier period opens again: a value is counted in the latest period in which it has called.
    /// Summer time is not followed: an offset is the same all year.
    ///
    /// The date of a [shared](Self::shared) rule is determined by the store, whose clock counts
    /// from 1970 by UTC. Each process takes it from the last answer of the store to a call of the
    /// rule; the first call waits for this answer. If the clock of the store is set back to an
    /// earlier day or month, what a process draws then can be lost to the value in the later
    /// period.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::clock::Tick;
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// // 2028-02-28 12:00 by UTC, in a leap year.
    /// let clock = ManualClock::starting_at(Tick::from_millis(1_835_352_000_000));
    /// let rule = KeyedRule::per_calendar_month("api", 2).tier("pro", 2_000_000);
    /// let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    /// let call = || sentinel.try_enter(Call::new("api").param("ann"));
    ///
    /// assert!(matches!([call(), call()], [Verdict::Pass(_), Verdict::Pass(_)]));
    /// let Verdict::Block(blocked) = call() else { panic!("a third one in February") };
    /// let hours = |n: u64| Duration::from_secs(n * 3_600);
    /// assert_eq!(blocked.retry_after(), Some(hours(12 + 24)));
    /// clock.advance(hours(36));
    /// assert!(matches!(call(), Verdict::Pass(_)));
    /// ```
    #[doc(alias("monthly", "per_month"))]
    #[must_use]
    pub fn per_calendar_month(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::by_calendar(resource.into(), threshold.into(), CalendarPeriod::Month)
    }

    /// Creates a rule that counts in each `period` of the calendar.
    pub(in crate::rule) fn by_calendar(
        resource: String,
        threshold: Number,
        period: CalendarPeriod,
    ) -> Self {
        Self::per(resource, threshold, period.longest()).in_period(period)
    }

    /// Returns this rule, which now counts in each `period`.
    pub(super) fn in_period(self, period: CalendarPeriod) -> Self {
        Self {
            count: Counting::Calendar(period),
            calendar: Some(period),
            interval: period.longest(),
            ..self
        }
    }

    /// Sets how many minutes the days and months of a rule by the calendar begin before those of
    /// UTC, between -1439 and 1439: the offset of a time zone, such as 60 for UTC+1 and -300 for
    /// UTC-5. Default 0. The offset stays the same when the zone changes to summer time. A reload
    /// that changes the offset, or the period, makes a new [table](Self::max_keys). Only for a rule
    /// [by the calendar](Self::per_calendar_month).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// let rule = KeyedRule::per_calendar_day("api", 1).utc_offset(5 * 60 + 30);
    /// let clock = ManualClock::new(); // 1970-01-01 00:00 by UTC, 05:30 in India
    /// let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    /// let call = || sentinel.try_enter(Call::new("api").param("ann"));
    ///
    /// assert!(matches!(call(), Verdict::Pass(_)));
    /// let Verdict::Block(blocked) = call() else { panic!("a second one on this day") };
    /// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(18 * 3_600 + 1_800)));
    /// ```
    #[doc(alias("timezone", "time_zone"))]
    #[must_use]
    pub fn utc_offset(mut self, minutes: impl Into<WholeNumber>) -> Self {
        self.utc_offset = Some(minutes.into());
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
        self.utc_offset.map_or(0, WholeNumber::get_signed)
    }

    /// Reports the settings that a rule by the calendar cannot have and, for other rules, the
    /// settings that only a rule by the calendar can have.
    pub(super) fn inspect_calendar(&self, inspector: &mut Inspector) {
        const NOT_BY_CALENDAR: &str = "left out for a day or month of the calendar";
        if self.calendar.is_some() {
            match self.count {
                Counting::Window => inspector.refuse("window", true, NOT_BY_CALENDAR),
                Counting::Queue(wait) => {
                    inspector.refuse("max_wait", format_args!("{wait:?}"), NOT_BY_CALENDAR);
                }
                _ => {}
            }
        }
        inspect_offset(self.utc_offset, self.calendar, inspector);
    }
}

/// Reports an offset from UTC that the rule cannot have.
pub(in crate::rule) fn inspect_offset(
    offset: Option<WholeNumber>,
    calendar: Option<CalendarPeriod>,
    inspector: &mut Inspector,
) {
    let most = i64::from(MOST_OFFSET);
    let Some(offset) = offset else {
        return;
    };
    if calendar.is_none() {
        let allowed = "left out without `per_calendar_day` or `per_calendar_month`";
        inspector.refuse("utc_offset", offset, allowed);
    } else if !offset.is_between(-most, most) {
        let allowed = format!("between -{most} and {most}");
        inspector.refuse("utc_offset", offset, allowed);
    }
}
