//! Calls that wait in line for a concurrency slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tower_sentinel::call::Param;
use tower_sentinel::read::{NodeSnapshot, Scope};
use tower_sentinel::stat::Event;
use tower_sentinel::{
    AdaptiveRule, BlockKind, BoxError, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule,
    KeyedRule, NotAdmitted, Rule, Rules, Sentinel, Verdict, Waiting,
};

use crate::support::line::{not_yet, refused, wait};
use crate::support::{assert_at_rest, engine, enter, ms, poll_now};

fn call() -> Call<'static> {
    Call::new("r")
}

/// At most `max` at once; others wait for up to a second.
fn queue(max: u32) -> IsolationRule {
    IsolationRule::new("r", max).queue(ms(1_000))
}

fn node(sentinel: &Sentinel) -> tower_sentinel::read::NodeView {
    sentinel.node("r").unwrap()
}

#[test]
fn slots_go_to_calls_in_the_order_in_which_they_came() {
    let (sentinel, clock) = engine(queue(2));
    let mut running: Vec<_> = (0..2).map(|_| enter(&sentinel, call()).unwrap()).collect();
    let mut line: Vec<_> = (0..4).map(|_| wait(&sentinel, call())).collect();
    assert_eq!(line[0].delay(), ms(1_000));
    assert_eq!(
        (node(&sentinel).waiting(), node(&sentinel).slots_in_use()),
        (4, 2)
    );
    for step in 0..4 {
        line = line.into_iter().map(not_yet).collect();
        clock.advance(ms(100));
        drop(running.remove(0));
        // A new call stands behind those that wait, also before the first of them looks.
        let newcomer = wait(&sentinel, call());
        let others: Vec<_> = line.drain(1..).map(not_yet).collect();
        let next = line.pop().unwrap().admit().unwrap();
        running.push(next);
        line = others;
        drop(newcomer);
        assert_eq!(node(&sentinel).slots_in_use(), 2, "{step}");
    }
    drop(running);
    let totals = assert_at_rest(&sentinel, "r");
    assert_eq!((totals.pass(), totals.block(), totals.waits()), (6, 0, 4));
    assert_eq!(
        (totals.waited(), totals.waiting_dropped()),
        (ms(100 + 200 + 300 + 400), 4)
    );
    // Response times begin after the wait.
    assert_eq!(totals.rt(), ms(100 + 200 + 200 + 200 + 100));
}

#[test]
fn a_call_waits_for_as_long_as_its_rule_and_its_own_patience_allow() {
    let (sentinel, clock) = engine(queue(1).id("one"));
    let running = enter(&sentinel, call()).unwrap();
    let patient = wait(&sentinel, call());
    let hasty = wait(&sentinel, call().patience(ms(300)));
    assert!(enter(&sentinel, call().patience(ms(0))).is_err());
    assert_eq!((patient.delay(), hasty.delay()), (ms(1_000), ms(300)));
    clock.advance(ms(299));
    let hasty = not_yet(hasty);
    clock.advance(ms(1));
    let blocked = refused(hasty);
    assert_eq!(
        (blocked.kind(), blocked.rule(), blocked.limit()),
        (BlockKind::Isolation, "one", Some(1))
    );
    assert_eq!(blocked.retry_after(), None);
    clock.advance(ms(699));
    let patient = not_yet(patient);
    clock.advance(ms(1));
    assert_eq!(refused(patient).kind(), BlockKind::Isolation);
    // One that has its slot may take its time.
    let last = wait(&sentinel, call());
    drop(running);
    clock.advance(ms(5_000));
    drop(last.admit().unwrap());
    assert_eq!(
        assert_at_rest(&sentinel, "r").block_by(BlockKind::Isolation),
        3
    );
}

#[test]
fn a_call_is_refused_at_once_where_as_many_wait_as_may() {
    for (rule, waiting) in [
        (queue(1).max_waiting(3), 3),
        (queue(1).max_waiting(0), 0),
        (queue(1).queue(Duration::ZERO), 0),
        (queue(0), 0),
    ] {
        let (sentinel, _) = engine(rule.clone());
        let _running = enter(&sentinel, call());
        let mut line: Vec<_> = (0..waiting).map(|_| wait(&sentinel, call())).collect();
        for _ in 0..2 {
            let blocked = enter(&sentinel, call()).unwrap_err();
            assert_eq!(blocked.kind(), BlockKind::Isolation, "{rule:?}");
        }
        // Whoever leaves makes room.
        if line.pop().is_some() {
            line.push(wait(&sentinel, call()));
            assert!(enter(&sentinel, call()).is_err());
        }
    }
}

