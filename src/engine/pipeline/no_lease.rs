//! A replacement for the check of shared rules in builds without the feature `shared`.

use super::attempt::Attempt;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Leases;
use crate::stat::Reloaded;

/// Never called, as no resource has leases in these builds.
pub(super) fn enter_leased(
    _: &mut Attempt<'_>,
    _: CallNodes,
    leases: &Leases,
) -> Result<Verdict, Reloaded> {
    match *leases {}
}
