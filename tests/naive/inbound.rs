//! Rules on all inbound calls and limits that find themselves, in company: which rule
//! refuses, and what a refusal leaves behind.

use proptest::prelude::*;
use proptest::sample::select;

use crate::adaptive::adaptive;
use crate::company::company;
use crate::setup::RESOURCES;
use crate::system::limits;
use crate::world::{World, op};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn rules_on_all_calls_and_limits_that_find_themselves_fit_in(
        company in company(),
        limits in prop::collection::vec(limits(), 0..3),
        adaptives in prop::collection::btree_map(select(&RESOURCES[..]), adaptive(), 0..3),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(company, limits, adaptives);
        for op in ops {
            world.run(op)?;
        }
        world.rest()?;
    }
}
