//! Rules with a queue, that warm up, or that look at memory; and how they meet
//! windows and loans.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::clock::Tick;
use tower_sentinel::stat::Event;
use tower_sentinel::system::{ManualProbe, Memory, Probe, Sampler};
use tower_sentinel::{
    BlockKind, Blocked, Call, FlowRule, KeyedRule, ManualClock, NotAdmitted, Rules, Sentinel,
    Verdict, Waiting,
};

use crate::support::bench::Bench;
use crate::support::ms;

impl Bench {
    /// The wait of a call, zero if it passes at once.
    fn call(&self, call: Call<'_>) -> Result<(Duration, Option<Waiting>), Blocked> {
        match self.sentinel.try_enter(call) {
            Verdict::Pass(_) => Ok((Duration::ZERO, None)),
            Verdict::Wait(waiting) => Ok((waiting.delay(), Some(waiting))),
            Verdict::Block(blocked) => Err(blocked),
            other => panic!("{other:?}"),
        }
    }

    /// The waits of `n` calls that come at once, in milliseconds, and the calls.
    fn burst(&self, n: usize) -> (Vec<Option<u128>>, Vec<Waiting>) {
        let mut queue = Vec::new();
        let waits = (0..n)
            .map(|_| {
                let (wait, waiting) = self.call(Call::new("r")).ok()?;
                queue.extend(waiting);
                Some(wait.as_millis())
            })
            .collect();
        (waits, queue)
    }

    fn passed(&self, n: usize) -> usize {
        (0..n).filter(|_| self.call(Call::new("r")).is_ok()).count()
    }
}

fn paced(threshold: u32, max_wait: u64) -> FlowRule {
    FlowRule::per_second("r", threshold).throttle(ms(max_wait))
}

// === queues ===

#[test]
fn calls_come_to_their_turn_one_after_the_other() {
    // The figures of the worked example: ten a second, at most 250 ms.
    let bench = Bench::new(paced(10, 250));
    let (waits, queue) = bench.burst(5);
    assert_eq!(waits, [Some(0), Some(100), Some(200), None, None]);
    let (wait, _waiting) = bench.at(100).call(Call::new("r")).unwrap();
    assert_eq!(wait, ms(200));
    assert_eq!(queue.len(), 2);
}

#[test]
fn only_who_is_prioritized_waits_beyond_its_turn() {
    let rules = Rules::new()
        .with(paced(2, 5_000))
        .with(FlowRule::per_second("r", 2));
    for (is_prioritized, waits) in [(false, None), (true, Some(ms(450)))] {
        let bench = Bench::new(rules.clone());
        drop(bench.at(700).call(Call::new("r").batch(2)).unwrap());
        // Its turn comes at 1200, and the two leave the window at 1500.
        let call = Call::new("r").prioritized(is_prioritized);
        let wait = bench.at(1_050).call(call).ok().map(|(wait, _)| wait);
        assert_eq!(wait, waits);
    }
}

#[test]
fn who_read_the_clock_before_its_bucket_was_opened_has_its_turn_there() {
    let bench = Bench::new(paced(50, 500));
    let (_, first) = bench.at(990).call(Call::new("r")).unwrap();
    assert!(first.is_none(), "it passes at once");
    // Meanwhile another thread, which has read the clock later, opens the next bucket.
    let node = bench.sentinel.node("r").unwrap();
    bench.at(1_000);
    assert_eq!(node.sum(Event::Pass), 1);
    let (wait, waiting) = bench.at(995).call(Call::new("r")).unwrap();
    assert_eq!(wait, ms(15));
    // Nor does it wait for a loan because it might have one.
    let prioritized = Call::new("r").prioritized(true);
    let (wait, _last) = bench.at(996).call(prioritized).unwrap();
    assert_eq!(wait, ms(34));
    bench.at(1_010);
    drop(waiting.unwrap().admit().unwrap());
    assert_eq!((node.totals().complete(), node.waiting()), (2, 1));
}

#[test]
fn without_a_wait_only_those_pass_that_are_not_too_early() {
    let bench = Bench::new(paced(10, 0));
    let passes = (0..1_000).filter(|at| bench.at(*at).call(Call::new("r")).is_ok());
    assert_eq!(
        passes.collect::<Vec<_>>(),
        (0..1_000).step_by(100).collect::<Vec<_>>()
    );
    let blocked = bench.call(Call::new("r")).unwrap_err();
    assert_eq!(
        (blocked.kind(), blocked.limit()),
        (BlockKind::Flow, Some(10))
    );
    assert_eq!(blocked.retry_after(), Some(ms(1)));
}

