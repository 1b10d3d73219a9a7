//! Flow control for tower services: limits how many calls can pass in a window of time
//! and how many can run at once, and lets calls wait for the next free place.
//!
//! The crate brings the ideas of Alibaba Sentinel to async Rust. Limits are exact under any
//! interleaving of threads, and waiting is a timer in the response future. There is no
//! lock on the path of a known key, no background thread, and no `unsafe`.
//!
//! ```
//! use axum::Router;
//! use axum::body::Body;
//! use axum::http::{Request, StatusCode};
//! use axum::routing::get;
//! use tower::ServiceExt;
//! use tower_sentinel::{FlowRule, IsolationRule, Rules, SentinelLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let rules = Rules::new()
//!     .with(FlowRule::per_second("/users/{id}", 2)) // two a second, over all ids
//!     .with(IsolationRule::new("/report", 8)); // eight at once
//! let app = Router::new()
//!     .route("/users/{id}", get(|| async { "hello" }))
//!     .layer(SentinelLayer::new(rules));
//!
//! let get = |path| app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
//! assert_eq!(get("/users/1").await.unwrap().status(), StatusCode::OK);
//! assert_eq!(get("/users/2").await.unwrap().status(), StatusCode::OK);
//! let refused = get("/users/3").await.unwrap();
//! assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(refused.headers()["retry-after"], "1");
//! # });
//! ```
//!
//! # How a call travels
//!
//! ```text
//! request → key         the called resource, and the caller
//!         → pipeline    authority, system, breakers, isolation, parameters, flow:
//!                       all rules in one decision
//!         → Entry       it runs; dropping the entry records how it ended
//!         | Waiting     it has a place in a future bucket, and a timer
//!         | Blocked     429 and a time to retry after, or an error for clients
//!         → stat        counts calls: passed, refused, ended, failed, in flight
//! ```
//!
//! # Where to look
//!
//! | question | answer |
//! |---|---|
//! | How are the terms defined: resource, origin, context, parameter, weight, queue? | [`guide::words`] |
//! | How do I …? How do I migrate from another crate? | [`guide::index`], [`guide::migration`] |
//! | How do I limit a router, a gRPC server, a client? | [`SentinelLayer`], [`middleware`] |
//! | How do I limit all routes together? | [`SentinelLayer::named`] |
//! | Which rules are there? | [`FlowRule`], [`KeyedRule`], [`IsolationRule`], [`CircuitBreakerRule`], [`rule`] |
//! | How do I read rules from a file, or from Sentinel? | `document` (feature `serde`) |
//! | How are resources and callers named, also if a request names no caller? | [`key`], [`MissingKey`] |
//! | How do I guard code that is not a service, such as a call to a database? | [`Sentinel::run`] |
//! | How do I exempt some requests from all limits? | [`SentinelLayer::skip`], [`middleware::skip`] |
//! | Why does a rule refuse no call? | [`Sentinel::findings`] |
//! | How does a client see a refusal? | [`middleware::rejection`] |
//! | How do I read the statistics? | [`Sentinel::node`], [`Sentinel::snapshot`], [`hook`] |
//! | How does the window work, and can I use it alone? | [`stat::LeapArray`], [`stat::SlidingWindow`] |
//! | How do I limit by key without an engine? | [`keyed::KeyedLimiter`] |
//! | How do I watch a running engine? | `observe::page` (feature `page`): a live page for the browser |
//! | How do I change rules while the program runs? | [`Sentinel::reload`], [`source`] |
//! | How do I test code with limits? | [`ManualClock`] |
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `axum` | resources and parameters by axum's matched path, addresses by its `ConnectInfo` |
//! | `tonic` | addresses by tonic's connect info |
//! | `quanta` | [`clock`]`::QuantaClock`, which reads the time-stamp counter |
//! | `serde` | `document`: rules from JSON and TOML, including Sentinel's own formats |
//! | `system` | [`system`]`::SystemProbe`, which reads load and CPU use on Linux |
//! | `page` | `observe::page`: a live page of the engine, which a program serves under a path of its choice |
//! | `dashboard` | `observe::dashboard`: Sentinel's dashboard shows the engine and changes its rules |
//! | `observe` | `observe`: the service behind `/metrics` for Prometheus; other features of `observe` imply it |
//! | `tracing`, `metrics` | `observe::journal` and `observe::facade`: log lines by `tracing`, figures for the crate `metrics` |
//! | `shared` | limits that several processes share: [`Builder::store`], and [`store`]`::MemoryStore` |
//! | `redis` | `shared`, and [`store`]`::RedisStore` on a Redis or Valkey server |
//! | `redis-sentinel`, `redis-cluster`, `redis-tls` | `redis` with the master that Redis Sentinels choose, with a Redis Cluster, over TLS |
//! | `full` | all features |
//!
//! Most features only add items. `axum` and `tonic` also change what a layer reads from a request:
//!
//! * With `axum`, if axum has matched the request, its default resource is axum's matched
//!   path. Without `axum`, the path is matched against the templates among the names of
//!   the rules. Inside `nest`, and for methods of tonic in a router, the two resources
//!   [differ](key#what-the-feature-axum-changes).
//! * [`PeerIp`](key::PeerIp) finds the addresses of axum's connections only with `axum`,
//!   and the addresses of tonic's connections only with `tonic`. If it finds no address,
//!   all callers [share one quota](key::PeerIp#if-no-address-is-there) by default.
//!
//! Cargo turns a feature on for all crates of a program as soon as one crate asks for it.
//! So a program that uses axum or tonic should turn the feature on itself. A library, which
//! cannot know the features of a program, should name its resources by
//! [`SentinelLayer::resource`]. This depends on no feature as long as the extractor does not
//! look at routes.
//!
//! The crate needs 64-bit atomic integers, which many 32-bit targets have as well. On
//! WebAssembly (`wasm32-wasip1`) it works without `axum`, `tonic` and `dashboard`.
//!
//! # Guarantees
//!
//! Each guarantee is listed with the test that checks it. The files in `tests` are not in the
//! published package.
//!
//! * A window that ends at the end of a bucket never holds more than its limit, under any
//!   interleaving of threads: `stat::models` (loom). For other intervals see
//!   [`stat::LeapArray`] and [`FlowRule::strict`].
//! * No call is lost, or counted in the wrong bucket: `stat::tests::model`.
//! * Every call is recorded once, however it ends: `tests/engine/cancel.rs`.
//! * Memory is bounded for any requests: `tests/memory.rs`. The price is that made-up keys can make
//!   new callers [share a quota](KeyedRule::max_keys).
//! * A call to a known resource takes no lock and allocates nothing:
//!   `tests/allocations.rs`.
//! * All guarantees and their limits: [`guide::guarantees`]. `docs/proofs.md` has the tests by name.
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Items that only stores or `observe` use are not marked one by one, so a build without one of the
// features has dead code.
#![cfg_attr(
    not(all(feature = "observe", feature = "shared")),
    allow(
        dead_code,
        reason = "a build with both features tells what nobody uses"
    )
)]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("tower-sentinel requires 64-bit atomics, which this target does not support");

