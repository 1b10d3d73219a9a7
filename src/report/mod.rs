//! Looking at statistics: single figures without copying, and a copy of all.

mod json;
mod snapshot;
mod view;

pub use snapshot::{NodeSnapshot, Scope, Snapshot};
pub use view::{BreakerView, InboundView, NodeView};
