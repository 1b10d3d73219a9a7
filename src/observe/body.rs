//! `Body`: an answer that is ready.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// The body of an answer: bytes that are ready, in one frame. Its length is known, so no answer
/// is chunked.
///
/// # Examples
///
/// ```
/// use http_body_util::BodyExt;
/// use tower_sentinel::observe::Body;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let body = Body::from("ready");
/// assert_eq!(http_body::Body::size_hint(&body).exact(), Some(5));
/// assert_eq!(body.collect().await.unwrap().to_bytes(), "ready");
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Body(Option<Bytes>);

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        Self((!bytes.is_empty()).then_some(bytes))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