#[test]
fn a_heavy_call_takes_several_turns() {
    let bench = Bench::new(paced(10, 1_000));
    assert_eq!(
        bench.call(Call::new("r").batch(2)).unwrap().0,
        Duration::ZERO
    );
    let (wait, _second) = bench.call(Call::new("r").batch(2)).unwrap();
    assert_eq!(wait, ms(200));
    let (wait, _third) = bench.call(Call::new("r")).unwrap();
    assert_eq!(wait, ms(300));
    // Nothing is free, and takes nothing.
    assert_eq!(
        bench.call(Call::new("r").batch(0)).unwrap().0,
        Duration::ZERO
    );
}

#[test]
fn the_turn_of_the_last_one_is_given_back_and_that_of_others_is_not() {
    let bench = Bench::new(paced(10, 1_000));
    let (_, mut queue) = bench.burst(4);
    // The last leaves: its turn is free again.
    drop(queue.pop());
    let (wait, last) = bench.call(Call::new("r")).unwrap();
    assert_eq!(wait, ms(300));
    queue.extend(last);
    // One from the middle leaves: those behind keep their times.
    drop(queue.remove(0));
    assert_eq!(bench.call(Call::new("r")).unwrap().0, ms(400));
    let node = bench.sentinel.node("r").unwrap();
    assert_eq!((node.waiting(), node.totals().waiting_dropped()), (2, 3));
}

#[test]
fn a_call_counts_in_the_bucket_of_its_turn_and_its_time_begins_there() {
    let bench = Bench::new(paced(1, 5_000));
    let (waits, queue) = bench.burst(3);
    assert_eq!(waits, [Some(0), Some(1_000), Some(2_000)]);
    let node = bench.sentinel.node("r").unwrap();
    assert_eq!(
        (node.sum(Event::Pass), node.held(), node.waiting()),
        (1, 2, 2)
    );
    let mut queue = queue.into_iter();
    let early = bench.at(999);
    let Err(NotAdmitted::TooEarly(waiting)) = queue.next().unwrap().admit() else {
        panic!("a millisecond too early");
    };
    early.at(1_000);
    let entry = waiting.admit().unwrap();
    assert_eq!((node.sum(Event::Pass), node.concurrency()), (1, 1));
    bench.at(1_020);
    drop(entry);
    assert_eq!(node.average_rt(), Some(ms(20)));
    let totals = node.totals();
    assert_eq!((totals.waits(), totals.occupied()), (1, 0));
    assert_eq!(totals.waited(), ms(1_000));
}

#[test]
fn no_more_calls_wait_in_the_queue_than_the_rule_lets() {
    let bench = Bench::new(paced(10, 10_000).max_waiting(3));
    let (waits, _queue) = bench.burst(6);
    assert_eq!(waits.iter().flatten().count(), 4);
    assert_eq!(bench.sentinel.node("r").unwrap().waiting(), 3);
    // When the turn comes that was refused, the three are through.
    let blocked = bench.call(Call::new("r")).unwrap_err();
    assert_eq!(blocked.retry_after(), Some(ms(400)));
}

#[test]
fn of_two_rules_the_one_that_lets_fewer_wait_holds() {
    let [few, many] = [3, 5].map(|most| paced(10, 10_000).max_waiting(most));
    for rules in [[few.clone(), many.clone()], [many, few]] {
        let bench = Bench::new(Rules::build(rules).unwrap());
        let (waits, _queue) = bench.burst(8);
        assert_eq!(waits.iter().flatten().count(), 4);
    }
}

#[test]
fn who_finds_no_turn_is_told_whose_queue_it_is() {
    let rules = [FlowRule::per_second("r", 100), paced(10, 0)];
    let bench = Bench::new(Rules::build(rules).unwrap());
    assert!(bench.call(Call::new("r")).is_ok());
    let blocked = bench.call(Call::new("r")).unwrap_err();
    assert_eq!((blocked.rule(), blocked.limit()), ("flow-1", Some(10)));
}

#[test]
fn of_a_rule_for_origins_so_many_wait_for_each_and_so_many_in_all() {
    let rule = |most| FlowRule::per_second("r", 1_000).max_waiting(most);
    let wait = |bench: &Bench, origin, most: usize| {
        let calls = (0..=most).map(|_| bench.sentinel.try_enter(Call::new("r").origin(origin)));
        let waiting = calls.filter_map(|verdict| match verdict {
            Verdict::Wait(waiting) => Some(waiting),
            _ => None,
        });
        waiting.collect::<Vec<_>>()
    };
    let each = |origin| rule(2).throttle(ms(200_000)).for_origin(origin);
    // A rule for all callers says how many they are together, if it lets calls wait.
    for (all, origins) in [
        (None, [2, 2, 2]),
        (Some(rule(3)), [2, 1, 0]),
        (Some(rule(0)), [2, 2, 2]),
    ] {
        let rules = all.into_iter().chain(["a", "b", "c"].map(each));
        let bench = Bench::new(Rules::build(rules).unwrap());
        let queues = ["a", "b", "c"].map(|origin| wait(&bench, origin, 5));
        assert_eq!(queues.map(|queue| queue.len()), origins);
    }
    // All other origins stand in one queue.
    let bench = Bench::new(each("other"));
    let queues = ["a", "b", "c"].map(|origin| wait(&bench, origin, 5));
    assert_eq!(queues.map(|queue| queue.len()), [2, 0, 0]);
    // Without one they are 10 000.
    let bench = Bench::new(rule(20_000).throttle(ms(200_000)).for_origin("a"));
    assert_eq!(wait(&bench, "a", 10_100).len(), 10_000);
}

