//! Tests of what the crate keeps to itself: the ring with its loans, and nodes.

mod model;
pub(in crate::stat) mod oracle;
mod replay;
pub(crate) mod rng;
mod stress;
mod vectors;
