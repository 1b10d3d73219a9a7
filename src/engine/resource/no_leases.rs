//! The stand-in for the shared rules of a resource, where no rule can be shared.

use std::time::Duration;

use super::OptionalChecks;
use crate::call::{Call, Direction};
use crate::clock::Tick;
use crate::engine::context::EngineContext;
use crate::rule::RuleSet;

/// Nothing makes a value of it.
#[derive(Debug)]
pub(crate) enum Leases {}

/// Nothing makes a value of it.
#[derive(Debug)]
pub(crate) enum HeldLeases {}

impl Leases {
    pub(super) const fn of(
        _: &RuleSet,
        _: &[u32],
        _: (&str, Direction),
        _: &EngineContext,
        _: Option<&OptionalChecks>,
    ) -> Option<Self> {
        None
    }

    pub(crate) const fn only_one(&self) -> Option<()> {
        match *self {}
    }

    pub(super) const fn memory(&self) -> Duration {
        match *self {}
    }

    pub(crate) const fn room_at(&self, _: &Call<'_>, _: Tick) -> Option<Tick> {
        match *self {}
    }

    pub(crate) const fn count_taken(&self) {
        match *self {}
    }
}