#[test]
fn a_queue_is_spaced_by_a_threshold_with_a_fraction() {
    let half = FlowRule::per_second("r", 0.5).throttle(ms(5_000));
    let bench = Bench::new(half);
    let (waits, _queue) = bench.burst(4);
    assert_eq!(waits, [Some(0), Some(2_000), Some(4_000), None]);
    let bench = Bench::new(KeyedRule::per_second("r", 0.5).throttle(ms(5_000)));
    let (waits, _queue) = bench.burst(4);
    assert_eq!(waits, [Some(0), Some(2_000), Some(4_000), None]);
}

#[test]
fn nobody_waits_for_more_than_512_buckets_of_the_finest_window() {
    for (buckets, longest) in [(2, 256), (100, 5)] {
        let queue = paced(1, 86_400_000);
        let bench = Bench::with(queue, |builder| {
            builder.window(Duration::from_secs(1), buckets).unwrap()
        });
        let (waits, _queue) = bench.burst(300);
        let waits: Vec<_> = waits.into_iter().flatten().collect();
        assert_eq!(waits.last(), Some(&(longest * 1_000)), "{buckets} buckets");
    }
}

#[test]
fn an_impatient_call_does_not_join_the_queue() {
    let bench = Bench::new(paced(10, 1_000));
    assert!(bench.call(Call::new("r")).is_ok());
    let blocked = bench.call(Call::new("r").patience(ms(100))).unwrap_err();
    assert_eq!(
        blocked.retry_after(),
        Some(Duration::from_nanos(1)),
        "from then on its turn is near enough"
    );
    // It has left the queue again.
    assert_eq!(
        bench.call(Call::new("r").patience(ms(101))).unwrap().0,
        ms(100)
    );
}

#[test]
fn a_threshold_of_zero_refuses_for_ever() {
    let bench = Bench::new(paced(0, 1_000));
    let blocked = bench.call(Call::new("r")).unwrap_err();
    assert_eq!(blocked.retry_after(), None);
    assert!(bench.call(Call::new("r").batch(0)).is_ok());
}

/// The waits in ms of calls of `origins`, which come at once and all wait, one after the other.
fn waits(bench: &Bench, origins: &[&str]) -> Vec<Option<u128>> {
    let call = |origin: &&str| bench.call(Call::new("r").origin(*origin));
    let all: Vec<_> = origins.iter().map(call).collect();
    let waits = all.iter().map(|it| Some(it.as_ref().ok()?.0.as_millis()));
    waits.collect()
}

#[test]
fn all_other_origins_stand_in_one_queue() {
    // As in Sentinel: ten a second together, and not each.
    let bench = Bench::new(paced(10, 250).for_origin("other"));
    let told = waits(&bench, &["app", "web", "x", "app"]);
    assert_eq!(told, [Some(0), Some(100), Some(200), None]);
    // One that a rule names has a queue of its own, and so has a call without an origin: none.
    let rules = Rules::new()
        .with(paced(10, 250).for_origin("other"))
        .with(paced(5, 250).for_origin("app"));
    let bench = Bench::new(rules);
    let told = waits(&bench, &["app", "web", "app", "x", "app"]);
    assert_eq!(told, [Some(0), Some(0), Some(200), Some(100), None]);
    assert_eq!(bench.burst(3).0, [Some(0); 3]);
    // Each still has a window of its own, beside the queue of all.
    let rules = Rules::new()
        .with(paced(10, 250).for_origin("other"))
        .with(FlowRule::per_second("r", 1).for_origin("other").lend(false));
    let bench = Bench::new(rules);
    let told = waits(&bench, &["app", "app", "web", "x"]);
    assert_eq!(told, [Some(0), None, Some(100), Some(200)]);
    // So has the origin that finds no place any more.
    let (sentinel, _) = crate::support::configured(paced(10, 250).for_origin("other"), |builder| {
        builder.max_origins(1)
    });
    let call = |origin| sentinel.try_enter(Call::new("r").origin(origin));
    let told = ["app", "web", "x"].map(|origin| match call(origin) {
        Verdict::Pass(_) => 0,
        Verdict::Wait(waiting) => waiting.delay().as_millis(),
        Verdict::Block(_) => u128::MAX,
        other => panic!("{other:?}"),
    });
    // A dropped wait gives its turn to the next one.
    assert_eq!(told, [0, 100, 100]);
}

