//! Shared limits beside what others do on a Redis server, and a fleet of many processes.
//!
//! ```text
//! cargo bench --bench shared            # a minute
//! cargo bench --bench shared -- fleet   # only the fleet, which needs no server
//! ```
//!
//! Needs `redis-server` or `valkey-server` in the path, which it starts on a socket of its own;
//! without one these rows are skipped. Four processes are four engines with connections of their
//! own, in one thread.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod fleet;
mod limiters;
mod load;
mod server;

fn main() {
    // cargo passes options of its own.
    let only_fleet = std::env::args().any(|argument| argument == "fleet");
    fleet::run();
    if !only_fleet {
        load::run();
    }
}
