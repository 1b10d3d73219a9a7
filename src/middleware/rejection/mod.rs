//! Responses to refused calls.
//!
//! | refused by | HTTP | gRPC | when to retry |
//! |---|---|---|---|
//! | [flow](crate::BlockKind::Flow) | 429 | `RESOURCE_EXHAUSTED` | when the window has room, or lets the call wait |
//! | [keyed](crate::BlockKind::Keyed) | 429 | `RESOURCE_EXHAUSTED` | when the value has room again, or lets the call wait; for a limit on concurrent calls in 1 second, because the time is not known |
//! | [isolation](crate::BlockKind::Isolation) | 429 | `RESOURCE_EXHAUSTED` | in 1 second, because the time is not known; in 2 to 5 seconds, so that clients do not come back together, if an adaptive rule gives the class of the call idle workers only |
//! | [circuit breaker](crate::BlockKind::CircuitBreaker) | 503 | `UNAVAILABLE` | when it may be probed |
//! | [system](crate::BlockKind::System) | 503 | `UNAVAILABLE` | in 1 second |
//! | [authority](crate::BlockKind::Authority) | 403 | `PERMISSION_DENIED` | never |
//! | [a missing key](crate::BlockKind::MissingKey) | 403 | `PERMISSION_DENIED` | never |
//! | [no timer](crate::BlockKind::NoTimer) | 503 | `UNAVAILABLE` | in 1 second |
//! | [the store](crate::BlockKind::Store) | 503 | `UNAVAILABLE` | in 1 second |
//!
//! The time is the earliest one at which the call would be admitted or let in to wait, if no other
//! call came first. It is sent in whole seconds over HTTP and in milliseconds over gRPC, both
//! rounded up. If a call can never pass, because the threshold is 0 or its weight is above the
//! limit, the response names no time to retry. Only a refusal by a system rule, or by an isolation
//! or adaptive rule whose slots are all taken, names a time even then, as these rules do not look
//! at the rules after them.
//!
//! By default a response contains no name of a rule, and nothing of the request except gRPC's
//! content type. Only the message of a gRPC call that is refused on its way
//! [out](crate::SentinelLayer::outbound) names resource and rule, for the program that calls; see
//! [`Grpc`].
//!
//! By [`is_refusal`], an outer layer can distinguish a refusal from a response of the service that
//! looks the same. The [`Blocked`], which names the kind and the rule of the refusal, is in the
//! response's extensions if the layer [puts it there](crate::SentinelLayer::blocked_in_extensions).
//!
//! # Examples
//!
//! ```
//! # use http::{Request, Response, StatusCode};
//! # use tower::{Layer, ServiceExt, service_fn};
//! use tower_sentinel::{Blocked, IsolationRule, SentinelLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let rule = IsolationRule::new("/report", 1).id("one-report");
//! let layer = SentinelLayer::new(rule).blocked_in_extensions();
//! # let service = layer.layer(service_fn(|_: Request<()>| async {
//! #     Ok::<_, std::convert::Infallible>(Response::new("a page".to_owned()))
//! # }));
//! # let get = async || {
//! #     let request = Request::get("/report").body(()).unwrap();
//! #     service.clone().oneshot(request).await.unwrap()
//! # };
//! let _running = get().await;
//! let refused = get().await;
//! assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(refused.headers()["retry-after"], "1");
//! // The client does not learn which rule it was; layers around this one do.
//! let blocked = refused.extensions().get::<Blocked>().expect("it was refused");
//! assert_eq!(blocked.rule(), "one-report");
//! # });
//! ```
//!
//! A handler that asks the engine itself can respond in the same way: with the feature
//! `axum` a [`Blocked`] is a response, with the feature `tonic` it converts into a `Status`.

mod auto;
mod details;
mod fields;
mod grpc;
mod handler;
mod http;
mod mark;

use std::time::Duration;

use ::http::header::CONTENT_LENGTH;
use ::http::{HeaderMap, HeaderValue, Response};
use bytes::Bytes;

use crate::blocked::{Blocked, Retry};
use crate::key::Head;

pub use self::http::Http;
pub(crate) use self::http::{plain_text, wants_text};
pub use auto::Auto;
use auto::behind_grpc;
pub use fields::RateLimitFields;
pub use grpc::Grpc;
pub use mark::is_refusal;
pub(crate) use mark::{is_marked, is_marked_refusal};

/// When to retry if it is unknown when the cause of the refusal ends.
const SECOND: Duration = Duration::from_secs(1);

/// Makes the response to a refused call.
///
/// It must not panic. The body of the response must be complete, because it is not
/// streamed; a client that sends `HEAD` gets its length without the body. A closure
/// implements this trait if it names the types of its arguments, as below.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Head;
/// use tower_sentinel::{Blocked, FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/search", 0)).reject(
///     |_: Head<'_>, blocked: &Blocked| {
///         let mut response = Response::new(Bytes::from(format!("no: {}", blocked.kind())));
///         *response.status_mut() = StatusCode::IM_A_TEAPOT;
///         response
///     },
/// );
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let request = Request::get("/search").body(()).unwrap();
/// let refused = service.oneshot(request).await.unwrap();
/// assert_eq!(refused.status(), StatusCode::IM_A_TEAPOT);
/// # });
/// ```
pub trait Rejection: Send + Sync + 'static {
    /// Returns the response to the call with `head` that was `blocked`.
    fn reject(&self, head: Head<'_>, blocked: &Blocked) -> Response<Bytes>;
}

