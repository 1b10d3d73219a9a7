//! Extractors: they find keys in requests.
//!
//! A [`KeyExtractor`] looks at the [`Head`] of a request and returns a key for something in it: the
//! resource that is called, or the caller. The key borrows from the request, so a known key costs
//! no allocation.
//!
//! # Requests without a key
//!
//! An extractor may find no key: a header is missing, or [`PeerIp`] finds no address because the
//! server does not pass it on. By default a rule counts all requests without a key together, as the
//! requests of one caller, so that they share one quota; see [`MissingKey`](crate::MissingKey). If
//! an extractor never finds a key, all callers share that quota. [`PeerIp`] describes how to notice
//! this.
//!
//! # Different spellings of a key
//!
//! If a client could write one key in many ways, it would have a quota for each of them.
//! So an encoded value is known by the text that it decodes to: [`Query`], [`Cookie`]
//! and [`PathParam`] take `ab` and `a%62` as one key. If a parameter or a cookie occurs
//! twice, with two values, the request has no key, because it is not known which of the
//! two the service will read.
//!
//! A path is used as it is written, because routers do so: axum has no route for `/%61` or `//a`
//! where `/a` is a route. But a service that decodes or normalizes its paths itself, such as a file
//! server or a server behind a proxy, does answer these paths, and rules for `/a` do not apply to
//! them. For a service of this kind, let an earlier layer set the path, as the service reads it, as
//! a [`ResourceName`]; or name rules by templates that match any spelling, such as `/{*file}`.
//!
//! Decoding does not make a value trustworthy. If clients can make up a value, as in a header that
//! has not been checked, use a second rule for a key that they cannot make up, such as [`PeerIp`].
//! An [`or`](KeyExtractor::or) is no substitute for two rules: it uses only one of the two keys.
//!
//! # The default resource
//!
//! A layer without [`resource`](crate::SentinelLayer::resource) names the resource by
//!
//! 1. an explicit [`ResourceName`] in the request's extensions, or else
//! 2. the route: axum's matched path (feature `axum`), or else the template among the rules'
//!    resources that matches the path, or else the path.
//!
//! The target of a `CONNECT` has no path, unless it opens a WebSocket over HTTP/2. All requests
//! without a path are one resource, whose name is empty, so that only rules for `*` apply to it:
//! name them by [`Authority`]. The path of `OPTIONS *` is `*`, which no template matches.
//!
//! If axum's path ends with `{*rest}`, rules may name the paths below it. For example, tonic adds a
//! service to a router as `/shop.Orders/{*rest}`; there `/shop.Orders/List` is a separate resource
//! if a rule has that name. If the path was rewritten between two routers, the inner router's path
//! counts.
//!
//! An [outbound](crate::SentinelLayer::outbound) call is never named by axum's matched
//! path: when a proxy forwards a request, that path says where the request came in, and
//! not where it goes.
//!
//! A path that no router has matched has a place only while the engine's table has room; beyond
//! that it is counted under `__overflow__`, and the rules for that name apply. A matched path
//! always has a place, and so does a name in a rule: requests for made-up paths cannot displace a
//! route.
//!
//! Inside an axum `nest` the path has lost its prefix. A layer around a service that is
//! given to `nest_service` sees no matched path, and neither does a layer around a whole
//! router with a `nest_service`. There names come from templates, which miss some requests:
//! a router at `/api` also answers `/api//users/7`, because axum strips the prefix even if
//! two slashes follow it, and the template `/api/users/{id}` does not match that. Add the
//! layer to the router that is nested.
//!
//! A request that reaches the fallback of a nested router has no matched path there, so a
//! layer on that router names it by the path that is left. That may be the name of a route
//! outside of it: `/api/users/7` may count as a request for `/users/{id}`. There, add the
//! layer to the outer router.
//!
//! # What the feature `axum` changes
//!
//! With it, [`Route`], [`MethodRoute`], [`PathParam`] and the default resource look at the path
//! that axum's router has matched. Without it they look only at the path, and at the templates
//! among the rules' resources. So the same request may have two names:
//!
//! | a request for | with `axum` | without |
//! |---|---|---|
//! | `/users/7` at the route `/users/{id}` | `/users/{id}` | `/users/{id}` if a rule has that name, else `/users/7` |
//! | `/api/users/7`, where the layer is on a router that is nested at `/api` | `/api/users/{id}` | `/users/{id}` if a rule has that name, else `/users/7` |
//! | `/shop.Orders/List`, a method of a tonic service in a router | `/shop.Orders/{*rest}`, or `/shop.Orders/List` if a rule has that name | `/shop.Orders/List` |
//!
//! [`PeerIp`] and [`ForwardedIp`] find the addresses of axum's connections only with `axum`,
//! and the addresses of tonic's connections only with `tonic`.
//!
//! Cargo turns a feature on for all crates of a program if one of them asks for it. So a
//! program that uses axum should turn `axum` on itself; then no other crate changes its
//! names. A library that cannot know should name its resources itself: by
//! [`SentinelLayer::resource`](crate::SentinelLayer::resource) with an extractor that does
//! not look at routes ([`from_fn`], [`Path`], [`Authority`]), or by a [`ResourceName`] in the
//! request's extensions.
//!
//! # Examples
//!
//! ```
//! # use http::{Request, Response, StatusCode};
//! # use tower::{Layer, ServiceExt, service_fn};
//! use tower_sentinel::key::{ClientAddr, Header, KeyExtractor, MethodRoute, PeerIp};
//! use tower_sentinel::{AuthorityRule, SentinelLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = SentinelLayer::new(AuthorityRule::deny("POST /orders/{id}", ["robot", "192.0.2.7"]))
//!     .resource(MethodRoute)
//!     .origin(Header::from_static("x-user").or(PeerIp));
//! # let service = layer.layer(service_fn(|_: Request<()>| async {
//! #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
//! # }));
//! # let status = async |method: &str, user: &str| {
//! #     let peer = ClientAddr("192.0.2.7:4000".parse().unwrap());
//! #     let request = Request::builder().method(method).uri("/orders/7").header("x-user", user);
//! #     let request = request.extension(peer).body(()).unwrap();
//! #     service.clone().oneshot(request).await.unwrap().status()
//! # };
//! assert_eq!(status("POST", "ann").await, StatusCode::OK);
//! assert_eq!(status("POST", "robot").await, StatusCode::FORBIDDEN);
//! assert_eq!(status("GET", "robot").await, StatusCode::OK);
//! // An empty header is no key, so the address counts, and it is denied.
//! assert_eq!(status("POST", "").await, StatusCode::FORBIDDEN);
//! # });
//! ```

