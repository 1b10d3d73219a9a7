//! The queues of values, in the middle of reloads: each turn, and when there is one
//! for who is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{BlockKind, Call, KeyedRule, NotAdmitted, Verdict, Waiting};

use crate::setup::{BEGIN, NS, advance};
use crate::support::bench::Bench;
use crate::support::ms;
use crate::wants::VALUES;

/// Times are in ms, thresholds in half calls.
#[derive(Clone, Copy, Debug)]
struct Queue {
    halves: u32,
    exception: Option<u32>,
    max_wait: u64,
    interval: u64,
    keys: u32,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Advance(u64),
    Call(&'static str, u32),
    Admit(usize),
    Drop(usize),
    /// Other limits, or another table if told.
    Reload(Queue, bool),
}

impl Queue {
    fn rule(&self) -> KeyedRule {
        let halves = |halves| f64::from(halves) / 2.0;
        let rule = KeyedRule::per("a", halves(self.halves), ms(self.interval));
        let rule = rule.throttle(ms(self.max_wait)).max_keys(self.keys);
        match self.exception {
            Some(own) => rule.except(VALUES[0], halves(own)),
            None => rule,
        }
    }

    /// The distance to the turn before, in ns; `None`: there never is a turn.
    fn cost(&self, value: &str, n: u32) -> Option<u64> {
        let own = self.exception.filter(|_| value == VALUES[0]);
        let halves = u64::from(own.unwrap_or(self.halves));
        let twice = 2 * self.interval * NS * u64::from(n);
        (halves > 0).then(|| twice.div_ceil(halves))
    }
}

fn queue() -> impl Strategy<Value = Queue> {
    let interval = select(&[10_u64, 300, 1_000][..]);
    let keys = select(&[16_u32, 24][..]);
    let exception = prop::option::weighted(0.3, 0_u32..9);
    (0_u32..12, exception, 0_u64..4_000, interval, keys).prop_map(
        |(halves, exception, max_wait, interval, keys)| Queue {
            halves,
            exception,
            max_wait,
            interval,
            keys,
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => advance().prop_map(Act::Advance),
        8 => (select(&VALUES[..]), prop_oneof![4 => Just(1_u32), 1 => 0_u32..4])
            .prop_map(|(value, n)| Act::Call(value, n)),
        3 => any::<usize>().prop_map(Act::Admit),
        2 => any::<usize>().prop_map(Act::Drop),
        1 => (queue(), prop::bool::weighted(0.2)).prop_map(|(queue, is_other)| Act::Reload(queue, is_other)),
    ]
}

/// What a naive queue remembers: the turns of each value, each with its call.
#[derive(Default)]
struct Turns {
    /// Since the last reload that made a new table.
    by_value: BTreeMap<&'static str, Vec<(u64, usize)>>,
}

impl Turns {
    /// The call leaves whose turn is the last one; others leave a gap.
    fn leave(&mut self, call: usize) {
        for turns in self.by_value.values_mut() {
            if turns.last().is_some_and(|(_, last)| *last == call) {
                turns.pop();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn through_any_reload_values_keep_their_turns(
        mut queue in queue(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let bench = Bench::new(queue.rule());
        let mut turns = Turns::default();
        let mut waiting: Vec<(Waiting, usize)> = Vec::new();
        let (mut now, mut calls) = (BEGIN * NS, 0);
        for act in acts {
            match act {
                Act::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Act::Call(value, n) => {
                    calls += 1;
                    let of_value = turns.by_value.entry(value).or_default();
                    let cost = queue.cost(value, n);
                    let turn = cost.map(|cost| of_value.last().map_or(now, |(last, _)| now.max(last + cost)));
                    let most = now + queue.max_wait * NS;
                    match bench.sentinel.try_enter(Call::new("a").param(value).batch(n)) {
                        Verdict::Pass(_) if n == 0 => continue,
                        Verdict::Pass(_) => prop_assert_eq!(turn, Some(now)),
                        Verdict::Wait(call) => {
                            let start = call.start().as_nanos();
                            prop_assert_eq!(turn, Some(start));
                            prop_assert!(start > now && start <= most);
                            waiting.push((call, calls));
                        }
                        Verdict::Block(blocked) => {
                            prop_assert_eq!(blocked.kind(), BlockKind::Keyed);
                            let after = blocked.retry_after().map(|after| after.as_nanos() as u64);
                            prop_assert_eq!(after, turn.map(|turn| turn - most));
                            continue;
                        }
                        other => panic!("{other:?}"),
                    }
                    of_value.push((turn.unwrap(), calls));
                }
                Act::Admit(index) => if let Some(index) = index.checked_rem(waiting.len()) {
                    let (call, number) = waiting.swap_remove(index);
                    let start = call.start().as_nanos();
                    match call.admit() {
                        Ok(_) => prop_assert!(start <= now),
                        Err(NotAdmitted::TooEarly(call)) => {
                            prop_assert!(start > now);
                            waiting.push((call, number));
                        }
                        other => panic!("{other:?}"),
                    }
                },
                Act::Drop(index) => if let Some(index) = index.checked_rem(waiting.len()) {
                    let (call, number) = waiting.swap_remove(index);
                    drop(call);
                    turns.leave(number);
                },
                Act::Reload(other, is_other) => {
                    let same = Queue { interval: queue.interval, keys: queue.keys, ..other };
                    let new = if is_other { other } else { same };
                    if (new.interval, new.keys) != (queue.interval, queue.keys) {
                        turns = Turns::default();
                    }
                    queue = new;
                    bench.sentinel.reload(queue.rule().into());
                    // Who looks has the resource take the new rule over.
                    drop(bench.sentinel.node("a"));
                }
            }
        }
    }
}
