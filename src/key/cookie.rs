//! Keys from cookies.

use std::sync::Arc;

use http::header::COOKIE;

use super::header::unquoted;
use super::{Head, KeyExtractor};
use crate::call::{Encoded, Key};

/// The value of a cookie, from any line of the field.
///
/// Quotes around the value are not part of it. Name and value are compared after percent-decoding,
/// because some services decode cookies and others do not. The request has no key if the value is
/// empty or not visible ASCII, or if the cookie occurs twice with two values.
///
/// A cookie that stands for a login is a secret: use a [`Secret`](super::Secret) of it.
/// Anyone can send any cookie: if it is not checked before this layer, each client has as
/// many fresh quotas as it makes up values.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{Cookie, Secret};
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/cart", 1))
///     .param(Secret::new(Cookie::new("sid")));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |cookies: &str| {
///     let request = Request::get("/cart").header("cookie", cookies).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("theme=dark; sid=7f3a").await, StatusCode::OK);
/// assert_eq!(status("sid=\"7f3a\"").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("sid=99ab").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Cookie(Arc<str>);

impl Cookie {
    /// Creates an extractor for the cookie `name`, in decoded form.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the value in `pair` if `pair` is this cookie. A value that is not ASCII text counts
    /// as empty, so that a second cookie of the name is still noticed.
    fn value<'a>(&self, pair: &'a [u8]) -> Option<Encoded<'a>> {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let is_name = std::str::from_utf8(name).is_ok_and(|name| Encoded::path(name).is(&self.0));
        if !is_name {
            return None;
        }
        let text = match std::str::from_utf8(value) {
            Ok(text) if text.is_ascii() => unquoted(text),
            _ => "",
        };
        Some(Encoded::path(text))
    }
}

impl KeyExtractor for Cookie {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let lines = head.headers().get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
        Encoded::only(pairs.filter_map(|pair| self.value(pair)))
    }
}
