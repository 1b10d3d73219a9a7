//! Rules in shadow mode: hooks learn what they would refuse, and it runs all the same.
//!
//! Each such rule is judged by an engine of its own, with the figures that it
//! would have if it were enforced beside the enforced rules. It sees what those let pass.
//! What it lets pass as well ends with the call itself; what it refuses is counted
//! as blocked in its engine, and hooks are notified; what it would let wait starts at once.

use std::sync::Arc as StdArc;

use arc_swap::ArcSwap;

use crate::call::{Call, Key, OwnedKey};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::hook::{BlockEvent, Subject};
use crate::partners::partners;
use crate::rule::{Named, Part, Rule, RuleSet};
use crate::sync::Lock;
use crate::verdict::Verdict;

/// The rules of an engine that are in shadow mode.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    list: ArcSwap<List>,
    /// The version of the set that they are of, held while they are made. Calls
    /// never wait for it.
    version: Lock<u64>,
}

/// All of them, and which of them a call may be for: others are not looked at.
#[derive(Debug, Default)]
struct List {
    all: Vec<StdArc<Shadow>>,
    of_one: Named<Vec<usize>>,
    of_all: Vec<usize>,
}

/// One rule in shadow mode, or all rules together.
#[derive(Debug)]
pub(crate) struct Shadow {
    id: StdArc<str>,
    /// `None` for all rules together.
    rule: Option<Rule>,
    /// `None`: it is for calls to all.
    resource: Option<Target>,
    engine: StdArc<Engine>,
}

/// The resource that a rule is for.
#[derive(Debug)]
struct Target {
    name: String,
    /// The keys whose text is that name.
    keys: Box<[OwnedKey]>,
}

/// A rule that is to be in shadow mode.
struct Wanted<'a> {
    part: Part,
    id: StdArc<str>,
    rule: Option<&'a Rule>,
}

// === impl Shadows ===

impl Shadows {
    /// Those of `set`; each goes on from the one of an equal rule or, else, of the
    /// same id and resource. If a newer set has come in the meantime, nothing changes.
    pub(crate) fn reload(&self, engine: &Engine, set: &RuleSet) {
        let mut version = self.version.lock();
        if set.version() < *version {
            return;
        }
        *version = set.version();
        let old = self.list.load_full();
        let wanted: Vec<_> = set
            .part()
            .shadows(set.rules())
            .into_iter()
            .map(|part| Wanted::new(part, set))
            .collect();
        if wanted.is_empty() && old.all.is_empty() {
            return;
        }
        let partners = partners(
            &wanted,
            &old.all,
            &[&|new, old| new.rule == old.rule.as_ref(), &|new, old| {
                new.id == old.id && new.names_like(old)
            }],
        );
        let all = wanted
            .iter()
            .zip(partners)
            .map(|(new, old)| StdArc::new(new.shadow(engine, set, old.map(|old| &**old))));
        self.list.store(StdArc::new(List::new(all.collect())));
    }

    /// All of them, as they are now.
    pub(crate) fn list(&self) -> Vec<StdArc<Shadow>> {
        self.list.load().all.clone()
    }
}

// === impl List ===

impl List {
    fn new(all: Vec<StdArc<Shadow>>) -> Self {
        let mut list = Self::default();
        for (place, shadow) in all.iter().enumerate() {
            match &shadow.resource {
                Some(own) => list.of_one.change(&own.name, |places| places.push(place)),
                None => list.of_all.push(place),
            }
        }
        list.all = all;
        list
    }

    /// Those that a call of `name`, counted as `resource`, may be for, in their order.
    fn of(&self, resource: &str, name: &Key<'_>) -> impl Iterator<Item = &Shadow> {
        let named = [&Key::Str(resource), name].map(|key| self.of_one.get(key));
        let mut places: Vec<_> = named.into_iter().flatten().flatten().collect();
        places.extend(&self.of_all);
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|&place| &*self.all[place])
    }
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    fn new(part: Part, set: &'a RuleSet) -> Self {
        let (id, rule) = match part {
            Part::Only(index) => (set.id(index), set.rules().iter().nth(index as usize)),
            _ => (StdArc::default(), None),
        };
        Self { part, id, rule }
    }

    /// Whether both rules are for the same resource, or both for all.
    fn names_like(&self, old: &Shadow) -> bool {
        self.rule.map(Rule::resource) == old.rule.as_ref().map(Rule::resource)
    }

    /// The rule with the engine of `old` or one beside `engine`.
    fn shadow(&self, engine: &Engine, set: &RuleSet, old: Option<&Shadow>) -> Shadow {
        let listed = set.listed().clone();
        let engine = match old {
            Some(old) => {
                old.engine.reload_listed(listed, self.part);
                old.engine.clone()
            }
            None => StdArc::new(Engine::new(listed, engine.shared().for_shadow(self.part))),
        };
        Shadow {
            id: self.id.clone(),
            rule: self.rule.cloned(),
            resource: self.rule.and_then(Rule::only_resource).map(Target::new),
            engine,
        }
    }
}

// === impl Target ===

impl Target {
    fn new(name: &str) -> Self {
        // As for enforced rules, a key is known by its text.
        let keys = Key::spellings(name).filter(|key| key.to_string() == name);
        Self {
            name: name.to_owned(),
            keys: keys.map(OwnedKey::from).collect(),
        }
    }
}

// === impl Shadow ===

