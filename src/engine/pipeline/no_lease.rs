//! The stand-in for how a call takes permits of shared rules, where no rule can be shared.

use super::attempt::Attempt;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Leases;
use crate::stat::Reloaded;

pub(super) fn enter_leased(
    _: &mut Attempt<'_>,
    _: CallNodes,
    leases: &Leases,
) -> Result<Verdict, Reloaded> {
    match *leases {}
}
