//! Responses by which a service asks not to be called for a while.

use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Response, StatusCode};

use super::rejection::is_refusal;
use crate::base::wall::since_1970;
use crate::engine::call::entry::Entry;

/// Reports a pushback in `response`, which is not a success, to the breakers of the call `entry`.
#[cold]
#[inline(never)]
pub(super) fn note_pushback<B>(entry: &mut Entry, response: &Response<B>) {
    let is_remote = || !is_refusal(response);
    if let Some(after) = pushback(response.status(), response.headers()).filter(|_| is_remote()) {
        entry.push_back(after);
    }
}

/// Returns how long a service that answers with `status` and `headers` asks not to be called.
fn pushback(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let after = text(headers, &RETRY_AFTER)?;
    if after.bytes().all(|digit| digit.is_ascii_digit()) {
        return after.parse().ok().map(Duration::from_secs);
    }
    let until = date(after)?;
    // Compared with the service's clock if it sends a `Date`, as the local clock can differ.
    let now = text(headers, &DATE).and_then(date);
    until.checked_sub(now.unwrap_or_else(since_1970))
}

/// The time since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, the only form in which
/// HTTP lets a server send a date. The name of the day is not checked.
fn date(text: &str) -> Option<Duration> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, text) = text.split_once(", ")?;
    let text = text.strip_suffix(" GMT").filter(|text| text.is_ascii())?;
    let separators = [(2, b' '), (6, b' '), (11, b' '), (14, b':'), (17, b':')];
    let is_apart = |(place, separator): (usize, u8)| text.as_bytes()[place] == separator;
    if text.len() != 20 || !separators.into_iter().all(is_apart) {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = &text[from..to];
        let all = digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse().ok().filter(|_| all)
    };
    let month = MONTHS.iter().position(|name| *name == &text[3..6])? as u64 + 1;
    let (day, year) = (number(0, 2)?, number(7, 11)?);
    let (hour, minute, second) = (number(12, 14)?, number(15, 17)?, number(18, 20)?);
    let is_one = (1..=31).contains(&day) && year >= 1970;
    // A leap second is written as second 60.
    if !is_one || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // If years are taken to begin in March, the leap day is the last day.
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = 365 * year + leap_days + (153 * month + 2) / 5 + day;
    // 719 468 days lie between 0000-03-01 and 1970-01-01; one more, as days of a month count from
    // 1.
    let days = days - 719_469;
    Some(Duration::from_secs(
        ((days * 24 + hour) * 60 + minute) * 60 + second,
    ))
}

/// The text of the field `name`; `None` if it is missing or blank.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim()).filter(|text| !text.is_empty())
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// The pushback of a response with these fields, in seconds.
    fn wait(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        pushback(StatusCode::from_u16(status).unwrap(), &headers).map(|after| after.as_secs())
    }

    #[test]
    fn seconds_and_dates_are_read_and_nothing_else_is() {
        let after = |value: &str| wait(429, &[("retry-after", value)]);
        assert_eq!(after("30"), Some(30));
        assert_eq!(after(" 30 "), Some(30));
        assert_eq!(after("0"), Some(0));
        for other in ["", "-1", "1.5", "+3", "30s", "soon", "99999999999999999999"] {
            assert_eq!(after(other), None, "{other}");
        }
        // This date is in the past by any clock of today.
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), None);
    }

    #[test]
    fn a_date_is_compared_with_that_of_the_response() {
        let fields = |date| {
            [
                ("date", date),
                ("retry-after", "Sun, 06 Nov 1994 08:50:00 GMT"),
            ]
        };
        assert_eq!(
            wait(503, &fields("Sun, 06 Nov 1994 08:49:37 GMT")),
            Some(23)
        );
        assert_eq!(wait(503, &fields("Sun, 06 Nov 1994 08:50:01 GMT")), None);
        assert_eq!(
            wait(503, &fields("yesterday")),
            None,
            "by our clock it is over"
        );
    }

    #[test]
    fn a_date_is_the_seconds_since_1970_or_none() {
        let cases = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            ("Thu, 31 Dec 2099 00:00:00 GMT", 4_102_358_400),
            ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
        ];
        for (text, seconds) in cases {
            assert_eq!(date(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        let none = [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:3é GMT",
        ];
        for text in none {
            assert_eq!(date(text), None, "{text}");
        }
    }

    #[test]
    fn other_statuses_push_nothing_back() {
        for status in [200, 301, 403, 500, 502, 504] {
            assert_eq!(wait(status, &[("retry-after", "30")]), None, "{status}");
        }
        assert_eq!(wait(503, &[("retry-after", "30")]), Some(30));
        assert_eq!(wait(429, &[]), None);
    }
}
