//! A queue whose pace warms up, against the formulas of both.

#[path = "../../src/shape/tests/warm_up/oracle.rs"]
mod oracle;

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::clock::Tick;
use tower_sentinel::{Call, FlowRule, Verdict};

use crate::support::bench::Bench;
use oracle::Oracle;

const SECOND: u64 = 1_000_000_000;
/// Costs are told in whole nanoseconds, and thresholds to 50 bits.
const ROUNDING: u64 = 10;

/// A queue, and the warm-up that says how fast it is.
struct Queue {
    warm: Oracle,
    /// The tokens that had passed at the last refill.
    noted: u64,
    /// When calls had their turn, in ns, and of which weight.
    turns: Vec<(u64, u64)>,
}

impl Queue {
    fn new(warm: Oracle) -> Self {
        Self {
            warm,
            noted: 0,
            turns: Vec::new(),
        }
    }

    /// The limit for who comes at `now`.
    fn limit(&mut self, now: u64) -> f64 {
        let step = self.warm.step;
        let step_of = |at: u64| at / SECOND / step;
        let present = step_of(now);
        let before = self
            .turns
            .iter()
            .filter(|turn| turn.0 / SECOND < now / SECOND);
        let before: u64 = before.map(|turn| turn.1).sum();
        let last_turn = self.turns.last().map(|turn| step_of(turn.0));
        let noted = &mut self.noted;
        self.warm.limit(present, |filled| {
            // In each step somebody came, or somebody's turn did.
            let was_busy =
                present == filled + 1 || last_turn.is_some_and(|last| last + 1 >= present);
            let since = before - std::mem::replace(noted, before);
            if was_busy { since } else { 0 }
        })
    }

    /// When a call of weight `n` has its turn that comes at `now`.
    fn turn(&mut self, now: u64, n: u32) -> u64 {
        let limit = self.limit(now);
        let cost = (f64::from(n) * SECOND as f64 / limit).ceil() as u64;
        self.turns
            .last()
            .map_or(now, |&(last, _)| now.max(last + cost))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn turns_are_those_of_the_formulas(
        q in prop_oneof![1..20_u32, 1..200_u32].prop_map(|tenths| f64::from(tenths) / 10.0),
        p in 1..30_u32,
        f in prop_oneof![Just(3.0), Just(2.0), 1.5..8.0],
        max_wait in prop_oneof![Just(0), 0..500_u64, 500..6_000_u64],
        batches in prop::collection::vec((0..5_000_u64, 1..20_usize, 1..3_u32), 1..60),
    ) {
        prop_assume!(2.0 * f64::from(p) * q / (1.0 + f) > 1.001);
        let max_wait = max_wait * 1_000_000;
        let rule = FlowRule::per_second("r", q)
            .throttle(Duration::from_nanos(max_wait))
            .warm_up(Duration::from_secs(p.into()))
            .cold_factor(f);
        let bench = Bench::new(rule);
        let mut naive = Queue::new(Oracle::new(q, p.into(), f));
        let (mut now, mut waits) = (0, Vec::new());
        for (gap, calls, weight) in batches {
            now += if gap < 2_500 { gap / 4 } else { gap };
            let at = Tick::from_millis(10_000 + now).as_nanos();
            bench.at(now);
            for _ in 0..calls {
                let expected = naive.turn(at, weight);
                let found = match bench.sentinel.try_enter(Call::new("r").batch(weight)) {
                    Verdict::Pass(_) => at,
                    Verdict::Wait(waiting) => {
                        let start = waiting.start().as_nanos();
                        waits.push(waiting);
                        start
                    }
                    _ => {
                        prop_assert!(expected - at + ROUNDING > max_wait);
                        continue;
                    }
                };
                prop_assert!(found.abs_diff(expected) <= ROUNDING, "{} {}", found, expected);
                prop_assert!(found - at <= max_wait);
                naive.turns.push((found, weight.into()));
            }
        }
    }
}

#[test]
fn a_queue_that_is_never_empty_is_warm_later_by_its_longest_wait() {
    for period in [4, 10, 30] {
        for wait in [1, 2, 5, 15].into_iter().filter(|wait| 2 * wait <= period) {
            for every in [100, 700, 1_000, 4_900]
                .into_iter()
                .filter(|&every| every <= wait * 1_000)
            {
                let rule = FlowRule::per_second("r", 100)
                    .throttle(Duration::from_secs(wait))
                    .max_waiting(u32::MAX)
                    .warm_up(Duration::from_secs(period));
                let bench = Bench::new(rule);
                // One and a half periods, the longest wait, and two steps.
                let warm = period * 3 / 2 + wait + 2;
                let end = warm + 2 * (period + wait);
                let (mut calls, mut in_second) = (Vec::new(), vec![0; (end + wait) as usize + 1]);
                for now in (0..end * 1_000).step_by(every as usize) {
                    bench.at(now);
                    loop {
                        let verdict = bench.sentinel.try_enter(Call::new("r"));
                        let turn = match &verdict {
                            Verdict::Pass(_) => now,
                            Verdict::Wait(its) => its.start().as_millis() - 10_000,
                            _ => break,
                        };
                        in_second[turn as usize / 1_000] += 1;
                        calls.push(verdict);
                    }
                }
                let what = format!("period {period} s, wait {wait} s, every {every} ms");
                let is_early = in_second[..period as usize].iter().all(|&calls| calls < 99);
                assert!(is_early, "{what}: {in_second:?}");
                let then = &in_second[warm as usize..end as usize];
                assert!(
                    then.iter().all(|&calls| calls >= 98),
                    "{what}: {in_second:?}"
                );
            }
        }
    }
}
