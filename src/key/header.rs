//! Keys from a header field.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Head, KeyExtractor};
use crate::call::Key;

/// The value of a header field, without blanks around it. The request has no key if the value is
/// empty or not visible ASCII, or if the field occurs twice with two values: it is not known which
/// of the two the service will read, or which value a proxy has written.
///
/// Anyone can send any header. Use a field that a trusted proxy sets, or whose value is checked
/// before this layer.
///
/// The key is stored, and shown in snapshots and to hooks, as it is. Use a
/// [`Secret`](super::Secret) of fields such as `authorization`, `cookie` or
/// `x-api-key`.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Header;
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/search", 1))
///     .param(Header::from_static("x-api-client"));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |client: &str| {
///     let request = Request::get("/search").header("x-api-client", client).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("shop").await, StatusCode::OK);
/// assert_eq!(status("shop").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("office").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

impl Header {
    /// Creates an extractor for the field `name`.
    #[must_use]
    pub const fn new(name: HeaderName) -> Self {
        Self(name)
    }

    /// Creates an extractor for the field `name`, which must be in lower case.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a valid field name in lower case.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        Self(HeaderName::from_static(name))
    }
}

impl KeyExtractor for Header {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let value = only_value(head.headers(), &self.0)?;
        (!value.is_empty()).then_some(Key::Str(value))
    }
}

/// Returns the value of the field `name`; `None` if it is missing, is not text, or occurs twice
/// with two values.
pub(super) fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter().map(text);
    let first = lines.next()??;
    lines.all(|other| other == Some(first)).then_some(first)
}

/// Returns `value` without the blanks around it, which are not part of it. A server removes them
/// over HTTP/1, but leaves them over HTTP/2.
fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(str::trim_ascii)
}

/// Returns the text inside quotes, if `text` is in quotes.
pub(super) fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}
