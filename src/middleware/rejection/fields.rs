//! Header fields that show clients the rest of their quota.

use std::fmt::Write;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{is_refusal, parts, whole_seconds};
use crate::base::wall::since_1970;
use crate::blocked::Label;
use crate::engine::call::nodes::{QuotaLeft, QuotasLeft};
use crate::rule::REQUESTS;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The header fields that show clients their quota; none by default.
///
/// In a response to a call that passed, they describe the rule that leaves the smallest fraction of
/// its limit: a flow rule that applies to the call, or a keyed rule with the call's value. Limits
/// on concurrent calls, which have no interval, are not considered. Flow rules with a queue or for
/// another resource are not considered either. The reset is the time after which more will be left
/// than now, if no tokens are taken until then. If several layers add fields, the client sees the
/// tightest quota of all. If the service itself sets quota fields, such as a proxy that forwards
/// the fields of its upstream, they are replaced unless they say that nothing is left.
///
/// Choose the form that your clients read:
///
/// | form | fields | as in |
/// |---|---|---|
/// | [`Ietf`](Self::Ietf) | `RateLimit`, `RateLimit-Policy`: structured lists | drafts 08 and later of the IETF, `draft-ietf-httpapi-ratelimit-headers` |
/// | [`IetfDraft06`](Self::IetfDraft06) | `RateLimit-Limit`, `-Remaining`, `-Reset`: numbers | drafts 00 to 06, which most client libraries still read |
/// | [`Legacy`](Self::Legacy) | `X-RateLimit-Limit`, `-Remaining`, `-Reset`: numbers | no draft; older APIs, which differ in what the reset means |
/// | [`PerUnit`](Self::PerUnit) | `X-RateLimit-Limit-Requests`, `-Tokens` and so on: a quota of each unit | APIs of model providers |
///
/// Limits on [costs](crate::FlowRule::cost) are considered as well, less what running calls have
/// reserved. Of the forms that describe one quota, only `Ietf` names its unit.
///
/// In a refusal they describe the rule that refuses, if it has an interval. The limit is its
/// threshold, without warm-up and memory. The remaining quota is 0, even if a lighter call might
/// pass. The reset is the time of `Retry-After`, or the interval if no retry can succeed.
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
    /// `RateLimit-Policy` and `RateLimit` as in draft 10 of the IETF, both structured fields. They
    /// name the rule by its id, and also contain its interval. The parameter `qu` has the unit of a
    /// limit on [costs](crate::FlowRule::cost), by the name that the rule gives it; the draft
    /// registers `content-bytes`. Without the parameter the unit is requests.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::rejection::RateLimitFields;
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let rule = FlowRule::per_minute("/chat", 10_000).cost("tokens").id("tpm");
    /// let layer = SentinelLayer::new(rule)
    ///     .reserve("tokens", |_head| 400)
    ///     .fields(RateLimitFields::Ietf);
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// # }));
    /// # let request = Request::get("/chat").body(()).unwrap();
    /// # let response = service.oneshot(request).await.unwrap();
    /// assert_eq!(response.headers()["ratelimit-policy"], "\"tpm\";q=10000;w=60;qu=\"tokens\"");
    /// assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with("\"tpm\";r=9600;"));
    /// # });
    /// ```
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
    /// `X-RateLimit-Limit-Requests`, `-Remaining-Requests` and `-Reset-Requests`, and the same
    /// three fields for the unit of each [cost](crate::FlowRule::cost) that is limited, such as
    /// `X-RateLimit-Remaining-Tokens`. For each unit they describe the tightest rule. Clients of
    /// model providers read this form. The reset is a time such as `60s`, in whole seconds. A
    /// character of a unit that is not allowed in a field name is written as `-`.
    ///
    /// A refusal has the three fields for the unit that the refusing rule counts.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::rejection::RateLimitFields;
    /// use tower_sentinel::{FlowRule, ManualClock, Rules, Sentinel, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let rules = Rules::new()
    ///     .with(FlowRule::per_minute("/chat", 500))
    ///     .with(FlowRule::per_minute("/chat", 10_000).cost("tokens"));
    /// let sentinel = Sentinel::builder().rules(rules).clock(ManualClock::new()).build();
    /// let layer = SentinelLayer::with(sentinel)
    ///     .reserve("tokens", |_head| 400)
    ///     .fields(RateLimitFields::PerUnit);
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// # }));
    /// # let request = Request::get("/chat").body(()).unwrap();
    /// # let response = service.oneshot(request).await.unwrap();
    /// let headers = response.headers();
    /// assert_eq!(headers["x-ratelimit-limit-requests"], "500");
    /// assert_eq!(headers["x-ratelimit-remaining-requests"], "499");
    /// assert_eq!(headers["x-ratelimit-remaining-tokens"], "9600");
    /// assert_eq!(headers["x-ratelimit-reset-tokens"], "30s");
    /// # });
    /// ```
    PerUnit,
}

