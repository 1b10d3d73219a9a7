//! Which limit of a system rule refused a call.

use std::fmt;

/// The limit of a [`SystemRule`](crate::rule::SystemRule) that refused a call.
///
/// # Examples
///
/// ```
/// use tower_sentinel::system::SystemReason;
/// use tower_sentinel::{Call, Sentinel, SystemRule, Verdict};
///
/// let sentinel = Sentinel::new(SystemRule::new().qps(1_000).concurrency(0));
/// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("job")) else {
///     panic!("none may run");
/// };
/// assert_eq!(blocked.system_reason(), Some(SystemReason::Concurrency));
/// assert_eq!(
///     blocked.to_string(),
///     "call to \"job\" refused by system rule \"system-0\" (concurrency)",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SystemReason {
    /// Too many inbound calls per second.
    Qps,
    /// Too many concurrent inbound calls.
    Concurrency,
    /// The average response time of inbound calls is too long.
    Rt,
    /// The load of the machine is too high, and more calls are in flight than
    /// the [`Capacity`](crate::system::Capacity).
    Load,
    /// The CPU is too busy.
    Cpu,
}

impl SystemReason {
    /// Returns the name of the limit, which is that of its setter and of its key in documents.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::system::SystemReason::Rt.as_str(), "rt");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Qps => "qps",
            Self::Concurrency => "concurrency",
            Self::Rt => "rt",
            Self::Load => "load",
            Self::Cpu => "cpu",
        }
    }
}

impl fmt::Display for SystemReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
