//! Whatever is done to a ring, it answers as the naive oracle of the tests does.
//!
//! ```text
//! cargo +nightly fuzz run ring -- -max_total_time=60
//! ```
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

use tower_sentinel::stat::oracle::{BUCKET_MS, Op, Rule, replay};

/// Lengths of rings; of the window of each rule, too, with any divisor.
const BUCKETS: [u32; 6] = [1, 2, 3, 5, 10, 60];
/// Some are just before the stamps wrap.
const STARTS: [u64; 4] = [
    0,
    1_000_000,
    ((1 << 30) - 20) * BUCKET_MS,
    ((1 << 32) - 7) * BUCKET_MS,
];
/// Gaps that bring a stamp back to where it was, or almost.
const LEAPS: [u64; 4] = [
    1 << 20,
    BUCKET_MS << 30,
    BUCKET_MS << 31,
    (BUCKET_MS << 31) + 10,
];

fn rule(input: &mut Unstructured<'_>, buckets: u32) -> Result<Rule> {
    let span = input.int_in_range(1..=u64::from(buckets))?;
    let strides: Vec<_> = (1..=span).filter(|stride| span % stride == 0).collect();
    let stride = *input.choose(&strides)?;
    Ok(Rule {
        buckets: span / stride,
        stride,
        limit: input.int_in_range(0..=11)?,
    })
}

fn op(input: &mut Unstructured<'_>) -> Result<Op> {
    Ok(match input.int_in_range(0..=9)? {
        0 => Op::Advance(input.int_in_range(0..=25)?),
        1 => Op::Advance(input.int_in_range(25..=400)?),
        2 => Op::Advance(*input.choose(&LEAPS)?),
        3 => Op::StepBack(input.int_in_range(0..=50)?),
        4 => Op::Take(input.int_in_range(0..=3)?),
        5 => Op::Add(input.int_in_range(0..=2)?),
        6 => Op::Refund(input.int_in_range(0..=7)?),
        7 => Op::Borrow(input.int_in_range(1..=3)?, input.int_in_range(0..=80)?),
        8 => Op::Cancel(input.int_in_range(0..=7)?),
        _ => Op::Read,
    })
}

fn case(input: &mut Unstructured<'_>) -> Result<()> {
    let buckets = *input.choose(&BUCKETS)?;
    let start = *input.choose(&STARTS)?;
    let rules = (0..input.int_in_range(1..=3)?)
        .map(|_| rule(input, buckets))
        .collect::<Result<Vec<_>>>()?;
    let mut ops = Vec::new();
    while !input.is_empty() && ops.len() < 500 {
        ops.push(op(input)?);
    }
    replay(buckets, &rules, start, ops);
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // Too short an input is none.
    let _ = case(&mut Unstructured::new(data));
});
