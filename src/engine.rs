//! The tables of everything that is counted, and the rules that apply.

use std::cell::OnceCell;
use std::fmt;
use std::ops::DerefMut;
use std::sync::{Arc as StdArc, Weak};

use arc_swap::{ArcSwap, Guard};

use crate::branch::{Branch, BranchKind, BranchQuery};
use crate::call::{Call, Direction, Key};
use crate::clock::Tick;
use crate::entry::{Otherwise, Passed, Verdict};
use crate::pipeline::{detour, judge, pass_at_once};
use crate::places::Moved;
use crate::resource::{OVERFLOW, Resource, ResourceQuery};
use crate::rule::{Listed, Part, RuleSet, Rules};
use crate::shared::Shared;
use crate::stat::Table;
use crate::sync::{Arc, AtomicBool, AtomicU64, Lock, Ordering};
use crate::watch::Watchers;

/// Most sets of rules before the present one that resources may go by until they are
/// called: there may be as many as there are resources.
const MOST_OLDER: usize = 8;

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
    older: Lock<Older>,
    watchers: Watchers,
}

/// Sets of rules that were in force.
type Older = Vec<Weak<RuleSet>>;

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
            shared.count_inbound(shared.time.now());
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

    /// Judges `call`.
    #[inline]
    pub(crate) fn decide(&self, call: &Call<'_>) -> Verdict {
        let mut otherwise = Otherwise::new();
        match self.pass(call, &mut otherwise) {
            Some(passed) => Verdict::Pass(passed.into_entry()),
            None => otherwise.verdict().expect("only layers skip calls"),
        }
    }

    /// Judges `call`. A known resource costs one look-up.
    #[inline]
    pub(crate) fn pass(&self, call: &Call<'_>, otherwise: &mut Otherwise) -> Option<Passed> {
        let now = self.shared.time.now();
        let mut room = None;
        let query = ResourceQuery {
            direction: call.direction,
            name: call.resource.shortened(&self.shared.hash, &mut room),
        };
        {
            let guard = self.resources.guard();
            if let Some(resource) = self.resources.get(&query, &guard) {
                if resource.is_fresh() {
                    let why = match pass_at_once(resource, call, now) {
                        Ok(passed) => return Some(passed),
                        Err(why) => why,
                    };
                    if let Ok(verdict) = detour(self, resource, call, now, why) {
                        return otherwise.judged(verdict);
                    }
                }
            }
        }
        otherwise.judged(self.decide_anew(&query, call, now))
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

    /// Puts `rules` in force. Every call from here on is judged by them; what
    /// they do not change keeps its counts.
    pub(crate) fn reload(&self, rules: Rules) -> bool {
        self.reload_part(rules, self.shared.part)
    }

    /// The same for those of `rules` that `part` selects.
    fn reload_part(&self, rules: Rules, part: Part) -> bool {
        let begun = self.shared.time.now();
        let older = self.older.lock();
        let old = self.rules.load();
        if old.part() == part && *old.rules() == rules {
            return false;
        }
        drop(old);
        self.replace(older, rules.into(), part, begun);
        true
    }

    /// The same for an engine beside another one, which has looked whether they are new.
    pub(crate) fn reload_listed(&self, listed: Listed, part: Part) {
        let begun = self.shared.time.now();
        self.replace(self.older.lock(), listed, part, begun);
    }

    fn replace(
        &self,
        mut older: impl DerefMut<Target = Older>,
        listed: Listed,
        part: Part,
        begun: Tick,
    ) {
        let old = self.rules.load_full();
        let new = StdArc::new(RuleSet::new(listed, old.version() + 1, part));
        self.put_in_force(&new, begun);
        older.retain(|set| set.strong_count() > 0);
        older.push(StdArc::downgrade(&old));
        let are_many = older.len() > MOST_OLDER;
        drop(older);
        self.watchers.reload(self, &new);
        // What has lost its rules must not stay pinned until somebody calls it.
        let now = self.shared.time.now();
        for name in old.resources().filter(|name| !new.names(name)) {
            for direction in [Direction::Inbound, Direction::Outbound] {
                for name in Key::spellings(name) {
                    let query = ResourceQuery {
                        direction,
                        name: &name,
                    };
                    // What is found is made anew.
                    self.find(&query, now);
                }
            }
        }
        // Each set is as large as all its rules.
        if are_many {
            self.renew_all(now);
        }
    }

    /// Has calls judged by the rules of `new` from here on.
    fn put_in_force(&self, new: &StdArc<RuleSet>, now: Tick) {
        let has_templates = new.has_templates();
        // Calls wait for this lock: the set is made, and the user's clock, which may be
        // slow, is read before.
        let _renewal = self.renewal.lock();
        if !new.limits().is_empty() {
            self.shared.count_inbound(now);
        }
        if has_templates {
            self.has_templates.store(true, Ordering::Relaxed);
        }
        // From this store on every resource is stale. The next call to it
        // waits for the lock, finds the rules, and makes it anew.
        self.shared.version.store(new.version(), Ordering::Release);
        self.rules.store(new.clone());
        // Only now: while the old rules are in force, theirs are to be found.
        self.has_templates.store(has_templates, Ordering::Relaxed);
    }

    /// Has every resource take the present rules over.
    #[cold]
    fn renew_all(&self, now: Tick) {
        let all = self.resources.census().entries;
        for old in &all {
            if !old.is_fresh() && !old.rules().is_bare() {
                old.with_query(|query| self.renew(query, old, now));
            }
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::rule::FlowRule;
    use crate::sentinel::Sentinel;

    #[test]
    fn the_same_rules_in_another_part_are_other_rules() {
        let rule = |limit: u32| FlowRule::per_second("r", limit).shadow();
        let rules = || Rules::new().with(rule(1)).with(rule(2));
        let sentinel = Sentinel::new(rules());
        let engine = sentinel.engine();
        assert!(!engine.reload_part(rules(), Part::Enforced));
        for part in [Part::Only(0), Part::Only(1), Part::Enforced] {
            assert!(engine.reload_part(rules(), part));
            assert_eq!(engine.rules().part(), part);
        }
    }

    fn rules(limit: u32) -> Rules {
        Rules::build((0..40).map(|n| FlowRule::per_second(format!("named {n}"), limit))).unwrap()
    }

    /// How many of the sets that `era` sees in force are still there after 40 reloads.
    fn left_of(sentinel: &Sentinel, era: impl Fn(&Sentinel, u32)) -> usize {
        let sets = (1..=40).map(|n| {
            sentinel.reload(rules(n));
            era(sentinel, n);
            StdArc::downgrade(&sentinel.engine().rules())
        });
        let sets: Vec<_> = sets.collect();
        sets.iter().filter(|set| set.strong_count() > 0).count()
    }

    #[test]
    fn a_resource_without_rules_keeps_no_set_of_rules() {
        let sentinel = Sentinel::new(rules(100));
        let left = left_of(&sentinel, |sentinel, n| {
            drop(sentinel.try_enter(Call::new(&*format!("unnamed {n}"))));
        });
        assert_eq!(left, 1, "that in force");
    }

    #[test]
    fn resources_that_are_not_called_again_keep_few_sets_of_rules() {
        let sentinel = Sentinel::new(rules(100));
        let call = |sentinel: &Sentinel, n| {
            drop(sentinel.try_enter(Call::new(&*format!("named {}", n % 40))));
        };
        (0..40).for_each(|n| call(&sentinel, n));
        let left = left_of(&sentinel, call);
        assert!(left <= 9, "{left}");
        let now = sentinel.engine().shared().time.now();
        sentinel.engine().renew_all(now);
        for resource in sentinel.engine().resources().census().entries {
            assert!(resource.is_fresh(), "{}", resource.text());
        }
    }

    #[test]
    fn no_call_waits_while_a_reload_makes_its_set() {
        let sentinel = Sentinel::new(rules(100));
        let _making = sentinel.engine().older.lock();
        for name in ["named 1", "unnamed"] {
            assert!(matches!(
                sentinel.try_enter(Call::new(name)),
                Verdict::Pass(_)
            ));
        }
    }

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
