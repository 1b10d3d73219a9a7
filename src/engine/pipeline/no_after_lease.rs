//! A replacement for the fast path of shared rules in builds without the feature `shared`.

use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::Resource;

/// Returns `None`: no resource has this path.
pub(crate) const fn try_after_lease(_: &Resource, _: &Call<'_>, _: Glance) -> Option<Tick> {
    None
}
