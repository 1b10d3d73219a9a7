//! An engine and a naive one hear the same: who passes, by which rule who does not, when a
//! call will, and what a refusal leaves behind. Where calls wait in ways that the naive one cannot
//! foresee, it believes what they are told: no rule is exceeded, whatever becomes of them, and who
//! does not run leaves nothing behind.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::generator::{
    Op, admits, advances, all_kinds, asks, borrowers, breaker, drops, edit, ends, forces,
    keyed_queue, lenders, long_windows, op, other_limits, other_parts, other_world, reload, says,
    wait_op, whole_world, windows,
};
use crate::oracle::{
    Asks, Count, Edit, Flow, Given, NS, Named, RESOURCES, RuleSet, Stage, Step, VALUES, Whose,
    named,
};
use crate::pair::{Pair, STEP, play};
use crate::side::{Told, touch};
use crate::{check, saw};

/// Checks that both engines answer alike where such rules meet such ops.
#[track_caller]
fn agree(
    cases: u32,
    rules: impl Strategy<Value = RuleSet>,
    ops: impl Strategy<Value = Vec<Op>>,
    step: u64,
    events: &str,
) {
    let inputs = (rules, ops);
    check(cases, inputs, events, |(rules, ops)| {
        play(rules, 500, step, ops)
    });
}

// === windows, queues in which nobody waits, and counts of calls ===

#[test]
fn the_engine_answers_as_the_naive_one() {
    let events = "passes, refused by flow, refused by slots";
    agree(1_000, windows(), vec(op(asks()), 1..120), 1, events);
}

#[test]
fn after_a_reload_of_limits_it_goes_on_from_what_was_counted() {
    let op = prop_oneof![20 => op(asks()), 1 => reload(other_limits())];
    let events = "reloaded, passes, refused by flow, refused by slots";
    agree(1_000, windows(), vec(op, 1..120), 1, events);
}

#[test]
fn under_a_long_window_it_answers_as_the_naive_one() {
    let while_long = (0_u64..12).prop_map(|s| Op::Advance(s * 10_000 * NS));
    let op = prop_oneof![40 => op(asks()), 2 => while_long, 1 => reload(other_limits())];
    let events = "reloaded, passes, refused by flow, refused by slots";
    agree(1_000, long_windows(), vec(op, 1..120), 1, events);
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
    let events = "passes, waits, begins, leaves, refused by flow, reloaded";
    check(1_000, inputs, events, |(rules, longest, ops)| {
        play(rules, longest, 1, ops)
    });
}

// === rules of all kinds together ===

#[test]
fn rules_of_all_kinds_answer_as_naive_ones() {
    let inputs = (all_kinds(), vec(op(asks()), 1..150));
    let events = "passes, refused by flow, refused by value, refused without key, \
        refused by a breaker, refused by slots";
    check(600, inputs, events, |(rules, ops)| {
        let step = if rules.breakers.is_empty() { 1 } else { STEP };
        play(rules, 500, step, ops)
    });
}

#[test]
fn after_any_reload_rules_know_what_is_promised() {
    let reloads = vec(edit(2, 2), 1..3).prop_map(Op::Reload);
    let look = any::<Index>().prop_map(Op::View);
    let op = prop_oneof![16 => op(asks()), 2 => reloads, 1 => look, 1 => forces()];
    let events = "reloaded, forced, passes, refused by value, refused by a breaker";
    agree(400, all_kinds(), vec(op, 1..150), STEP, events);
}

// === the same beside rules on all inbound calls and limits that find themselves ===

#[test]
fn rules_on_all_calls_and_limits_that_find_themselves_fit_in() {
    let asks = (asks(), prop::bool::weighted(0.2));
    let asks = asks.prop_map(|(asks, is_outbound)| Asks {
        is_outbound,
        ..asks
    });
    let (machine, reload) = (says().prop_map(Op::Machine), reload(other_world()));
    let op = prop_oneof![17 => op(asks), 1 => machine, 1 => reload];
    let events = "reloaded, passes, refused by the system, refused by slots, refused by a breaker";
    agree(400, whole_world(), vec(op, 1..150), STEP, events);
}

// === the queues of values, in the middle of reloads ===

/// Other limits and longest waits, or another table as well.
const MASKS: [u8; 5] = [0b1001, 0b1001, 0b1001, 0b1001, 0b10_1101];

