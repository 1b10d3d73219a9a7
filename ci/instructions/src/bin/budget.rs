//! Makes calls that cost something, for `ci/instructions/run` to count what that adds.
//!
//! ```text
//! budget KIND CALLS
//! ```

use tower_sentinel::clock::Tick;
use tower_sentinel::{AuthorityRule, Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

/// More than any run makes calls.
const OPEN: u32 = 1_000_000;

const RESOURCE: &str = "/users/{id}";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("a kind and a number of calls");
    let kind = next();
    let calls: u32 = next().parse().expect("a number of calls");
    // A list of callers takes all calls off the fast path, as a limit on costs does.
    let rules = Rules::new()
        .with(FlowRule::per_second(RESOURCE, OPEN))
        .with(AuthorityRule::deny(RESOURCE, ["eve"]));
    let costs = FlowRule::per_second(RESOURCE, 1 << 30).cost("tokens");
    let rules = match &*kind {
        "budget-none" => rules,
        _ => rules.with(costs),
    };
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let sentinel = Sentinel::builder().rules(rules).clock(clock).build();
    let call = Call::new(RESOURCE).reserve("tokens", 40);
    let enter = || match sentinel.try_enter(call) {
        Verdict::Pass(entry) => entry,
        _ => panic!("there is room for all"),
    };
    match &*kind {
        "budget-none" => (0..calls).for_each(|_| drop(enter())),
        "budget-settled" => (0..calls).for_each(|_| enter().settle("tokens", 7)),
        "budget-charge" => {
            let meter = enter().meter();
            for _ in 0..calls {
                assert!(meter.charge("tokens", 1));
            }
        }
        other => panic!("{other} is no kind of call"),
    }
}
