//! The registry of an engine: the rules in force, and the tables of resources and scope nodes.
//!
//! Resources are in one table. Their scope nodes, for single origins and contexts, are in another
//! table. Both tables are bounded. Each resource is made by one version of the rules. A reload
//! makes the resource stale, and the next call to the resource renews it.

mod findings;
mod lookup;
mod own_label;
pub(crate) mod recent;
mod reload;
mod routes;
#[cfg(feature = "shared")]
mod store_findings;

use std::cell::OnceCell;
use std::sync::Arc as StdArc;

use arc_swap::ArcSwap;

use crate::base::pace::StepPace;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Lock, Ordering};
use crate::engine::context::EngineContext;
use crate::engine::resource::Resource;
use crate::engine::resource::scope::ScopeNode;
use crate::rule::{NumberedRules, RuleSet};
use crate::stat::{Gone, Table, Totals};

pub(crate) use lookup::Found;
pub(crate) use own_label::own_label;
pub(crate) use recent::forget;
pub(crate) use reload::{OldRuleSets, RuleChange};
pub(crate) use routes::Routes;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Registry {
    shared: StdArc<EngineContext>,
    rules: ArcSwap<RuleSet>,
    /// Whether any rule has a template, such as `/users/{id}`, that can match several paths.
    has_templates: AtomicBool,
    resources: Table<Resource>,
    scopes: Table<ScopeNode>,
    /// The id of the next resource.
    next_id: AtomicU64,
    /// The number of calls that found no place in a full table.
    overflowed: AtomicU64,
    /// Held while resources are renewed, and while a reload publishes its rules.
    renewal: Lock<()>,
    /// Replaced sets of rules that may still be in use. A reload holds this lock from its
    /// beginning, while it creates its set of rules. No call waits for this lock.
    older: Lock<OldRuleSets>,
}

impl Registry {
    pub(crate) fn new(rules: NumberedRules, shared: EngineContext) -> Self {
        let rules = RuleSet::new(rules, 0, shared.part);
        if !rules.limits().is_empty() {
            shared.count_inbound(shared.time.check_for_creation(shared.time.read()));
        }
        Self {
            has_templates: AtomicBool::new(rules.has_templates()),
            rules: ArcSwap::from_pointee(rules),
            resources: Table::new(shared.config.max_resources),
            scopes: Table::new(shared.config.max_origins),
            shared: StdArc::new(shared),
            next_id: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            renewal: Lock::new(()),
            older: Lock::default(),
        }
    }

    pub(crate) const fn shared(&self) -> &StdArc<EngineContext> {
        &self.shared
    }

    #[cfg(test)]
    pub(crate) const fn resources(&self) -> &Table<Resource> {
        &self.resources
    }

    /// Calls `read` with each resource once, in steps of `pace`; each resource costs `work`. See
    /// [`Table::read_paced`]. This is the only walk over all resources.
    pub(crate) async fn read_resources(
        &self,
        pace: &mut StepPace,
        work: usize,
        read: &mut (dyn FnMut(&Arc<Resource>) + Send),
    ) -> Gone<[Totals; 2]> {
        self.resources.read_paced(pace, work, read).await
    }

    pub(crate) const fn scopes(&self) -> &Table<ScopeNode> {
        &self.scopes
    }

    /// Returns the number of calls that found no place in a full table, and were counted on an
    /// overflow node.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Returns the route templates, for naming a request.
    pub(crate) fn routes(&self) -> Routes<'_> {
        Routes {
            registry: self,
            loaded: OnceCell::new(),
            // Pairs with the store of the version in `put_in_force`.
            version: self.shared.version.load(Ordering::Acquire),
        }
    }

    /// Returns the rules that are in force.
    pub(crate) fn rules(&self) -> StdArc<RuleSet> {
        self.rules.load_full()
    }
}
