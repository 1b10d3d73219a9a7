//! The events that a hook wants, so that calls without a wanted event do not look for hooks.

use std::fmt;
use std::ops::BitOr;

/// The notifications that a [`Hook`](crate::Hook) wants.
///
/// A call looks for hooks only if any hook wants the event. So a hook that wants nothing but the
/// changes of breakers, which are rare, costs all other calls nothing.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tower_sentinel::hook::{BreakerEvent, Hook, Interest, PassEvent};
/// use tower_sentinel::{Call, CircuitBreakerRule, ManualClock, Sentinel, Verdict};
///
/// #[derive(Debug, Default)]
/// struct Alarms(Mutex<Vec<String>>);
///
/// impl Hook for Alarms {
///     fn interest(&self) -> Interest {
///         Interest::BREAKER
///     }
///
///     fn on_pass(&self, _: &PassEvent<'_>) {
///         unreachable!("it does not want to know");
///     }
///
///     fn on_breaker(&self, event: &BreakerEvent<'_>) {
///         self.0.lock().unwrap().push(event.to().to_string());
///     }
/// }
///
/// let alarms = Arc::new(Alarms::default());
/// let sentinel = Sentinel::builder()
///     .rules(CircuitBreakerRule::error_count("/pay", 1))
///     .clock(ManualClock::new())
///     .hook("alarms", alarms.clone())
///     .build();
/// if let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("/pay")) {
///     entry.fail();
/// }
/// assert!(matches!(sentinel.try_enter(Call::new("/pay")), Verdict::Block(_)));
/// assert_eq!(*alarms.0.lock().unwrap(), ["open"]);
///
/// let two = Interest::BREAKER | Interest::BLOCK;
/// assert!(two.contains(Interest::BLOCK) && !two.contains(Interest::EXIT));
/// assert!(Interest::ALL.contains(two) && two.contains(Interest::NONE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(u32);

/// All single interests, with their names.
const EACH: [(Interest, &str); 6] = [
    (Interest::PASS, "PASS"),
    (Interest::BLOCK, "BLOCK"),
    (Interest::SHADOW_BLOCK, "SHADOW_BLOCK"),
    (Interest::EXIT, "EXIT"),
    (Interest::BREAKER, "BREAKER"),
    (Interest::FINDING, "FINDING"),
];

impl Interest {
    /// Nothing at all.
    pub const NONE: Self = Self(0);
    /// Calls that start: [`on_pass`](crate::Hook::on_pass).
    pub const PASS: Self = Self(1);
    /// Calls that are refused: [`on_block`](crate::Hook::on_block).
    pub const BLOCK: Self = Self(1 << 1);
    /// Calls that a rule in shadow mode would refuse:
    /// [`on_shadow_block`](crate::Hook::on_shadow_block).
    pub const SHADOW_BLOCK: Self = Self(1 << 2);
    /// Calls that end: [`on_exit`](crate::Hook::on_exit).
    pub const EXIT: Self = Self(1 << 3);
    /// Changes of circuit breakers: [`on_breaker`](crate::Hook::on_breaker).
    pub const BREAKER: Self = Self(1 << 4);
    /// Likely mistakes in the set-up: [`on_finding`](crate::Hook::on_finding).
    pub const FINDING: Self = Self(1 << 5);
    /// All notifications, also those that later versions add.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns whether this includes everything that `other` wants.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the events, as the bits of one word.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Interest {
    type Output = Self;

    /// Returns the events of both operands.
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("ALL");
        }
        let mut separator = "";
        for (each, name) in &EACH {
            if self.contains(*each) {
                f.write_str(separator)?;
                f.write_str(name)?;
                separator = " | ";
            }
        }
        if separator.is_empty() {
            f.write_str("NONE")?;
        }
        Ok(())
    }
}
