//! Which responses, trailers and errors count as failures.

use std::any::Any;
use std::error::Error;
use std::fmt;

use http::{Extensions, HeaderMap, Response, StatusCode};

use super::BoxError;
use crate::blocked::Blocked;
use crate::middleware::rejection::{is_grpc, is_grpc_web, is_marked};
use crate::stat::Outcome;

/// The head of a response: its status, header fields and extensions.
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use tower_sentinel::middleware::{ByStatus, Classify, Judgement, ResponseHead};
/// use tower_sentinel::stat::Outcome;
/// # use http::{Request, Response};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # use tower_sentinel::{CircuitBreakerRule, ManualClock, Sentinel, SentinelLayer};
///
/// /// A stale answer from a cache means that the upstream is down.
/// struct Stale;
///
/// impl Classify for Stale {
///     fn head(&self, head: ResponseHead<'_>) -> Judgement {
///         match head.headers().get("x-cache") {
///             Some(cache) if cache == "stale" => Judgement::Now(Outcome::Failure),
///             _ => ByStatus.head(head),
///         }
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let breaker = CircuitBreakerRule::error_count("/news", 1);
/// let sentinel = Sentinel::builder().rules(breaker).clock(ManualClock::new()).build();
/// let layer = SentinelLayer::with(sentinel).classify(Stale);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Response::builder().header("x-cache", "stale").body(String::new())
/// # }));
/// # let status = async || {
/// #     let request = Request::get("/news").body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status().await, StatusCode::OK);
/// assert_eq!(status().await, StatusCode::SERVICE_UNAVAILABLE);
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> ResponseHead<'a> {
    /// Returns the head of `response`, to test a [`Classify`].
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use tower_sentinel::middleware::{ByStatus, Classify, Judgement, ResponseHead};
    /// use tower_sentinel::stat::Outcome;
    ///
    /// /// A missing page is a failure of this service.
    /// struct NothingMissing;
    ///
    /// impl Classify for NothingMissing {
    ///     fn head(&self, head: ResponseHead<'_>) -> Judgement {
    ///         match head.status() {
    ///             StatusCode::NOT_FOUND => Judgement::Now(Outcome::Failure),
    ///             _ => ByStatus.head(head),
    ///         }
    ///     }
    /// }
    ///
    /// for (status, outcome) in [(200, Outcome::Success), (404, Outcome::Failure)] {
    ///     let response = Response::builder().status(status).body(())?;
    ///     let judgement = NothingMissing.head(ResponseHead::of(&response));
    ///     assert_eq!(judgement, Judgement::Now(outcome), "{status}");
    /// }
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn of<B>(response: &'a Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }

    /// Returns the status code.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, in which inner layers can leave information.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

/// An error that a service returned instead of a response.
///
/// # Examples
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use tower_sentinel::BoxError;
/// use tower_sentinel::middleware::{ByStatus, Classify, Judgement, ResponseHead, ServiceError};
/// use tower_sentinel::stat::Outcome;
/// # use http::{Request, Response};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # use tower_sentinel::{Rules, SentinelLayer};
///
/// /// An error in the client's own request is not a failure of the server.
/// struct Unsent;
///
/// impl Classify for Unsent {
///     fn head(&self, head: ResponseHead<'_>) -> Judgement {
///         ByStatus.head(head)
///     }
///
///     fn error(&self, error: ServiceError<'_>) -> Outcome {
///         match error.downcast_ref::<Error>() {
///             Some(error) if error.kind() == ErrorKind::InvalidInput => Outcome::Ignore,
///             _ => ByStatus.error(error),
///         }
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(Rules::new()).classify(Unsent).refusals_as_errors();
/// # let sentinel = layer.sentinel().clone();
/// # let service = layer.layer(service_fn(|request: Request<()>| async move {
/// #     let kind = match request.uri().path() {
/// #         "/bad" => ErrorKind::InvalidInput,
/// #         _ => ErrorKind::ConnectionRefused,
/// #     };
/// #     Err::<Response<String>, BoxError>(Error::from(kind).into())
/// # }));
/// for path in ["/bad", "/away"] {
///     let request = Request::get(path).body(()).unwrap();
///     assert!(service.clone().oneshot(request).await.is_err());
/// }
/// let errors = |path| sentinel.node(path).map(|node| node.totals().error());
/// assert_eq!((errors("/bad"), errors("/away")), (Some(0), Some(1)));
/// # });
/// ```
#[derive(Clone, Copy)]
pub struct ServiceError<'a>(&'a dyn Any);

