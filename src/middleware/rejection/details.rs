//! When to retry, as the details of a gRPC status say it.
//!
//! Many clients, such as the clients of OpenTelemetry and of Google's services, try a call that
//! ended with `RESOURCE_EXHAUSTED` again only if the details of its status contain a
//! `google.rpc.RetryInfo`. The details are another form of the status, in protocol buffers:
//!
//! ```text
//! Status    { int32 code = 1; string message = 2; repeated Any details = 3; }
//! Any       { string type_url = 1; bytes value = 2; }   value: a RetryInfo
//! RetryInfo { Duration retry_delay = 1; }
//! Duration  { int64 seconds = 1; int32 nanos = 2; }
//! ```
//!
//! A field starts with a varint of its number and wire type, `number << 3 | wire`. A value follows:
//! a number as a varint (wire type 0), or the length and the bytes of a text or a message (wire
//! type 2). A number that is 0, or a text that is empty, is left out.

use std::time::Duration;

/// The type URL of a `google.rpc.RetryInfo`.
const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// The `google.rpc.Status` of a call that may be tried again after `delay`.
pub(super) fn retry_status(code: u8, message: &str, delay: Duration) -> Vec<u8> {
    let mut duration = Vec::with_capacity(16);
    push_number(&mut duration, 1, delay.as_secs());
    push_number(&mut duration, 2, delay.subsec_nanos().into());

    let mut info = Vec::with_capacity(duration.len() + 2);
    push_bytes(&mut info, 1, &duration);

    let mut any = Vec::with_capacity(RETRY_INFO.len() + info.len() + 4);
    push_bytes(&mut any, 1, RETRY_INFO);
    push_bytes(&mut any, 2, &info);

    let mut status = Vec::with_capacity(message.len() + any.len() + 16);
    push_number(&mut status, 1, code.into());
    if !message.is_empty() {
        push_bytes(&mut status, 2, message.as_bytes());
    }
    push_bytes(&mut status, 3, &any);
    status
}

/// Adds the field `field`, below 16, with a number, unless it is 0.
fn push_number(message: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        message.push(field << 3);
        push_varint(message, number);
    }
}

/// Adds the field `field`, below 16, with a text or a message.
fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    push_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Adds the groups of seven bits of `number`, the lowest first; all but the last have the
/// highest bit of their byte set.
fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// `bytes` in base64 without padding, as gRPC writes the fields whose names end with `-bin`.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        // A group of n bytes is written with n + 1 digits of six bits.
        for digit in 0..=group.len() {
            let digit = bits >> (18 - 6 * digit) & 0x3f;
            text.push(char::from(DIGITS[digit as usize]));
        }
    }
    text
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    #[test]
    fn bytes_are_written_as_in_rfc_4648_without_padding() {
        let cases = [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
        assert_eq!(base64(&[0xff]), "/w");
    }

    proptest! {
        #[test]
        fn a_status_is_written_as_by_a_library_for_protocol_buffers(
            code in 0..=16_u8,
            message in ".{0,300}",
            secs in prop_oneof![0..400_u64, 0..=i64::MAX as u64 / 1_000_000_000],
            nanos in prop_oneof![Just(0_u32), 0..1_000_000_000_u32],
        ) {
            let delay = Duration::new(secs, nanos);
            let details = ErrorDetails::with_retry_info(Some(delay));
            let expected = tonic::Status::with_error_details(Code::from(i32::from(code)), &message, details);
            let ours = retry_status(code, &message, delay);
            prop_assert_eq!(&ours, expected.details());
        }
    }
}