#[test]
fn through_any_reload_values_keep_their_turns() {
    let weight = prop_oneof![4 => Just(1_u32), 1 => 0_u32..4];
    let call = (select(&VALUES[..]), weight).prop_map(|(value, weight)| {
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
    let rules = keyed_queue().prop_map(|rule| RuleSet {
        keyed: vec![Named { rule, id: None }],
        ..RuleSet::default()
    });
    let events = "passes, waits, begins, leaves, refused by value, reloaded";
    agree(600, rules, vec(op, 1..120), 1, events);
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
    let rules = vec(breaker(), 0..3).prop_map(|breakers| {
        let own = breakers.into_iter().map(|breaker| breaker.of(RESOURCES[0]));
        RuleSet {
            flows: vec![QUEUE],
            breakers: named(own.collect(), 0),
            ..RuleSet::default()
        }
    });
    let events =
        "waits, begins, leaves, reloaded, forced, refused by a breaker, refused at its turn";
    agree(400, rules, vec(op, 1..150), STEP, events);
}

// === calls that wait, as the naive engine believes ===

#[test]
fn with_calls_that_wait_no_rule_is_exceeded() {
    let waits = (0_u64..3_000, any::<bool>());
    let inputs = (windows(), waits, vec(wait_op(), 1..120));
    let events = "passes, waits, begins, leaves, a window, a queue";
    check(1_000, inputs, events, |(rules, waits, ops)| {
        let (max_wait, with_loans) = waits;
        let isolation = rules.isolation;
        let mut pair = Pair::believing(rules, max_wait);
        for op in ops {
            pair.run(op.waiting(with_loans, None))?;
            if let Some((resource, most)) = isolation {
                prop_assert!(pair.oracles[0].running(resource) <= most as usize);
            }
        }
        assert_kept(&pair, with_loans)
    });
}

/// No window that ends with a bucket holds more than its rule lets, and in a queue
/// calls keep their distance: if it is the only one of its resource, and nobody
/// waits for anything else.
fn assert_kept(pair: &Pair, with_loans: bool) -> Result<(), TestCaseError> {
    let flows = &pair.rules.flows;
    for flow in flows.iter().filter(|flow| !flow.is_related()) {
        let queues = flows.iter().filter(|other| other.queue.is_some());
        let own = queues.filter(|other| other.resource == flow.resource);
        let is_alone = own.count() == 1;
        for passed in counted_by(pair, flow) {
            if flow.queue.is_none() {
                assert_within(flow, &passed)?;
            } else if is_alone && !with_loans {
                assert_apart(flow, &passed)?;
            }
        }
    }
    Ok(())
}

/// The times and weights of the calls that `flow` counts, of each key apart.
fn counted_by(pair: &Pair, flow: &Flow) -> Vec<Vec<(u64, u32)>> {
    let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for seen in &pair.oracles[0].calls {
        let has_run = matches!(seen.stage, Stage::Runs | Stage::Ended(_));
        if let Some(key) = pair.rules.key(flow, &seen.asks) {
            if has_run && seen.asks.weight > 0 {
                let at = if flow.is_table() { seen.came } else { seen.at };
                by_key.entry(key).or_default().push((at, seen.asks.weight));
            }
        }
    }
    by_key.into_values().collect()
}

fn assert_within(flow: &Flow, passed: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let (length, counted) = flow.window();
    for last in passed.iter().map(|(at, _)| at / length) {
        let window = last + 1 - counted..=last;
        let inside = passed
            .iter()
            .filter(|(at, _)| window.contains(&(at / length)));
        let sum: u32 = inside.map(|(_, weight)| weight).sum();
        prop_assert!(sum <= flow.limit, "{:?}: {} in {:?}", flow, sum, passed);
        saw("a window");
    }
    Ok(())
}

fn assert_apart(flow: &Flow, passed: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let mut passed = passed.to_vec();
    passed.sort_unstable();
    for pair in passed.windows(2) {
        let cost = flow.cost(pair[1].1).unwrap();
        prop_assert!(pair[1].0 >= pair[0].0 + cost, "{:?}: {:?}", flow, passed);
        saw("a queue");
    }
    Ok(())
}

#[test]
fn with_calls_that_wait_no_value_gets_more_than_its_quota() {
    let op = prop_oneof![20 => wait_op(), 1 => reload(edit(3, 0))];
    let inputs = (all_kinds(), 0_u64..3_000, any::<bool>(), vec(op, 1..150));
    let events = "passes, waits, begins, leaves, reloaded, is refused";
    check(500, inputs, events, |(rules, max_wait, with_loans, ops)| {
        let mut pair = Pair::believing(rules, max_wait);
        touch(&pair.side.bench.sentinel);
        for op in ops {
            let op = op.waiting(with_loans, None);
            if let Op::Call(asks) = op {
                call_twice(&mut pair, asks)?;
                continue;
            }
            let is_reload = matches!(op, Op::Reload(_));
            pair.run(op)?;
            if is_reload {
                pair.take_over();
            }
        }
        // At rest nobody is counted as one of those at once.
        pair.side.waiting.clear();
        pair.side.cancel_all();
        for resource in RESOURCES {
            let node = pair.side.bench.sentinel.node(resource).unwrap();
            let views = node.keyed_rules();
            let ledgers = pair.oracles[0].ledgers(resource);
            for ledger in ledgers.filter(|ledger| ledger.keyed.count == Count::Running) {
                let mut views = views.iter();
                let view = views.find(|view| view.rule() == ledger.name).unwrap();
                prop_assert_eq!(view.values(), 0);
                saw("at rest");
            }
        }
        Ok(())
    });
}

/// A call that does not run at once leaves nothing behind if it goes, and the next one is told the
/// same. One that is not refused finds room for its values where all that is kept has been paid.
fn call_twice(pair: &mut Pair, asks: Asks) -> Result<(), TestCaseError> {
    let before = pair.side.all();
    let id = (0, pair.oracles[0].calls.len());
    let told = pair.side.call(&asks, id);
    if told != Told::Pass {
        if let Told::Wait(_) = told {
            drop(pair.side.waiting.pop());
        }
        prop_assert_eq!(pair.side.all(), before, "{:?}", asks);
        if let Told::Block(_) = told {
            return Ok(());
        }
        prop_assert_eq!(&pair.side.call(&asks, id), &told);
    }
    let now = pair.side.now();
    for ledger in pair.oracles[0].ledgers(asks.resource) {
        let at = ledger.available_at(&asks, now);
        let is_queue = matches!(ledger.keyed.count, Count::Queue(_));
        prop_assert!(is_queue || at == Some(now), "{:?}", ledger);
    }
    pair.believe(asks, &told);
    Ok(())
}
