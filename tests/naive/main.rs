//! The engine against a naive one: random rules and calls, equal answers.
//!
//! The naive engine remembers every call for ever, and adds up what a rule counts
//! each time it is asked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adaptive;
mod answers;
mod asked;
mod breakers;
mod by_hand;
mod company;
mod crowd;
mod defaults;
mod doors;
mod hot;
mod inbound;
mod oracle;
mod quotas;
mod reloads;
mod setup;
mod shadows;
mod shares;
#[path = "../support/mod.rs"]
mod support;
mod system;
mod table;
mod tasks;
mod told;
mod turns;
mod twists;
mod waits;
mod wants;
mod world;
