//! How other rules come into force: made beside the calls, then told to all of them
//! at once.

use std::ops::DerefMut;
use std::sync::{Arc as StdArc, Weak};

use super::Engine;
use crate::call::{Direction, Key};
use crate::clock::Tick;
use crate::resource::{Resource, ResourceQuery};
use crate::rule::{Listed, Part, RuleSet, Rules};
use crate::stat::Resident;
use crate::sync::{Arc, Ordering};

/// Most sets of rules before the present one that resources may go by until they are
/// called: there may be as many as there are resources.
const MOST_OLDER: usize = 8;

/// Sets of rules that were in force.
pub(super) type Older = Vec<Weak<RuleSet>>;

impl Engine {
    /// Puts `rules` in force. Every call from here on is judged by them; what
    /// they do not change keeps its counts. False, and nothing happens, if they are in force.
    pub(crate) fn reload(&self, rules: Rules) -> bool {
        let begun = self.begin();
        let older = self.older.lock();
        if *self.rules.load().rules() == rules {
            return false;
        }
        self.replace(older, rules.into(), self.shared.part, begun);
        true
    }

    /// The same for an engine beside another one, which has looked whether they are new.
    pub(crate) fn reload_listed(&self, listed: Listed, part: Part) {
        let begun = self.begin();
        self.replace(self.older.lock(), listed, part, begun);
    }

    /// When a reload begins, which may be what makes the node of all inbound calls.
    fn begin(&self) -> Tick {
        self.shared.time.check_making(self.shared.time.now())
    }

    /// Makes the set and puts it in force, while `older` is held.
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
        self.shadows.reload(self, &new);
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
                    self.find_or_renew(&query, now);
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
        // Only now: while the old rules are in force, theirs are to be found. `Routes` reads it.
        self.has_templates.store(has_templates, Ordering::Release);
    }

    /// `found` by the present `rules`, unless they say nothing of it, nor did those
    /// before.
    pub(crate) fn renewed(&self, found: &Arc<Resource>, rules: &RuleSet) -> Arc<Resource> {
        let has_rules = || !found.rules().is_bare() || rules.of(found.text()).is_some();
        if found.is_fresh() || !has_rules() {
            return found.clone();
        }
        // Many may be made anew in a row, so each by a reading of its own.
        let now = self.shared.time.now();
        // What has left the table in the meantime stays as it was.
        let renewed = found
            .key()
            .with_query(|query| self.find_or_renew(query, now));
        renewed.unwrap_or_else(|| found.clone())
    }

    /// Has every resource take the present rules over.
    #[cold]
    fn renew_all(&self, now: Tick) {
        let all = self.resources.census().entries;
        for old in &all {
            if !old.is_fresh() && !old.rules().is_bare() {
                old.key().with_query(|query| self.renew(query, old, now));
            }
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::rule::FlowRule;
    use crate::sentinel::Sentinel;
    use crate::verdict::Verdict;

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
}
