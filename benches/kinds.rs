//! What each kind of rule costs, beside a flow rule and all together.
//!
//! ```text
//! cargo bench --bench kinds
//! ```
//!
//! A part is what a rule of one kind adds to a flow rule alone. Below the table
//! stands what all kinds together cost, beside the flow rule with the sum of the
//! parts, and beside the flow rule alone.

mod support;

use std::time::Duration;

use support::Bench;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, FlowRule, IsolationRule, ManualClock,
    Rule, Rules, Sentinel, SystemRule,
};

const MINUTE: Duration = Duration::from_secs(60);
/// More than a run uses up.
const PLENTY: u32 = (1 << 31) - 1;

fn main() {
    let kinds: [(&str, Rule); 5] = [
        ("+ isolation", IsolationRule::new("/known", 8).into()),
        ("+ adaptive", AdaptiveRule::new("/known").into()),
        (
            "+ circuit breaker",
            CircuitBreakerRule::error_ratio("/known", 0.5).into(),
        ),
        ("+ authority", AuthorityRule::deny("/known", ["bot"]).into()),
        ("+ system", SystemRule::new().qps(PLENTY).into()),
    ];
    compare("kinds of rules, time given", &kinds);
    let flows: [(&str, Rule); 4] = [
        ("+ related", flow().when("/other").into()),
        ("+ day, a ring of its own", day().into()),
        ("+ warm-up", flow().warm_up(MINUTE).into()),
        ("+ by origin", flow().by_origin().into()),
    ];
    compare("kinds of flow rules, time given", &flows);
}

/// Measures a flow rule alone, with each of `more`, and with all of them.
fn compare(title: &'static str, more: &[(&'static str, Rule)]) {
    let mut bench = Bench::against(title, "flow", enter(&[]));
    for (name, rule) in more {
        bench.add(name, enter(std::slice::from_ref(rule)));
    }
    let all: Vec<_> = more.iter().map(|(_, rule)| rule.clone()).collect();
    bench.add("all of them", enter(&all));
    let times = bench.print();

    let [flow, parts @ .., all] = times.as_slice() else {
        unreachable!("three operations at least");
    };
    let sum: f64 = parts.iter().map(|part| part - flow).sum();
    println!(
        "\nall / (flow + parts) = {:.2}, all / flow = {:.2}",
        all / (flow + sum),
        all / flow,
    );
}

fn flow() -> FlowRule {
    FlowRule::per_second("/known", PLENTY)
}

fn day() -> FlowRule {
    FlowRule::per("/known", PLENTY, MINUTE * 60 * 24)
}

/// Enters and leaves a known resource with a flow rule and `more` rules.
fn enter(more: &[Rule]) -> impl FnMut() + use<> {
    let rules = more
        .iter()
        .cloned()
        .fold(Rules::new().with(flow()), Rules::with);
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .build();
    drop(sentinel.try_enter(Call::new("/other")));
    let call = Call::new("/known").origin("caller");
    move || drop(sentinel.try_enter(call))
}
