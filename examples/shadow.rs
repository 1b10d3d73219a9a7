//! Trying out limits on live traffic without refusing anybody.
//!
//! ```text
//! cargo run --example shadow
//! ```
//!
//! Three candidates for a limit per user run in shadow mode for ten seconds, in which
//! one user sends far more requests than the others. All requests pass; the table says
//! how many each candidate would have refused. Then one of them is enforced.

#![allow(clippy::disallowed_types, reason = "a hook of an example keeps a list")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_sentinel::hook::{BlockEvent, Hook};
use tower_sentinel::{Call, FlowRule, KeyedRule, ManualClock, Rules, Sentinel, Verdict};

const SECONDS: u64 = 10;
/// Users, and how many requests a second each of them sends.
const USERS: &[(&str, u64)] = &[("ann", 2), ("bob", 4), ("eve", 40)];

/// How many calls each rule would have refused, by user.
#[derive(Debug, Default)]
struct WouldBlock(Mutex<BTreeMap<(String, String), u64>>);

impl Hook for WouldBlock {
    fn on_shadow_block(&self, event: &BlockEvent<'_>) {
        let user = event.param().map(|user| user.to_string());
        let key = (event.blocked().rule().to_owned(), user.unwrap_or_default());
        *self
            .0
            .lock()
            .expect("no hook panics")
            .entry(key)
            .or_default() += 1;
    }
}

fn candidate(limit: u32) -> KeyedRule {
    KeyedRule::per_second("/search", limit).id(format!("{limit} per second"))
}

fn main() {
    let clock = ManualClock::new();
    let told = Arc::new(WouldBlock::default());
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 1_000).id("all together"))
        .with(candidate(3).shadow())
        .with(candidate(10).shadow())
        .with(candidate(30).shadow());
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .hook("would-block", told.clone())
        .build();

    println!("{SECONDS} s of requests, with three limits in shadow mode, which refuse nobody:\n");
    let refused = send(&sentinel, &clock);
    println!("user   requests  refused   would be refused by a limit of");
    println!("                            3 per second  10 per second  30 per second");
    for (user, rate) in USERS {
        let would = |limit: &str| {
            let key = (format!("{limit} per second"), (*user).to_owned());
            let told = told.0.lock().expect("no hook panics");
            told.get(&key).copied().unwrap_or(0)
        };
        println!(
            "{user:<6} {:>8} {:>8} {:>15} {:>14} {:>14}",
            rate * SECONDS,
            refused[user],
            would("3"),
            would("10"),
            would("30"),
        );
    }

    println!("\n10 per second would not refuse ann and bob, so this limit is enforced:\n");
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 1_000).id("all together"))
        .with(candidate(10));
    sentinel.reload(rules);
    let refused = send(&sentinel, &clock);
    println!("user   requests  refused");
    for (user, rate) in USERS {
        println!("{user:<6} {:>8} {:>8}", rate * SECONDS, refused[user]);
    }
}

/// Sends the requests of all users, evenly spaced, and returns how many of each user
/// were refused.
fn send(sentinel: &Sentinel, clock: &ManualClock) -> BTreeMap<&'static str, u64> {
    let mut refused: BTreeMap<_, _> = USERS.iter().map(|(user, _)| (*user, 0)).collect();
    for ms in 0..SECONDS * 1_000 {
        for (user, rate) in USERS {
            if ms % (1_000 / rate) == 0 {
                let call = Call::new("/search").param(*user);
                if let Verdict::Block(_) = sentinel.try_enter(call) {
                    *refused.entry(user).or_default() += 1;
                }
            }
        }
        clock.advance(Duration::from_millis(1));
    }
    refused
}
