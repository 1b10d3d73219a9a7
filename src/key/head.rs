//! `Head`: what extractors see of a request.

use http::{Extensions, HeaderMap, Method, Request, Uri};

use super::ResourceName;
use super::{path_param, route};
use crate::call::{Direction, Key};
use crate::engine::registry::Routes;

/// A request without its body. Its `Debug` output has all header fields, also those with
/// secrets.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use http::Method;
/// use tower_sentinel::key::Head;
/// use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
///
/// /// A new order costs as much as five reads.
/// fn cost(head: Head<'_>) -> u32 {
///     assert_eq!(head.uri().path(), "/orders/7");
///     assert_eq!(head.route(), "/orders/{id}");
///     if head.method() == Method::POST { 5 } else { 1 }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("/orders/{id}", 6))
///     .clock(ManualClock::new())
///     .build();
/// let layer = SentinelLayer::with(sentinel).weight(cost);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |method: Method| {
/// #     let request = Request::builder().method(method).uri("/orders/7").body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status(Method::POST).await, StatusCode::OK);
/// assert_eq!(status(Method::POST).await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status(Method::GET).await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    pub(super) extensions: &'a Extensions,
    /// The routes of the engine, if there is one.
    pub(super) routes: Option<&'a Routes<'a>>,
    pub(super) direction: Direction,
}

impl<'a> Head<'a> {
    pub(crate) fn new<B>(
        request: &'a Request<B>,
        routes: &'a Routes<'a>,
        direction: Direction,
    ) -> Self {
        Self {
            routes: Some(routes),
            direction,
            ..Self::of(request)
        }
    }

    /// Returns the head of `request`, for tests without a layer of code that takes a head: a
    /// [`KeyExtractor`](super::KeyExtractor), a [`ClientIp`](super::ClientIp), a
    /// [`Rejection`](crate::middleware::rejection::Rejection).
    ///
    /// Without a layer there are no rules whose templates might match the path: the
    /// [route](Self::route) is what axum has matched, or else the path.
    ///
    /// ```
    /// use http::Request;
    /// use tower_sentinel::Key;
    /// use tower_sentinel::key::{Head, KeyExtractor};
    ///
    /// /// The tenant, as in `/t/acme/orders`.
    /// struct Tenant;
    ///
    /// impl KeyExtractor for Tenant {
    ///     fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
    ///         let (tenant, _) = head.uri().path().strip_prefix("/t/")?.split_once('/')?;
    ///         Some(Key::Str(tenant))
    ///     }
    /// }
    ///
    /// let cases = [("/t/acme/orders", Some("acme")), ("/t/acme", None), ("/orders", None)];
    /// for (target, expected) in cases {
    ///     let request = Request::get(target).body(())?;
    ///     assert_eq!(Tenant.key(Head::of(&request)), expected.map(Key::Str), "{target}");
    /// }
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            routes: None,
            direction: Direction::Inbound,
        }
    }

    /// Returns the method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the target, as the layer sees it.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, in which other layers can leave information.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns whether the call comes in or goes out.
    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the route: axum's matched path (feature `axum`) unless the call is outbound, or else
    /// the template among the rules' resources that matches the path, or else the path itself. If
    /// the matched path ends with `{*rest}`, and a template among the rules' resources matches and
    /// begins like that path, the route is that template.
    #[must_use]
    #[inline]
    pub fn route(&self) -> &'a str {
        self.route_and_match().0
    }

    /// Returns the route, and whether a router has matched it.
    #[inline(always)]
    fn route_and_match(&self) -> (&'a str, bool) {
        if let Some(matched) = self.matched() {
            let route = match route::before_rest(matched) {
                None => matched,
                Some(prefix) => self.named_below(matched, prefix).unwrap_or(matched),
            };
            return (route, true);
        }
        let path = self.uri.path();
        (self.template(path).unwrap_or(path), false)
    }

    /// Returns the path that a router has matched; `None` for an outbound call: if it forwards a
    /// request, the matched path is where the request came in, not where it goes.
    #[inline]
    pub(super) fn matched(&self) -> Option<&'a str> {
        match self.direction {
            Direction::Inbound => route::matched(self.extensions),
            Direction::Outbound => None,
        }
    }

    /// Returns the template among the rules' resources that matches `path`.
    #[inline]
    pub(super) fn template(&self, path: &str) -> Option<&'a str> {
        self.routes?.matching(path)
    }

    /// Returns the template among the rules' resources that matches the path, if it begins with
    /// `prefix`, the part of `matched` before its rest.
    #[inline(never)]
    fn named_below(&self, matched: &str, prefix: &str) -> Option<&'a str> {
        let path = path_param::path_below(*self, matched, prefix);
        let name = self.routes?.naming(&path)?;
        name.starts_with(prefix).then_some(name)
    }

    /// Returns whether the path can differ from the path that routers have matched.
    pub(crate) fn has_lost_slashes(&self) -> bool {
        route::has_lost_slashes(*self)
    }

    /// Returns the resource that a layer uses by default; see
    /// [the default resource](super#the-default-resource).
    #[must_use]
    #[inline]
    pub fn resource(&self) -> Key<'a> {
        self.resource_and_match().0
    }

    /// Returns the resource, and whether a router has matched it.
    #[inline(always)]
    pub(crate) fn resource_and_match(&self) -> (Key<'a>, bool) {
        match self.extensions.get::<ResourceName>() {
            Some(ResourceName(name)) => (Key::Str(name), false),
            None => {
                let (route, is_matched) = self.route_and_match();
                (Key::Str(route), is_matched)
            }
        }
    }
}
