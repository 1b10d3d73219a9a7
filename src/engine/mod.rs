//! The tables of everything that is counted, and the rules that apply.

pub(crate) mod call;
pub(crate) mod context;
mod findings;
mod lookup;
pub(crate) mod pipeline;
pub(crate) mod recent;
mod reload;
pub(crate) mod resource;
pub(crate) mod shadow;

use std::cell::OnceCell;
use std::fmt;
use std::sync::{Arc as StdArc, Weak};

use arc_swap::{ArcSwap, Guard};

use crate::base::sync::{Arc, AtomicBool, AtomicU64, Lock, Ordering};
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::call::nodes::Reloaded;
use crate::engine::call::verdict::{FastPass, SlowVerdict};
use crate::engine::context::Shared;
use crate::engine::pipeline::{Arrival, fall_back, judge, try_fast_path};
use crate::engine::resource::branch::Branch;
use crate::engine::resource::{Resource, ResourceQuery};
use crate::engine::shadow::Shadows;
use crate::rule::{Listed, RuleSet};
use crate::stat::{Node, Table};

pub use call::entry::Entry;
pub use call::verdict::Verdict;
pub use call::waiting::{NotAdmitted, Waiting};
pub(crate) use reload::Change;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
    /// Itself, for calls that wait and are judged later.
    own: Weak<Engine>,
    shared: StdArc<Shared>,
    rules: ArcSwap<RuleSet>,
    /// Whether a path may match a template other than itself.
    has_templates: AtomicBool,
    resources: Table<Resource>,
    branches: Table<Branch>,
    /// The id of the next resource.
    next_id: AtomicU64,
    /// Calls that found no place of their own.
    overflowed: AtomicU64,
    /// Held while something is made anew by other rules.
    renewal: Lock<()>,
    /// The sets before that somebody still holds. Held by a reload while it makes its
    /// set: no call waits for it.
    older: Lock<reload::Older>,
    shadows: Shadows,
}

/// The route templates of the rules in force, loaded when they are first asked
/// for: most requests never ask.
pub(crate) struct Routes<'a> {
    engine: &'a Engine,
    loaded: OnceCell<Guard<StdArc<RuleSet>>>,
    /// That of the rules which calls were judged by before anything was asked.
    version: u64,
}

impl fmt::Debug for Routes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes<'_> {
    /// The version of the rules by whose templates, or lack of them, a call was named. If
    /// others came into force between two looks at them, an older one, by which no call is
    /// judged any more.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        let loaded = self.loaded.get();
        loaded.map_or(self.version, |rules| rules.version().min(self.version))
    }

    /// The template that `path` matches; `None` as well if it is the path itself.
    #[inline]
    pub(crate) fn matching(&self, path: &str) -> Option<&str> {
        // Pairs with the last store in `put_in_force`: who sees that the new rules have none sees
        // their version when the call is judged. That they have some is stored before it.
        if !self.engine.has_templates.load(Ordering::Acquire) {
            return None;
        }
        self.naming(path)
    }

    /// The same, and the path itself if a rule has it for its name.
    #[inline(never)]
    pub(crate) fn naming(&self, path: &str) -> Option<&str> {
        let rules = self.loaded.get_or_init(|| self.engine.rules.load());
        rules.rules().templates().matching(path)
    }
}

impl Engine {
    pub(crate) fn new(rules: impl Into<Listed>, shared: Shared) -> StdArc<Self> {
        let rules = RuleSet::new(rules, 0, shared.part);
        if !rules.limits().is_empty() {
            shared.count_inbound(shared.time.check_making(shared.time.read()));
        }
        let engine = StdArc::new_cyclic(|own| Self {
            own: own.clone(),
            has_templates: AtomicBool::new(rules.has_templates()),
            rules: ArcSwap::from_pointee(rules),
            resources: Table::new(shared.config.max_resources),
            branches: Table::new(shared.config.max_origins),
            shared: StdArc::new(shared),
            next_id: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            renewal: Lock::new(()),
            older: Lock::default(),
            shadows: Shadows::default(),
        });
        let rules = engine.rules.load_full();
        // Only those in force now need a time, and these are made by one of their own.
        if let Some(shadows) = engine.shadows.prepare(&engine, &rules, Tick::ZERO) {
            engine.shadows.put_in_force(&shadows);
        }
        engine
    }

    /// A reference that keeps it alive.
    pub(crate) fn handle(&self) -> StdArc<Self> {
        self.own.upgrade().expect("whoever uses it holds it")
    }

    /// The rules in shadow mode.
    pub(crate) const fn shadows(&self) -> &Shadows {
        &self.shadows
    }

    pub(crate) const fn shared(&self) -> &StdArc<Shared> {
        &self.shared
    }

    pub(crate) const fn resources(&self) -> &Table<Resource> {
        &self.resources
    }