impl<F> Rejection for F
where
    F: Fn(Head<'_>, &Blocked) -> Response<Bytes> + Send + Sync + 'static,
{
    fn reject(&self, head: Head<'_>, blocked: &Blocked) -> Response<Bytes> {
        self(head, blocked)
    }
}

/// Returns whether a message with these headers is gRPC's, gRPC-Web included.
#[inline]
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    !headers.is_empty() && behind_grpc(headers).is_some()
}

/// Returns whether a message with these headers is gRPC-Web's, in binary or in text.
pub(crate) fn is_grpc_web(headers: &HeaderMap) -> bool {
    behind_grpc(headers)
        .and_then(<[u8]>::first_chunk)
        .is_some_and(|web: &[u8; 4]| web.eq_ignore_ascii_case(b"-web"))
}

/// Splits `text` at separators, except at separators within quoted strings.
fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |c| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match c {
            '"' if !was_escaped => is_quoted = !is_quoted,
            '\\' if is_quoted => is_escaped = !was_escaped,
            _ => {}
        }
        c == separator && !is_quoted
    })
}

/// How long the client should wait before it retries; `None` if no retry can succeed.
fn retry_after(blocked: &Blocked) -> Option<Duration> {
    match blocked.kind().terms().retry {
        // A concurrency limit: when a running call will end is unknown.
        Retry::OwnTime if blocked.limit().is_some() && blocked.interval().is_none() => {
            blocked.retry_after().map(|after| after.max(SECOND))
        }
        Retry::OwnTime => blocked.retry_after(),
        Retry::OneSecond => blocked.retry_after().or_else(|| in_a_second(blocked)),
        Retry::Never => None,
    }
}

/// How long the client should wait if the refusal names no time; `None` under a fixed limit of 0,
/// where no call that ends makes room. The limit of an adaptive rule is that of one class, at the
/// moment.
fn in_a_second(blocked: &Blocked) -> Option<Duration> {
    let has_room_later = blocked.limit() != Some(0) || blocked.criticality().is_some();
    has_room_later.then_some(SECOND)
}

/// Removes the body, and leaves its length, to answer `HEAD`. Not every server removes the body
/// itself, and over HTTP/2 sending it would be a protocol error.
pub(crate) fn strip_body(response: &mut Response<Bytes>) {
    let body = std::mem::take(response.body_mut());
    if !body.is_empty() {
        let length = HeaderValue::from(body.len());
        let headers = response.headers_mut();
        headers.entry(CONTENT_LENGTH).or_insert(length);
    }
}

/// `duration` in whole seconds, rounded up, at least 1.
fn whole_seconds(duration: Duration) -> u64 {
    let more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(more).max(1)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use ::http::{Request, StatusCode};

    use super::*;
    use crate::blocked::BlockKind;
    use ::http::header::CONTENT_TYPE;

    #[test]
    fn a_custom_status_is_for_one_kind_and_the_last_one_counts() {
        let answered = |rejection: &dyn Rejection, kind| {
            let blocked = Blocked::new(kind, "/x".into(), "r".into());
            let request = Request::new(());
            rejection.reject(Head::of(&request), &blocked)
        };
        let http = Http::new()
            .status(BlockKind::Flow, StatusCode::NOT_FOUND)
            .status(BlockKind::Authority, StatusCode::GONE)
            .status(BlockKind::Flow, StatusCode::CONFLICT);
        let statuses = [
            (BlockKind::Flow, StatusCode::CONFLICT),
            (BlockKind::Authority, StatusCode::GONE),
            (BlockKind::Isolation, StatusCode::TOO_MANY_REQUESTS),
        ];
        for (kind, status) in statuses {
            assert_eq!(answered(&http, kind).status(), status, "{kind:?}");
        }
        let grpc = Grpc::new()
            .code(BlockKind::Flow, 1)
            .code(BlockKind::Authority, 16)
            .code(BlockKind::System, 17)
            .code(BlockKind::Flow, 9);
        let codes = [
            (BlockKind::Flow, "9"),
            (BlockKind::Authority, "16"),
            (BlockKind::System, "2"),
            (BlockKind::Isolation, "8"),
        ];
        for (kind, code) in codes {
            assert_eq!(answered(&grpc, kind).headers()["grpc-status"], code);
        }
    }

    #[test]
    fn grpc_media_types_are_recognized_in_capitals() {
        let cases = [
            ("application/grpc", true, false),
            ("Application/gRPC", true, false),
            ("APPLICATION/GRPC+PROTO", true, false),
            ("application/grpc;charset=utf-8", true, false),
            ("application/grpc-web", true, true),
            ("application/grpc-web-text+proto", true, true),
            ("Application/gRPC-Web", true, true),
            ("application/grpc-we", true, false),
            ("application/json", false, false),
            ("application/grp", false, false),
            ("application\tgrpc", false, false),
            ("", false, false),
        ];
        for (media, grpc, web) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            assert_eq!(
                (is_grpc(&headers), is_grpc_web(&headers)),
                (grpc, web),
                "{media}"
            );
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        let cases = [
            (0, 1),
            (1, 1),
            (999, 1),
            (1_000, 1),
            (1_001, 2),
            (59_999, 60),
        ];
        for (millis, seconds) in cases {
            assert_eq!(
                whole_seconds(Duration::from_millis(millis)),
                seconds,
                "{millis} ms"
            );
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
