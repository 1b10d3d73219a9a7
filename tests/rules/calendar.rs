//! Rules that count by the day and by the month of the calendar.

use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::rule::CalendarPeriod;
use tower_sentinel::{
    BlockKind, Call, Clock, KeyedRule, ManualClock, Rule, Rules, Sentinel, Verdict,
};

use crate::support::enter;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// 2027-12-31 18:00 by UTC, the day before a leap year.
const BEGIN: Duration = Duration::from_secs(1_830_276_000);

fn tick(since_1970: Duration) -> Tick {
    Tick::ZERO + since_1970
}

/// An engine at [`BEGIN`].
fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    let clock = ManualClock::starting_at(tick(BEGIN));
    let sentinel = Sentinel::builder().rules(rules).clock(clock.clone());
    (sentinel.build(), clock)
}

fn by(value: &str) -> Call<'_> {
    Call::new("r").param(value)
}

/// How many of 100 calls pass.
fn passed(sentinel: &Sentinel, call: Call<'_>) -> usize {
    (0..100).filter(|_| enter(sentinel, call).is_ok()).count()
}

#[test]
fn each_value_has_its_quota_in_each_month() {
    let rule = KeyedRule::per_calendar_month("r", 5).tier("pro", 9);
    let (sentinel, clock) = engine(rule.except("z", 1).id("quota"));
    // From the last hours of 2027 on, and then each month of 2028.
    let mut lengths = vec![Duration::from_secs(6 * 3_600)];
    let days = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    lengths.extend(days.map(|days| DAY * days));
    for length in lengths {
        assert_eq!(passed(&sentinel, by("x")), 5);
        clock.advance(length - SECOND);
        assert_eq!(passed(&sentinel, by("x")), 0);
        assert_eq!(passed(&sentinel, by("y").tier("pro")), 9);
        assert_eq!(passed(&sentinel, by("z")), 1);
        let blocked = enter(&sentinel, by("x")).unwrap_err();
        assert_eq!(
            (blocked.kind(), blocked.rule()),
            (BlockKind::Keyed, "quota")
        );
        assert_eq!(blocked.retry_after(), Some(SECOND));
        let whole = if length < DAY { DAY * 31 } else { length };
        assert_eq!(
            (blocked.limit(), blocked.interval()),
            (Some(5), Some(whole))
        );
        // Heavier than a whole quota.
        let never = enter(&sentinel, by("x").batch(6)).unwrap_err();
        assert_eq!(never.retry_after(), None);
        let node = sentinel.node("r").unwrap();
        assert_eq!(node.keyed_rules()[0].left("x"), 0);
        clock.advance(SECOND);
        assert_eq!(sentinel.node("r").unwrap().keyed_rules()[0].left("x"), 5);
    }
}

#[test]
fn a_day_begins_by_the_offset_that_is_given() {
    for (minutes, hours) in [
        (0, 6),
        (60, 5),
        (-300, 11),
        (330, 0),
        (-1_080, 24),
        (360, 24),
    ] {
        let (sentinel, _) = engine(KeyedRule::per_calendar_day("r", 2).utc_offset(minutes));
        assert_eq!(passed(&sentinel, by("x")), 2);
        let retry_after = enter(&sentinel, by("x")).unwrap_err().retry_after();
        let half = if minutes == 330 {
            HOUR / 2
        } else {
            Duration::ZERO
        };
        assert_eq!(retry_after, Some(HOUR * hours + half), "{minutes}");
    }
}

