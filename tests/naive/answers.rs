//! An engine and a naive one hear the same: who passes, by which rule who does not, when a
//! call will, and what a refusal leaves behind.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::check::check;
use crate::generator::{
    Op, admits, advances, all_kinds, asks, borrowers, breaker, drops, edit, ends, forces,
    keyed_queue, lenders, long_windows, op, other_limits, other_parts, other_world, reload, says,
    whole_world, windows,
};
use crate::oracle::{
    Asks, Edit, Flow, Given, NS, Named, RESOURCES, RuleSet, Step, VALUES, Whose, named,
};
use crate::pair::play;

// === windows, queues in which nobody waits, and counts of calls ===

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

// === prioritized calls, as rules lend all of what leaves their windows, a part, or nothing ===

#[test]
fn prioritized_calls_borrow_the_bucket_that_a_naive_engine_says() {
    let op = prop_oneof![
        10 => advances(),
        40 => borrowers().prop_map(Op::Call),
        4 => admits(),
        4 => drops(),
        1 => reload(other_parts()),
    ];
    let longest = prop_oneof![Just(500_u64), 1_u64..3_000];
    let inputs = (lenders(), longest, vec(op, 1..150));
    let events = [
        "passes",
        "waits",
        "begins",
        "leaves",
        "refused by flow",
        "reloaded",
    ];
    check(1_000, inputs, &events, |(rules, longest, ops)| {
        play(rules, longest, 1, ops)
    });
}

// === rules of all kinds together ===

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
        1 => any::<Index>().prop_map(Op::View),
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

// === the same beside rules on all inbound calls and limits that find themselves ===

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

// === the queues of values, in the middle of reloads ===

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

// === calls that wait before breakers whose rules change and which operators switch ===

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
