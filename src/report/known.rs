//! The state of single rules, copied for a snapshot.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::clock::Tick;
use crate::engine::registry::Registry;
use crate::engine::resource::Resource;
use crate::engine::shadow::{Shadow, Shadows};
use crate::stat::Totals;

/// A copy of a circuit breaker of a resource. To operate the breaker, look it up with
/// [`NodeView::breakers`](crate::NodeView::breakers).
///
/// # Examples
///
/// ```
/// use tower_sentinel::{BreakerState, Call, CircuitBreakerRule, Sentinel};
///
/// let sentinel = Sentinel::new(CircuitBreakerRule::error_ratio("pay", 0.5).id("pay-errors"));
/// drop(sentinel.try_enter(Call::new("pay")));
/// sentinel.node("pay").expect("it has been called").breakers()[0].force_open();
///
/// let snapshot = sentinel.snapshot();
/// let breaker = &snapshot.nodes()[0].breakers()[0];
/// assert_eq!((breaker.rule(), breaker.state()), ("pay-errors", BreakerState::Open));
/// ```
#[derive(Clone, Debug)]
pub struct BreakerSnapshot {
    rule: Arc<str>,
    state: BreakerState,
    retry_after: Option<Duration>,
    in_state_for: Duration,
    entered: [u64; BreakerState::ALL.len()],
    bad_calls: u64,
    since_last_bad_call: Option<Duration>,
}

/// A copy of a keyed rule of a resource with its counts. Its values are not copied.
/// [`NodeView::keyed_rules`](crate::NodeView::keyed_rules) can tell how many there are, for which it
/// looks at the whole table.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, KeyedRule, Sentinel};
///
/// let sentinel = Sentinel::new(KeyedRule::per_second("search", 5).id("each"));
/// drop(sentinel.try_enter(Call::new("search").param("ann")));
/// drop(sentinel.try_enter(Call::new("search")));
///
/// let snapshot = sentinel.snapshot();
/// let params = &snapshot.nodes()[0].keyed_rules()[0];
/// assert_eq!((params.rule(), params.missing(), params.overflows()), ("each", 1, 0));
/// ```
#[derive(Clone, Debug)]
pub struct KeyedSnapshot {
    rule: Arc<str>,
    overflows: u64,
    missing: u64,
    waiting: u32,
}

/// A copy of the counts of a rule in [shadow mode](crate::Rule::shadow). For more, see
/// [`ShadowView::snapshot`](crate::ShadowView::snapshot).
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 2).id("two").shadow())
///     .clock(ManualClock::new())
///     .build();
/// for _ in 0..5 {
///     drop(sentinel.try_enter(Call::new("job")));
/// }
/// let snapshot = sentinel.snapshot();
/// let shadow = &snapshot.shadows()[0];
/// assert_eq!((shadow.rule(), shadow.would_block()), ("two", 3));
/// // The enforced rules let all of them pass.
/// assert_eq!(snapshot.totals().block(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct ShadowSnapshot {
    rule: Arc<str>,
    would_block: u64,
}

// === impl BreakerSnapshot ===

impl BreakerSnapshot {
    /// Those of `resource` at `now`, in the order of their rules.
    pub(super) fn of(resource: &Resource, now: Tick) -> Vec<Self> {
        let Some(breakers) = resource.breakers() else {
            return Vec::new();
        };
        let rules = resource.breaker_rules().iter().enumerate();
        let copy = |(index, &rule)| Self {
            rule: resource.rules().id(rule),
            state: breakers.state(index),
            retry_after: breakers.retry_after(index, now),
            in_state_for: breakers.in_state_for(index, now),
            entered: BreakerState::ALL.map(|state| breakers.entered(index, state)),
            bad_calls: breakers.bad_calls(index, now),
            since_last_bad_call: breakers.since_last_bad_call(index, now),
        };
        rules.map(copy).collect()
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the state of the breaker. An open breaker whose recovery time is over stays
    /// open until a call arrives.
    #[must_use]
    pub const fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns how long, from the snapshot on, it refuses calls until one may probe it; see
    /// [`BreakerView::retry_after`](crate::BreakerView::retry_after).
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns how long it had been in its state; see
    /// [`BreakerView::in_state_for`](crate::BreakerView::in_state_for).
    #[must_use]
    pub const fn in_state_for(&self) -> Duration {
        self.in_state_for
    }

    /// Returns how often it has entered `state`; see
    /// [`BreakerView::times_entered`](crate::BreakerView::times_entered).
    #[must_use]
    pub const fn times_entered(&self, state: BreakerState) -> u64 {
        self.entered[state as usize]
    }

    /// Returns how many bad calls it counted, or with which it opened; see
    /// [`BreakerView::bad_calls`](crate::BreakerView::bad_calls).
    #[must_use]
    pub const fn bad_calls(&self) -> u64 {
        self.bad_calls
    }

    /// Returns how long before the snapshot the last bad call ended; see
    /// [`BreakerView::since_last_bad_call`](crate::BreakerView::since_last_bad_call).
    #[must_use]
    pub const fn since_last_bad_call(&self) -> Option<Duration> {
        self.since_last_bad_call
    }
}

// === impl KeyedSnapshot ===

impl KeyedSnapshot {
    /// Those of `resource`, in the order of their rules.
    pub(super) fn of(resource: &Resource) -> Vec<Self> {
        let Some(params) = resource.params() else {
            return Vec::new();
        };
        let rules = params.rules().enumerate();
        let copy = |(place, rule)| Self {
            rule: resource.rules().id(rule),
            overflows: params.overflows(place),
            missing: params.missing(place),
            waiting: params.waiting(place),
        };
        rules.map(copy).collect()
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns how many calls were judged on the quota that all values without a place
    /// share; see [`KeyedView::overflows`](crate::KeyedView::overflows).
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns how many calls came without a value; see
    /// [`KeyedView::missing`](crate::KeyedView::missing).
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns how many calls wait in the queues of all values; see
    /// [`KeyedView::waiting`](crate::KeyedView::waiting).
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }
}

// === impl ShadowSnapshot ===

impl ShadowSnapshot {
    /// Those of the rules in `shadows`, in their order.
    pub(super) fn of(shadows: &Shadows) -> Vec<Self> {
        let copy = |shadow: Arc<Shadow>| Self {
            rule: shadow.id().clone(),
            would_block: would_block(shadow.registry()),
        };
        shadows.list().into_iter().map(copy).collect()
    }

    /// Returns the id of the rule; empty if [all rules](crate::Builder::shadow) are in
    /// shadow mode together.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns how many calls, by weight, it would have refused, including those to
    /// resources that have been evicted.
    #[must_use]
    pub const fn would_block(&self) -> u64 {
        self.would_block
    }
}

/// How many calls the rules in shadow mode that `registry` counts for would have refused.
pub(super) fn would_block(registry: &Registry) -> u64 {
    let time = &registry.shared().time;
    let now = time.read();
    let mut living = 0_u64;
    let gone = registry.resources().read_all(|resource| {
        let node = resource.node().latest();
        let totals = node.totals(time.check(now, node.seen()));
        living = living.wrapping_add(totals.block());
    });
    let retired = gone.retired.iter().map(Totals::block);
    retired.fold(living, u64::wrapping_add)
}
