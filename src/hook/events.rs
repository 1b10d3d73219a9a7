//! The events that hooks receive, one type for each kind.

use std::time::Duration;

use crate::blocked::Blocked;
use crate::breaker::BreakerState;
use crate::call::{Direction, Key};
use crate::stat::Outcome;

/// The facts of a call that its event passes to hooks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) resource: &'a str,
    pub(crate) direction: Direction,
    pub(crate) weight: u32,
}

/// Defines an event and its getters. An event of a call has a subject as well.
macro_rules! event {
    ($(#[$doc:meta])* $name:ident $(($subject:ident))? { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a> {
            $(pub(crate) $subject: Subject<'a>,)?
            $(pub(crate) $field: $type,)*
        }

        impl<'a> $name<'a> {
            $(/// Returns the resource that was called.
            #[must_use]
            pub const fn resource(&self) -> &'a str {
                self.$subject.resource
            }

            /// Returns the direction of the call.
            #[must_use]
            pub const fn direction(&self) -> Direction {
                self.$subject.direction
            }

            /// Returns the weight of the call.
            #[must_use]
            pub const fn weight(&self) -> u32 {
                self.$subject.weight
            })?

            $($(#[$field_doc])*
            #[must_use]
            pub const fn $field(&self) -> $type {
                self.$field
            })*
        }
    };
}

event! {
    /// A circuit breaker has changed its state.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use tower_sentinel::hook::BreakerEvent;
    /// use tower_sentinel::{Call, CircuitBreakerRule, Hook, ManualClock, Sentinel, Verdict};
    ///
    /// #[derive(Debug, Default)]
    /// struct Alarms(Mutex<Vec<String>>);
    ///
    /// impl Hook for Alarms {
    ///     fn on_breaker(&self, event: &BreakerEvent<'_>) {
    ///         let (resource, from, to) = (event.resource(), event.from(), event.to());
    ///         let alarm = format!("{resource}: {from:?} to {to:?} at {:?} errors", event.value());
    ///         self.0.lock().unwrap().push(alarm);
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
    /// assert_eq!(*alarms.0.lock().unwrap(), ["/pay: Closed to Open at Some(1.0) errors"]);
    /// ```
    BreakerEvent {
        /// Returns the resource of the breaker.
        resource: &'a str,
        /// Returns the direction of the calls to the resource.
        direction: Direction,
        /// Returns the id of the rule that the breaker belongs to now. The call that changed
        /// its state may have started before a [reload](crate::CircuitBreakerRule#reloads).
        rule: &'a str,
        /// Returns the state before the change.
        from: BreakerState,
        /// Returns the state after the change.
        to: BreakerState,
        /// Returns why it opened: the ratio or the number of bad calls, or 1 for a bad probe.
        value: Option<f64>,
    }
}

event! {
    /// A call starts.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::time::Duration;
    /// use tower_sentinel::hook::{Hook, PassEvent};
    /// use tower_sentinel::{Call, FlowRule, Key, Sentinel};
    ///
    /// #[derive(Debug, Default)]
    /// struct Shops(Mutex<u32>);
    ///
    /// impl Hook for Shops {
    ///     fn on_pass(&self, event: &PassEvent<'_>) {
    ///         assert_eq!((event.resource(), event.waited()), ("orders", Duration::ZERO));
    ///         if event.origin() == Some(Key::from("shop")) {
    ///             *self.0.lock().unwrap() += event.weight();
    ///         }
    ///     }
    /// }
    ///
    /// let shops = std::sync::Arc::new(Shops::default());
    /// let sentinel = Sentinel::new(FlowRule::per_second("orders", 5));
    /// sentinel.hooks().register("shops", shops.clone());
    /// drop(sentinel.try_enter(Call::new("orders").origin("shop").batch(3)));
    /// drop(sentinel.try_enter(Call::new("orders").origin("office")));
    /// // A refused call does not start, and is not reported here.
    /// drop(sentinel.try_enter(Call::new("orders").origin("shop").batch(6)));
    /// assert_eq!(*shops.0.lock().unwrap(), 3);
    /// ```
    PassEvent(subject) {
        /// Returns the origin: the caller. Also `None` for a call that had to wait.
        origin: Option<Key<'a>>,
        /// Returns the value of the call's first parameter. Also `None` for a call that had
        /// to wait.
        param: Option<Key<'a>>,
        /// Returns how long the call waited before it started.
        waited: Duration,
    }
}

event! {
    /// A call was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use tower_sentinel::hook::{BlockEvent, Hook};
    /// use tower_sentinel::{AuthorityRule, Call, Sentinel};
    ///
    /// #[derive(Debug, Default)]
    /// struct Log(Mutex<Vec<String>>);
    ///
    /// impl Hook for Log {
    ///     fn on_block(&self, event: &BlockEvent<'_>) {
    ///         let who = event.origin().map_or("nobody".to_owned(), |origin| origin.to_string());
    ///         self.0.lock().unwrap().push(format!("{who}: {}", event.blocked()));
    ///     }
    /// }
    ///
    /// let log = std::sync::Arc::new(Log::default());
    /// let sentinel = Sentinel::new(AuthorityRule::deny("orders", ["crawler"]).id("no-crawlers"));
    /// sentinel.hooks().register("log", log.clone());
    /// drop(sentinel.try_enter(Call::new("orders").origin("shop")));
    /// drop(sentinel.try_enter(Call::new("orders").origin("crawler")));
    /// assert_eq!(
    ///     *log.0.lock().unwrap(),
    ///     ["crawler: call to \"orders\" refused by authority rule \"no-crawlers\""],
    /// );
    /// ```
    BlockEvent(subject) {
        /// Returns the origin: the caller. Also `None` for a call that had to wait.
        origin: Option<Key<'a>>,
        /// Returns the value of the call's first parameter. Also `None` for a call that had
        /// to wait.
        param: Option<Key<'a>>,
        /// Returns why the call was refused, and when it may be retried.
        blocked: &'a Blocked,
    }
}

event! {
    /// A call has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::time::Duration;
    /// use tower_sentinel::hook::{ExitEvent, Hook};
    /// use tower_sentinel::stat::Outcome;
    /// use tower_sentinel::{Call, IsolationRule, ManualClock, Sentinel, Verdict};
    ///
    /// #[derive(Debug, Default)]
    /// struct Times(Mutex<Vec<(Option<Outcome>, Duration)>>);
    ///
    /// impl Hook for Times {
    ///     fn on_exit(&self, event: &ExitEvent<'_>) {
    ///         self.0.lock().unwrap().push((event.outcome(), event.rt()));
    ///     }
    /// }
    ///
    /// let (clock, times) = (ManualClock::new(), std::sync::Arc::new(Times::default()));
    /// let sentinel = Sentinel::builder()
    ///     .rules(IsolationRule::new("report", 1))
    ///     .clock(clock.clone())
    ///     .hook("times", times.clone())
    ///     .build();
    /// let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("report")) else {
    ///     panic!("the first call runs");
    /// };
    /// // The second call does not run, so it does not end.
    /// drop(sentinel.try_enter(Call::new("report")));
    /// clock.advance(Duration::from_millis(30));
    /// entry.fail();
    /// drop(entry);
    /// assert_eq!(*times.0.lock().unwrap(), [(Some(Outcome::Failure), Duration::from_millis(30))]);
    /// ```
    ExitEvent(subject) {
        /// Returns how the call ended; `None` if it was cancelled before it delivered
        /// anything.
        outcome: Option<Outcome>,
        /// Returns the time from the start of the call to its response or error; if it was
        /// cancelled, to its end.
        rt: Duration,
    }
}
