//! How fixed, sliding and strict windows differ, in virtual time.
//!
//! ```text
//! cargo run --example window
//! ```

use std::time::Duration;

use tower_sentinel::InvalidSetting;
use tower_sentinel::clock::Tick;
use tower_sentinel::stat::SlidingWindow;
use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};

/// Calls per second, for every row of the table.
const LIMIT: u32 = 100;

fn main() -> Result<(), InvalidSetting> {
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
A window moves on by whole buckets, so two bursts of {LIMIT} may be less than a second apart;
with more buckets they are further apart. A strict window never admits more than its
limit in any second, wherever that begins, at the cost of some of the rate.
"
    );
    show_sliding_window()
}

/// Prints one row for `rule`, with each figure measured on an engine of its own.
fn show(name: &str, rule: &FlowRule) {
    let [at_900, at_1100] = passed_in_bursts(rule);
    let apart = closest_bursts(rule).as_millis();
    let rate = sustained_percent(rule);
    println!("{name:<20} {at_900:>8} {at_1100:>11} {apart:>14} ms {rate:>15} %");
}

/// How many calls of a burst pass at 900 ms, and of another one at 1100 ms.
fn passed_in_bursts(rule: &FlowRule) -> [usize; 2] {
    let (sentinel, clock) = engine(rule);
    [900, 1_100].map(|ms| {
        clock.set(Tick::from_millis(ms));
        (0..LIMIT).filter(|_| passes(&sentinel, 1)).count()
    })
}

/// The shortest time between two bursts that use up the limit, whatever the
/// millisecond at which the first one comes.
fn closest_bursts(rule: &FlowRule) -> Duration {
    let (sentinel, clock) = engine(rule);
    let burst = Call::new("job").batch(LIMIT);
    let mut closest = Duration::MAX;
    for ms in 0..1_000 {
        // Far enough from the previous bursts.
        clock.set(Tick::from_millis(ms * 10_001));
        assert!(passes(&sentinel, LIMIT), "the window is empty");
        // The refusal says when the next burst would pass.
        if let Verdict::Block(blocked) = sentinel.try_enter(burst) {
            let room = blocked.retry_after().unwrap_or(Duration::MAX);
            closest = closest.min(room);
        }
    }
    closest
}

/// The rate at which calls pass if one comes every millisecond, in percent of the
/// limit. Measured over 33 seconds, a whole multiple of the period of every window.
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

/// The counter alone, without rules, over the last five slices of 1 ms.
fn show_sliding_window() -> Result<(), InvalidSetting> {
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
