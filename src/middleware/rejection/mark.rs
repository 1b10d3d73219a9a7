//! The mark of a refusal, which is visible within this process, and to no client.
//!
//! A value in the extensions of a response takes three allocations, which is more than everything
//! else in a refusal. So by default a refusal is distinguished from a response of the service by
//! its content type: it is a static string of this crate, recognized by its address.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use crate::blocked::Blocked;

/// The two media types, each with a prefix that no other string has: without it, a linker could
/// merge them with equal strings of the program. As this is a static and not a constant, it has one
/// address for all parts of the program.
static MARKED: [&str; 2] = [
    "refused by tower-sentinel: text/plain; charset=utf-8",
    "refused by tower-sentinel: application/problem+json",
];
/// The length of the prefix before the media type.
const WORDS: usize = "refused by tower-sentinel: ".len();

/// The media type at `index`, without the prefix.
fn media(index: usize) -> &'static str {
    &MARKED[index][WORDS..]
}

/// The content type of a refusal with a text, with its mark.
pub(super) fn text() -> HeaderValue {
    HeaderValue::from_static(media(0))
}

/// The content type of a refusal with a problem document, with its mark.
pub(super) fn problem() -> HeaderValue {
    HeaderValue::from_static(media(1))
}

/// Returns whether the header fields have the mark of a refusal.
pub(crate) fn is_marked(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(is_mark)
}

/// Returns whether the fields of a newly created refusal include the mark. A new refusal has few
/// fields, so comparing the values of all is faster than looking one up by its name.
#[inline]
pub(crate) fn is_marked_refusal(headers: &HeaderMap) -> bool {
    headers.values().any(is_mark)
}

/// Returns whether `value` is one of the marked media types, by its address.
fn is_mark(value: &HeaderValue) -> bool {
    let is_at = |index| std::ptr::eq(value.as_bytes(), media(index).as_bytes());
    is_at(0) || is_at(1)
}

/// Returns whether `response` is the answer to a call that a layer of this crate has refused, in
/// this process, and not a response of the service that looks like one.
///
/// For layers around a [`SentinelLayer`](crate::SentinelLayer) or around a whole router. It
/// allocates nothing. A refusal is not recognized if it came over a connection, or if a layer in
/// between has replaced its content type. The rule that refused the call is in the extensions, if
/// the layer [puts it there](crate::SentinelLayer::blocked_in_extensions).
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::rejection::is_refusal;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/search", 0));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     let mut own = Response::new(String::new());
///     *own.status_mut() = StatusCode::TOO_MANY_REQUESTS;
///     Ok::<_, std::convert::Infallible>(own)
/// }));
/// let get = |path| service.clone().oneshot(Request::get(path).body(()).unwrap());
/// let (refused, own) = (get("/search").await.unwrap(), get("/other").await.unwrap());
/// assert_eq!(refused.status(), own.status());
/// assert!(is_refusal(&refused) && !is_refusal(&own));
/// # });
/// ```
#[must_use]
pub fn is_refusal<B>(response: &Response<B>) -> bool {
    is_marked(response.headers()) || response.extensions().get::<Blocked>().is_some()
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_no_part_of_the_text() {
        let mut headers = HeaderMap::new();
        for (own, media) in [
            (text(), "text/plain; charset=utf-8"),
            (problem(), "application/problem+json"),
        ] {
            assert_eq!(own, media);
            headers.insert(CONTENT_TYPE, own.clone());
            assert!(is_marked(&headers), "a clone has it: {:?}", own.clone());
            for other in [
                HeaderValue::from_static(media),
                HeaderValue::from_str(media).unwrap(),
                HeaderValue::from_static("text/plain; charset=utf-8"),
                HeaderValue::from_static("application/problem+json"),
            ] {
                headers.insert(CONTENT_TYPE, other);
                assert!(!is_marked(&headers));
            }
        }
        assert!(!is_marked(&HeaderMap::new()));
    }
}
