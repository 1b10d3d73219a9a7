//! `Completion`: when a call counts as ended.

/// When a call counts as ended.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::Completion;
/// use tower_sentinel::{IsolationRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// /// The status of a second call while the body of the first is being sent.
/// async fn second(completion: Completion) -> StatusCode {
///     let layer = SentinelLayer::new(IsolationRule::new("/film", 1)).completion(completion);
/// #   let service = layer.layer(service_fn(|_: Request<()>| async {
/// #       Ok::<_, std::convert::Infallible>(Response::new("a long body".to_owned()))
/// #   }));
/// #   let get = async || {
/// #       let request = Request::get("/film").body(()).unwrap();
/// #       service.clone().oneshot(request).await.unwrap()
/// #   };
///     let _being_sent = get().await;
///     get().await.status()
/// }
///
/// assert_eq!(second(Completion::Body).await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second(Completion::Head).await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Completion {
    /// When the body of its response has ended or is dropped.
    ///
    /// The response time always ends with the head. If the body is at its end after the first
    /// poll, or is never polled, the call also counts as complete at that time. But where a rule
    /// counts a call until its body is dropped, as an [`AdaptiveRule`](crate::AdaptiveRule) does,
    /// the call counts as complete only then.
    #[default]
    Body,
    /// When the head of its response is available.
    ///
    /// The trailers are not known then. So a gRPC call whose head has no `grpc-status`,
    /// as is usual when it delivers messages, counts as a success, however it ends:
    /// circuit breakers by errors do not see its failures.
    Head,
}
