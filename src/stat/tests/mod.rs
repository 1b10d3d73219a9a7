//! Tests of crate-internal types: the ring with its loans, and nodes.

mod model;
pub(in crate::stat) mod oracle;
mod replay;
pub(crate) mod rng;
mod stress;
mod vectors;
