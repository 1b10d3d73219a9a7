//! The key of one extractor, or else that of another.

use super::{Head, KeyExtractor};
use crate::call::Key;

/// The key of the first extractor, or if it finds none, the key of the second; made by
/// [`KeyExtractor::or`], which says which keys may come first.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{ClientAddr, Header, KeyExtractor, Or, PeerIp};
/// use tower_sentinel::{AuthorityRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let caller: Or<Header, PeerIp> = Header::from_static("x-user").or(PeerIp);
/// let rule = AuthorityRule::deny("/search", ["mallory", "192.0.2.7"]);
/// let layer = SentinelLayer::new(rule).origin(caller);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |user: &str, peer: &str| {
/// #     let peer = ClientAddr(peer.parse().unwrap());
/// #     let request = Request::get("/search").header("x-user", user).extension(peer);
/// #     service.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
/// # };
/// assert_eq!(status("mallory", "192.0.2.8:80").await, StatusCode::FORBIDDEN);
/// // The address counts only if there is no name.
/// assert_eq!(status("ann", "192.0.2.7:80").await, StatusCode::OK);
/// assert_eq!(status("", "192.0.2.7:80").await, StatusCode::FORBIDDEN);
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        self.first.key(head).or_else(|| self.second.key(head))
    }

    fn reads_peer(&self) -> bool {
        self.first.reads_peer() || self.second.reads_peer()
    }
}
