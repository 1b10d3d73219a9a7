//! One call in the engine: the nodes that count it, and how it ends or waits.

pub(crate) mod arrival;
pub(crate) mod entry;
#[cfg_attr(not(feature = "shared"), path = "no_lease.rs")]
pub(crate) mod lease;
pub(crate) mod meter;
pub(crate) mod nodes;
pub(crate) mod rare;
pub(crate) mod ring;
pub(crate) mod verdict;
pub(crate) mod waiting;
