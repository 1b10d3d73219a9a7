//! Finds resources and scope nodes in the tables, and creates missing or stale ones.

use super::Registry;
use super::recent::{self, Fingerprint};
use crate::base::sync::{Arc, Ordering};
use crate::blocked::Blocked;
use crate::call::{Direction, Key};
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::scope::{ScopeKind, ScopeNode, ScopeQuery};
use crate::engine::resource::{NewResource, Resource, ResourceQuery};
use crate::stat::Reloaded;

/// The result of looking up a resource.
pub(crate) enum Found {
    /// There is no resource of that name, or older rules made it.
    Nothing,
    /// The resource, made by the current rules.
    Fresh(Arc<Resource>),
    /// A crowded resource has refused the call, without a change of its reference count.
    Refused(Blocked),
}

impl Registry {
    // --- resources ---

    /// Returns the resource of `query`, if this thread has called it recently and the current rules
    /// made it.
    #[inline(always)]
    pub(crate) fn find_recent(&self, query: &ResourceQuery<'_>) -> Option<Arc<Resource>> {
        let fingerprint = Fingerprint::of(query, &self.shared)?;
        recent::find(fingerprint, query, &self.shared)
    }

    /// Finds a resource in the table. A crowded resource may `refuse` the call at once.
    pub(crate) fn find_fresh(
        &self,
        query: &ResourceQuery<'_>,
        refuse: impl FnOnce(&Resource) -> Option<Blocked>,
    ) -> Found {
        let found = self.resources.find(query, |found| {
            if !found.is_fresh() {
                return Found::Nothing;
            }
            let crowded = Some(found).filter(|found| found.node().is_crowded());
            match crowded.and_then(|crowded| refuse(crowded)) {
                Some(blocked) => Found::Refused(blocked),
                None => Found::Fresh(found.clone()),
            }
        });
        let found = found.unwrap_or(Found::Nothing);
        if let Found::Fresh(found) = &found {
            if let Some(fingerprint) = Fingerprint::of(query, &self.shared) {
                recent::note_miss(fingerprint, found);
            }
        }
        found
    }

    /// Returns the resource of `query`, which is created or renewed if necessary. A full table
    /// still accepts a resource that has a rule, or any resource if `has_place`. Calls to other
    /// resources are counted on the overflow resource. A text from a caller that equals one of the
    /// engine's reserved names is replaced by its hash, which no rule names.
    pub(crate) fn find_or_make(
        &self,
        query: &ResourceQuery<'_>,
        has_place: bool,
        now: Glance,
    ) -> Arc<Resource> {
        if query.name.reserved().is_some() {
            let name = &query.name.digest(&self.shared.hash);
            return self.find_or_make(&ResourceQuery { name, ..*query }, has_place, now);
        }
        loop {
            if let Some(found) = self.find_or_renew(query, now) {
                return found;
            }
            if has_place {
                return self.install(query, true, now);
            }
            let Some(new) = self.try_make(query, now) else {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                let overflow = ResourceQuery {
                    name: &Key::OVERFLOW,
                    ..*query
                };
                return self.find_or_make(&overflow, true, now);
            };
            if new.is_fresh() {
                return new;
            }
        }
    }

    /// Returns the resource of `query` if it is in the table, renewed by the current rules.
    pub(super) fn find_or_renew(
        &self,
        query: &ResourceQuery<'_>,
        now: Glance,
    ) -> Option<Arc<Resource>> {
        match self.resources.find(query, Arc::clone) {
            Some(stale) if !stale.is_fresh() => self.renew(query, &stale, now),
            found => found,
        }
    }

