//! `CallLayer`: rules before a service of any request type.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::BoxError;
use super::answer::{ByResult, ClassifyAnswer};
use super::answer_cost::{AnswerCost, ReadCost};
use super::call_state::{CallEnds, CallState, drop_readiness};
use crate::blocked::Blocked;
use crate::call::Call;
use crate::engine::call::entry::Entry;
use crate::engine::call::verdict::Verdict;
use crate::rule::{InvalidRules, Rule, Rules};
use crate::sentinel::Sentinel;
use crate::stat::Outcome;

/// Applies rules to every request to a service, for any type of request.
///
/// A function describes each request as a [`Call`]. Refusals are errors: a boxed
/// [`Blocked`](crate::Blocked), so the error type of the service becomes
/// [`BoxError`](super::BoxError). A call ends when the service answers. Every `Err` counts as a
/// failure and every `Ok` as a success, with any content, unless [another function](Self::classify)
/// judges the answers. A refusal of another layer of this crate always counts as neither success
/// nor failure, also if it is among the sources of an error.
///
/// The service must be [`Clone`]: a call that waits keeps a clone, and after a refusal the service
/// is replaced by a clone that holds no permit. Its error must convert into a
/// [`BoxError`](super::BoxError). Put tower's `Buffer` around a service that is not `Clone`, or
/// whose clones wrongly consider themselves ready, as those of tower's `Steer` do. The work of the
/// service before it is ready belongs to no call, and an error that it returns then is counted
/// nowhere. So while it is not ready nothing is refused, unless the layer [judges
/// first](Self::judge_first).
///
/// If the error of the service already is a [`BoxError`](super::BoxError), the layer changes no
/// type, and tower's `option_layer` takes it. If the service is a closure that is created within a
/// task, the compiler may complain that an implementation of `From` is not general enough: use a
/// named function instead, `service_fn(send)` with `async fn send(…) -> Result<…, BoxError>`.
///
/// # Examples
///
/// ```
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_sentinel::middleware::CallLayer;
/// use tower_sentinel::{Blocked, BoxError, Call, FlowRule};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let mut resolve = ServiceBuilder::new()
///     .layer(CallLayer::new(FlowRule::per_second("dns", 1), |name: &String| {
///         Call::new("dns").origin(name)
///     }))
///     .service(service_fn(|name: String| async move { Ok::<_, BoxError>(name.len()) }));
///
/// let first = resolve.ready().await.unwrap().call("example.com".to_owned()).await;
/// assert_eq!(first.unwrap(), 11);
/// let second = resolve.ready().await.unwrap().call("example.com".to_owned()).await;
/// assert!(second.unwrap_err().is::<Blocked>());
/// # });
/// ```
#[derive(Clone)]
pub struct CallLayer<F, C = ByResult, K = ()> {
    sentinel: Sentinel,
    describe: F,
    classify: C,
    costs: K,
    judge_first: bool,
}

impl<F> CallLayer<F> {
    /// Creates a layer with a new engine, which has `rules` and otherwise the defaults; `describe`
    /// turns a request into a call.
    ///
    /// # Panics
    ///
    /// Panics with the error of [`try_new`](Self::try_new) if a rule is invalid, or is
    /// [shared](crate::FlowRule::shared), as the engine has no store.
    #[must_use]
    #[track_caller]
    pub fn new<Req>(rules: impl Into<Rules>, describe: F) -> Self
    where
        F: for<'a> Fn(&'a Req) -> Call<'a>,
    {
        Self::with(Sentinel::new(rules), describe)
    }

    /// Creates a layer like [`new`](Self::new), but returns invalid rules as an error, for rules
    /// from a configuration.
    ///
    /// ```
    /// use tower_sentinel::middleware::CallLayer;
    /// use tower_sentinel::{Call, FlowRule};
    ///
    /// let from_settings = vec![FlowRule::per_second("job", -1)];
    /// let layer = CallLayer::try_new(from_settings, |_: &u32| Call::new("job"));
    /// assert_eq!(layer.unwrap_err().problems()[0].field(), "threshold");
    /// ```
    ///
    /// # Errors
    ///
    /// Returns all problems of all rules.
    pub fn try_new<Req, R: Into<Rule>>(
        rules: impl IntoIterator<Item = R>,
        describe: F,
    ) -> Result<Self, InvalidRules>
    where
        F: for<'a> Fn(&'a Req) -> Call<'a>,
    {
        Ok(Self::with(Sentinel::try_new(rules)?, describe))
    }

    /// Creates a layer for an existing engine.
    #[must_use]
    pub fn with<Req>(sentinel: Sentinel, describe: F) -> Self
    where
        F: for<'a> Fn(&'a Req) -> Call<'a>,
    {
        Self {
            sentinel,
            describe,
            classify: ByResult,
            costs: (),
            judge_first: false,
        }
    }
}

