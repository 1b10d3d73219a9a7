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
use super::guarded::{End, Guarded};
use super::layer::{Completion, Fail, Respond, Settings};
use crate::entry::{Entry, Verdict};
use crate::rejection::RateLimitFields;

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

impl<S, ReqB, M> ResponseFuture<S, Request<ReqB>, M>
where
    S: Service<Request<ReqB>> + Clone,
{
    /// Judges `request` and calls `service` with it, at once or later.
    #[inline]
    pub(super) fn new(service: &mut S, request: Request<ReqB>, settings: &Arc<Settings>) -> Self {
        if settings.skips(&request) {
            return Self {
                guarded: Guarded::skipped(service, request),
                settings: None,
                mode: PhantomData,
            };
        }
        let verdict = settings.decide(&request);
        let is_plain = matches!(verdict, Verdict::Pass(_)) && settings.is_plain();
        Self {
            guarded: Guarded::new(service, request, verdict),
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
        Poll::Ready(match ready!(this.guarded.poll(cx)) {
            End::Answered(answer, entry) => answered(this.settings.as_deref(), answer, entry),
            End::NotReady(error) => Err(error),
            End::Refused(blocked, request) => {
                let settings = this
                    .settings
                    .as_ref()
                    .expect("only a call that passed has none");
                Ok(settings
                    .reject(&request, blocked)
                    .map(ResponseBody::refused))
            }
        })
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
        Poll::Ready(match ready!(this.guarded.poll(cx)) {
            End::Answered(answer, entry) => {
                answered(this.settings.as_deref(), answer, entry).map_err(Into::into)
            }
            End::NotReady(error) => Err(error.into()),
            End::Refused(blocked, _) => Err(blocked.into()),
        })
    }
}

/// The service has answered: the call's time is measured, and its end comes now
/// or with the body. A call without an entry was skipped: nothing is done.
fn answered<B, E>(
    settings: Option<&Settings>,
    answer: Result<Response<B>, E>,
    entry: Option<Entry>,
) -> Result<Response<ResponseBody<B>>, E>
where
    B: Body,
{
    let Some(mut entry) = entry else {
        return answer.map(|response| response.map(|body| ResponseBody::guarded(body, None)));
    };
    let own = settings.and_then(|settings| settings.classify.as_ref());
    let classify: &dyn Classify = own.map_or(&ByStatus, |own| &**own);
    let response = match answer {
        Ok(response) => response,
        Err(error) => {
            entry.respond(classify.error(), true);
            return Err(error);
        }
    };
    let (mut parts, body) = response.into_parts();
    let judgement = classify.head(ResponseHead {
        status: parts.status,
        headers: &parts.headers,
        extensions: &parts.extensions,
    });
    let (outcome, at_trailers) = match judgement {
        Judgement::Now(outcome) => (outcome, None),
        Judgement::AtTrailers => {
            let at_trailers = own.cloned().unwrap_or_else(|| Arc::new(ByStatus));
            (classify.trailers(None), Some(at_trailers))
        }
    };
    entry.respond(outcome, at_trailers.is_none());
    let fields = settings.map_or(RateLimitFields::None, |settings| settings.fields);
    if fields != RateLimitFields::None {
        if let Some(left) = entry.quota_left() {
            fields.write(&left, &mut parts.headers);
        }
    }
    // An upgraded connection lives outside of the service, and a body that is at
    // its end may never be polled.
    let is_over = settings.is_some_and(|settings| settings.completion == Completion::Head)
        || parts.status == StatusCode::SWITCHING_PROTOCOLS
        || body.is_end_stream();
    let tail = if is_over {
        None
    } else {
        Some(Tail::new(entry, at_trailers))
    };
    Ok(Response::from_parts(
        parts,
        ResponseBody::guarded(body, tail),
    ))
}
