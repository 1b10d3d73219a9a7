//! Reloads: new rules are prepared while calls are judged by the old rules, and then published to
//! all calls at once.

use std::ops::DerefMut;
use std::sync::{Arc as StdArc, Weak};

use super::Registry;
use crate::base::pace::{StepPace, at_once};
use crate::base::sync::{Arc, Ordering};
use crate::call::{Direction, Key};
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::{Resource, ResourceQuery};
use crate::rule::{NumberedRules, RuleSelection, RuleSet};
use crate::stat::Resident;

/// The maximum number of replaced sets of rules that may stay in memory. A resource keeps the set
/// by which it was made until its next call, so without this bound there could be as many sets as
/// resources. A reload that exceeds the bound renews all resources.
const MOST_OLDER: usize = 8;

/// The replaced sets of rules that resources may still keep.
pub(crate) type OldRuleSets = Vec<Weak<RuleSet>>;

/// New rules, ready to come into force.
#[derive(Debug)]
pub(crate) struct RuleChange {
    /// The rules that are replaced.
    old: StdArc<RuleSet>,
    /// The rules to put in force.
    new: StdArc<RuleSet>,
    /// When the reload began.
    begun: Tick,
}

impl RuleChange {
    /// Returns the new rules.
    pub(crate) fn rules(&self) -> &RuleSet {
        &self.new
    }
}

impl Registry {
    /// Begins a reload. No other reload runs until the returned lock is dropped.
    pub(crate) fn begin_reload(&self) -> impl DerefMut<Target = OldRuleSets> {
        self.older.lock()
    }

    /// Creates the new set of rules. No call waits for this.
    pub(crate) fn prepare(
        &self,
        listed: NumberedRules,
        part: RuleSelection,
        begun: Tick,
    ) -> RuleChange {
        let old = self.rules.load_full();
        let new = StdArc::new(RuleSet::new(listed, old.version() + 1, part));
        RuleChange { old, new, begun }
    }

    /// Publishes the rules of `change`: from here on, calls are judged by them. `with_them`
    /// publishes the rules in shadow mode, which must come into force together with them.
    pub(crate) fn put_in_force(&self, change: &RuleChange, with_them: impl FnOnce()) {
        let _renewal = self.renewal.lock();
        self.replace_rules(change, with_them);
    }

    /// Finishes a reload once its rules are in force: renews the resources that must not wait for
    /// their next call.
    pub(crate) fn settle(
        &self,
        mut older: impl DerefMut<Target = OldRuleSets>,
        change: &RuleChange,
    ) {
        let RuleChange { old, new, .. } = change;
        older.retain(|set| set.strong_count() > 0);
        older.push(StdArc::downgrade(old));
        let are_many = older.len() > MOST_OLDER;
        drop(older);
        // A resource that has lost its rules is renewed now. Otherwise, it would occupy the table
        // like a resource with rules until its next call.
        let now = self.shared.time.read();
        for name in old.resources() {
            if new.names(name) {
                continue;
            }
            for direction in [Direction::Inbound, Direction::Outbound] {
                for name in Key::spellings(name) {
                    let query = ResourceQuery {
                        direction,
                        name: &name,
                    };
                    // Renews the resource, if it is in the table.
                    self.find_or_renew(&query, now);
                }
            }
        }
        // Renewed resources release the older sets.
        if are_many {
            self.renew_all(now, |_| true);
        }
        // Calls may be waiting in line for slots that are free under the new rules.
        if self.shared.lined_up.may_wait() {
            self.renew_all(now, Resource::is_waited_for);
        }
    }

    /// Waits until a running reload has put its rules in force.
    pub(crate) fn wait_for_reload(&self) {
        drop(self.renewal.lock());
    }

    /// Replaces the rules. The caller holds the lock `renewal`. Calls wait for this lock, so the
    /// slow steps were done before: the creation of the sets, and the reading of the user's clock.
    fn replace_rules(&self, change: &RuleChange, with_them: impl FnOnce()) {
        let new = &change.new;
        let has_templates = new.has_templates();
        if !new.limits().is_empty() {
            self.shared.count_inbound(change.begun);
        }
        if has_templates {
            self.has_templates.store(true, Ordering::Relaxed);
        }
        // From this store on, every resource is stale. The next call to a resource waits for the
        // lock, finds the new rules, and renews the resource.
        self.shared.version.store(new.version(), Ordering::Release);
        // The shadow rules are published before the rules, as a call that is judged by this version
        // needs shadow rules of the same version.
        with_them();
        self.rules.store(new.clone());
        // Stored last, as `Routes` must find the templates of the old rules while these are in
        // force.
        self.has_templates.store(has_templates, Ordering::Release);
    }

    /// Renews `found` if it was made by older rules. Returns `found` itself if neither the older
    /// nor the current rules name it.
    pub(crate) fn renewed(&self, found: &Arc<Resource>, rules: &RuleSet) -> Arc<Resource> {
        let has_rules = || !found.rules().is_bare_set() || rules.of(found.text()).is_some();
        if found.is_fresh() || !has_rules() {
            return found.clone();
        }
        // The clock is read for each resource: a reader may renew many resources in a row, and a
        // time read once would be too old for the last of them.
        let now = self.shared.time.read();
        // A resource that has left the table in the meantime is returned unchanged.
        let renewed = found
            .key()
            .with_query(|query| self.find_or_renew(query, now));
        renewed.unwrap_or_else(|| found.clone())
    }

    /// Renews `resource` if it was made by older rules. Called for a call that begins to wait in
    /// line, as a reload may have looked for waiting calls just before.
    pub(crate) fn catch_up(&self, resource: &Resource, now: Tick) {
        if !resource.is_fresh() {
            let now = Glance::again(now);
            let renew = |query: &ResourceQuery<'_>| self.find_or_renew(query, now);
            resource.key().with_query(renew);
        }
    }

    /// Renews the resources for which `of` returns true, unless they are up to date or have no
    /// rules.
    #[cold]
    fn renew_all(&self, now: Glance, of: fn(&Resource) -> bool) {
        let mut renew = |old: &Arc<Resource>| {
            if !old.is_fresh() && !old.rules().is_bare_set() && of(old) {
                old.key().with_query(|query| self.renew(query, old, now));
            }
        };
        let mut pace = StepPace::without_pauses();
        at_once(self.read_resources(&mut pace, 1, &mut renew));
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::engine::call::verdict::Verdict;
    use crate::rule::{FlowRule, Rules};
    use crate::sentinel::Sentinel;

    fn rules(limit: u32) -> Rules {
        Rules::build((0..40).map(|n| FlowRule::per_second(format!("named {n}"), limit))).unwrap()
    }

    /// Makes 40 reloads, and calls `era` after each. Returns the number of sets of rules that are
    /// still in memory.
    fn left_of(sentinel: &Sentinel, era: impl Fn(&Sentinel, u32)) -> usize {
        let sets = (1..=40).map(|n| {
            sentinel.reload(rules(n));
            era(sentinel, n);
            StdArc::downgrade(&sentinel.registry().rules())
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
        let now = sentinel.registry().shared().time.read();
        sentinel.registry().renew_all(now, |_| true);
        sentinel.registry().resources().read_all(|resource| {
            assert!(resource.is_fresh(), "{}", resource.text());
        });
    }

    #[test]
    fn no_call_waits_while_a_reload_makes_its_set() {
        let sentinel = Sentinel::new(rules(100));
        let _making = sentinel.registry().older.lock();
        for name in ["named 1", "unnamed"] {
            assert!(matches!(
                sentinel.try_enter(Call::new(name)),
                Verdict::Pass(_)
            ));
        }
    }
}
