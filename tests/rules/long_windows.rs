//! Flow rules over long windows, which count in rings of their own: alone, beside shorter ones, and
//! with all else that the same call needs.

use std::time::Duration;

use tower_sentinel::{BlockKind, Blocked, Call, FlowRule, IsolationRule, Rules, Sentinel, Verdict};

use crate::support::{engine, enter};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn per_second(limit: u32) -> FlowRule {
    FlowRule::per_second("r", limit).id("second")
}

fn per_hour(limit: u32) -> FlowRule {
    FlowRule::per("r", limit, HOUR).id("hour")
}

/// How many of `n` calls pass.
fn passed(sentinel: &Sentinel, n: u32) -> usize {
    (0..n)
        .filter(|_| enter(sentinel, Call::new("r")).is_ok())
        .count()
}

fn refusal(sentinel: &Sentinel, call: Call<'_>) -> Blocked {
    enter(sentinel, call).expect_err("it is refused")
}

#[test]
fn five_logins_in_ten_minutes_are_five() {
    let (sentinel, clock) = engine(FlowRule::per("r", 5, MINUTE * 10));
    assert_eq!(passed(&sentinel, 9), 5);
    assert_eq!(
        refusal(&sentinel, Call::new("r")).retry_after(),
        Some(MINUTE * 10)
    );
    clock.advance(MINUTE * 10 - Duration::from_nanos(1));
    assert_eq!(passed(&sentinel, 9), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(passed(&sentinel, 9), 5);
    let totals = sentinel.node("r").unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (10, 4 + 1 + 9 + 4));
}

#[test]
fn calls_that_the_short_window_refuses_take_nothing_of_the_long_one() {
    let (sentinel, clock) = engine((per_second(2), per_hour(5)));
    assert_eq!(passed(&sentinel, 2), 2);
    for _ in 0..9 {
        assert_eq!(refusal(&sentinel, Call::new("r")).rule(), "second");
    }
    clock.advance(SECOND);
    assert_eq!(refusal(&sentinel, Call::new("r").batch(3)).rule(), "second");
    assert_eq!(passed(&sentinel, 2), 2);
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, 9), 1, "the fifth of the hour");
}

#[test]
fn calls_that_the_long_window_refuses_take_nothing_of_the_short_one() {
    let rules = |of_hour| (per_second(3), per_hour(of_hour));
    let (sentinel, clock) = engine(rules(1));
    assert_eq!(passed(&sentinel, 1), 1);
    for _ in 0..9 {
        let blocked = refusal(&sentinel, Call::new("r"));
        assert_eq!(
            (blocked.rule(), blocked.retry_after()),
            ("hour", Some(HOUR))
        );
    }
    // Both windows go on under the new rules, in the same second.
    sentinel.reload(rules(9).into());
    assert_eq!(
        passed(&sentinel, 9),
        2,
        "the second and third of the second"
    );
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, 9), 3);
}

#[test]
fn a_refusal_names_the_time_at_which_both_windows_have_room() {
    let (sentinel, clock) = engine((per_second(1), per_hour(2)));
    assert_eq!(passed(&sentinel, 1), 1);
    assert_eq!(
        refusal(&sentinel, Call::new("r")).retry_after(),
        Some(SECOND)
    );
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, 1), 1);
    // Each of them is full now, and the hour is asked first.
    let blocked = refusal(&sentinel, Call::new("r"));
    assert_eq!(
        (blocked.rule(), blocked.retry_after()),
        ("hour", Some(HOUR - SECOND))
    );
    assert_eq!(
        refusal(&sentinel, Call::new("r").batch(3)).retry_after(),
        None
    );
}

#[test]
fn a_slot_is_free_again_where_a_window_refuses() {
    let rules = Rules::new()
        .with(per_second(2))
        .with(per_hour(3))
        .with(IsolationRule::new("r", 1));
    let (sentinel, clock) = engine(rules);
    let Verdict::Pass(running) = sentinel.try_enter(Call::new("r")) else {
        panic!("the first one");
    };
    assert_eq!(
        refusal(&sentinel, Call::new("r")).kind(),
        BlockKind::Isolation
    );
    drop(running);
    assert_eq!(
        passed(&sentinel, 9),
        1,
        "the slot's refusals took no tokens"
    );
    assert_eq!(refusal(&sentinel, Call::new("r")).rule(), "second");
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, 9), 1);
    assert_eq!(refusal(&sentinel, Call::new("r")).rule(), "hour");
    assert_eq!(sentinel.node("r").unwrap().concurrency(), 0);
    clock.advance(HOUR);
    assert_eq!(passed(&sentinel, 9), 2, "no refusal has kept the slot");
}

#[test]
fn a_prioritized_call_borrows_beside_a_long_window() {
    let (sentinel, clock) = engine((per_second(1), per_hour(3)));
    assert_eq!(passed(&sentinel, 1), 1);
    clock.advance(Duration::from_millis(600));
    let urgent = Call::new("r").prioritized(true);
    let Verdict::Wait(waiting) = sentinel.try_enter(urgent) else {
        panic!("the window lends");
    };
    assert_eq!(waiting.delay(), Duration::from_millis(400));
    drop(waiting);
    clock.advance(Duration::from_millis(400));
    assert_eq!(passed(&sentinel, 1), 1);
    clock.advance(SECOND);
    assert_eq!(
        passed(&sentinel, 9),
        1,
        "what was borrowed was returned to both"
    );
}

#[test]
fn threads_share_a_long_window_exactly() {
    let (sentinel, clock) = engine((per_second(3_000), per_hour(1_000)));
    clock.advance(SECOND);
    let passed: usize = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| passed(&sentinel, 1_000)));
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(passed, 1_000);
    let node = sentinel.node("r").unwrap();
    assert_eq!(
        (
            node.totals().pass(),
            node.totals().block(),
            node.concurrency()
        ),
        (1_000, 3_000, 0)
    );
}
