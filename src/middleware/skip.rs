//! Requests to exempt from all rules: health checks, preflights, your own networks.
//!
//! Each function returns a predicate for
//! [`SentinelLayer::skip`](crate::SentinelLayer::skip). Since no rule limits a skipped
//! request, these predicates do not trust what a client may claim: they ignore forwarded
//! addresses that no trusted proxy wrote, and skip no path that may lead elsewhere.
//!
//! # Examples
//!
//! ```
//! # use http::{Request, Response, StatusCode};
//! # use tower::{Layer, ServiceExt, service_fn};
//! use tower_sentinel::middleware::skip;
//! use tower_sentinel::{FlowRule, Rules, SentinelLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let rules = Rules::new()
//!     .with(FlowRule::per_second("/orders", 0))
//!     .with(FlowRule::per_second("/healthz", 0));
//! let layer = SentinelLayer::new(rules).skip(skip::options()).skip(skip::paths(["/healthz"]));
//! # let service = layer.layer(service_fn(|_: Request<()>| async {
//! #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
//! # }));
//! # let status = async |path: &str| {
//! #     let request = Request::get(path).body(()).unwrap();
//! #     service.clone().oneshot(request).await.unwrap().status()
//! # };
//! assert_eq!(status("/orders").await, StatusCode::TOO_MANY_REQUESTS);
//! // No rule applies to it, and it is counted nowhere.
//! assert_eq!(status("/healthz").await, StatusCode::OK);
//! assert!(layer.sentinel().node("/healthz").is_none());
//! # });
//! ```

use http::Method;
use ipnet::IpNet;
use matchit::Router;

use crate::call::Encoded;
use crate::key::{ClientIp, Head, Nets};
use crate::rule::check_template;

/// Selects requests whose path matches one of `templates`, in the syntax of the rules' templates:
/// `/healthz`, `/static/{*rest}`, `/users/{id}/avatar`. The method does not matter.
///
/// The path is the one that the layer sees, as it was sent. A path with a segment `.` or `..`, in
/// any spelling, is not skipped: the service may interpret it as another path. A path that has lost
/// doubled slashes in front of a nested router is not skipped either: axum may have matched it as
/// another path.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::skip;
/// use tower_sentinel::{SentinelLayer, SystemRule};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(SystemRule::new().concurrency(0))
///     .skip(skip::paths(["/healthz", "/static/{*rest}"]));
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |path: &str| {
/// #     let request = Request::get(path).body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("/healthz").await, StatusCode::OK);
/// assert_eq!(status("/static/css/site.css").await, StatusCode::OK);
/// assert_eq!(status("/orders").await, StatusCode::SERVICE_UNAVAILABLE);
/// // It looks like a static file, and may be something else.
/// assert_eq!(status("/static/%2e%2e/orders").await, StatusCode::SERVICE_UNAVAILABLE);
/// # });
/// ```
///
/// # Panics
///
/// Panics if a template is invalid, does not begin with `/`, or conflicts with another template.
#[track_caller]
pub fn paths<T: AsRef<str>>(
    templates: impl IntoIterator<Item = T>,
) -> impl Fn(Head<'_>) -> bool + Send + Sync + 'static {
    let mut router = Router::new();
    for template in templates {
        let template = template.as_ref();
        assert!(
            template.starts_with('/'),
            "a path to skip must begin with '/', as \"/static/{{*rest}}\" does: {template:?}"
        );
        if let Err(allowed) = check_template(template) {
            panic!("a path to skip is {template:?}, must be {allowed}");
        }
        if let Err(error) = router.insert(template, ()) {
            panic!("{template:?} is no template of paths to skip: {error}");
        }
    }
    move |head: Head<'_>| {
        let path = head.uri().path();
        router.at(path).is_ok() && !has_dot_segment(path) && !head.has_lost_slashes()
    }
}

/// Returns whether `path` has a segment `.` or `..`, so that the service may read it as another
/// path.
fn has_dot_segment(path: &str) -> bool {
    Encoded::path(path).with_text(|path| {
        path.split(['/', '\\'])
            // Some servers read the text after a semicolon as a parameter.
            .map(|segment| segment.split(';').next().unwrap_or(segment))
            .any(|segment| matches!(segment, "." | ".."))
    })
}

/// Selects requests with the method `OPTIONS`, such as the preflights of browsers. If a
/// preflight is refused, the browser does not send the actual request.
///
/// Anyone can send requests with this method, without limit. Do not skip them where the service
/// does work for them.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::skip;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/orders", 0)).skip(skip::options());
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |method: &str| {
/// #     let request = Request::builder().method(method).uri("/orders").body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("OPTIONS").await, StatusCode::OK);
/// assert_eq!(status("POST").await, StatusCode::TOO_MANY_REQUESTS);
/// # });
/// ```
pub fn options() -> impl Fn(Head<'_>) -> bool + Send + Sync + 'static {
    |head: Head<'_>| head.method() == Method::OPTIONS
}

/// Selects requests of clients in `nets`, by the address that `client` finds:
/// [`PeerIp`](crate::key::PeerIp), or
/// [`ForwardedIp`](crate::key::ForwardedIp) behind proxies.
///
/// The full address is compared, so a network may be smaller than the `/64` by which IPv6 clients
/// are distinguished. If the address is not known for sure, the request is not skipped. Behind a
/// proxy the peer of every connection is the proxy: use the same extractor as for the rules, or
/// every client may count as being in the proxy's network.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{ClientAddr, ForwardedIp};
/// use tower_sentinel::middleware::skip;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let client = ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]);
/// let office = "198.51.100.0/24".parse().unwrap();
/// let layer = SentinelLayer::new(FlowRule::per_second("/orders", 0))
///     .skip(skip::nets(client, [office]));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |peer: &str, forwarded: &str| {
///     let request = Request::get("/orders")
///         .header("x-forwarded-for", forwarded)
///         .extension(ClientAddr(peer.parse().unwrap()));
///     service.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
/// };
/// assert_eq!(status("10.0.0.1:80", "198.51.100.7").await, StatusCode::OK);
/// // Not from the office, and not from a proxy.
/// assert_eq!(status("10.0.0.1:80", "203.0.113.9").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("203.0.113.9:80", "198.51.100.7").await, StatusCode::TOO_MANY_REQUESTS);
/// # });
/// ```
pub fn nets(
    client: impl ClientIp,
    nets: impl IntoIterator<Item = IpNet>,
) -> impl Fn(Head<'_>) -> bool + Send + Sync + 'static {
    let nets = Nets::new(nets);
    move |head: Head<'_>| client.client_ip(head).is_some_and(|ip| nets.contain(ip))
}
