//! Makes calls under rules of short and of long windows, for `ci/instructions/run` to count
//! what they cost.
//!
//! ```text
//! window KIND CALLS
//! ```
//!
//! A program of its own: the loop, which must let the first call pass where the others are
//! refused, is another one, and the counts of `engine` would be others with it.

use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

/// More than any run makes calls.
const OPEN: u32 = 1_000_000;

const SECOND: Duration = Duration::from_secs(1);
const TEN_MINUTES: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The rules, and how many calls pass before the others are refused.
fn kind(name: &str) -> (Rules, u32) {
    let rule = |limit, window| FlowRule::per("/users/{id}", limit, window);
    let beside = |limit| {
        Rules::new()
            .with(rule(OPEN, SECOND))
            .with(rule(limit, HOUR))
    };
    match name {
        "window-second" => (rule(OPEN, SECOND).into(), OPEN),
        "window-ten-minutes" => (rule(OPEN, TEN_MINUTES).into(), OPEN),
        "window-hour" => (rule(OPEN, HOUR).into(), OPEN),
        "window-day" => (rule(OPEN, DAY).into(), OPEN),
        "window-beside" => (beside(OPEN), OPEN),
        "window-full" => (rule(1, SECOND).into(), 1),
        "window-full-hour" => (rule(1, HOUR).into(), 1),
        "window-full-beside" => (beside(1), 1),
        other => panic!("{other} is no kind of call"),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("a kind and a number of calls");
    let (rules, passing) = kind(&next());
    let calls: u32 = next().parse().expect("a number of calls");
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let sentinel = Sentinel::builder().rules(rules).clock(clock).build();
    let call = Call::new("/users/{id}");
    for number in 0..calls {
        let verdict = sentinel.try_enter(call);
        assert_eq!(matches!(verdict, Verdict::Pass(_)), number < passing);
    }
}
