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

pub(crate) fn value(text: &'static str) -> Key<'static> {
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
            Given::Two(_) => then(call.params(&self.params())),
        }
    }

    /// The value of each parameter, where they have names.
    pub(crate) fn values(&self) -> [Option<&'static str>; 2] {
        match self.given {
            Given::Nothing => [None; 2],
            Given::One(value) => [Some(value), None],
            Given::Two(given) => given,
        }
    }

    /// The same as a call has them.
    pub(crate) fn params(&self) -> [Param<'static>; 2] {
        let [item, user] = self.values();
        let param = |name, given: Option<_>| {
            given.map_or(Param::missing(name), |text| Param::new(name, value(text)))
        };
        [param("item", item), param("user", user)]
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
