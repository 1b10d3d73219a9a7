//! Storms of threads and attacks by made-up names, of which no call is lost.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod classes;
mod crowd;
mod hot_attack;
mod hot_storm;
mod reload_storm;
mod shared_cells;
mod storm;
#[path = "../support/mod.rs"]
mod support;
