//! The engine of the enforced rules, together with the engines of the rules in shadow mode.

use std::sync::{Arc as StdArc, Weak};

use super::Engine;
use crate::base::pace::{StepPace, at_once};
use crate::base::sync::Arc;
#[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
use crate::base::sync::Lock;
use crate::blocked::Blocked;
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::call::arrival::Arrival;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::verdict::{FastPass, Open, SlowVerdict, Verdict};
use crate::engine::call::waiting::JudgeAgain;
use crate::engine::context::EngineContext;
use crate::engine::pipeline::blocked_by_share;
use crate::engine::registry::Registry;
use crate::engine::resource::Resource;
use crate::engine::shadow::Shadows;
use crate::hook::Finding;
use crate::rule::{NumberedRules, Rules};
use crate::stat::{Node, Reloaded};
#[cfg(feature = "shared")]
use crate::store::StoreHandle;

/// See the [module](self). Each [`Sentinel`](crate::Sentinel) refers to a core.
#[derive(Debug)]
pub(crate) struct Core {
    /// The engine of the enforced rules.
    engine: Engine,
    /// The engines of the rules in shadow mode.
    shadows: Shadows,
    /// Held while the rules in force are changed. Code of users runs while it is held.
    #[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
    changing: Lock<()>,
}

impl Core {
    pub(crate) fn new(rules: NumberedRules, shared: EngineContext) -> StdArc<Self> {
        let core = StdArc::new_cyclic(|own: &Weak<Self>| Self {
            engine: Engine::new(rules, shared, own.clone()),
            shadows: Shadows::default(),
            #[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
            changing: Lock::new(()),
        });
        let (shared, rules) = (core.registry().shared(), core.registry().rules());
        // The time does not matter for the first set of shadow rules, which inherits no state.
        if let Some(shadows) = core.shadows.prepare(shared, &rules, Tick::ZERO) {
            core.shadows.put_in_force(&shadows);
        }
        core
    }

    /// Returns the nodes and the enforced rules.
    pub(crate) const fn registry(&self) -> &Registry {
        self.engine.registry()
    }

    /// Returns the rules in shadow mode.
    pub(crate) const fn shadows(&self) -> &Shadows {
        &self.shadows
    }

    /// Judges `call`, and starts it if it passes at once.
    #[inline]
    pub(crate) fn try_enter(&self, call: &Call<'_>) -> Verdict {
        let mut slow = SlowVerdict::empty();
        match self.judge(call, None, &mut slow) {
            Some(pass) => Verdict::Pass(pass.into_entry()),
            None => slow.into_inner().expect("only layers skip calls"),
        }
    }

    /// Starts the store's task, which also reports findings about the store to hooks.
    #[cfg(feature = "shared")]
    #[cold]
    pub(crate) fn start_store(self: &StdArc<Self>) -> std::io::Result<StoreHandle> {
        let hub = self.registry().shared().store.get();
        let handle = StoreHandle::start(hub)?;
        let core = StdArc::downgrade(self);
        if let Some(hub) = hub {
            hub.watch(move || {
                if let Some(core) = core.upgrade() {
                    core.registry().report_store_findings();
                }
            });
        }
        Ok(handle)
    }

    /// Judges a call, with the answer in two forms: see [`Engine::judge`].
    #[inline]
    pub(crate) fn judge(
        &self,
        call: &Call<'_>,
        named_by: Option<u64>,
        slow: &mut SlowVerdict,
    ) -> Option<FastPass> {
        let pass = self.engine.judge(call, named_by, slow);
        if pass.is_none() && slow.open() == Open::HasShadows {
            self.judge_slowly(call, named_by, slow);
        }
        pass
    }

    /// Judges a call without the fast path: after a layer has named it again, or if rules in shadow
    /// mode judge it as well.
    #[cold]
    pub(crate) fn judge_slowly(
        &self,
        call: &Call<'_>,
        named_by: Option<u64>,
        slow: &mut SlowVerdict,
    ) {
        loop {
            let (resource, now) = self.engine.resource_of(call);
            if named_by.is_some_and(|version| version != resource.version()) {
                return slow.leave_open(Open::Renamed);
            }
            match self.judge_on(&resource, call, now, &mut Arrival::default()) {
                Ok(verdict) => {
                    slow.leave_open(Open::Nothing);
                    slow.set(verdict);
                    return;
                }
                Err(Reloaded) => self.registry().wait_for_reload(),
            }
        }
    }

