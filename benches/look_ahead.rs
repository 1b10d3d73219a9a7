//! What a refused call costs while others wait, by how far ahead calls may wait.
//!
//! ```text
//! cargo bench --bench look_ahead
//! ```
//!
//! Every place ahead is held. A refused call is told when to come again, for which the
//! places are looked through once: what it costs more than the first row is at most in
//! proportion to the buckets ahead, of which there are 512 at most. In the second table the
//! calls that are refused could have waited, so each place is looked at for one that is free.

mod support;

use std::time::Duration;

use support::Bench;
use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

const MINUTE: Duration = Duration::from_secs(60);
/// The farthest that any call may wait in buckets of half a second.
const FARTHEST: Duration = Duration::from_secs(255);

/// More calls than may wait.
const ALL: usize = usize::MAX;

fn main() {
    table("an ordinary call is refused", false);
    table("a prioritized call is refused", true);
}

fn table(title: &'static str, is_prioritized: bool) {
    let soon = Duration::from_millis(500);
    let second = || FlowRule::per_second("r", 10);
    let minute = || FlowRule::per("r", 600, MINUTE);
    let queue = |longest| Rules::new().with(second()).with(second().throttle(longest));
    let two = Rules::new().with(second()).with(minute());
    let fine = second().buckets(10);
    let long = minute().buckets(120);
    let rows = [
        ("120 buckets ahead", second().into(), MINUTE, ALL),
        ("510 buckets ahead", second().into(), FARTHEST, ALL),
        ("  of which one is held", second().into(), FARTHEST, 10),
        ("  a rule of ten buckets", fine.into(), FARTHEST / 5, ALL),
        ("  a rule of 120 buckets", long.into(), FARTHEST, ALL),
        ("  two rules", two, FARTHEST, ALL),
        ("120 buckets ahead, a queue", queue(MINUTE), soon, ALL),
        ("510 buckets ahead, a queue", queue(FARTHEST), soon, ALL),
    ];
    let refused = |rules, timeout, waiting| refused(rules, timeout, waiting, is_prioritized);
    let base = refused(second().into(), soon, ALL);
    let mut bench = Bench::against(title, "1 bucket ahead", base);
    for (name, rules, timeout, waiting) in rows {
        let is_full = waiting == ALL;
        if is_full || !is_prioritized {
            bench.add(name, refused(rules, timeout, waiting));
        }
    }
    bench.print();
}

/// Refuses a call by `rules`, while as many calls are `waiting` as may be: for less than
/// `timeout` or, in a queue, for as long as that lets them.
fn refused(rules: Rules, timeout: Duration, waiting: usize, is_prioritized: bool) -> impl FnMut() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .occupy_timeout(timeout)
        .clock(clock.clone())
        .build();
    let call = Call::new("r");
    while let Verdict::Pass(_) = sentinel.try_enter(call) {}
    clock.advance(Duration::from_millis(501));
    let mut held = Vec::new();
    while held.len() < waiting {
        match sentinel.try_enter(call.prioritized(true)) {
            Verdict::Wait(wait) => held.push(wait),
            Verdict::Pass(_) => {}
            _ => break,
        }
    }
    let call = call.prioritized(is_prioritized);
    move || {
        let _held = &held;
        assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    }
}
