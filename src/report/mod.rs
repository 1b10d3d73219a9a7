//! Looking at statistics: single figures without copying, and a copy of all.

mod hot_params;
mod json;
mod known;
mod reading;
mod rules;
mod shadow;
mod snapshot;
pub(crate) mod view;

pub use hot_params::HotParamView;
pub use known::{BreakerSnapshot, HotParamSnapshot, ShadowSnapshot};
pub use rules::RuleSnapshot;
pub use shadow::ShadowView;
pub use snapshot::{NodeSnapshot, Scope, Snapshot};
pub use view::{BreakerView, InboundView, NodeView};

pub(crate) use json::write_text;
pub(crate) use reading::{Details, Reading, read_resources};
