//! Reloads that change rules on parameters and circuit breakers, in the middle of
//! calls, and operators who open and close breakers by hand.

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::BreakerView;

use crate::company::{Op, company, op};
use crate::pair::Pair;
use crate::setup::RESOURCES;
use crate::versions::{Edit, edit};

#[derive(Clone, Debug)]
enum Act {
    Run(Op),
    /// Reloads one after the other, and nothing between them.
    Reload(Vec<Edit>),
    /// Someone looks at a breaker, to open or close it some time.
    View(Index),
    /// By a view, which may be of older rules.
    Force(Index, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        16 => op().prop_map(Act::Run),
        2 => prop::collection::vec(edit(2, 2), 1..3).prop_map(Act::Reload),
        1 => any::<Index>().prop_map(Act::View),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(index, opens)| Act::Force(index, opens)),
    ]
}

/// The breakers that someone has looked at, each with the number of its circuit.
type Views = Vec<(BreakerView, usize)>;

fn look(pair: &mut Pair) -> Views {
    let mut views = Vec::new();
    for resource in RESOURCES {
        let node = pair.bench.sentinel.node(resource);
        let found = node.map_or(Vec::new(), |node| node.breakers());
        let circuits = pair.crowd.circuits(resource);
        views.extend(
            found
                .into_iter()
                .zip(circuits.map(|circuit| circuit.number)),
        );
    }
    views
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn after_any_reload_rules_know_what_is_promised(
        company in company(),
        acts in prop::collection::vec(act(), 1..150),
    ) {
        let mut pair = Pair::with_breakers(company.into());
        let mut views = Views::new();
        for act in acts {
            match act {
                Act::Run(op) => pair.run(op)?,
                Act::Reload(edits) => for edit in edits {
                    pair.reload(edit)?;
                },
                Act::View(index) => {
                    let mut found = look(&mut pair);
                    if !found.is_empty() {
                        views.push(found.swap_remove(index.index(found.len())));
                    }
                }
                Act::Force(index, opens) => if !views.is_empty() {
                    let (view, number) = &views[index.index(views.len())];
                    if opens { view.force_open() } else { view.force_close() };
                    pair.crowd.circuit(*number).force(opens);
                }
            }
            pair.compare()?;
            for (view, number) in &views {
                prop_assert_eq!(view.state(), pair.crowd.circuit(*number).state());
            }
        }
    }
}
