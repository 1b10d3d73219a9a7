//! Refusals over gRPC: trailers-only responses.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};

use super::details::{base64, retry_status};
use super::{Rejection, is_grpc, retry_after};
use crate::blocked::{BlockKind, Blocked};
use crate::call::Direction;
use crate::key::Head;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The field with the milliseconds after which a client may retry; negative for never.
pub(super) const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Responds with HTTP 200, the gRPC status in the headers, and no body.
///
/// Two fields say when to retry, because some clients read only one of the fields:
/// `grpc-retry-pushback-ms`, where a negative value means not to retry, and
/// `grpc-status-details-bin` with a `google.rpc.RetryInfo`, which is not sent if no retry can
/// succeed. Clients of OpenTelemetry and of Google's services try a call again after
/// `RESOURCE_EXHAUSTED` only if there is a `RetryInfo`.
///
/// The message of an inbound call's refusal names only the kind of the refusal. The message of an
/// [outbound](crate::SentinelLayer::outbound) call's refusal is for the program itself, and also
/// names the resource and the rule, as a [`Blocked`] is displayed. A handler that passes the status
/// of its upstream on to its own client, by `?`, passes these names on as well.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::rejection::Grpc;
/// use tower_sentinel::{BlockKind, FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/pets.Pets/Feed", 0))
///     .reject(Grpc::new().code(BlockKind::Flow, 14));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let request = Request::post("/pets.Pets/Feed").body(()).unwrap();
/// let refused = service.oneshot(request).await.unwrap();
/// assert_eq!(refused.status(), StatusCode::OK);
/// assert_eq!(refused.headers()["grpc-status"], "14");
/// // A threshold of 0 never has room.
/// assert_eq!(refused.headers()["grpc-retry-pushback-ms"], "-1");
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Grpc {
    codes: Vec<(BlockKind, u8)>,
}

impl Grpc {
    /// Creates a rejection with the codes of the [table](super).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the gRPC status code for refusals of `kind`. `code` is between 0 and 16; a
    /// larger one becomes 2, `UNKNOWN`.
    #[must_use]
    pub fn code(mut self, kind: BlockKind, code: u8) -> Self {
        self.codes.retain(|(known, _)| *known != kind);
        self.codes.push((kind, if code > 16 { 2 } else { code }));
        self
    }

    /// The status code of refusals of `kind`: the code that was set, or the default.
    fn code_of(&self, kind: BlockKind) -> u8 {
        let own = self.codes.iter().find(|(known, _)| *known == kind);
        own.map_or_else(|| kind.terms().grpc, |(_, code)| *code)
    }
}

impl Rejection for Grpc {
    fn reject(&self, head: Head<'_>, blocked: &Blocked) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        // A client of gRPC-Web expects its own content type. Types other than gRPC's are not
        // returned.
        let asked = head.headers().get(CONTENT_TYPE);
        let content_type = match asked.filter(|_| is_grpc(head.headers())) {
            Some(content_type) => content_type.clone(),
            None => HeaderValue::from_static("application/grpc"),
        };
        headers.insert(CONTENT_TYPE, content_type);
        let code = self.code_of(blocked.kind());
        headers.insert(STATUS, HeaderValue::from(u16::from(code)));
        let message = match head.direction() {
            Direction::Inbound => message(blocked),
            Direction::Outbound => blocked.to_string(),
        };
        if let Ok(message) = HeaderValue::from_str(&percent_encoded(&message)) {
            headers.insert(MESSAGE, message);
        }
        headers.insert(
            HeaderName::from_static(PUSHBACK),
            HeaderValue::from(pushback(blocked)),
        );
        let details = details(code, &message, blocked).map(|details| base64(&details));
        if let Some(Ok(details)) = details.map(HeaderValue::try_from) {
            headers.insert(DETAILS, details);
        }
        response
    }
}

/// The message for the client of a refused call. It names no rule.
pub(super) fn message(blocked: &Blocked) -> String {
    format!("refused by {}", blocked.kind())
}

/// The milliseconds after which the client may try again, rounded up so as not to be early;
/// negative for never. Clients read a signed number of 32 bits.
pub(super) fn pushback(blocked: &Blocked) -> i32 {
    retry_after(blocked).map_or(-1, |after| {
        let millis = after.as_nanos().div_ceil(1_000_000);
        i32::try_from(millis).unwrap_or(i32::MAX)
    })
}

/// The details of the status, which say when to retry; `None` for never. The time is the same as in
/// [`pushback`].
pub(super) fn details(code: u8, message: &str, blocked: &Blocked) -> Option<Vec<u8>> {
    let millis = u64::try_from(pushback(blocked)).ok()?;
    Some(retry_status(code, message, Duration::from_millis(millis)))
}

/// `text`, percent-encoded for `grpc-message`: printable ASCII except `%` stays as it is.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(content_type: &'static str, blocked: &Blocked) -> Response<Bytes> {
        let mut request = http::Request::new(());
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Grpc::new().reject(Head::of(&request), blocked)
    }

    #[test]
    fn a_refusal_is_trailers_only_with_its_pushback() {
        let of = |kind| Blocked::new(kind, "/x".into(), "r".into());
        let in_300_us = Some(Duration::from_micros(300));
        let cases = [
            (
                of(BlockKind::Flow).with_retry_after(Some(Duration::from_millis(250))),
                "8",
                "250",
            ),
            (of(BlockKind::Flow).with_retry_after(in_300_us), "8", "1"),
            (
                of(BlockKind::Flow).with_retry_after(Some(Duration::MAX)),
                "8",
                "2147483647",
            ),
            (of(BlockKind::Flow), "8", "-1"),
            (
                of(BlockKind::Isolation).with_limit(2, Duration::ZERO),
                "8",
                "1000",
            ),
            (
                of(BlockKind::Keyed)
                    .with_limit(2, Duration::ZERO)
                    .with_retry_after(Some(Duration::ZERO)),
                "8",
                "1000",
            ),
            (
                of(BlockKind::Keyed)
                    .with_limit(2, Duration::from_secs(1))
                    .with_retry_after(Some(Duration::from_millis(250))),
                "8",
                "250",
            ),
            (of(BlockKind::NoTimer), "14", "1000"),
            (of(BlockKind::System), "14", "1000"),
            (of(BlockKind::MissingKey), "7", "-1"),
            (of(BlockKind::Authority), "7", "-1"),
        ];
        for (blocked, status, pushback) in cases {
            let response = refused("application/grpc+proto", &blocked);
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc+proto");
            assert_eq!(response.headers()[STATUS], status, "{blocked:?}");
            assert_eq!(response.headers()[PUSHBACK], pushback, "{blocked:?}");
            assert!(response.body().is_empty());
        }
    }

    #[test]
    fn other_content_types_are_not_returned() {
        let blocked = Blocked::new(BlockKind::Flow, "/x".into(), "r".into());
        for (asked, answered) in [
            ("application/grpc-web+proto", "application/grpc-web+proto"),
            ("text/html", "application/grpc"),
        ] {
            let response = refused(asked, &blocked);
            assert_eq!(response.headers()[CONTENT_TYPE], answered);
        }
    }

    #[test]
    fn a_message_is_percent_encoded() {
        assert_eq!(percent_encoded("a b%\n\u{e9}~"), "a b%25%0A%C3%A9~");
    }
}
