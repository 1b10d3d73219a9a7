//! Engines: calls from their first judgement to their end, resources, reloads, and reports.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod budget_histories;
mod budgets;
mod calls;
mod cancel;
mod class_ends;
mod drops;
mod hooks;
mod judge_first;
mod key_budgets;
mod priority;
mod provider;
mod registry;
mod reload;
mod report;
mod reset;
mod selection;
mod skip;
#[path = "../support/mod.rs"]
mod support;
mod upgrade;
mod wait;