mod cookie;
mod criticality;
mod forwarded;
mod head;
mod header;
mod ip;
mod nets;
mod or;
mod path_param;
mod query;
mod route;
mod secret;

use std::fmt;
use std::sync::Arc;

use crate::call::Key;

pub use cookie::Cookie;
pub use criticality::CriticalityHeader;
pub use forwarded::ForwardedIp;
pub use head::Head;
pub use header::Header;
pub use ip::{ClientAddr, ClientIp, PeerIp, cut_ip};
pub(crate) use nets::Nets;
pub use or::Or;
pub use path_param::PathParam;
pub use query::Query;
pub use route::{Authority, MethodRoute, Path, Route};
pub use secret::{Bearer, Secret};

/// A name for the resource of a request. An earlier layer inserts it into the request's
/// extensions; see [the default resource](self#the-default-resource).
///
/// It stays with the request. So if a proxy forwards a request as it came in, the outbound
/// call has this name as well, and rules for the path at the upstream do not apply to it:
/// remove it first, or name outbound calls by
/// [`SentinelLayer::resource`](crate::SentinelLayer::resource).
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::ResourceName;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("reports", 1));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |path: &str| {
///     let request = Request::get(path).extension(ResourceName::new("reports")).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("/reports/sales").await, StatusCode::OK);
/// assert_eq!(status("/reports/stock").await, StatusCode::TOO_MANY_REQUESTS);
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// Creates a name for a resource.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

/// Finds a key in a request: the resource, the caller, or a parameter.
///
/// A layer calls its extractors once for each request that is not skipped, and again if the
/// rules change meanwhile. They must not panic. To test an extractor without a layer, make a
/// [`Head`] with [`Head::of`].
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{Head, KeyExtractor};
/// use tower_sentinel::{KeyedRule, Key, ManualClock, MissingKey, Sentinel, SentinelLayer};
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
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let rule = KeyedRule::per_second("/{*any}", 1).missing(MissingKey::Refuse);
/// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
/// let layer = SentinelLayer::with(sentinel).param(Tenant);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |path: &str| {
/// #     let request = Request::get(path).body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("/t/acme/orders").await, StatusCode::OK);
/// assert_eq!(status("/t/acme/users").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/t/initech/orders").await, StatusCode::OK);
/// // This path names no tenant.
/// assert_eq!(status("/orders").await, StatusCode::FORBIDDEN);
/// # });
/// ```
#[diagnostic::on_unimplemented(note = "closures: `key::from_fn`; one name: `SentinelLayer::named`")]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key, or `None` if the request has no key; see
    /// [requests without a key](self#requests-without-a-key).
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>>;

    /// Returns whether the key is, or can be, the address of the peer of the connection. Behind a
    /// proxy, this is the address of the proxy. No rule depends on the result: an engine uses it to
    /// [find](crate::hook::FindingKind::BehindProxy) that all callers have the key of a proxy.
    /// Default: false.
    fn reads_peer(&self) -> bool {
        false
    }

    /// Returns an extractor that finds this key, or if it finds no key, the key of `other`: a
    /// user's name, or else the address. A text is never the same key as an address, even if it
    /// looks like one.
    ///
    /// Only one of the keys counts, so the first must be one that clients cannot make up.
    /// With `Cookie::new("user").or(PeerIp)`, a client that sends a made-up cookie
    /// with each request has a fresh quota for each of them, and is never counted by its
    /// address. If the first key is not checked before the layer, use two parameters and
    /// a rule for each of them instead.
    ///
    /// ```
    /// use http::{Request, Response, StatusCode};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::key::{ClientAddr, Header, KeyExtractor, PeerIp};
    /// use tower_sentinel::{KeyedRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// // The header is set by a proxy that has authenticated the caller.
    /// let layer = SentinelLayer::new(KeyedRule::per_second("/search", 1))
    ///     .param(Header::from_static("x-user").or(PeerIp));
    /// let service = layer.layer(service_fn(|_: Request<()>| async {
    ///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// }));
    ///
    /// let status = async |user: &str| {
    ///     let peer = ClientAddr("192.0.2.7:4000".parse().unwrap());
    ///     let request = Request::get("/search").header("x-user", user).extension(peer);
    ///     service.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
    /// };
    /// assert_eq!(status("ann").await, StatusCode::OK);
    /// assert_eq!(status("").await, StatusCode::OK);
    /// assert_eq!(status("").await, StatusCode::TOO_MANY_REQUESTS);
    /// assert_eq!(status("ann").await, StatusCode::TOO_MANY_REQUESTS);
    /// # });
    /// ```
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or::new(self, other)
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        (**self).key(head)
    }

    fn reads_peer(&self) -> bool {
        (**self).reads_peer()
    }
}

