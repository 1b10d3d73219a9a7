//! Callbacks: hooks are notified of the events of calls.
//!
//! A [`Hook`] is called on the thread of the request, and hooks are called in the order
//! in which they were registered. A hook may read statistics and reload rules. If it
//! panics, neither the request nor the other hooks are affected; the panic is counted.
//!
//! A hook may also make calls. If it makes them on its own engine, it is notified of them, too: a
//! hook that makes a call on each notification calls itself until the stack overflows, which ends
//! the process. So let a hook make its calls on another engine, or do nothing when it is notified
//! of its own calls.
//!
//! A hook that holds a handle of its own engine keeps the engine alive, and so itself,
//! until it is [removed](Hooks::remove).
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use tower_sentinel::hook::{BlockEvent, Hook};
//! use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
//!
//! #[derive(Debug)]
//! struct Broken;
//!
//! impl Hook for Broken {
//!     fn on_block(&self, event: &BlockEvent<'_>) {
//!         panic!("no metric for {}", event.resource());
//!     }
//! }
//!
//! let sentinel = Sentinel::builder()
//!     .rules(FlowRule::per_second("job", 0))
//!     .hook("metrics", Arc::new(Broken))
//!     .build();
//! // The call is refused as if there were no hook.
//! assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Block(_)));
//! assert_eq!(sentinel.hooks().panics(), 1);
//! ```

mod events;
pub(crate) mod finding;
mod hooks;
mod interest;
mod on_finding;

use std::fmt;

pub(crate) use events::Subject;
pub use events::{BlockEvent, BreakerEvent, ExitEvent, PassEvent};
pub use finding::{Finding, FindingKind};
pub use hooks::Hooks;
pub use interest::Interest;
pub(crate) use on_finding::OnFinding;

/// Receives notifications about calls. Each method does nothing unless an implementation
/// overrides it.
///
/// An implementation must not block, because the request waits for it, and should not panic:
/// `on_exit` is called from a destructor. The [module](self) describes the effects of a panic, and
/// of calls that a hook makes itself.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use tower_sentinel::hook::{BlockEvent, Hook};
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// #[derive(Debug, Default)]
/// struct Refusals(AtomicU32);
///
/// impl Hook for Refusals {
///     fn on_block(&self, event: &BlockEvent<'_>) {
///         assert_eq!(event.blocked().resource(), "job");
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let refusals = std::sync::Arc::new(Refusals::default());
/// let sentinel = Sentinel::new(FlowRule::per_second("job", 0));
/// sentinel.hooks().register("refusals", refusals.clone());
/// let _ = sentinel.try_enter(Call::new("job"));
/// assert_eq!(refusals.0.load(Ordering::Relaxed), 1);
/// ```
pub trait Hook: fmt::Debug + Send + Sync + 'static {
    /// Returns the events that the hook wants; it is notified of no other events. Default:
    /// everything. Called once, when the hook is registered. If it panics, so does the
    /// registration.
    ///
    /// Calls pay for hooks only where one of them wants their events.
    fn interest(&self) -> Interest {
        Interest::ALL
    }

    /// Called when a call has passed all rules and starts, after its wait if it had to wait.
    fn on_pass(&self, event: &PassEvent<'_>) {
        let _ = event;
    }

    /// Called when a call was refused.
    fn on_block(&self, event: &BlockEvent<'_>) {
        let _ = event;
    }

    /// Called when a rule in [shadow mode](crate::Rule::shadow) would have refused a call that no
    /// enforced rule refused: the call runs, or waits for its turn. If the rule is
    /// [shared](crate::FlowRule::shared) and had to ask the store, this is called when the store
    /// has answered, which can be after the call has ended.
    fn on_shadow_block(&self, event: &BlockEvent<'_>) {
        let _ = event;
    }

    /// Called when a call that had started has ended.
    fn on_exit(&self, event: &ExitEvent<'_>) {
        let _ = event;
    }

    /// Called when a circuit breaker changes its state: once for each change, on the thread
    /// that made it. Changes that a reload makes are not reported. Once a resource has
    /// [taken over](crate::Sentinel::reload) new rules, an old breaker that does not
    /// [continue](crate::CircuitBreakerRule#reloads) with any of them is no longer
    /// reported, although earlier calls may still end there.
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let _ = event;
    }

    /// Called when the engine has found a likely mistake in the set-up: once for each kind of
    /// finding and each rule, and at most 1,024 times. If calls show the mistake, that is during
    /// the first calls, and otherwise when [`findings`](crate::Sentinel::findings) is called. A
    /// [`snapshot`](crate::Sentinel::snapshot), which may be taken before the first calls, does not
    /// report that calls are still to come.
    fn on_finding(&self, finding: &Finding) {
        let _ = finding;
    }
}
