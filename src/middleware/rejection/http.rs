//! Refusals over plain HTTP.

use std::cell::Cell;
use std::mem;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::fields::RateLimitFields;
use super::mark;
use super::{Rejection, is_grpc, parts, retry_after, whole_seconds};
use crate::blocked::{BlockKind, Blocked};
use crate::engine::call::nodes::QuotaLeft;
use crate::key::Head;
use crate::read::write_text;

/// Responds with a status, with `Retry-After` if a retry can succeed, and with a short body: text,
/// or a problem document (RFC 9457) if the client's `Accept` names `application/problem+json` or
/// `application/json` and does not give it weight 0. A range such as `*/*` names neither type.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::rejection::{Http, RateLimitFields};
/// use tower_sentinel::{BlockKind, FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/search", 1)).reject(
///     Http::new()
///         .status(BlockKind::Flow, StatusCode::SERVICE_UNAVAILABLE)
///         .fields(RateLimitFields::Legacy),
/// );
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let call = async || {
///     let request = Request::get("/search").body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap()
/// };
/// assert_eq!(call().await.status(), StatusCode::OK);
/// let refused = call().await;
/// assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
/// assert_eq!(refused.headers()["retry-after"], "1");
/// assert_eq!(refused.headers()["x-ratelimit-limit"], "1");
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Http {
    statuses: Vec<(BlockKind, StatusCode)>,
    fields: RateLimitFields,
    has_details: bool,
}

impl Http {
    /// Creates a rejection with the statuses of the [table](super) and no quota fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the status for refusals of `kind`. If the status must have no body, such as 204, the
    /// response has none. If caches may keep a response of this status by default, such as 404, it
    /// has `Cache-Control: no-store`.
    #[must_use]
    pub fn status(mut self, kind: BlockKind, status: StatusCode) -> Self {
        self.statuses.retain(|(known, _)| *known != kind);
        self.statuses.push((kind, status));
        self
    }

    /// Adds quota fields to refusals. To add them to every response as well, see
    /// [`SentinelLayer::fields`](crate::SentinelLayer::fields).
    #[must_use]
    pub fn fields(mut self, fields: RateLimitFields) -> Self {
        self.fields = fields;
        self
    }

    /// Sets whether problem documents have a `detail`: the refusal as [`Blocked`] displays it,
    /// with the resource, the kind of rule and its id, or that a key was missing. Default: no,
    /// as these are names that clients need not know.
    ///
    /// ```
    /// use http::Request;
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::rejection::Http;
    /// use tower_sentinel::{KeyedRule, MissingKey, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let rule = KeyedRule::per_second("/search", 5).missing(MissingKey::Refuse);
    /// let layer = SentinelLayer::new(rule).reject(Http::new().details(true));
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    /// # }));
    /// let request = Request::get("/search").header("accept", "application/problem+json");
    /// let refused = service.oneshot(request.body(()).unwrap()).await.unwrap();
    /// # use http_body_util::BodyExt;
    /// # let body = refused.into_body().collect().await.unwrap().to_bytes();
    /// let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    /// assert_eq!(
    ///     problem["detail"],
    ///     "call to \"/search\" refused for a missing key by rule \"keyed-0\"",
    /// );
    /// # });
    /// ```
    #[must_use]
    pub const fn details(mut self, details: bool) -> Self {
        self.has_details = details;
        self
    }

    /// The content type. It has the mark of a refusal, as from `marked`, only if all statuses are
    /// the defaults: `ByStatus` looks for the mark at no other status.
    fn media(&self, marked: fn() -> HeaderValue) -> HeaderValue {
        let media = marked();
        if self.statuses.is_empty() {
            return media;
        }
        HeaderValue::from_bytes(media.as_bytes()).unwrap_or(media)
    }

    /// The status of refusals of `kind`: the status that was set, or the default.
    fn status_of(&self, kind: BlockKind) -> StatusCode {
        let own = self.statuses.iter().find(|(known, _)| *known == kind);
        own.map_or_else(|| kind.terms().status, |(_, status)| *status)
    }
}

/// Returns whether a response with `status` may have a body.
fn has_content(status: StatusCode) -> bool {
    !matches!(status.as_u16(), 100..200 | 204 | 205 | 304)
}

/// Returns whether caches may keep a response with `status` that does not say so (RFC 9110, 15.1).
fn is_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

impl Rejection for Http {
    fn reject(&self, head: Head<'_>, blocked: &Blocked) -> Response<Bytes> {
        let status = self.status_of(blocked.kind());
        let retry_after = retry_after(blocked);
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        if !has_content(status) {
            write_retry_after(retry_after, response.headers_mut());
        } else if accepts_problem(head.headers()) {
            let mut problem = problem(status, blocked.kind());
            if self.has_details {
                problem = with_detail(&problem, &blocked.to_string());
            }
            *response.body_mut() = problem;
            let media = self.media(mark::problem);
            response.headers_mut().insert(CONTENT_TYPE, media);
            write_retry_after(retry_after, response.headers_mut());
        } else {
            response = text(status, retry_after);
            if !self.statuses.is_empty() {
                let media = self.media(mark::text);
                response.headers_mut().insert(CONTENT_TYPE, media);
            }
        }
        if is_cacheable(status) {
            // A cache would return the refusal to other clients, and still do so when the limit has
            // room again.
            let no_store = HeaderValue::from_static("no-store");
            response.headers_mut().insert(CACHE_CONTROL, no_store);
        }
        if self.fields == RateLimitFields::None {
            return response;
        }
        if let (Some(limit), Some(interval)) = (blocked.limit(), blocked.interval()) {
            let left = QuotaLeft {
                rule: blocked.label().clone(),
                limit,
                interval,
                remaining: 0,
                reset: retry_after.unwrap_or(interval),
            };
            self.fields.write_refusal(&left, &mut response);
        }
        response
    }
}

/// Returns whether a client that sent these fields gets text by default.
#[inline]
pub(crate) fn wants_text(headers: &HeaderMap) -> bool {
    headers.is_empty() || !(is_grpc(headers) || accepts_problem(headers))
}

/// The response that most clients get by default: the response of [`Http::new`], created without
/// reading any setting.
#[inline]
pub(crate) fn plain_text(blocked: &Blocked) -> Response<Bytes> {
    text(blocked.kind().terms().status, retry_after(blocked))
}

/// A response with the name of its status as text.
#[inline]
fn text(status: StatusCode, retry_after: Option<Duration>) -> Response<Bytes> {
    let text = status.canonical_reason().unwrap_or("Refused");
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    let none = mem::replace(response.headers_mut(), text_fields(retry_after));
    // Not dropped: an empty map holds no memory.
    mem::forget(none);
    response
}

/// The fields of most refusals: a content type of text, and when to retry. Cloned from prepared
/// maps, so that no name is hashed.
fn text_fields(retry_after: Option<Duration>) -> HeaderMap {
    static WITHOUT_RETRY: LazyLock<HeaderMap> = LazyLock::new(|| {
        let mut fields = HeaderMap::with_capacity(1);
        fields.insert(CONTENT_TYPE, mark::text());
        fields
    });
    static WITH_RETRY: LazyLock<HeaderMap> = LazyLock::new(|| {
        let mut fields = HeaderMap::with_capacity(2);
        fields.insert(CONTENT_TYPE, mark::text());
        fields.insert(RETRY_AFTER, seconds_value(1));
        fields
    });
    let Some(retry_after) = retry_after else {
        return WITHOUT_RETRY.clone();
    };
    let mut fields = WITH_RETRY.clone();
    let seconds = whole_seconds(retry_after);
    if seconds > 1 {
        if let Some(value) = fields.get_mut(RETRY_AFTER) {
            *value = seconds_value(seconds);
        }
    }
    fields
}

/// Writes `Retry-After`, unless no retry can succeed.
fn write_retry_after(retry_after: Option<Duration>, fields: &mut HeaderMap) {
    if let Some(retry_after) = retry_after {
        fields.insert(RETRY_AFTER, seconds_value(whole_seconds(retry_after)));
    }
}

/// The largest number of seconds that has a prepared text: an hour.
const READY_SECONDS: u64 = 3_600;
/// The digits of [`READY_SECONDS`].
const MOST_DIGITS: usize = 4;

/// `seconds` as a field's value.
fn seconds_value(seconds: u64) -> HeaderValue {
    static TEXTS: LazyLock<String> = LazyLock::new(|| {
        (0..=READY_SECONDS)
            .map(|n| format!("{n:<MOST_DIGITS$}"))
            .collect()
    });
    if seconds > READY_SECONDS {
        return long_seconds_value(seconds);
    }
    let begin = seconds as usize * MOST_DIGITS;
    HeaderValue::from_static(TEXTS[begin..begin + MOST_DIGITS].trim_ascii_end())
}

/// The value of a number without a prepared text. Each thread keeps the last one: refusals of a
/// rule use the same number for a second, so the text is rarely created again.
#[cold]
fn long_seconds_value(seconds: u64) -> HeaderValue {
    thread_local! {
        static LAST: Cell<Option<(u64, HeaderValue)>> = const { Cell::new(None) };
    }
    let known = LAST.try_with(Cell::take).ok().flatten();
    let value = match known {
        Some((of, value)) if of == seconds => value,
        _ => HeaderValue::from(seconds),
    };
    // A thread that is ending keeps nothing.
    let _ = LAST.try_with(|last| last.set(Some((seconds, value.clone()))));
    value
}

/// Returns whether the client accepts a problem document by name.
fn accepts_problem(headers: &HeaderMap) -> bool {
    if headers.is_empty() {
        return false;
    }
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .any(|line| {
            parts(line, ',').any(|range| {
                let mut parts = parts(range, ';').map(str::trim);
                let media = parts.next().unwrap_or_default();
                let is_json = ["application/problem+json", "application/json"]
                    .iter()
                    .any(|json| media.eq_ignore_ascii_case(json));
                let is_refused = parts.any(|part| {
                    let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
                    weight.is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0))
                });
                is_json && !is_refused
            })
        })
}

