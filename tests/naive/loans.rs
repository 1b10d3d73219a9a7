//! Prioritized calls beside a naive engine: who borrows, and which bucket, as the rules
//! lend all of what leaves their windows, a part, or nothing.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::check::check;
use crate::generator::{Op, admits, advances, borrowers, drops, lenders, other_parts, reload};
use crate::pair::play;

#[test]
fn prioritized_calls_borrow_the_bucket_that_a_naive_engine_says() {
    let op = prop_oneof![
        10 => advances(),
        40 => borrowers().prop_map(Op::Call),
        4 => admits(),
        4 => drops(),
        1 => reload(other_parts()),
    ];
    let longest = prop_oneof![Just(500_u64), 1_u64..3_000];
    let inputs = (lenders(), longest, vec(op, 1..150));
    let events = [
        "passes",
        "waits",
        "begins",
        "leaves",
        "refused by flow",
        "reloaded",
    ];
    check(1_000, inputs, &events, |(rules, longest, ops)| {
        play(rules, longest, 1, ops)
    });
}
