//! Isolation rules: how many calls of a resource may run at once.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;
mod setters;

use std::time::Duration;

use super::whose::Who;
use crate::base::number::WholeNumber;

/// The longest valid wait for a slot.
pub(super) const LONGEST_QUEUE: Duration = Duration::from_secs(86_400);

/// Limits concurrency: at most `max` calls of a resource run at once. The rule counts all callers
/// together, or only [one origin](Self::for_origin), or the calls of [another
/// resource](Self::when).
///
/// A call takes a slot when it starts and releases it when it ends; under a
/// [layer](crate::SentinelLayer) it ends with the response body. Checking the limit and
/// taking a slot are one atomic step, so no interleaving of threads exceeds the limit. A
/// call that waits holds no slot yet. A limit of 0 refuses every call. A call that finds no
/// free slot is refused, or waits if there is a [queue](Self::queue).
///
/// A changed limit applies to new calls; running calls are not disturbed. A new rule also counts
/// calls that already run, whichever rules admitted them: with five running, a limit of two admits
/// no call until four have ended. A call that the old rules are judging at the time of the reload
/// may still start. In [shadow mode](crate::Rule::shadow) a rule counts only the calls that start
/// after it was added.
///
/// A rule for the resource `*` is the [default](crate::rule#default-rules): every
/// resource without an isolation rule of its own gets separate slots from it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{BlockKind, Call, IsolationRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(IsolationRule::new("report", 1));
/// let Verdict::Pass(running) = sentinel.try_enter(Call::new("report")) else {
///     panic!("the first call runs");
/// };
/// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("report")) else {
///     panic!("the second one does not");
/// };
/// assert_eq!(blocked.kind(), BlockKind::Isolation);
/// drop(running);
/// assert!(matches!(sentinel.try_enter(Call::new("report")), Verdict::Pass(_)));
/// ```
///
/// # Source
///
/// The isolation rule of sentinel-golang, and Alibaba Sentinel's flow rule of thread grade. Both
/// check first and count in a second step, so they can exceed the limit.
#[doc(alias("bulkhead", "ConcurrencyLimit", "semaphore"))]
#[derive(Clone, Debug, PartialEq)]
pub struct IsolationRule {
    resource: String,
    max: WholeNumber,
    /// Whose calls the rule counts. Never [`Who::Each`].
    pub(super) who: Who,
    /// The resource whose running calls are counted instead of the rule's own.
    related: Option<String>,
    /// How long a call can wait for a slot; `None` if it is refused at once.
    queue: Option<Duration>,
    max_waiting: WholeNumber,
    pub(super) id: Option<String>,
}

/// How calls wait for a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotQueue {
    /// The longest wait for a slot; above zero.
    pub(crate) max_wait: Duration,
    /// The maximum number of calls that can wait at once; above 0.
    pub(crate) max_waiting: u32,
}

impl SlotQueue {
    /// Returns whether any call can wait.
    pub(super) const fn lets_wait(&self) -> bool {
        !self.max_wait.is_zero() && self.max_waiting > 0
    }
}
