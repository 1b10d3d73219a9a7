//! Those who look: the page, and the log.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod journal;
mod page;
mod page_edits;
#[path = "../support/mod.rs"]
mod support;
