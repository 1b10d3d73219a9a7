//! A quota for each client: first one of many clients is hot, then a million made-up
//! clients call at once.
//!
//! ```text
//! cargo run --example hot_key
//! ```
//!
//! Time is virtual, so the figures are the same in every run.

use std::time::Duration;

use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};

const SECONDS: u64 = 10;
/// Clients that call twice a second.
const CLIENTS: u64 = 1_000;
/// The hot client, and how often it calls in half a second.
const HOT: u64 = 0;
const HOT_CALLS: u64 = 1_000;
const MADE_UP: u64 = 1_000_000;

fn main() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(KeyedRule::per_second("search", 5).max_keys(65_536))
        .clock(clock.clone())
        .build();

    println!("Five calls a second for each client; there is room for at least 65536 clients.");
    println!("{CLIENTS} clients call twice a second; one of them calls 1000 times as often.");
    println!(
        "A quota is full when a client comes, and refills meanwhile: so at first, more pass.\n"
    );
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

    println!("\nThe hot client has just spent its quota. At this moment, a million made-up");
    println!("clients call once each:\n");
    while passes(&sentinel, HOT) {}
    print_table(&sentinel, "before");
    let made_up = CLIENTS..CLIENTS + MADE_UP;
    let passed = made_up.filter(|client| passes(&sentinel, *client)).count();
    print_table(&sentinel, "after");
    println!("\nIn all, {passed} of them passed: while there is room, each gets its own quota;");
    println!("all others share one. No quota is evicted before it is fully refilled:\n");
    println!("  the hot client: {}", told(passes(&sentinel, HOT)));
    println!(
        "  a client that has not called: {}",
        told(passes(&sentinel, 1))
    );
    clock.advance(Duration::from_secs(1));
    println!("\nOne second later all quotas are full again, and their places are free:\n");
    println!("  the hot client: {}", told(passes(&sentinel, HOT)));
    println!(
        "  a client that has not called: {}",
        told(passes(&sentinel, 1))
    );
    print_table(&sentinel, "then");
    println!("\nSo a flood holds up the clients that arrive during it, until a quota is refilled.");
    println!("To bound what passes in total, add a limit over all callers: a `FlowRule`.");
}

fn passes(sentinel: &Sentinel, client: u64) -> bool {
    let verdict = sentinel.try_enter(Call::new("search").param(client));
    matches!(verdict, Verdict::Pass(_))
}

fn told(has_passed: bool) -> &'static str {
    if has_passed { "passes" } else { "is refused" }
}

/// The state of the rule's table: the number of values that are not at rest, the
/// number of calls whose value got no place, and its size in bytes.
fn table(sentinel: &Sentinel) -> (usize, u64, usize) {
    let node = sentinel.node("search").expect("it has been called");
    let rules = node.keyed_rules();
    let rule = &rules[0];
    (rule.values(), rule.overflows(), rule.footprint())
}

fn print_table(sentinel: &Sentinel, when: &str) {
    let (values, overflows, bytes) = table(sentinel);
    println!("  {when}: {values} values, {overflows} calls without a place, {bytes} bytes");
}
