//! Reads all resources in place, for frequent readers: nothing is copied unless it is asked for.

use std::borrow::Cow;
use std::sync::Arc as StdArc;

use super::breaker::BreakerView;
use super::budget::BudgetSnapshot;
use super::known::KeyedSnapshot;
use super::shedding::Shedding;
#[cfg(feature = "dashboard")]
use super::view::NodeView;
use crate::base::pace::{StepPace, at_once};
use crate::base::sync::Arc;
use crate::call::Direction;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::registry::Registry;
use crate::engine::resource::scope::ScopeNode;
use crate::engine::resource::{Leases, Resource};
use crate::rule::RuleSet;
use crate::stat::{Histogram, Node, Totals};

/// One resource during a reading: views, snapshots and exports take their figures from it.
pub(crate) struct ResourceReading<'a> {
    registry: &'a Registry,
    rules: &'a RuleSet,
    resource: &'a Arc<Resource>,
    /// The time of the reading; `None` if the clock is read anew for each resource.
    moment: Option<Glance>,
}

/// A function that is called with each resource. It is `Send` because a reading that pauses can
/// continue on another thread.
pub(crate) type ReadRow<'a> = dyn FnMut(&ResourceReading<'_>) + Send + 'a;

/// A resource, and the time at which its figures are read.
pub(crate) struct PresentResource {
    resource: Arc<Resource>,
    pub(crate) now: Tick,
}

/// The details of a resource besides its counters.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) concurrency: u32,
    pub(crate) waiting: u32,
    /// The slots in use and their limit, if a rule limits them.
    pub(crate) slots: Option<(u32, u32)>,
    pub(crate) shedding: Option<Shedding>,
    pub(crate) breakers: Vec<BreakerView>,
    pub(crate) keyed_rules: Vec<KeyedSnapshot>,
    pub(crate) budgets: Vec<BudgetSnapshot>,
    /// The histograms of response times and of waits.
    pub(crate) histograms: Option<[Histogram; 2]>,
}

/// The counts of the resources that were evicted before a reading ended.
#[derive(Debug)]
pub(crate) struct Evicted {
    /// The number of evicted resources.
    pub(crate) count: u64,
    /// Their totals, inbound and outbound.
    pub(crate) totals: [Totals; 2],
}

/// Calls `read` with each resource once. The clock is read once for all resources. A resource that
/// is evicted during the reading is either read or counted as evicted.
pub(crate) fn read_resources(registry: &Registry, read: &mut ReadRow<'_>) -> Evicted {
    let moment = registry.shared().time.read();
    let mut pace = StepPace::without_pauses();
    at_once(walk(registry, &mut pace, 1, Some(moment), read))
}

/// Reads all resources in steps of `pace`; each resource costs `work`. `read` is called with the
/// rules that are in force when the reading begins.
pub(crate) async fn read_resources_paced(
    registry: &Registry,
    pace: &mut StepPace,
    work: usize,
    read: &mut ReadRow<'_>,
) -> Evicted {
    walk(registry, pace, work, None, read).await
}

/// Calls `read` with each resource, at `moment` or, without a moment, at the time of each resource.
async fn walk(
    registry: &Registry,
    pace: &mut StepPace,
    work: usize,
    moment: Option<Glance>,
    read: &mut ReadRow<'_>,
) -> Evicted {
    let rules = registry.rules();
    let mut read_row = |resource: &Arc<Resource>| {
        read(&ResourceReading {
            registry,
            rules: &rules,
            resource,
            moment,
        });
    };
    let gone = registry.read_resources(pace, work, &mut read_row).await;
    Evicted {
        count: gone.evicted,
        totals: gone.retired,
    }
}

/// Calls `read` once with each origin and context, and with the time at which to read it. Returns
/// the number of evicted origins and contexts.
pub(super) fn read_scopes(
    registry: &Registry,
    read: &mut (dyn FnMut(&ScopeNode, Tick) + Send),
) -> u64 {
    let time = &registry.shared().time;
    let moment = time.read();
    let gone = registry.scopes().read_all(|scope| {
        let now = time.check(moment, scope.node().latest().seen());
        read(scope, now);
    });
    gone.evicted
}

