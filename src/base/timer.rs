//! Sleeping on tokio's timer without ever panicking, for calls that wait.
//!
//! tokio's timer panics where there is no runtime, where a runtime has no timer, and where it is
//! gone. It is the engine that decides to wait, so its user must not be surprised by that panic:
//! the call is refused instead.
//!
//! Only that panic shows whether a runtime has a timer. It is caught, but by then the panic hook of
//! the process has reported it. So each runtime is tested once: a runtime without a timer never
//! gets one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Sleep;

use crate::base::panics::catch_panic;
use crate::base::sync::{Lock, thread_local};

/// How many runtimes without a timer are remembered: only the newest.
const MOST_KNOWN: usize = 16;

/// Runtimes without a timer, or whose timer is gone. Remembered only to avoid further panic
/// reports.
static WITHOUT_TIMER: LazyLock<Lock<VecDeque<Id>>> = LazyLock::new(Lock::default);

thread_local! {
    /// The runtime on whose timer this thread has slept last.
    static WITH_TIMER: Cell<Option<Id>> = const { Cell::new(None) };
    /// Whether this thread is just finding out whether a runtime has a timer.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// The error that there is no timer to sleep on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTimer;

/// A sleep on tokio's timer that is not over.
#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// The runtime in which the sleep was made.
    runtime: Id,
}

/// Starts a sleep of `duration` on the timer of the current runtime.
pub(crate) fn sleep(duration: Duration) -> Result<Timer, NoTimer> {
    let Ok(handle) = Handle::try_current() else {
        return Err(NoTimer);
    };
    let runtime = handle.id();
    let make = || Timer {
        sleep: Box::pin(tokio::time::sleep(duration)),
        runtime,
    };
    if WITH_TIMER.get() == Some(runtime) {
        return Ok(make());
    }
    let timer = ask(runtime, make)?;
    WITH_TIMER.set(Some(runtime));
    Ok(timer)
}

/// Tries the call that panics if `runtime` has no timer, unless the result is known. Other threads
/// that try it meanwhile wait, so that there is one panic only.
#[cold]
fn ask<T>(runtime: Id, try_it: impl FnOnce() -> T) -> Result<T, NoTimer> {
    // The panic hook is the user's, and may call this function again.
    if IS_ASKING.get() {
        return Err(NoTimer);
    }
    let mut known = WITHOUT_TIMER.lock();
    if known.contains(&runtime) {
        return Err(NoTimer);
    }
    IS_ASKING.set(true);
    let tried = catch_panic(try_it);
    IS_ASKING.set(false);
    tried.ok_or_else(|| {
        known.truncate(MOST_KNOWN - 1);
        known.push_front(runtime);
        NoTimer
    })
}

impl Future for Timer {
    type Output = Result<(), NoTimer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let runtime = self.runtime;
        let mut poll = || self.sleep.as_mut().poll(cx);
        // The sleep belongs to the runtime in which it was made. If that runtime is gone and the
        // call is polled elsewhere, tokio panics, and there is no timer any more.
        let is_there = Handle::try_current().is_ok_and(|handle| handle.id() == runtime);
        let polled = if is_there {
            catch_panic(poll).ok_or(NoTimer)
        } else {
            ask(runtime, &mut poll)
        };
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(none) => Poll::Ready(Err(none)),
        }
    }
}
