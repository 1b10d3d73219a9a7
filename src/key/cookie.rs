//! Keys from cookies.

use std::sync::Arc;

use http::header::COOKIE;

use super::{Head, KeyExtractor};
use crate::call::{Encoded, Key};

/// The value of a cookie, over all lines of the field.
///
/// Quotes around it are not part of it, and it is known by what it says when
/// percent-decoded, as its name is: services read cookies with or without. A
/// value that is empty or not visible ASCII is no key, and neither is a cookie
/// that is there twice with two values.
///
/// A cookie that stands for a login is a secret: take a
/// [`Secret`](super::Secret) of it. Anyone can send any cookie: one that is not checked
/// before this layer gives each client as many fresh quotas as it makes values up.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{Cookie, Secret};
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/cart", 1).by_origin())
///     .origin(Secret::new(Cookie::new("sid")));
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
    /// The cookie `name`, as it reads when decoded.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The value in `pair`, if that is the cookie. One that is no text is
    /// nothing, so that it does not hide behind another.
    fn value<'a>(&self, pair: &'a [u8]) -> Option<Encoded<'a>> {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let is_name = std::str::from_utf8(name).is_ok_and(|name| Encoded::path(name).is(&self.0));
        if !is_name {
            return None;
        }
        let text = match std::str::from_utf8(unquoted(value)) {
            Ok(text) if text.is_ascii() => text,
            _ => "",
        };
        Some(Encoded::path(text))
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        value => value,
    }
}

impl KeyExtractor for Cookie {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let lines = head.headers().get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
        Encoded::only(pairs.filter_map(|pair| self.value(pair)))
    }
}
