//! Calls that wait in line for a place among those at once of their value.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tower_sentinel::call::Param;
use tower_sentinel::read::NodeView;
use tower_sentinel::{
    BlockKind, BoxError, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, KeyedRule,
    ManualClock, MissingKey, NotAdmitted, Rule, Rules, Sentinel, Verdict, Waiting,
};

use crate::support::line::{not_yet, refused, wait};
use crate::support::{assert_at_rest, engine, enter, ms, poll_now};

fn by(value: &str) -> Call<'_> {
    Call::new("r").param(value)
}

/// At most `max` of a value at once; others wait for up to a second.
fn queue(max: u32) -> KeyedRule {
    KeyedRule::concurrency("r", max).queue(ms(1_000))
}

fn node(sentinel: &Sentinel) -> NodeView {
    sentinel.node("r").unwrap()
}

/// How many wait by the node, and by the first rule on a parameter.
fn waiting(sentinel: &Sentinel) -> (u32, u32) {
    let node = node(sentinel);
    (node.waiting(), node.keyed_rules()[0].waiting())
}

/// Nothing is left over of any call, and every value has its whole limit.
#[track_caller]
fn assert_idle(sentinel: &Sentinel) -> tower_sentinel::stat::Totals {
    for params in node(sentinel).keyed_rules() {
        assert_eq!((params.values(), params.waiting()), (0, 0));
    }
    assert_at_rest(sentinel, "r")
}

#[test]
fn places_of_each_value_go_to_calls_in_the_order_in_which_they_came() {
    let (sentinel, clock) = engine(queue(2));
    let mut running: Vec<_> = (0..2).map(|_| enter(&sentinel, by("a")).unwrap()).collect();
    let mut line: Vec<_> = (0..4).map(|_| wait(&sentinel, by("a"))).collect();
    assert_eq!(line[0].delay(), ms(1_000));
    assert_eq!(waiting(&sentinel), (4, 4));
    // Other values have places of their own, and stand in lines of their own.
    let others = [0, 1].map(|_| enter(&sentinel, by("b")).unwrap());
    let other = wait(&sentinel, by("b"));
    for step in 0..4 {
        line = line.into_iter().map(not_yet).collect();
        clock.advance(ms(100));
        drop(running.remove(0));
        // A new call stands behind those that wait, also before the first of them looks.
        let newcomer = wait(&sentinel, by("a"));
        let others: Vec<_> = line.drain(1..).map(not_yet).collect();
        let next = line.pop().unwrap().admit().unwrap();
        running.push(next);
        line = others;
        drop(newcomer);
        assert_eq!(node(&sentinel).concurrency(), 4, "{step}");
    }
    let other = not_yet(other);
    drop(others);
    drop(other.admit().unwrap());
    drop(running);
    let totals = assert_idle(&sentinel);
    assert_eq!((totals.pass(), totals.block(), totals.waits()), (9, 0, 5));
    let waited = ms(100 + 200 + 300 + 400 + 400);
    assert_eq!((totals.waited(), totals.waiting_dropped()), (waited, 4));
    // Response times begin after the wait.
    let of_a = ms(100 + 200 + 200 + 200 + 100);
    assert_eq!(totals.rt(), of_a + ms(400 + 400));
}

#[test]
fn a_call_waits_for_as_long_as_its_rule_and_its_own_patience_allow() {
    let (sentinel, clock) = engine(queue(1).id("one"));
    let running = enter(&sentinel, by("a")).unwrap();
    let patient = wait(&sentinel, by("a"));
    let hasty = wait(&sentinel, by("a").patience(ms(300)));
    assert!(enter(&sentinel, by("a").patience(ms(0))).is_err());
    assert_eq!((patient.delay(), hasty.delay()), (ms(1_000), ms(300)));
    clock.advance(ms(299));
    let hasty = not_yet(hasty);
    clock.advance(ms(1));
    let blocked = refused(hasty);
    assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Keyed, "one"));
    assert_eq!((blocked.limit(), blocked.interval()), (Some(1), None));
    // The next call may wait again.
    assert_eq!(blocked.retry_after(), Some(Duration::ZERO));
    clock.advance(ms(699));
    let patient = not_yet(patient);
    clock.advance(ms(1));
    assert_eq!(refused(patient).kind(), BlockKind::Keyed);
    // One that has its place may take its time.
    let last = wait(&sentinel, by("a"));
    drop(running);
    clock.advance(ms(5_000));
    drop(last.admit().unwrap());
    assert_eq!(assert_idle(&sentinel).block_by(BlockKind::Keyed), 3);
}

