//! `ResponseFuture`: from a judged call to an HTTP response.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::BoxError;
use super::body::{ResponseBody, Tail};
use super::classify::{ByStatus, Classify, Judgement, ResponseHead};
use super::guarded::Guarded;
use super::layer::{Completion, Fail, Respond, Settings};
use crate::blocked::Blocked;
use crate::entry::{Entry, Verdict};
use crate::rejection::RateLimitFields;
use crate::stat::Outcome;

pin_project! {
    /// The response to a request that has been judged.
    ///
    /// # Cancel safety
    ///
    /// Dropping it ends the call. Before its turn that gives its place up;
    /// before the head of the response the call counts as cancelled.
    pub struct ResponseFuture<S, Req, M>
    where
        S: Service<Req>,
    {
        #[pin]
        guarded: Guarded<S, Req>,
        // Unless the call passed at once and its response needs only defaults.
        settings: Option<Arc<Settings>>,
        mode: PhantomData<M>,
    }
}

impl<S, Req, M> ResponseFuture<S, Req, M>
where
    S: Service<Req>,
{
    /// A call that runs.
    #[inline]
    pub(super) fn running(future: S::Future, mut entry: Entry, settings: &Arc<Settings>) -> Self {
        // Dropped before there is a response, it was cancelled.
        entry.expect_response();
        Self {
            guarded: Guarded::running(future, Some(entry)),
            settings: (!settings.is_plain()).then(|| settings.clone()),
            mode: PhantomData,
        }
    }

    /// A call with `request` that did not take the common path; without a
    /// verdict, one that is skipped. `service` is ready.
    #[inline(never)]
    pub(super) fn by(
        verdict: Option<Verdict>,
        service: &mut S,
        request: Req,
        settings: &Arc<Settings>,
    ) -> Self
    where
        S: Clone,
    {
        let is_plain = match &verdict {
            None => true,
            Some(Verdict::Pass(_)) => settings.is_plain(),
            Some(_) => false,
        };
        Self {
            guarded: Guarded::by(verdict, service, request),
            settings: (!is_plain).then(|| settings.clone()),
            mode: PhantomData,
        }
    }
}

impl<S, Req, M> fmt::Debug for ResponseFuture<S, Req, M>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<S, ReqB, ResB> Future for ResponseFuture<S, Request<ReqB>, Respond>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ResB: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let settings = this.settings.as_deref();
        let answered = |answer, entry: &mut _| answered(settings, answer, entry);
        let refused = |blocked, request: &_| {
            let settings = settings.expect("only a call that passed has none");
            let response = settings.reject(request, blocked);
            Ok(response.map(ResponseBody::refused))
        };
        match ready!(this.guarded.poll(cx, answered, refused)) {
            Ok(answer) => Poll::Ready(answer),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<S, ReqB, ResB> Future for ResponseFuture<S, Request<ReqB>, Fail>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    S::Error: Into<BoxError>,
    ResB: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResB>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let settings = this.settings.as_deref();
        let answered =
            |answer, entry: &mut _| answered(settings, answer, entry).map_err(Into::into);
        let refused = |blocked: Blocked, _: &_| Err(blocked.into());
        match ready!(this.guarded.poll(cx, answered, refused)) {
            Ok(answer) => Poll::Ready(answer),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

/// The service has answered: the call's time is measured, and its end comes now
/// or with the body. A call without an entry was skipped: nothing is done.
#[inline]
fn answered<B, E>(
    settings: Option<&Settings>,
    answer: Result<Response<B>, E>,
    running: &mut Option<Entry>,
) -> Result<Response<ResponseBody<B>>, E>
where
    B: Body,
{
    let Some(entry) = running else {
        return answer.map(|response| response.map(|body| ResponseBody::guarded(body, None)));
    };
    let own = settings.and_then(|settings| settings.classify.as_ref());
    let classify: &dyn Classify = own.map_or(&ByStatus, |own| &**own);
    let mut response = match answer {
        Ok(response) => response,
        Err(error) => {
            end(running, classify.error());
            return Err(error);
        }
    };
    let judgement = classify.head(ResponseHead {
        status: response.status(),
        headers: response.headers(),
        extensions: response.extensions(),
    });
    let (outcome, at_trailers) = match judgement {
        Judgement::Now(outcome) => (outcome, None),
        Judgement::AtTrailers => {
            let at_trailers = own.cloned().unwrap_or_else(|| Arc::new(ByStatus));
            (classify.trailers(None), Some(at_trailers))
        }
    };
    let fields = settings.map_or(RateLimitFields::None, |settings| settings.fields);
    if fields != RateLimitFields::None {
        if let Some(left) = entry.quota_left() {
            fields.write(&left, response.headers_mut());
        }
    }
    // An upgraded connection lives outside of the service, and a body that is at
    // its end may never be polled.
    let is_over = settings.is_some_and(|settings| settings.completion == Completion::Head)
        || response.status() == StatusCode::SWITCHING_PROTOCOLS
        || response.body().is_end_stream();
    if is_over {
        end(running, outcome);
    } else {
        entry.respond(outcome, at_trailers.is_none());
    }
    Ok(response.map(|body| {
        let tail = running.take().map(|entry| Tail::new(entry, at_trailers));
        ResponseBody::guarded(body, tail)
    }))
}

fn end(running: &mut Option<Entry>, outcome: Outcome) {
    if let Some(entry) = running.take() {
        entry.end(outcome);
    }
}
