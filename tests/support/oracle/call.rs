//! Calls, and how they end.

use tower_sentinel::call::Param;
use tower_sentinel::{Call, Entry, Key};

use crate::support::ms;

/// Nanoseconds of a millisecond.
pub(crate) const NS: u64 = 1_000_000;
/// When the engines begin, in ms: as a bench does.
pub(crate) const BEGIN: u64 = 10_000;
pub(crate) const RESOURCES: [&str; 2] = ["a", "b"];
/// Values of parameters. The last one is a number.
pub(crate) const VALUES: [&str; 3] = ["ann", "bob", "7"];

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) resource: &'static str,
    pub(crate) origin: Option<&'static str>,
    pub(crate) context: Option<&'static str>,
    pub(crate) weight: u32,
    pub(crate) given: Given,
    pub(crate) has_tier: bool,
    pub(crate) is_outbound: bool,
    pub(crate) is_prioritized: bool,
    /// In ms.
    pub(crate) patience: Option<u64>,
}

/// The parameters of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    Nothing,
    One(&'static str),
    Two([Option<&'static str>; 2]),
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Good,
    Failed,
    Ignored,
    Cancelled,
}

impl End {
    pub(crate) fn of(self, mut entry: Entry) {
        match self {
            Self::Good => drop(entry),
            Self::Failed => entry.fail(),
            Self::Ignored => entry.ignore(),
            Self::Cancelled => entry.cancel(),
        }
    }
}

pub(crate) fn value(text: &'static str) -> Key<'static> {
    text.parse::<u64>().map_or(text.into(), Key::from)
}

impl Asks {
    /// A call that has a value for every rule.
    pub(crate) fn with_all(resource: &'static str) -> Self {
        Self {
            resource,
            origin: Some("x"),
            context: None,
            weight: 1,
            given: Given::Two([Some("ann"); 2]),
            has_tier: false,
            is_outbound: false,
            is_prioritized: false,
            patience: None,
        }
    }

    pub(crate) fn asked<T>(&self, then: impl FnOnce(Call<'_>) -> T) -> T {
        match self.given {
            Given::Nothing => then(self.bare()),
            Given::One(text) => then(self.bare().param(value(text))),
            Given::Two(_) => then(self.call(&self.params())),
        }
    }

    /// The call, with what [`params`](Self::params) gives.
    pub(crate) fn call<'a>(&self, params: &'a [Param<'a>]) -> Call<'a> {
        self.bare().params(params)
    }

    fn bare<'a>(&self) -> Call<'a> {
        let mut call = Call::new(self.resource)
            .batch(self.weight)
            .prioritized(self.is_prioritized);
        if let Some(origin) = self.origin {
            call = call.origin(origin);
        }
        if let Some(context) = self.context {
            call = call.context(context);
        }
        if let Some(most) = self.patience {
            call = call.patience(ms(most));
        }
        if self.is_outbound {
            call = call.outbound();
        }
        if self.has_tier {
            call.tier("pro")
        } else {
            call
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
}
