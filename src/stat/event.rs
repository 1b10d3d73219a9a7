//! The events that are counted, and how a call may end.

use std::fmt;
use std::time::Duration;

/// Something that a node counts.
///
/// # Examples
///
/// ```
/// use tower_sentinel::stat::Event;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 5))
///     .clock(ManualClock::new())
///     .build();
/// for weight in [3, 2, 4] {
///     if let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("job").batch(weight)) {
///         if weight == 2 {
///             entry.fail();
///         }
///     }
/// }
/// let node = sentinel.node("job").expect("it has been called");
/// assert_eq!((node.sum(Event::Pass), node.sum(Event::Complete)), (5, 5));
/// assert_eq!((node.sum(Event::Error), node.sum(Event::Block)), (2, 4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A call was admitted. Counted by weight, in the bucket in which it runs.
    Pass,
    /// A call was refused. Counted by weight.
    Block,
    /// An admitted call delivered a response or an error. Counted by weight when the call ends. A
    /// call through a layer whose response comes in one piece is counted in the bucket in which the
    /// response came, unless a later bucket has begun.
    Complete,
    /// A completed call failed. Counted by weight.
    Error,
    /// An admitted call ended before it delivered anything, or tokens were spent on a call
    /// that never ran. Counted by weight.
    Cancelled,
    /// An admitted call had borrowed its tokens from a later bucket. Counted by weight when it
    /// starts. For any window, its figures are the figures of the current second; they are 0 if
    /// [seconds](crate::Builder::minute) are not kept.
    Occupied,
}

impl Event {
    /// Returns the rate per second of an event with this `count` in `window`. A count of `Occupied`
    /// is always that of one second.
    pub(crate) fn per_second(self, count: u64, window: Duration) -> f64 {
        match self {
            Event::Occupied => count as f64,
            _ => count as f64 / window.as_secs_f64(),
        }
    }
}

impl Event {
    /// Returns the name of the event, as used in texts and in JSON.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::stat::Event::Pass.as_str(), "pass");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Block => "block",
            Self::Complete => "complete",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Occupied => "occupied",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a call that delivered a response or an error ended.
///
/// # Examples
///
/// ```
/// use tower_sentinel::stat::{Event, Outcome};
/// use tower_sentinel::{Call, Rules, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(Rules::new());
/// for outcome in [Outcome::Success, Outcome::Failure, Outcome::Ignore] {
///     let work = sentinel.run_with(Call::new("job"), async {}, |_| outcome);
///     assert!(work.await.is_ok());
/// }
/// let job = sentinel.node("job").expect("it has been called");
/// assert_eq!((job.sum(Event::Complete), job.sum(Event::Error)), (3, 1));
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The call succeeded.
    #[default]
    Success,
    /// The call failed and counts as an error.
    Failure,
    /// Neither: the call completed, but says nothing about the health of the called service.
    Ignore,
}

impl Outcome {
    /// Returns the name of the outcome.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::stat::Outcome::Failure.as_str(), "failure");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Ignore => "ignore",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
