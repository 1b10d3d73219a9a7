//! `SentinelService`: judges each request, then calls the service or not.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::BoxError;
use super::at_head::{AtHead, RefusalBody};
use super::body::ResponseBody;
use super::call_state::{CallState, drop_readiness};
use super::costs::add_meter;
use super::future::ResponseFuture;
use super::judged::mark;
use super::mode::{AsError, Mode, Respond};
use super::settings::Settings;
use crate::blocked::Blocked;
use crate::call::Importance;
use crate::engine::call::entry::Entry;
use crate::engine::call::verdict::{SlowVerdict, Verdict};
use crate::engine::call::waiting::Waiting;

/// A service with rules in front of it; created by a [`SentinelLayer`](crate::SentinelLayer).
///
/// Requests are judged in [`call`](Service::call), not in [`poll_ready`](Service::poll_ready):
/// which rules apply depends on the request, and nothing is reserved for a caller that never calls.
/// The work of the inner service before it is ready belongs to no call, and an error that it
/// returns then is counted nowhere. So while it is not ready nothing is refused, unless the layer
/// [judges first](crate::SentinelLayer::judge_first).
///
/// A call that waits uses a clone of the inner service, which is driven to readiness after the
/// wait. So calls whose turns come while it is not ready start once it is ready, possibly at the
/// same time. When a call waits or is refused, the instance whose readiness the caller had awaited
/// is dropped, so that it does not keep a permit that is not used.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let rule = FlowRule::per_second("/search", 1);
/// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
/// # let inner = service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # });
/// let service = SentinelLayer::with(sentinel).layer(inner);
/// let request = || Request::get("/search").body(()).unwrap();
///
/// // All clones share one limit.
/// let status = async || {
///     let Ok(response) = service.clone().oneshot(request()).await;
///     response.status()
/// };
/// assert_eq!(status().await, StatusCode::OK);
/// assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
/// // The inner service answers: no rules apply to it.
/// let Ok(response) = service.into_inner().oneshot(request()).await;
/// assert_eq!(response.status(), StatusCode::OK);
/// # });
/// ```
pub struct SentinelService<S, M = Respond> {
    inner: S,
    settings: Arc<Settings>,
    /// Whether `poll_ready` returned that this service is ready although `inner` was not.
    is_unready: bool,
    mode: PhantomData<M>,
}

impl<S, M> SentinelService<S, M> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self {
            inner,
            settings,
            is_unready: false,
            mode: PhantomData,
        }
    }

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

impl<S, M: Mode> SentinelService<S, M> {
    /// Turns `poll`, the readiness of the inner service, into the readiness of this service.
    #[inline]
    fn readiness<E>(&mut self, poll: Poll<Result<(), E>>) -> Poll<Result<(), E>> {
        self.is_unready = poll.is_pending() && self.settings.judge_first;
        if self.is_unready {
            return Poll::Ready(Ok(()));
        }
        poll
    }

    /// Judges `request`, and then calls the inner service, waits, or refuses. `refuse` turns a
    /// refusal into the answer.
    #[inline(always)]
    fn dispatch<B>(
        &mut self,
        request: Request<B>,
        refuse: impl FnOnce(&Settings, &Request<B>, Blocked) -> M::Refusal,
    ) -> ResponseFuture<S, Request<B>, M>
    where
        S: Service<Request<B>> + Clone,
    {
        let mut slow = SlowVerdict::empty();
        match &mut self.settings.judge(&request, &mut slow) {
            Some(pass) => {
                slow.forget_empty();
                // `run` also marks the request and propagates the importance class. Both need a
                // reference to the request, and the compiler copies a request whose address is
                // taken here.
                if self.is_unready || pass.to_mark().is_some() || self.settings.propagates {
                    return self.run(request, Some(pass.take_entry()));
                }
                // Created in place: request and future are large, and each function that takes or
                // returns one of the two copies it.
                ResponseFuture {
                    settings: self.settings.for_response(),
                    class: None,
                    state: CallState::Running {
                        future: self.inner.call(request),
                        entry: Some(pass.take_entry().expecting_response()),
                    },
                }
            }
            None => match slow.into_inner() {
                Some(Verdict::Block(blocked)) => {
                    drop_readiness(&mut self.inner);
                    let refusal = refuse(&self.settings, &request, blocked);
                    ResponseFuture {
                        settings: None,
                        class: None,
                        state: CallState::refused(refusal),
                    }
                }
                Some(Verdict::Pass(entry)) => self.run(request, Some(entry)),
                Some(Verdict::Wait(waiting)) => self.wait(request, waiting),
                None if self.is_unready || self.settings.propagates => self.run(request, None),
                None => ResponseFuture {
                    settings: None,
                    class: None,
                    state: CallState::Running {
                        future: self.inner.call(request),
                        entry: None,
                    },
                },
            },
        }
    }

