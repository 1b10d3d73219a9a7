//! Days and months of the calendar, in readings of a clock.
//!
//! # Source
//!
//! Howard Hinnant, "chrono-compatible low-level date algorithms": `civil_from_days` and
//! `days_from_civil`, of which only the year and the month are used. Years are taken to begin in
//! March, so that the leap day is the last day of a year.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::{CALENDAR, Tick, nanos};

/// A period of the calendar, from its first midnight to that of the next period, in which a
/// [`KeyedRule`](crate::KeyedRule) counts.
///
/// ```
/// use tower_sentinel::KeyedRule;
/// use tower_sentinel::rule::CalendarPeriod;
///
/// let rule = KeyedRule::per_calendar_month("api", 2_000_000);
/// assert_eq!(rule.calendar(), Some(CalendarPeriod::Month));
/// assert_eq!(CalendarPeriod::Month.to_string(), "month");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CalendarPeriod {
    /// A day.
    Day,
    /// A month, of 28 to 31 days.
    Month,
}

/// The periods of one kind, for one clock and one offset from UTC. They are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    period: CalendarPeriod,
    /// The time from the first midnight, at the beginning of 31 December 1969, to the zero of the
    /// clock.
    zero_ns: u64,
}

const DAY: Duration = Duration::from_secs(86_400);
const DAY_NS: u64 = DAY.as_nanos() as u64;
/// The largest offset from UTC, in minutes: less than a day.
pub(crate) const MOST_OFFSET: u32 = 24 * 60 - 1;

const MONTHS_OF_YEAR: u64 = 12;
/// The years after which the calendar repeats itself.
const YEARS_OF_ERA: u64 = 400;
/// The days of these years.
const DAYS_OF_ERA: u64 = 146_097;
/// The days from 1 March of the year 0 to 31 December 1969.
const FIRST_DAY: u64 = 719_467;
/// The months from March of the year 0 to December 1969.
const FIRST_MONTH: u64 = 1969 * MONTHS_OF_YEAR + 9;

impl CalendarPeriod {
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const ALL: [Self; 2] = [Self::Day, Self::Month];
    /// The names in documents.
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const NAMES: [&'static str; 2] = [Self::ALL[0].as_str(), Self::ALL[1].as_str()];

    /// Returns the name of the period in documents: `day` or `month`.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::rule::CalendarPeriod::Day.as_str(), "day");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// Returns the length of the shortest period of this kind.
    #[cfg(feature = "shared")]
    pub(crate) const fn shortest(self) -> Duration {
        match self {
            Self::Day => DAY,
            Self::Month => Duration::from_secs(28 * DAY.as_secs()),
        }
    }

    /// Returns the length of the longest period of this kind.
    pub(crate) const fn longest(self) -> Duration {
        match self {
            Self::Day => DAY,
            Self::Month => Duration::from_secs(31 * DAY.as_secs()),
        }
    }
}

impl fmt::Display for CalendarPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Periods ===

impl Periods {
    /// Creates the periods for a clock whose zero is `epoch` after 1970 by UTC. Days begin
    /// `utc_offset` minutes, at most [`MOST_OFFSET`], before the days of UTC.
    pub(crate) fn new(period: CalendarPeriod, epoch: Duration, utc_offset: i32) -> Self {
        let ahead = Duration::from_secs(60) * utc_offset.unsigned_abs().min(MOST_OFFSET);
        let since = epoch.saturating_add(DAY);
        let since = if utc_offset < 0 {
            since - ahead
        } else {
            since.saturating_add(ahead)
        };
        Self {
            period,
            zero_ns: nanos(since),
        }
    }

    /// Returns the number of the period that contains `now`.
    pub(crate) fn number(self, now: Tick) -> u32 {
        // Fits into 32 bits: at most 213 504 days.
        let day = now.as_nanos().saturating_add(self.zero_ns) / DAY_NS;
        let before = match self.period {
            CalendarPeriod::Day => day,
            CalendarPeriod::Month => month_of(day),
        };
        before as u32 + 1
    }

