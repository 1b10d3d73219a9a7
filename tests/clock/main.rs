//! Clocks, and what an engine makes of their times.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kinds;
mod times;
