//! Limits on the costs of calls: a window of charged units, and a gauge of reserved units.
//!
//! A call reserves its possible cost before it runs, is charged while it runs, and is settled when
//! its cost is known. A reservation takes no tokens of the window. It is counted in a separate
//! [gauge](gauge) while the call runs, like a concurrency slot, but in units. So nothing has to be
//! refunded to a bucket that has closed meanwhile, and a cost counts in the bucket in which it was
//! reported.
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
//! # Why no window exceeds its limit
//!
//! Only the compare-and-swap of the gauge admits a call. A settlement *books first and releases
//! second*, and each release changes the *version* of the gauge. So if the swap of an admission
//! succeeds, nothing was released between its reading of the gauge and the swap. When the admission
//! read `used` in between, each cost was in the window, or its reservation was in the gauge, or
//! both. So while no call costs more than it reserved, `used + reserved ≤ limit` holds at any time.
//! It also holds when the window advances, as the window then only loses units. Costs beyond
//! reservations can exceed the limit, each once.
//!
//! A call that sees a cost both in the window and in the gauge can be refused although there is
//! room: another thread is just about to release these units.
//!
//! The rest of a call's reservation is in a separate word, an [`Account`](account::Account). Each
//! thread that charges or settles swaps this word, and releases the units that it has taken out of
//! the rest. So no unit is released twice.
//!
//! # What a provider has left
//!
//! The number of units that a provider [reports](provider_left) as left is stored as a ceiling:
//! this number plus the units charged in total so far. An admission reads the ceiling after the
//! window. What is left is the smaller of two numbers: the units that the window has left, and the
//! units up to the ceiling. The thread that reports the number changes the version of the gauge
//! afterwards, so a call that has read the window before must read it again.

mod account;
mod counts;
mod gauge;
mod ledger;
mod posting;
mod provider_left;

pub(crate) use account::Account;
#[cfg(feature = "shared")]
pub(crate) use account::Posting;
pub(crate) use counts::BudgetCounts;
pub(crate) use gauge::GaugeWord;
pub(crate) use ledger::{BudgetFigures, CostBudget};
pub(crate) use posting::CostLedger;
pub(crate) use provider_left::ProviderNumber;

/// The maximum number of units in a window, and the largest limit: 2³⁰. A window counts modulo 2³².
/// The maximum is far below that, as a window can hold costs beyond the limit.
pub(crate) const MAX_BUDGET: u32 = 1 << 30;

#[cfg(all(test, sentinel_loom))]
mod models;
#[cfg(all(test, not(sentinel_loom)))]
mod tests;
