//! Calls that wait for their turn, before circuit breakers whose rules change and
//! which operators open and close: whoever starts late is judged by the rules that
//! gave it its place.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::check::check;
use crate::generator::{Op, admits, advances, breaker, drops, edit, ends, forces, reload};
use crate::oracle::{Asks, Flow, RESOURCES, RuleSet, Whose, named};
use crate::pair::play;

/// Four calls a second, one after the other, which wait for as long as they must.
const QUEUE: Flow = Flow {
    resource: RESOURCES[0],
    whose: Whose::All,
    limit: 4,
    buckets: 2,
    bucket: 500,
    is_strict: false,
    queue: Some(60_000),
    ratio: 1.0,
    lend: None,
};

#[test]
fn who_has_waited_is_judged_by_the_rules_that_gave_it_its_place() {
    let call = (0_u32..2).prop_map(|weight| {
        Op::Call(Asks {
            weight,
            ..Asks::with_all(RESOURCES[0])
        })
    });
    let op = prop_oneof![
        6 => advances(),
        3 => Just(Op::Rest),
        6 => call,
        5 => ends(),
        6 => admits(),
        1 => drops(),
        2 => reload(edit(0, 2)),
        1 => any::<Index>().prop_map(Op::View),
        1 => forces(),
    ];
    let events = [
        "waits",
        "begins",
        "leaves",
        "reloaded",
        "forced",
        "refused by a breaker",
        "refused at its turn",
    ];
    let inputs = (vec(breaker(), 0..3), vec(op, 1..150));
    check(400, inputs, &events, |(breakers, ops)| {
        let own = breakers.into_iter().map(|breaker| breaker.of(RESOURCES[0]));
        let rules = RuleSet {
            flows: vec![QUEUE],
            breakers: named(own.collect(), 0),
            ..RuleSet::default()
        };
        play(rules, 500, 8_000, ops)
    });
}
