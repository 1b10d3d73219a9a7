//! Isolation rules: how many calls of a resource may run at once.

#[cfg(feature = "serde")]
mod settings;

use super::problem::Inspector;
use crate::number::WholeNumber;
use crate::stat::MAX_TOKENS;

/// Limits concurrency: at most `max` calls of a resource run at once.
///
/// A call takes a slot when it starts and gives the slot back when it ends; under a
/// [layer](crate::SentinelLayer) it ends with the response body. Checking the limit and
/// taking a slot are one atomic step, so no interleaving of threads exceeds the limit. A
/// call that waits holds no slot yet. A limit of 0 refuses every call.
///
/// A changed limit applies to new calls; calls that run are not disturbed. A rule that is
/// new for a resource counts only calls that start from then on.
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
/// The isolation rule of sentinel-golang, and Sentinel's flow rule of thread grade. Both
/// check first and count in a second step, so they can exceed the limit.
#[doc(alias("bulkhead", "ConcurrencyLimit", "semaphore"))]
#[derive(Clone, Debug, PartialEq)]
pub struct IsolationRule {
    resource: String,
    max: WholeNumber,
    pub(super) id: Option<String>,
}

impl IsolationRule {
    /// Allows at most `max` calls of `resource` at once: between 0 and 2³¹ − 1.
    #[must_use]
    pub fn new(resource: impl Into<String>, max: impl Into<WholeNumber>) -> Self {
        Self {
            resource: resource.into(),
            max: max.into(),
            id: None,
        }
    }

    /// Sets the name of the rule in refusals. Default: its kind and its place in the set,
    /// such as `isolation-2`.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns the resource that the rule is for.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns how many calls may run at once.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max.get()
    }

    pub(super) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        inspector.number("max", self.max, 0..=MAX_TOKENS);
    }
}