impl<'a> ServiceError<'a> {
    /// Wraps `error`, to test a [`Classify`].
    ///
    /// ```
    /// use tower_sentinel::middleware::{ByStatus, Classify, ServiceError};
    /// use tower_sentinel::stat::Outcome;
    ///
    /// let error = std::io::Error::other("it is away");
    /// assert_eq!(ByStatus.error(ServiceError::of(&error)), Outcome::Failure);
    /// ```
    #[must_use]
    pub fn of<E: 'static>(error: &'a E) -> Self {
        Self(error)
    }

    /// Returns the error if it is a `T`, or a [`BoxError`] with a `T` in it.
    #[must_use]
    pub fn downcast_ref<T: Error + 'static>(&self) -> Option<&'a T> {
        let in_box = || self.0.downcast_ref::<BoxError>()?.downcast_ref();
        self.0.downcast_ref().or_else(in_box)
    }

    /// Returns whether the error is a `T`, or a [`BoxError`] with a `T` in it.
    #[must_use]
    pub fn is<T: Error + 'static>(&self) -> bool {
        self.downcast_ref::<T>().is_some()
    }

    /// Returns whether the error is a refusal, or a [`BoxError`] that has one among its sources.
    pub(super) fn is_refusal(&self) -> bool {
        let in_box = || self.0.downcast_ref::<BoxError>();
        self.0.is::<Blocked>() || in_box().is_some_and(|error| Blocked::is_behind(&**error))
    }
}

impl fmt::Debug for ServiceError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("ServiceError");
        match self.0.downcast_ref::<BoxError>() {
            Some(error) => debug.field(error).finish(),
            None => debug.finish_non_exhaustive(),
        }
    }
}

/// How the call ended, as far as the head of the response shows.
///
/// # Examples
///
/// ```
/// use http::HeaderMap;
/// use tower_sentinel::middleware::{Classify, Judgement, ResponseHead};
/// use tower_sentinel::stat::Outcome;
///
/// /// For services that report the result in a trailer, which may be missing.
/// struct ByTrailer;
///
/// impl Classify for ByTrailer {
///     fn head(&self, head: ResponseHead<'_>) -> Judgement {
///         if head.headers().contains_key("trailer") {
///             Judgement::AtTrailers
///         } else {
///             Judgement::Now(Outcome::Ignore)
///         }
///     }
///
///     fn trailers(&self, trailers: Option<&HeaderMap>) -> Outcome {
///         match trailers.and_then(|trailers| trailers.get("x-result")) {
///             Some(result) if result == "failed" => Outcome::Failure,
///             Some(_) => Outcome::Success,
///             None => Outcome::Ignore,
///         }
///     }
/// }
///
/// let mut trailers = HeaderMap::new();
/// trailers.insert("x-result", "failed".parse()?);
/// assert_eq!(ByTrailer.trailers(Some(&trailers)), Outcome::Failure);
/// // The response was cut off before its end.
/// assert_eq!(ByTrailer.trailers(None), Outcome::Ignore);
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Judgement {
    /// The call ended like this.
    Now(Outcome),
    /// The trailers decide, or the end of the body. Circuit breakers count the call only then, so
    /// that a body that breaks off is a failure to them.
    AtTrailers,
}

