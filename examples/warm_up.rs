//! A rule that warms up: how many calls it admits, second by second.
//!
//! ```text
//! cargo run --example warm_up
//! ```
//!
//! Time is virtual, so the figures are the same in every run.

use std::time::Duration;

use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};

fn main() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("search", 60).warm_up(Duration::from_secs(10)))
        .clock(clock.clone())
        .build();

    println!("60 calls a second once warm, after 10 s; 100 a second come, except in a pause:\n");
    for second in 0..45 {
        let calls = if (16..36).contains(&second) { 0 } else { 100 };
        let passed = (0..calls)
            .filter(|_| matches!(sentinel.try_enter(Call::new("search")), Verdict::Pass(_)))
            .count();
        if calls > 0 {
            println!("{:>4} s  {passed:>3}  {}", second + 1, "#".repeat(passed));
        } else if second == 16 {
            println!("        20 s without calls");
        }
        clock.advance(Duration::from_secs(1));
    }
}