/// A problem document. Its types are defined in the IETF's draft on rate limits.
fn problem(status: StatusCode, kind: BlockKind) -> Bytes {
    static BY_KIND: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut texts = Vec::new();
        for kind in BlockKind::ALL {
            let terms = kind.terms();
            texts.push(problem_text(terms.status, terms.problem));
        }
        texts
    });
    if status == kind.terms().status {
        return Bytes::from_static(BY_KIND[kind as usize].as_bytes());
    }
    problem_text(status, None).into()
}

/// The text of a problem document. `name` is the name of a registered problem type, if there is
/// one.
fn problem_text(status: StatusCode, name: Option<&str>) -> String {
    let (registry, name) = match name {
        Some(name) => ("https://iana.org/assignments/http-problem-types#", name),
        None => ("", "about:blank"),
    };
    let title = status.canonical_reason().unwrap_or("Refused");
    let code = status.as_u16();
    format!(r#"{{"type":"{registry}{name}","title":"{title}","status":{code}}}"#)
}

/// Adds the member `detail` to `problem`, a JSON object.
fn with_detail(problem: &[u8], detail: &str) -> Bytes {
    let open = problem.strip_suffix(b"}").unwrap_or(problem);
    let mut text = String::from_utf8_lossy(open).into_owned();
    text.push_str(",\"detail\":");
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, detail);
    text.push('}');
    text.into()
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/http.rs"]
mod tests;