/// The fraction that is left of the quota in the response's fields. An extension of the response,
/// for outer layers, which may know a tighter quota.
#[derive(Clone, Copy)]
struct LeastReported(f64);

/// The fraction that is left of the quota of each unit, with the label of the rule. An extension of
/// the response, like [`LeastReported`].
#[derive(Clone, Default)]
struct LeastOfUnits(Vec<(Arc<Label>, f64)>);

impl RateLimitFields {
    /// Writes what is left of the quotas into the `response` to a call that passed, unless an inner
    /// layer has already reported that less is left, or the service has reported that nothing is
    /// left.
    pub(crate) fn write_into<B>(self, quotas: &QuotasLeft, response: &mut Response<B>) {
        let Some(left) = quotas.tightest() else {
            return;
        };
        let part = left.part();
        if self == RateLimitFields::PerUnit {
            let is_first = response.extensions().get::<LeastOfUnits>().is_none();
            if is_first && reports_less(part, response) {
                return;
            }
            for left in quotas.iter() {
                write_of_unit(left, response);
            }
            if !reports_less(part, response) {
                response.extensions_mut().insert(LeastReported(part));
            }
            return;
        }
        if !reports_less(part, response) && !self.say_nothing_is_left(response.headers()) {
            self.write(left, response.headers_mut());
            response.extensions_mut().insert(LeastReported(part));
        }
    }

    /// Writes into the `response` of a refusal that nothing is left of the quota `left`.
    pub(super) fn write_refusal<B>(self, left: &QuotaLeft, response: &mut Response<B>) {
        self.write(left, response.headers_mut());
        if self == RateLimitFields::PerUnit {
            // The names of these fields depend on the unit, so outer layers find the report by
            // extensions only.
            let of_units = LeastOfUnits(vec![(left.rule.clone(), 0.0)]);
            response.extensions_mut().insert(of_units);
            response.extensions_mut().insert(LeastReported(0.0));
        }
    }

    /// Returns whether `headers` have the fields of this form and say that nothing is left: they
    /// can come from another server whose response the service passes on.
    fn say_nothing_is_left(self, headers: &HeaderMap) -> bool {
        let lines = |name| {
            headers
                .get_all(name)
                .iter()
                .filter_map(|it| it.to_str().ok())
        };
        match self {
            // The fields of each unit are checked when they are written.
            RateLimitFields::None | RateLimitFields::PerUnit => false,
            RateLimitFields::Ietf => lines(RATE_LIMIT)
                .flat_map(|line| parts(line, ','))
                .any(|quota| parts(quota, ';').any(|part| part.trim() == "r=0")),
            RateLimitFields::IetfDraft06 => lines(REMAINING).any(|line| line.trim() == "0"),
            RateLimitFields::Legacy | RateLimitFields::LegacyUnixTime => {
                lines(X_REMAINING).any(|line| line.trim() == "0")
            }
        }
    }

