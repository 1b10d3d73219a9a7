//! The queues of values, in the middle of reloads: each turn, and when there is one
//! for who is refused.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::check::check;
use crate::generator::{Op, admits, advances, drops, keyed_queue, reload};
use crate::oracle::{Asks, Edit, Given, Named, RESOURCES, RuleSet, Step, VALUES};
use crate::pair::play;

/// Other limits and longest waits, or another table as well.
const MASKS: [u8; 5] = [0b1001, 0b1001, 0b1001, 0b1001, 0b10_1101];

#[test]
fn through_any_reload_values_keep_their_turns() {
    let call = (
        select(&VALUES[..]),
        prop_oneof![4 => Just(1_u32), 1 => 0_u32..4],
    );
    let call = call.prop_map(|(value, weight)| {
        Op::Call(Asks {
            weight,
            given: Given::One(value),
            ..Asks::with_all(RESOURCES[0])
        })
    });
    let edit = (any::<Index>(), keyed_queue(), select(&MASKS[..]));
    let edit = edit.prop_map(|(index, queue, mask)| Edit {
        keyed: vec![Step::Blend(index, queue, mask)],
        ..Edit::default()
    });
    let op = prop_oneof![
        4 => advances(),
        8 => call,
        3 => admits(),
        2 => drops(),
        1 => reload(edit),
    ];
    let events = [
        "passes",
        "waits",
        "begins",
        "leaves",
        "refused by value",
        "reloaded",
    ];
    let inputs = (keyed_queue(), vec(op, 1..120));
    check(600, inputs, &events, |(rule, ops)| {
        let rules = RuleSet {
            keyed: vec![Named { rule, id: None }],
            ..RuleSet::default()
        };
        play(rules, 500, 1, ops)
    });
}
