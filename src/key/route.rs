//! Keys from the target of a request.

use http::header::HOST;

use super::header::only_value;
use super::{Head, KeyExtractor};
use crate::call::{Encoded, Key};

/// The path, as the layer sees it.
///
/// Every path is a separate key: use this where there are few paths, or where all of them have
/// rules.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Path;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/files/dump.zip", 0)).resource(Path);
/// # let sentinel = layer.sentinel().clone();
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |target: &str| {
/// #     let request = Request::get(target).body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("/files/dump.zip?part=1").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/files/logo.svg").await, StatusCode::OK);
/// assert!(sentinel.node("/files/logo.svg").is_some());
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Path;

impl KeyExtractor for Path {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        Some(Key::Str(head.uri().path()))
    }
}

/// The route, as in `/users/{id}`; see [`Head::route`], and
/// [what the feature `axum` changes](super#what-the-feature-axum-changes).
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Route;
/// use tower_sentinel::{FlowRule, KeyedRule, ManualClock, Rules, Sentinel, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // One resource, in which each route has a quota of its own.
/// let rules = Rules::new()
///     .with(KeyedRule::per_second("api", 1))
///     .with(FlowRule::per_second("/users/{id}", 100));
/// let sentinel = Sentinel::builder().rules(rules).clock(ManualClock::new()).build();
/// let layer = SentinelLayer::with(sentinel).named("api").param(Route);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |path: &str| {
/// #     let request = Request::get(path).body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("/users/1").await, StatusCode::OK);
/// assert_eq!(status("/users/2").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/orders").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Route;

impl KeyExtractor for Route {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        Some(Key::Str(head.route()))
    }
}

/// The method and the route, as in `GET /users/{id}`.
///
/// The method is the one that was sent. axum and most other routers answer `HEAD` by
/// the handler of `GET`, and a rule for `GET /users/{id}` does not apply to those calls:
/// limit `HEAD /users/{id}` as well. A WebSocket is opened by `GET` over HTTP/1, and by
/// `CONNECT` over HTTP/2.
///
/// A handler for `any` method also answers methods that a client makes up, such as `GETT`. Each of
/// them is a resource to which only rules for `*` apply: limit a route for any method by [`Route`],
/// over all methods.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::MethodRoute;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("POST /orders", 1)).resource(MethodRoute);
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |method: &str| {
///     let request = Request::builder().method(method).uri("/orders").body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("POST").await, StatusCode::OK);
/// assert_eq!(status("POST").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("GET").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodRoute;

impl KeyExtractor for MethodRoute {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        Some(Key::Joined(head.method().as_str(), head.route()))
    }
}

/// The host that the request is for, without user and port: the host of the target, or of the
/// `Host` field if the target has none. The key is in lower case and without a dot at its end,
/// however the host was sent: upper case and a final dot do not make it another host.
///
/// The request has no key if the host is empty, or if the field occurs twice with two values. A
/// layer around a tonic client, outside of its channel, does not see the host: its calls have no
/// key, and count as the resource `-`.
///
/// The host of the target takes precedence over the field, as in RFC 9112. If a service
/// looks only at the field, a client can send it another host there than in the target, and
/// so get a fresh quota with each target: let the service read the target first, too.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::Authority;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("api.example", 1)).resource(Authority);
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |target: &str| {
///     let request = Request::get(target).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("http://api.example/a").await, StatusCode::OK);
/// assert_eq!(status("http://API.example:8080/b").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("http://shop.example/a").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Authority;

impl KeyExtractor for Authority {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let host = match head.uri().host() {
            Some(host) => host,
            None => {
                let host = only_value(head.headers(), &HOST)?;
                without_port(without_user(host))
            }
        };
        Encoded::host(host.strip_suffix('.').unwrap_or(host)).key()
    }
}

/// Returns `host` without a user, which the field should not have, but can have.
fn without_user(host: &str) -> &str {
    host.rsplit_once('@').map_or(host, |(_, host)| host)
}

/// Returns `host` without a port; the brackets of an IPv6 address stay.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// Returns the path that axum's router has matched.
#[cfg(feature = "axum")]
#[inline]
pub(super) fn matched(extensions: &http::Extensions) -> Option<&str> {
    extensions
        .get::<axum::extract::MatchedPath>()
        .map(axum::extract::MatchedPath::as_str)
}

/// Without axum no path is matched.
#[cfg(not(feature = "axum"))]
pub(super) fn matched(_: &http::Extensions) -> Option<&str> {
    None
}

/// Returns the part of `route` before a wildcard such as `{*rest}`, if `route` ends with a
/// wildcard.
#[inline]
pub(super) fn before_rest(route: &str) -> Option<&str> {
    let (prefix, name) = route.strip_suffix('}')?.rsplit_once('{')?;
    name.starts_with('*').then_some(prefix)
}

/// A path, and the length in bytes of the prefix that outer routers have taken off: a nested router
/// of axum sees only the rest of the path.
pub(super) type PathWithPrefix<'a> = (&'a str, usize);

/// The path that axum's router has matched. If the path was rewritten between two routers or after
/// the last router, it is unknown which of two paths the router has matched, and both are given.
pub(super) type Paths<'a> = (PathWithPrefix<'a>, Option<&'a str>);

