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
//!
//! Both combine freely. Neither knows rules, resources or timers, neither
//! allocates, locks or sleeps on the path of a call, and neither needs a thread:
//! whoever calls moves the state on.

mod curve;
mod throttle;
mod warm_up;

pub(crate) use throttle::{Throttle, Turn, cost};
pub(crate) use warm_up::WarmUp;

#[cfg(all(test, sentinel_loom))]
mod models;
