//! Shows a running engine to people and to other programs.
//!
//! Everything here reads counters that the engine keeps anyway, and only on request, so calls pay
//! nothing for it.

mod body;
mod collect;
#[cfg(feature = "dashboard")]
pub mod dashboard;
#[cfg(any(
    all(feature = "page", feature = "serde"),
    all(feature = "dashboard", feature = "tracing")
))]
mod diff;
#[cfg(feature = "metrics")]
pub mod facade;
mod family;
mod host;
#[cfg(feature = "tracing")]
pub mod journal;
mod metrics;
mod negotiate;
#[cfg(feature = "page")]
pub mod page;
mod rounds;
mod rows;
mod rules;
mod shared;
#[cfg(any(feature = "page", all(feature = "dashboard", feature = "tracing")))]
mod span;
mod text;

pub use body::Body;
pub use family::{Family, FamilyKind, Sample, Value};
pub use metrics::Metrics;
pub use text::TextFormat;
