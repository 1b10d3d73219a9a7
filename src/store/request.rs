//! A request in flight to the store, with a deadline.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::hub::Hub;
use super::{StoreError, StoreErrorKind};
use crate::base::panics::catch_panic_or;
use crate::base::timer::{self, Timer};
use crate::clock::Tick;

/// See the [module](self).
pub(super) struct Request<T> {
    answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>,
    /// The timer of the deadline; `None` once the deadline has passed.
    deadline: Option<Timer>,
    /// When the request was sent.
    pub(super) sent: Tick,
}

/// The result of a request.
pub(super) enum Heard<T> {
    Answer(Result<T, StoreError>),
    /// The deadline has passed. A request returns this once, and can still be answered later.
    Late,
}

impl<T: Send + 'static> Request<T> {
    /// Creates a request whose deadline is the settings' `store_wait` from now; `None` if there is
    /// no timer.
    pub(super) fn new(
        hub: &Hub,
        now: Tick,
        make: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Option<Self> {
        Some(Self {
            answer: Box::pin(make),
            deadline: Some(timer::sleep(hub.settings.store_wait).ok()?),
            sent: now,
        })
    }

    /// Polls the answer and the deadline. A panic of the store's client counts as an error.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Heard<T>> {
        let answer = &mut self.answer;
        let panicked = || StoreError::new(StoreErrorKind::Unreachable, "its client panicked");
        let polled = catch_panic_or(
            || answer.as_mut().poll(cx),
            |_| Poll::Ready(Err(panicked())),
        );
        if let Poll::Ready(answer) = polled {
            return Poll::Ready(Heard::Answer(answer));
        }
        let deadline = self.deadline.as_mut();
        let is_over = deadline.is_some_and(|timer| Pin::new(timer).poll(cx).is_ready());
        if is_over {
            self.deadline = None;
            return Poll::Ready(Heard::Late);
        }
        Poll::Pending
    }
}

/// Creates the error for a request whose deadline has passed.
pub(super) fn late() -> StoreError {
    StoreError::new(StoreErrorKind::Late, "its time was over")
}