    pub(crate) const fn branches(&self) -> &Table<Branch> {
        &self.branches
    }

    /// How many calls were counted with everything that has no place.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    pub(crate) fn routes(&self) -> Routes<'_> {
        Routes {
            engine: self,
            loaded: OnceCell::new(),
            // Pairs with the store of the version in `put_in_force`.
            version: self.shared.version.load(Ordering::Acquire),
        }
    }

    /// The rules that are in force.
    pub(crate) fn rules(&self) -> StdArc<RuleSet> {
        self.rules.load_full()
    }

    /// Judges `call`, and starts it if it passes at once.
    #[inline]
    pub(crate) fn try_enter(&self, call: &Call<'_>) -> Verdict {
        let mut slow = SlowVerdict::empty();
        match self.judge(call, None, &mut slow, || {
            unreachable!("no rules have named it")
        }) {
            Some(pass) => Verdict::Pass(pass.into_entry()),
            None => slow.into_inner().expect("only layers skip calls"),
        }
    }

    /// The same, with the answer in two forms: see [`SlowVerdict`]. A known resource costs
    /// one look-up.
    ///
    /// If the rules that it was `named_by` are not those that would judge it, it may have
    /// another name: the answer is that of `again`, which is none if the call is skipped.
    #[inline]
    pub(crate) fn judge(
        &self,
        call: &Call<'_>,
        named_by: Option<u64>,
        slow: &mut SlowVerdict,
        again: impl FnOnce() -> Option<Verdict>,
    ) -> Option<FastPass> {
        let now = self.shared.time.read();
        let mut buffer = None;
        let query = ResourceQuery {
            direction: call.direction,
            name: call.resource.shortened(&self.shared.hash, &mut buffer),
        };
        let has_named = |found: &Arc<Resource>| named_by.is_none_or(|it| it == found.version());
        if let Some(resource) = self.find_fresh(&query).filter(has_named) {
            let why = match try_fast_path(&resource, call, now) {
                Ok(started) => return Some(FastPass::new(resource, started)),
                Err(why) => why,
            };
            // It fails if a reload is replacing rings: then the resource is one of older rules.
            if let Ok(verdict) = fall_back(self, &resource, call, now, why) {
                return slow.set(verdict);
            }
        }
        let verdict = self.judge_on_new(&query, call, named_by, now);
        slow.set(verdict.or_else(again)?)
    }

    /// Judges a call that was named once more, by the rules of a version. `None` if they
    /// are not those that would judge it.
    #[cold]
    pub(crate) fn judge_renamed(&self, call: &Call<'_>, named_by: u64) -> Option<Verdict> {
        let now = self.shared.time.read();
        let mut buffer = None;
        let query = ResourceQuery {
            direction: call.direction,
            name: call.resource.shortened(&self.shared.hash, &mut buffer),
        };
        self.judge_on_new(&query, call, Some(named_by), now)
    }

    /// Judges a call that has waited for a slot of `node`, or for a share, from the first check
    /// on and by the present rules. What is left of what it has `arrived` with is given back.
    #[cold]
    pub(crate) fn judge_from_line(
        &self,
        call: &Call<'_>,
        node: &Node,
        arrived: &mut Arrival,
    ) -> Verdict {
        let now = self.shared.time.read();
        let mut buffer = None;
        let query = ResourceQuery {
            direction: call.direction,
            name: call.resource.shortened(&self.shared.hash, &mut buffer),
        };
        let verdict = loop {
            let resource = self.find_or_make(&query, call.is_matched, now);
            if !resource.node().counts_with(node) {
                // It has a place of its own by now, or has lost it.
                if let Some(hold) = arrived.slot.take() {
                    node.free_slot(hold);
                }
                arrived.place = None;
            }
            match judge(self, &resource, call, now, arrived) {
                Ok(verdict) => break verdict,
                Err(Reloaded) => drop(self.renewal.lock()),
            }
        };
        if let Some(hold) = arrived.slot.take() {
            node.free_slot(hold);
        }
        if let Some(share) = arrived.take_share() {
            share.give_back(now.undoubted());
        }
        verdict
    }

    /// Judges a call whose resource is not known, or was made by older rules.
    #[cold]
    fn judge_on_new(
        &self,
        query: &ResourceQuery<'_>,
        call: &Call<'_>,
        named_by: Option<u64>,
        now: Glance,
    ) -> Option<Verdict> {
        if named_by.is_none() {
            self.shared.provided.note_direct_call();
        }
        loop {
            let resource = self.find_or_make(query, call.is_matched, now);
            if named_by.is_some_and(|version| version != resource.version()) {
                return None;
            }
            match judge(self, &resource, call, now, &mut Arrival::default()) {
                Ok(verdict) => return Some(verdict),
                // Wait for the reload, and judge the call by the new rules.
                Err(Reloaded) => drop(self.renewal.lock()),
            }
        }
    }
}
