//! What can be configured, what is taken where nothing is said, and what is advised.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod defaults;
mod findings;
mod getters;
mod protection;
mod settings;
#[path = "../support/mod.rs"]
mod support;