    /// Returns the time at which the period `number` ends.
    pub(crate) fn end(self, number: u32) -> Tick {
        let days = match self.period {
            CalendarPeriod::Day => number.into(),
            CalendarPeriod::Month => first_day_of(number.into()),
        };
        let end_ns = days.saturating_mul(DAY_NS);
        Tick::from_nanos(end_ns.saturating_sub(self.zero_ns))
    }

    /// Returns the length of the period that contains `now`.
    pub(crate) fn length(self, now: Tick) -> Duration {
        match self.period {
            CalendarPeriod::Day => DAY,
            CalendarPeriod::Month => {
                let number = self.number(now).into();
                DAY * (first_day_of(number) - first_day_of(number - 1)) as u32
            }
        }
    }
}

/// Returns the number of months from December 1969 to the month of `day`, which is counted from 31
/// December 1969.
fn month_of(day: u64) -> u64 {
    let days = day + FIRST_DAY;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    (era * YEARS_OF_ERA + year) * MONTHS_OF_YEAR + month - FIRST_MONTH
}

/// Returns the number of days from 31 December 1969 to the first day of the month that is `month`
/// months after December 1969; 0 for December 1969 itself, of which only the last day counts.
fn first_day_of(month: u64) -> u64 {
    let month = month + FIRST_MONTH;
    let (year, month) = (month / MONTHS_OF_YEAR, month % MONTHS_OF_YEAR);
    let (era, year) = (year / YEARS_OF_ERA, year % YEARS_OF_ERA);
    let day = 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5;
    (era * DAYS_OF_ERA + day).saturating_sub(FIRST_DAY)
}

/// Returns how long after 1970 the zero of a clock is, if it reads `now` at the wall time `wall`
/// and [`aligned`](super::aligned) has chosen its start. The clock and the wall time may have
/// drifted apart since, by up to 210 days.
pub(super) fn epoch_at(now: Tick, wall: SystemTime) -> Duration {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    let behind = nanos(since.unwrap_or_default()).saturating_sub(now.as_nanos());
    let rounds = (behind + CALENDAR / 2) / CALENDAR;
    Duration::from_nanos(rounds * CALENDAR)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::clock::{LEAST_FIRST, aligned};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns the seconds from 1970 to a date, by the lengths of all years and months before it.
    fn seconds(year: u64, month: usize, day: u64, time: u64) -> u64 {
        let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap(year) { 29 } else { 28 };
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let years = (1970..year).map(|year| 365 + u64::from(is_leap(year)));
        let days = years.sum::<u64>() + months[..month - 1].iter().sum::<u64>() + day - 1;
        days * 86_400 + time
    }

    fn at(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_month_has_its_own_length_and_ends_at_midnight() {
        let months = Periods::new(CalendarPeriod::Month, Duration::ZERO, 0);
        for (year, month, days) in [
            (1970, 1, 31),
            (2023, 2, 28),
            (2024, 2, 29), // every fourth year
            (2000, 2, 29), // and every four-hundredth
            (2100, 2, 28), // but no hundredth
            (2200, 2, 28),
            (2026, 4, 30),
            (2026, 7, 31),
            (2026, 8, 31),
            (2026, 12, 31),
        ] {
            let (first, last) = (
                seconds(year, month, 1, 0),
                seconds(year, month, days, 86_399),
            );
            let number = months.number(at(first));
            assert_eq!(u64::from(number), (year - 1970) * 12 + month as u64 + 1);
            let last_ns = at(last) + Duration::from_nanos(999_999_999);
            assert_eq!(months.number(last_ns), number, "{year}-{month}");
            assert_eq!(months.number(at(last + 1)), number + 1, "{year}-{month}");
            assert_eq!(months.end(number), at(last + 1), "{year}-{month}");
            assert_eq!(months.length(at(first)), DAY * days as u32);
        }
    }

    #[test]
    fn every_day_of_five_centuries_is_in_its_month() {
        let months = Periods::new(CalendarPeriod::Month, Duration::ZERO, 0);
        let days = Periods::new(CalendarPeriod::Day, Duration::ZERO, 0);
        let mut day = 0;
        for year in 1970..2470_u64 {
            for month in 1..=12 {
                let number = ((year - 1970) * 12 + month + 1) as u32;
                let end = months.end(number);
                while at(day * 86_400) < end {
                    assert_eq!(months.number(at(day * 86_400)), number, "day {day}");
                    assert_eq!(u64::from(days.number(at(day * 86_400))), day + 2);
                    day += 1;
                }
                assert_eq!(at(day * 86_400), end, "{year}-{month}");
            }
        }
        assert_eq!(day * 86_400, seconds(2470, 1, 1, 0));
    }

    #[test]
    fn midnight_is_that_of_the_offset() {
        let begin = seconds(2026, 3, 1, 0);
        for offset in [0, 1, 120, 330, 840, 1_439, -1, -480, -720, -1_439] {
            let start = begin.checked_add_signed(i64::from(-offset) * 60).unwrap();
            for (period, length) in [(CalendarPeriod::Day, 1), (CalendarPeriod::Month, 31)] {
                let periods = Periods::new(period, Duration::ZERO, offset);
                let number = periods.number(at(start));
                assert_eq!(periods.number(at(start - 1)), number - 1, "{offset}");
                assert_eq!(periods.end(number - 1), at(start), "{offset}");
                assert_eq!(periods.end(number), at(start) + DAY * length);
                assert_eq!(periods.length(at(start)), DAY * length);
            }
        }
    }

    #[test]
    fn the_zero_of_a_clock_may_be_at_any_time() {
        let now = seconds(2028, 2, 29, 43_200);
        for zero in [0, 1, 86_400, now - 60, now] {
            let epoch = Duration::from_secs(zero);
            let months = Periods::new(CalendarPeriod::Month, epoch, 60);
            let number = months.number(at(now - zero));
            assert_eq!(number, 58 * 12 + 2 + 1);
            let left = Duration::from_secs(43_200) - MINUTE * 60;
            assert_eq!(months.end(number), at(now - zero) + left);
        }
        // Before the first midnight of 1970, and beyond what a clock can read.
        for period in [CalendarPeriod::Day, CalendarPeriod::Month] {
            let west = Periods::new(period, Duration::ZERO, -1_439);
            assert_eq!(west.number(Tick::ZERO), 1);
            assert_eq!(west.end(1), at(1_439 * 60));
            assert!(west.length(Tick::ZERO) <= DAY * 31);
            let never = Periods::new(period, Duration::MAX, 1_439);
            let last = Tick::from_nanos(u64::MAX);
            assert_eq!(never.number(last), never.number(Tick::ZERO));
        }
    }

    #[test]
    fn the_zero_of_a_clock_is_whole_rounds_after_1970() {
        const DAYS: u64 = 86_400;
        // 2026-03-01 13:37:05 UTC.
        let seconds = 1_772_372_225;
        let wall = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for least in [Tick(LEAST_FIRST), Tick(1 << 56)] {
            let tick = aligned(least, wall(seconds));
            let zero = Duration::from_secs(seconds) - (tick - Tick::ZERO);
            // The clock may have run fast or slow by then, and the wall time may have been set.
            for moved in [0, DAYS, 200 * DAYS] {
                for wall in [wall(seconds + moved), wall(seconds - moved)] {
                    assert_eq!(epoch_at(tick, wall), zero, "{moved}");
                }
            }
        }
        // A machine that does not know the date is in 1970, or a little later.
        let tick = aligned(Tick(LEAST_FIRST), SystemTime::UNIX_EPOCH);
        assert_eq!(epoch_at(tick, SystemTime::UNIX_EPOCH), Duration::ZERO);
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(epoch_at(tick, before), Duration::ZERO);
    }
}
