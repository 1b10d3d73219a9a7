//! Where calls may wait, a refused one is told the first time at which it is let in.
//!
//! What comes of a call at a time to come is asked of an engine on which all calls have come
//! again, as a call that is let in changes what the next one finds.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{
    Call, CircuitBreakerRule, Clock, FlowRule, KeyedRule, Rule, Rules, Verdict, Waiting,
};

use crate::support::bench::Bench;
use crate::support::ms;
use crate::{KEYS, NANO, SECOND};

/// How long after the one before a call comes, and what it is like.
#[derive(Clone, Copy, Debug)]
struct Step {
    gap: u64,
    weight: u32,
    is_prioritized: bool,
    patience: Option<u64>,
}

/// Rules, how long calls wait for a loan, and the calls.
#[derive(Clone, Debug)]
struct Case {
    rules: Rules,
    timeout: u64,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
enum Told {
    LetIn,
    Refused(Option<Duration>),
}

/// Calls of an engine, those that wait included.
struct Engine {
    bench: Bench,
    waiting: Vec<Waiting>,
}

impl Engine {
    fn call(&mut self, step: Step) -> Told {
        let call = Call::new("r").origin("app").param("p").batch(step.weight);
        let call = call.prioritized(step.is_prioritized);
        let call = step.patience.map_or(call, |most| call.patience(ms(most)));
        match self.bench.sentinel.try_enter(call) {
            Verdict::Pass(mut entry) => entry.fail(),
            Verdict::Wait(waiting) => self.waiting.push(waiting),
            Verdict::Block(blocked) => return Told::Refused(blocked.retry_after()),
            other => panic!("{other:?}"),
        }
        Told::LetIn
    }
}

impl Case {
    /// An engine on which the first `count` calls have come, and what the last was told.
    fn after(&self, count: usize) -> (Engine, Told) {
        let bench = Bench::with(self.rules.clone(), |builder| {
            builder.occupy_timeout(ms(self.timeout))
        });
        let waiting = Vec::new();
        let mut engine = Engine { bench, waiting };
        let mut told = Told::LetIn;
        for step in &self.steps[..count] {
            engine.bench.clock.advance(ms(step.gap));
            drop(engine.bench.sentinel.try_enter(Call::new("other")));
            told = engine.call(*step);
        }
        (engine, told)
    }