impl<F, C, K> CallLayer<F, C, K> {
    /// Sets which answers count as failures, for example for circuit breakers. Default: errors.
    /// `classify` is cloned for each call.
    ///
    /// A closure must name the types of its arguments, as below. To use a closure in an
    /// [`Arc`], call it from another closure. For a [`ClassifyAnswer`] of several types,
    /// name the types: `classify::<Answer, BoxError, _>(…)`. If the service is held by a
    /// future that is spawned, the compiler may complain that the `FnOnce` of a closure
    /// that takes a [`BoxError`](super::BoxError) is not general enough: use a named
    /// function instead.
    ///
    /// [`Arc`]: std::sync::Arc
    ///
    /// # Examples
    ///
    /// ```
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::CallLayer;
    /// use tower_sentinel::stat::Outcome;
    /// use tower_sentinel::{Blocked, BoxError, Call, CircuitBreakerRule};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// /// A client's answer: a status.
    /// struct Answer(u16);
    ///
    /// let breaker = CircuitBreakerRule::error_count("shop", 2);
    /// let layer = CallLayer::new(breaker, |_: &u16| Call::new("shop").outbound()).classify(
    ///     |answer: Result<&Answer, &BoxError>| match answer {
    ///         // A mistake of the caller says nothing about the upstream.
    ///         Ok(Answer(400..500)) => Outcome::Ignore,
    ///         Ok(Answer(..400)) => Outcome::Success,
    ///         _ => Outcome::Failure,
    ///     },
    /// );
    /// let client = layer.layer(service_fn(|status| async move { Ok::<_, BoxError>(Answer(status)) }));
    /// for status in [404, 404, 503, 503] {
    ///     assert_eq!(client.clone().oneshot(status).await?.0, status);
    /// }
    /// // Two calls have failed, and the next one is not sent.
    /// assert!(client.oneshot(200).await.is_err_and(|error| error.is::<Blocked>()));
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn classify<R, E, D>(self, classify: D) -> CallLayer<F, D, K>
    where
        D: ClassifyAnswer<R, E>,
    {
        CallLayer {
            sentinel: self.sentinel,
            describe: self.describe,
            classify,
            costs: self.costs,
            judge_first: self.judge_first,
        }
    }