impl ResourceReading<'_> {
    /// Returns a number that no other resource of the engine has or will have.
    pub(crate) fn id(&self) -> u64 {
        self.resource.id()
    }

    pub(crate) fn name(&self) -> &StdArc<str> {
        self.resource.text()
    }

    pub(crate) fn direction(&self) -> Direction {
        self.resource.direction()
    }

    /// Returns whether the name of the resource can be reported; see
    /// [`NodeSnapshot::is_listed`](crate::read::NodeSnapshot::is_listed).
    pub(crate) fn is_listed(&self) -> bool {
        self.resource.has_safe_name(self.rules)
    }

    /// Returns whether the name of `present`, this resource with the current rules, can be
    /// reported. A rule in force that names the resource makes its name safe.
    pub(super) fn can_list(&self, present: &PresentResource) -> bool {
        present.resource.has_safe_name(self.rules)
    }

    /// Returns whether a rule names the resource.
    pub(crate) fn is_named(&self) -> bool {
        self.rules.names(self.resource.text())
    }

    /// Returns whether the resource had breakers when it was last called.
    pub(crate) fn has_breakers(&self) -> bool {
        !self.resource.breaker_rules().is_empty()
    }

    /// Returns the totals without advancing the resource to the present, so the count of passed
    /// calls can lag behind the clock.
    pub(crate) fn totals(&self) -> Totals {
        self.resource.node().totals_so_far()
    }

    /// Adds the permits that calls have taken so far to the counts of the resource's shared rules.
    pub(crate) fn count_taken(&self) {
        if let Some(leases) = self.resource.leases() {
            leases.count_taken();
        }
    }

    /// Returns the counts of the resource's keyed rules.
    #[cfg(feature = "tracing")]
    pub(crate) fn keyed_rules(&self) -> Vec<KeyedSnapshot> {
        KeyedSnapshot::of(self.resource)
    }

    /// Returns which calls of each class an adaptive rule admits.
    #[cfg(feature = "tracing")]
    pub(crate) fn shedding(&self) -> Option<Shedding> {
        self.resource.limiter().map(|(_, it)| Shedding::of(it))
    }

    /// Returns a view of the resource, which keeps it alive.
    #[cfg(feature = "dashboard")]
    pub(crate) fn view(&self) -> NodeView {
        NodeView::new(self.resource.clone())
    }

    /// Returns the resource at the present time, with the current rules.
    pub(crate) fn present(&self) -> PresentResource {
        self.at_present(self.registry.renewed(self.resource, self.rules))
    }

    /// Returns the resource at the present time, with the rules that it had when it was last
    /// called.
    pub(crate) fn unrenewed(&self) -> PresentResource {
        self.at_present(self.resource.clone())
    }

    /// Adds the time at which `resource` is read.
    fn at_present(&self, resource: Arc<Resource>) -> PresentResource {
        let time = &self.registry.shared().time;
        let moment = self.moment.unwrap_or_else(|| time.read());
        let now = time.check(moment, resource.node().latest().seen());
        PresentResource { resource, now }
    }

    /// Returns the details of the resource, with the current rules.
    pub(crate) fn details(&self) -> Details {
        let present = self.present();
        let (node, now) = (present.node(), present.now);
        Details {
            concurrency: node.concurrency(now),
            waiting: node.waiting(),
            slots: slots(&present.resource, &node),
            shedding: present.shedding(),
            breakers: present.breakers(),
            keyed_rules: present.keyed_rules(),
            budgets: present.budgets(),
            histograms: node.histograms(),
        }
    }
}

impl PresentResource {
    pub(crate) fn node(&self) -> Cow<'_, Node> {
        self.resource.node().latest()
    }

    pub(crate) fn leases(&self) -> Option<&Leases> {
        self.resource.leases()
    }

    pub(crate) fn breakers(&self) -> Vec<BreakerView> {
        BreakerView::frozen(&self.resource, self.now)
    }

    pub(crate) fn budgets(&self) -> Vec<BudgetSnapshot> {
        BudgetSnapshot::of(&self.resource, self.now)
    }

    pub(crate) fn keyed_rules(&self) -> Vec<KeyedSnapshot> {
        KeyedSnapshot::of(&self.resource)
    }

    /// Returns the shared rules that count each key separately: the id of each, and how many of its
    /// keys this process has reset on all resources.
    #[cfg(feature = "page")]
    pub(crate) fn shared_resets(&self) -> Vec<(StdArc<str>, u64)> {
        let resets = self.resource.leases().map(Leases::resets);
        let with_id = |(index, resets)| (self.resource.rules().id(index), resets);
        let resets = resets.unwrap_or_default().into_iter();
        resets.map(with_id).collect()
    }

    pub(crate) fn adaptive_limit(&self) -> Option<u32> {
        self.resource.adaptive_limit()
    }

    pub(crate) fn shedding(&self) -> Option<Shedding> {
        self.resource.limiter().map(|(_, it)| Shedding::of(it))
    }

    /// Returns the bytes that the resource occupies, heap included, without its name.
    pub(super) fn footprint(&self) -> usize {
        self.resource.footprint()
    }
}

/// Returns the slots in use and their limit: the smaller one of the adaptive and the fixed limit.
/// `None` without a limit.
fn slots(resource: &Resource, node: &Node) -> Option<(u32, u32)> {
    let fixed = resource.fixed_slot_limit().map(|slots| slots.limit);
    let limit = match (resource.adaptive_limit(), fixed) {
        (Some(adaptive), Some(fixed)) => Some(adaptive.min(fixed)),
        (adaptive, fixed) => adaptive.or(fixed),
    }?;
    Some((node.slots_in_use(), limit))
}