#[test]
fn the_queue_of_all_other_origins_goes_on_over_a_reload() {
    let rule = |threshold| paced(threshold, 60_000).for_origin("other").id("q");
    let bench = Bench::new(rule(1));
    let call = |origin| bench.call(Call::new("r").origin(origin)).unwrap();
    let queue = ["a", "b", "c"].map(call);
    assert_eq!(queue.each_ref().map(|it| it.0.as_secs()), [0, 1, 2]);
    assert!(bench.sentinel.reload(rule(2).into()));
    assert_eq!(call("d").0, ms(2_500));
}

#[test]
fn a_queue_of_all_other_origins_is_warm_by_the_calls_of_all() {
    // As a rule for all callers, whoever they are.
    let rule = || paced(30, 500).warm_up(Duration::from_secs(4));
    let calls = |rule: FlowRule| {
        let bench = Bench::new(rule);
        let mut queue: Vec<Waiting> = Vec::new();
        let mut taken = Vec::new();
        for second in 0..12 {
            let mut here = 0;
            for step in 0..100 {
                bench.at(second * 1_000 + step * 10);
                for waiting in std::mem::take(&mut queue) {
                    match waiting.admit() {
                        Ok(entry) => drop(entry),
                        Err(NotAdmitted::TooEarly(waiting)) => queue.push(waiting),
                        Err(other) => panic!("{other:?}"),
                    }
                }
                let origin = ["a", "b", "c", "d"][step as usize % 4];
                if let Ok((_, waiting)) = bench.call(Call::new("r").origin(origin)) {
                    queue.extend(waiting);
                    here += 1;
                }
            }
            taken.push(here);
        }
        taken
    };
    let all = calls(rule());
    assert!(all[1] * 2 < all[11], "{all:?}");
    assert_eq!(calls(rule().for_origin("other")), all);
}

#[test]
fn a_call_in_the_queue_counts_for_its_origin_as_well() {
    let rules = Rules::new()
        .with(paced(1, 5_000))
        .with(FlowRule::per_second("r", 2).for_origin("other"));
    let bench = Bench::new(rules);
    let mut queue = Vec::new();
    for second in 0..5 {
        let (wait, waiting) = bench.call(Call::new("r").origin("app")).unwrap();
        assert_eq!(wait, Duration::from_secs(second));
        queue.extend(waiting);
    }
    assert_eq!(queue.len(), 4);
}

#[test]
fn who_waits_for_a_turn_has_a_place_in_the_window_of_that_time() {
    // Ten a second in the queue, and at most three in a second.
    let rules = Rules::new()
        .with(paced(10, 2_000))
        .with(FlowRule::per_second("r", 3));
    let bench = Bench::new(rules);
    let (waits, queue) = bench.burst(5);
    assert_eq!(waits, [Some(0), Some(100), Some(200), None, None]);
    // Refused calls have left the queue, and all three count.
    assert_eq!(bench.sentinel.node("r").unwrap().totals().block(), 2);
    bench.at(300);
    for waiting in queue {
        drop(waiting.admit().unwrap());
    }
    assert_eq!(bench.at(999).passed(1), 0);
    assert_eq!(
        bench.at(1_000).call(Call::new("r")).unwrap().0,
        Duration::ZERO
    );
}

#[test]
fn a_loan_and_a_turn_are_one_wait_the_longer_of_both() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2))
        .with(paced(1, 5_000));
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .occupy_timeout(ms(5_000))
        .build();
    let bench = Bench { sentinel, clock };
    let call = Call::new("r").prioritized(true);
    let mut queue = Vec::new();
    let waits: Vec<_> = (0..4)
        .map(|_| {
            let (wait, waiting) = bench.call(call).unwrap();
            queue.extend(waiting);
            wait.as_millis()
        })
        .collect();
    // The window alone would let the third wait for 1 s.
    assert_eq!(waits, [0, 1_000, 2_000, 3_000]);
}

#[test]
fn a_reload_keeps_the_queue() {
    let bench = Bench::new(paced(10, 1_000));
    let (_, queue) = bench.burst(4);
    assert!(bench.sentinel.reload(paced(5, 1_000).into()));
    // Three stand there until 300 ms; the new cost is 200 ms.
    assert_eq!(bench.call(Call::new("r")).unwrap().0, ms(500));
    assert_eq!(queue.len(), 3);
    bench.at(300);
    for waiting in queue {
        drop(waiting.admit().unwrap());
    }
    assert_eq!(bench.sentinel.node("r").unwrap().waiting(), 0);
}

