//! `ResponseFuture`: from a judged call to an HTTP response.

use std::convert;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::BoxError;
use super::at_head::{AtHead, RefusalBody};
use super::body::{ResponseBody, StreamedCall};
use super::call_state::{CallEnds, CallState, CallStateProj};
use super::classify::{ByStatus, Classify, Judgement, ResponseHead, ServiceError};
use super::completion::Completion;
use super::costs::add_meter;
use super::mode::{AsError, Mode, Respond};
use super::pushback::note_pushback;
use super::settings::Settings;
use crate::blocked::Blocked;
use crate::call::Importance;
use crate::engine::call::entry::{Entry, end_on_panic};
use crate::engine::call::rare::BodyUnits;
use crate::stat::Outcome;

pin_project! {
    /// The future of a response to a request that has been judged.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::future;
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, Service, service_fn};
    /// use tower_sentinel::{IsolationRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = SentinelLayer::new(IsolationRule::new("/report", 1));
    /// let mut service = layer.layer(service_fn(|_: Request<()>| {
    ///     future::pending::<Result<Response<String>, Infallible>>()
    /// }));
    /// let request = || Request::get("/report").body(()).unwrap();
    ///
    /// let running = service.call(request());
    /// let Ok(refused) = service.call(request()).await;
    /// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    /// // The client disconnects.
    /// drop(running);
    /// let node = layer.sentinel().node("/report").expect("it has been called");
    /// assert_eq!((node.totals().cancelled(), node.concurrency()), (1, 0));
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the call. If the call still waits, it leaves the queue. If the head
    /// of the response has not arrived yet, the call counts as cancelled.
    pub struct ResponseFuture<S, Req, M>
    where
        S: Service<Req>,
        M: Mode,
    {
        #[pin]
        pub(super) state: CallState<S, Req, M::Refusal>,
        // Set if the call waits, or if its response needs other settings than the defaults.
        pub(super) settings: Option<Arc<Settings>>,
        // The class that is current while the service is polled, if the layer propagates classes.
        pub(super) class: Option<Importance>,
    }
}

impl<S, Req, M> fmt::Debug for ResponseFuture<S, Req, M>
where
    S: Service<Req>,
    M: Mode,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<S, ReqB, ResB> Future for ResponseFuture<S, Request<ReqB>, Respond>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    S: 'static,
    ReqB: 'static,
    ResB: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (settings, class) = (this.settings.as_deref(), *this.class);
        let on_answer =
            |answer, entry: &mut _| finish(settings, class, answer, entry, convert::identity);
        let refuse = |blocked, request: &_| {
            let settings = settings.expect("a call that waits has them");
            settings.reject(request, blocked)
        };
        let on_refusal = |response: Response<Bytes>| Ok(response.map(ResponseBody::refused));
        let ends = CallEnds {
            on_answer,
            refuse,
            on_refusal,
            on_unready: Err,
            on_start: add_meter,
        };
        this.state.poll(cx, class, ends)
    }
}

impl<S, ReqB, ResB> Future for ResponseFuture<S, Request<ReqB>, AsError>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    S::Error: Into<BoxError>,
    ResB: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResB>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (settings, class) = (this.settings.as_deref(), *this.class);
        let on_answer = |answer: Result<_, S::Error>, entry: &mut _| {
            finish(settings, class, answer, entry, Into::<BoxError>::into)
        };
        let refuse = |blocked, _: &_| blocked;
        let on_refusal = |blocked: Blocked| Err(blocked.into());
        let on_unready = |error: S::Error| Err(error.into());
        let ends = CallEnds {
            on_answer,
            refuse,
            on_refusal,
            on_unready,
            on_start: add_meter,
        };
        this.state.poll(cx, class, ends)
    }
}

