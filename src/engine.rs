//! The tables of everything that is counted, and the rules that apply.

mod reload;

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc as StdArc;

use arc_swap::{ArcSwap, Guard};

use crate::branch::{Branch, BranchKind, BranchQuery};
use crate::call::{Call, Direction, Key};
use crate::call_nodes::Moved;
use crate::clock::Tick;
use crate::pipeline::{fall_back, judge, try_fast_path};
use crate::recent::{self, Mark};
use crate::resource::{OVERFLOW, Resource, ResourceQuery};
use crate::rule::{Listed, Part, RuleSet};
use crate::shared::Shared;
use crate::stat::Table;
use crate::sync::{Arc, AtomicBool, AtomicU64, Lock, Ordering};
use crate::verdict::{FastPass, SlowVerdict, Verdict};
use crate::watch::Watchers;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
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
    watchers: Watchers,
}

/// The route templates of the rules in force, loaded when they are first asked
/// for: most requests never ask.
pub(crate) struct Routes<'a> {
    engine: &'a Engine,
    loaded: OnceCell<Guard<StdArc<RuleSet>>>,
}

impl fmt::Debug for Routes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes<'_> {
    /// The template that `path` matches; `None` as well if it is the path itself.
    #[inline]
    pub(crate) fn matching(&self, path: &str) -> Option<&str> {
        if !self.engine.has_templates.load(Ordering::Relaxed) {
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
    pub(crate) fn new(
        rules: impl Into<Listed>,
        shared: Shared,
        max_resources: usize,
        max_branches: usize,
    ) -> Self {
        let rules = RuleSet::new(rules, 0, shared.part);
        if !rules.limits().is_empty() {
            shared.count_inbound(shared.time.check_making(shared.time.now()));
        }
        let engine = Self {
            has_templates: AtomicBool::new(rules.has_templates()),
            rules: ArcSwap::from_pointee(rules),
            shared: StdArc::new(shared),
            resources: Table::new(max_resources),
            branches: Table::new(max_branches),
            next_id: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            renewal: Lock::new(()),
            older: Lock::default(),
            watchers: Watchers::default(),
        };
        let rules = engine.rules.load_full();
        engine.watchers.reload(&engine, &rules);
        engine
    }

    /// Rules that only watch.
    pub(crate) const fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// An engine for rules of `rules` that only watch.
    pub(crate) fn beside(&self, rules: Listed, part: Part) -> Self {
        let [resources, branches] = [self.resources.capacity(), self.branches.capacity()];
        Self::new(rules, self.shared.for_shadow(part), resources, branches)
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

    pub(crate) const fn routes(&self) -> Routes<'_> {
        Routes {
            engine: self,
            loaded: OnceCell::new(),
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
        match self.judge(call, &mut slow) {
            Some(pass) => Verdict::Pass(pass.into_entry()),
            None => slow.into_inner().expect("only layers skip calls"),
        }
    }

    /// The same, with the answer in two forms: see [`SlowVerdict`]. A known resource costs
    /// one look-up.
    #[inline]
    pub(crate) fn judge(&self, call: &Call<'_>, slow: &mut SlowVerdict) -> Option<FastPass> {
        let now = self.shared.time.now();
        let mut room = None;
        let query = ResourceQuery {
            direction: call.direction,
            name: call.resource.shortened(&self.shared.hash, &mut room),
        };
        if let Some(resource) = self.at_hand(&query) {
            let why = match try_fast_path(&resource, call, now) {
                Ok(started) => return Some(FastPass::new(resource, started)),
                Err(why) => why,
            };
            if let Ok(verdict) = fall_back(self, &resource, call, now, why) {
                return slow.set(verdict);
            }
        }
        slow.set(self.decide_anew(&query, call, now))
    }

    /// The resource that `query` asks for, if it is known by the present rules.
    #[inline]
    fn at_hand(&self, query: &ResourceQuery<'_>) -> Option<Arc<Resource>> {
        let mark = Mark::of(query, &self.shared);
        let recent = mark.and_then(|mark| recent::find(mark, query, &self.shared));
        recent.or_else(|| self.look_up(query, mark))
    }

    /// The same, as the table knows it.
    #[inline(never)]
    fn look_up(&self, query: &ResourceQuery<'_>, mark: Option<Mark>) -> Option<Arc<Resource>> {
        let found = self.resources.find(query, Arc::clone)?;
        if !found.is_fresh() {
            return None;
        }
        if let Some(mark) = mark {
            recent::miss(mark, &found);
        }
        Some(found)
    }

    /// The resource is not known, or not by the present rules.
    #[cold]
    fn decide_anew(&self, query: &ResourceQuery<'_>, call: &Call<'_>, now: Tick) -> Verdict {
        loop {
            let resource = self.resource(query, call.is_matched, now);
            match judge(self, &resource, call, now) {
                Ok(verdict) => return verdict,
                // A reload is replacing rings: wait for it, and come again.
                Err(Moved) => drop(self.renewal.lock()),
            }
        }
    }

    /// The resource that `query` asks for, made or renewed if need be. Beyond the bound
    /// there is a place only for one that has a rule, or that `has_place`.
    fn resource(&self, query: &ResourceQuery<'_>, has_place: bool, now: Tick) -> Arc<Resource> {
        loop {
            if let Some(found) = self.find(query, now) {
                return found;
            }
            if has_place {
                return self.install(query, now);
            }
            let Some(new) = self.new_resource(query, now) else {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                return self.overflow(query.direction, now);
            };
            if new.is_fresh() {
                return new;
            }
        }
    }

    /// The resource that `query` asks for, by the present rules, if it is known.
    fn find(&self, query: &ResourceQuery<'_>, now: Tick) -> Option<Arc<Resource>> {
        match self.resources.find(query, Arc::clone) {
            Some(stale) if !stale.is_fresh() => self.renew(query, &stale, now),
            found => found,
        }
    }

    /// A resource that is not known yet, by the present rules unless these change
    /// just now; `None` if there is no place for it.
    fn new_resource(&self, query: &ResourceQuery<'_>, now: Tick) -> Option<Arc<Resource>> {
        let rules = loop {
            let rules = self.rules.load_full();
            // A resource with a rule has a place, whatever the bound. No rule can name
            // one that is known by its hash alone.
            let is_named = !matches!(query.name, Key::Digest(..));
            if is_named && rules.names(&query.name.to_string()) {
                return Some(self.install(query, now));
            }
            if rules.version() == self.shared.version.load(Ordering::Acquire) {
                break rules;
            }
            // A reload is at work: what is made now must be by its rules.
            drop(self.renewal.lock());
        };
        let now = self.shared.time.check_making(now);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let make = || Resource::new(query, id, &rules, self.shared.clone(), None, now);
        self.resources.find_or_make(query, now, make)
    }

    /// The resource `name`, by the present rules, if it has ever been called.
    pub(crate) fn known<'a>(
        &self,
        direction: Direction,
        name: impl Into<Key<'a>>,
        now: Tick,
    ) -> Option<Arc<Resource>> {
        let (name, mut room) = (name.into(), None);
        let query = ResourceQuery {
            direction,
            name: name.shortened(&self.shared.hash, &mut room),
        };
        self.find(&query, now)
    }

    /// The resource of calls without a place.
    fn overflow(&self, direction: Direction, now: Tick) -> Arc<Resource> {
        let query = ResourceQuery {
            direction,
            name: &Key::Str(OVERFLOW),
        };
        self.find(&query, now)
            .unwrap_or_else(|| self.install(&query, now))
    }

    /// Makes `stale` anew by the present rules. `None` if others want its place and
    /// have got it: nothing is known of it any more.
    fn renew(
        &self,
        query: &ResourceQuery<'_>,
        stale: &Resource,
        now: Tick,
    ) -> Option<Arc<Resource>> {
        let renewal = self.renewal.lock();
        let rules = self.rules.load_full();
        let has_agreed = stale.take_over(&rules);
        drop(renewal);
        if has_agreed {
            return self.resources.find(query, Arc::clone);
        }
        Some(self.install(query, now))
    }

    /// Puts the resource of `query` in its place, by the present rules and over
    /// the node that it had.
    fn install(&self, query: &ResourceQuery<'_>, now: Tick) -> Arc<Resource> {
        let now = self.shared.time.check_making(now);
        let renewal = self.renewal.lock();
        // Another call may have done it while this one waited.
        if let Some(found) = self.resources.find(query, Arc::clone) {
            if found.is_fresh() {
                return found;
            }
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let rules = self.rules.load_full();
        let (new, old) = self.resources.replace(query, now, |old| {
            Resource::new(
                query,
                id,
                &rules,
                self.shared.clone(),
                old.map(|old| &**old),
                now,
            )
        });
        drop(renewal);
        // Nobody waits while it frees the whole set that it may be the last to hold.
        drop(old);
        new
    }

    /// The branch `name` of `resource`, made or renewed if need be. If there is no
    /// place for it: the one for all such origins, and none for a context.
    pub(crate) fn branch(
        &self,
        resource: &Resource,
        kind: BranchKind,
        name: &Key<'_>,
        now: Tick,
    ) -> Result<Option<Arc<Branch>>, Moved> {
        let query = BranchQuery {
            resource: resource.id(),
            kind,
            name,
        };
        match self.branches.find(&query, Arc::clone) {
            Some(found) if found.agrees_with(resource) => Ok(Some(found)),
            Some(_) => self.install_branch(resource, &query, now).map(Some),
            None => self.new_branch(resource, &query, now),
        }
    }

    #[cold]
    fn new_branch(
        &self,
        resource: &Resource,
        query: &BranchQuery<'_>,
        now: Tick,
    ) -> Result<Option<Arc<Branch>>, Moved> {
        // Who is named by a rule, or stands for many, has a place whatever the
        // bound: a flood of origins must not lift a rule.
        let has_place = match query.kind {
            BranchKind::Missing | BranchKind::Overflow => true,
            BranchKind::Origin => resource
                .origins()
                .is_some_and(|rules| rules.names(query.name)),
            BranchKind::Context => resource
                .contexts()
                .is_some_and(|rules| rules.names(query.name)),
        };
        if has_place {
            return self.install_branch(resource, query, now).map(Some);
        }
        let make = || Branch::new(resource, query, None, now);
        if let Some(branch) = self.branches.find_or_make(query, now, make) {
            if branch.agrees_with(resource) {
                return Ok(Some(branch));
            }
            return self.install_branch(resource, query, now).map(Some);
        }
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        if query.kind == BranchKind::Context {
            return Ok(None);
        }
        self.branch(resource, BranchKind::Overflow, &Key::Str(OVERFLOW), now)
    }

    fn install_branch(
        &self,
        resource: &Resource,
        query: &BranchQuery<'_>,
        now: Tick,
    ) -> Result<Arc<Branch>, Moved> {
        let _renewal = self.renewal.lock();
        if !resource.is_fresh() {
            // A call that found the resource before a reload must not put the
            // old rules back.
            return Err(Moved);
        }
        if let Some(found) = self.branches.find(query, Arc::clone) {
            if found.agrees_with(resource) {
                return Ok(found);
            }
        }
        let (new, _) = self.branches.replace(query, now, |old| {
            Branch::new(resource, query, old.map(|old| &**old), now)
        });
        Ok(new)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::rule::{FlowRule, Rules};
    use crate::sentinel::Sentinel;

    #[test]
    fn a_call_by_older_rules_gets_no_branch_of_newer_ones() {
        let rule = || FlowRule::per_second("r", 0).by_origin().strict();
        let others = (0..20).map(|n| FlowRule::per_second(format!("f{n}"), 7));
        let sentinel = Sentinel::new(rule());
        let engine = sentinel.engine();
        let call = |origin| drop(sentinel.try_enter(Call::new("r").origin(origin)));
        call("a");
        let now = engine.shared().time.now();
        let resource = || engine.known(Direction::Inbound, "r", now).unwrap();
        let old = resource();
        sentinel.reload(Rules::build(others.chain([rule()])).unwrap());
        call("b");
        let branch = |resource: &Resource| {
            let name = Key::Str("b");
            let query = BranchQuery {
                resource: resource.id(),
                kind: BranchKind::Origin,
                name: &name,
            };
            engine.new_branch(resource, &query, now)
        };
        // It has looked for the branch before the reload, and makes it after.
        assert!(
            branch(&old).is_err(),
            "its rules would be looked up in another set"
        );
        assert!(branch(&resource()).is_ok());
    }
}
