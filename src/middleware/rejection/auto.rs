//! The default rejection, which answers HTTP and gRPC requests in their own formats.

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, HeaderValue, Response};
use bytes::Bytes;

use super::grpc::Grpc;
use super::http::Http;
use super::{Rejection, is_grpc};
use crate::blocked::Blocked;
use crate::key::Head;

/// Uses [`Grpc`] for requests with gRPC's content type, and [`Http`] for all others. This
/// is the default.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::rejection::{Auto, Http, RateLimitFields};
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/search", 0).id("search"))
///     .reject(Auto::new().http(Http::new().fields(RateLimitFields::Ietf)));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let answer = async |content_type: &str| {
///     let request = Request::post("/search").header("content-type", content_type);
///     service.clone().oneshot(request.body(()).unwrap()).await.unwrap()
/// };
/// let refused = answer("text/plain").await;
/// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(refused.headers()["ratelimit-policy"], "\"search\";q=0;w=1");
/// assert_eq!(answer("application/grpc").await.headers()["grpc-status"], "8");
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Auto {
    pub(super) http: Http,
    pub(super) grpc: Grpc,
}

impl Auto {
    /// Creates a rejection with the defaults of [`Http`] and [`Grpc`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how requests that are not gRPC are answered.
    #[must_use]
    pub fn http(mut self, http: Http) -> Self {
        self.http = http;
        self
    }

    /// Sets how gRPC requests are answered.
    #[must_use]
    pub fn grpc(mut self, grpc: Grpc) -> Self {
        self.grpc = grpc;
        self
    }
}

impl Rejection for Auto {
    fn reject(&self, head: Head<'_>, blocked: &Blocked) -> Response<Bytes> {
        if is_grpc(head.headers()) {
            self.grpc.reject(head, blocked)
        } else {
            self.http.reject(head, blocked)
        }
    }
}

/// The rest of the content type after `application/grpc`, such as `+proto`; `None` for other
/// types.
#[inline]
pub(super) fn behind_grpc(headers: &HeaderMap) -> Option<&[u8]> {
    const GRPC: u128 = u128::from_ne_bytes(*b"application/grpc");
    // Turns upper case into lower case. Of the bytes that a field can have, only `/` becomes `/`.
    const SMALL: u128 = u128::from_ne_bytes([0x20; 16]);
    // Most responses have the content type as their first field, and a look there is cheaper than
    // hashing the name.
    let content_type = match headers.iter().next()? {
        (name, value) if name == CONTENT_TYPE => value,
        _ => content_type_behind_first(headers)?,
    };
    let (media, behind) = content_type.as_bytes().split_first_chunk()?;
    (u128::from_ne_bytes(*media) | SMALL == GRPC).then_some(behind)
}

// Not inlined, as the hash takes many registers.
#[inline(never)]
pub(super) fn content_type_behind_first(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(&CONTENT_TYPE)
}
