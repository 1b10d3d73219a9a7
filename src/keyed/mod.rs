//! Keyed limits: a quota for each key, in a table of fixed size.
//!
//! ```text
//! key ──SipHash──▶ digest ─┬▶ set a  [tag|word] [tag|word] … 8 slots
//!                          └▶ set b  [tag|word] [tag|word] …
//!                                          │
//!            refill   a time | rate        │   what a key has spent: one word,
//!            window   number | count | count   changed by one compare-and-swap
//!            wide     number | closed | count   of one of the two buckets of a window
//!            calendar number | count
//!            queue    a time
//!            running  epoch | waits | count
//! ```
//!
//! * [`KeyedLimiter`]: quotas for a set of keys, to be used without an engine.
//! * `HotKeys`: the keys of one rule, and how they are counted.
//! * `figures`: how many keys of a rule are in use, and their memory.
//! * `table`: which slot belongs to which key, and which key may take it next.
//! * `refill`, `window`, `wide`, `calendar`, `queue`, `running`: the kinds of words. Each module is
//!   arithmetic on a `u64`, independent of atomics and slots.
//! * `rates`: the rates of refilled quotas, and how a debt at one rate converts to another.
//! * `costs`: budgets for calls whose cost is known only afterwards, with a second table for
//!   reservations.
//! * `line`: the calls that wait until another call of their key ends.
//!
//! A key is evicted only when its word is *at rest*, that is, equivalent to a fresh word, so that
//! the eviction changes nothing for the key. A full table never gives a key a fresh quota; keys
//! that find no slot share one word.
//!
//! # Examples
//!
//! ```
//! use std::net::IpAddr;
//! use tower_sentinel::clock::Tick;
//! use tower_sentinel::keyed::KeyedLimiter;
//!
//! let now = Tick::from_millis(10_000);
//! let limiter = KeyedLimiter::per_second(2).build(now)?;
//! let client = |last| IpAddr::from([192, 0, 2, last]);
//! assert!(limiter.try_acquire(now, client(7), 2).is_ok());
//! assert!(limiter.try_acquire(now, client(7), 1).is_err());
//! assert!(limiter.try_acquire(now, client(8), 1).is_ok());
//! # Ok::<(), tower_sentinel::InvalidSetting>(())
//! ```

mod burst;
mod calendar;
mod changes;
mod costs;
mod digest;
mod figures;
mod keys;
mod limiter;
mod line;
mod queue;
mod rates;
mod refill;
mod running;
mod slot;
mod table;
mod wide;
mod window;

use std::time::Duration;

pub(crate) use burst::Burst;
pub(crate) use changes::RatesInUse;
pub(crate) use costs::{KeyAccount, KeyBudget};
pub(crate) use digest::{Digest, Sip};
pub(crate) use keys::{Counting, HotKeys, KeyLimit, KeySpec, KeyTokens};
pub(crate) use line::{KeyLimitNow, LineTicket, WaitLimits};
pub(crate) use running::Pinned;
pub(crate) use wide::most_in_window;
pub(crate) use window::MOST as MOST_IN_WINDOW;

pub use crate::stat::Refusal;
pub use limiter::{KeyedLimiter, LimiterBuilder};

#[cfg(all(test, sentinel_loom))]
mod models;

#[cfg(all(test, not(sentinel_loom)))]
mod tests;

/// The arithmetic with which one call judges and changes a word. A judge knows the time of the
/// call, its limit, and the tokens that it takes.
///
/// A table can distinguish the words of different owners of a slot, without a number for each
/// owner, because of two promises:
///
/// * the word of [`fresh`](Self::fresh), and every word that follows it, stands for a later time
///   than 0 (the word of an unused slot), and than every word at which the slot was at rest before;
/// * no word is [`CLAIMED`].
trait Judge {
    /// Returns the word after the call.
    ///
    /// # Errors
    ///
    /// Returns the nanoseconds until there is room, if no other call comes; `None` means never.
    fn take(&self, word: u64) -> Result<u64, Option<u64>>;

    /// Returns how long the word has been at rest, that is, equivalent to a fresh word, in a unit
    /// that is the same for all words of a table. `None` if it is not at rest.
    fn rest(&self, word: u64) -> Option<u64>;

    /// Returns the word of a key that has spent nothing, in a slot whose word was `last`.
    fn fresh(&self, last: u64) -> u64;

    /// Returns how many tokens could be taken now, one by one.
    fn left(&self, word: u64) -> u32;
}

/// The maximum number of keys of one table. They take 2 GiB.
pub(crate) const MOST_KEYS: u32 = 1 << 26;
/// The shortest interval of a refilled quota: the cost of a token at a million tokens per second,
/// the highest rate for which the precision of the refill is documented.
pub(crate) const SHORTEST_REFILL: Duration = Duration::from_micros(1);

/// The word of a slot while its owner changes.
const CLAIMED: u64 = u64::MAX;
