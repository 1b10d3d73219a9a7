//! Layers and services, over HTTP and gRPC, and what they answer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod at_head;
mod budgets;
mod class_travel;
mod client;
mod cohorts;
mod criticality;
mod extractors;
mod forwarded;
mod grpc;
mod hostile;
mod http;
mod payloads;
mod refusal;
mod service;
#[path = "../support/mod.rs"]
mod support;
mod units;
