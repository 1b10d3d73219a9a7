//! Looking at a running engine from outside: what is served to people and to machines.
//!
//! Everything here reads counters that the engine keeps anyway, when somebody asks for them, so
//! calls pay nothing for it.

mod body;
#[cfg(feature = "page")]
pub mod page;

pub use body::Body;
