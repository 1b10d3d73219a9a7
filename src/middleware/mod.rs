//! tower middleware.
//!
//! [`SentinelLayer`] is for HTTP and gRPC, in servers and clients. [`CallLayer`] is for
//! services with any other type of request.
//!
//! # Examples
//!
//! ```
//! # use http::{Request, Response, StatusCode};
//! # use tower::{Layer, ServiceExt, service_fn};
//! use tower_sentinel::middleware::CallLayer;
//! use tower_sentinel::{Blocked, BoxError, Call, IsolationRule, Rules, Sentinel, SentinelLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // One engine, so one place to read statistics and to change rules.
//! let rules = Rules::new()
//!     .with(IsolationRule::new("/users/{id}", 0))
//!     .with(IsolationRule::new("dns", 0));
//! let sentinel = Sentinel::new(rules);
//! # let inner = service_fn(|_: Request<()>| async {
//! #     Ok::<_, BoxError>(Response::new(String::new()))
//! # });
//! # let request = || Request::get("/users/7").body(()).unwrap();
//!
//! // A server answers refused requests with a response.
//! let server = SentinelLayer::with(sentinel.clone()).layer(inner);
//! assert_eq!(server.oneshot(request()).await?.status(), StatusCode::TOO_MANY_REQUESTS);
//!
//! // A client, and a service that is not HTTP, fail with a `Blocked`.
//! let client = SentinelLayer::with(sentinel.clone()).outbound().refusals_as_errors().layer(inner);
//! assert!(client.oneshot(request()).await.unwrap_err().is::<Blocked>());
//! let dns = CallLayer::with(sentinel.clone(), |_: &&str| Call::new("dns"))
//!     .layer(service_fn(|name: &'static str| async move { Ok::<_, BoxError>(name.len()) }));
//! assert!(dns.oneshot("example.com").await.unwrap_err().is::<Blocked>());
//! assert_eq!(sentinel.snapshot().totals().block(), 3);
//! # Ok::<(), BoxError>(())
//! # }).unwrap();
//! ```

mod answer;
mod answer_cost;
mod at_head;
mod body;
mod call_layer;
mod call_state;
mod classify;
mod completion;
mod costs;
mod future;
mod grpc_timeout;
mod judged;
mod layer;
mod mode;
mod propagate;
mod pushback;
pub mod rejection;
mod reported;
mod service;
mod settings;
pub mod skip;

pub use answer::{ByResult, ClassifyAnswer};
pub use answer_cost::{AnswerCost, ReadCost};
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
pub use at_head::OfTonic;
pub use at_head::{AtHead, FromBytes, RefusalBody};
pub use body::ResponseBody;
pub use call_layer::{CallFuture, CallLayer, CallService};
pub use classify::{ByStatus, Classify, Judgement, ResponseHead, ServiceError};
pub use completion::Completion;
pub use future::ResponseFuture;
pub use layer::SentinelLayer;
pub use mode::{AsError, Mode, Respond};
pub use service::SentinelService;

/// A boxed error of any type, as tower's services use for different kinds of failures.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Blocked, BoxError, Call, FlowRule, Sentinel, Verdict};
///
/// fn run(sentinel: &Sentinel) -> Result<u16, BoxError> {
///     match sentinel.try_enter(Call::new("job")) {
///         Verdict::Block(blocked) => Err(blocked.into()),
///         _ => Ok("7".parse()?),
///     }
/// }
///
/// let error = run(&Sentinel::new(FlowRule::per_second("job", 0))).unwrap_err();
/// assert!(error.is::<Blocked>());
/// ```
///
/// It is the same type as tower's `BoxError`, and not a new type, so that errors need no second box
/// on their way through other layers and are still found by `is` and `downcast_ref`. The operator
/// `?` does not convert it into a box that is not `Send`, but a cast does:
///
/// ```
/// use std::error::Error;
/// use tower_sentinel::{Blocked, BoxError};
///
/// async fn call() -> Result<u16, BoxError> {
///     Err(std::io::Error::other("nobody is there").into())
/// }
///
/// async fn run() -> Result<u16, Box<dyn Error>> {
///     Ok(call().await.map_err(|error| error as Box<dyn Error>)?)
/// }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert!(!run().await.unwrap_err().is::<Blocked>());
/// # });
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
