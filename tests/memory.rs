//! Memory under attack: any number of names leaves a bounded registry behind.
//!
//! `SENTINEL_ATTEMPTS` sets how many names there are, a million in release builds and a
//! fifth of it in others unless it is set.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use allocation_counter::measure;
use tower_sentinel::read::Scope;
use tower_sentinel::{
    AdaptiveRule, Call, CircuitBreakerRule, FlowRule, IsolationRule, ManualClock, Rule, Rules,
    Sentinel, SystemRule, Verdict,
};

use support::attempts;

const RESOURCES: usize = 16_384;
const ORIGINS: usize = 65_536;

/// What a place may take: the node, its name, and the tables' share.
const BYTES_PER_PLACE: usize = 1_024;

/// Makes so many calls, each by a number of its own, and returns how many pass. Asserts
/// that what has one of `places` takes no more than it may, and that all others take nothing.
fn flood(attempts: u64, places: usize, mut passes: impl FnMut(u64) -> bool) -> usize {
    // In an order that looks random: the factor is odd.
    let mut passed = (0..attempts).map(|index| passes(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut count = |calls: usize| passed.by_ref().take(calls).filter(|passed| *passed).count();
    let mut all = 0;
    // One more, for which all others share a place.
    let filling = measure(|| all += count(places + 1));
    let of_each = filling.bytes_current as usize / places;
    println!("{of_each} bytes for each place");
    assert!(of_each <= BYTES_PER_PLACE, "{of_each} bytes");
    let full = measure(|| all += count(usize::MAX));
    let more = full.bytes_current;
    assert!(more < 1_024, "{more} bytes more for those without a place");
    all
}

fn passes(sentinel: &Sentinel, call: Call<'_>) -> bool {
    matches!(sentinel.try_enter(call), Verdict::Pass(_))
}

#[test]
fn a_flood_of_paths_leaves_the_registry_at_its_bound() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/protected", 10))
        .with(FlowRule::per_second("__overflow__", 1_000));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .max_resources(RESOURCES)
        .build();
    let attempts = attempts();
    let passed = flood(attempts, RESOURCES, |number| {
        passes(&sentinel, Call::new(&format!("/{number:016x}")))
    });
    // Those that have a place, and what the rule of all others lets pass.
    assert_eq!(passed, RESOURCES + 1_000);
    let protected = (0..100).filter(|_| passes(&sentinel, Call::new("/protected")));
    assert_eq!(protected.count(), 10);

    let snapshot = sentinel.snapshot();
    // Resources with a rule have their place beside.
    assert_eq!(snapshot.resources(), RESOURCES + 2);
    assert_eq!(snapshot.overflowed(), attempts - RESOURCES as u64);
    assert_eq!(
        snapshot.totals().pass() + snapshot.totals().block(),
        attempts + 100
    );
}

/// What so many made-up names of the greatest length leave behind that are called in three
/// seconds, and read meanwhile, with the defaults.
fn bytes_of_made_up_names(names: usize, rules: impl Into<Rules>) -> u64 {
    let rules = rules.into();
    let mut sentinel = None;
    let cost = measure(|| {
        let clock = ManualClock::new();
        let builder = Sentinel::builder().rules(rules).clock(clock.clone());
        let engine = sentinel.insert(builder.build());
        for _ in 0..3 {
            for number in 0..names {
                let name = format!("/{number:0255x}");
                for _ in 0..2 {
                    drop(engine.try_enter(Call::new(&name)));
                }
            }
            drop(engine.snapshot());
            clock.advance(Duration::from_secs(1));
        }
    });
    let snapshot = sentinel.unwrap().snapshot();
    assert!(snapshot.resources() >= names.min(RESOURCES));
    let bytes = cost.bytes_current as u64;
    println!("{bytes} bytes, {} KiB at most", cost.bytes_max >> 10);
    bytes
}

#[test]
fn the_defaults_bound_what_made_up_names_take() {
    // What the documentation of `Builder::max_resources` says.
    const MOST: u64 = 20 << 20;
    let all = [
        bytes_of_made_up_names(RESOURCES, Rules::new()),
        bytes_of_made_up_names(RESOURCES * 2, Rules::new()),
        // Each is refused as well.
        bytes_of_made_up_names(RESOURCES, SystemRule::new().qps(RESOURCES as u32)),
        bytes_of_made_up_names(RESOURCES, FlowRule::per_second("*", 1)),
    ];
    println!("{all:?}");
    assert!(all.iter().all(|&bytes| bytes <= MOST), "{all:?}");
}

/// Each rule for `*` has a state of its own on each name.
#[test]
fn each_further_rule_for_all_names_takes_no_more_than_documented() {
    // What the documentation of `Builder::max_resources` says.
    const MOST: u64 = 768;
    const NAMES: usize = 1_024;
    let second = Duration::from_secs(1);
    let breaker = |ms| CircuitBreakerRule::slow_ratio("*", Duration::from_millis(ms), 0.5);
    let further: [Rule; 8] = [
        IsolationRule::new("*", 9).into(),
        breaker(9).into(),
        breaker(99).interval(60 * second).into(),
        CircuitBreakerRule::consecutive_errors("*", 9).into(),
        FlowRule::per("*", 9_999, 86_400 * second).into(),
        FlowRule::per_second("*", 9_999).throttle(second).into(),
        FlowRule::per_second("*", 9_999).warm_up(second).into(),
        AdaptiveRule::new("*").into(),
    ];
    let mut rules: Vec<Rule> = vec![FlowRule::per_second("*", 1).into()];
    let sum = |rules: &[Rule]| bytes_of_made_up_names(NAMES, Rules::build(rules.to_vec()).unwrap());
    let mut before = sum(&rules);
    for rule in further {
        let kind = rule.kind();
        rules.push(rule);
        let now = sum(&rules);
        let each = now.saturating_sub(before) / NAMES as u64;
        assert!(each <= MOST, "{kind}: {each} bytes a name");
        before = now;
    }
}

#[test]
fn a_flood_of_origins_leaves_one_that_they_share() {
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("r", 2).for_origin("other"))
        .clock(ManualClock::new())
        .max_origins(ORIGINS)
        .build();
    let attempts = attempts();
    let passed = flood(attempts, ORIGINS, |number| {
        passes(&sentinel, Call::new("r").origin(number))
    });
    assert_eq!(passed, ORIGINS + 2);

    let snapshot = sentinel.snapshot();
    assert_eq!(snapshot.origins(), ORIGINS + 1);
    assert_eq!(snapshot.overflowed(), attempts - ORIGINS as u64);
    let shared = snapshot.nodes().iter();
    let shared = shared.filter(|node| *node.scope() == Scope::OverflowOrigins);
    let shared: Vec<_> = shared.map(|node| node.totals().pass()).collect();
    assert_eq!(shared, [2]);
}