    /// Creates a resource that is not yet known. The resource is stale if the rules change at the
    /// same time. Returns `None` if the table is full.
    fn try_make(&self, query: &ResourceQuery<'_>, now: Glance) -> Option<Arc<Resource>> {
        let rules = loop {
            let rules = self.rules.load_full();
            // A resource with a rule has a place even in a full table. A resource that is known
            // only by its hash can have no rule.
            let is_named = !matches!(query.name, Key::Digest(..));
            if is_named && rules.names(&query.name.to_string()) {
                return Some(self.install(query, false, now));
            }
            if rules.version() == self.shared.version.load(Ordering::Acquire) {
                break rules;
            }
            // A reload is running. Wait for it, as a resource made now must have the new rules.
            drop(self.renewal.lock());
        };
        let now = self.shared.time.check_for_creation(now);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let new = NewResource {
            query,
            id,
            has_matched: false,
        };
        let make = || Resource::new(&new, &rules, self.shared.clone(), None, now);
        let found = self.resources.find_or_make(query, now, make)?;
        if found.id() == id {
            self.compare_new(&found);
        }
        Some(found)
    }

    /// Returns the resource that a rule or program means by `name`, renewed by the current rules.
    /// Returns `None` if it was never called.
    pub(crate) fn known<'a>(
        &self,
        direction: Direction,
        name: impl Into<Key<'a>>,
        now: Glance,
    ) -> Option<Arc<Resource>> {
        let (name, mut buffer) = (name.into().meant(), None);
        let query = ResourceQuery {
            direction,
            name: name.shortened(&self.shared.hash, &mut buffer),
        };
        self.find_or_renew(&query, now)
    }

    /// Returns the resource like [`known`](Self::known), but creates a resource that was never
    /// called if a rule names it.
    pub(crate) fn named<'a>(
        &self,
        direction: Direction,
        name: impl Into<Key<'a>>,
        now: Glance,
    ) -> Option<Arc<Resource>> {
        let (name, mut buffer) = (name.into().meant(), None);
        let query = ResourceQuery {
            direction,
            name: name.shortened(&self.shared.hash, &mut buffer),
        };
        let known = self.find_or_renew(&query, now);
        let is_named = || self.rules.load().names(&name.to_string());
        known.or_else(|| is_named().then(|| self.install(&query, false, now)))
    }

    /// Renews `stale` by the current rules. Returns `None` if it was evicted from the table
    /// meanwhile.
    pub(super) fn renew(
        &self,
        query: &ResourceQuery<'_>,
        stale: &Resource,
        now: Glance,
    ) -> Option<Arc<Resource>> {
        let renewal = self.renewal.lock();
        let rules = self.rules.load_full();
        let has_agreed = stale.take_over(&rules);
        drop(renewal);
        if has_agreed {
            return self.resources.find(query, Arc::clone);
        }
        Some(self.install(query, false, now))
    }

    /// Creates the resource of `query` by the current rules. It replaces the old resource in the
    /// table, if there is one, and takes over its node.
    fn install(&self, query: &ResourceQuery<'_>, has_matched: bool, now: Glance) -> Arc<Resource> {
        let now = self.shared.time.check_for_creation(now);
        let renewal = self.renewal.lock();
        // Another call may have installed the resource while this call waited for the lock.
        if let Some(found) = self.resources.find(query, Arc::clone) {
            if found.is_fresh() {
                return found;
            }
        }
        let new = NewResource {
            query,
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            has_matched,
        };
        let rules = self.rules.load_full();
        let (new, old) = self.resources.replace(query, now, |old| {
            let old = old.map(|old| &**old);
            Resource::new(&new, &rules, self.shared.clone(), old, now)
        });
        drop(renewal);
        if old.is_none() {
            self.compare_new(&new);
        }
        // The new rules may allow more slots, which waiting calls can take. Done without the lock,
        // as wakers run foreign code.
        new.let_in(old.as_deref());
        // Dropped after the lock is released, as this can free a whole set of rules.
        drop(old);
        new
    }

    // --- scope nodes ---

    /// Returns the scope node `name` of `resource`, which is created or renewed if necessary. If
    /// the table is full, an origin gets the overflow node, and a context gets `None`.
    pub(crate) fn scope(
        &self,
        resource: &Resource,
        kind: ScopeKind,
        name: &Key<'_>,
        now: Tick,
    ) -> Result<Option<Arc<ScopeNode>>, Reloaded> {
        let query = ScopeQuery {
            resource: resource.id(),
            kind,
            name,
        };
        match self.scopes.find(&query, Arc::clone) {
            Some(found) if found.agrees_with(resource) => Ok(Some(found)),
            Some(_) => self.install_scope(resource, &query, now).map(Some),
            None => self.make_scope(resource, &query, now),
        }
    }

    /// Creates a scope node that is not in the table, if the table has room or a rule names it.
    /// Otherwise, an origin gets the overflow node, and a context gets `None`.
    #[cold]
    fn make_scope(
        &self,
        resource: &Resource,
        query: &ScopeQuery<'_>,
        now: Tick,
    ) -> Result<Option<Arc<ScopeNode>>, Reloaded> {
        // A scope node that a rule names, and the overflow node, have a place even in a full table:
        // a flood of origins must not disable a rule.
        let has_place = match query.kind {
            ScopeKind::Overflow => true,
            ScopeKind::Origin => resource
                .origins()
                .is_some_and(|rules| rules.names(query.name)),
            ScopeKind::Context => resource
                .contexts()
                .is_some_and(|rules| rules.names(query.name)),
        };
        if has_place {
            return self.install_scope(resource, query, now).map(Some);
        }
        let make = || ScopeNode::new(resource, query, None, now);
        if let Some(scope) = self.scopes.find_or_make(query, now, make) {
            if scope.agrees_with(resource) {
                return Ok(Some(scope));
            }
            return self.install_scope(resource, query, now).map(Some);
        }
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        if query.kind == ScopeKind::Context {
            return Ok(None);
        }
        self.scope(resource, ScopeKind::Overflow, &Key::OVERFLOW, now)
    }

    /// Creates a scope node by the current rules. It replaces the old scope node in the table, if
    /// there is one, and takes over its node.
    fn install_scope(
        &self,
        resource: &Resource,
        query: &ScopeQuery<'_>,
        now: Tick,
    ) -> Result<Arc<ScopeNode>, Reloaded> {
        let _renewal = self.renewal.lock();
        if !resource.is_fresh() {
            // A call that found the resource before a reload must not put the
            // old rules back.
            return Err(Reloaded);
        }
        if let Some(found) = self.scopes.find(query, Arc::clone) {
            if found.agrees_with(resource) {
                return Ok(found);
            }
        }
        let (new, _) = self.scopes.replace(query, now, |old| {
            ScopeNode::new(resource, query, old.map(|old| &**old), now)
        });
        Ok(new)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::rule::{FlowRule, Rules};
    use crate::sentinel::Sentinel;

    #[test]
    fn a_call_by_older_rules_gets_no_scope_node_of_newer_rules() {
        let rule = || FlowRule::per_second("r", 0).for_origin("other").strict();
        let others = (0..20).map(|n| FlowRule::per_second(format!("f{n}"), 7));
        let sentinel = Sentinel::new(rule());
        let registry = sentinel.registry();
        let call = |origin| drop(sentinel.try_enter(Call::new("r").origin(origin)));
        call("a");
        let now = registry.shared().time.read();
        let resource = || registry.known(Direction::Inbound, "r", now).unwrap();
        let old = resource();
        sentinel.reload(Rules::build(others.chain([rule()])).unwrap());
        call("b");
        let scope = |resource: &Resource| {
            let name = Key::Str("b");
            let query = ScopeQuery {
                resource: resource.id(),
                kind: ScopeKind::Origin,
                name: &name,
            };
            registry.make_scope(resource, &query, now.undoubted())
        };
        // A call with the old resource has looked for the scope node before the reload, and creates
        // it after the reload.
        assert!(
            scope(&old).is_err(),
            "its rules would be looked up in another set"
        );
        assert!(scope(&resource()).is_ok());
    }
}