#[test]
fn a_call_that_leaves_the_line_at_any_place_and_time_takes_no_slot_with_it() {
    const CALLS: usize = 5;
    for leaving in 0..1 << CALLS {
        for has_slots in 0..=2 {
            let (sentinel, _) = engine(queue(2));
            let mut running: Vec<_> = (0..2).map(|_| enter(&sentinel, call()).unwrap()).collect();
            let line: Vec<_> = (0..CALLS).map(|_| wait(&sentinel, call())).collect();
            // The first ones may have got their slots already.
            running.truncate(2 - has_slots);
            let mut left = Vec::new();
            for (place, waiting) in line.into_iter().enumerate() {
                if leaving & 1 << place == 0 {
                    left.push(waiting);
                }
            }
            drop(running);
            for waiting in left {
                // As each ends at once, there is a slot for all.
                drop(waiting.admit().unwrap());
            }
            let totals = assert_at_rest(&sentinel, "r");
            let dropped = u64::from((leaving as u32).count_ones());
            assert_eq!(totals.waiting_dropped(), dropped);
            assert_eq!(totals.pass(), 2 + CALLS as u64 - dropped);
        }
    }
}

// === beside other rules ===

#[test]
fn a_call_with_its_slot_is_judged_by_the_window_and_hands_the_slot_on() {
    let rules = Rules::new()
        .with(queue(1).queue(ms(5_000)))
        .with(FlowRule::per_second("r", 3));
    let (sentinel, clock) = engine(rules);
    let running = enter(&sentinel, call()).unwrap();
    let heavy = wait(&sentinel, call().batch(3));
    let [light, last] = [0, 1].map(|_| wait(&sentinel, call()));
    // Those that wait hold no tokens.
    assert_eq!(node(&sentinel).sum(Event::Pass), 1);
    drop(running);
    let light = not_yet(light);
    assert_eq!(refused(heavy).kind(), BlockKind::Flow);
    let light = light.admit().unwrap();
    let last = not_yet(last);
    clock.advance(ms(2_000));
    drop(light);
    drop(last.admit().unwrap());
    assert_at_rest(&sentinel, "r");
}

#[test]
fn a_breaker_that_opens_meanwhile_refuses_the_calls_in_line_one_after_the_other() {
    let rules = Rules::new()
        .with(queue(1).queue(ms(60_000)))
        .with(CircuitBreakerRule::consecutive_errors("r", 1).open_for(ms(5_000)));
    let (sentinel, clock) = engine(rules);
    let mut running = enter(&sentinel, call()).unwrap();
    let line = [0, 1, 2].map(|_| wait(&sentinel, call()));
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
    assert_at_rest(&sentinel, "r");
}

#[test]
fn a_call_whose_turn_comes_later_holds_no_slot_and_comes_back_before_the_others() {
    // Turns every 100 ms.
    let rules = Rules::new()
        .with(queue(1))
        .with(FlowRule::per_second("r", 10).throttle(ms(5_000)));
    let (sentinel, clock) = engine(rules);
    let running = enter(&sentinel, call()).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, call()));
    clock.advance(ms(50));
    drop(running);
    // It has a slot, and gives it up until its turn.
    let first = not_yet(first);
    assert_eq!((first.delay(), node(&sentinel).waiting()), (ms(50), 2));
    // So the next one has it, and finds that its turn is later still.
    let second = not_yet(second);
    assert_eq!(second.delay(), ms(150));
    assert_eq!(node(&sentinel).slots_in_use(), 0);
    clock.advance(ms(50));
    let running = first.admit().unwrap();
    clock.advance(ms(100));
    // Its turn has come, and there is no slot: it waits again, for what is left of a second.
    let third = wait(&sentinel, call());
    let second = not_yet(second);
    assert_eq!(second.delay(), ms(950));
    drop(running);
    let third = not_yet(third);
    let running = second.admit().unwrap();
    let third = not_yet(third);
    drop(running);
    clock.advance(ms(100));
    drop(third.admit().unwrap());
    let totals = assert_at_rest(&sentinel, "r");
    // 100, 200 and 100 ms.
    assert_eq!((totals.waits(), totals.waited()), (3, ms(400)));
}

