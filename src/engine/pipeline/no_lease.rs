//! The stand-in for how a call takes permits of shared rules, where no rule can be shared.

use super::EngineRef;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::arrival::Arrival;
use crate::engine::call::nodes::{CallNodes, Claims};
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Leases;
use crate::stat::Reloaded;

pub(super) fn enter_leased(
    _: EngineRef<'_>,
    _: CallNodes,
    leases: &Leases,
    _: &Call<'_>,
    _: Tick,
    _: &mut Claims,
    _: &mut Arrival,
) -> Result<Verdict, Reloaded> {
    match *leases {}
}
