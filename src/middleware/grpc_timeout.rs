//! How long a gRPC client waits for an answer.

use std::time::Duration;

use http::HeaderMap;

/// The time after which a gRPC client gives up the call: waiting longer is useless. The field has
/// up to eight digits and a unit; `None` if it is missing or malformed.
pub(super) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3_600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_grpc_timeout_is_parsed_or_ignored() {
        let cases = [
            ("100m", Some(Duration::from_millis(100))),
            ("2S", Some(Duration::from_secs(2))),
            ("1H", Some(Duration::from_secs(3_600))),
            ("3M", Some(Duration::from_secs(180))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("", None),
            ("m", None),
            ("10", None),
            ("-1S", None),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("00000001S", Some(Duration::from_secs(1))),
            // gRPC has at most eight digits, and no sign.
            ("100000000n", None),
            ("18446744073709551615H", None),
            ("+5S", None),
            ("5 S", None),
            ("1\u{e9}", None),
        ];
        for (text, expected) in cases {
            let mut request = Request::new(());
            let value = http::HeaderValue::from_bytes(text.as_bytes()).unwrap();
            request.headers_mut().insert("grpc-timeout", value);
            assert_eq!(grpc_timeout(request.headers()), expected, "{text:?}");
        }
    }
}
