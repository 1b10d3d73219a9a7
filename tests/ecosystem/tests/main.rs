//! The crate beside others: layers of tower-http, a parser of structured fields, and the limiters of
//! tower-resilience.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adaptive;
mod clock;
mod fields;
mod stacks;
#[path = "../../support/mod.rs"]
mod support;
