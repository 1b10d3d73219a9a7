//! Runs code that is not the engine's, and that can panic.
//!
//! A panic carries a value, whose destructor is code of its author as well: it can panic in turn,
//! outside of any catch. So the value is dropped here.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the result of `call`; `None` if it panics.
pub(crate) fn catch_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => Some(answer),
        Err(panic) => {
            drop_panic(panic);
            None
        }
    }
}

/// Returns the result of `call`. If `call` panics, passes the panic to `on_panic`, and returns the
/// result of `on_panic`.
pub(crate) fn catch_panic_or<T>(
    call: impl FnOnce() -> T,
    on_panic: impl FnOnce(&(dyn Any + Send)) -> T,
) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => answer,
        Err(panic) => {
            let answer = on_panic(&*panic);
            drop_panic(panic);
            answer
        }
    }
}

/// Drops the value of a panic, which may panic.
#[cold]
fn drop_panic(panic: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Dropping the next value could panic again, without end.
        mem::forget(next);
    }
}
