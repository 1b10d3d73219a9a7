//! Reads statistics: views read single figures without copying, and snapshots copy all figures.

mod breaker;
mod budget;
mod json;
mod keyed_rules;
mod known;
mod reading;
mod rules;
mod shadow;
mod shared;
mod shared_keys;
mod shedding;
mod snapshot;
pub(crate) mod view;

pub use crate::breaker::BreakerState;
pub use breaker::BreakerView;
pub use budget::BudgetSnapshot;
pub use keyed_rules::KeyedView;
pub use known::KeyedSnapshot;
pub use rules::RuleSnapshot;
pub use shadow::ShadowView;
pub use shared::SharedSnapshot;
pub use shared_keys::SharedKeyedView;
pub use shedding::Shedding;
pub use snapshot::{NodeSnapshot, Scope, Snapshot};
pub use view::{InboundView, NodeView};

pub(crate) use json::write_text;
#[cfg(feature = "tracing")]
pub(crate) use reading::read_resources;
#[cfg(feature = "observe")]
pub(crate) use reading::{Details, ResourceReading, read_resources_paced};
