//! Views of a circuit breaker: live views, and frozen views in snapshots.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Duration;

use super::NodeView;
use crate::base::sync::Arc;
use crate::breaker::{BreakerState, Breakers};
use crate::clock::Tick;
use crate::engine::resource::Resource;

/// A view of a circuit breaker of a resource, under the rules that were in force when the view
/// was created. If a [reload](crate::CircuitBreakerRule#reloads) has replaced the breaker since,
/// the view shows and operates the old one: get a new view.
///
/// A view in a [`Snapshot`](crate::read::Snapshot) is frozen: it shows the breaker as it was, keeps
/// no resource alive, and operates nothing.
///
/// ```
/// use tower_sentinel::read::BreakerState;
/// use tower_sentinel::{Call, CircuitBreakerRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(CircuitBreakerRule::error_ratio("pay", 0.5).id("pay-errors"));
/// drop(sentinel.try_enter(Call::new("pay")));
/// let breakers = sentinel.node("pay").expect("it has been called").breakers();
/// assert_eq!((breakers[0].rule(), breakers[0].state()), ("pay-errors", BreakerState::Closed));
/// breakers[0].force_open();
/// assert!(matches!(sentinel.try_enter(Call::new("pay")), Verdict::Block(_)));
/// breakers[0].force_close();
/// let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("pay")) else { panic!() };
/// entry.fail();
/// drop(entry);
/// assert_eq!(breakers[0].bad_calls(), 1);
/// assert_eq!(breakers[0].times_entered(BreakerState::Open), 1);
/// assert!(breakers[0].since_last_bad_call() <= Some(breakers[0].in_state_for()));
///
/// let snapshot = sentinel.snapshot();
/// let frozen = &snapshot.nodes()[0].breakers()[0];
/// assert!(breakers[0].force_open() && !frozen.force_open());
/// assert_eq!((frozen.rule(), frozen.state()), ("pay-errors", BreakerState::Closed));
/// assert_eq!(frozen.bad_calls(), 1);
/// ```
#[derive(Clone)]
pub struct BreakerView {
    rule: StdArc<str>,
    source: Source,
}

/// The source of a view's figures.
#[derive(Clone)]
enum Source {
    /// The breaker of this resource with this index.
    Live(Arc<Resource>, usize),
    Frozen(Figures),
}

/// The figures of a breaker at one moment.
#[derive(Clone, Copy)]
struct Figures {
    state: BreakerState,
    retry_after: Option<Duration>,
    in_state_for: Duration,
    /// How often the breaker has entered each state.
    entered: [u64; BreakerState::ALL.len()],
    bad_calls: u64,
    since_last_bad_call: Option<Duration>,
}

impl NodeView {
    /// Returns the circuit breakers of the resource, in the order of their rules.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerView> {
        let resource = &self.resource;
        let mut views = Vec::new();
        for (index, rule) in resource.breaker_rules().iter().enumerate() {
            views.push(BreakerView {
                rule: resource.rules().id(*rule),
                source: Source::Live(resource.clone(), index),
            });
        }
        views
    }
}

impl BreakerView {
    /// Returns frozen views of the breakers of `resource` at `now`, in the order of their rules.
    pub(super) fn frozen(resource: &Resource, now: Tick) -> Vec<Self> {
        let Some(breakers) = resource.breakers() else {
            return Vec::new();
        };
        let mut copies = Vec::new();
        for (index, rule) in resource.breaker_rules().iter().enumerate() {
            copies.push(Self {
                rule: resource.rules().id(*rule),
                source: Source::Frozen(Figures {
                    state: breakers.state(index),
                    retry_after: breakers.retry_after(index, now),
                    in_state_for: breakers.in_state_for(index, now),
                    entered: BreakerState::ALL.map(|state| breakers.entered(index, state)),
                    bad_calls: breakers.bad_calls(index, now),
                    since_last_bad_call: breakers.since_last_bad_call(index, now),
                }),
            });
        }
        copies
    }

