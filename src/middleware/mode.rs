//! How a layer reports refusals: as responses or as errors.

use bytes::Bytes;
use http::Response;

use crate::blocked::Blocked;

/// Refusals are responses; the service keeps its error type.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::Respond;
/// use tower_sentinel::{Blocked, FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // This is the default, so it need not be written.
/// let rule = FlowRule::per_second("/search", 0);
/// let layer: SentinelLayer<Respond> = SentinelLayer::new(rule).blocked_in_extensions();
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, Infallible>(Response::new(String::new()))
/// # }));
/// # let request = Request::get("/search").body(()).unwrap();
/// let answer: Result<_, Infallible> = service.oneshot(request).await;
/// let Ok(refused) = answer;
/// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
/// let blocked = refused.extensions().get::<Blocked>().expect("it is no answer of the service");
/// assert_eq!(blocked.rule(), "flow-0");
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Respond;

/// Refusals are errors: a boxed [`Blocked`](crate::Blocked).
///
/// # Examples
///
/// ```
/// # use http::{Request, Response};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::AsError;
/// use tower_sentinel::{Blocked, BoxError, FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// /// For clients of the service `users`.
/// fn limited() -> SentinelLayer<AsError> {
///     SentinelLayer::new(FlowRule::per_second("/users/7", 0)).outbound().refusals_as_errors()
/// }
///
/// # let client = service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # });
/// # let request = Request::get("/users/7").body(()).unwrap();
/// let error: BoxError = limited().layer(client).oneshot(request).await.unwrap_err();
/// // The request has not been sent.
/// assert!(error.is::<Blocked>());
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

/// How a layer reports refusals: [`Respond`] or [`AsError`], or [`AtHead`](super::AtHead) with one
/// of the two. This trait is sealed.
///
/// # Examples
///
/// Code that works with both kinds of layers is generic over it:
///
/// ```
/// use tower_sentinel::middleware::Mode;
/// use tower_sentinel::{Call, FlowRule, SentinelLayer, Verdict};
///
/// fn refuses<M: Mode>(layer: &SentinelLayer<M>, path: &str) -> bool {
///     matches!(layer.sentinel().try_enter(Call::new(path)), Verdict::Block(_))
/// }
///
/// let layer = SentinelLayer::new(FlowRule::per_second("/search", 0));
/// assert!(refuses(&layer, "/search"));
/// assert!(!refuses(&layer.refusals_as_errors(), "/about"));
/// ```
pub trait Mode: sealed::Sealed {
    /// The form in which the future keeps a refusal until it is polled.
    #[doc(hidden)]
    type Refusal;
}

impl Mode for Respond {
    type Refusal = Response<Bytes>;
}

impl Mode for AsError {
    type Refusal = Blocked;
}

pub(super) mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Respond {}
    impl Sealed for super::AsError {}
}
