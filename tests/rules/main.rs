//! Rules: who passes, one kind after the other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calendar;
mod circuit_breaker;
mod flow;
mod flow_calendar;
mod histograms;
mod isolation;
mod keyed_rule;
mod keys;
mod long_windows;
mod narrow_slots;
mod pushback;
mod quotas;
mod shadow;
#[path = "../support/mod.rs"]
mod support;
