//! The stand-in for the fast path of a shared rule, where no rule can be shared.

use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::Resource;

pub(crate) const fn try_after_lease(_: &Resource, _: &Call<'_>, _: Glance) -> Option<Tick> {
    None
}
