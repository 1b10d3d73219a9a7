//! `Body`: a complete response body, and the parts in which a long text is kept.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::base::pace::StepPace;

/// The size in bytes of the parts of a long text. Parts are not moved as the text grows, and a
/// server frees them one by one: freeing 40 MB in one step would hold a worker for milliseconds.
const PART: usize = 64 << 10;

/// The body of a response, complete before it is sent. A long text has several frames. The length
/// is known in advance, so no response is chunked.
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
pub struct Body(IntoIter<Bytes>);

/// A text in parts. Clones share the parts.
#[derive(Clone, Debug, Default)]
pub(super) struct TextParts(Arc<Vec<Bytes>>);

/// A text in parts that grows at its end.
#[derive(Debug, Default)]
pub(super) struct GrowingText {
    full: Vec<Bytes>,
    last: String,
}

// === impl GrowingText ===

impl GrowingText {
    /// Returns the end of the text to write to. Call it at least once per line: a new part begins
    /// only between two calls.
    pub(super) fn end(&mut self) -> &mut String {
        if self.last.len() >= PART {
            let full = std::mem::take(&mut self.last);
            self.full.push(full.into());
        }
        if self.last.capacity() == 0 {
            self.last.reserve_exact(PART + PART / 8);
        }
        &mut self.last
    }

    pub(super) fn into_parts(self) -> TextParts {
        let Self { mut full, last } = self;
        if !last.is_empty() {
            full.push(last.into());
        }
        TextParts(Arc::new(full))
    }
}

// === impl TextParts ===

impl TextParts {
    /// Returns the length in bytes.
    pub(super) fn length(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns the whole text as one string.
    pub(super) fn joined(&self) -> String {
        let mut text = String::with_capacity(self.length());
        for part in self.0.iter() {
            text.push_str(&String::from_utf8_lossy(part));
        }
        text
    }

    pub(super) fn into_body(self) -> Body {
        Body(Arc::unwrap_or_clone(self.0).into_iter())
    }

    /// Frees the parts one by one, with a pause after each, unless a reader still shares them.
    pub(super) async fn free(self, pace: &mut StepPace) {
        for part in Arc::into_inner(self.0).unwrap_or_default() {
            drop(part);
            pace.spend(usize::MAX).await;
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        let parts = if bytes.is_empty() {
            Vec::new()
        } else {
            vec![bytes]
        };
        Self(parts.into_iter())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.0.as_slice().iter().map(Bytes::len).sum::<usize>();
        SizeHint::with_exact(left as u64)
    }
}
