//! Responses by which a service asks not to be called for a while.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Response, StatusCode};

use super::rejection::is_refusal;
use crate::base::wall::wall_time;
use crate::engine::call::entry::Entry;

/// The call `entry` has the answer `response`, which is no success: breakers learn of a pushback.
#[cold]
#[inline(never)]
pub(super) fn note_pushback<B>(entry: &mut Entry, response: &Response<B>) {
    let is_from_afar = || !is_refusal(response);
    if let Some(after) = pushback(response.status(), response.headers()).filter(|_| is_from_afar())
    {
        entry.push_back(after);
    }
}

/// For how long a service that answers with `status` and `headers` asks not to be called.
fn pushback(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let after = text(headers, &RETRY_AFTER)?;
    if after.bytes().all(|digit| digit.is_ascii_digit()) {
        return after.parse().ok().map(Duration::from_secs);
    }
    let until = httpdate::parse_http_date(after).ok()?;
    // The service's own clock, if it tells: ours may differ.
    let now = text(headers, &DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let now: SystemTime = now.unwrap_or_else(wall_time);
    until.duration_since(now).ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim()).filter(|text| !text.is_empty())
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// The pushback of a response with these fields, in seconds.
    fn told(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        pushback(StatusCode::from_u16(status).unwrap(), &headers).map(|after| after.as_secs())
    }

    #[test]
    fn seconds_and_dates_are_read_and_nothing_else_is() {
        let after = |value: &str| told(429, &[("retry-after", value)]);
        assert_eq!(after("30"), Some(30));
        assert_eq!(after(" 30 "), Some(30));
        assert_eq!(after("0"), Some(0));
        for other in ["", "-1", "1.5", "+3", "30s", "soon", "99999999999999999999"] {
            assert_eq!(after(other), None, "{other}");
        }
        // It is over by any clock of today.
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
            told(503, &fields("Sun, 06 Nov 1994 08:49:37 GMT")),
            Some(23)
        );
        assert_eq!(told(503, &fields("Sun, 06 Nov 1994 08:50:01 GMT")), None);
        assert_eq!(
            told(503, &fields("yesterday")),
            None,
            "by our clock it is over"
        );
    }

    #[test]
    fn other_statuses_push_nothing_back() {
        for status in [200, 301, 403, 500, 502, 504] {
            assert_eq!(told(status, &[("retry-after", "30")]), None, "{status}");
        }
        assert_eq!(told(503, &[("retry-after", "30")]), Some(30));
        assert_eq!(told(429, &[]), None);
    }
}
