//! What a refused call is told, where calls wait and rules of all kinds stand
//! together: at that time it passes, or waits, if nobody else comes.

use std::time::Duration;

use proptest::prelude::*;

use crate::company::{Op, company};
use crate::reloads::{Side, Told};
use crate::twists::{WaitOp, wait_op, waiting_rules};
use crate::wants::wants;

const NANOSECOND: Duration = Duration::from_nanos(1);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn who_is_refused_passes_or_waits_at_the_time_it_was_told(
        mut company in company(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        patience in prop::option::of(0_u64..2_000),
        ops in prop::collection::vec(wait_op(), 1..100),
        last in prop::collection::vec(wants(), 1..20),
    ) {
        let rules = waiting_rules(&mut company, max_wait);
        let mut side = Side::new(rules, max_wait.max(1));
        for op in ops {
            side.run(op, with_loans, patience);
        }
        // Nobody knows when calls end.
        side.cancel_all();
        for wants in last {
            let call = WaitOp::Run(Op::Call(wants));
            let told = side.run(call, with_loans, patience);
            let Some(Told::Block(Some(after))) = told else {
                side.cancel_all();
                continue;
            };
            // Whenever one ends that waits.
            if after.is_zero() {
                continue;
            }
            side.bench.clock.advance(after - NANOSECOND);
            let early = side.run(call, with_loans, patience);
            prop_assert!(matches!(early, Some(Told::Block(Some(_)))), "{:?}: {:?}", wants, early);
            side.bench.clock.advance(NANOSECOND);
            let then = side.run(call, with_loans, patience);
            // A call that waits is one of those at once of its value.
            let is_kept = match then {
                Some(Told::Block(after)) => after == Some(Duration::ZERO),
                _ => true,
            };
            prop_assert!(is_kept, "{:?}: {:?} after {:?}", wants, then, after);
            side.cancel_all();
        }
    }
}
