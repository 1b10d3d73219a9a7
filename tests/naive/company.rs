//! Rules of all kinds together: who passes, which of them refuses, when a call will
//! pass, and what a refusal leaves behind.

use proptest::prelude::*;
use tower_sentinel::{Entry, Rules};

use crate::breakers::{Breaker, End, breaker};
use crate::hot::{Hot, hot, keep_two_at_once};
use crate::pair::Pair;
use crate::setup::{Setup, advance, setup};
use crate::versions::Version;
use crate::wants::{Wants, wants};

#[derive(Clone, Debug)]
pub(crate) struct Company {
    pub(crate) setup: Setup,
    pub(crate) hots: Vec<Hot>,
    pub(crate) breakers: Vec<Breaker>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Advance(u64),
    Call(Wants),
    End(usize, End),
}

impl Company {
    pub(crate) fn rules(&self) -> Rules {
        Version::from(self.clone()).rules()
    }
}

pub(crate) fn company() -> impl Strategy<Value = Company> {
    let hots = prop::collection::vec(hot(), 0..4);
    let breakers = prop::collection::vec(breaker(), 0..3);
    (setup(), hots, breakers).prop_map(|(setup, mut hots, breakers)| {
        keep_two_at_once(&mut hots, |hot| Some(hot));
        Company {
            setup,
            hots,
            breakers,
        }
    })
}

/// How a call ends.
pub(crate) fn how() -> impl Strategy<Value = End> {
    prop_oneof![
        4 => Just(End::Good),
        4 => Just(End::Failed),
        1 => Just(End::Ignored),
        1 => Just(End::Cancelled),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => advance().prop_map(Op::Advance),
        8 => wants().prop_map(Op::Call),
        5 => (any::<usize>(), how()).prop_map(|(index, end)| Op::End(index, end)),
    ]
}

pub(crate) fn end(mut entry: Entry, end: End) {
    match end {
        End::Good => drop(entry),
        End::Failed => entry.fail(),
        End::Ignored => entry.ignore(),
        End::Cancelled => entry.cancel(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn rules_of_all_kinds_answer_as_naive_ones(
        company in company(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut pair = Pair::new(company.into());
        for op in ops {
            pair.run(op)?;
            pair.compare()?;
        }
    }
}
