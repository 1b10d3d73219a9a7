//! A circuit breaker in front of a service that fails for a while.
//!
//! ```text
//! cargo run --example circuit_breaker
//! ```
//!
//! Time is virtual, so the figures are the same in every run.

use std::sync::Arc;
use std::time::Duration;

use tower_sentinel::hook::{BreakerEvent, Hook};
use tower_sentinel::{Call, CircuitBreakerRule, Clock, ManualClock, Sentinel, Verdict};

/// Prints when a breaker changes its state, and why.
#[derive(Debug)]
struct Watch(ManualClock);

impl Hook for Watch {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let at = self.0.now().as_millis();
        let why = match event.value() {
            Some(share) => format!("  ({:.0} % of the calls failed)", share * 100.0),
            None => String::new(),
        };
        println!("{at:>6} ms  {:?} → {:?}{why}", event.from(), event.to());
    }
}

fn main() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(
            // It opens for three seconds when at least half of the calls in a second
            // have failed, and there were at least ten.
            CircuitBreakerRule::error_ratio("pay", 0.5)
                .min_calls(10)
                .open_for(Duration::from_secs(3)),
        )
        .clock(clock.clone())
        .hook("watch", Arc::new(Watch(clock.clone())))
        .build();

    println!("Ten calls a second to a service that fails between 2 s and 8 s:\n");
    let (mut answered, mut failed, mut refused) = (0, 0, 0);
    for tenth in 0..150 {
        let is_broken = (20..80).contains(&tenth);
        match sentinel.try_enter(Call::new("pay")) {
            Verdict::Pass(mut entry) => {
                if is_broken {
                    entry.fail();
                    failed += 1;
                } else {
                    answered += 1;
                }
            }
            _ => refused += 1,
        }
        clock.advance(Duration::from_millis(100));
    }
    println!(
        "\n{answered} calls were answered, {failed} failed, and {refused} were refused at once."
    );
    println!("Without the breaker, 60 calls would have failed.");
}
