//! A line whose pace warms up, against the formulas of both.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::{Call, FlowRule, Tick, Verdict};

use support::bench::Bench;

const SECOND: u64 = 1_000_000_000;
/// Costs are told in whole nanoseconds, and thresholds to 50 bits.
const ROUNDING: u64 = 10;

/// One rule per second, as the sources write it, step by step.
struct Oracle {
    q: f64,
    f: f64,
    warning: f64,
    max: f64,
    /// In seconds.
    step: u64,
    stored: f64,
    /// The step of the last refill.
    filled: Option<u64>,
    /// The tokens that had passed by then.
    noted: u64,
    /// When calls had their turn, and of which weight.
    turns: Vec<(u64, u64)>,
}

impl Oracle {
    fn new(q: f64, p: f64, f: f64) -> Self {
        let warning = p * q / (f - 1.0);
        let max = warning + 2.0 * (p * q) / (1.0 + f);
        // Long enough that a cold rule admits one token.
        let step = (1_u32..).find(|step| f64::from(*step) * q / f >= 1.0 - 1e-9);
        Self {
            q,
            f,
            warning,
            max,
            step: step.unwrap().into(),
            stored: max,
            filled: None,
            noted: 0,
            turns: Vec::new(),
        }
    }

    fn step_of(&self, at: u64) -> u64 {
        at / SECOND / self.step
    }

    /// The tokens that passed before `second` began.
    fn passed_before(&self, second: u64) -> u64 {
        let before = self.turns.iter().filter(|turn| turn.0 / SECOND < second);
        before.map(|turn| turn.1).sum()
    }

    /// The limit for who comes at `now`.
    fn limit(&mut self, now: u64) -> f64 {
        let present = self.step_of(now);
        let last_turn = self.turns.last().map(|&(at, _)| self.step_of(at));
        if let Some(filled) = self.filled.filter(|filled| present > *filled) {
            let steps = present - filled;
            // In each step somebody came, or somebody's turn did.
            let was_busy = steps == 1 || last_turn.is_some_and(|last| last >= present - 1);
            let before = self.passed_before(now / SECOND);
            let passed = if was_busy { before - self.noted } else { 0 };
            let cold = if self.step == 1 {
                (self.q / self.f).floor() as u64
            } else {
                1
            };
            if self.stored <= self.warning || passed < cold * steps {
                let seconds = (steps * self.step) as f64;
                self.stored = (self.stored + seconds * self.q).min(self.max);
            }
            self.stored = (self.stored - passed as f64).max(0.0);
        }
        if self.filled.is_none_or(|filled| present > filled) {
            self.filled = Some(present);
            self.noted = self.passed_before(now / SECOND);
        }
        if self.stored <= self.warning {
            return self.q;
        }
        let slope = (self.f - 1.0) / self.q / (self.max - self.warning);
        1.0 / ((self.stored - self.warning) * slope + 1.0 / self.q)
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
        let mut oracle = Oracle::new(q, p.into(), f);
        let (mut now, mut line) = (0, Vec::new());
        for (gap, calls, weight) in batches {
            now += if gap < 2_500 { gap / 4 } else { gap };
            let at = Tick::from_millis(10_000 + now).as_nanos();
            bench.at(now);
            for _ in 0..calls {
                let expected = oracle.turn(at, weight);
                let found = match bench.sentinel.try_enter(Call::new("r").batch(weight)) {
                    Verdict::Pass(_) => at,
                    Verdict::Wait(waiting) => {
                        let start = waiting.start().as_nanos();
                        line.push(waiting);
                        start
                    }
                    _ => {
                        prop_assert!(expected - at + ROUNDING > max_wait);
                        continue;
                    }
                };
                prop_assert!(found.abs_diff(expected) <= ROUNDING, "{} {}", found, expected);
                prop_assert!(found - at <= max_wait);
                oracle.turns.push((found, weight.into()));
            }
        }
    }
}
