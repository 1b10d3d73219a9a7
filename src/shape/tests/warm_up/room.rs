//! Tests of the prediction of the time at which a call can pass.

use super::*;

#[test]
fn room_at_the_end_of_a_step_uses_the_limit_of_the_next_one() {
    // As no call comes, the limit falls from 71 to 55 at 8 000 ms.
    let rule = used(100.0, 10, 600.0);
    let room = |limit: f64| Some(at(if limit > 70.0 { 8_000 } else { 8_300 }));
    let from = at(7_100);
    let found = rule.available_at(from, None, from, &|_| 5, &room);
    assert_eq!(found, Some(at(8_300)));
    let room = |limit: f64| Some(at(if limit > 70.0 { 7_999 } else { 8_300 }));
    let found = rule.available_at(from, None, from, &|_| 5, &room);
    assert_eq!(found, Some(at(7_999)));
}

#[test]
fn room_is_never_before_the_requested_time() {
    for from in [7_100, 7_999, 8_000, 9_500].map(at) {
        let rule = used(100.0, 10, 600.0);
        let found = rule.available_at(from, None, from, &|_| 5, &|_| Some(at(7_000)));
        assert_eq!(found, Some(from));
    }
}

#[test]
fn passes_that_become_known_during_a_step_make_room_in_it() {
    // At 8 000 ms no new passes are known. From 8 400 ms on, `more` passes are known; with 150 of
    // them the rule is warm.
    let known = at(8_400);
    let available_at = |more: u64| {
        let rule = used(100.0, 10, 600.0);
        let passed = |at: Tick| if at < known { 5 } else { 5 + more };
        let room = |limit: f64| match limit {
            100.0.. => Some(at(7_000)),
            40.0.. => Some(at(9_900)),
            _ => Some(at(30_000)),
        };
        rule.available_at(at(7_100), None, known, &passed, &room)
    };
    assert_eq!(available_at(150), Some(known));
    assert_eq!(available_at(0), Some(at(9_900)));
    // The same holds if there is never room under a lower limit.
    let rule = used(100.0, 10, 600.0);
    let passed = |at: Tick| if at < known { 5 } else { 155 };
    let room = |limit: f64| (limit == 100.0).then_some(at(7_000));
    let found = rule.available_at(at(7_100), None, known, &passed, &room);
    assert_eq!(found, Some(known));
    let found = rule.available_at(at(7_100), None, at(8_000), &|_| 5, &room);
    assert_eq!(found, None);
}

#[test]
fn after_64_steps_without_room_the_lowest_limit_is_used() {
    // The limit falls for 400 s. In each second, it is too low for a call at the time that the
    // previous limit allowed.
    let rule = used(100.0, 1_000, 60_000.0);
    let asked = Cell::new(0);
    let room = |limit: f64| {
        asked.set(asked.get() + 1);
        let next = 7_500 + 1_000 * asked.get();
        Some(at(if limit > 34.0 { next } else { 3_000_000 }))
    };
    let from = at(7_100);
    let found = rule.available_at(from, None, from, &|_| 5, &room);
    assert_eq!(found, Some(at(3_000_000)));
}