#[test]
fn a_prioritized_call_borrows_once_it_has_had_a_slot() {
    let rules = Rules::new()
        .with(queue(1))
        .with(FlowRule::per_second("r", 2));
    let (sentinel, clock) = engine(rules);
    drop(enter(&sentinel, call()).unwrap());
    let running = enter(&sentinel, call()).unwrap();
    clock.advance(ms(600));
    let waiting = wait(&sentinel, call().prioritized(true));
    assert_eq!(waiting.delay(), ms(1_000));
    drop(running);
    let waiting = not_yet(waiting);
    assert_eq!((waiting.delay(), node(&sentinel).held()), (ms(400), 1));
    clock.advance(ms(400));
    let running = waiting.admit().unwrap();
    let totals = node(&sentinel).totals();
    assert_eq!((totals.occupied(), totals.waited()), (1, ms(400)));
    drop(running);
    assert_at_rest(&sentinel, "r");
}

#[test]
fn a_call_in_line_is_judged_by_all_that_it_was() {
    let long = "x".repeat(300);
    let other = "y".repeat(300);
    let rules = Rules::new()
        .with(queue(1).queue(ms(60_000)))
        .with(KeyedRule::per_second("r", 1).param("user").tier("pro", 2))
        .with(FlowRule::per_second("r", 1).for_origin("ann"))
        .with(FlowRule::per_second("r", 1).in_context("web"));
    let user = |name| [Param::new("page", 7_u64), Param::new("user", name)];
    let (ann, x, y) = (user("ann"), user(&*long), user(&*other));
    let (sentinel, _) = engine(rules);
    // Of each pair the second one is refused, in line as well as beside it.
    let cases = [
        (call().params(&x), true),
        (call().params(&x), false),
        (call().params(&y), true),
        (call().params(&ann).tier("pro"), true),
        (call().params(&ann).tier("pro"), true),
        (call().params(&ann).tier("pro"), false),
        (call().origin("ann"), true),
        (call().origin("ann"), false),
        (call().origin("bob").context("web"), false),
    ];
    let running = enter(&sentinel, call().context("web").params(&user("first"))).unwrap();
    let line = cases.map(|(call, passes)| (wait(&sentinel, call), passes));
    drop(running);
    for (waiting, passes) in line {
        match waiting.admit() {
            Ok(_) => assert!(passes),
            Err(NotAdmitted::Blocked(_)) => assert!(!passes),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_at_rest(&sentinel, "r");
}

fn of_ann(sentinel: &Sentinel) -> NodeSnapshot {
    let snapshot = sentinel.snapshot();
    let scope = Scope::Origin("ann".to_owned());
    let mut nodes = snapshot.nodes().iter();
    nodes.find(|node| *node.scope() == scope).unwrap().clone()
}

#[test]
fn origins_and_all_inbound_calls_know_of_those_in_line() {
    let rules = Rules::new()
        .with(queue(1))
        .with(FlowRule::per_second("r", 100).for_origin("ann"))
        .with(tower_sentinel::SystemRule::new().qps(1e6));
    let (sentinel, clock) = engine(rules);
    let ann = call().origin("ann");
    let running = enter(&sentinel, ann).unwrap();
    let waiting = wait(&sentinel, ann);
    let figures = || {
        (
            of_ann(&sentinel).waiting(),
            node(&sentinel).waiting(),
            sentinel.inbound().waiting(),
        )
    };
    assert_eq!(figures(), (1, 1, 1));
    clock.advance(ms(70));
    drop(running);
    drop(waiting.admit().unwrap());
    assert_eq!(figures(), (0, 0, 0));
    let origin = of_ann(&sentinel);
    let origin = origin.totals();
    assert_eq!((origin.waits(), origin.waited()), (1, ms(70)));
    assert_at_rest(&sentinel, "r");
}

#[test]
fn an_adaptive_limit_that_is_tighter_refuses_and_lets_nobody_in() {
    let rules = Rules::new()
        .with(queue(3))
        .with(AdaptiveRule::new("r").floor(2).ceiling(2));
    let (sentinel, _) = engine(rules);
    let _running: Vec<_> = (0..2).map(|_| enter(&sentinel, call()).unwrap()).collect();
    assert!(enter(&sentinel, call()).is_err());
    // Where it is wider, calls wait, and come in one by one.
    let rules = Rules::new()
        .with(queue(1))
        .with(AdaptiveRule::new("r").floor(2).ceiling(2));
    let (sentinel, _) = engine(rules);
    let running = enter(&sentinel, call()).unwrap();
    let waiting = wait(&sentinel, call());
    drop(running);
    drop(waiting.admit().unwrap());
    assert_at_rest(&sentinel, "r");
}

// === reloads ===

#[test]
fn a_reload_moves_the_limit_of_the_calls_in_line() {
    let rules: [fn(&'static str, u32) -> IsolationRule; 2] = [
        |_, max| IsolationRule::new("r", max).queue(ms(1_000)),
        // The default of all resources.
        |_, max| IsolationRule::new("*", max).queue(ms(1_000)),
    ];
    for rule in rules {
        let (sentinel, _) = engine(rule("r", 1));
        let mut running = vec![enter(&sentinel, call()).unwrap()];
        let mut line: Vec<_> = (0..6).map(|_| wait(&sentinel, call())).collect();
        line.reverse();
        let let_in = |line: &mut Vec<Waiting>, running: &mut Vec<Entry>, count: usize| {
            for _ in 0..count {
                running.push(line.pop().unwrap().admit().unwrap());
            }
            let rest = std::mem::take(line);
            *line = rest.into_iter().map(not_yet).collect();
        };
        // Up: two more at once, though nobody calls.
        sentinel.reload(rule("r", 3).into());
        let_in(&mut line, &mut running, 2);
        // Down: none until only one is left.
        sentinel.reload(rule("r", 1).into());
        running.truncate(1);
        let_in(&mut line, &mut running, 0);
        running.clear();
        let_in(&mut line, &mut running, 1);
        // Without a queue those in line keep their places, and others are refused.
        sentinel.reload(IsolationRule::new("r", 2).into());
        let_in(&mut line, &mut running, 1);
        assert!(enter(&sentinel, call()).is_err());
        sentinel.reload(IsolationRule::new("r", 3).into());
        let_in(&mut line, &mut running, 1);
        // Without a rule all start.
        sentinel.reload(Rules::new());
        let_in(&mut line, &mut running, 1);
        assert!(line.is_empty());
        running.push(enter(&sentinel, call()).unwrap());
        running.clear();
        assert_at_rest(&sentinel, "r");
    }
}

#[test]
fn a_call_that_goes_back_in_line_after_a_reload_waits_by_the_new_limit() {
    // Turns every 100 ms.
    let rules = |rule: Option<IsolationRule>| {
        let turns = FlowRule::per_second("r", 10).throttle(ms(5_000));
        let rules = Rules::new().with(turns);
        rule.map_or(rules.clone(), |rule| rules.with(rule))
    };
    for (new, lets_in) in [
        (Some(queue(2)), true),
        (Some(IsolationRule::new("r", 2)), true),
        (None, true),
        (Some(queue(1).id("another")), false),
    ] {
        let (sentinel, clock) = engine(rules(Some(queue(1))));
        let first = enter(&sentinel, call()).unwrap();
        let second = wait(&sentinel, call());
        clock.advance(ms(50));
        drop(first);
        // It had a slot, but its turn comes later. By then another call has the slot.
        let second = not_yet(second);
        clock.advance(ms(100));
        let third = wait(&sentinel, call());
        clock.advance(ms(100));
        let running = third.admit().unwrap();
        // Nobody stands in line while the rules change, and nobody calls after.
        sentinel.reload(rules(new.clone()));
        let second = not_yet(second);
        if lets_in {
            drop(second.admit().unwrap());
            drop(running);
        } else {
            let second = not_yet(second);
            drop(running);
            drop(second.admit().unwrap());
        }
        assert_at_rest(&sentinel, "r");
    }
}

#[test]
fn a_call_in_line_is_judged_by_the_rules_that_are_in_force_when_it_has_a_slot() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, call()).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, call()));
    let flow = FlowRule::per_second("r", 1).buckets(10);
    sentinel.reload(Rules::new().with(queue(1)).with(flow));
    drop(running);
    assert_eq!(refused(first).kind(), BlockKind::Flow);
    sentinel.reload(queue(1).into());
    drop(second.admit().unwrap());
    assert_at_rest(&sentinel, "r");
}