    /// Judges `call` to `resource` by the enforced rules. Then judges it by the rules in shadow
    /// mode, unless the call waits in line and will be judged again.
    fn judge_on(
        &self,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Glance,
        arrived: &mut Arrival,
    ) -> Result<Verdict, Reloaded> {
        if !resource.rules().has_shadows() {
            return self.engine.judge_on(resource, call, now, arrived);
        }
        // The shadow rules must be of the same version as the enforced rules, so that a rule whose
        // mode changes is judged exactly once.
        let shadows = self.shadows.of_version(resource.version())?;
        let verdict = self.engine.judge_on(resource, call, now, arrived)?;
        if matches!(&verdict, Verdict::Wait(waiting) if waiting.is_in_line()) {
            return Ok(verdict);
        }
        let shared = self.registry().shared();
        Ok(shadows.judge(shared, resource.text(), call, verdict))
    }

    /// See [`Sentinel`](crate::Sentinel::begin_change).
    #[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
    pub(crate) fn begin_change(&self) -> impl Sized {
        self.changing.lock()
    }

    /// Puts `rules` in force. All later calls are judged by them. Rules that do not change keep
    /// their counts. Does nothing and returns false if `rules` are already in force.
    pub(crate) fn reload(&self, rules: Rules) -> bool {
        let (registry, shared) = (self.registry(), self.registry().shared());
        // The time is checked for creation, as the node of all inbound calls may be created with
        // it.
        let begun = shared.time.check_for_creation(shared.time.read());
        let older = registry.begin_reload();
        let present = registry.rules();
        if *present.rules() == rules {
            return false;
        }
        let listed = present.listed().followed_by(rules);
        let change = registry.prepare(listed, shared.part, begun);
        let shadows = self.shadows.prepare(shared, change.rules(), begun);
        registry.put_in_force(&change, || {
            if let Some(shadows) = &shadows {
                self.shadows.put_in_force(shadows);
            }
        });
        registry.settle(older, &change);
        if let Some(shadows) = &shadows {
            shadows.settle();
        }
        true
    }

    /// Returns all current findings: everything that looks like a mistake. Hooks get the findings
    /// that they have not yet received.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        at_once(self.findings_by(&mut StepPace::without_pauses(), true))
    }

    /// Returns the findings so far, for a reader that may ask before the first calls. Hooks get
    /// only the findings that no later call can refute.
    pub(crate) fn findings_so_far(&self) -> Vec<Finding> {
        at_once(self.findings_by(&mut StepPace::without_pauses(), false))
    }

    /// Returns the findings in steps. `has_come_late` selects between [`findings`](Self::findings)
    /// and [`findings_so_far`](Self::findings_so_far).
    pub(crate) async fn findings_by(
        &self,
        pace: &mut StepPace,
        has_come_late: bool,
    ) -> Vec<Finding> {
        // Keys that rules in shadow mode need and calls did not have.
        let mut missing = Vec::new();
        for shadow in self.shadows.list() {
            missing.extend(shadow.registry().missing_keys(pace).await);
        }
        let registry = self.registry();
        registry.findings(pace, missing, has_come_late).await
    }
}

impl JudgeAgain for Core {
    fn judge_again(&self, call: &Call<'_>, node: &Node, arrived: &mut Arrival) -> Verdict {
        self.engine
            .judge_from_line(call, node, arrived, |resource, now, arrived| {
                self.judge_on(resource, call, now, arrived)
            })
    }

    fn blocked_by_share(
        &self,
        nodes: &CallNodes,
        call: &Call<'_>,
        now: Tick,
        rule: u32,
    ) -> Blocked {
        blocked_by_share(self.registry(), nodes, call, now, rule)
    }

    fn catch_up(&self, resource: &Resource, now: Tick) {
        self.registry().catch_up(resource, now);
    }
}
