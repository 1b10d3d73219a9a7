//! The handle of an engine, which a program holds, and its builder.

mod builder;
mod handle;

pub use builder::Builder;
pub use handle::Sentinel;
