//! Circuit breakers: if a resource fails or is slow, its calls are refused for a while.
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
//! A resource has a set of [`Breakers`] that judge a call together: a call that one breaker refuses
//! probes none of them. A probe holds its place for a limited time, its *lease*. While a breaker is
//! half-open, a call becomes a probe
//!
//! * if fewer probes have a place than the rule allows. A probe gives up its place when it ends, is
//!   cancelled, or loses its tokens to another call;
//! * if all places are taken, but the lease of the newest probe is over. Then all probes lose their
//!   places, which are *given on* to new probes, and the call gets the first place.
//!
//! Places only limit how many more calls can probe. The end of every probe of the half-open period
//! counts, including probes whose place was given on. Otherwise no probe would ever count if all
//! calls take longer than a lease. The first bad probe opens the breaker; the breaker closes when
//! as many probes were good as the rule requires.
//!
//! If the last probe leaves without a result, the breaker is open again, provided that no probe was
//! good and no probe can still run without a place. The next call is then a probe at once (`Ready`).
//!
//! # Generations
//!
//! Each time a breaker closes or becomes half-open, a new *generation* begins. All breakers of a
//! resource draw the numbers of their generations from one counter, the *epoch*. A call keeps a
//! single number: the epoch at which it was admitted. The call belongs to the current generation of
//! a breaker if that generation is not newer than this epoch. The order of the steps guarantees
//! that no call counts in a newer generation:
//!
//! ```text
//! call       1 read the epoch        2 read the states
//! breaker    1 leave the old state   2 draw a new epoch   3 publish it in a state
//! ```
//!
//! A call that still found the old state has an older number than the new generation: if it had
//! read the new epoch (acquire), which was drawn (release) after the old state had been left, it
//! would not have found the old state. So its end counts in no newer generation. A call that probes
//! draws an epoch, and tries again if a state has changed since it read the states.
//!
//! Places are distinguished by epochs as well: when places are given on, the epoch of the new probe
//! is written into the state, and older probes no longer have a place. The start of the period is
//! kept in a separate word (`Circuit::period`), which is written before places are given on.
//!
//! Epochs are 32 bits wide and compared by their distance. To keep this distance small, a breaker
//! that has been closed for long moves the recorded start of its generation forward, but not into
//! the last 2²⁹ epochs. This is correct for calls that last for fewer epochs.

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

/// The state of a circuit breaker.
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
    /// All calls pass, and their ends are counted.
    Closed,
    /// No call passes. The first call after the recovery time is a probe.
    Open,
    /// A few calls pass as probes; their ends decide the next state.
    HalfOpen,
}

impl BreakerState {
    /// All states, in the order of their discriminants.
    pub(crate) const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// Returns the name of the state in JSON, events and logs: `closed`, `open` or `half-open`.
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