#[test]
fn two_rules_with_rings_of_their_own_keep_one_each_over_a_reload() {
    let day = Duration::from_secs(86_400);
    let rules = || {
        Rules::new()
            .with(FlowRule::per("r", 10, day))
            .with(FlowRule::per("r", 12, day))
    };
    let bench = Bench::new(rules());
    assert_eq!(bench.passed(2), 2);
    let more = rules().with(FlowRule::per_second("other", 1));
    assert!(bench.sentinel.reload(more));
    assert_eq!(bench.passed(20), 8);
}

#[test]
fn a_rule_keeps_its_own_queue_when_the_one_before_it_goes() {
    let (slow, fast) = (paced(1, 60_000), paced(10, 60_000).id("fast"));
    let bench = Bench::new(Rules::new().with(slow).with(fast.clone()));
    // The slow queue is 3 s long, the fast one too: they wait in both.
    let (waits, queue) = bench.burst(4);
    assert_eq!(waits.last(), Some(&Some(3_000)));
    drop(queue);
    // Only the last of the slow queue went back; the fast one has 300 ms.
    assert!(bench.sentinel.reload(fast.clone().max_waiting(7).into()));
    assert_eq!(bench.call(Call::new("r")).unwrap().0, ms(300));
    // A queue that is not named goes on as the one that paces alike.
    assert!(bench.sentinel.reload(paced(5, 60_000).into()));
    assert_eq!(bench.call(Call::new("r")).unwrap().0, ms(400));
}

#[test]
fn the_queue_of_each_origin_does_not_go_on_from_that_of_one() {
    let (one, each) = (
        paced(1, 60_000).for_origin("a"),
        paced(10, 60_000).for_origin("other"),
    );
    let bench = Bench::new(Rules::new().with(one).with(each));
    let call = || bench.call(Call::new("r").origin("a")).unwrap();
    let queue = [call(), call(), call(), call()];
    drop(queue);
    // The queue of one is 4 s long. A rule for the others had none for the one that is named.
    let other = paced(5, 60_000).for_origin("other");
    assert!(bench.sentinel.reload(other.into()));
    assert_eq!(call().0, ms(0));
}

#[test]
fn a_prioritized_call_in_the_queue_borrows_only_what_comes_after_its_turn() {
    // Of ten a second in the queue, two in a window.
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2))
        .with(paced(10, 5_000));
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .occupy_timeout(ms(1_000))
        .build();
    let bench = Bench { sentinel, clock };
    let call = Call::new("r").prioritized(true);
    let mut queue = Vec::new();
    let waits: Vec<_> = (0..3)
        .map(|_| {
            let (wait, waiting) = bench.at(400).call(call).unwrap();
            queue.extend(waiting);
            wait.as_millis()
        })
        .collect();
    // The window of the first opens at 1000; the turn of the third was at 600.
    assert_eq!(waits, [0, 100, 600]);
    bench.at(1_000);
    for waiting in queue {
        drop(waiting.admit().unwrap());
    }
    let totals = bench.sentinel.node("r").unwrap().totals();
    assert_eq!((totals.waits(), totals.occupied()), (2, 1));
}

// === memory ===

/// The engine, and the memory that the machine is said to use of 1 000 MiB.
fn with_memory(rule: FlowRule) -> (Bench, ManualProbe) {
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let probe = ManualProbe::new();
    let sentinel = Sentinel::builder()
        .rules(rule)
        .sampler(Sampler::new(probe.clone()))
        .clock(clock.clone())
        .build();
    (Bench { sentinel, clock }, probe)
}

const MIB: u64 = 1 << 20;

#[test]
fn the_threshold_falls_with_memory_and_rises_again() {
    let shares = FlowRule::per_second("r", 100).memory(0.5..0.75, 20);
    let bytes = FlowRule::per_second("r", 100).memory_bytes(500 * MIB..750 * MIB, 20);
    for rule in [shares, bytes] {
        let (bench, probe) = with_memory(rule);
        let mut second = 0;
        let mut passed = |used: Option<u64>| {
            probe.set_memory(used.and_then(|used| Memory::new(used * MIB, 1_000 * MIB)));
            second += 2;
            bench.at(second * 1_000).passed(200)
        };
        assert_eq!(passed(None), 100, "not known");
        assert_eq!(
            [400, 500, 600].map(|used| passed(Some(used))),
            [100, 100, 68]
        );
        assert_eq!([750, 999, 550].map(|used| passed(Some(used))), [20, 20, 84]);
        assert_eq!(passed(None), 100, "not known any more");
    }
}

