//! Days and months of the calendar as the buckets of a counter.
//!
//! All buckets of a counter in a store have one length, but months differ. So a key has a separate
//! counter with a separate name for each day or month, and this counter has a single bucket that
//! never ends in practice. From the remaining time of this bucket in an answer, the process
//! computes the store's time, and so the store's day or month. A draw names the day or month that
//! the process believes to be the present one. If it was another one by the store's clock, the
//! grant is dropped, and the draw is repeated.

use std::time::Duration;

use super::seen::{Here, Seen, without_drift};
use super::terms::Window;
use crate::clock::{CalendarPeriod, Periods, Tick, nanos};

/// The length of the single bucket of a counter in the store. It lasts from 1970 to 2112.
const WHOLE: Duration = Duration::from_micros(1 << 52);
/// The time for which the store keeps a counter after the end of its day or month, so that the
/// counter is still there if the store's clock is set back a little.
const KEPT: Duration = Duration::from_secs(86_400);

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CalendarBuckets {
    period: CalendarPeriod,
    /// The offset of the local time from UTC, in minutes.
    utc_offset: i32,
    /// The days or months by the store's clock, which counts from 1970.
    of_store: Periods,
    /// The days or months by the process's clock.
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

    /// Returns the number of the present day or month by the store's clock, and the time until it
    /// ends. The store has answered that `rest` is left of the `bucket` of its counter.
    fn read(self, bucket: u64, rest: Duration) -> (u64, Duration) {
        let buckets = u32::try_from(bucket).unwrap_or(u32::MAX).saturating_add(1);
        let now = WHOLE.saturating_mul(buckets).saturating_sub(rest);
        let now = Tick::from_nanos(nanos(now));
        let number = self.of_store.number(now);
        (number.into(), self.of_store.end(number) - now)
    }
}

impl Window {
    /// Creates the window of a rule that counts per `period`. Each period begins `utc_offset`
    /// minutes before the same period in UTC.
    pub(crate) fn of_calendar(period: CalendarPeriod, utc_offset: i32) -> Self {
        Self {
            calendar: Some(CalendarBuckets::new(period, utc_offset)),
            ..Self::new(period.shortest(), 1)
        }
    }

    /// Returns the window for a process whose clock reads zero at the time `epoch` after 1970.
    pub(crate) fn since(mut self, epoch: Duration) -> Self {
        if let Some(calendar) = &mut self.calendar {
            calendar.of_process = Periods::new(calendar.period, epoch, calendar.utc_offset);
        }
        self
    }

    /// Returns the bucket at `now`: by the last answer of the store, or by the process's clock if
    /// there was none.
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

    /// Returns the number of the rule's present bucket and the time until it ends. The store has
    /// answered that `rest` is left of the `bucket` of its counter.
    pub(super) fn read(&self, bucket: u64, rest: Duration) -> (u64, Duration) {
        match self.calendar {
            Some(calendar) => calendar.read(bucket, rest),
            None => (bucket, rest),
        }
    }

    /// Returns the window of the counter in the store: for a calendar window, a single long bucket.
    pub(super) fn in_store(&self) -> Self {
        match self.calendar {
            Some(_) => Self::new(WHOLE, 1),
            None => *self,
        }
    }

    /// Returns how long the store must keep a counter whose present bucket lasts for `rest`. `None`
    /// stands for the default: as long as any of its buckets counts.
    pub(super) fn kept(&self, rest: Duration) -> Option<Duration> {
        self.calendar.map(|_| rest + KEPT)
    }

    /// Returns which bucket of the store's counter stands for the bucket `number`, in a draw that
    /// is made in the bucket `present`. Returns `None` if this counter has no such bucket.
    pub(super) fn place(&self, number: u64, present: u64) -> Option<u64> {
        match self.calendar {
            Some(_) => (number == present).then_some(0),
            None => Some(number),
        }
    }

    /// Returns the number of buckets without a call after which all counts have expired.
    pub(super) fn memory_in_buckets(&self) -> u64 {
        match self.calendar {
            Some(_) => 1,
            None => u64::from(self.buckets) + 2,
        }
    }

    /// Returns the time without a call after which all counts have expired.
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

    /// Reads the answer that a store gives at `seconds` after 1970. Returns the number of the day
    /// or month, and the seconds until it ends.
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
        // One second before the end of February.
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
        // The process's clock reads zero at 2028-02-28 12:00.
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
