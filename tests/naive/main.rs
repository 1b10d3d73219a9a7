//! The engine against a naive one: random rules and calls, equal answers.
//!
//! The naive engine of `tests/support/oracle` remembers every call for ever, and adds up
//! what a rule counts each time it is asked. `generator` makes rules, calls and reloads.
//! `pair` has both engines hear the same; `side` is one of two real ones that do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "a hook of a test keeps a list")]

mod alike;
mod answers;
mod check;
mod generator;
mod layers;
#[path = "../support/oracle/mod.rs"]
mod oracle;
mod pair;
mod shadows;
mod side;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod told;
mod waits;
