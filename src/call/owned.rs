//! An owned copy of a call, which outlives its request: for calls that wait before they are judged.

use std::time::Duration;

use super::{Call, Flags, Importance, OwnedKey, Param, Params, Reserves};

/// An owned call: see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct OwnedCall {
    resource: OwnedKey,
    origin: Option<OwnedKey>,
    context: Option<OwnedKey>,
    params: OwnedParams,
    tier: Option<OwnedKey>,
    reserves: OwnedReserves,
    weight: u32,
    patience: Option<Duration>,
    flags: Flags,
}

/// The parameters of an owned call.
#[derive(Clone, Debug)]
enum OwnedParams {
    None,
    One(OwnedKey),
    Many(Vec<(String, Option<OwnedKey>)>),
}

/// The costs that an owned call reserves.
#[derive(Clone, Debug)]
struct OwnedReserves(Box<[(Box<str>, u32)]>);

// === impl OwnedReserves ===

impl From<Reserves<'_>> for OwnedReserves {
    fn from(reserves: Reserves<'_>) -> Self {
        let mut all = Vec::new();
        match reserves {
            Reserves::One(unit, n) => all.push((unit.into(), n)),
            Reserves::Many(many) => {
                for &(unit, n) in many {
                    all.push((unit.into(), n));
                }
            }
        }
        Self(all.into())
    }
}

impl OwnedReserves {
    /// Runs `f` with the borrowed form of the reservations.
    fn with<R>(&self, f: impl FnOnce(Reserves<'_>) -> R) -> R {
        match &*self.0 {
            [(unit, n)] => f(Reserves::One(unit, *n)),
            all => {
                let mut many: Vec<(&str, u32)> = Vec::with_capacity(all.len());
                for (unit, n) in all {
                    many.push((unit, *n));
                }
                f(Reserves::Many(&many))
            }
        }
    }
}

// === impl OwnedCall ===

impl From<&Call<'_>> for OwnedCall {
    fn from(call: &Call<'_>) -> Self {
        // All fields are named, so that a new field is not forgotten here.
        let Call {
            resource,
            origin,
            context,
            params,
            tier,
            reserves,
            weight,
            patience,
            flags,
        } = *call;
        let param = |param: &Param<'_>| (param.name.to_owned(), param.value.map(OwnedKey::from));
        Self {
            resource: resource.into(),
            origin: origin.map(OwnedKey::from),
            context: context.map(OwnedKey::from),
            params: match params {
                Params::None => OwnedParams::None,
                Params::One(value) => OwnedParams::One(value.into()),
                Params::Many(params) => OwnedParams::Many(params.iter().map(param).collect()),
            },
            tier: tier.map(OwnedKey::from),
            reserves: reserves.into(),
            weight,
            patience,
            flags,
        }
    }
}

impl OwnedCall {
    pub(crate) const fn importance(&self) -> Importance {
        self.flags.importance()
    }

    /// Runs `f` with the borrowed form of the call.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&Call<'_>) -> R) -> R {
        let many: Vec<_>;
        let params = match &self.params {
            OwnedParams::None => Params::None,
            OwnedParams::One(value) => Params::One(value.as_key()),
            OwnedParams::Many(params) => {
                let params = params.iter().map(|(name, value)| Param {
                    name,
                    value: value.as_ref().map(OwnedKey::as_key),
                });
                many = params.collect();
                Params::Many(&many)
            }
        };
        let with = |reserves: Reserves<'_>| {
            f(&Call {
                resource: self.resource.as_key(),
                origin: self.origin.as_ref().map(OwnedKey::as_key),
                context: self.context.as_ref().map(OwnedKey::as_key),
                params,
                tier: self.tier.as_ref().map(OwnedKey::as_key),
                reserves,
                weight: self.weight,
                patience: self.patience,
                flags: self.flags,
            })
        };
        self.reserves.with(with)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::call::Key;

    #[test]
    fn an_owned_call_equals_the_call() {
        let params = [
            Param::new("user", Key::Joined("a", "b")),
            Param::missing("page"),
        ];
        let call = Call {
            flags: Flags::DEFAULT.with_wants_quota(true).with_is_matched(true),
            ..Call::new(Key::Joined("GET", "/a"))
                .origin(7_u64)
                .context("web")
                .tier("pro")
                .reserves(&[("tokens", 5), ("KiB", 7)])
                .params(&params)
                .batch(3)
                .prioritized(true)
                .patience(Duration::from_millis(5))
                .criticality(crate::Criticality::Sheddable)
                .outbound()
        };
        for call in [call, call.param("x"), Call::new("/b").reserve("rows", 1)] {
            let kept = OwnedCall::from(&call).with(|kept| format!("{kept:?}"));
            let plain = format!("{call:?}");
            let plain = plain.replace("Joined(\"GET\", \"/a\")", "Str(\"GET /a\")");
            assert_eq!(kept, plain.replace("Joined(\"a\", \"b\")", "Str(\"a b\")"));
        }
    }
}
