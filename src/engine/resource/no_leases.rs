//! A replacement for the shared rules of a resource in builds without the feature `shared`.

use std::time::Duration;

use super::optional::{OptionalChecks, ResourceInputs};
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::rule::SharedCostRule;
use crate::store::StoreError;

/// The shared rules of a resource, which never exist.
#[derive(Debug)]
pub(crate) enum Leases {}

/// The permits of a call, which never exist.
#[derive(Debug)]
pub(crate) enum HeldLeases {}

impl Leases {
    pub(super) const fn new(
        _: &ResourceInputs<'_>,
        _: &[u32],
        _: Option<&OptionalChecks>,
    ) -> Option<Self> {
        None
    }

    pub(crate) const fn only_one(&self) -> Option<()> {
        match *self {}
    }

    pub(super) const fn costs(&self) -> Vec<SharedCostRule> {
        match *self {}
    }

    pub(super) const fn memory(&self) -> Duration {
        match *self {}
    }

    pub(crate) const fn room_at(&self, _: &Call<'_>, _: Tick) -> Option<Tick> {
        match *self {}
    }

    pub(crate) const fn by_key(&self) -> Vec<u32> {
        match *self {}
    }

    #[cfg(feature = "page")]
    pub(crate) const fn resets(&self) -> Vec<(u32, u64)> {
        match *self {}
    }

    pub(crate) const fn left(&self, _: u32, _: &Key<'_>, _: Tick) -> Option<(u32, u32)> {
        match *self {}
    }

    pub(crate) async fn reset(&self, _: u32, _: &Key<'_>) -> Result<bool, StoreError> {
        match *self {}
    }

    pub(crate) const fn count_taken(&self) {
        match *self {}
    }
}
