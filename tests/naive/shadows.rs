//! Rules that only watch: each refuses what a naive engine with it alone would, of
//! the calls that the enforced rules let pass.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::{ShadowView, Verdict};

use crate::oracle::Naive;
use crate::setup::{BEGIN, Flow, NS, Op, Setup, Whose, flow, op, setup};
use crate::support::bench::Bench;

fn watching() -> impl Strategy<Value = Flow> {
    // Who the others are, all rules of a set say together.
    flow().prop_filter("stands alone", |flow| flow.whose != Whose::OtherOrigins)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_rule_that_watches_sees_what_it_would_if_it_were_enforced(
        enforced in setup(),
        watching in prop::collection::vec(watching(), 1..4),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut rules = enforced.rules();
        let mut naive = Vec::new();
        for (index, flow) in watching.into_iter().enumerate() {
            rules = rules.with(flow.rule(100 + index).shadow());
            naive.push((Naive::new(Setup { flows: vec![flow], isolation: None, denied: None }), 0));
        }
        let bench = Bench::new(rules);
        let mut entries = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(index) if !entries.is_empty() => {
                    drop(entries.swap_remove(index % entries.len()));
                }
                Op::End(_) => {}
                Op::Call(call) => {
                    if let Verdict::Pass(entry) = bench.sentinel.try_enter(call.asked()) {
                        entries.push(entry);
                        for (naive, blocked) in &mut naive {
                            if naive.enter(call, now).is_err() {
                                *blocked += u64::from(call.n);
                            }
                        }
                    }
                }
            }
        }
        let found: Vec<_> = bench.sentinel.shadows().iter().map(ShadowView::would_block).collect();
        let expected: Vec<_> = naive.iter().map(|(_, blocked)| *blocked).collect();
        prop_assert_eq!(found, expected);
    }
}