/// Decides how calls ended.
///
/// No method may panic: the call would then count as if its service had panicked. To
/// test an implementation, use [`ResponseHead::of`] and [`ServiceError::of`].
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use tower_sentinel::middleware::{ByStatus, Classify, Judgement, ResponseHead};
/// use tower_sentinel::stat::Outcome;
/// # use http::{Request, Response};
/// # use tower::{Layer, ServiceExt, service_fn};
/// # use tower_sentinel::{Rules, SentinelLayer};
///
/// /// A missing page is a failure of this service.
/// struct NothingMissing;
///
/// impl Classify for NothingMissing {
///     fn head(&self, head: ResponseHead<'_>) -> Judgement {
///         match head.status() {
///             StatusCode::NOT_FOUND => Judgement::Now(Outcome::Failure),
///             _ => ByStatus.head(head),
///         }
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(Rules::new()).classify(NothingMissing);
/// # let service = layer.layer(service_fn(|request: Request<()>| async move {
/// #     Response::builder().status(&request.uri().path()[1..]).body(String::new())
/// # }));
/// for path in ["/200", "/404", "/404"] {
///     let request = Request::get(path).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap();
/// }
/// let errors = |path| layer.sentinel().node(path).map(|node| node.totals().error());
/// assert_eq!((errors("/200"), errors("/404")), (Some(0), Some(2)));
/// # });
/// ```
#[doc(alias("failure_classifier", "is_failure"))]
pub trait Classify: Send + Sync + 'static {
    /// Judges the head of a response.
    fn head(&self, head: ResponseHead<'_>) -> Judgement;

    /// Judges the trailers of a response for whose head [`AtTrailers`](Judgement::AtTrailers) was
    /// returned; `None` if the body ended without trailers, or was dropped before its end. The
    /// method is called with `None` already when the head arrives, for the case that the body is
    /// dropped, and again if trailers come. So it should have no side effects.
    ///
    /// Not called if the call ends before its body ([`Completion::Head`](super::Completion::Head)),
    /// which counts as a success, or if the body fails, which counts as a failure.
    fn trailers(&self, trailers: Option<&HeaderMap>) -> Outcome {
        let _ = trailers;
        Outcome::Success
    }

    /// Judges an error of the service.
    ///
    /// Not called for a refusal of another layer of this crate, or for a [`BoxError`] that has one
    /// among its sources: a refusal counts as neither failure nor success. With
    /// [`refusals_as_errors`](crate::SentinelLayer::refusals_as_errors) every error is passed as a
    /// `BoxError`.
    fn error(&self, error: ServiceError<'_>) -> Outcome {
        let _ = error;
        Outcome::Failure
    }
}

/// Classifies calls by their status. This is the default.
///
/// | | failure | neither | success |
/// |---|---|---|---|
/// | HTTP | 5xx | 408, 429, and refusals of another layer of this crate | all others |
/// | gRPC, by its status | `UNKNOWN`, `DEADLINE_EXCEEDED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS` | `RESOURCE_EXHAUSTED`; no status at all | all others |
///
/// A server sends 408 to a client that is slow to send its request. Some timeout layers
/// also send it when the call itself took too long, and only this case would be a failure. If
/// you use such a layer, let it send 504 instead, or classify 408 yourself.
///
/// A response counts as gRPC if it has gRPC's content type and HTTP status 200. Any other
/// HTTP status is judged as such, even with that content type.
///
/// tonic answers a message that it cannot read, or that breaks off, with `INTERNAL`. So
/// clients of tonic methods can cause failures, and thereby open circuit breakers that
/// count errors.
///
/// The gRPC status is read from the headers, or if it is not there, from the trailers.
/// gRPC-Web writes it into the body, where it is not read: there a call that delivers
/// messages is a success, however it ends. In a server, a layer inside the translation of
/// gRPC-Web, such as tonic-web's `GrpcWebLayer`, sees every status. In a client there is
/// no such place: outside tonic-web's `GrpcWebClientLayer`, responses still have the
/// content type of gRPC-Web.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/orders", 1_000));
/// # let service = layer.layer(service_fn(|request: Request<()>| async move {
/// #     let status = request.headers()["x-status"].to_str().unwrap();
/// #     Response::builder().status(status).body(String::new())
/// # }));
/// for status in ["200", "404", "429", "500", "503"] {
///     let request = Request::get("/orders").header("x-status", status).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap();
/// }
/// let totals = layer.sentinel().node("/orders").expect("it has been called").totals();
/// // A 429 from the service itself is neither a failure nor a refusal here.
/// assert_eq!((totals.complete(), totals.error(), totals.block()), (5, 2, 0));
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ByStatus;

impl Classify for ByStatus {
    #[inline(always)]
    fn head(&self, head: ResponseHead<'_>) -> Judgement {
        // An inner layer of this crate has refused the call.
        if head.extensions.get::<Blocked>().is_some() {
            return Judgement::Now(Outcome::Ignore);
        }
        if head.status == StatusCode::OK && is_grpc(head.headers) {
            return grpc_head(head.headers, head.extensions);
        }
        Judgement::Now(if head.status.is_success() {
            Outcome::Success
        } else {
            outcome_of(head.status, head.headers)
        })
    }

    fn trailers(&self, trailers: Option<&HeaderMap>) -> Outcome {
        trailers.map_or(Outcome::Ignore, grpc_outcome)
    }
}