/// Returns the path that axum's router has matched, or the two candidates; see [`Paths`].
pub(super) fn matched_on(head: Head<'_>) -> Paths<'_> {
    let here = head.uri().path();
    let Some(original) = original(head) else {
        return ((here, 0), None);
    };
    match taken_off(here, original) {
        Some("") => ((here, 0), None),
        // The prefix was taken off by nested routers only if it has no more segments than their
        // template: a rewritten path can look like one without its prefix.
        Some(outer) if segment_count(outer) <= segment_count(nested(head)) => {
            ((original, outer.len()), None)
        }
        _ => ((here, 0), Some(original)),
    }
}

/// Returns the part that routers have taken off the `original` path, if `path` is the end of it.
fn taken_off<'a>(path: &str, original: &'a str) -> Option<&'a str> {
    // If nothing is left of a path, axum leaves a slash.
    let all = (path == "/").then_some(original);
    original.strip_suffix(path).or(all)
}

/// Returns the number of segments of a path or a template that are not empty.
fn segment_count(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}

/// Returns the template of the part that outer routers take off.
#[cfg(feature = "axum")]
fn nested(head: Head<'_>) -> &str {
    let nested = head.extensions().get::<axum::extract::NestedPath>();
    nested.map_or("", axum::extract::NestedPath::as_str)
}

/// Without axum no router is nested.
#[cfg(not(feature = "axum"))]
const fn nested(_: Head<'_>) -> &'static str {
    ""
}

/// Returns the original path of the request, if one of axum's routers has recorded it.
#[cfg(feature = "axum")]
fn original(head: Head<'_>) -> Option<&str> {
    let original = head.extensions().get::<axum::extract::OriginalUri>()?;
    Some(original.path())
}

/// Without axum nothing is recorded.
#[cfg(not(feature = "axum"))]
fn original(_: Head<'_>) -> Option<&str> {
    None
}

/// Returns whether there are two slashes in a row in the part that outer routers have taken off, or
/// right after it.
pub(super) fn has_second_slash((whole, outer): PathWithPrefix<'_>) -> bool {
    outer > 0 && whole.get(..=outer).unwrap_or(whole).contains("//")
}

/// Returns whether routers have taken off a part of the path with two slashes in a row. The rest
/// can then differ from the path that they have matched: a router that is merged into another takes
/// the second slash for an empty parameter.
pub(super) fn has_lost_slashes(head: Head<'_>) -> bool {
    let original = original(head);
    let outer = original.and_then(|original| taken_off(head.uri().path(), original));
    let whole = original.zip(outer.map(str::len));
    whole.is_some_and(has_second_slash)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn key_of(extractor: &impl KeyExtractor, request: &http::Request<()>) -> Option<String> {
        extractor.key(Head::of(request)).map(|key| key.to_string())
    }

    #[test]
    fn the_authority_is_the_host_without_its_port() {
        let cases = [
            (
                "http://api.example.com:8080/x",
                None,
                Some("api.example.com"),
            ),
            ("http://user@[::1]:80/x", None, Some("[::1]")),
            // The target of a CONNECT.
            ("api.example.com:443", None, Some("api.example.com")),
            ("/x", Some("shop.example:81"), Some("shop.example")),
            ("/x", Some("[2001:db8::1]"), Some("[2001:db8::1]")),
            ("/x", Some("[2001:db8::1]:443"), Some("[2001:db8::1]")),
            ("http://API.Example.com./x", None, Some("api.example.com")),
            ("/x", Some("SHOP.example.:81"), Some("shop.example")),
            // A port may be empty, and a text that is no number is no port.
            ("/x", Some("shop.example:"), Some("shop.example")),
            ("/x", Some("shop.example:8a"), Some("shop.example:8a")),
            // Without brackets the port cannot be found.
            ("/x", Some("2001:db8::1"), Some("2001:db8::1")),
            ("/x", Some("user@shop.example"), Some("shop.example")),
            ("/x", Some("a:b@c@[::1]:80"), Some("[::1]")),
            ("/x", Some(" shop.example:81\t"), Some("shop.example")),
            ("/x", Some(" "), None),
            ("/x", Some("user@"), None),
            ("/x", Some(""), None),
            ("/x", None, None),
        ];
        for (uri, host, expected) in cases {
            let mut request = http::Request::builder().uri(uri);
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            let request = request.body(()).unwrap();
            assert_eq!(
                key_of(&Authority, &request).as_deref(),
                expected,
                "{uri} {host:?}"
            );
        }
    }

    #[test]
    fn requests_with_two_hosts_have_no_key() {
        for (other, expected) in [("a.example", Some("a.example")), ("b.example", None)] {
            let request = http::Request::get("/x").header(HOST, "a.example");
            let request = request.header(HOST, other).body(()).unwrap();
            assert_eq!(key_of(&Authority, &request).as_deref(), expected);
        }
    }

    #[test]
    fn requests_with_a_host_that_is_not_text_have_no_key() {
        let mut request = http::Request::new(());
        let value = http::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
        request.headers_mut().insert(HOST, value);
        assert_eq!(key_of(&Authority, &request), None);
    }
}
