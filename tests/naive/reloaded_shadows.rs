//! Rules on parameters and circuit breakers in shadow mode, in the middle of
//! reloads: each counts what it would have refused, had it been enforced.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{Entry, Rule, Rules, ShadowView, Verdict};

use crate::breakers::Part;
use crate::company::{Company, Op, company, end, op};
use crate::crowd::Crowd;
use crate::setup::{BEGIN, NS, Setup};
use crate::support::bench::Bench;
use crate::versions::{Alone, Edit, Version, edit};
use crate::wants::Wants;

#[derive(Clone, Debug)]
enum Act {
    Run(Op),
    Reload(Edit),
    /// Someone opens or closes the breaker of one of them.
    Force(Index, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => op().prop_map(Act::Run),
        2 => edit(2, 2).prop_map(Act::Reload),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(index, opens)| Act::Force(index, opens)),
    ]
}

/// A rule in shadow mode, and the naive engine in which it is the only one.
struct Shadow {
    number: usize,
    rule: Alone,
    crowd: Crowd,
}

/// What one shadow let pass: where, and as which call.
type Passed = (usize, usize, Vec<Part>);

struct Scene {
    bench: Bench,
    enforced: Setup,
    version: Version,
    shadows: Vec<Shadow>,
    made: usize,
    entries: Vec<(Entry, Vec<Passed>)>,
    now: u64,
}

impl Scene {
    fn new(company: Company) -> Self {
        let enforced = company.setup.clone();
        let version = Version::from(Company {
            setup: Setup::NONE,
            ..company
        });
        let mut scene = Self {
            bench: Bench::new(Self::rules(&enforced, &version)),
            enforced,
            version,
            shadows: Vec::new(),
            made: 0,
            entries: Vec::new(),
            now: BEGIN * NS,
        };
        scene.take_over();
        scene
    }

    fn rules(enforced: &Setup, version: &Version) -> Rules {
        let shadows = version.rules().into_iter().map(Rule::shadow);
        shadows.fold(enforced.rules(), |rules, rule| rules.with(rule))
    }

    /// Each rule of the set goes on from the shadow of an equal one, else from one
    /// of the same id and resource.
    fn take_over(&mut self) {
        let rules = self.version.each(self.enforced.rules().len());
        let mut found: Vec<_> = rules.iter().map(|_| None).collect();
        let is_equal = |new: &Alone, old: &Alone| new.version.rules() == old.version.rules();
        let is_named =
            |new: &Alone, old: &Alone| (&new.name, new.resource) == (&old.name, old.resource);
        for is_partner in [&is_equal as &dyn Fn(&Alone, &Alone) -> bool, &is_named] {
            for (new, found) in rules.iter().zip(&mut found).filter(|(_, it)| it.is_none()) {
                let mut shadows = self.shadows.iter();
                let place = shadows.position(|old| is_partner(new, &old.rule));
                *found = place.map(|place| self.shadows.remove(place));
            }
        }
        let shadows = rules.into_iter().zip(found).map(|(rule, old)| {
            self.made += 1;
            let (number, crowd) = match old {
                Some(old) => (old.number, old.crowd),
                None => (self.made, Crowd::new(&rule.version)),
            };
            Shadow {
                number,
                rule,
                crowd,
            }
        });
        self.shadows = shadows.collect();
    }

    fn call(&mut self, wants: Wants) {
        let Verdict::Pass(entry) = wants.asked(|call| self.bench.sentinel.try_enter(call)) else {
            return;
        };
        let mut passed = Vec::new();
        let shadows = self.shadows.iter_mut();
        for shadow in shadows.filter(|it| it.rule.resource == wants.call.resource) {
            let crowd = &mut shadow.crowd;
            // Sets that no call has met have never been in force for it.
            crowd.take_over(&shadow.rule.version, wants.call.resource);
            if let Ok(parts) = crowd.enter(wants, self.now) {
                passed.push((shadow.number, crowd.seen.len() - 1, parts));
            }
        }
        self.entries.push((entry, passed));
    }

    fn force(&mut self, index: usize, opens: bool) {
        let Shadow { rule, crowd, .. } = &mut self.shadows[index];
        // Who looks has the resource take new rules over, as a call does.
        let Some(node) = self.bench.sentinel.shadows()[index].node(rule.resource) else {
            return;
        };
        crowd.take_over(&rule.version, rule.resource);
        let circuits = crowd.circuits(rule.resource);
        for (circuit, view) in circuits.zip(node.breakers()) {
            circuit.force(opens);
            if opens {
                view.force_open();
            } else {
                view.force_close();
            }
        }
    }

    fn run(&mut self, act: Act) {
        match act {
            Act::Run(Op::Advance(ns)) => {
                // Breakers know times to 8 µs.
                let ns = ns / 8_000 * 8_000;
                self.now += ns;
                self.bench.clock.advance(Duration::from_nanos(ns));
            }
            Act::Run(Op::Call(wants)) => self.call(wants),
            Act::Run(Op::End(index, how)) => {
                if let Some(index) = index.checked_rem(self.entries.len()) {
                    let (entry, passed) = self.entries.swap_remove(index);
                    end(entry, how);
                    for (number, seen, parts) in passed {
                        let mut shadows = self.shadows.iter_mut();
                        if let Some(shadow) = shadows.find(|it| it.number == number) {
                            shadow.crowd.end(seen, parts, self.now, how);
                        }
                    }
                }
            }
            Act::Force(index, opens) => {
                if !self.shadows.is_empty() {
                    self.force(index.index(self.shadows.len()), opens);
                }
            }
            Act::Reload(edit) => {
                self.version.edit(edit);
                let rules = Self::rules(&self.enforced, &self.version);
                self.bench.sentinel.reload(rules);
                self.take_over();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn after_any_reload_a_rule_in_shadow_mode_counts_what_it_would_refuse(
        company in company(),
        acts in prop::collection::vec(act(), 1..150),
    ) {
        let mut scene = Scene::new(company);
        for act in acts {
            scene.run(act);
            let views = scene.bench.sentinel.shadows();
            let found: Vec<_> = views.iter().map(ShadowView::would_block).collect();
            let blocked = scene.shadows.iter().map(|it| it.crowd.naive.blocked.values().sum::<u64>());
            let expected: Vec<_> = blocked.collect();
            prop_assert_eq!(found, expected);
            let names: Vec<_> = scene.shadows.iter().map(|it| &*it.rule.name).collect();
            let found: Vec<_> = views.iter().map(ShadowView::rule).collect();
            prop_assert_eq!(found, names);
        }
    }
}
