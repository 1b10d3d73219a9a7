//! The form of the code, its public items, and the pages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod guarantees;
mod layering;
mod mutants;