/// The outcome of a response whose status is not a success.
#[inline(never)]
fn outcome_of(status: StatusCode, headers: &HeaderMap) -> Outcome {
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Outcome::Ignore,
        // An inner layer of this crate also refuses calls with these statuses, and marks such
        // responses.
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN if is_marked(headers) => {
            Outcome::Ignore
        }
        status if status.is_server_error() => Outcome::Failure,
        _ => Outcome::Success,
    }
}

/// Judges the head of a gRPC response.
#[inline(never)]
fn grpc_head(headers: &HeaderMap, extensions: &Extensions) -> Judgement {
    match headers.get("grpc-status") {
        Some(_) if has_refused(extensions) => Judgement::Now(Outcome::Ignore),
        Some(_) => Judgement::Now(grpc_outcome(headers)),
        // gRPC-Web writes the trailers at the end of the body, which is not read.
        None if is_grpc_web(headers) => Judgement::Now(Outcome::Success),
        None => Judgement::AtTrailers,
    }
}

/// Returns whether a method has answered with a refusal, whose status tonic keeps in the
/// extensions.
#[cfg(feature = "tonic")]
fn has_refused(extensions: &Extensions) -> bool {
    let status = extensions.get::<tonic::Status>();
    let source = status.and_then(std::error::Error::source);
    source
        .and_then(|source| source.downcast_ref::<Blocked>())
        .is_some()
}

/// Without tonic, no refusal becomes a status.
#[cfg(not(feature = "tonic"))]
const fn has_refused(_: &Extensions) -> bool {
    false
}

/// The outcome of a call by the `grpc-status` in `headers`, which are a head or trailers.
fn grpc_outcome(headers: &HeaderMap) -> Outcome {
    match headers.get("grpc-status").map(http::HeaderValue::as_bytes) {
        Some(b"2" | b"4" | b"13" | b"14" | b"15") => Outcome::Failure,
        Some(b"8") | None => Outcome::Ignore,
        Some(_) => Outcome::Success,
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn judge(response: &Response<()>) -> Judgement {
        ByStatus.head(ResponseHead::of(response))
    }

    #[test]
    fn http_is_judged_by_its_status() {
        let cases = [
            (200, Outcome::Success),
            (404, Outcome::Success),
            (408, Outcome::Ignore),
            (429, Outcome::Ignore),
            (500, Outcome::Failure),
            (503, Outcome::Failure),
        ];
        for (status, outcome) in cases {
            let response = Response::builder().status(status).body(()).unwrap();
            assert_eq!(judge(&response), Judgement::Now(outcome), "{status}");
        }
    }

    #[test]
    fn grpc_is_judged_by_its_status_wherever_it_is() {
        let mut response = Response::new(());
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", grpc);
        assert_eq!(judge(&response), Judgement::AtTrailers);
        assert_eq!(ByStatus.trailers(None), Outcome::Ignore);
        for (code, outcome) in [
            ("0", Outcome::Success),
            ("1", Outcome::Success),
            ("2", Outcome::Failure),
            ("3", Outcome::Success),
            ("4", Outcome::Failure),
            ("5", Outcome::Success),
            ("8", Outcome::Ignore),
            ("12", Outcome::Success),
            ("13", Outcome::Failure),
            ("14", Outcome::Failure),
            ("15", Outcome::Failure),
            ("16", Outcome::Success),
            ("nonsense", Outcome::Success),
        ] {
            response
                .headers_mut()
                .insert("grpc-status", HeaderValue::from_static(code));
            assert_eq!(judge(&response), Judgement::Now(outcome), "{code}");
            assert_eq!(
                ByStatus.trailers(Some(response.headers())),
                outcome,
                "{code}"
            );
        }
    }

    #[test]
    fn other_http_statuses_are_judged_as_http() {
        for (status, outcome) in [
            (404, Outcome::Success),
            (429, Outcome::Ignore),
            (503, Outcome::Failure),
        ] {
            let response = Response::builder()
                .status(status)
                .header("content-type", "application/grpc");
            assert_eq!(
                judge(&response.body(()).unwrap()),
                Judgement::Now(outcome),
                "{status}"
            );
        }
    }

    #[test]
    fn a_refusal_of_another_layer_is_no_failure_of_this_one() {
        let mut response = Response::builder().status(503).body(()).unwrap();
        let kind = crate::BlockKind::NoTimer;
        response
            .extensions_mut()
            .insert(Blocked::new(kind, "/x".into(), "".into()));
        assert_eq!(judge(&response), Judgement::Now(Outcome::Ignore));
    }
}