    /// Settles the cost of a call in `unit`, as [`Meter::settle`](crate::Meter::settle) does, from
    /// the answer of the service, for rules on [costs](crate::FlowRule::cost). `read` returns
    /// `None` if an answer shows no cost. Default: no cost is read from answers. The maximum cost
    /// of a call is part of its description: [`Call::reserve`].
    ///
    /// `read` is cloned for each call, and called only where a rule limits costs. An error of the
    /// service costs nothing. If there are several functions, all are called; if several are for
    /// one unit, the largest total counts. A closure must name the type of its argument, as below.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::CallLayer;
    /// use tower_sentinel::{Blocked, BoxError, Call, FlowRule};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let rule = FlowRule::per_minute("query", 100).cost("rows");
    /// let layer = CallLayer::new(rule, |_: &&str| Call::new("query").reserve("rows", 50))
    ///     .cost("rows", |rows: &Vec<u64>| rows.len().try_into().ok());
    /// let database = layer.layer(service_fn(|_| async { Ok::<_, BoxError>(vec![7; 30]) }));
    /// for _ in 0..2 {
    ///     assert_eq!(database.clone().oneshot("select").await?.len(), 30);
    /// }
    /// // 60 rows are read, so 50 more are too many.
    /// assert!(database.oneshot("select").await.is_err_and(|error| error.is::<Blocked>()));
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn cost<R, T>(self, unit: impl Into<Arc<str>>, read: T) -> CallLayer<F, C, AnswerCost<T, K>>
    where
        T: Fn(&R) -> Option<u32>,
    {
        CallLayer {
            sentinel: self.sentinel,
            describe: self.describe,
            classify: self.classify,
            costs: AnswerCost::new(unit.into(), read, self.costs),
            judge_first: self.judge_first,
        }
    }

    /// Judges calls also while the service is not ready, as
    /// [`SentinelLayer::judge_first`](crate::SentinelLayer::judge_first) does. Default: no.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower::limit::ConcurrencyLimitLayer;
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::CallLayer;
    /// use tower_sentinel::{Blocked, BoxError, Call, FlowRule};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = CallLayer::new(FlowRule::per_second("dns", 0), |_: &&str| Call::new("dns"));
    /// let busy = ConcurrencyLimitLayer::new(0); // never ready
    /// let resolve = ServiceBuilder::new()
    ///     .layer(layer.judge_first())
    ///     .layer(busy)
    ///     .service(service_fn(|name: &'static str| async move { Ok::<_, BoxError>(name.len()) }));
    /// let refused = resolve.oneshot("example.com").await.unwrap_err();
    /// assert!(refused.is::<Blocked>());
    /// # });
    /// ```
    #[must_use]
    pub fn judge_first(mut self) -> Self {
        self.judge_first = true;
        self
    }

    /// Returns the engine.
    #[must_use]
    pub fn sentinel(&self) -> &Sentinel {
        &self.sentinel
    }
}

impl<F, C, K> fmt::Debug for CallLayer<F, C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLayer")
            .field("sentinel", &self.sentinel)
            .finish_non_exhaustive()
    }
}

impl<S, F: Clone, C: Clone, K: Clone> Layer<S> for CallLayer<F, C, K> {
    type Service = CallService<S, F, C, K>;

    fn layer(&self, inner: S) -> Self::Service {
        CallService {
            inner,
            sentinel: self.sentinel.clone(),
            describe: self.describe.clone(),
            classify: self.classify.clone(),
            costs: self.costs.clone(),
            judge_first: self.judge_first,
            is_unready: false,
        }
    }
}

/// A service with rules in front of it; created by a [`CallLayer`].
///
/// # Examples
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::CallLayer;
/// use tower_sentinel::{BlockKind, Blocked, BoxError, Call, FlowRule};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let resolve = service_fn(|name: &'static str| async move { Ok::<_, BoxError>(name.len()) });
/// let layer = CallLayer::new(FlowRule::per_second("dns", 0), |_: &&str| Call::new("dns"));
/// let limited = layer.layer(resolve);
///
/// let error = limited.clone().oneshot("example.com").await.unwrap_err();
/// let blocked = error.downcast_ref::<Blocked>().expect("the service was not called");
/// assert_eq!(blocked.kind(), BlockKind::Flow);
/// // The inner service answers: no rules apply to it.
/// assert_eq!(limited.into_inner().oneshot("example.com").await?, 11);
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct CallService<S, F, C = ByResult, K = ()> {
    inner: S,
    sentinel: Sentinel,
    describe: F,
    classify: C,
    costs: K,
    judge_first: bool,
    /// Whether `poll_ready` returned that this service is ready although `inner` was not.
    is_unready: bool,
}

