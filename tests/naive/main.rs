//! The engine against a naive one: random rules and calls, equal answers.
//!
//! The naive engine remembers every call for ever, and adds up what a rule counts
//! each time it is asked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "a hook of a test keeps a list")]

mod adaptive;
mod answers;
mod asked;
mod breakers;
mod by_hand;
mod changes;
mod company;
mod crowd;
mod defaults;
mod doors;
mod hot;
mod inbound;
mod ledger;
mod loans;
mod oracle;
mod pair;
mod probes;
mod queues;
mod quotas;
mod reloaded_shadows;
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
mod versions;
mod waits;
mod wants;
mod world;