#[test]
fn who_has_waited_is_told_when_the_other_rules_have_room() {
    let rules = Rules::new()
        .with(queue(1))
        .with(FlowRule::per("r", 1, Duration::from_secs(60)).buckets(1));
    let (sentinel, clock) = engine(rules);
    let _running = enter(&sentinel, by("a")).unwrap();
    let waiting = wait(&sentinel, by("a"));
    clock.advance(ms(1_000));
    let blocked = refused(waiting);
    assert_eq!(blocked.kind(), BlockKind::Keyed);
    let at_once = enter(&sentinel, by("a").patience(ms(0))).unwrap_err();
    assert_eq!(blocked.retry_after(), at_once.retry_after());
    assert!(blocked.retry_after() > Some(ms(1_000)), "{blocked:?}");
}

#[test]
fn a_call_is_refused_at_once_where_as_many_of_its_value_wait_as_may() {
    for (rule, waiting) in [
        (queue(1).max_waiting(3), 3),
        (queue(1).max_waiting(0), 0),
        (queue(1).queue(Duration::ZERO), 0),
        (queue(0), 0),
        (queue(1).except("a", 0), 0),
        (KeyedRule::concurrency("r", 1).max_waiting(3), 0),
        (queue(1), 1_000),
    ] {
        let (sentinel, _) = engine(rule.clone());
        let _running = enter(&sentinel, by("a"));
        let mut line: Vec<_> = (0..waiting).map(|_| wait(&sentinel, by("a"))).collect();
        for _ in 0..2 {
            let blocked = enter(&sentinel, by("a")).unwrap_err();
            assert_eq!(blocked.kind(), BlockKind::Keyed, "{rule:?}");
        }
        // Whoever leaves makes room.
        if line.pop().is_some() {
            line.push(wait(&sentinel, by("a")));
            assert!(enter(&sentinel, by("a")).is_err());
        }
        // Other values have lines of their own.
        drop(line);
        let other = enter(&sentinel, by("b"));
        if other.is_ok() && waiting > 0 {
            drop(wait(&sentinel, by("b")));
        }
    }
}

#[test]
fn of_all_values_no_more_calls_wait_than_ten_thousand_or_as_many_as_of_one() {
    for (most, in_all) in [(4_000, 10_000), (12_000, 12_000)] {
        let (sentinel, _) = engine(queue(1).max_waiting(most));
        let values = ["a", "b", "c", "d"];
        let _running = values.map(|value| enter(&sentinel, by(value)).unwrap());
        let mut line = Vec::new();
        for value in values {
            for _ in 0..most {
                if let Verdict::Wait(waiting) = sentinel.try_enter(by(value)) {
                    line.push(waiting);
                }
            }
        }
        assert_eq!(line.len(), in_all);
        assert_eq!(waiting(&sentinel).1 as usize, in_all);
        line.pop();
        line.push(wait(&sentinel, by(if in_all > 10_000 { "a" } else { "d" })));
        assert!(enter(&sentinel, by("d")).is_err());
    }
}

#[test]
fn a_call_that_leaves_the_line_at_any_place_and_time_takes_no_place_with_it() {
    const CALLS: usize = 5;
    for leaving in 0..1 << CALLS {
        for has_places in 0..=2 {
            let (sentinel, _) = engine(queue(2));
            let mut running: Vec<_> = (0..2).map(|_| enter(&sentinel, by("a")).unwrap()).collect();
            let line: Vec<_> = (0..CALLS).map(|_| wait(&sentinel, by("a"))).collect();
            // The first ones may have got their places already.
            running.truncate(2 - has_places);
            let mut left = Vec::new();
            for (place, waiting) in line.into_iter().enumerate() {
                if leaving & 1 << place == 0 {
                    left.push(waiting);
                }
            }
            drop(running);
            for waiting in left {
                // As each ends at once, there is a place for all.
                drop(waiting.admit().unwrap());
            }
            let totals = assert_idle(&sentinel);
            let dropped = u64::from((leaving as u32).count_ones());
            assert_eq!(totals.waiting_dropped(), dropped);
            assert_eq!(totals.pass(), 2 + CALLS as u64 - dropped);
        }
    }
}

#[test]
fn the_first_call_of_a_value_in_line_decides_by_its_tier() {
    let (sentinel, _) = engine(queue(1).tier("pro", 3).except("vip", 2));
    let mut running = vec![enter(&sentinel, by("a")).unwrap()];
    let plain = wait(&sentinel, by("a"));
    // It could run, but for the call before it.
    let pro = wait(&sentinel, by("a").tier("pro"));
    let [next, last] = [0, 1].map(|_| wait(&sentinel, by("a").tier("pro")));
    let [plain, pro] = [plain, pro].map(not_yet);
    drop(plain);
    running.push(pro.admit().unwrap());
    running.push(next.admit().unwrap());
    let last = not_yet(last);
    drop(running);
    drop(last.admit().unwrap());
    // The limit of a value is that of all its tiers.
    let _both = [0, 1].map(|_| enter(&sentinel, by("vip").tier("pro")).unwrap());
    let _line = wait(&sentinel, by("vip").tier("pro"));
}