    /// Whether the last of `count` calls is let in if it comes again after `wait`.
    fn is_let_in(&self, count: usize, wait: Duration) -> bool {
        let (mut engine, _) = self.after(count);
        engine.bench.clock.advance(wait);
        engine.call(self.steps[count - 1]) == Told::LetIn
    }
}

fn window() -> impl Strategy<Value = FlowRule> {
    let shapes = select(&[
        (1_000_u64, 2_u32),
        (1_000, 1),
        (400, 4),
        (2_000, 2),
        (3_000, 3),
        (1_000, 10),
    ]);
    let ratio = select(&[1.0, 1.0, 1.0, 0.5]);
    (shapes, 1_u32..8, 0_u32..6, ratio).prop_map(|((interval, buckets), limit, kind, ratio)| {
        let rule = FlowRule::per("r", limit, ms(interval)).buckets(buckets);
        let rule = rule.max_occupy_ratio(ratio);
        match kind {
            0 => rule.lend(false),
            1 => rule.strict(),
            2 => rule.for_origin("other"),
            3 => rule.for_origin("app"),
            _ => rule,
        }
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let waits = select(&[0_u64, 50, 300, 1_000, 2_500]);
    let queue = (1_u32..12, waits.clone(), any::<bool>()).prop_map(|(limit, most, is_own)| {
        let rule = FlowRule::per_second("r", limit).throttle(ms(most));
        Rule::from(if is_own { rule.for_origin("app") } else { rule })
    });
    let values = (1_u32..8, waits, 0_u32..3).prop_map(|(limit, most, kind)| {
        let rule = KeyedRule::per_second("r", limit).max_keys(KEYS);
        Rule::from(match kind {
            0 => rule,
            1 => rule.window(),
            _ => rule.throttle(ms(most)),
        })
    });
    let related = (1_u32..4).prop_map(|limit| FlowRule::per_second("r", limit).when("other"));
    let breaker = (2_u32..6, 100_u64..2_000).prop_map(|(errors, open)| {
        let rule = CircuitBreakerRule::error_count("r", errors).min_calls(1);
        Rule::from(rule.open_for(ms(open)))
    });
    prop_oneof![
        5 => window().prop_map(Rule::from),
        4 => queue,
        2 => values,
        1 => related.prop_map(Rule::from),
        1 => breaker,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let gaps = prop_oneof![3 => Just(0_u64), 2 => 0_u64..200, 1 => 0_u64..900];
    let patience = prop_oneof![4 => Just(None), 1 => (0_u64..1_500).prop_map(Some)];
    (gaps, 0_u32..4, any::<bool>(), patience).prop_map(|(gap, weight, is_prioritized, patience)| {
        Step {
            gap,
            weight,
            is_prioritized,
            patience,
        }
    })
}

fn case() -> impl Strategy<Value = Case> {
    let rules = prop::collection::vec(rule(), 1..4);
    let timeout = select(&[1_u64, 100, 500, 800, 3_000]);
    let steps = prop::collection::vec(step(), 1..40);
    (rules, timeout, steps).prop_map(|(rules, timeout, steps)| Case {
        rules: Rules::build(rules).expect("they are right"),
        timeout,
        steps,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_is_told_the_first_time_at_which_it_is_let_in(
        case in case(),
        fractions in prop::collection::vec(0.0..1.0_f64, 6),
    ) {
        for count in 1..=case.steps.len() {
            let (_, Told::Refused(told)) = case.after(count) else { continue };
            let Some(wait) = told else {
                for millis in [0, 100, 333, 1_000, 2_500, 10_000] {
                    prop_assert!(!case.is_let_in(count, ms(millis)), "after {} ms, not told", millis);
                }
                continue;
            };
            prop_assert!(case.is_let_in(count, wait), "not after {:?}", wait);
            prop_assert!(!case.is_let_in(count, wait - NANO), "before {:?}", wait);
            // Where buckets begin and places ahead are soon enough, and anywhere.
            let (engine, _) = case.after(count);
            let now = engine.bench.clock.now().as_nanos();
            let steps = (1..40).map(|bucket| Duration::from_nanos((now / 100_000_000 + bucket) * 100_000_000 - now));
            let fractions = fractions.iter().map(|part| wait.mul_f64(*part));
            for early in steps.flat_map(|at| [at, at + NANO]).chain(fractions) {
                if early < wait {
                    prop_assert!(!case.is_let_in(count, early), "{:?} before {:?}", early, wait);
                }
            }
        }
    }
}

#[test]
fn beside_a_queue_a_call_is_told_when_it_may_wait_there() {
    // Six in a minute, one each ten seconds, of which nobody waits more than 9.95 s.
    let queue = FlowRule::per("r", 6, SECOND * 60).throttle(ms(9_950));
    // It is full until ten seconds are over, and lends what leaves it then.
    let window = FlowRule::per("r", 1, SECOND * 10).buckets(1);
    let alone = Rules::from(queue.clone());
    let beside = Rules::new().with(queue.clone()).with(window);
    let values = KeyedRule::per("r", 6, SECOND * 60).throttle(ms(9_950));
    for rules in [alone, beside, values.into()] {
        let bench = Bench::new(rules.clone());
        let call = Call::new("r").param("p");
        drop(bench.enter(call).unwrap());
        let told = || match bench.sentinel.try_enter(call) {
            Verdict::Block(blocked) => blocked.retry_after(),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(), Some(ms(50)), "{rules:?}");
        bench.clock.advance(ms(50));
        let Verdict::Wait(waiting) = bench.sentinel.try_enter(call) else {
            panic!("its turn comes in 9.95 s");
        };
        assert_eq!(waiting.delay(), ms(9_950));
    }
}

#[test]
fn a_window_that_is_full_until_the_turn_is_waited_for_only_where_it_lends() {
    let queue = FlowRule::per_second("r", 10).throttle(SECOND * 10);
    let window = FlowRule::per_second("r", 1);
    let told = |window: FlowRule| {
        let bench = Bench::new(Rules::new().with(queue.clone()).with(window));
        drop(bench.enter(Call::new("r")).unwrap());
        let Verdict::Block(blocked) = bench.sentinel.try_enter(Call::new("r")) else {
            panic!("no room at its turn in 100 ms");
        };
        blocked.retry_after()
    };
    // At the turn the window is still full, lent or not; after it the call need not wait.
    assert_eq!(told(window.clone()), Some(SECOND));
    assert_eq!(told(window.lend(false)), Some(SECOND));
}

#[test]
fn a_prioritized_call_is_told_when_a_loan_is_near_enough() {
    let timeout = |builder: tower_sentinel::Builder| builder.occupy_timeout(ms(300));
    let bench = Bench::with(FlowRule::per_second("r", 1), timeout);
    let call = Call::new("r").prioritized(true);
    drop(bench.enter(call).unwrap());
    let Verdict::Block(blocked) = bench.sentinel.try_enter(call) else {
        panic!("the window is full for a second");
    };
    // A wait is shorter than 300 ms.
    assert_eq!(blocked.retry_after(), Some(ms(700) + NANO));
    bench.clock.advance(ms(700) + NANO);
    assert!(matches!(bench.sentinel.try_enter(call), Verdict::Wait(_)));
}

#[test]
fn while_as_many_wait_as_may_a_call_is_told_when_it_need_not() {
    let queue = FlowRule::per_second("r", 1)
        .throttle(SECOND * 10)
        .max_waiting(1);
    let bench = Bench::new(queue);
    let call = Call::new("r");
    drop(bench.enter(call).unwrap());
    let Verdict::Wait(waiting) = bench.sentinel.try_enter(call) else {
        panic!("one may wait");
    };
    let Verdict::Block(blocked) = bench.sentinel.try_enter(call) else {
        panic!("one more than may");
    };
    assert_eq!(blocked.retry_after(), Some(SECOND * 2));
    drop(waiting);
}