#[test]
fn a_budget_of_a_day_is_charged_until_midnight() {
    let rule = KeyedRule::per_calendar_day("r", 5_000_000).cost("tokens");
    let (sentinel, clock) = engine(rule.tier("pro", 1_u32 << 30));
    let reserve = |n| by("x").reserve("tokens", n);
    let mut first = enter(&sentinel, reserve(4_000_000)).unwrap();
    let refused = enter(&sentinel, reserve(2_000_000)).unwrap_err();
    // Only reservations are in the way, and nobody knows when they end.
    assert_eq!(refused.retry_after(), Some(SECOND));
    first.settle("tokens", 3_000_000);
    let mut second = enter(&sentinel, reserve(2_000_000)).unwrap();
    second.settle("tokens", 2_500_000);
    let refused = enter(&sentinel, reserve(0)).unwrap_err();
    assert_eq!(
        (refused.limit(), refused.interval()),
        (Some(5_000_000), Some(DAY))
    );
    assert_eq!(refused.retry_after(), Some(HOUR * 6));
    let budget = &sentinel.node("r").unwrap().keyed_rules()[0];
    assert_eq!(budget.left("x"), 0);
    // An excess leaves with the day, and so does what a call costs that has begun in it.
    let mut over = enter(&sentinel, by("y").reserve("tokens", 1)).unwrap();
    clock.advance(HOUR * 6);
    over.settle("tokens", 7);
    drop(over);
    assert!(enter(&sentinel, reserve(5_000_000)).is_ok());
    assert!(enter(&sentinel, by("y").reserve("tokens", 4_999_994)).is_err());
    assert!(enter(&sentinel, by("y").reserve("tokens", 4_999_993)).is_ok());
    let pro = || by("z").tier("pro").reserve("tokens", 1 << 29);
    let both = [enter(&sentinel, pro()), enter(&sentinel, pro())];
    assert!(both.iter().all(Result::is_ok) && enter(&sentinel, pro()).is_err());
}

#[test]
fn in_shadow_mode_a_month_refuses_nobody() {
    let rule = KeyedRule::per_calendar_month("r", 5);
    let (sentinel, _) = engine(Rules::new().with(Rule::from(rule).shadow()));
    assert_eq!(passed(&sentinel, by("x")), 100);
    let snapshot = sentinel.snapshot();
    assert_eq!(
        snapshot.shadows().next().map(|(_, refused)| refused),
        Some(95)
    );
}

#[test]
fn a_reload_keeps_the_count_of_the_same_calendar() {
    let month = || KeyedRule::per_calendar_month("r", 5);
    let (sentinel, clock) = engine(month());
    assert_eq!(passed(&sentinel, by("x")), 5);
    assert!(sentinel.reload(month().tier("pro", 9).except("x", 8).into()));
    assert_eq!(passed(&sentinel, by("x")), 3);
    clock.advance(HOUR * 6);
    assert_eq!(passed(&sentinel, by("x")), 8);
    for other in [
        month().utc_offset(60),
        KeyedRule::per_calendar_day("r", 5),
        KeyedRule::per("r", 5, DAY * 31).window(),
        month(),
    ] {
        assert!(sentinel.reload(other.into()));
        assert_eq!(passed(&sentinel, by("x")), 5);
    }
}

#[test]
fn a_value_is_reset_and_a_call_that_is_refused_elsewhere_spends_nothing() {
    let rules = Rules::new()
        .with(KeyedRule::per_calendar_day("r", 5))
        .with(KeyedRule::per_second("r", 2));
    let (sentinel, clock) = engine(rules);
    assert_eq!(passed(&sentinel, by("x")), 2);
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, by("x")), 2);
    let of_day = || sentinel.node("r").unwrap().keyed_rules().swap_remove(0);
    assert_eq!(of_day().left("x"), 1);
    assert!(of_day().reset("x"));
    assert_eq!(of_day().left("x"), 5);
}

/// A clock whose zero is in 1999, and which panics when it is asked for that, if it is to.
#[derive(Clone, Debug)]
struct Since1999(ManualClock, bool);

impl Clock for Since1999 {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn epoch(&self) -> Duration {
        assert!(!self.1, "nobody knows");
        // 1999-12-31 23:00 by UTC.
        Duration::from_secs(946_681_200)
    }
}

#[test]
fn the_date_is_that_of_the_clock() {
    let month = || KeyedRule::per_calendar_month("r", 1);
    for (panics, hours) in [(false, 1), (true, 31 * 24)] {
        let clock = Since1999(ManualClock::new(), panics);
        let sentinel = Sentinel::builder().rules(month()).clock(clock).build();
        assert_eq!(passed(&sentinel, by("x")), 1);
        let retry_after = enter(&sentinel, by("x")).unwrap_err().retry_after();
        assert_eq!(retry_after, Some(HOUR * hours));
    }
    // By the clocks of the machine, of which one is the default.
    let sentinel = Sentinel::new(month());
    assert_eq!(passed(&sentinel, by("x")), 1);
    let retry_after = enter(&sentinel, by("x")).unwrap_err().retry_after();
    assert!(retry_after.unwrap() <= DAY * 31);
}

