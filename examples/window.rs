//! How windows differ: fixed, sliding and strict, in virtual time.
//!
//! ```text
//! cargo run --example window
//! ```

use std::time::Duration;

use tower_sentinel::stat::InvalidWindow;
use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, SlidingWindow, Tick, Verdict};

/// Calls per second, in every row of the table.
const LIMIT: u32 = 100;

fn main() -> Result<(), InvalidWindow> {
    let rule = || FlowRule::per_second("job", LIMIT);
    println!(
        "Limit: {LIMIT} calls per second. {LIMIT} calls come at 900 ms, and {LIMIT} more at 1100 ms.\n"
    );
    println!("                     passed at   passed at    shortest time   rate of a caller");
    println!("window                 900 ms     1100 ms   between bursts   that never stops");
    show("1 bucket (fixed)", &rule().buckets(1));
    show("2 buckets (default)", &rule().buckets(2));
    show("10 buckets", &rule().buckets(10));
    show("2 buckets, strict", &rule().buckets(2).strict());
    show("10 buckets, strict", &rule().buckets(10).strict());
    println!(
        "
A window moves on by whole buckets, so two bursts of {LIMIT} may be closer than a second;
more buckets push them apart. A strict window never holds more than its limit in
any second, wherever that begins, and pays for it with some of the rate.
"
    );
    show_sliding_window()
}

/// Prints what `rule` does, each figure measured on an engine of its own.
fn show(name: &str, rule: &FlowRule) {
    let [at_900, at_1100] = passed_in_bursts(rule);
    let apart = closest_bursts(rule).as_millis();
    let rate = sustained_percent(rule);
    println!("{name:<20} {at_900:>8} {at_1100:>11} {apart:>14} ms {rate:>15} %");
}

/// How many of the calls pass that come at once at 900 ms and at 1100 ms.
fn passed_in_bursts(rule: &FlowRule) -> [usize; 2] {
    let (sentinel, clock) = engine(rule);
    [900, 1_100].map(|ms| {
        clock.set(Tick::from_millis(ms));
        (0..LIMIT).filter(|_| passes(&sentinel, 1)).count()
    })
}

/// The shortest time between two bursts that use up the limit, over all
/// milliseconds at which the first can come.
fn closest_bursts(rule: &FlowRule) -> Duration {
    let (sentinel, clock) = engine(rule);
    let burst = Call::new("job").batch(LIMIT);
    let mut closest = Duration::MAX;
    for ms in 0..1_000 {
        // Far enough from the bursts before it.
        clock.set(Tick::from_millis(ms * 10_001));
        assert!(passes(&sentinel, LIMIT), "the window is empty");
        // The refusal tells when the next one would pass.
        if let Verdict::Block(blocked) = sentinel.try_enter(burst) {
            let room = blocked.retry_after().unwrap_or(Duration::MAX);
            closest = closest.min(room);
        }
    }
    closest
}

/// What passes of a call every millisecond, in percent of the limit. Over 33
/// seconds, into which all of the windows fit a whole number of times.
fn sustained_percent(rule: &FlowRule) -> u32 {
    const SECONDS: u32 = 33;
    let (sentinel, clock) = engine(rule);
    let mut passed = 0;
    for _ in 0..SECONDS * 1_000 {
        passed += u32::from(passes(&sentinel, 1));
        clock.advance(Duration::from_millis(1));
    }
    let most = SECONDS * LIMIT;
    (passed * 100 + most / 2) / most
}

fn engine(rule: &FlowRule) -> (Sentinel, ManualClock) {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(rule.clone())
        .clock(clock.clone())
        .build();
    (sentinel, clock)
}

fn passes(sentinel: &Sentinel, weight: u32) -> bool {
    let verdict = sentinel.try_enter(Call::new("job").batch(weight));
    matches!(verdict, Verdict::Pass(_))
}

/// The counter alone, without rules: the last five slices of 1 ms.
fn show_sliding_window() -> Result<(), InvalidWindow> {
    let window = SlidingWindow::of_millis(5)?;
    let now = Tick::from_millis(100);
    let passed = (0..10).filter(|_| window.try_add(now, 1, 7)).count();
    println!("SlidingWindow, 5 slices of 1 ms, at most 7: {passed} of 10 calls in one slice pass");
    for ms in [104, 105] {
        let sum = window.sum(Tick::from_millis(ms));
        println!("  its sum is {sum} when {} ms have passed", ms - 100);
    }
    Ok(())
}
