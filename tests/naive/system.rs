//! Rules on all inbound calls and limits that find themselves, beside rules of all other
//! kinds: which rule refuses, and what a refusal leaves behind.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::check::check;
use crate::generator::{Op, asks, op, other_world, reload, says, whole_world};
use crate::oracle::Asks;
use crate::pair::play;

#[test]
fn rules_on_all_calls_and_limits_that_find_themselves_fit_in() {
    let asks = (asks(), prop::bool::weighted(0.2));
    let asks = asks.prop_map(|(asks, is_outbound)| Asks {
        is_outbound,
        ..asks
    });
    let op = prop_oneof![
        17 => op(asks),
        1 => says().prop_map(Op::Machine),
        1 => reload(other_world()),
    ];
    let inputs = (whole_world(), vec(op, 1..150));
    let events = [
        "reloaded",
        "passes",
        "refused by the system",
        "refused by slots",
        "refused by a breaker",
    ];
    check(400, inputs, &events, |(rules, ops)| {
        play(rules, 500, 8_000, ops)
    });
}
