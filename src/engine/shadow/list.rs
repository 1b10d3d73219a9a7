//! The list of an engine's rules in shadow mode, and the selection of those that judge a call.

use std::sync::Arc as StdArc;

use arc_swap::{ArcSwap, Guard};

use super::rule::{Shadow, Target};
use crate::base::carry_over::carry_over;
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::engine::Engine;
use crate::engine::call::verdict::Verdict;
use crate::engine::context::EngineContext;
use crate::engine::registry::RuleChange;
use crate::rule::{Named, Rule, RuleSelection, RuleSet};
use crate::stat::Reloaded;

/// The rules of an engine that are in shadow mode.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    list: ArcSwap<List>,
}

/// All rules in shadow mode, by resource, so that a call is judged only by the rules for its
/// resource.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// The version of the set of rules to which the shadow rules belong.
    version: u64,
    /// All shadow rules, in the order of the set.
    all: Vec<StdArc<Shadow>>,
    /// The positions in `all` of the rules for one resource, by its name.
    of_one: Named<Vec<usize>>,
    /// The positions in `all` of the rules for all resources.
    of_all: Vec<usize>,
}

/// The shadow rules of the next set of rules, before they are put in force.
#[derive(Debug)]
pub(crate) struct NextShadows {
    list: StdArc<List>,
    /// The engines that are reused, each with the change of its rules.
    changes: Vec<(StdArc<Engine>, RuleChange)>,
}

/// A rule of the next set that is in shadow mode.
struct Wanted<'a> {
    /// The part of the set by which its engine judges: usually this rule alone.
    part: RuleSelection,
    id: StdArc<str>,
    /// The rule; `None` for all rules together.
    rule: Option<&'a Rule>,
}

// === impl Shadows ===

impl Shadows {
    /// Creates the shadow engines of `set`, for calls that begin after `begun`. A rule reuses the
    /// engine of an equal old rule or, failing that, of an old rule with the same id and resource.
    /// Returns `None` if there are and were no shadow rules.
    pub(crate) fn prepare(
        &self,
        shared: &EngineContext,
        set: &RuleSet,
        begun: Tick,
    ) -> Option<NextShadows> {
        let old = self.list.load_full();
        let mut wanted = Vec::new();
        for part in set.part().shadows(set.rules()) {
            wanted.push(Wanted::new(part, set));
        }
        if wanted.is_empty() && old.all.is_empty() {
            return None;
        }
        let carry_over = carry_over(
            &wanted,
            &old.all,
            &[&|new, old| new.rule == old.rule.as_ref(), &|new, old| {
                new.id == old.id && new.names_like(old)
            }],
        );
        let (mut all, mut changes) = (Vec::new(), Vec::new());
        for (new, old) in wanted.iter().zip(carry_over) {
            let engine = match old {
                Some(old) => {
                    let listed = set.listed().clone();
                    let change = old.registry().prepare(listed, new.part, begun);
                    changes.push((old.engine.clone(), change));
                    old.engine.clone()
                }
                None => new.engine(shared, set),
            };
            all.push(StdArc::new(new.shadow(engine)));
        }
        let list = StdArc::new(List::new(set.version(), all));
        Some(NextShadows { list, changes })
    }

    /// Puts `next` in force. Must be called while its set of rules is put in force.
    pub(crate) fn put_in_force(&self, next: &NextShadows) {
        for (engine, change) in &next.changes {
            engine.registry().put_in_force(change, || {});
        }
        self.list.store(next.list.clone());
    }

    /// Returns the shadow rules of this version of the set; the error [`Reloaded`] if another
    /// version is in force now.
    pub(crate) fn of_version(&self, version: u64) -> Result<Guard<StdArc<List>>, Reloaded> {
        let list = self.list.load();
        if list.version == version {
            Ok(list)
        } else {
            Err(Reloaded)
        }
    }

    /// Returns the shadow rules that are in force now.
    pub(crate) fn list(&self) -> Vec<StdArc<Shadow>> {
        self.list.load().all.clone()
    }
}

// === impl NextShadows ===