    /// Makes a call wait for its turn.
    #[cold]
    fn wait<B>(
        &mut self,
        mut request: Request<B>,
        waiting: Waiting,
    ) -> ResponseFuture<S, Request<B>, M>
    where
        S: Service<Request<B>> + Clone,
    {
        if let Some(resource) = waiting.to_mark() {
            mark(&self.settings, &mut request, resource);
        }
        let judge_first = self.settings.judge_first;
        ResponseFuture {
            class: self.settings.propagate(&mut request),
            settings: Some(self.settings.clone()),
            state: CallState::waiting(waiting, &mut self.inner, request, judge_first),
        }
    }

    /// Runs a call that passed on the slow path, or whose request must be marked or must carry its
    /// importance class. A call without an entry was skipped. If the inner service is not ready,
    /// the call waits for it.
    // Not inlined: otherwise the future of the fast path is copied once more.
    #[inline(never)]
    fn run<B>(
        &mut self,
        mut request: Request<B>,
        entry: Option<Entry>,
    ) -> ResponseFuture<S, Request<B>, M>
    where
        S: Service<Request<B>> + Clone,
    {
        if let Some(resource) = entry.as_ref().and_then(Entry::to_mark) {
            mark(&self.settings, &mut request, resource);
        }
        let meter = entry.as_ref().and_then(Entry::own_meter);
        let settings = match meter {
            Some(meter) => {
                add_meter(meter, &mut request);
                Some(self.settings.clone())
            }
            None => self.settings.for_response(),
        };
        let class = self.settings.propagate(&mut request);
        let _restore = class.map(Importance::enter);
        ResponseFuture {
            settings,
            class,
            state: if self.is_unready {
                CallState::unready(entry, &mut self.inner, request)
            } else {
                CallState::running(self.inner.call(request), entry)
            },
        }
    }
}

impl<S: Clone, M> Clone for SentinelService<S, M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: self.settings.clone(),
            is_unready: self.is_unready,
            mode: PhantomData,
        }
    }
}

impl<S: fmt::Debug, M> fmt::Debug for SentinelService<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelService")
            .field("inner", &self.inner)
            .field("sentinel", &self.settings.sentinel)
            .finish_non_exhaustive()
    }
}

impl<S, ReqB, ResB> Service<Request<ReqB>> for SentinelService<S, Respond>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone,
    S: 'static,
    ReqB: 'static,
    ResB: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<ResB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request<ReqB>, Respond>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let poll = self.inner.poll_ready(cx);
        self.readiness(poll)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        self.dispatch(request, Settings::reject)
    }
}

impl<S, ReqB, ResB> Service<Request<ReqB>> for SentinelService<S, AsError>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone,
    S::Error: Into<BoxError>,
    ResB: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<ResB>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, Request<ReqB>, AsError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let poll = self.inner.poll_ready(cx);
        self.readiness(poll).map_err(Into::into)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        self.dispatch(request, |_, _, blocked| blocked)
    }
}

impl<S, ReqB, ResB, How> Service<Request<ReqB>> for SentinelService<S, AtHead<Respond, How>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone,
    S: 'static,
    ReqB: 'static,
    ResB: RefusalBody<How>,
{
    type Response = Response<ResB>;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request<ReqB>, AtHead<Respond, How>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let poll = self.inner.poll_ready(cx);
        self.readiness(poll)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        self.dispatch(request, Settings::reject)
    }
}

impl<S, ReqB, ResB> Service<Request<ReqB>> for SentinelService<S, AtHead<AsError>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone,
    S::Error: Into<BoxError>,
    ResB: Body,
{
    type Response = Response<ResB>;
    type Error = BoxError;
    type Future = ResponseFuture<S, Request<ReqB>, AtHead<AsError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let poll = self.inner.poll_ready(cx);
        self.readiness(poll).map_err(Into::into)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        self.dispatch(request, |_, _, blocked| blocked)
    }
}
