//! The warm-up against its formulas, written down once more, for any rule and load.

use proptest::prelude::*;

use super::*;

/// The rule as the sources write it, per second, and step by step.
struct Oracle {
    q: f64,
    f: f64,
    warning: f64,
    max: f64,
    step: u64,
    stored: f64,
    /// The start of the step of the last refill, in s.
    filled: Option<u64>,
}

impl Oracle {
    fn new(q: f64, p: f64, f: f64) -> Self {
        let warning = p * q / (f - 1.0);
        let max = warning + 2.0 * (p * q) / (1.0 + f);
        // Long enough that a cold rule admits one token.
        let mut step = 1;
        while step as f64 * q / f < 1.0 - 1e-9 {
            step += 1;
        }
        Self {
            q,
            f,
            warning,
            max,
            step,
            stored: max,
            filled: None,
        }
    }

    /// The limit; `passes` by the step that they were in.
    fn limit(&mut self, now_ms: u64, passes: impl Fn(u64) -> u64) -> f64 {
        let step = now_ms / 1_000 / self.step;
        match self.filled {
            Some(filled) if step > filled => {
                let previous = passes(step - 1);
                let cold = if self.step == 1 {
                    (self.q / self.f).floor()
                } else {
                    1.0
                };
                let idle = self.stored <= self.warning || (previous as f64) < cold;
                if idle {
                    self.stored += ((step - filled) * self.step) as f64 * self.q;
                }
                self.stored = self.stored.min(self.max) - previous as f64;
                self.stored = self.stored.max(0.0);
                self.filled = Some(step);
            }
            None => self.filled = Some(step),
            _ => {}
        }
        if self.stored <= self.warning {
            return self.q;
        }
        let slope = (self.f - 1.0) / self.q / (self.max - self.warning);
        1.0 / ((self.stored - self.warning) * slope + 1.0 / self.q)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn limits_are_those_of_the_formulas(
        q in prop_oneof![1..200_u32, 1..20_u32].prop_map(|tenths| f64::from(tenths) / 10.0),
        p in 1..60_u32,
        f in prop_oneof![Just(3.0), Just(2.0), Just(5.0), 1.5..10.0],
        from in 0..100_000_u64,
        calls in prop::collection::vec((0..4_000_u64, 0.0..1.5), 1..60),
    ) {
        prop_assume!(2.0 * f64::from(p) * q / (1.0 + f) > 1.001);
        let rule = per_second(q, p.into(), f);
        let mut oracle = Oracle::new(q, p.into(), f);
        prop_assert_eq!(rule.curve.ramp.unwrap().step_ns, oracle.step * 1_000_000_000);
        let mut log: Vec<(u64, u64)> = Vec::new();
        let mut now = from;
        for (gap, demand) in calls {
            now += if gap < 2_000 { gap / 4 } else { gap };
            let total = log.iter().map(|&(_, n)| n).sum();
            let found = rule.limit(at(now), None, || total);
            let step = oracle.step;
            let passes = |number| {
                log.iter()
                    .filter(|&&(ms, _)| ms / 1_000 / step == number)
                    .map(|&(_, n)| n)
                    .sum()
            };
            let expected = oracle.limit(now, passes);
            prop_assert_eq!(rule.stored(), oracle.stored);
            prop_assert!(close(found, expected), "{} {}", found, expected);
            log.push((now, (found * demand) as u64));
        }
    }
}
