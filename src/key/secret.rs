//! Secret keys, which only a keyed hash represents.

use std::fmt;
use std::hash::RandomState;

use http::HeaderValue;
use http::header::AUTHORIZATION;

use super::{Head, KeyExtractor};
use crate::call::Key;
use crate::store::Digester;

/// A key that is neither stored nor shown: a 128-bit hash stands for it, in the
/// engine, in snapshots, and to hooks.
///
/// The hash is SipHash, with a random key for each `Secret` and its clones. So a reader of the hash
/// cannot test tokens against it, and it changes at each restart. Rules cannot name such a key. The
/// chance that two keys have the same hash is 2⁻¹²⁸.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{Header, Secret};
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/v1", 1))
///     .param(Secret::new(Header::from_static("x-api-key")));
/// let service = layer.clone().layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |key: &str| {
///     let request = Request::get("/v1").header("x-api-key", key).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("k-1f9c").await, StatusCode::OK);
/// assert_eq!(status("k-1f9c").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("k-77d0").await, StatusCode::OK);
/// assert!(!layer.sentinel().snapshot().to_json().contains("1f9c"));
/// # });
/// ```
#[derive(Clone)]
pub struct Secret<E> {
    inner: E,
    hash: Hashes,
}

/// The keys of the hash.
#[derive(Clone)]
enum Hashes {
    /// Random keys, known only in this process.
    Random([RandomState; 2]),
    /// Keys that all processes derive from one secret.
    Agreed(Digester),
}

impl<E> Secret<E> {
    /// Makes the keys of `inner` secret.
    #[must_use]
    pub fn new(inner: E) -> Self {
        Self {
            inner,
            hash: Hashes::Random([RandomState::new(), RandomState::new()]),
        }
    }

    /// Hashes the keys with hash keys that are derived from `secret`, which all processes of a
    /// service have. Needed by rules that are [shared](crate::FlowRule::shared): with random hash
    /// keys each process hashes a user differently, so a shared rule refuses these calls, as calls
    /// without a key. Whoever knows the secret can test guesses of keys.
    #[must_use]
    pub fn agreed(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.hash = Hashes::Agreed(Digester::new(Some(secret.as_ref())));
        self
    }
}

impl<E: KeyExtractor> KeyExtractor for Secret<E> {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let key = self.inner.key(head)?;
        Some(match &self.hash {
            Hashes::Random(hash) => key.digest(hash),
            Hashes::Agreed(digester) => digester.secret(&key),
        })
    }
}

impl<E: fmt::Debug> fmt::Debug for Secret<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secret").field(&self.inner).finish()
    }
}

/// The token of `Authorization: Bearer …`, as a [`Secret`].
///
/// The word `Bearer` may be in upper or lower case. The request has no key if there is another
/// scheme, if there is no token, if the token is not visible ASCII, or if two lines have two
/// tokens. For other schemes use a [`Secret`] of the [`Header`](super::Header).
///
/// The token is not checked: anyone can make up tokens, and get a fresh quota with each, unless an
/// earlier layer lets only valid tokens through.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Bearer;
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/v1", 1))
///     .param(Bearer::new());
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |value: &str| {
///     let request = Request::get("/v1").header("authorization", value).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("Bearer mF_9.B5f-4.1JqM").await, StatusCode::OK);
/// assert_eq!(status("bearer  mF_9.B5f-4.1JqM").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("Bearer other").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone)]
pub struct Bearer(Secret<BearerToken>);

impl Bearer {
    /// Creates the extractor.
    #[must_use]
    pub fn new() -> Self {
        Self(Secret::new(BearerToken))
    }

    /// Hashes the tokens with hash keys that are derived from `secret`, which all processes of a
    /// service have; see [`Secret::agreed`].
    #[must_use]
    pub fn agreed(self, secret: impl AsRef<[u8]>) -> Self {
        Self(self.0.agreed(secret))
    }
}

impl Default for Bearer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").finish_non_exhaustive()
    }
}

impl KeyExtractor for Bearer {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        self.0.key(head)
    }
}

/// Extracts the token as plain text.
#[derive(Clone, Copy)]
struct BearerToken;

impl KeyExtractor for BearerToken {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let lines = head.headers().get_all(AUTHORIZATION).iter();
        let mut tokens = lines.map(token);
        let first = tokens.next()??;
        tokens
            .all(|token| token == Some(first))
            .then_some(Key::Str(first))
    }
}

/// Returns the token in a value such as `Bearer abc`; `None` if it has another form.
fn token(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.trim().split_once([' ', '\t'])?;
    let token = token.trim_start();
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    (is_bearer && !token.is_empty()).then_some(token)
}
