//! Header fields that show clients the rest of their quota.

use std::fmt::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{is_refusal, parts, whole_seconds};
use crate::engine::call::nodes::QuotaLeft;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Which header fields tell clients about their quota; none by default.
///
/// In a response to a call that passed, they describe the rule that leaves the smallest
/// part of its limit: a flow rule that applies to the call, or a keyed rule with the
/// call's value. Not considered are limits on concurrent calls, which have no
/// interval, and flow rules with a queue or for another resource. The reset is the time
/// after which more will be left than now, if no tokens are taken until then. If several layers
/// add fields, the client sees the tightest quota of all. Such fields that the service itself
/// sets, as a proxy those of its upstream, are replaced, unless they say that nothing is left.
///
/// Choose the form that your clients read:
///
/// | form | fields | as in |
/// |---|---|---|
/// | [`Ietf`](Self::Ietf) | `RateLimit`, `RateLimit-Policy`: structured lists | drafts 08 and later of the IETF, `draft-ietf-httpapi-ratelimit-headers` |
/// | [`IetfDraft06`](Self::IetfDraft06) | `RateLimit-Limit`, `-Remaining`, `-Reset`: numbers | drafts 00 to 06, which most client libraries still read |
/// | [`Legacy`](Self::Legacy) | `X-RateLimit-Limit`, `-Remaining`, `-Reset`: numbers | no draft; older APIs, which differ in what the reset means |
///
/// In a refusal they describe the rule that refuses, if it has an interval: its threshold,
/// without warm-up and memory; that nothing is left, although a lighter call might pass; and
/// as reset the time of `Retry-After`, or the interval if no retry can succeed.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::rejection::{Http, RateLimitFields};
/// use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("/search", 2).id("search"))
///     .clock(ManualClock::new())
///     .build();
/// let layer = SentinelLayer::with(sentinel)
///     .fields(RateLimitFields::Ietf)
///     .reject(Http::new().fields(RateLimitFields::Ietf));
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// let mut told = Vec::new();
/// for _ in 0..3 {
///     let request = Request::get("/search").body(()).unwrap();
///     let response = service.clone().oneshot(request).await.unwrap();
///     assert_eq!(response.headers()["ratelimit-policy"], "\"search\";q=2;w=1");
///     told.push(response.headers()["ratelimit"].clone());
/// }
/// // The last of them was refused.
/// assert_eq!(told, ["\"search\";r=1;t=1", "\"search\";r=0;t=1", "\"search\";r=0;t=1"]);
/// # });
/// ```
#[doc(alias("headers", "X-RateLimit-Limit"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RateLimitFields {
    /// No fields.
    #[default]
    None,
    /// `RateLimit-Policy` and `RateLimit` as in draft 10 of the IETF, both structured
    /// fields. They name the rule by its id, and also tell its interval.
    Ietf,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` as in drafts 00 to 06 of the IETF: the limit,
    /// the tokens left, and the reset in seconds from now. `RateLimit-Policy` is not sent with
    /// them, because its form has changed since.
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use std::time::Duration;
    /// use tower_sentinel::middleware::rejection::{Http, RateLimitFields};
    /// use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per("/export", 1, Duration::from_secs(60)))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// let layer = SentinelLayer::with(sentinel)
    ///     .fields(RateLimitFields::IetfDraft06) // where a call passes
    ///     .reject(Http::new().fields(RateLimitFields::IetfDraft06)); // and where it does not
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// # }));
    /// for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
    ///     let request = Request::get("/export").body(()).unwrap();
    ///     let response = service.clone().oneshot(request).await.unwrap();
    ///     assert_eq!(response.status(), status);
    ///     assert_eq!(response.headers()["ratelimit-limit"], "1");
    ///     assert_eq!(response.headers()["ratelimit-remaining"], "0");
    ///     assert_eq!(response.headers()["ratelimit-reset"], "60");
    /// }
    /// # });
    /// ```
    IetfDraft06,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, which follow no draft: the reset in seconds
    /// from now.
    Legacy,
    /// As [`Legacy`](Self::Legacy), but with the reset in seconds since 1970, by the wall clock of
    /// this machine, rounded up.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use std::time::Duration;
    /// use tower_sentinel::middleware::rejection::{Http, RateLimitFields};
    /// use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// /// The reset in the response to the second call in a minute.
    /// async fn reset(fields: RateLimitFields) -> u64 {
    ///     let sentinel = Sentinel::builder()
    ///         .rules(FlowRule::per("/export", 1, Duration::from_secs(60)))
    ///         .clock(ManualClock::new())
    ///         .build();
    ///     let layer = SentinelLayer::with(sentinel).reject(Http::new().fields(fields));
    /// #   let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #       Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// #   }));
    /// #   let get = async || {
    /// #       let request = Request::get("/export").body(()).unwrap();
    /// #       service.clone().oneshot(request).await.unwrap()
    /// #   };
    ///     get().await;
    ///     let refused = get().await;
    ///     refused.headers()["x-ratelimit-reset"].to_str().unwrap().parse().unwrap()
    /// }
    ///
    /// assert_eq!(reset(RateLimitFields::Legacy).await, 60);
    /// // A time after November 2023.
    /// assert!(reset(RateLimitFields::LegacyUnixTime).await > 1_700_000_000);
    /// # });
    /// ```
    LegacyUnixTime,
}

