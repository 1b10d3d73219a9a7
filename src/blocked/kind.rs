//! The kind of rule that refused a call.

use std::fmt;

/// The kind of rule that refused a call.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{BlockKind, Call, IsolationRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(IsolationRule::new("report", 1));
/// let _running = sentinel.try_enter(Call::new("report"));
/// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("report")) else {
///     panic!("one is running");
/// };
/// let advice = match blocked.kind() {
///     BlockKind::Flow | BlockKind::Keyed => "slow down",
///     BlockKind::Isolation => "come back soon",
///     BlockKind::Authority | BlockKind::MissingKey => "do not come back",
///     _ => "come back later",
/// };
/// assert_eq!(advice, "come back soon");
/// assert_eq!(
///     blocked.to_string(),
///     "call to \"report\" refused by isolation rule \"isolation-0\"",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockKind {
    /// A [`FlowRule`](crate::FlowRule): too many calls in its window.
    Flow,
    /// An [`IsolationRule`](crate::IsolationRule) or an
    /// [`AdaptiveRule`](crate::AdaptiveRule): too many concurrent calls.
    Isolation,
    /// A [`KeyedRule`](crate::KeyedRule): too many calls for this value of
    /// a parameter.
    Keyed,
    /// A [`CircuitBreakerRule`](crate::CircuitBreakerRule): the resource fails or is slow.
    CircuitBreaker,
    /// An [`AuthorityRule`](crate::AuthorityRule): this caller is not allowed.
    Authority,
    /// A [`SystemRule`](crate::SystemRule): all inbound calls together, or the
    /// machine, have reached a limit.
    System,
    /// The call would have had to wait, and there is no timer to wait on: it
    /// runs outside of tokio, or the tokio runtime was built without a timer.
    ///
    /// A runtime without a timer panics when it is first asked for one, and the panic is caught. So
    /// the panic hook is called, once for the runtime, and a program that is compiled to abort on
    /// panics ends: build its runtime with `enable_time`.
    NoTimer,
    /// The call has no key, and a rule refuses such calls.
    MissingKey,
    /// A [shared](crate::FlowRule::shared) rule needs its store, which is away or has not
    /// answered in time, and the rule is set to refuse calls then.
    Store,
}

impl BlockKind {
    /// All kinds, each at the place that it has as a number.
    pub(crate) const ALL: [Self; 9] = [
        BlockKind::Flow,
        BlockKind::Isolation,
        BlockKind::Keyed,
        BlockKind::CircuitBreaker,
        BlockKind::Authority,
        BlockKind::System,
        BlockKind::NoTimer,
        BlockKind::MissingKey,
        BlockKind::Store,
    ];
}

impl BlockKind {
    /// Returns the name of the kind, which is the same in texts, ids, documents and JSON.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::BlockKind::Keyed.as_str(), "keyed");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Isolation => "isolation",
            Self::Keyed => "keyed",
            Self::CircuitBreaker => "circuit-breaker",
            Self::Authority => "authority",
            Self::System => "system",
            Self::NoTimer => "no-timer",
            Self::MissingKey => "missing-key",
            Self::Store => "store",
        }
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_place() {
        for (place, kind) in BlockKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind}");
        }
    }
}