impl NextShadows {
    /// Finishes the reload of the reused engines, once their rules are in force.
    pub(crate) fn settle(&self) {
        for (engine, change) in &self.changes {
            let registry = engine.registry();
            registry.settle(registry.begin_reload(), change);
        }
    }
}

// === impl List ===

impl List {
    fn new(version: u64, all: Vec<StdArc<Shadow>>) -> Self {
        let mut list = Self {
            version,
            ..Self::default()
        };
        for (place, shadow) in all.iter().enumerate() {
            match &shadow.resource {
                Some(own) => list.of_one.change(&own.name, |places| places.push(place)),
                None => list.of_all.push(place),
            }
        }
        list.all = all;
        list
    }

    /// Returns the shadow rules for a call of `name` that is counted as `resource`, in the order of
    /// the rules.
    fn of(&self, resource: &str, name: &Key<'_>) -> Vec<&Shadow> {
        // Merges three sorted lists: the rules for `resource`, for `name` and for all resources.
        let lists = [
            self.of_one
                .get(&Key::Str(resource))
                .map_or(&[][..], |it| it),
            self.of_one.get(name).map_or(&[][..], |it| it),
            &self.of_all,
        ];
        let mut read = [0; 3];
        let mut shadows = Vec::new();
        loop {
            let mut next = None;
            for (list, &read) in lists.iter().zip(&read) {
                if let Some(&place) = list.get(read) {
                    next = Some(next.map_or(place, |least: usize| least.min(place)));
                }
            }
            let Some(place) = next else {
                return shadows;
            };
            for (list, read) in lists.iter().zip(&mut read) {
                if list.get(*read) == Some(&place) {
                    *read += 1;
                }
            }
            shadows.push(&*self.all[place]);
        }
    }

    /// Judges `call` to `resource` by the rules in shadow mode, after the enforced rules have given
    /// `verdict`. Attaches the entries in shadow mode to the call.
    #[cold]
    pub(crate) fn judge(
        &self,
        shared: &StdArc<EngineContext>,
        resource: &str,
        call: &Call<'_>,
        verdict: Verdict,
    ) -> Verdict {
        if matches!(verdict, Verdict::Block(_)) {
            return verdict;
        }
        let mut entries = Vec::new();
        for shadow in self.of(resource, &call.resource) {
            if let Some(call) = shadow.view(resource, call) {
                entries.extend(shadow.judge(shared, &call));
            }
        }
        match verdict {
            Verdict::Pass(mut entry) => {
                entry.attach_shadows(entries);
                Verdict::Pass(entry)
            }
            // The start time of a waiting call is unknown, so it cannot report its end to the
            // shadow rules.
            other => {
                for entry in entries {
                    entry.cancel();
                }
                other
            }
        }
    }
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    fn new(part: RuleSelection, set: &'a RuleSet) -> Self {
        let (id, rule) = match part {
            RuleSelection::Only(index) => (set.id(index), set.rules().iter().nth(index as usize)),
            _ => (StdArc::default(), None),
        };
        Self { part, id, rule }
    }

    /// Returns whether this rule and the `old` one are for the same resource, or both stand for all
    /// rules.
    fn names_like(&self, old: &Shadow) -> bool {
        self.rule.map(Rule::resource) == old.rule.as_ref().map(Rule::resource)
    }

    /// Creates an engine for the rule, with the settings of `shared`.
    fn engine(&self, shared: &EngineContext, set: &RuleSet) -> StdArc<Engine> {
        Engine::alone(set.listed().clone(), shared.for_shadow(self.part))
    }

