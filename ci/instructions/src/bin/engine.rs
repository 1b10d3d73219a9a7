//! Makes calls of one kind to the engine, for `ci/instructions/run` to count what they cost.
//!
//! ```text
//! engine KIND CALLS
//! ```

use std::sync::Arc;
use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::hook::{Hook, Interest};
use tower_sentinel::store::MemoryStore;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Criticality, FlowRule, IsolationRule,
    KeyedRule, ManualClock, Rules, Sentinel, Verdict,
};

/// More than any run makes calls.
const OPEN: u32 = 1_000_000;

/// So long nothing is called before each call of the kind `after-idle`.
const HOUR: Duration = Duration::from_secs(3_600);

/// Calls of the kind `adaptive-classes` have these classes in turn.
const CLASSES: [Criticality; 4] = [
    Criticality::CriticalPlus,
    Criticality::Critical,
    Criticality::SheddablePlus,
    Criticality::Sheddable,
];

/// A hook that wants to hear of breakers alone.
#[derive(Debug)]
struct Alarm;

impl Hook for Alarm {
    fn interest(&self) -> Interest {
        Interest::BREAKER
    }
}

/// What is called, under which rules, and whether it passes.
fn kind(name: &str) -> (Rules, Call<'static>, bool) {
    let call = Call::new("/users/{id}");
    let rule = |limit| FlowRule::per_second("/users/{id}", limit);
    let values = KeyedRule::per("/users/{id}", OPEN, Duration::from_secs(1));
    let breaker = |ratio| CircuitBreakerRule::error_ratio("/users/{id}", ratio);
    let at_once = KeyedRule::concurrency("/users/{id}", 5);
    let slots = IsolationRule::new("/users/{id}", 5);
    let adaptive = AdaptiveRule::new("/users/{id}");
    let list = AuthorityRule::deny("/users/{id}", ["eve"]);
    let row = CircuitBreakerRule::consecutive_errors("/users/{id}", 5);
    match name {
        "passed" | "histogram" => (rule(OPEN).into(), call, true),
        "after-idle" => (rule(OPEN).buckets(100).into(), call, true),
        "slots" => (Rules::new().with(rule(OPEN)).with(slots), call, true),
        "adaptive" | "adaptive-classes" => {
            (Rules::new().with(rule(OPEN)).with(adaptive), call, true)
        }
        "refused" => (rule(0).into(), call, false),
        "by-origin" => (rule(OPEN).by_origin().into(), call.origin("ann"), true),
        "breaker" | "breaker-hook" => (breaker(0.5).into(), call, true),
        "row" => (row.into(), call, true),
        "keyed" => (values.into(), call.param("ann"), true),
        "at-once" => (at_once.into(), call.param("ann"), true),
        "leased" => (rule(OPEN).shared().into(), call, true),
        // A list of callers is what takes them off the fast path.
        "all-checks" => (Rules::new().with(rule(OPEN)).with(list), call, true),
        "leased-all-checks" => (
            Rules::new().with(rule(OPEN).shared()).with(list),
            call,
            true,
        ),
        other => panic!("{other} is no kind of call"),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("a kind and a number of calls");
    let name = next();
    let (rules, mut call, passes) = kind(&name);
    let idle = (name == "after-idle").then_some(HOUR);
    let calls: u32 = next().parse().expect("a number of calls");
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let builder = Sentinel::builder().rules(rules).clock(clock.clone());
    let sentinel = match &*name {
        "histogram" => builder.histograms(),
        // It is never started: the process has its share, which is all, in hand.
        "leased" | "leased-all-checks" => builder.store(MemoryStore::new()),
        _ => builder,
    };
    let sentinel = sentinel.build();
    if name == "breaker-hook" {
        sentinel.hooks().register("alarm", Arc::new(Alarm));
    }
    let has_classes = name == "adaptive-classes";
    for count in 0..calls {
        if let Some(idle) = idle {
            clock.advance(idle);
        }
        if has_classes {
            call = call.criticality(CLASSES[count as usize % 4]);
        }
        let verdict = sentinel.try_enter(call);
        assert_eq!(matches!(verdict, Verdict::Pass(_)), passes);
    }
}