#[test]
fn a_call_waits_for_calls_that_began_before_there_was_a_limit() {
    let (sentinel, _) = engine(Rules::new());
    let mut running: Vec<_> = (0..4).map(|_| enter(&sentinel, call()).unwrap()).collect();
    sentinel.reload(queue(2).into());
    let mut line = vec![wait(&sentinel, call()), wait(&sentinel, call())];
    for _ in 0..2 {
        drop(running.pop());
        line = line.into_iter().map(not_yet).collect();
    }
    // However it ends.
    running.pop().unwrap().cancel();
    let second = not_yet(line.pop().unwrap());
    let first = line.pop().unwrap().admit().unwrap();
    let second = not_yet(second);
    drop(running.pop());
    let _both = [first, second.admit().unwrap()];
    assert_eq!(node(&sentinel).slots_in_use(), 2);
    let _line = wait(&sentinel, call());
}

// === in shadow mode ===

#[test]
fn in_shadow_mode_a_call_that_would_wait_starts_and_too_many_are_told() {
    let rule = Rule::from(queue(2).max_waiting(3)).shadow();
    let (sentinel, _) = engine(rule);
    let all: Vec<_> = (0..8).map(|_| enter(&sentinel, call()).unwrap()).collect();
    let shadow = &sentinel.shadows()[0];
    let node = shadow.node("r").unwrap();
    // Two slots, and three that would have waited.
    assert_eq!((node.totals().pass(), node.totals().block()), (5, 3));
    drop(all);
    assert_eq!(
        (node.slots_in_use(), node.waiting(), node.concurrency()),
        (0, 0, 0)
    );
}