/// Creates an extractor from a function.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::from_fn;
/// use tower_sentinel::{KeyedRule, Key, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/search", 1))
///     .param(from_fn(|head| head.uri().query().map(Key::Str)));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |target: &str| {
///     let request = Request::get(target).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("/search?shoes").await, StatusCode::OK);
/// assert_eq!(status("/search?shoes").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/search?hats").await, StatusCode::OK);
/// # });
/// ```
pub fn from_fn<F>(f: F) -> FromFn<F>
where
    F: for<'a> Fn(Head<'a>) -> Option<Key<'a>> + Send + Sync + 'static,
{
    FromFn(f)
}

/// An extractor from a function; see [`from_fn`].
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{FromFn, Head, from_fn};
/// use tower_sentinel::{FlowRule, Key, SentinelLayer};
///
/// /// A function pointer gives the extractor a type that can be named.
/// struct Naming {
///     resource: FromFn<fn(Head<'_>) -> Option<Key<'_>>>,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let naming = Naming { resource: from_fn(|head| head.uri().query().map(Key::Str)) };
/// let layer = SentinelLayer::new(FlowRule::per_second("export", 0)).resource(naming.resource);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// # let status = async |target: &str| {
/// #     let request = Request::get(target).body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("/do?export").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/do?import").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromFn")
            .field(&std::any::type_name::<F>())
            .finish()
    }
}

impl<F> KeyExtractor for FromFn<F>
where
    F: for<'a> Fn(Head<'a>) -> Option<Key<'a>> + Send + Sync + 'static,
{
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        (self.0)(head)
    }
}
