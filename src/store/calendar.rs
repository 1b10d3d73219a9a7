//! Days and months of the calendar as the buckets of a counter.
//!
//! A store counts in buckets of one length. So it has a counter for each day or month of a key, under
//! a name of its own and with one bucket that does not end. What it answers about that bucket tells
//! the process the time of the store, and so which day or month it is there. A draw names the one
//! that the process takes to be the present one; where the store was in another one already, it is
//! made again.

use std::time::Duration;

use super::seen::{Here, Seen, without_drift};
use super::terms::Window;
use crate::clock::{CalendarPeriod, Periods, Tick, nanos};

/// The one bucket of a counter in the store: from 1970 to 2112.
const WHOLE: Duration = Duration::from_micros(1 << 52);
/// How much longer than its day or month the store keeps a counter, so that none is lost where its
/// clock is set back a little.
const KEPT: Duration = Duration::from_secs(86_400);

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CalendarBuckets {
    period: CalendarPeriod,
    utc_offset: i32,
    /// By the clock of the store, which counts from 1970.
    of_store: Periods,
    /// By the clock of the process.
    of_process: Periods,
}

impl CalendarBuckets {
    fn new(period: CalendarPeriod, utc_offset: i32) -> Self {
        let periods = Periods::new(period, Duration::ZERO, utc_offset);
        Self {
            period,
            utc_offset,
            of_store: periods,
            of_process: periods,
        }
    }

    /// Returns how long the day or month at `now` is, by the clock of the process.
    pub(crate) fn length(self, now: Tick) -> Duration {
        self.of_process.length(now)
    }

    /// Returns the day or month at `now`, by the clock of the process.
    fn here(self, now: Tick) -> Here {
        let number = self.of_process.number(now);
        let end = self.of_process.end(number);
        Here {
            number: number.into(),
            end,
            next: end,
        }
    }

    /// Returns the day or month at `now`, by the last answer of the store.
    fn after(self, seen: Seen, now: Tick) -> Here {
        let mut here = Here {
            number: seen.bucket,
            end: seen.end,
            next: seen.next,
        };
        let end = |number: u64| self.of_store.end(u32::try_from(number).unwrap_or(u32::MAX));
        while now >= here.next {
            let length = end(here.number.saturating_add(1)) - end(here.number);
            if length.is_zero() {
                break;
            }
            here = Here {
                number: here.number + 1,
                end: here.end + without_drift(length),
                next: here.next + length,
            };
        }
        here
    }

    /// Returns the number of the day or month that it is by the clock of the store, and how long it
    /// lasts, where the store has answered that its `bucket` lasts for `rest`.
    fn read(self, bucket: u64, rest: Duration) -> (u64, Duration) {
        let buckets = u32::try_from(bucket).unwrap_or(u32::MAX).saturating_add(1);
        let now = WHOLE.saturating_mul(buckets).saturating_sub(rest);
        let now = Tick::from_nanos(nanos(now));
        let number = self.of_store.number(now);
        (number.into(), self.of_store.end(number) - now)
    }
}

impl Window {
    /// The window of a rule that counts in each `period`, which begins `utc_offset` minutes before
    /// that of UTC.
    pub(crate) fn of_calendar(period: CalendarPeriod, utc_offset: i32) -> Self {
        Self {
            calendar: Some(CalendarBuckets::new(period, utc_offset)),
            ..Self::new(period.shortest(), 1)
        }
    }

    /// The window by a clock of the process whose zero was so long after 1970.
    pub(crate) fn since(mut self, epoch: Duration) -> Self {
        if let Some(calendar) = &mut self.calendar {
            calendar.of_process = Periods::new(calendar.period, epoch, calendar.utc_offset);
        }
        self
    }

    /// Returns the bucket at `now`: by the last answer of the store, or by the process's clock if there
    /// was none.
    pub(super) fn here(&self, seen: Option<Seen>, now: Tick) -> Here {
        match (self.calendar, seen) {
            (Some(calendar), Some(seen)) => calendar.after(seen, now),
            (Some(calendar), None) => calendar.here(now),
            (None, Some(seen)) => seen.at(now, self.bucket),
            (None, None) => {
                let length_ns = nanos(self.bucket).max(1);
                let number = now.as_nanos() / length_ns;
                let end = Tick::from_nanos((number + 1).saturating_mul(length_ns));
                Here {
                    number,
                    end,
                    next: end,
                }
            }
        }
    }

    /// Returns the number of the present bucket and how long it lasts, where the store has answered
    /// that the `bucket` of its counter lasts for `rest`.
    pub(super) fn read(&self, bucket: u64, rest: Duration) -> (u64, Duration) {
        match self.calendar {
            Some(calendar) => calendar.read(bucket, rest),
            None => (bucket, rest),
        }
    }