#[test]
fn calls_without_a_value_wait_in_a_line_of_their_own() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, Call::new("r")).unwrap();
    let waiting = wait(&sentinel, Call::new("r"));
    let _other = enter(&sentinel, by("-")).unwrap();
    drop(running);
    drop(waiting.admit().unwrap());
    assert_eq!(node(&sentinel).keyed_rules()[0].missing(), 2);
    // Without a line they are refused, or need no place.
    for (missing, passes) in [(MissingKey::Skip, true), (MissingKey::Refuse, false)] {
        let (sentinel, _) = engine(queue(1).missing(missing));
        let _entries = [0, 1].map(|_| {
            let entered = enter(&sentinel, Call::new("r"));
            assert_eq!(entered.is_ok(), passes);
            entered
        });
    }
}

// === the table ===

/// So many values fill a table for one.
const FULL: usize = 8;

#[test]
fn values_without_a_place_in_the_table_wait_in_one_line() {
    let (sentinel, _) = engine(queue(1).max_keys(1));
    let values: Vec<_> = (0..FULL).map(|n| format!("v{n}")).collect();
    let mut full: Vec<_> = values
        .iter()
        .map(|value| enter(&sentinel, by(value)).unwrap())
        .collect();
    let overflows = || node(&sentinel).keyed_rules()[0].overflows();
    assert_eq!(overflows(), 0);
    let running = enter(&sentinel, by("x")).unwrap();
    let line = ["x", "y", "x", "z"].map(|value| wait(&sentinel, by(value)));
    let mut line = Vec::from(line);
    assert_eq!(overflows(), 5);
    // Values that have a place have lines of their own.
    let own = wait(&sentinel, by("v0"));
    line = line.into_iter().map(not_yet).collect();
    drop(running);
    // They go in one after the other, whatever their values.
    for _ in 0..3 {
        let first = line.remove(0).admit().unwrap();
        line = line.into_iter().map(not_yet).collect();
        drop(first);
    }
    drop(full.remove(0));
    drop(own.admit().unwrap());
    drop(line.remove(0).admit().unwrap());
    assert_eq!(overflows(), 5, "a call is judged once on the shared quota");
    drop(full);
    assert_idle(&sentinel);
}

#[test]
fn a_value_of_which_a_call_waits_is_not_evicted() {
    let (sentinel, _) = engine(queue(1).max_keys(1));
    let running = enter(&sentinel, by("a")).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, by("a")));
    // None may run for a while, and none does.
    sentinel.reload(queue(0).max_keys(1).into());
    drop(running);
    let [first, second] = [first, second].map(not_yet);
    sentinel.reload(queue(1).max_keys(1).except("a", 0).into());
    for n in 0..100 {
        drop(enter(&sentinel, by(&format!("v{n}"))).unwrap());
    }
    let [first, second] = [first, second].map(not_yet);
    assert_eq!(node(&sentinel).keyed_rules()[0].values(), 1);
    sentinel.reload(queue(1).max_keys(1).into());
    let running = first.admit().unwrap();
    let second = not_yet(second);
    drop(running);
    drop(second.admit().unwrap());
    assert_idle(&sentinel);
}

// === beside other rules ===

#[test]
fn a_call_with_its_place_is_judged_by_the_window_and_hands_the_place_on() {
    let rules = Rules::new()
        .with(queue(1).queue(ms(5_000)))
        .with(FlowRule::per_second("r", 3));
    let (sentinel, clock) = engine(rules);
    let running = enter(&sentinel, by("a")).unwrap();
    let heavy = wait(&sentinel, by("a").batch(3));
    let [light, last] = [0, 1].map(|_| wait(&sentinel, by("a")));
    drop(running);
    let light = not_yet(light);
    assert_eq!(refused(heavy).kind(), BlockKind::Flow);
    let light = light.admit().unwrap();
    let last = not_yet(last);
    clock.advance(ms(2_000));
    drop(light);
    drop(last.admit().unwrap());
    assert_idle(&sentinel);
}

#[test]
fn a_breaker_that_opens_meanwhile_refuses_the_calls_in_line_one_after_the_other() {
    let rules = Rules::new()
        .with(queue(1).queue(ms(60_000)))
        .with(CircuitBreakerRule::consecutive_errors("r", 1).open_for(ms(5_000)));
    let (sentinel, clock) = engine(rules);
    let mut running = enter(&sentinel, by("a")).unwrap();
    let line = [0, 1, 2].map(|_| wait(&sentinel, by("a")));
    running.fail();
    drop(running);
    let [first, second, third] = line;
    let second = not_yet(second);
    assert_eq!(refused(first).kind(), BlockKind::CircuitBreaker);
    clock.advance(ms(5_000));
    // It is the probe.
    let probe = second.admit().unwrap();
    let third = not_yet(third);
    drop(probe);
    drop(third.admit().unwrap());
    assert_idle(&sentinel);
}

