//! A request to a store on its way, with a deadline.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::hub::Hub;
use super::{StoreError, StoreErrorKind};
use crate::base::panics::catch_panic_or;
use crate::base::timer::{self, Timer};
use crate::clock::Tick;

/// See the [module](self). It ends with an error if it is late.
pub(super) struct Request<T> {
    answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>,
    deadline: Timer,
    pub(super) sent: Tick,
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
            deadline: timer::sleep(hub.settings.store_wait).ok()?,
            sent: now,
        })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
        let answer = &mut self.answer;
        let panicked = || StoreError::new(StoreErrorKind::Unreachable, "its client panicked");
        let polled = catch_panic_or(
            || answer.as_mut().poll(cx),
            |_| Poll::Ready(Err(panicked())),
        );
        if polled.is_ready() {
            return polled;
        }
        match Pin::new(&mut self.deadline).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                let detail = "its time was over";
                Poll::Ready(Err(StoreError::new(StoreErrorKind::Late, detail)))
            }
        }
    }
}
