//! Memory under attack: a million names leave a bounded registry behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use tokio::sync::Mutex;
use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Scope, Sentinel, Verdict};

use support::resident;

const MILLION: u64 = 1_000_000;
const RESOURCES: usize = 16_384;
const ORIGINS: usize = 65_536;
/// What a place may take: the node, its name, and the tables' share.
const BYTES_PER_PLACE: usize = 1_024;
/// What the allocator takes beside.
const SLACK: usize = 8 << 20;

/// Both tests measure their process, so they take turns.
static TURN: Mutex<()> = Mutex::const_new(());

/// Asserts that this process has grown by no more than `places` may take.
fn assert_bounded(before: Option<usize>, places: usize) {
    let (Some(before), Some(after)) = (before, resident()) else {
        return;
    };
    let grown = after.saturating_sub(before);
    let most = places * BYTES_PER_PLACE + SLACK;
    println!("grown by {} KiB of at most {}", grown >> 10, most >> 10);
    assert!(grown <= most, "grown by {grown} bytes of at most {most}");
}

/// The numbers below `n`, in an order that looks random: the factor is odd.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn passes(sentinel: &Sentinel, call: Call<'_>) -> bool {
    matches!(sentinel.try_enter(call), Verdict::Pass(_))
}

#[test]
fn a_million_paths_leave_the_registry_at_its_bound() {
    let _turn = TURN.blocking_lock();
    let rules = Rules::new()
        .with(FlowRule::per_second("/protected", 10))
        .with(FlowRule::per_second("__overflow__", 1_000));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .max_resources(RESOURCES)
        .build();
    let before = resident();
    let mut passed = 0;
    for number in scattered(MILLION) {
        passed += usize::from(passes(&sentinel, Call::new(&format!("/{number:016x}"))));
    }
    // Those that have a place, and what the rule of all others lets pass.
    assert_eq!(passed, RESOURCES + 1_000);
    let protected = (0..100).filter(|_| passes(&sentinel, Call::new("/protected")));
    assert_eq!(protected.count(), 10);
    assert_bounded(before, RESOURCES);

    let snapshot = sentinel.snapshot();
    // Resources with a rule have their place beside.
    assert_eq!(snapshot.resources(), RESOURCES + 2);
    assert_eq!(snapshot.overflowed(), MILLION - RESOURCES as u64);
    assert_eq!(
        snapshot.totals().pass() + snapshot.totals().block(),
        MILLION + 100
    );
}

#[test]
fn a_million_origins_leave_one_that_they_share() {
    let _turn = TURN.blocking_lock();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("r", 2).by_origin().lend(true))
        .clock(ManualClock::new())
        .max_origins(ORIGINS)
        .build();
    let before = resident();
    let mut passed = 0;
    for number in scattered(MILLION) {
        passed += usize::from(passes(&sentinel, Call::new("r").origin(number)));
    }
    assert_eq!(passed, ORIGINS + 2);
    assert_bounded(before, ORIGINS);

    let snapshot = sentinel.snapshot();
    assert_eq!(snapshot.origins(), ORIGINS + 1);
    assert_eq!(snapshot.overflowed(), MILLION - ORIGINS as u64);
    let shared = snapshot.nodes().iter();
    let shared = shared.filter(|node| *node.scope() == Scope::OverflowOrigins);
    let shared: Vec<_> = shared.map(|node| node.totals().pass()).collect();
    assert_eq!(shared, [2]);
}
