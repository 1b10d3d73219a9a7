//! Sleeping until a borrowed place is due, without ever panicking.
//!
//! tokio's timer panics where there is no runtime or a runtime without a timer.
//! Waiting is a choice of the engine's, so it must not surprise its user with
//! that: the call is refused instead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Sleep;

/// There is nothing to sleep on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTimer;

/// A sleep that is not over.
#[derive(Debug)]
pub(crate) struct Timer(Pin<Box<Sleep>>);

/// A sleep of `duration`, from now: beside [`block`] the only one of the crate, as the
/// wait that a call was promised is its product.
pub(crate) fn sleep(duration: Duration) -> Result<Timer, NoTimer> {
    if Handle::try_current().is_err() {
        return Err(NoTimer);
    }
    // tokio does not tell whether a runtime has a timer: it panics, before
    // anything is done, and that is caught here.
    let sleep = catch_unwind(AssertUnwindSafe(|| Box::pin(tokio::time::sleep(duration))));
    sleep.map(Timer).map_err(|_| NoTimer)
}

/// Blocks the thread for `duration`, by the clock of the operating system.
#[expect(clippy::disallowed_methods, reason = "the caller asks for it")]
pub(crate) fn block(duration: Duration) {
    std::thread::sleep(duration);
}

impl Future for Timer {
    type Output = Result<(), NoTimer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // It stays with the runtime that it was made in. If that is gone and the call
        // is polled elsewhere, tokio panics, and the sleep is none any more.
        let poll = || self.0.as_mut().poll(cx);
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(NoTimer)),
        }
    }
}