/// The part that is left of the quota that a response reports. Outer layers, which may
/// know of a tighter quota, look for it.
#[derive(Clone, Copy)]
struct LeastReported(f64);

impl RateLimitFields {
    /// Writes the rest of the quota, `left`, into the `response` to a call that passed, unless an
    /// inner layer has reported less, or the service that nothing is left.
    pub(crate) fn write_into<B>(self, left: &QuotaLeft, response: &mut Response<B>) {
        let part = left.part();
        if !reports_less(part, response) && !self.tell_of_nothing(response.headers()) {
            self.write(left, response.headers_mut());
            response.extensions_mut().insert(LeastReported(part));
        }
    }

    /// Returns whether these fields are among `headers` and say that nothing is left: they may be
    /// those of another server, whose response the service passes on.
    fn tell_of_nothing(self, headers: &HeaderMap) -> bool {
        let lines = |name| {
            headers
                .get_all(name)
                .iter()
                .filter_map(|it| it.to_str().ok())
        };
        match self {
            RateLimitFields::None => false,
            RateLimitFields::Ietf => lines(RATE_LIMIT)
                .flat_map(|line| parts(line, ','))
                .any(|quota| parts(quota, ';').any(|part| part.trim() == "r=0")),
            RateLimitFields::IetfDraft06 => lines(REMAINING).any(|line| line.trim() == "0"),
            RateLimitFields::Legacy | RateLimitFields::LegacyUnixTime => {
                lines(X_REMAINING).any(|line| line.trim() == "0")
            }
        }
    }

    /// Writes the rest of the quota, `left`, into `headers`.
    pub(super) fn write(self, left: &QuotaLeft, headers: &mut HeaderMap) {
        let reset = whole_seconds(left.reset);
        match self {
            RateLimitFields::None => {}
            RateLimitFields::Ietf => {
                let name = quoted(&left.rule);
                // The draft has whole seconds; a shorter window is written as 1.
                let window = whole_seconds(left.interval);
                // Room for two numbers of 20 digits and their names: one allocation each.
                let mut policy = String::with_capacity(name.len() + 46);
                let mut limit = String::with_capacity(name.len() + 46);
                // Writing to a string cannot fail.
                let _ = write!(policy, "{name};q={};w={window}", left.limit);
                let _ = write!(limit, "{name};r={};t={reset}", left.remaining);
                insert(headers, RATE_LIMIT_POLICY, &policy);
                insert(headers, RATE_LIMIT, &limit);
            }
            RateLimitFields::IetfDraft06 => {
                headers.insert(LIMIT, HeaderValue::from(left.limit));
                headers.insert(REMAINING, HeaderValue::from(left.remaining));
                headers.insert(RESET, HeaderValue::from(reset));
            }
            RateLimitFields::Legacy | RateLimitFields::LegacyUnixTime => {
                let reset = match self {
                    RateLimitFields::LegacyUnixTime => {
                        whole_seconds(unix_time().saturating_add(left.reset))
                    }
                    _ => reset,
                };
                headers.insert(X_LIMIT, HeaderValue::from(left.limit));
                headers.insert(X_REMAINING, HeaderValue::from(left.remaining));
                headers.insert(X_RESET, HeaderValue::from(reset));
            }
        }
    }
}

/// Returns whether an inner layer has reported a quota of which no more than `part` is left.
fn reports_less<B>(part: f64, response: &Response<B>) -> bool {
    if let Some(LeastReported(least)) = response.extensions().get() {
        return *least <= part;
    }
    // The fields of a refusal are those of the quota that is used up, if there are any.
    let headers = response.headers();
    is_refusal(response)
        && [RATE_LIMIT, REMAINING, X_REMAINING]
            .iter()
            .any(|name| headers.contains_key(name))
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // The result of `quoted` is always valid in a field.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// `text` as a structured field's string: visible ASCII, the rest as `?`.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\{c}");
            }
            ' '..='~' => quoted.push(c),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

#[expect(
    clippy::disallowed_methods,
    reason = "the field is defined by wall time"
)]
fn unix_time() -> Duration {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}
