//! Statistics: exact counts in sliding windows.
//!
//! ```text
//! LeapArray   a ring of aligned buckets: counts, admits, lends     one word decides
//!   + cuts    checkpoints: the values of the other counters when each bucket began
//! Node        the statistics of one resource: a ring and its counters
//! Table       all nodes by name, bounded
//! ```
//!
//! Counts are sums of weights (a call of weight 3 counts as 3), unless their documentation
//! says that they count calls. Times are [`Tick`](crate::clock::Tick)s of the caller's clock.
//!
//! [`LeapArray`] and [`SlidingWindow`] can be used on their own.
//!
//! # Windows and the calendar
//!
//! Buckets begin at multiples of their length from [`Tick::ZERO`](crate::clock::Tick::ZERO). The
//! clocks of the operating system, [`MonotonicClock`](crate::clock::MonotonicClock) and
//! `QuantaClock`, start at a midnight of UTC. So with these clocks a window of one bucket begins at
//! the same time as the interval of a shared rule on the store: a day at midnight, an hour at the
//! full hour, a week on Thursday, because 1 January 1970 was a Thursday. With the default of two
//! buckets, the window of a day slides at midnight and at noon. Windows ignore time zones and
//! months; a [`KeyedRule`](crate::KeyedRule::per_calendar_month) can count by them. The wall time
//! is read only when the program starts: later corrections of the wall time, and sleep of the
//! machine, shift the windows against the calendar. With a custom clock, windows count from its
//! `ZERO`.
//!
//! # Examples
//!
//! ```
//! use tower_sentinel::stat::SlidingWindow;
//! use tower_sentinel::clock::Tick;
//!
//! // At most three in sixty seconds.
//! let window = SlidingWindow::of_seconds(60)?;
//! let at = |second: u64| Tick::from_millis(second * 1_000);
//! assert!(window.try_add(at(100), 2, 3));
//! assert!(!window.try_add(at(110), 2, 3));
//! assert!(window.try_add(at(160), 2, 3));
//! assert_eq!(window.sum(at(160)), 2);
//! # Ok::<(), tower_sentinel::InvalidSetting>(())
//! ```

mod availability;
mod checkpoints;
mod counters;
mod crowd;
mod decide;
mod ends;
mod event;
mod extremes;
mod figures;
mod foresee;
mod held;
mod histogram;
mod leap_array;
mod lined_up;
mod minute;
mod node;
mod occupy;
mod packed;
mod quota;
mod rare;
mod refusal;
mod resize;
mod roll;
mod shape;
mod slots;
mod table;
mod totals;
mod turn;
mod view;
mod wide;
mod window;

#[cfg(feature = "serde")]
pub(crate) use counters::MAX_RT;
pub(crate) use ends::Ends;
pub use event::{Event, Outcome};
pub(crate) use foresee::{Nothing, Visit};
pub(crate) use histogram::Edges;
pub use histogram::Histogram;
pub use leap_array::LeapArray;
pub(crate) use leap_array::{Denied, Grid, MOST_AHEAD, Reloaded, Taken};
pub(crate) use lined_up::LinedUp;
pub(crate) use node::Node;
pub(crate) use occupy::{Loan, Wish};
pub(crate) use packed::bucket_of;
pub use quota::Quota;
pub(crate) use quota::{Lending, MAX_TOKENS};
pub use refusal::Refusal;
pub(crate) use shape::Shape;
pub(crate) use slots::SlotHold;
pub(crate) use table::{Gone, Resident, Table, TablePlace};
pub(crate) use totals::average_rt;
pub use totals::{NodeBucket, Totals};
pub use window::SlidingWindow;

#[cfg(all(test, sentinel_loom))]
mod models;
/// The naive ring, for the fuzzer.
#[cfg(fuzzing)]
#[path = "tests/oracle.rs"]
pub mod oracle;
#[cfg(all(test, not(sentinel_loom)))]
pub(crate) mod tests;