    /// Creates the shadow rule with its engine.
    fn shadow(&self, engine: StdArc<Engine>) -> Shadow {
        Shadow {
            id: self.id.clone(),
            rule: self.rule.cloned(),
            resource: self.rule.and_then(Rule::only_resource).map(Target::new),
            engine,
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::clock::ManualClock;
    use crate::hook::BlockEvent;
    use crate::rule::{FlowRule, Rules};
    use crate::sentinel::Sentinel;

    #[test]
    fn a_rule_matches_numbers_and_addresses_spelled_as_its_resource() {
        use std::net::IpAddr;

        let ip = |text: &str| Key::Ip(text.parse::<IpAddr>().unwrap());
        let cases = [
            ("7", Key::Int(7), true),
            ("007", Key::Int(7), false),
            ("::1", ip("::1"), true),
            // An enforced rule would not match this spelling of the address either.
            ("0:0::1", ip("::1"), false),
            ("10.0.0.1", ip("10.0.0.1"), true),
            ("10.0.0.1", ip("10.0.0.2"), false),
            ("GET /a", Key::Joined("GET", "/a"), true),
            ("a", Key::Str("a"), true),
            ("a", Key::Str("b"), false),
        ];
        for (resource, key, is_for_it) in cases {
            let rule = FlowRule::per_second(resource, 1);
            let sentinel = Sentinel::builder()
                .rules(crate::rule::Rule::from(rule).shadow())
                .build();
            let shadow = &sentinel.core().shadows().list()[0];
            let call = Call::new(key);
            let view = shadow.view("elsewhere", &call);
            assert_eq!(view.is_some(), is_for_it, "{resource} for {key:?}");
            assert!(shadow.view(resource, &call).is_some());
        }
    }

    #[test]
    fn a_call_is_judged_by_rules_of_its_resource_which_share_one_copy() {
        let rules = (0..20).map(|n| FlowRule::per_second(format!("r{}", n % 10), 1));
        let rules = rules.map(FlowRule::shadow);
        let everywhere = FlowRule::per_second("*", 1).shadow();
        let rules = Rules::build(rules.chain([everywhere])).unwrap();
        let sentinel = Sentinel::new(rules);
        let core = sentinel.core();
        let list = core.shadows().list.load();
        let seen = |resource: &str, name: &str| -> Vec<_> {
            let name = Key::Str(name);
            let of = list.of(resource, &name);
            of.iter().map(|shadow| shadow.id().to_string()).collect()
        };
        assert_eq!(seen("r3", "r3"), ["flow-3", "flow-13", "flow-20"]);
        assert_eq!(seen("__overflow__", "r3"), ["flow-3", "flow-13", "flow-20"]);
        assert_eq!(seen("elsewhere", "elsewhere"), ["flow-20"]);
        let set = core.registry().rules();
        let are_shared = list.all.iter().all(|shadow| {
            let rules = shadow.registry().rules();
            std::ptr::eq(rules.rules(), set.rules())
        });
        assert!(are_shared && set.rules().iter().all(Rule::is_shadow));
    }

    /// Counts the calls that rules in shadow mode would have refused.
    #[derive(Debug, Default)]
    struct Count(std::sync::atomic::AtomicU64);

    impl crate::hook::Hook for Count {
        fn on_shadow_block(&self, _: &BlockEvent<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_rule_whose_mode_changes_judges_each_call_exactly_once() {
        // The rule refuses all calls while it is in shadow mode, and none while it is enforced. So
        // each call shows in which mode the rule has judged it.
        let rule = |limit| Rule::from(FlowRule::per_second("r", limit).id("it"));
        let sets = [rule(0).shadow(), rule(1_000_000_000)].map(Rules::from);
        let count = Arc::new(Count::default());
        let sentinel = Sentinel::builder()
            .rules(sets[0].clone())
            .hook("count", count.clone())
            .clock(ManualClock::new())
            .build();
        let is_over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut seen = [[0_u64; 2]; 2];
                while !is_over.load(Ordering::Relaxed) {
                    let before = count.0.load(Ordering::Relaxed);
                    let Verdict::Pass(entry) = sentinel.try_enter(Call::new("r")) else {
                        panic!("neither refuses");
                    };
                    let is_seen = count.0.load(Ordering::Relaxed) - before;
                    let is_enforced = !entry.quotas_left().is_empty();
                    seen[usize::from(is_enforced)][is_seen as usize] += 1;
                }
                seen
            });
            for turn in 1..=4_000 {
                sentinel.reload(sets[turn % 2].clone());
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            caller.join().unwrap()
        });
        let [[neither, shadow], [enforced, both]] = seen;
        assert_eq!((neither, both), (0, 0), "of {shadow} and {enforced}");
    }
}
