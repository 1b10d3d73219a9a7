//! Pacing: when the next call may start, and how many calls may pass now.
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
//! * [`Throttle`]: a leaky bucket. Calls start at least their cost apart, and wait for their start.
//! * [`WarmUp`]: a threshold that starts low after idle times and grows with
//!   the load.
//! * [`MemoryCurve`]: a threshold that falls while memory runs out.
//!
//! A queue can be combined with either threshold. None of these types knows rules, resources or
//! timers. None allocates, locks or sleeps on the path of a call, and none needs a thread, because
//! each caller advances the state.

mod curve;
mod memory;
mod throttle;
mod warm_up;

pub(crate) use memory::MemoryCurve;
pub(crate) use throttle::{Throttle, Turn, cost};
pub(crate) use warm_up::WarmUp;

#[cfg(all(test, sentinel_loom))]
mod models;