impl<S, ReqB, ResB, How> Future for ResponseFuture<S, Request<ReqB>, AtHead<Respond, How>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    S: 'static,
    ReqB: 'static,
    ResB: RefusalBody<How>,
{
    type Output = Result<Response<ResB>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let (settings, class) = (this.settings.as_deref(), *this.class);
        if let CallStateProj::Running { future, entry } = this.state.as_mut().project() {
            let _restore = class.map(Importance::enter);
            // Handled in place, as passing the answer to another function would copy it.
            return end_on_panic(entry, |entry| {
                let mut polled = future.poll(cx);
                if let Poll::Ready(answer) = &mut polled {
                    end_at_head(settings, answer, entry);
                }
                polled
            });
        }
        let on_answer = |mut answer, entry: &mut _| {
            end_at_head(settings, &mut answer, entry);
            Poll::Ready(answer)
        };
        let refuse = |blocked, request: &_| {
            let settings = settings.expect("a call that waits has them");
            settings.reject(request, blocked)
        };
        let on_refusal = |response: Response<Bytes>| Ok(response.map(ResB::refusal));
        let ends = CallEnds {
            on_answer,
            refuse,
            on_refusal,
            on_unready: Err,
            on_start: add_meter,
        };
        this.state.poll(cx, class, ends)
    }
}

impl<S, ReqB, ResB> Future for ResponseFuture<S, Request<ReqB>, AtHead<AsError>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    S::Error: Into<BoxError>,
    ResB: Body,
{
    type Output = Result<Response<ResB>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (settings, class) = (this.settings.as_deref(), *this.class);
        let on_answer = |answer: Result<_, S::Error>, entry: &mut _| {
            let mut answer = answer.map_err(Into::<BoxError>::into);
            end_at_head(settings, &mut answer, entry);
            Poll::Ready(answer)
        };
        let refuse = |blocked, _: &_| blocked;
        let on_refusal = |blocked: Blocked| Err(blocked.into());
        let on_unready = |error: S::Error| Err(error.into());
        let ends = CallEnds {
            on_answer,
            refuse,
            on_refusal,
            on_unready,
            on_start: add_meter,
        };
        this.state.poll(cx, class, ends)
    }
}

/// Turns the service's answer into the layer's. The call ends now or with the body; a call without
/// an entry was skipped. An error is classified after `convert`, as the sources of an error can be
/// examined only in a box.
// Always inlined, as the compiler inlines it only sometimes. A response is large, so it is examined
// in place, and moved once at the end.
#[inline(always)]
fn finish<B, E, T>(
    settings: Option<&Settings>,
    class: Option<Importance>,
    mut answer: Result<Response<B>, E>,
    running: &mut Option<Entry>,
    convert: impl FnOnce(E) -> T,
) -> Poll<Result<Response<ResponseBody<B>>, T>>
where
    B: Body,
    T: 'static,
{
    let call = match &mut answer {
        Ok(response) if settings.is_some_and(|it| it.completion == Completion::Head) => {
            end_with_head(settings, response, running);
            None
        }
        Ok(response) => begin_body(settings, response, running),
        Err(_) => None,
    };
    Poll::Ready(match answer {
        Ok(response) => Ok(response.map(|body| ResponseBody::served(body, call, class))),
        Err(error) => {
            let error = convert(error);
            end_failed(settings, &error, running);
            Err(error)
        }
    })
}

/// Ends the call when the service has answered, for a layer that leaves bodies alone.
#[inline(always)]
fn end_at_head<B: Body, E: 'static>(
    settings: Option<&Settings>,
    answer: &mut Result<Response<B>, E>,
    running: &mut Option<Entry>,
) {
    match answer {
        Ok(response) => end_with_head(settings, response, running),
        Err(error) => end_failed(settings, error, running),
    }
}

/// Ends the call when the service has failed with `error`.
#[inline(always)]
fn end_failed<E: 'static>(settings: Option<&Settings>, error: &E, running: &mut Option<Entry>) {
    if let Some(entry) = running {
        entry.has_no_answer();
        let own = settings.and_then(|settings| settings.classify.as_deref());
        end(running, outcome_of(ServiceError::of(error), own));
    }
}

