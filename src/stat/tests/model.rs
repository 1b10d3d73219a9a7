//! Random operations on the ring and on a naive oracle must give equal answers.

use proptest::prelude::*;

use super::oracle::{BUCKET_MS, Op, Rule, replay};

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0_u64..25).prop_map(Op::Advance),
        1 => (25_u64..400).prop_map(Op::Advance),
        1 => prop_oneof![Just(1 << 20), Just(BUCKET_MS << 30), Just(BUCKET_MS << 31), Just((BUCKET_MS << 31) + 10)]
            .prop_map(Op::Advance),
        1 => (0_u64..50).prop_map(Op::StepBack),
        10 => (0_u32..4).prop_map(Op::Take),
        1 => (0_u32..3).prop_map(Op::Add),
        2 => (0_usize..8).prop_map(Op::Refund),
        6 => ((1_u32..4), (0_u64..80)).prop_map(|(n, patience)| Op::Borrow(n, patience)),
        3 => (0_usize..8).prop_map(Op::Cancel),
        2 => Just(Op::Read),
    ];
    proptest::collection::vec(op, 1..200)
}

fn rules(buckets: u32) -> impl Strategy<Value = Vec<Rule>> {
    let rule = (1..=u64::from(buckets), 0_u32..12).prop_flat_map(move |(span, limit)| {
        let divisors: Vec<_> = (1..=span).filter(|stride| span % stride == 0).collect();
        proptest::sample::select(divisors).prop_map(move |stride| Rule {
            buckets: span / stride,
            stride,
            limit,
        })
    });
    proptest::collection::vec(rule, 1..4)
}

fn case() -> impl Strategy<Value = (u32, Vec<Rule>, u64, Vec<Op>)> {
    prop_oneof![Just(1_u32), Just(2), Just(3), Just(5), Just(10), Just(60)].prop_flat_map(
        |buckets| {
            // The last two start just before stamps wrap.
            let start = prop_oneof![
                Just(0_u64),
                Just(1_000_000),
                Just(((1 << 30) - 20) * BUCKET_MS),
                Just(((1 << 32) - 7) * BUCKET_MS),
            ];
            (Just(buckets), rules(buckets), start, ops())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ring_answers_as_the_oracle_does((buckets, rules, start, ops) in case()) {
        replay(buckets, &rules, start, ops);
    }
}

/// The number of cases: `SENTINEL_CASES`, or 500 for a quick run.
fn cases() -> u32 {
    std::env::var("SENTINEL_CASES").map_or(500, |cases| {
        cases.parse().expect("SENTINEL_CASES is a number")
    })
}
