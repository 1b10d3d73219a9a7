//! A request to a store on its way, with a time by which it should be answered.

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
    /// `None` once it is over.
    deadline: Option<Timer>,
    pub(super) sent: Tick,
}

/// The result of a request.
pub(super) enum Heard<T> {
    Answer(Result<T, StoreError>),
    /// The time of the request is over: reported once. The request may still be answered.
    Late,
}

impl<T: Send + 'static> Request<T> {
    /// `None` if there is no timer.
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

pub(super) fn late() -> StoreError {
    StoreError::new(StoreErrorKind::Late, "its time was over")
}