    /// The window of the counter in the store.
    pub(super) fn in_store(&self) -> Self {
        match self.calendar {
            Some(_) => Self::new(WHOLE, 1),
            None => *self,
        }
    }

    /// Returns how long the store keeps a counter of which the present bucket lasts for `rest`; `None`
    /// is as long as any bucket of it counts.
    pub(super) fn kept(&self, rest: Duration) -> Option<Duration> {
        self.calendar.map(|_| rest + KEPT)
    }

    /// Returns the number of the bucket `number` in the counter of the store that a draw in the bucket
    /// `present` is for; `None` if that counter does not have it.
    pub(super) fn place(&self, number: u64, present: u64) -> Option<u64> {
        match self.calendar {
            Some(_) => (number == present).then_some(0),
            None => Some(number),
        }
    }

    /// After so many buckets without a call, nothing that was counted matters.
    pub(super) fn memory_in_buckets(&self) -> u64 {
        match self.calendar {
            Some(_) => 1,
            None => u64::from(self.buckets) + 2,
        }
    }

    /// After so long without a call, nothing that was counted matters.
    pub(super) fn memory(&self) -> Duration {
        match self.calendar {
            Some(calendar) => calendar.period.longest(),
            None => self.bucket * (self.buckets + 2),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    /// The answer of a store at so many seconds since 1970.
    fn told(window: Window, seconds: u64) -> (u64, u64) {
        let rest = WHOLE - Duration::from_secs(seconds);
        let (number, rest) = window.read(0, rest);
        (number, rest.as_secs())
    }

    #[test]
    fn an_answer_tells_the_day_and_the_month_of_the_store() {
        // 2028-02-28 12:00 by UTC, in a leap year.
        let noon = 1_835_352_000;
        let day = Window::of_calendar(CalendarPeriod::Day, 0);
        let month = |offset| Window::of_calendar(CalendarPeriod::Month, offset);
        assert_eq!(told(day, noon).1, DAY / 2);
        assert_eq!(told(month(0), noon).1, DAY * 3 / 2);
        assert_eq!(told(month(60), noon).1, DAY * 3 / 2 - 3_600);
        assert_eq!(told(month(-300), noon).1, DAY * 3 / 2 + 5 * 3_600);
        let [february, march] = [noon, noon + DAY * 3 / 2].map(|at| told(month(0), at));
        assert_eq!(march, (february.0 + 1, 31 * DAY));
        // Before its end, and at it.
        let last = told(month(0), noon + DAY * 3 / 2 - 1);
        assert_eq!(last, (february.0, 1));
    }

    #[test]
    fn months_go_on_by_their_own_lengths_after_an_answer() {
        let window = Window::of_calendar(CalendarPeriod::Month, 0);
        // 2027-12-31 18:00 by UTC; the clock of the process is at 7 s.
        let (number, rest) = window.read(0, WHOLE - Duration::from_secs(1_830_276_000));
        let sent = Tick::from_millis(7_000);
        let seen = Seen::new(number, rest, sent, sent);
        let mut next = sent + Duration::from_secs(DAY / 4);
        for (month, days) in [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
            .into_iter()
            .enumerate()
        {
            let before = window.here(Some(seen), Tick::from_nanos(next.as_nanos() - 1));
            assert_eq!((before.number, before.next), (number + month as u64, next));
            let here = window.here(Some(seen), next);
            next = next + Duration::from_secs(days * DAY);
            assert_eq!((here.number, here.next), (number + month as u64 + 1, next));
        }
    }

    #[test]
    fn before_an_answer_the_date_is_that_of_the_process() {
        let window = Window::of_calendar(CalendarPeriod::Month, 0);
        // Its clock reads zero at 2028-02-28 12:00.
        let window = window.since(Duration::from_secs(1_835_352_000));
        let here = window.here(None, Tick::ZERO);
        assert_eq!(here.next, Tick::ZERO + Duration::from_secs(DAY * 3 / 2));
        assert_eq!(here.number, told(window, 1_835_352_000).0);
    }

    #[test]
    fn a_store_at_the_ends_of_time_is_read_without_harm() {
        for window in [CalendarPeriod::Day, CalendarPeriod::Month]
            .map(|period| Window::of_calendar(period, -1_439))
        {
            for (bucket, rest) in [
                (0, Duration::ZERO),
                (0, WHOLE),
                (u64::MAX, Duration::ZERO),
                (u64::MAX, Duration::MAX),
            ] {
                let (number, rest) = window.read(bucket, rest);
                let now = Tick::from_millis(5);
                let seen = Seen::new(number, rest, now, now);
                assert!(window.here(Some(seen), now + Duration::from_secs(9)).number >= number);
            }
        }
    }
}
