//! Compares the warm-up with an independent implementation of its formulas, for random rules and
//! loads.

use proptest::prelude::*;

use super::oracle::Oracle;
use super::*;

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
            let step_of = |ms: u64| ms / 1_000 / oracle.step;
            let present = step_of(now);
            // If no call came in the previous step, no tokens passed in it.
            let before: Vec<_> = log.iter().filter(|&&(ms, _)| step_of(ms) + 1 == present).collect();
            let expected = oracle.limit(present, |_| before.iter().map(|(_, n)| n).sum());
            prop_assert_eq!(rule.stored(), oracle.stored);
            prop_assert!(close(found, expected), "{} {}", found, expected);
            log.push((now, (found * demand) as u64));
        }
    }
}