#[test]
fn a_reading_of_memory_is_150_ms_old_at_most() {
    let (bench, probe) = with_memory(FlowRule::per_second("r", 100).memory(0.5..0.75, 20));
    assert_eq!(bench.at(0).passed(10), 10);
    probe.set_memory(Memory::new(800, 1_000));
    assert_eq!(bench.at(149).passed(20), 20);
    // Thirty have passed, and now it is twenty at most.
    assert_eq!(bench.at(150).passed(1), 0);
}

#[test]
fn a_queue_gets_slower_while_memory_runs_out() {
    let (bench, probe) = with_memory(paced(10, 5_000).memory(0.5..0.75, 2));
    assert_eq!(bench.burst(3).0, [Some(0), Some(100), Some(200)]);
    probe.set_memory(Memory::new(800, 1_000));
    assert_eq!(
        bench.at(1_000).burst(3).0,
        [Some(0), Some(500), Some(1_000)]
    );
}

#[test]
fn nobody_pays_for_memory_before_a_rule_looks_at_it() {
    #[derive(Debug)]
    struct Never;
    impl Probe for Never {
        fn load(&self) -> Option<f64> {
            None
        }
        fn cpu(&self) -> Option<f64> {
            None
        }
        fn memory(&self) -> Option<Memory> {
            panic!("asked")
        }
    }
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("r", 1))
        .sampler(Sampler::new(Never))
        .clock(clock.clone())
        .build();
    let bench = Bench { sentinel, clock };
    assert_eq!(bench.passed(3), 1);
    // And a probe that panics is one that does not know.
    assert!(
        bench
            .sentinel
            .reload(FlowRule::per_second("r", 5).memory(0.1..0.2, 1).into())
    );
    assert_eq!(bench.at(2_000).passed(9), 5);
}

// === warm-up ===

/// How many of 200 calls a second pass, second by second.
fn ramp(bench: &Bench, from: u64, seconds: u64) -> Vec<usize> {
    (from..from + seconds)
        .map(|second| bench.at(second * 1_000).passed(200))
        .collect()
}

#[test]
fn a_cold_rule_admits_a_third_and_warms_up_within_its_period() {
    let rule = FlowRule::per_second("r", 100).warm_up(Duration::from_secs(10));
    let bench = Bench::new(rule);
    let passed = ramp(&bench, 0, 14);
    assert_eq!(passed[0], 33);
    assert!(
        passed.windows(2).all(|pair| pair[0] <= pair[1]),
        "{passed:?}"
    );
    assert_eq!(passed[11..], [100; 3]);
    assert!(passed[9] < 100, "{passed:?}");
    // After a long idle time it is cold again.
    assert_eq!(ramp(&bench, 100, 1), [33]);
}

#[test]
fn a_cold_queue_is_slow_and_gets_faster() {
    let rule = paced(10, 0)
        .warm_up(Duration::from_secs(5))
        .cold_factor(5.0);
    let bench = Bench::new(rule);
    let in_second = |second: u64| {
        (0..1_000)
            .filter(|at| bench.at(second * 1_000 + at).call(Call::new("r")).is_ok())
            .count()
    };
    let passed: Vec<_> = (0..9).map(in_second).collect();
    assert_eq!(passed[0], 2);
    assert!(passed[..3].iter().all(|passed| *passed <= 3), "{passed:?}");
    assert_eq!(passed[6..], [10; 3], "{passed:?}");
}

#[test]
fn a_queue_that_is_never_empty_warms_up_however_its_calls_come() {
    let period = Duration::from_secs(10);
    for every in [500, 1_000, 1_500, 2_000, 3_000, 4_900] {
        let bench = Bench::new(paced(10, 5_000).warm_up(period));
        let mut in_second = [0; 30];
        let mut queue = Vec::new();
        for now in (0..25_000).step_by(every) {
            let (waits, waiting) = bench.at(now).burst(60);
            queue.extend(waiting);
            for wait in waits.into_iter().flatten() {
                in_second[(now as usize + wait as usize) / 1_000] += 1;
            }
        }
        assert_eq!(in_second[..2], [4, 3], "every {every} ms");
        // Who comes seldom learns late that it is warm, and waits as told before.
        assert!(
            in_second[20..25].iter().all(|calls| *calls >= 9),
            "every {every} ms: {in_second:?}"
        );
    }
}

#[test]
fn small_thresholds_warm_up_as_well() {
    for threshold in 1..=5 {
        let rule = FlowRule::per_second("r", threshold).warm_up(Duration::from_secs(4));
        let passed = ramp(&Bench::new(rule), 0, 30);
        assert!(passed[0] >= 1, "{threshold}: {passed:?}");
        assert_eq!(passed[29], threshold as usize, "{threshold}: {passed:?}");
    }
}