    /// Returns the figure that `live` reads from the breaker, or `frozen` from the copy. `None` if
    /// the resource has no breakers any more.
    fn read<T>(
        &self,
        live: impl FnOnce(&Breakers, usize, &Resource) -> T,
        frozen: impl FnOnce(&Figures) -> T,
    ) -> Option<T> {
        match &self.source {
            Source::Live(resource, index) => Some(live(resource.breakers()?, *index, resource)),
            Source::Frozen(figures) => Some(frozen(figures)),
        }
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the state of the breaker. An open breaker whose recovery time is over stays
    /// open until a call arrives.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.read(|all, index, _| all.state(index), |it| it.state)
            .unwrap_or(BreakerState::Closed)
    }

    /// Returns how much longer the breaker refuses all calls until a call can probe it. While
    /// probes are in progress, this is the longest time until then. `None` if the breaker refuses
    /// no calls now, or refuses all calls until [`force_close`](Self::force_close).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.read(
            |all, index, resource| all.retry_after(index, resource.now()),
            |it| it.retry_after,
        )
        .flatten()
    }

    /// Returns how long the breaker has been in its [state](Self::state). An open breaker whose
    /// recovery time is over counts as open until a call arrives. A [reload] that keeps the state
    /// keeps this time.
    ///
    /// [reload]: crate::CircuitBreakerRule#reloads
    #[doc(alias("since", "state_since"))]
    #[must_use]
    pub fn in_state_for(&self) -> Duration {
        self.read(
            |all, index, resource| all.in_state_for(index, resource.now()),
            |it| it.in_state_for,
        )
        .unwrap_or_default()
    }

    /// Returns how often the breaker has entered `state`, including by
    /// [`force_open`](Self::force_open) and [`force_close`](Self::force_close). A [reload] that
    /// keeps the state keeps this number. A reload itself changes no state, and the closed state in
    /// which a breaker begins is not counted.
    ///
    /// [reload]: crate::CircuitBreakerRule#reloads
    #[doc(alias("transitions"))]
    #[must_use]
    pub fn times_entered(&self, state: BreakerState) -> u64 {
        self.read(
            |all, index, _| all.entered(index, state),
            |it| it.entered[state as usize],
        )
        .unwrap_or_default()
    }

    /// Returns how many bad calls the breaker counts: in the interval up to now, among the last
    /// calls, or since the last good call. Whether failed or slow calls are bad depends on its
    /// rule. While the breaker is open or half-open, returns the number of bad calls with which it
    /// opened, or 0 if [`force_open`](Self::force_open) has opened it.
    #[doc(alias("failures", "failure_count"))]
    #[must_use]
    pub fn bad_calls(&self) -> u64 {
        self.read(
            |all, index, resource| all.bad_calls(index, resource.now()),
            |it| it.bad_calls,
        )
        .unwrap_or_default()
    }

    /// Returns the time since the end of the last bad call that was counted or was a probe; `None`
    /// if there was none. Closing the breaker does not reset this time.
    #[doc(alias("last_failure", "last_error"))]
    #[must_use]
    pub fn since_last_bad_call(&self) -> Option<Duration> {
        self.read(
            |all, index, resource| all.since_last_bad_call(index, resource.now()),
            |it| it.since_last_bad_call,
        )
        .flatten()
    }

    /// Opens the breaker until [`force_close`](Self::force_close): no calls pass, not even probes.
    /// Reloads keep it open as long as a new rule takes over the state of its rule.
    ///
    /// Returns whether there is a breaker to operate; `false` for a frozen view.
    pub fn force_open(&self) -> bool {
        let Source::Live(resource, index) = &self.source else {
            return false;
        };
        resource
            .with_breakers(|breakers, notify| breakers.force_open(*index, notify))
            .is_some()
    }

    /// Closes the breaker. Its counts are cleared, even if it is closed already, and calls in
    /// flight no longer count.
    ///
    /// Returns whether there is a breaker to operate; `false` for a frozen view.
    pub fn force_close(&self) -> bool {
        let Source::Live(resource, index) = &self.source else {
            return false;
        };
        resource
            .with_breakers(|breakers, notify| breakers.force_close(*index, notify))
            .is_some()
    }
}

impl fmt::Debug for BreakerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerView")
            .field("rule", &self.rule)
            .field("state", &self.state())
            .field("retry_after", &self.retry_after())
            .field("in_state_for", &self.in_state_for())
            .field("bad_calls", &self.bad_calls())
            .field("since_last_bad_call", &self.since_last_bad_call())
            .finish_non_exhaustive()
    }
}
