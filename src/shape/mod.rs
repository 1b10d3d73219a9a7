//! Pacing: when the next call may start, and how many may pass just now.
//!
//! ```text
//!   per interval                      start
//!   ▲                                 ▲
//! T │          ╭──────  WarmUp        │           ●─ one cost  Throttle
//!   │       ╭──╯                      │        ●──╯  after the
//!   │   ╭───╯                         │     ●──╯     other
//! T │ ──╯                             │  ●──╯
//! ─ └────────────────▶ load           └────────────▶ calls
//! f
//! ```
//!
//! * [`Throttle`]: a leaky bucket. Calls start one cost apart, and wait for it.
//! * [`WarmUp`]: a threshold that starts low after idle times and grows with
//!   the load.
//! * [`MemoryCurve`]: a threshold that falls while memory runs out.
//!
//! A queue combines with either threshold. None of them knows rules, resources or timers, none
//! allocates, locks or sleeps on the path of a call, and none needs a thread: each caller moves the
//! state on.

mod curve;
mod memory;
mod throttle;
mod warm_up;

pub(crate) use memory::MemoryCurve;
pub(crate) use throttle::{Throttle, Turn, cost};
pub(crate) use warm_up::WarmUp;

#[cfg(all(test, sentinel_loom))]
mod models;
