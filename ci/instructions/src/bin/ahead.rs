//! Makes calls that are refused while another one waits and calls may wait for as long as any
//! may, for `ci/instructions/run` to count what they cost.
//!
//! ```text
//! ahead KIND CALLS
//! ```
//!
//! A program of its own, so that the calls of the others are compiled as in programs in which
//! nobody waits.

use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};

/// Calls may wait for 512 buckets of half a second.
const FARTHEST: Duration = Duration::from_secs(255);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().expect("a kind");
    let calls = arguments.next().expect("a number of calls");
    let calls: u32 = calls.parse().expect("a number of calls");
    let (is_prioritized, most) = match &*kind {
        "ahead-refused" => (false, 1),
        "ahead-no-loan" => (true, usize::MAX),
        other => panic!("{other} is no kind of call"),
    };
    let call = Call::new("/users/{id}").prioritized(is_prioritized);
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("/users/{id}", 1))
        .occupy_timeout(FARTHEST)
        .clock(clock.clone())
        .build();
    drop(sentinel.try_enter(call));
    clock.advance(Duration::from_millis(500));
    // Of an ordinary call all buckets ahead are looked at, from the far end to the one that is
    // held; of one that could wait where all are held, each in every window that it is in.
    let mut waiting = Vec::new();
    while waiting.len() < most {
        match sentinel.try_enter(call.prioritized(true)) {
            Verdict::Wait(one) => waiting.push(one),
            _ => break,
        }
    }
    for _ in 0..calls {
        assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    }
}