#[test]
fn a_call_whose_turn_comes_later_keeps_its_place_meanwhile() {
    // Turns every 100 ms.
    let rules = Rules::new()
        .with(queue(1))
        .with(FlowRule::per_second("r", 10).throttle(ms(5_000)));
    let (sentinel, clock) = engine(rules);
    let running = enter(&sentinel, by("a")).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, by("a")));
    clock.advance(ms(50));
    drop(running);
    let first = not_yet(first);
    assert_eq!((first.delay(), waiting(&sentinel)), (ms(50), (2, 1)));
    let second = not_yet(second);
    // One that leaves while it waits for its turn hands the place on.
    drop(first);
    let second = not_yet(second);
    assert_eq!(second.delay(), ms(50));
    clock.advance(ms(50));
    drop(second.admit().unwrap());
    let totals = assert_idle(&sentinel);
    assert_eq!((totals.waits(), totals.waited()), (1, ms(100)));
}

#[test]
fn a_prioritized_call_borrows_once_it_has_had_a_place() {
    let rules = Rules::new()
        .with(queue(1))
        .with(FlowRule::per_second("r", 2));
    let (sentinel, clock) = engine(rules);
    drop(enter(&sentinel, by("a")).unwrap());
    let running = enter(&sentinel, by("a")).unwrap();
    clock.advance(ms(600));
    let waiting = wait(&sentinel, by("a").prioritized(true));
    assert_eq!(waiting.delay(), ms(1_000));
    drop(running);
    let waiting = not_yet(waiting);
    assert_eq!((waiting.delay(), node(&sentinel).held()), (ms(400), 1));
    clock.advance(ms(400));
    drop(waiting.admit().unwrap());
    assert_idle(&sentinel);
}

#[test]
fn a_call_waits_for_a_slot_and_for_a_place_and_holds_neither_meanwhile() {
    let rules = Rules::new()
        .with(IsolationRule::new("r", 2).queue(ms(2_000)))
        .with(queue(1));
    let (sentinel, clock) = engine(rules);
    let of_a = enter(&sentinel, by("a")).unwrap();
    // It waits for its place, and takes no slot meanwhile.
    let second_a = wait(&sentinel, by("a"));
    assert_eq!((second_a.delay(), waiting(&sentinel)), (ms(1_000), (1, 1)));
    let of_b = enter(&sentinel, by("b")).unwrap();
    assert_eq!(node(&sentinel).slots_in_use(), 2);
    let of_c = wait(&sentinel, by("c"));
    assert_eq!((of_c.delay(), waiting(&sentinel)), (ms(2_000), (2, 1)));
    clock.advance(ms(100));
    // The slot goes to c, and the place to the second call of a, which goes on to wait for a
    // slot and hands the place on meanwhile.
    let third_a = wait(&sentinel, by("a").patience(ms(5_000)));
    assert_eq!(third_a.delay(), ms(2_000), "it waits for a slot first");
    drop(of_a);
    let of_c = of_c.admit().unwrap();
    let second_a = not_yet(second_a);
    assert_eq!((second_a.delay(), waiting(&sentinel)), (ms(2_000), (2, 0)));
    assert_eq!(node(&sentinel).keyed_rules()[0].left("a"), 1);
    clock.advance(ms(100));
    // Of the two that stand in line for a slot, the third call has come there first.
    drop(of_b);
    let third_a = third_a.admit().unwrap();
    drop(of_c);
    // Now there is a slot, and no place: its old place in that line is the first one, for what is
    // left of its time there.
    let second_a = not_yet(second_a);
    assert_eq!((second_a.delay(), waiting(&sentinel)), (ms(900), (1, 1)));
    assert_eq!(node(&sentinel).slots_in_use(), 1);
    let fourth_a = wait(&sentinel, by("a"));
    drop(third_a);
    let fourth_a = not_yet(fourth_a);
    let second_a = second_a.admit().unwrap();
    let fourth_a = not_yet(fourth_a);
    drop(second_a);
    drop(fourth_a.admit().unwrap());
    assert_idle(&sentinel);
}

