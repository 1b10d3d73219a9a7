//! Circuit breakers: a resource that fails or is slow is not called for a while.
//!
//! ```text
//!             enough calls, too many of them bad
//!    Closed ───────────────────────────────────────▶ Open
//!      ▲                                             │  ▲
//!      │ enough probes in a row are good             │  │ a probe is bad,
//!      │                                             ▼  │ or says nothing
//!      └───────────────────────────────────────── Half-open
//!                                                    the recovery time is over
//!                                                    and a call comes: a probe
//! ```
//!
//! A resource has a set of [`Breakers`] that are asked together: a call that one
//! of them refuses takes a probe from none. A probe has its place for a time, its
//! *lease*. While a breaker is half-open, a call becomes a probe
//!
//! * if fewer of them have a place than the rule says. One that ends, is cancelled, or loses
//!   its tokens to another call, has none any more;
//! * if as many have one, but the lease of the newest is over: then the places of all of
//!   them are *given on*, and the call has the first.
//!
//! A place says only how many more calls may probe. The end of every probe of the half-open
//! period counts, also of one whose place was given on: it may be no more than slow, and if
//! calls take longer than a lease, no other probe ever ends. The first bad one opens the
//! breaker; it closes when as many were good as the rule says.
//!
//! When the last probe has left without an answer, and none was good or may still run without
//! a place, the breaker is open, and the next call a probe at once (`Ready`).
//!
//! # Generations
//!
//! Each time a breaker closes or becomes half-open, a *generation* of it begins.
//! All breakers of a resource draw the numbers of their generations from one
//! counter, the *epoch*, and a call carries away a single number: the epoch at
//! which it was admitted. It belongs to the present generation of a breaker if
//! that is not newer. This holds because of the order in which things are done:
//!
//! ```text
//! call       1 read the epoch        2 read the states
//! breaker    1 leave the old state   2 draw a new epoch   3 publish it in a state
//! ```
//!
//! A call that still saw the old state did not see the epoch that was drawn after it: if it had
//! read the new epoch (acquire), which was drawn (release) after the old state had been left, it
//! would have found the old state left. So it carries an older number, and its end counts in no
//! newer generation, however it ends. A call that probes draws an epoch, and begins again if a
//! state has changed since before that.
//!
//! Places are distinguished in the same way: when they pass to other probes, the epoch of the new
//! probe stands in the state, and each older probe has a place no more. Since when the period lasts
//! is then in a word of its own (`Circuit::period`), which is written before.
//!
//! Epochs are 32 bits wide and compared by their distance. So that this stays small, a
//! breaker that has been closed for long is said to have closed later, but before the
//! last 2²⁹ epochs: that is right for calls that live through fewer.

mod breakers;
mod circuit;
mod counts;
mod fraction;
mod history;
mod kept;
mod last_calls;
mod packed;
mod spec;
mod stamped;
mod window;

use std::fmt;

pub(crate) use breakers::{Admission, AllClosed, Breakers, Change, MAX_BREAKERS};
pub(crate) use kept::{KeptBreakers, NameHash};
pub(crate) use last_calls::MAX_LAST_CALLS;
pub(crate) use spec::{BadLimit, BreakerSpec, MAX_BUCKETS, MAX_COUNT, MAX_PROBES, Strategy};

#[cfg(all(test, sentinel_loom))]
mod models;
#[cfg(all(test, not(sentinel_loom)))]
mod tests;

/// How a circuit breaker treats calls.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::read::BreakerState;
/// use tower_sentinel::{Call, CircuitBreakerRule, ManualClock, Sentinel, Verdict};
///
/// let clock = ManualClock::new();
/// let rule = CircuitBreakerRule::error_count("/pay", 1);
/// let sentinel = Sentinel::builder()
///     .rules(rule.open_for(Duration::from_secs(5)))
///     .clock(clock.clone())
///     .build();
/// let call = || sentinel.try_enter(Call::new("/pay"));
/// let state = || sentinel.node("/pay").expect("it has been called").breakers()[0].state();
///
/// let Verdict::Pass(mut entry) = call() else { panic!("it is closed") };
/// assert_eq!(state(), BreakerState::Closed);
/// entry.fail();
/// drop(entry);
/// assert_eq!(state(), BreakerState::Open);
/// assert!(matches!(call(), Verdict::Block(_)));
///
/// clock.advance(Duration::from_secs(5));
/// let Verdict::Pass(probe) = call() else { panic!("one may probe") };
/// assert_eq!(state(), BreakerState::HalfOpen);
/// assert!(matches!(call(), Verdict::Block(_)));
/// drop(probe);
/// assert_eq!(state(), BreakerState::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// All calls pass, and are counted.
    Closed,
    /// No call passes. The first one after the recovery time is a probe.
    Open,
    /// A few calls pass as probes; their ends decide the next state.
    HalfOpen,
}

impl BreakerState {
    /// All states, in the order of their discriminants.
    pub(crate) const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// Returns its name, the same as in JSON, events and logs: `closed`, `open` or
    /// `half-open`.
    ///
    /// ```
    /// use tower_sentinel::read::BreakerState;
    ///
    /// assert_eq!(BreakerState::HalfOpen.as_str(), "half-open");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half-open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