#[test]
fn a_rule_in_shadow_mode_sees_a_call_in_line_once() {
    let shadow = Rule::from(FlowRule::per_second("r", 100)).shadow();
    let rules = Rules::build([Rule::from(queue(1)), shadow]).unwrap();
    let (sentinel, _) = engine(rules);
    let running = enter(&sentinel, call()).unwrap();
    let [first, second] = [0, 1].map(|_| wait(&sentinel, call()));
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
    /// The running call at this place ends.
    End(usize),
    /// The waiting call at this place looks for its slot, or leaves.
    Admit(usize),
    Leave(usize),
    Reload(u32),
}

/// Does `steps` and checks after each that no more run than may, that no slot is free while a
/// call waits, and that calls start in their order. False if a step cannot be done.
fn holds(max: u32, steps: &[Step]) -> bool {
    let (sentinel, _) = engine(queue(max).max_waiting(3));
    let (mut limit, mut running, mut line) = (max as usize, Vec::new(), Vec::<Waiting>::new());
    // How many at the head of the line have slots.
    let mut has_slot = 0_usize;
    for step in steps {
        match *step {
            Step::Enter => match sentinel.try_enter(call()) {
                Verdict::Pass(entry) => {
                    assert!(
                        has_slot + running.len() < limit && has_slot == line.len(),
                        "{steps:?}"
                    );
                    running.push(entry);
                }
                Verdict::Wait(waiting) => {
                    assert!(has_slot + running.len() >= limit || has_slot < line.len());
                    line.push(waiting);
                }
                Verdict::Block(_) => assert_eq!(line.len() - has_slot, 3, "{steps:?}"),
                other => panic!("{other:?}"),
            },
            Step::End(place) if place < running.len() => drop(running.remove(place)),
            Step::Admit(place) if place < line.len() => match line.remove(place).admit() {
                Ok(entry) => {
                    assert!(place < has_slot, "{steps:?}");
                    has_slot -= 1;
                    running.push(entry);
                }
                Err(NotAdmitted::TooEarly(waiting)) => {
                    assert!(place >= has_slot, "{steps:?}");
                    line.insert(place, waiting);
                }
                Err(other) => panic!("{other:?}"),
            },
            Step::Leave(place) if place < line.len() => {
                drop(line.remove(place));
                if place < has_slot {
                    has_slot -= 1;
                }
            }
            Step::Reload(next) => {
                limit = next as usize;
                sentinel.reload(queue(next).max_waiting(3).into());
            }
            _ => return false,
        }
        while has_slot < line.len() && has_slot + running.len() < limit {
            has_slot += 1;
        }
        let Some(node) = sentinel.node("r") else {
            continue;
        };
        assert_eq!(
            node.slots_in_use() as usize,
            running.len() + has_slot,
            "{steps:?}"
        );
        assert_eq!(node.waiting() as usize, line.len(), "{steps:?}");
    }
    true
}

