//! Sleeping until a borrowed place is due, without ever panicking.
//!
//! tokio's timer panics where there is no runtime or a runtime without a timer.
//! Waiting is a choice of the engine's, so it must not surprise its user with
//! that: the call is refused instead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Sleep;

/// There is nothing to sleep on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTimer;

/// A sleep of `duration`, from now: the only one of the crate, as the wait that
/// a call was promised is its product.
pub(crate) fn sleep(duration: Duration) -> Result<Pin<Box<Sleep>>, NoTimer> {
    if Handle::try_current().is_err() {
        return Err(NoTimer);
    }
    // tokio does not tell whether a runtime has a timer: it panics, before
    // anything is done, and that is caught here.
    catch_unwind(AssertUnwindSafe(|| Box::pin(tokio::time::sleep(duration)))).map_err(|_| NoTimer)
}
