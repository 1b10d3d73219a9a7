//! Rules of all kinds together: who passes, which of them refuses, when a call will pass,
//! and what a refusal leaves behind.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::check::check;
use crate::generator::{Op, all_kinds, asks, edit, forces, op};
use crate::pair::play;

/// Breakers know times to 8 µs.
const STEP: u64 = 8_000;

#[test]
fn rules_of_all_kinds_answer_as_naive_ones() {
    let inputs = (all_kinds(), vec(op(asks()), 1..150));
    let events = [
        "passes",
        "refused by flow",
        "refused by value",
        "refused without key",
        "refused by a breaker",
        "refused by slots",
    ];
    check(600, inputs, &events, |(rules, ops)| {
        let step = if rules.breakers.is_empty() { 1 } else { STEP };
        play(rules, 500, step, ops)
    });
}

#[test]
fn after_any_reload_rules_know_what_is_promised() {
    let reloads = vec(edit(2, 2), 1..3).prop_map(Op::Reload);
    let op = prop_oneof![
        16 => op(asks()),
        2 => reloads,
        1 => any::<prop::sample::Index>().prop_map(Op::View),
        1 => forces(),
    ];
    let events = [
        "reloaded",
        "forced",
        "passes",
        "refused by value",
        "refused by a breaker",
    ];
    let inputs = (all_kinds(), vec(op, 1..150));
    check(400, inputs, &events, |(rules, ops)| {
        play(rules, 500, STEP, ops)
    });
}