#[test]
fn in_every_order_of_five_steps_no_slot_is_lost_and_nobody_overtakes() {
    let choices = [
        Step::Enter,
        Step::End(0),
        Step::End(1),
        Step::Admit(0),
        Step::Admit(1),
        Step::Leave(0),
        Step::Leave(1),
        Step::Reload(1),
        Step::Reload(2),
    ];
    let mut done = 0;
    for max in [1, 2] {
        for number in 0..choices.len().pow(5) {
            let mut steps = vec![Step::Enter, Step::Enter];
            let mut rest = number;
            for _ in 0..5 {
                steps.push(choices[rest % choices.len()]);
                rest /= choices.len();
            }
            // Of the orders that begin alike, those that cannot be done are many.
            done += u32::from(is_sensible(&steps) && holds(max, &steps));
        }
    }
    assert!(done > 5_000, "{done}");
}

/// Leaves out what says nothing new.
fn is_sensible(steps: &[Step]) -> bool {
    let reloads = steps.iter().filter(|step| matches!(step, Step::Reload(_)));
    reloads.count() <= 2
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
async fn a_task_is_woken_when_it_has_a_slot_by_the_waker_that_it_polled_with_last() {
    let sentinel = Sentinel::new(queue(1));
    let running = enter(&sentinel, call()).unwrap();
    let mut waiting = Box::pin(sentinel.enter(call()));
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
    let _running = enter(&sentinel, call()).unwrap();
    let start = tokio::time::Instant::now();
    let blocked = sentinel.enter(call()).await.unwrap_err();
    assert_eq!(blocked.kind(), BlockKind::Isolation);
    // The engine's clock stands, and is not waited for.
    assert_eq!(start.elapsed(), ms(1_000));
    assert_eq!(node(&sentinel).waiting(), 0);
}

#[test]
fn without_a_timer_a_call_cannot_wait() {
    let (sentinel, _) = engine(queue(1));
    let running = enter(&sentinel, call()).unwrap();
    let mut waiting = Box::pin(sentinel.enter(call()));
    let Poll::Ready(Err(blocked)) = poll_now(waiting.as_mut()) else {
        panic!("there is no runtime");
    };
    assert_eq!(blocked.kind(), BlockKind::NoTimer);
    drop(running);
    assert_at_rest(&sentinel, "r");
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
    let running = enter(&sentinel, call()).unwrap();
    let mut first = Box::pin(sentinel.enter(call()));
    let second = wait(&sentinel, call());
    let holder = Waker::from(Arc::new(Holder { _held: second }));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&holder))
            .is_pending()
    );
    drop(holder);
    // Now the line holds the last one, and lets go of it.
    assert!(poll_now(first.as_mut()).is_pending());
    assert_eq!(node(&sentinel).waiting(), 1);
    drop(first);
    drop(running);
    assert_at_rest(&sentinel, "r");
}

#[tokio::test]
async fn run_waits_and_two_hundred_pass_two_at_a_time() {
    let sentinel = Sentinel::new(queue(2).queue(Duration::from_secs(60)));
    let running = Arc::new(AtomicU32::new(0));
    let calls = (0..200).map(|_| {
        let (sentinel, running) = (sentinel.clone(), running.clone());
        tokio::spawn(async move {
            let work = async {
                assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(())
            };
            sentinel.run(call(), work).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(assert_at_rest(&sentinel, "r").pass(), 200);
}

#[test]
fn threads_that_wait_come_leave_and_reload_lose_no_slot() {
    const THREADS: u32 = 6;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let (sentinel, _) = engine(queue(3).queue(Duration::from_secs(60)));
    let running = Arc::new(AtomicU32::new(0));
    let passed = Arc::new(AtomicU32::new(0));
    runtime.block_on(async {
        let tasks = (0..THREADS * 4).map(|task| {
            let (sentinel, running) = (sentinel.clone(), running.clone());
            let passed = passed.clone();
            tokio::spawn(async move {
                for turn in 0..200_u32 {
                    if (turn + task) % 7 == 0 {
                        // It leaves, with or without a slot.
                        let mut leaving = Box::pin(sentinel.enter(call()));
                        let _ = poll_now(leaving.as_mut()).is_ready();
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let entry = sentinel.enter(call()).await.unwrap();
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 3);
                    if turn % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    passed.fetch_add(1, Ordering::SeqCst);
                    drop(entry);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    assert!(u64::from(passed.load(Ordering::SeqCst)) <= assert_at_rest(&sentinel, "r").pass());
    let again: Vec<_> = (0..3).map(|_| enter(&sentinel, call()).unwrap()).collect();
    assert_eq!(node(&sentinel).slots_in_use(), 3);
    drop(again);
}
