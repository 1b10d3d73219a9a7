//! Calls with parameters, at random.

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::call::Param;
use tower_sentinel::{Call, Key};

use crate::setup::{Asks, asks};

/// The last one is a number.
pub(crate) const VALUES: [&str; 3] = ["ann", "bob", "7"];

/// A call with parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    pub(crate) call: Asks,
    pub(crate) given: Given,
    pub(crate) has_tier: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    Nothing,
    One(&'static str),
    Two([Option<&'static str>; 2]),
}

fn value(text: &'static str) -> Key<'static> {
    text.parse::<u64>().map_or(text.into(), Key::from)
}

impl Wants {
    pub(crate) fn asked<T>(&self, then: impl FnOnce(Call<'_>) -> T) -> T {
        let mut call = self.call.asked();
        if self.has_tier {
            call = call.tier("pro");
        }
        match self.given {
            Given::Nothing => then(call),
            Given::One(text) => then(call.param(value(text))),
            Given::Two(given) => {
                let param = |name, given: Option<_>| {
                    given.map_or(Param::missing(name), |text| Param::new(name, value(text)))
                };
                then(call.params(&[param("item", given[0]), param("user", given[1])]))
            }
        }
    }

    /// A call of `resource` that has a value for every rule.
    pub(crate) fn with_all(resource: &'static str) -> Self {
        let call = Asks {
            resource,
            origin: Some("x"),
            context: None,
            n: 1,
        };
        Self {
            call,
            given: Given::Two([Some("ann"); 2]),
            has_tier: false,
        }
    }
}

pub(crate) fn wants() -> impl Strategy<Value = Wants> {
    let one = || select(&VALUES[..]);
    let given = prop_oneof![
        1 => Just(Given::Nothing),
        4 => one().prop_map(Given::One),
        3 => [prop::option::of(one()), prop::option::of(one())].prop_map(Given::Two),
    ];
    (asks(), given, prop::bool::weighted(0.2)).prop_map(|(call, given, has_tier)| Wants {
        call,
        given,
        has_tier,
    })
}
