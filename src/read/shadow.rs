//! Views of a rule in shadow mode, and of the calls that it would have refused.

use std::fmt;
use std::sync::Arc;

use super::{NodeView, Snapshot, known, view};
use crate::base::pace::StepPace;
use crate::call::{Direction, Key};
use crate::engine::shadow::Shadow;

/// One rule in [shadow mode](crate::Rule::shadow), with the statistics that an engine would have if
/// only this rule were enforced.
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
/// let shadow = &sentinel.shadows()[0];
/// assert_eq!((shadow.rule(), shadow.would_block()), ("two", 3));
/// // The enforced rules let all of them pass.
/// assert_eq!(sentinel.node("job").expect("it has been called").totals().block(), 0);
/// ```
#[derive(Clone)]
pub struct ShadowView(Arc<Shadow>);

impl ShadowView {
    pub(crate) const fn new(shadow: Arc<Shadow>) -> Self {
        Self(shadow)
    }

    /// Returns the id of the rule; empty if [all rules](crate::Builder::shadow) are in
    /// shadow mode together.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.0.id()
    }

    /// Returns how many calls, by weight, the rule would have refused, including calls to resources
    /// that have been evicted.
    #[must_use]
    pub fn would_block(&self) -> u64 {
        known::would_block(self.0.registry())
    }

    /// Returns how many calls the rule would have refused, read in steps of `pace`.
    pub(crate) async fn would_block_by(&self, pace: &mut StepPace) -> u64 {
        known::would_block_by(self.0.registry(), pace).await
    }

    /// Returns the statistics of inbound calls to `resource`; `None` if the rule has judged no such
    /// call. Calls that the rule would have refused are counted as blocked.
    #[must_use]
    pub fn node<'a>(&self, resource: impl Into<Key<'a>>) -> Option<NodeView> {
        view::find(self.0.registry(), resource.into(), Direction::Inbound)
    }

    /// Returns a copy of all statistics of the rule.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of_shadow(self.0.registry())
    }
}

impl fmt::Debug for ShadowView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShadowView")
            .field("rule", &self.rule())
            .field("would_block", &self.would_block())
            .finish_non_exhaustive()
    }
}
