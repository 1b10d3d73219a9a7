//! Layers that end calls at the head of their response, and leave bodies to the service.

use std::marker::PhantomData;

use super::layer::SentinelLayer;
use super::mode::{Mode, Respond, sealed};

/// Calls end at the head of their response, and bodies stay the service's own: see
/// [`SentinelLayer::at_head`](crate::SentinelLayer::at_head). Refusals are reported as by `M`.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// # use http::{Request, Response, StatusCode};
/// use http_body_util::Full;
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::{AsError, AtHead};
/// use tower_sentinel::{Blocked, BoxError, FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let rule = FlowRule::per_second("/search", 0);
/// let server: SentinelLayer<AtHead> = SentinelLayer::new(rule.clone()).at_head();
/// let client: SentinelLayer<AtHead<AsError>> =
///     SentinelLayer::new(rule).outbound().refusals_as_errors().at_head();
///
/// # let service = service_fn(|_: Request<()>| async {
/// #     Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("found")))
/// # });
/// # let request = || Request::get("/search").body(()).unwrap();
/// // The service answers with a `Response<Full<Bytes>>`, and so does the layer.
/// let answer: Result<Response<Full<Bytes>>, Infallible> =
///     server.layer(service).oneshot(request()).await;
/// let Ok(refused) = answer;
/// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
/// let answer: Result<Response<Full<Bytes>>, BoxError> =
///     client.layer(service).oneshot(request()).await;
/// assert!(answer.unwrap_err().is::<Blocked>());
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AtHead<M = Respond> {
    refusals: PhantomData<M>,
}

impl<M: Mode> sealed::Sealed for AtHead<M> {}

impl<M: Mode> Mode for AtHead<M> {
    type Refusal = M::Refusal;
}

impl<M: Mode> SentinelLayer<M> {
    /// Ends each call at the head of its response, and leaves the body alone: the response is of
    /// the service's own type, and its body is neither wrapped nor followed. That saves a router
    /// of axum, which boxes every body of another type, an allocation for each response.
    ///
    /// Use it where bodies are short and no rule counts the calls that run. This layer does not
    /// count the time of a body, nor its end:
    ///
    /// * A call is running, and holds its slot, only until its head is there. An
    ///   [`IsolationRule`](crate::IsolationRule), an [`AdaptiveRule`](crate::AdaptiveRule) and a
    ///   [`SystemRule`](crate::SystemRule) do not see bodies that are being sent: a thousand
    ///   clients may download at once under a limit of two.
    /// * A body that fails is a success, and so is a gRPC call whose head has no `grpc-status`,
    ///   however it ends: its trailers are not read.
    ///
    /// Response times end at the head in any case. [`completion`](Self::completion) has no effect.
    /// To end calls at the head by a setting of the program, with types that stay the same, use
    /// [`Completion::Head`](super::Completion::Head).
    ///
    /// The body of a refusal must be of the service's type as well, so that type must implement
    /// `From<Bytes>`, as those of axum, reqwest and `http_body_util::Full` do; the body of tonic does
    /// not. With [`refusals_as_errors`](SentinelLayer::refusals_as_errors), which comes before this
    /// method, no refusal has a body, and any type will do.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Router;
    /// use axum::body::Body;
    /// use axum::http::{Request, StatusCode};
    /// use axum::routing::get;
    /// use tower::ServiceExt;
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let app = Router::new()
    ///     .route("/users/{id}", get(|| async { "hello" }))
    ///     .layer(SentinelLayer::new(FlowRule::per_second("/users/{id}", 1)).at_head());
    ///
    /// let request = |path| Request::get(path).body(Body::empty()).unwrap();
    /// let first = app.clone().oneshot(request("/users/1")).await.unwrap();
    /// assert_eq!(first.status(), StatusCode::OK);
    /// let second = app.oneshot(request("/users/2")).await.unwrap();
    /// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A call whose future is dropped before its head is there counts as cancelled, and releases
    /// its slot. A body that is dropped changes nothing: its call has ended.
    #[must_use]
    pub fn at_head(self) -> SentinelLayer<AtHead<M>> {
        self.into_mode()
    }
}