/// A call of `a` that goes through all waits that there are. It is dropped at stage `stop`, if it
/// gets there; else it runs.
fn goes_through_all_waits(sentinel: &Sentinel, clock: &ManualClock, stop: u32) -> Option<Entry> {
    let stage = |waiting: Waiting, number: u32| (number != stop).then_some(waiting);
    // Of no weight, they take slots and places, and no turns.
    let run = |value| enter(sentinel, by(value).batch(0)).unwrap();
    let [of_a, of_b] = ["a", "b"].map(run);
    // In line for a slot, and then for its place.
    let waiting = stage(wait(sentinel, by("a")), 0)?;
    drop(of_b);
    let waiting = stage(not_yet(waiting), 1)?;
    assert_eq!(node(sentinel).keyed_rules()[0].waiting(), 1);
    let of_c = run("c");
    let ahead = wait(sentinel, by("d"));
    // It has its place, and others have all slots.
    drop(of_a);
    let waiting = not_yet(waiting);
    let of_d = ahead.admit().unwrap();
    let waiting = stage(waiting, 2)?;
    // It has a slot and its place, and waits for its turn.
    drop(of_c);
    let waiting = stage(not_yet(waiting), 3)?;
    assert_eq!(waiting.delay(), ms(100));
    assert_eq!(node(sentinel).keyed_rules()[0].left("a"), 0);
    let of_c = run("c");
    clock.advance(ms(100));
    // Its turn has come, and all slots are taken.
    let waiting = stage(not_yet(waiting), 4)?;
    drop((of_c, of_d));
    Some(waiting.admit().unwrap())
}

#[test]
fn a_call_that_is_dropped_in_any_wait_leaves_nothing_behind() {
    for stop in 0..=5 {
        let rules = Rules::new()
            .with(IsolationRule::new("r", 2).queue(ms(60_000)))
            .with(queue(1).queue(ms(60_000)))
            .with(FlowRule::per_second("r", 10).throttle(ms(500)));
        let (sentinel, clock) = engine(rules);
        let entry = goes_through_all_waits(&sentinel, &clock, stop);
        assert_eq!(entry.is_some(), stop == 5);
        drop(entry);
        let totals = assert_idle(&sentinel);
        assert_eq!(totals.waiting_dropped(), u64::from(stop < 5), "{stop}");
        clock.advance(ms(1_000));
        let _both = ["a", "b"].map(|value| enter(&sentinel, by(value).batch(0)).unwrap());
    }
}

#[test]
fn a_call_waits_for_two_places_one_after_the_other() {
    let rules = Rules::new()
        .with(queue(1).param("user"))
        .with(queue(1).param("shop").id("shop"));
    let (sentinel, _) = engine(rules);
    let pair = |user, shop| [Param::new("user", user), Param::new("shop", shop)];
    let (ann_x, ann_y, bob_x) = (pair("ann", "x"), pair("ann", "y"), pair("bob", "x"));
    let of = |params| Call::new("r").params(params);
    let by_rule = || {
        let params = node(&sentinel).keyed_rules();
        (params[0].waiting(), params[1].waiting())
    };
    let running = enter(&sentinel, of(&ann_x)).unwrap();
    let for_ann = wait(&sentinel, of(&ann_y));
    let for_x = wait(&sentinel, of(&bob_x));
    assert_eq!(by_rule(), (1, 1));
    // Who waits for a shop holds no user.
    let bob_y = pair("bob", "y");
    let other = enter(&sentinel, of(&bob_y)).unwrap();
    let for_x = not_yet(for_x);
    drop(running);
    // Both have what they have waited for, and not the other place.
    let for_ann = not_yet(for_ann);
    let for_x = not_yet(for_x);
    assert_eq!(by_rule(), (1, 1));
    let left = node(&sentinel).keyed_rules()[1].left("x");
    assert_eq!(left, 1, "it has handed it on");
    drop(other);
    let all = [for_ann, for_x].map(|waiting| waiting.admit().unwrap());
    drop(all);
    assert_idle(&sentinel);
}

// === reloads ===

#[test]
fn a_reload_moves_the_limit_of_the_calls_in_line() {
    let (sentinel, _) = engine(queue(1));
    let mut running = vec![enter(&sentinel, by("a")).unwrap()];
    let mut line: Vec<_> = (0..7).map(|_| wait(&sentinel, by("a"))).collect();
    line.reverse();
    let let_in = |line: &mut Vec<Waiting>, running: &mut Vec<Entry>, count: usize| {
        for _ in 0..count {
            running.push(line.pop().unwrap().admit().unwrap());
        }
        let rest = std::mem::take(line);
        *line = rest.into_iter().map(not_yet).collect();
    };
    // Up: two more at once, though nobody calls.
    sentinel.reload(queue(3).into());
    let_in(&mut line, &mut running, 2);
    // For this value alone.
    sentinel.reload(queue(3).except("a", 4).into());
    let_in(&mut line, &mut running, 1);
    // Down: none until only one is left.
    sentinel.reload(queue(1).into());
    running.truncate(1);
    let_in(&mut line, &mut running, 0);
    running.clear();
    let_in(&mut line, &mut running, 1);
    // Without a queue those in line keep their places, and others are refused.
    sentinel.reload(KeyedRule::concurrency("r", 2).into());
    let_in(&mut line, &mut running, 1);
    assert!(enter(&sentinel, by("a")).is_err());
    sentinel.reload(KeyedRule::concurrency("r", 3).into());
    let_in(&mut line, &mut running, 1);
    // Without a rule all start.
    sentinel.reload(Rules::new());
    let_in(&mut line, &mut running, 1);
    assert!(line.is_empty());
    running.push(enter(&sentinel, by("a")).unwrap());
    running.clear();
    assert_at_rest(&sentinel, "r");
}