#[test]
fn a_clock_that_steps_back_over_midnight_brings_no_day_back() {
    let hours = |n: u64| HOUR * n as u32;
    for step in [SECOND, HOUR, hours(7), hours(24 * 40)] {
        let (sentinel, clock) = engine(KeyedRule::per_calendar_day("r", 5));
        let begin = BEGIN + hours(6);
        assert_eq!(passed(&sentinel, by("x")), 5);
        clock.set(tick(begin));
        assert_eq!(passed(&sentinel, by("x")), 5);
        // It is the day before again, or of another month.
        clock.set(tick(begin - step));
        assert_eq!(passed(&sentinel, by("x")), 0);
        let retry_after = enter(&sentinel, by("x")).unwrap_err().retry_after();
        // A reading is left alone that is behind by no more than a second.
        let waits = retry_after.unwrap();
        assert!(waits == DAY || waits == DAY + SECOND, "{step:?}: {waits:?}");
        // Another value has one quota, for both days.
        let others = if step > SECOND {
            vec!["x", "y"]
        } else {
            vec!["x"]
        };
        assert_eq!(passed(&sentinel, by("y")), 5);
        // Time stands still for a second, and goes on from the new day.
        for wait in [SECOND, DAY - SECOND * 2] {
            clock.advance(wait);
            let total: usize = others
                .iter()
                .map(|value| passed(&sentinel, by(value)))
                .sum();
            assert_eq!(total, 0, "{step:?}");
        }
        clock.advance(SECOND * 2);
        assert_eq!(["x", "y"].map(|value| passed(&sentinel, by(value))), [5; 2]);
    }
}

#[test]
fn what_does_not_go_with_the_calendar_is_refused_by_name() {
    let month = || KeyedRule::per_calendar_month("r", 5);
    let elsewhere = "left out for a day or month of the calendar";
    for (rule, (field, value, allowed)) in [
        (month().window(), ("window", "true", elsewhere)),
        (month().throttle(SECOND), ("max_wait", "1s", elsewhere)),
        (month().block_for(HOUR), ("block_for", "3600s", elsewhere)),
        (
            month().burst(1),
            ("burst", "1", "0 for a day or month of the calendar"),
        ),
        (month().capacity(9), ("capacity", "9", elsewhere)),
        (
            month().queue(SECOND),
            ("queue", "1s", "left out without `concurrency`"),
        ),
        (
            month().utc_offset(1_440),
            ("utc_offset", "1440", "between -1439 and 1439"),
        ),
        (
            month().utc_offset(-1_440_i64),
            ("utc_offset", "-1440", "between -1439 and 1439"),
        ),
        (
            KeyedRule::per_hour("r", 5).utc_offset(60),
            (
                "utc_offset",
                "60",
                "left out without `per_calendar_day` or `per_calendar_month`",
            ),
        ),
        (
            KeyedRule::per_calendar_day("r", 1_u32 << 31),
            ("threshold", "2147483648", "between 0 and 2147483647"),
        ),
        (
            KeyedRule::per_calendar_day("r", (1 << 30) + 1).cost("tokens"),
            ("threshold", "1073741825", "between 0 and 1073741824"),
        ),
        (
            KeyedRule::per_calendar_day("r", 0.5),
            (
                "threshold",
                "0.5",
                "0 or at least 1, as whole calls are counted: write 1 per 172800s, or use `per` \
                 with a `burst` of 1",
            ),
        ),
    ] {
        let error = Rules::build([rule.clone()]).unwrap_err();
        let [problem] = error.problems() else {
            panic!("{error}");
        };
        let told = (problem.field(), problem.value(), problem.allowed());
        assert_eq!(told, (field, value, allowed));
        assert!(Rules::build([Rule::from(rule).shadow()]).is_err());
    }
    let most = (1_u32 << 31) - 1;
    for good in [
        KeyedRule::per_calendar_day("r", most).utc_offset(1_439),
        month().utc_offset(-1_439).tier("pro", most).except("x", 0),
        month().tier_unlimited("pro").by_origin().max_keys(9),
        month().cost("tokens").tier("pro", 1 << 30),
    ] {
        assert_eq!(Rules::build([good]).map(|rules| rules.len()), Ok(1));
    }
    assert_eq!(month().calendar(), Some(CalendarPeriod::Month));
}

#[test]
fn no_call_waits_for_the_next_month() {
    let (sentinel, _) = engine(KeyedRule::per_calendar_month("r", 1));
    assert!(matches!(sentinel.try_enter(by("x")), Verdict::Pass(_)));
    let verdict = sentinel.try_enter(by("x").prioritized(true));
    assert!(matches!(verdict, Verdict::Block(_)));
}