    /// Writes what is left of the quota `left` into `headers`.
    fn write(self, left: &QuotaLeft, headers: &mut HeaderMap) {
        let reset = whole_seconds(left.reset);
        match self {
            RateLimitFields::None => {}
            RateLimitFields::Ietf => {
                let name = quoted(&left.rule.id);
                // The draft has whole seconds; a shorter window is written as 1.
                let window = whole_seconds(left.interval);
                // Room for two numbers of 20 digits and their names: one allocation each.
                let mut policy = String::with_capacity(name.len() + 46);
                let mut limit = String::with_capacity(name.len() + 46);
                // Writing to a string cannot fail.
                let _ = write!(policy, "{name};q={};w={window}", left.limit);
                if let Some(unit) = left.unit() {
                    let _ = write!(policy, ";qu={}", quoted(unit));
                }
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
                        whole_seconds(since_1970().saturating_add(left.reset))
                    }
                    _ => reset,
                };
                headers.insert(X_LIMIT, HeaderValue::from(left.limit));
                headers.insert(X_REMAINING, HeaderValue::from(left.remaining));
                headers.insert(X_RESET, HeaderValue::from(reset));
            }
            RateLimitFields::PerUnit => {
                let unit = left.unit().unwrap_or(REQUESTS);
                insert_of_unit(headers, (&X_LIMIT, unit), HeaderValue::from(left.limit));
                insert_of_unit(
                    headers,
                    (&X_REMAINING, unit),
                    HeaderValue::from(left.remaining),
                );
                // With the letter, clients in Go parse the value as a duration, and other clients
                // as a number with a suffix.
                if let Ok(reset) = HeaderValue::try_from(format!("{reset}s")) {
                    insert_of_unit(headers, (&X_RESET, unit), reset);
                }
            }
        }
    }
}

/// Writes what is left of a quota into the fields of its unit, unless an inner layer has already
/// reported that less of the unit is left, or the service has reported that nothing is left.
fn write_of_unit<B>(left: &QuotaLeft, response: &mut Response<B>) {
    let unit = left.unit().unwrap_or(REQUESTS);
    let sent = field_of_unit(&X_REMAINING, unit).and_then(|name| response.headers().get(name));
    if sent.is_some_and(|sent| sent.as_bytes().trim_ascii() == b"0") {
        return;
    }
    let part = left.part();
    let mut least: LeastOfUnits = response.extensions_mut().remove().unwrap_or_default();
    let reported = least
        .0
        .iter_mut()
        .find(|(rule, _)| rule.unit == left.rule.unit);
    let is_least = match reported {
        Some((_, reported)) if *reported <= part => false,
        Some((_, reported)) => {
            *reported = part;
            true
        }
        None => {
            least.0.push((left.rule.clone(), part));
            true
        }
    };
    response.extensions_mut().insert(least);
    if is_least {
        RateLimitFields::PerUnit.write(left, response.headers_mut());
    }
}

/// Inserts the field `of` for `unit`, unless the unit makes no valid name.
fn insert_of_unit(headers: &mut HeaderMap, (of, unit): (&HeaderName, &str), value: HeaderValue) {
    if let Some(name) = field_of_unit(of, unit) {
        headers.insert(name, value);
    }
}

/// The name of the field `of` for `unit`. Every letter of a unit is printable ASCII.
fn field_of_unit(of: &HeaderName, unit: &str) -> Option<HeaderName> {
    let mut name = format!("{of}-");
    for letter in unit.chars() {
        let is_allowed = letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
        name.push(if is_allowed {
            letter.to_ascii_lowercase()
        } else {
            '-'
        });
    }
    name.parse().ok()
}

/// Returns whether an inner layer has reported a quota of which at most `part` is left.
fn reports_less<B>(part: f64, response: &Response<B>) -> bool {
    if let Some(LeastReported(least)) = response.extensions().get() {
        return *least <= part;
    }
    // The fields of a refusal, if it has any, describe the quota that is used up.
    let headers = response.headers();
    is_refusal(response)
        && [RATE_LIMIT, REMAINING, X_REMAINING]
            .iter()
            .any(|name| headers.contains_key(name))
}

/// Inserts a field with this `value`, which is visible ASCII.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // The result of `quoted` is always valid in a field.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// `text` as the string of a structured field: visible ASCII stays, and all else becomes `?`.
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