#[test]
fn a_reload_keeps_what_is_warm() {
    let rule = |threshold| FlowRule::per_second("r", threshold).warm_up(Duration::from_secs(5));
    let bench = Bench::new(rule(100));
    assert_eq!(ramp(&bench, 0, 10)[9], 100);
    let other = Rules::new()
        .with(rule(100))
        .with(FlowRule::per_second("s", 1));
    assert!(bench.sentinel.reload(other));
    assert_eq!(ramp(&bench, 10, 1), [100]);
    assert!(bench.sentinel.reload(rule(50).into()));
    assert_eq!(ramp(&bench, 11, 1), [50]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_that_warm_up_refuses_passes_at_the_time_it_was_told(
        threshold in 1_u32..60,
        interval in proptest::sample::select(&[100_u64, 500, 1_000, 5_000, 60_000]),
        period in 1_u64..60,
        cold_factor in 1.1..8.0_f64,
        max_wait in proptest::option::of(proptest::sample::select(&[0_u64, 100, 2_000])),
        steps in proptest::collection::vec((0_u64..4_000_000_000, 1_u32..8, 1..60), 1..60),
    ) {
        let rule = FlowRule::per("r", threshold, ms(interval))
            .warm_up(Duration::from_secs(period))
            .cold_factor(cold_factor);
        let rule = match max_wait {
            Some(max_wait) => rule.throttle(ms(max_wait)),
            None => rule,
        };
        let bench = Bench::new(rule);
        for (gap, weight, calls) in steps {
            bench.clock.advance(Duration::from_nanos(gap * interval / 1_000));
            let call = Call::new("r").batch(weight);
            let mut waiting = Vec::new();
            let refused = (0..calls).find_map(|_| match bench.call(call) {
                Ok((_, turn)) => {
                    waiting.extend(turn);
                    None
                }
                Err(blocked) => Some(blocked),
            });
            let Some(blocked) = refused else { continue };
            let Some(wait) = blocked.retry_after() else {
                // Too heavy for a rule that gets no warmer while nobody comes.
                prop_assert!(weight > 1 && max_wait.is_none());
                continue;
            };
            let nano = Duration::from_nanos(1);
            // A queue takes it sooner, to wait there, and buckets of more than a second
            // tell late what warmed the rule up.
            if max_wait.unwrap_or(0) == 0 && interval <= 2_000 {
                bench.clock.advance(wait - nano);
                let early = bench.call(call).map(|_| ()).map_err(|early| early.retry_after());
                prop_assert_eq!(early, Err(Some(nano)), "{:?}", wait);
                bench.clock.advance(nano);
            } else {
                bench.clock.advance(wait);
            }
            prop_assert!(bench.call(call).is_ok(), "refused after {:?}", wait);
            // Until then those who wait had their places.
            drop(waiting);
        }
    }
}

#[test]
fn who_cannot_wait_as_long_as_a_queue_lets_it_is_told_when_it_need_not() {
    let second = Duration::from_secs(1);
    let queue = || FlowRule::per_second("r", 0.1).throttle(second * 20);
    let values = || KeyedRule::per_second("r", 0.1).throttle(second * 20);
    let fine = || FlowRule::per("r", 1_000, ms(2));
    let queue_of_nobody = fine().throttle(second).max_waiting(0);
    let cases = [
        (queue().into(), None, 10_000),
        // Nobody may wait.
        (Rules::from(queue().max_waiting(0)), None, 30_000),
        // The call waits for less than that.
        (queue().into(), Some(second * 3), 27_001),
        // A rule with 512 buckets of 1 ms to come.
        (Rules::new().with(queue()).with(fine()), None, 29_488),
        // The same in the queue of a value.
        (values().into(), None, 10_000),
        (
            Rules::new().with(values()).with(queue_of_nobody),
            None,
            30_000,
        ),
        (values().into(), Some(second * 3), 27_001),
        (Rules::new().with(values()).with(fine()), None, 29_488),
    ];
    for (rules, patience, told_ms) in cases {
        let bench = Bench::new(rules);
        let call = Call::new("r").param("p").batch(3);
        let call = patience.map_or(call, |patience| call.patience(patience));
        assert!(bench.call(call).is_ok());
        // Its turn is in 30 s.
        let blocked = bench.call(call).map(|_| ()).unwrap_err();
        let told = blocked.retry_after().unwrap();
        assert_eq!(told.as_nanos().div_ceil(1_000_000), told_ms);
        bench.clock.advance(told);
        assert!(bench.call(call).is_ok(), "refused after {told:?}");
    }
}

#[test]
fn who_can_never_have_a_turn_is_told_no_time() {
    let bench = Bench::new(FlowRule::per_second("r", 1e-12).throttle(ms(0)));
    assert!(bench.call(Call::new("r")).is_ok());
    let blocked = bench.call(Call::new("r")).map(|_| ()).unwrap_err();
    assert_eq!(blocked.retry_after(), None);
    // Once in 500 years there is one.
    let bench = Bench::new(FlowRule::per_second("r", 1.0 / 15_768_000_000.0).throttle(ms(0)));
    assert!(bench.call(Call::new("r")).is_ok());
    let blocked = bench.call(Call::new("r")).map(|_| ()).unwrap_err();
    assert!(blocked.retry_after().is_some());
}

// === bad input ===

#[test]
fn bad_shaping_names_the_field() {
    let second = Duration::from_secs(1);
    let rule = || FlowRule::per_second("r", 1);
    let cases = [
        (rule().throttle(Duration::MAX), "max_wait is "),
        (
            rule().warm_up(Duration::ZERO),
            "warm_up is 0ns, must be above 0",
        ),
        (
            rule().warm_up(second * 86_401),
            "warm_up is 86401s, must be above 0 and at most one day",
        ),
        (
            rule().warm_up(second).cold_factor(1.0),
            "cold_factor is 1, must be above 1",
        ),
        (
            rule().warm_up(second).cold_factor(f64::NAN),
            "cold_factor is NaN",
        ),
        (
            rule().cold_factor(2.0),
            "cold_factor is 2, must be given only with a warm-up",
        ),
        (
            rule().strict().throttle(second),
            "strict is true, must be false",
        ),
        (
            FlowRule::per_second("r", 9).memory(0.9..0.7, 1),
            "memory is 0.9..0.7, must be a rising range above 0 and at most 1",
        ),
        (
            FlowRule::per_second("r", 9).memory(0.7..1.1, 1),
            "memory is 0.7..1.1",
        ),
        (
            FlowRule::per_second("r", 9).memory(f64::NAN..0.9, 1),
            "memory is NaN..0.9",
        ),
        (rule().memory(0.0..0.9, 1), "memory is 0..0.9"),
        (rule().memory(0.7..0.7, 1), "memory is 0.7..0.7"),
        (rule().memory_bytes(5..5, 1), "memory is 5..5 bytes"),
        (
            rule().memory(0.7..0.9, -1),
            "memory.threshold is -1, must be between 0 and the whole threshold, which is 1",
        ),
        (
            FlowRule::per_second("r", 0).memory(0.7..0.9, 1),
            "memory.threshold is 1, must be between 0 and the whole threshold, which is 0",
        ),
        (
            FlowRule::per_second("r", 9).memory_bytes(0..5, 1),
            "memory is 0..5 bytes, must be a rising range above 0",
        ),
        (
            FlowRule::per_second("r", 9).memory(0.7..0.9, 10),
            "memory.threshold is 10, must be between 0 and the whole threshold, which is 9",
        ),
        (
            FlowRule::per_second("r", 9)
                .memory(0.7..0.9, 1)
                .warm_up(second),
            "memory is 0.7..0.9, must be given only without a warm-up",
        ),
        (
            FlowRule::per_second("r", 9).memory(0.7..0.9, 1).when("s"),
            "related is \"s\", must be without `throttle`, `warm_up` or `memory`",
        ),
        (
            rule().when("s").throttle(second),
            "related is \"s\", must be without `throttle`, `warm_up` or `memory`",
        ),
    ];
    for (rule, expected) in cases {
        let error = Rules::build([rule]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_stands_at_the_edge_of_the_allowed_is_allowed() {
    let rule = || FlowRule::per_second("r", 1);
    let day = Duration::from_secs(86_400);
    let rules = [
        rule().throttle(day).warm_up(day).cold_factor(1_000.0),
        rule().memory(f64::MIN_POSITIVE..1.0, 1),
        rule().memory_bytes(1..2, 0),
        FlowRule::per_second("r", 0).memory(0.7..0.9, 0),
    ];
    assert_eq!(Rules::build(rules).unwrap().len(), 4);
}

#[test]
fn a_rule_that_looks_at_another_resource_asks_nothing_of_the_calls_there() {
    // However its own calls may borrow, and how many may wait.
    let looks = || FlowRule::per_second("read", 1).when("r");
    for looks in [
        looks().lend(false),
        looks().max_occupy_ratio(0.1),
        looks().max_waiting(1),
    ] {
        let what = format!("{looks:?}");
        let own = FlowRule::per_second("r", 2);
        let bench = Bench::new(Rules::build([own, looks]).unwrap());
        let call = |urgent| bench.call(Call::new("r").prioritized(urgent));
        assert!(call(false).is_ok() && call(false).is_ok());
        bench.clock.advance(ms(600));
        assert!(call(false).is_err());
        let waiting = [call(true), call(true)];
        let waits = |it: &Result<(Duration, Option<Waiting>), _>| {
            it.as_ref().is_ok_and(|(_, waiting)| waiting.is_some())
        };
        assert!(waiting.iter().all(waits), "{what}");
    }
}
