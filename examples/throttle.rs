//! Traffic shaping: calls queue for evenly spaced turns, where a window would refuse them.
//!
//! ```text
//! cargo run --example throttle
//! ```
//!
//! Time is virtual, so the figures are the same in every run.

use std::time::Duration;

use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};

fn main() {
    println!("Twelve calls come at once; five a second may pass. How long each of them waits:\n");
    show("a window", FlowRule::per_second("job", 5));
    let throttle = FlowRule::per_second("job", 5).throttle(Duration::from_secs(1));
    show("a queue of at most 1 s", throttle);

    println!("A waiting call gives up:\n");
    let throttle = FlowRule::per_second("job", 5).throttle(Duration::from_secs(1));
    let sentinel = engine(throttle);
    let mut queue: Vec<_> = (0..6).filter_map(|_| wait(&sentinel)).collect();
    println!("  the queue is full: {}", told(wait(&sentinel)));
    queue.pop();
    println!("  the last one has left: {}", told(wait(&sentinel)));
}

/// Prints how long each of twelve simultaneous calls waits.
fn show(name: &str, rule: FlowRule) {
    let sentinel = engine(rule);
    let mut queue = Vec::new();
    print!("  {name:<26}");
    for _ in 0..12 {
        match sentinel.try_enter(Call::new("job")) {
            Verdict::Pass(_) => print!("{:>6}", "now"),
            Verdict::Wait(turn) => {
                print!("{:>6}", turn.delay().as_millis());
                queue.push(turn);
            }
            _ => print!("{:>6}", "-"),
        }
    }
    println!("  ms\n");
}

/// Makes a call, and returns its turn if it has to wait.
fn wait(sentinel: &Sentinel) -> Option<tower_sentinel::Waiting> {
    match sentinel.try_enter(Call::new("job")) {
        Verdict::Wait(turn) => Some(turn),
        _ => None,
    }
}

fn told(turn: Option<tower_sentinel::Waiting>) -> String {
    match turn {
        Some(turn) => format!("the next call waits {} ms", turn.delay().as_millis()),
        None => "the next call is refused".to_owned(),
    }
}

fn engine(rule: FlowRule) -> Sentinel {
    let clock = ManualClock::new();
    Sentinel::builder().rules(rule).clock(clock).build()
}
