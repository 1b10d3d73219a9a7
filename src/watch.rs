//! Rules in shadow mode: what they would refuse is told, and runs.
//!
//! Each is judged by an engine of its own, with the figures that it would have if
//! it were enforced beside the enforced rules. It sees what those let pass. What
//! it lets pass as well ends with the call that it watches; what it refuses is
//! told, and counted as blocked there; what it would let wait starts at once.

use std::sync::Arc as StdArc;

use arc_swap::ArcSwap;

use crate::call::Call;
use crate::engine::Engine;
use crate::entry::{Entry, Verdict};
use crate::hook::{BlockEvent, Subject};
use crate::rule::{Part, Rule, RuleSet};

/// The rules of an engine that only watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers(ArcSwap<Vec<StdArc<Watcher>>>);

/// One rule that only watches, or all of them together.
#[derive(Debug)]
pub(crate) struct Watcher {
    id: StdArc<str>,
    /// `None` for all rules together.
    rule: Option<Rule>,
    /// `None`: it is for all.
    resource: Option<String>,
    engine: StdArc<Engine>,
}

// === impl Watchers ===

impl Watchers {
    /// Those of `set`; each goes on from the one of an equal rule or, else, of the
    /// same id.
    pub(crate) fn reload(&self, engine: &Engine, set: &RuleSet) {
        let old = self.0.load_full();
        let parts = set.part().watching(set.rules());
        if parts.is_empty() && old.is_empty() {
            return;
        }
        let all = parts.into_iter().map(|part| {
            let (id, rule) = match part {
                Part::Only(index) => (set.id(index), set.rules().iter().nth(index as usize)),
                _ => (StdArc::default(), None),
            };
            let is_equal = |old: &&StdArc<Watcher>| old.rule.as_ref() == rule;
            let is_named_like = |old: &&StdArc<Watcher>| old.id == id;
            let known = old.iter().find(is_equal);
            let known = known.or_else(|| old.iter().find(is_named_like));
            let rules = set.rules().clone();
            let engine = match known {
                Some(known) => {
                    known.engine.reload_part(rules, part);
                    known.engine.clone()
                }
                None => StdArc::new(engine.beside(rules, part)),
            };
            let resource = rule.and_then(Rule::only_resource).map(str::to_owned);
            StdArc::new(Watcher {
                id,
                rule: rule.cloned(),
                resource,
                engine,
            })
        });
        self.0.store(StdArc::new(all.collect()));
    }

    /// All of them, as they are now.
    pub(crate) fn list(&self) -> Vec<StdArc<Watcher>> {
        self.0.load().to_vec()
    }
}

// === impl Watcher ===

impl Watcher {
    /// The id of its rule; empty for all rules together.
    pub(crate) const fn id(&self) -> &StdArc<str> {
        &self.id
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The call as the rule sees it, if it lets it pass.
    fn judge(&self, engine: &Engine, call: &Call<'_>) -> Option<Entry> {
        let blocked = match self.engine.decide(call) {
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
            hooks.tell(|hook| hook.on_shadow_block(&event));
        }
        None
    }
}

/// Has `call` to `resource`, which the enforced rules have given `verdict`, judged
/// by the rules that only watch.
#[cold]
pub(crate) fn watch(engine: &Engine, resource: &str, call: &Call<'_>, verdict: Verdict) -> Verdict {
    if matches!(verdict, Verdict::Block(_)) {
        return verdict;
    }
    let watchers = engine.watchers().0.load();
    let asked = watchers.iter().filter(|watcher| {
        let own = watcher.resource.as_deref();
        own.is_none_or(|own| own == resource)
    });
    let watching = asked.filter_map(|watcher| watcher.judge(engine, call));
    match verdict {
        Verdict::Pass(mut entry) => {
            entry.watch(watching.collect());
            Verdict::Pass(entry)
        }
        // Nobody knows when it will start: it says nothing about its end.
        other => {
            watching.for_each(Entry::cancel);
            other
        }
    }
}