impl<S, F, C, K> CallService<S, F, C, K> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, without the rules.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: fmt::Debug, F, C, K> fmt::Debug for CallService<S, F, C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallService")
            .field("inner", &self.inner)
            .field("sentinel", &self.sentinel)
            .finish_non_exhaustive()
    }
}

impl<S, F, C, K, Req> Service<Req> for CallService<S, F, C, K>
where
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    F: for<'a> Fn(&'a Req) -> Call<'a>,
    C: ClassifyAnswer<S::Response, S::Error> + Clone,
    K: ReadCost<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = CallFuture<S, Req, C, K>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let poll = self.inner.poll_ready(cx);
        self.is_unready = poll.is_pending() && self.judge_first;
        if self.is_unready {
            return Poll::Ready(Ok(()));
        }
        poll.map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let state = match self.sentinel.try_enter((self.describe)(&request)) {
            Verdict::Pass(entry) if self.is_unready => {
                CallState::unready(Some(entry), &mut self.inner, request)
            }
            Verdict::Pass(entry) => CallState::running(self.inner.call(request), Some(entry)),
            Verdict::Wait(waiting) => {
                CallState::waiting(waiting, &mut self.inner, request, self.judge_first)
            }
            Verdict::Block(blocked) => {
                drop_readiness(&mut self.inner);
                CallState::refused(blocked)
            }
        };
        CallFuture {
            state,
            classify: self.classify.clone(),
            costs: self.costs.clone(),
        }
    }
}

pin_project! {
    /// The future of the answer to a request that has been judged.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::future;
    /// use tower::{Layer, Service, service_fn};
    /// use tower_sentinel::middleware::CallLayer;
    /// use tower_sentinel::{Blocked, BoxError, Call, IsolationRule};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = CallLayer::new(IsolationRule::new("job", 1), |_: &()| Call::new("job"));
    /// let mut service = layer.layer(service_fn(|()| future::pending::<Result<(), BoxError>>()));
    ///
    /// let running = service.call(());
    /// let refused = service.call(()).await.unwrap_err();
    /// assert!(refused.is::<Blocked>());
    /// // Dropping the future ends the call.
    /// drop(running);
    /// let node = layer.sentinel().node("job").expect("it has been called");
    /// assert_eq!((node.totals().cancelled(), node.concurrency()), (1, 0));
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the call. If the call still waits, it leaves the queue. If there is
    /// no answer yet, the call counts as cancelled.
    pub struct CallFuture<S, Req, C = ByResult, K = ()>
    where
        S: Service<Req>,
    {
        #[pin]
        state: CallState<S, Req, Blocked>,
        classify: C,
        costs: K,
    }
}

impl<S, Req, C, K> Future for CallFuture<S, Req, C, K>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: ClassifyAnswer<S::Response, S::Error>,
    K: ReadCost<S::Response>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let on_answer = |answer: Result<_, S::Error>, entry: &mut Option<Entry>| {
            let outcome = this.classify.outcome(answer.as_ref());
            let answer = answer.map_err(Into::<BoxError>::into);
            let outcome = match &answer {
                Err(error) if Blocked::is_behind(&**error) => Outcome::Ignore,
                _ => outcome,
            };
            let entry = entry.take().expect("no call of this layer is skipped");
            match &answer {
                Ok(answer) => {
                    if let Some(meter) = entry.own_meter() {
                        this.costs.tell(answer, &meter);
                    }
                }
                Err(_) => entry.has_no_answer(),
            }
            entry.end(outcome);
            Poll::Ready(answer)
        };
        let refuse = |blocked, _: &Req| blocked;
        let on_refusal = |blocked: Blocked| Err(blocked.into());
        let on_unready = |error: S::Error| Err(error.into());
        let ends = CallEnds {
            on_answer,
            refuse,
            on_refusal,
            on_unready,
            // A request of an arbitrary type has no place for a meter.
            on_start: |_, _: &mut Req| {},
        };
        this.state.poll(cx, None, ends)
    }
}

impl<S, Req, C, K> fmt::Debug for CallFuture<S, Req, C, K>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}