#[test]
fn by_a_rule_with_another_table_calls_in_line_are_judged_anew() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, by("a")).unwrap();
    let line = [0, 1, 2].map(|_| wait(&sentinel, by("a")));
    sentinel.reload(queue(1).max_keys(100).into());
    let [first, second, third] = line;
    let first = first.admit().unwrap();
    let second = not_yet(second);
    let third = not_yet(third);
    assert_eq!(waiting(&sentinel), (2, 2));
    drop(running);
    let second = not_yet(second);
    drop(first);
    drop(second.admit().unwrap());
    drop(third.admit().unwrap());
    assert_idle(&sentinel);
}

#[test]
fn a_call_in_line_is_judged_by_the_rules_that_are_in_force_when_it_has_a_place() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, by("a")).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, by("a")));
    let flow = FlowRule::per_second("r", 1).buckets(10);
    sentinel.reload(Rules::new().with(queue(1)).with(flow));
    drop(running);
    assert_eq!(refused(first).kind(), BlockKind::Flow);
    sentinel.reload(queue(1).into());
    drop(second.admit().unwrap());
    assert_idle(&sentinel);
}

// === in shadow mode ===

#[test]
fn in_shadow_mode_a_call_that_would_wait_starts_and_too_many_are_told() {
    let rule = Rule::from(queue(2).max_waiting(3)).shadow();
    let (sentinel, _) = engine(rule);
    let all: Vec<_> = (0..8).map(|_| enter(&sentinel, by("a")).unwrap()).collect();
    let other = enter(&sentinel, by("b")).unwrap();
    let shadow = &sentinel.shadows()[0];
    let node = shadow.node("r").unwrap();
    // Two places, and three that would have waited.
    assert_eq!((node.totals().pass(), node.totals().block()), (6, 3));
    drop((all, other));
    assert_eq!((node.waiting(), node.concurrency()), (0, 0));
    let params = &node.keyed_rules()[0];
    assert_eq!((params.values(), params.waiting()), (0, 0));
}

#[test]
fn a_rule_in_shadow_mode_sees_a_call_in_line_once() {
    let shadow = Rule::from(FlowRule::per_second("r", 100)).shadow();
    let rules = Rules::build([Rule::from(queue(1)), shadow]).unwrap();
    let (sentinel, _) = engine(rules);
    let running = enter(&sentinel, by("a")).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, by("a")));
    drop(second);
    drop(running);
    drop(first.admit().unwrap());
    let node = sentinel.shadows()[0].node("r").unwrap();
    assert_eq!((node.totals().pass(), node.concurrency()), (2, 0));
}

// === every order ===

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter,
    /// A call of another value comes and ends.
    Other,
    /// The running call at this place ends.
    End(usize),
    /// The waiting call at this place looks for its own, or leaves.
    Admit(usize),
    Leave(usize),
    Reload(u32),
}

/// Does `steps` and checks after each that no more run than may, that no place is free while a
/// call waits, and that calls start in their order. Ends before a step that cannot be done, and
/// returns how many were. Of a `crowded` table the value shares what all have that find no place
/// there.
fn holds(max: u32, steps: &[Step], crowded: bool) -> usize {
    let rule = |max| queue(max).max_waiting(3).max_keys(1);
    let (sentinel, _) = engine(rule(max));
    let mut others = Vec::new();
    for n in 0..if crowded { FULL } else { 0 } {
        others.push(enter(&sentinel, by(&format!("v{n}"))).unwrap());
    }
    let (mut limit, mut running, mut line) = (max as usize, Vec::new(), Vec::<Waiting>::new());
    // How many at the head of the line have places.
    let mut has_place = 0_usize;
    for (done, step) in steps.iter().enumerate() {
        match *step {
            Step::Enter => match sentinel.try_enter(by("a")) {
                Verdict::Pass(entry) => {
                    assert!(
                        has_place + running.len() < limit && has_place == line.len(),
                        "{steps:?}"
                    );
                    running.push(entry);
                }
                Verdict::Wait(waiting) => {
                    assert!(has_place + running.len() >= limit || has_place < line.len());
                    line.push(waiting);
                }
                Verdict::Block(_) => assert_eq!(line.len() - has_place, 3, "{steps:?}"),
                other => panic!("{other:?}"),
            },
            Step::Other if crowded => return done,
            Step::Other => drop(enter(&sentinel, by("b")).unwrap()),
            Step::End(place) if place < running.len() => drop(running.remove(place)),
            Step::Admit(place) if place < line.len() => match line.remove(place).admit() {
                Ok(entry) => {
                    assert!(place < has_place, "{steps:?}");
                    has_place -= 1;
                    running.push(entry);
                }
                Err(NotAdmitted::TooEarly(waiting)) => {
                    assert!(place >= has_place, "{steps:?}");
                    line.insert(place, waiting);
                }
                Err(other) => panic!("{other:?}"),
            },
            Step::Leave(place) if place < line.len() => {
                drop(line.remove(place));
                if place < has_place {
                    has_place -= 1;
                }
            }
            Step::Reload(next) => {
                limit = next as usize;
                sentinel.reload(rule(next).into());
            }
            _ => return done,
        }
        while has_place < line.len() && has_place + running.len() < limit {
            has_place += 1;
        }
        let Some(node) = sentinel.node("r") else {
            continue;
        };
        let params = &node.keyed_rules()[0];
        let left = if has_place < line.len() {
            0
        } else {
            limit.saturating_sub(running.len() + has_place)
        };
        assert_eq!(params.left("a") as usize, left, "{steps:?}");
        assert_eq!(params.waiting() as usize, line.len() - has_place);
        assert_eq!(node.waiting() as usize, line.len(), "{steps:?}");
        let is_known = !running.is_empty() || !line.is_empty();
        let known = usize::from(is_known && !crowded);
        assert_eq!(params.values(), others.len() + known, "{steps:?}");
    }
    steps.len()
}

