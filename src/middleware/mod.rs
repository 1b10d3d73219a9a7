//! tower middleware.

mod body;
mod call;
mod classify;
mod future;
mod guarded;
mod layer;
mod mode;
mod service;
pub mod skip;

pub use body::ResponseBody;
pub use call::{CallFuture, CallLayer, CallService};
pub use classify::{ByStatus, Classify, Judgement, ResponseHead};
pub use future::ResponseFuture;
pub use layer::{Completion, SentinelLayer};
pub use mode::{Fail, Respond};
pub use service::SentinelService;

/// Any error, as tower's services that can fail in several ways return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
