//! `ResponseBody`: holds the call until the body has ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::classify::Classify;
use crate::call::Importance;
use crate::engine::call::entry::{Entry, end_on_panic};
use crate::stat::Outcome;

pin_project! {
    /// The body of a response, or of a refusal.
    ///
    /// The call ends once, when the first of these happens: the last frame, the trailers, an error,
    /// or the drop of the body. The hints about size and end come from the inner body, so the
    /// wrapper makes no response chunked.
    ///
    /// # Examples
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::ResponseBody;
    /// use tower_sentinel::{IsolationRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = SentinelLayer::new(IsolationRule::new("/report", 1));
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new("a page".to_owned()))
    /// # }));
    /// # let get = async || {
    /// #     let request = Request::get("/report").body(()).unwrap();
    /// #     service.clone().oneshot(request).await.unwrap()
    /// # };
    /// let running: Response<ResponseBody<String>> = get().await;
    /// assert_eq!(running.status(), StatusCode::OK);
    /// // Its body has not been sent, so the call still runs.
    /// assert_eq!(get().await.status(), StatusCode::TOO_MANY_REQUESTS);
    /// drop(running);
    /// assert_eq!(get().await.status(), StatusCode::OK);
    /// # });
    /// ```
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    /// The body of a response of the service, or of a refusal.
    #[project = BodyKindProj]
    enum BodyKind<B> {
        Served {
            #[pin]
            body: B,
            call: Option<StreamedCall>,
            // The class that is current while the body is polled, if the layer propagates classes.
            class: Option<Importance>,
        },
        Refused {
            data: Option<Bytes>,
        },
    }
}

/// A call that ends with its body.
pub(super) struct StreamedCall {
    pub(super) entry: Entry,
    /// Judges the trailers, if they decide how the call ended.
    pub(super) at_trailers: Option<Arc<dyn Classify>>,
}

impl From<StreamedCall> for Entry {
    fn from(call: StreamedCall) -> Self {
        call.entry
    }
}

impl<B> ResponseBody<B> {
    /// Wraps the `body` of a service's response. `call` is `None` if the call has ended or was
    /// skipped. `class` is the propagated class.
    pub(super) fn served(body: B, call: Option<StreamedCall>, class: Option<Importance>) -> Self {
        Self {
            kind: BodyKind::Served { body, call, class },
        }
    }

    /// Creates the body of a refusal, which consists of `data`.
    pub(super) fn refused(data: Bytes) -> Self {
        let data = (!data.is_empty()).then_some(data);
        Self {
            kind: BodyKind::Refused { data },
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let kind = self.project().kind.project();
        let _restore = match &kind {
            BodyKindProj::Served { class, .. } => class.map(Importance::enter),
            BodyKindProj::Refused { .. } => None,
        };
        match kind {
            BodyKindProj::Refused { data } => Poll::Ready(data.take().map(Frame::data).map(Ok)),
            BodyKindProj::Served { mut body, call, .. } => end_on_panic(call, |call| {
                let frame = body.as_mut().poll_frame(cx);
                let Some(StreamedCall { entry, at_trailers }) = call else {
                    return frame;
                };
                let is_over = match &frame {
                    Poll::Pending => false,
                    Poll::Ready(None) => true,
                    Poll::Ready(Some(Err(_))) => {
                        entry.set_outcome(Outcome::Failure);
                        entry.body_continues();
                        true
                    }
                    Poll::Ready(Some(Ok(frame))) => match frame.trailers_ref() {
                        Some(trailers) => {
                            if let Some(classify) = at_trailers {
                                entry.set_outcome(classify.trailers(Some(trailers)));
                            }
                            true
                        }
                        None => {
                            entry.charge_body(frame.data_ref().map_or(0, Bytes::len));
                            // After the last frame, the server may drop the body without polling
                            // it again.
                            body.is_end_stream()
                        }
                    },
                };
                if is_over {
                    if !matches!(frame, Poll::Ready(Some(Err(_)))) {
                        entry.settle_body();
                    }
                    *call = None;
                } else {
                    entry.body_continues();
                }
                frame
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Served { body, .. } => body.is_end_stream(),
            BodyKind::Refused { data } => data.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Served { body, .. } => body.size_hint(),
            BodyKind::Refused { data } => {
                SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64))
            }
        }
    }
}

/// An empty body that belongs to no call. Layers around this one, such as those of
/// tower-http for CORS and timeouts, need it for responses of their own.
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::refused(Bytes::new())
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
