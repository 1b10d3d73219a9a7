//! One client among many is hot; then somebody makes up a million of them.
//!
//! ```text
//! cargo run --example hot_key
//! ```
//!
//! Time is virtual, so the figures are the same in every run.

use std::time::Duration;

use tower_sentinel::{Call, HotParamRule, ManualClock, Sentinel, Verdict};

const SECONDS: u64 = 10;
/// Clients that call twice a second.
const CLIENTS: u64 = 1_000;
/// The one that is hot, and how often it calls in half a second.
const HOT: u64 = 0;
const HOT_CALLS: u64 = 1_000;
const MADE_UP: u64 = 1_000_000;

fn main() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(HotParamRule::per_second("search", 5).max_keys(65_536))
        .clock(clock.clone())
        .build();

    println!("Five calls a second for each client; there is room for 65536 of them or more.");
    println!("{CLIENTS} clients call twice a second, one of them 1000 times as often.\n");
    println!("second   hot: sent  passed   others: sent  passed   values");
    for second in 1..=SECONDS {
        let (mut hot, mut others, mut values) = (0, 0, 0);
        for _half in 0..2 {
            for client in 0..CLIENTS {
                let is_hot = client == HOT;
                let calls = if is_hot { HOT_CALLS } else { 1 };
                let passed = (0..calls).filter(|_| passes(&sentinel, client)).count();
                *(if is_hot { &mut hot } else { &mut others }) += passed;
            }
            (values, ..) = table(&sentinel);
            clock.advance(Duration::from_millis(500));
        }
        let (sent, by_others) = (2 * HOT_CALLS, 2 * (CLIENTS - 1));
        println!("{second:>6}   {sent:>9} {hot:>7}   {by_others:>12} {others:>7}   {values:>6}");
    }

    println!("\nThe hot client has just spent its quota, when in one moment a million");
    println!("made-up clients call once each:\n");
    while passes(&sentinel, HOT) {}
    print_table(&sentinel, "before");
    let made_up = CLIENTS..CLIENTS + MADE_UP;
    let passed = made_up.filter(|client| passes(&sentinel, *client)).count();
    print_table(&sentinel, "after");
    println!("\nIn all, {passed} of them passed: each has a quota while there is room for it, and");
    println!("all others share one. No quota is forgotten before it is whole again:\n");
    println!("  the hot client: {}", told(passes(&sentinel, HOT)));
    println!(
        "  a client that has not called: {}",
        told(passes(&sentinel, 1))
    );
    clock.advance(Duration::from_secs(1));
    println!("\nOne second later all are at rest, and their places free:\n");
    println!("  the hot client: {}", told(passes(&sentinel, HOT)));
    println!(
        "  a client that has not called: {}",
        told(passes(&sentinel, 1))
    );
    print_table(&sentinel, "then");
    println!("\nSo a flood holds up those who come during it, for as long as a quota takes to be");
    println!("whole again. A limit over all callers beside it, a `FlowRule`, bounds the rest.");
}

fn passes(sentinel: &Sentinel, client: u64) -> bool {
    let verdict = sentinel.try_enter(Call::new("search").param(client));
    matches!(verdict, Verdict::Pass(_))
}

fn told(has_passed: bool) -> &'static str {
    if has_passed { "passes" } else { "is refused" }
}

/// What the rule's table holds: values that are not at rest, calls of values
/// without a place, bytes.
fn table(sentinel: &Sentinel) -> (usize, u64, usize) {
    let node = sentinel.node("search").expect("it has been called");
    let rules = node.hot_params();
    let rule = &rules[0];
    (rule.values(), rule.overflows(), rule.footprint())
}

fn print_table(sentinel: &Sentinel, when: &str) {
    let (values, overflows, bytes) = table(sentinel);
    println!("  {when}: {values} values, {overflows} calls without a place, {bytes} bytes");
}