#[test]
fn in_every_order_of_five_steps_no_place_is_lost_and_nobody_overtakes() {
    let choices = [
        Step::Enter,
        Step::Other,
        Step::End(0),
        Step::Admit(0),
        Step::Admit(1),
        Step::Leave(0),
        Step::Leave(1),
        Step::Reload(1),
        Step::Reload(2),
    ];
    for (crowded, length, least) in [(false, 5, 5_000), (true, 4, 500)] {
        let mut done = 0;
        for max in [1, 2] {
            let mut number = 0;
            while number < choices.len().pow(length) {
                let mut steps = vec![Step::Enter, Step::Enter];
                let places = (0..length).rev();
                let digits = places.map(|place| number / choices.len().pow(place) % choices.len());
                steps.extend(digits.map(|digit| choices[digit]));
                number += 1;
                if !is_sensible(&steps) {
                    continue;
                }
                let possible = holds(max, &steps, crowded);
                match steps[possible..] {
                    [] => done += 1,
                    // All orders that begin alike end there.
                    [_, ref rest @ ..] => {
                        number = number.next_multiple_of(choices.len().pow(rest.len() as u32));
                    }
                }
            }
        }
        assert!(done > least, "{done}");
    }
}

/// Leaves out what says nothing new.
fn is_sensible(steps: &[Step]) -> bool {
    let reloads = steps.iter().filter(|step| matches!(step, Step::Reload(_)));
    reloads.count() <= 1
}

// === tasks and threads ===

/// Notes that a task was woken.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_woken_when_it_has_a_place_by_the_waker_that_it_polled_with_last() {
    let sentinel = Sentinel::new(queue(1));
    let running = enter(&sentinel, by("a")).unwrap();
    let mut waiting = Box::pin(sentinel.enter(by("a")));
    let woken: Vec<_> = (0..2).map(|_| Arc::new(Woken::default())).collect();
    let mut poll = |waker: &Arc<Woken>| {
        let waker = Waker::from(waker.clone());
        waiting.as_mut().poll(&mut Context::from_waker(&waker))
    };
    assert!(poll(&woken[0]).is_pending() && poll(&woken[1]).is_pending());
    drop(running);
    let are_woken = [0, 1].map(|index: usize| woken[index].0.load(Ordering::SeqCst));
    assert_eq!(are_woken, [false, true]);
    assert!(matches!(poll(&woken[1]), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_is_refused_when_its_time_is_over() {
    let (sentinel, _clock) = engine(queue(1));
    let _running = enter(&sentinel, by("a")).unwrap();
    let start = tokio::time::Instant::now();
    let blocked = sentinel.enter(by("a")).await.unwrap_err();
    assert_eq!(blocked.kind(), BlockKind::Keyed);
    // The engine's clock stands, and is not waited for.
    assert_eq!(start.elapsed(), ms(1_000));
    assert_eq!(waiting(&sentinel), (0, 0));
}

#[test]
fn without_a_timer_a_call_cannot_wait() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, by("a")).unwrap();
    let mut waiting = Box::pin(sentinel.enter(by("a")));
    let Poll::Ready(Err(blocked)) = poll_now(waiting.as_mut()) else {
        panic!("there is no runtime");
    };
    assert_eq!(blocked.kind(), BlockKind::NoTimer);
    drop(running);
    assert_idle(&sentinel);
}

/// A waker that holds a call of the same line.
struct Holder {
    _held: Waiting,
}

