//! Rules under which calls wait: queues, warm-up, and lines.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod line;
mod line_layers;
mod line_values;
mod shaping;
#[path = "../support/mod.rs"]
mod support;
mod warm_queue;
