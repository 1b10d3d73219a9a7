//! Keys from the query of a request.

use std::sync::Arc;

use super::{Head, KeyExtractor};
use crate::call::{Encoded, Key};

/// The value of a parameter of the query, as in `?user=ann`.
///
/// The key is the decoded value: `a%62` and `ab` are one key, a `+` is a space, and the name may be
/// encoded as well. Bytes that do not decode to UTF-8 are replaced, as most services do. The
/// request has no key if the value is empty, or if the parameter has two values: some services read
/// the first, others the last.
///
/// Each look-up walks over the query. It does not allocate; if the value is encoded, it is
/// decoded each time, without an allocation up to 512 bytes.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Query;
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/report", 1))
///     .param(Query::new("user"));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |target: &str| {
///     let request = Request::get(target).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("/report?user=ann&page=1").await, StatusCode::OK);
/// assert_eq!(status("/report?user=ann&page=2").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/report?user=%61nn").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/report?user=bob").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Query(Arc<str>);

impl Query {
    /// Creates an extractor for the parameter `name`, in decoded form.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl KeyExtractor for Query {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let pairs = head.uri().query()?.split('&');
        let values = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Encoded::form(name)
                .is(&self.0)
                .then(|| Encoded::form(value))
        });
        Encoded::only(values)
    }
}
