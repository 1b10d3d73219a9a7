//! Windows, queues in which nobody waits, and counts of calls: who passes, by which rule
//! who does not, and when it will.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::check::check;
use crate::generator::{Op, asks, long_windows, op, other_limits, reload, windows};
use crate::oracle::NS;
use crate::pair::play;

#[test]
fn the_engine_answers_as_the_naive_one() {
    let inputs = (windows(), vec(op(asks()), 1..120));
    let events = ["passes", "refused by flow", "refused by slots"];
    check(1_000, inputs, &events, |(rules, ops)| {
        play(rules, 500, 1, ops)
    });
}

#[test]
fn after_a_reload_of_limits_it_goes_on_from_what_was_counted() {
    let op = prop_oneof![20 => op(asks()), 1 => reload(other_limits())];
    let inputs = (windows(), vec(op, 1..120));
    let events = ["reloaded", "passes", "refused by flow", "refused by slots"];
    check(1_000, inputs, &events, |(rules, ops)| {
        play(rules, 500, 1, ops)
    });
}

#[test]
fn under_a_long_window_it_answers_as_the_naive_one() {
    let while_long = (0_u64..12).prop_map(|s| Op::Advance(s * 10_000 * NS));
    let op = prop_oneof![
        40 => op(asks()),
        2 => while_long,
        1 => reload(other_limits()),
    ];
    let inputs = (long_windows(), vec(op, 1..120));
    let events = ["reloaded", "passes", "refused by flow", "refused by slots"];
    check(1_000, inputs, &events, |(rules, ops)| {
        play(rules, 500, 1, ops)
    });
}