impl Shadow {
    /// The id of its rule; empty for all rules together.
    pub(crate) const fn id(&self) -> &StdArc<str> {
        &self.id
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The call as one of the rule's resource, if it is one. A call that is counted
    /// as another `resource`, for want of a place of its own, is one of what it
    /// names as well: enforced, its rule would give it a place.
    fn view<'a>(&'a self, resource: &str, call: &Call<'a>) -> Option<Call<'a>> {
        let Some(own) = &self.resource else {
            return Some(*call);
        };
        let is_named = || own.keys.iter().any(|key| call.resource.is_kept_as(key));
        (own.name == resource || is_named()).then(|| Call {
            resource: Key::Str(&own.name),
            ..*call
        })
    }

    /// The entry of `call` as the rule sees it, if it lets it pass.
    fn judge(&self, engine: &Engine, call: &Call<'_>) -> Option<Entry> {
        let blocked = match self.engine.try_enter(call) {
            Verdict::Pass(entry) => return Some(entry),
            Verdict::Wait(waiting) => match waiting.begin() {
                Ok(entry) => return Some(entry),
                Err(blocked) => blocked,
            },
            Verdict::Block(blocked) => blocked,
        };
        let hooks = &engine.shared().hooks;
        if !hooks.is_empty() {
            let event = BlockEvent {
                subject: Subject {
                    resource: blocked.resource(),
                    direction: call.direction,
                    weight: call.weight,
                },
                origin: call.origin,
                param: call.param_at(0).copied(),
                blocked: &blocked,
            };
            hooks.notify(|hook| hook.on_shadow_block(&event));
        }
        None
    }
}

/// Has `call` to `resource`, which the enforced rules have given `verdict`, judged
/// by the rules in shadow mode.
#[cold]
pub(crate) fn judge_shadows(
    engine: &Engine,
    resource: &str,
    call: &Call<'_>,
    verdict: Verdict,
) -> Verdict {
    if matches!(verdict, Verdict::Block(_)) {
        return verdict;
    }
    let list = engine.shadows().list.load();
    let entries = list.of(resource, &call.resource).filter_map(|shadow| {
        let call = shadow.view(resource, call)?;
        shadow.judge(engine, &call)
    });
    match verdict {
        Verdict::Pass(mut entry) => {
            entry.attach_shadows(entries.collect());
            Verdict::Pass(entry)
        }
        // Nobody knows when it will start: it says nothing about its end.
        other => {
            entries.for_each(Entry::cancel);
            other
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use crate::clock::ManualClock;
    use crate::rule::{FlowRule, Part, RuleSet, Rules};
    use crate::sentinel::Sentinel;

    fn shadow(id: &str) -> FlowRule {
        FlowRule::per_second("r", 1).id(id)
    }

    #[test]
    fn a_rule_looks_at_the_numbers_and_addresses_that_are_written_as_its_resource() {
        use crate::call::{Call, Key};
        use std::net::IpAddr;

        let ip = |text: &str| Key::Ip(text.parse::<IpAddr>().unwrap());
        let cases = [
            ("7", Key::Int(7), true),
            ("007", Key::Int(7), false),
            ("::1", ip("::1"), true),
            // Enforced, it would not be the rule of that address either.
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
            let shadow = &sentinel.engine().shadows().list()[0];
            let call = Call::new(key);
            let view = shadow.view("elsewhere", &call);
            assert_eq!(view.is_some(), is_for_it, "{resource} for {key:?}");
            assert!(shadow.view(resource, &call).is_some());
        }
    }

    #[test]
    fn a_call_looks_at_the_rules_of_its_resource_alone_and_all_share_one_copy() {
        use crate::call::Key;
        use crate::rule::Rule;

        let rules = (0..20).map(|n| FlowRule::per_second(format!("r{}", n % 10), 1));
        let rules = rules.map(FlowRule::shadow);
        let everywhere = FlowRule::per_second("*", 1).shadow();
        let rules = Rules::build(rules.chain([everywhere])).unwrap();
        let sentinel = Sentinel::new(rules);
        let engine = sentinel.engine();
        let list = engine.shadows().list.load();
        let seen = |resource: &str, name: &str| -> Vec<_> {
            let name = Key::Str(name);
            let of = list.of(resource, &name);
            of.map(|shadow| shadow.id().to_string()).collect()
        };
        assert_eq!(seen("r3", "r3"), ["flow-3", "flow-13", "flow-20"]);
        assert_eq!(seen("__overflow__", "r3"), ["flow-3", "flow-13", "flow-20"]);
        assert_eq!(seen("elsewhere", "elsewhere"), ["flow-20"]);
        let set = engine.rules();
        let are_shared = list.all.iter().all(|shadow| {
            let rules = shadow.engine().rules();
            std::ptr::eq(rules.rules(), set.rules())
        });
        assert!(are_shared && set.rules().iter().all(Rule::is_shadow));
    }

    #[test]
    fn an_older_set_that_comes_late_changes_nothing() {
        let sentinel = Sentinel::builder()
            .rules(shadow("first").shadow())
            .clock(ManualClock::new())
            .build();
        let engine = sentinel.engine();
        // Two reloads: what the first has put in force last is of the older set.
        let [older, newer] = [("older", 1), ("newer", 2)].map(|(id, version)| {
            RuleSet::new(Rules::from(shadow(id).shadow()), version, Part::Enforced)
        });
        engine.shadows().reload(engine, &newer);
        engine.shadows().reload(engine, &older);
        let ids: Vec<_> = engine
            .shadows()
            .list()
            .iter()
            .map(|shadow| shadow.id().to_string())
            .collect();
        assert_eq!(ids, ["newer"]);
    }
}