/// Notes that the head of `response` has arrived. Ends the call if nothing follows; otherwise
/// returns it to end with the body.
#[inline(always)]
fn begin_body<B: Body>(
    settings: Option<&Settings>,
    response: &mut Response<B>,
    running: &mut Option<Entry>,
) -> Option<StreamedCall> {
    let entry = running.as_mut()?;
    if !response.status().is_success() {
        note_pushback(entry, response);
    }
    let own = settings.and_then(|settings| settings.classify.as_ref());
    let has_ended = has_ended(response);
    let (outcome, at_trailers) = match judge_head(own, response) {
        Judgement::Now(outcome) => (outcome, None),
        Judgement::AtTrailers => {
            let classify = own.cloned().unwrap_or_else(|| Arc::new(ByStatus));
            (classify.trailers(None), Some(classify))
        }
    };
    if let Some(settings) = settings {
        settings.note_head(entry, response);
        if let Some(units) = settings.body_units() {
            note_body(entry, response, units);
        }
    }
    if has_ended {
        end(running, outcome);
        return None;
    }
    let responded_at = entry.note_response(outcome, at_trailers.is_none());
    let entry = running.take()?.with_response_at(responded_at, outcome);
    Some(StreamedCall { entry, at_trailers })
}

/// Ends the call at the head of `response`, whatever body follows.
#[inline]
fn end_with_head<B: Body>(
    settings: Option<&Settings>,
    response: &mut Response<B>,
    running: &mut Option<Entry>,
) {
    let Some(entry) = running else { return };
    if !response.status().is_success() {
        note_pushback(entry, response);
    }
    let own = settings.and_then(|settings| settings.classify.as_ref());
    let outcome = match judge_head(own, response) {
        Judgement::Now(outcome) => outcome,
        Judgement::AtTrailers if has_ended(response) => match own {
            None => ByStatus.trailers(None),
            Some(own) => own.trailers(None),
        },
        // The call does not wait for trailers that are still to come.
        Judgement::AtTrailers => Outcome::Success,
    };
    if let Some(settings) = settings {
        settings.note_head(entry, response);
    }
    end(running, outcome);
}

/// Judges the head of `response` by `own`, or by status if that is `None`.
#[inline(always)]
fn judge_head<B>(own: Option<&Arc<dyn Classify>>, response: &Response<B>) -> Judgement {
    // Each arm creates a separate head: the head for `ByStatus`, which is inlined, then needs no
    // memory.
    match own {
        None => ByStatus.head(ResponseHead::of(response)),
        Some(own) => own.head(ResponseHead::of(response)),
    }
}

/// Makes the body of `response` cost `units` by its length. The layer never sees data after an
/// upgrade.
#[cold]
#[inline(never)]
fn note_body<B: Body>(entry: &Entry, response: &Response<B>, units: &BodyUnits) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        entry.count_body(units);
        if response.body().is_end_stream() {
            entry.settle_body();
        }
    }
}

/// Returns whether nothing follows the head: an upgraded connection lives outside of the service,
/// and a body that is at its end may never be polled.
fn has_ended<B: Body>(response: &Response<B>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS || response.body().is_end_stream()
}

/// Judges `error` by `own`, or by the defaults if that is `None`. A refusal is ignored.
#[cold]
fn outcome_of(error: ServiceError<'_>, own: Option<&dyn Classify>) -> Outcome {
    match own {
        _ if error.is_refusal() => Outcome::Ignore,
        Some(own) => own.error(error),
        None => ByStatus.error(error),
    }
}

/// Ends the call in place, as moving an entry costs more than ending it.
fn end(running: &mut Option<Entry>, outcome: Outcome) {
    if let Some(entry) = running {
        entry.set_outcome(outcome);
        *running = None;
    }
}
