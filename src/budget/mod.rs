//! Limits on what calls turn out to cost: a window of what was charged, and a gauge of what is
//! reserved.
//!
//! A call reserves what it may cost before it runs, is charged while it runs, and is settled when
//! its cost is known. Its reservation is no token of a window: it stands in a [gauge](gauge) beside
//! the window for as long as the call runs, as a concurrency slot does, counted in units. So nothing
//! has to be refunded to a bucket that has closed meanwhile, and a cost counts in the bucket in
//! which it was told.
//!
//! ```text
//! window  | 120 | 300 |  80 |          charged by calls, by the time of the charge
//! gauge   [ reserved 4 000 | version 17 ]
//!
//! admit   used(window) + reserved + wanted ≤ limit
//! charge  window += n, then gauge −= n, out of the call's reservation
//! end     window += what is due, then gauge −= the rest
//! ```
//!
//! # Why no window is over
//!
//! Only the compare-and-swap of the gauge admits. A settlement *books first and releases second*, and
//! each release changes the *version* of the gauge. So an admission whose swap succeeds has seen
//! `used` at a time at which each cost stood in the window, or its reservation in the gauge, or in
//! both: since it had read the gauge, none was released. As long as no call costs more than it
//! reserved, `used + reserved ≤ limit` holds at any time, also where the window moves on, since it
//! only loses by that. What calls cost beyond their reservations comes on top, once.
//!
//! A call that meets a cost both in the window and in the gauge may be refused although there is
//! room: by the few units that another thread is about to release.
//!
//! The part of its reservation that a call still has is one word of its own, an
//! [`Account`](account::Account): each thread that charges or settles swaps it, and releases what it
//! has taken out of it, so that no unit goes back twice.
//!
//! # What a provider has left
//!
//! The number that a provider [tells](told) stands beside the window as a ceiling: what was charged in
//! all by then, and that number. An admission looks at it with the window, so the room is the smaller
//! one of the two. Whoever tells it also changes the version of the gauge, after that: a call that has
//! looked before is not admitted without another look.

mod account;
mod counts;
mod gauge;
mod ledger;
mod posting;
mod told;

pub(crate) use account::Account;
#[cfg(feature = "shared")]
pub(crate) use account::Posting;
pub(crate) use counts::BudgetCounts;
pub(crate) use gauge::GaugeWord;
pub(crate) use ledger::{BudgetFigures, CostBudget};
pub(crate) use posting::CostLedger;

/// The most that a window may hold, and the largest limit: 2³⁰. A window counts modulo 2³², and may
/// hold costs beyond the limit.
pub(crate) const MAX_BUDGET: u32 = 1 << 30;

#[cfg(all(test, sentinel_loom))]
mod models;
#[cfg(all(test, not(sentinel_loom)))]
mod tests;