impl Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn a_waker_may_hold_the_last_reference_to_another_call_in_line() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, by("a")).unwrap();
    let mut first = Box::pin(sentinel.enter(by("a")));
    let second = wait(&sentinel, by("a"));
    let holder = Waker::from(Arc::new(Holder { _held: second }));
    let mut cx = Context::from_waker(&holder);
    assert!(first.as_mut().poll(&mut cx).is_pending());
    drop(holder);
    // Now the line holds the last one, and lets go of it.
    assert!(poll_now(first.as_mut()).is_pending());
    assert_eq!(waiting(&sentinel), (1, 1));
    let third = wait(&sentinel, by("a"));
    let holder = Waker::from(Arc::new(Holder { _held: third }));
    let mut cx = Context::from_waker(&holder);
    assert!(first.as_mut().poll(&mut cx).is_pending());
    drop(holder);
    // So does a call that leaves.
    drop(first);
    drop(running);
    assert_idle(&sentinel);
}

#[test]
fn a_thread_that_waits_goes_on_when_it_has_a_place() {
    let sentinel = Sentinel::new(queue(1).queue(Duration::from_secs(60)));
    let running = enter(&sentinel, by("a")).unwrap();
    let other = sentinel.clone();
    let thread = std::thread::spawn(move || other.enter_blocking(by("a")).is_ok());
    while waiting(&sentinel).1 == 0 {
        std::thread::yield_now();
    }
    drop(running);
    assert!(thread.join().unwrap());
    assert_idle(&sentinel);
}

#[tokio::test]
async fn run_waits_and_two_hundred_of_each_value_pass_two_at_a_time() {
    const VALUES: [&str; 3] = ["a", "b", "c"];
    let sentinel = Sentinel::new(queue(2).queue(Duration::from_secs(60)));
    let running: HashMap<_, _> = VALUES.map(|value| (value, AtomicU32::new(0))).into();
    let running = Arc::new(running);
    let most = Arc::new(AtomicU32::new(0));
    let calls = (0..600).map(|index| {
        let value = VALUES[index % 3];
        let (sentinel, running, most) = (sentinel.clone(), running.clone(), most.clone());
        tokio::spawn(async move {
            let work = async {
                let now = running[value].fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running[value].fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(())
            };
            sentinel.run(by(value), work).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(assert_idle(&sentinel).pass(), 600);
}

/// Tasks that wait for places of four values, some of which leave, beside reloads from a limit of
/// two to `lower` and back. No more than `most` of one value run at once.
fn storm(max_keys: u32, lower: u32, most: u32) {
    const VALUES: [&str; 4] = ["a", "b", "c", "d"];
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let rule = move |max| queue(max).queue(Duration::from_secs(60)).max_keys(max_keys);
    let (sentinel, _) = engine(rule(2));
    let running: Arc<[AtomicU32; 4]> = Arc::new(VALUES.map(|_| AtomicU32::new(0)));
    let passed = Arc::new(AtomicU32::new(0));
    runtime.block_on(async {
        let tasks = (0..24_u32).map(|task| {
            let (sentinel, running) = (sentinel.clone(), running.clone());
            let passed = passed.clone();
            tokio::spawn(async move {
                for turn in 0..200_u32 {
                    let index = ((turn + task) % 4) as usize;
                    let call = by(VALUES[index]);
                    if (turn + task) % 5 == 0 {
                        let other = format!("v{}", (turn * 31 + task) % 40);
                        drop(sentinel.try_enter(by(&other)));
                    }
                    if (turn + task) % 7 == 0 {
                        // It leaves, with or without a place.
                        let mut leaving = Box::pin(sentinel.enter(call));
                        let _ = poll_now(leaving.as_mut()).is_ready();
                        tokio::task::yield_now().await;
                        continue;
                    }
                    if task == 0 && turn % 10 == 0 {
                        let max = if turn % 20 == 0 { lower } else { 2 };
                        sentinel.reload(rule(max).into());
                    }
                    let entry = sentinel.enter(call).await.unwrap();
                    assert!(running[index].fetch_add(1, Ordering::SeqCst) < most);
                    if turn % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    running[index].fetch_sub(1, Ordering::SeqCst);
                    passed.fetch_add(1, Ordering::SeqCst);
                    drop(entry);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    assert!(u64::from(passed.load(Ordering::SeqCst)) <= assert_idle(&sentinel).pass());
    sentinel.reload(rule(2).into());
    for value in VALUES {
        let again = [0, 1].map(|_| enter(&sentinel, by(value)).unwrap());
        assert!(matches!(sentinel.try_enter(by(value)), Verdict::Wait(_)));
        drop(again);
    }
    assert_idle(&sentinel);
}

#[test]
fn threads_that_wait_come_leave_and_reload_lose_no_place() {
    storm(65_536, 1, 2);
}

#[test]
fn threads_whose_values_lose_their_places_in_the_table_lose_no_place() {
    // Each value may have two calls that share one quota, and two more when it has a place.
    storm(1, 1, 4);
}