// Lets tests in the crate name public items as users do.
#[cfg(test)]
extern crate self as tower_sentinel;

mod adaptive;
mod base;
mod blocked;
mod breaker;
mod budget;
pub mod call;
pub mod clock;
#[cfg(feature = "serde")]
pub mod document;
mod engine;
pub mod guide;
pub mod hook;
pub mod key;
pub mod keyed;
pub mod middleware;
#[cfg(feature = "observe")]
#[cfg_attr(docsrs, doc(cfg(feature = "observe")))]
pub mod observe;
pub mod read;
pub mod rule;
mod sentinel;
mod shape;
pub mod source;
pub mod stat;
pub mod store;
pub mod system;

pub use base::invalid::InvalidSetting;
pub use base::thread::ThreadHandle;
pub use blocked::{BlockKind, Blocked};
pub use call::{Call, Criticality, Key};
pub use clock::{Clock, ManualClock};
pub use engine::{Entry, Meter, NotAdmitted, Verdict, Waiting};
pub use hook::Hook;
pub use middleware::{BoxError, SentinelLayer};
pub use rule::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, InvalidRules, IsolationRule,
    KeyedRule, MissingKey, Rule, Rules, SystemRule,
};
pub use sentinel::{Builder, Sentinel};

/// Compiles the programs of the README as examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
