//! Layers that end calls at the head of their response, and leave bodies to the service.

use std::marker::PhantomData;

use bytes::Bytes;
use http_body::Body;

#[cfg(feature = "tonic")]
use super::body::ResponseBody;
use super::layer::SentinelLayer;
use super::mode::{AsError, Mode, Respond, sealed};

/// Calls end at the head of their response, and bodies stay the service's own: see
/// [`SentinelLayer::at_head`](crate::SentinelLayer::at_head). `M` determines how refusals are
/// reported. `How` determines how their bodies are made; the compiler infers it: see
/// [`RefusalBody`].
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
pub struct AtHead<M = Respond, How = FromBytes> {
    refusals: PhantomData<(M, How)>,
}

/// A type of bodies that a refusal can have where the layer ends calls
/// [at their head](crate::SentinelLayer::at_head).
///
/// All types that implement `From<Bytes>` implement it, such as the bodies of axum and reqwest and
/// `http_body_util::Full`. With the feature `tonic`, tonic's body does too. `How` keeps the two
/// implementations apart.
///
/// # Examples
///
/// A boxed body needs a newtype around it:
///
/// ```
/// use std::convert::Infallible;
/// use std::pin::Pin;
/// use std::task::{Context, Poll};
/// use bytes::Bytes;
/// use http_body::{Body, Frame};
/// use http_body_util::combinators::UnsyncBoxBody;
/// use http_body_util::{BodyExt, Full};
/// use tower_sentinel::middleware::RefusalBody;
///
/// struct Boxed(UnsyncBoxBody<Bytes, Infallible>);
///
/// impl From<Bytes> for Boxed {
///     fn from(text: Bytes) -> Self {
///         Self(Full::new(text).boxed_unsync())
///     }
/// }
///
/// impl Body for Boxed {
///     type Data = Bytes;
///     type Error = Infallible;
///
///     fn poll_frame(
///         mut self: Pin<&mut Self>,
///         cx: &mut Context<'_>,
///     ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
///         Pin::new(&mut self.0).poll_frame(cx)
///     }
/// }
///
/// let body: Boxed = RefusalBody::refusal(Bytes::from_static(b"too many requests"));
/// assert!(!body.is_end_stream());
/// ```
#[diagnostic::on_unimplemented(note = "implement `From<Bytes>` for the type of bodies")]
pub trait RefusalBody<How>: Body {
    /// Returns the body of a refusal that consists of `bytes`, which may be empty.
    fn refusal(bytes: Bytes) -> Self;
}

/// Bodies that are made by `From<Bytes>`: see [`RefusalBody`].
///
/// ```
/// use tower_sentinel::middleware::{AtHead, FromBytes, Respond};
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// // It is the default, where the type of a layer is written.
/// let layer: SentinelLayer<AtHead> = SentinelLayer::new(FlowRule::per_second("/a", 9)).at_head();
/// let same: SentinelLayer<AtHead<Respond, FromBytes>> = layer;
/// assert_eq!(same.sentinel().rules().len(), 1);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FromBytes;

impl<B: Body + From<Bytes>> RefusalBody<FromBytes> for B {
    fn refusal(bytes: Bytes) -> Self {
        bytes.into()
    }
}

/// Bodies of tonic: see [`RefusalBody`].
///
/// ```
/// use tower_sentinel::middleware::{AtHead, OfTonic, Respond};
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// // Where the type of a layer is written; for a tonic server it need not be.
/// let rule = FlowRule::per_second("/shop.Orders/Buy", 9);
/// let layer: SentinelLayer<AtHead<Respond, OfTonic>> = SentinelLayer::new(rule).at_head();
/// assert_eq!(layer.sentinel().rules().len(), 1);
/// ```
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
#[derive(Clone, Copy, Debug, Default)]
pub struct OfTonic;

#[cfg(feature = "tonic")]
impl RefusalBody<OfTonic> for tonic::body::Body {
    fn refusal(bytes: Bytes) -> Self {
        Self::new(ResponseBody::<Self>::refused(bytes))
    }
}

impl<M: Mode, How> sealed::Sealed for AtHead<M, How> {}

impl<M: Mode, How> Mode for AtHead<M, How> {
    type Refusal = M::Refusal;
}

impl SentinelLayer<Respond> {
    /// Ends each call at the head of its response, and leaves the body alone: the response is of
    /// the service's own type, and its body is neither wrapped nor followed. This saves an
    /// allocation for each response in a router of axum, which boxes every body of another type.
    ///
    /// Use it where bodies are short and no rule counts the calls that run. This layer counts
    /// neither the time nor the end of a body:
    ///
    /// * A call is running, and holds its slot, only until the head of its response arrives. An
    ///   [`IsolationRule`](crate::IsolationRule), an [`AdaptiveRule`](crate::AdaptiveRule) and a
    ///   [`SystemRule`](crate::SystemRule) do not see bodies that are being sent: a thousand
    ///   clients may download at once under a limit of two.
    /// * A body that fails is a success, and so is a gRPC call whose head has no `grpc-status`,
    ///   however it ends: its trailers are not read.
    ///
    /// Response times always end at the head. [`completion`](Self::completion) has no effect. To
    /// end calls at the head without a change of types, such as by a setting of the program, use
    /// [`Completion::Head`](super::Completion::Head).
    ///
    /// The body of a refusal must be of the service's body type as well. This type must implement
    /// `From<Bytes>`, as the bodies of axum, reqwest and `http_body_util::Full` do, or be tonic's
    /// body: see [`RefusalBody`]. The compiler finds `How` where the layer is put around a service.
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
    /// A call whose future is dropped before the head of its response arrives counts as cancelled,
    /// and releases its slot. A body that is dropped changes nothing: its call has ended.
    #[must_use]
    pub fn at_head<How>(self) -> SentinelLayer<AtHead<Respond, How>> {
        self.into_mode()
    }
}

impl SentinelLayer<AsError> {
    /// Ends each call at the head of its response, and leaves the body alone, as
    /// [`at_head`](SentinelLayer::at_head) of a layer whose refusals are responses does. Here no
    /// refusal has a body, so bodies may be of any type.
    #[must_use]
    pub fn at_head(self) -> SentinelLayer<AtHead<AsError>> {
        self.into_mode()
    }
}
