//! Flow rules that count by the day and by the month of the calendar.

use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::rule::CalendarPeriod;
use tower_sentinel::{
    BlockKind, Call, FlowRule, KeyedRule, ManualClock, Rule, Rules, Sentinel, Verdict,
};

use crate::support::enter;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// 2027-12-31 18:00 by UTC, the day before a leap year.
const BEGIN: Duration = Duration::from_secs(1_830_276_000);

/// An engine at [`BEGIN`].
fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    let clock = ManualClock::starting_at(Tick::ZERO + BEGIN);
    let sentinel = Sentinel::builder().rules(rules).clock(clock.clone());
    (sentinel.build(), clock)
}

fn call() -> Call<'static> {
    Call::new("r")
}

/// How many of 100 calls pass.
fn passed(sentinel: &Sentinel, call: Call<'_>) -> usize {
    (0..100).filter(|_| enter(sentinel, call).is_ok()).count()
}

#[test]
fn all_callers_have_one_quota_in_each_month() {
    let (sentinel, clock) = engine(FlowRule::per_calendar_month("r", 5).id("quota"));
    let mut lengths = vec![HOUR * 6];
    let days = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    lengths.extend(days.map(|days| DAY * days));
    for length in lengths {
        let of_each = ["a", "b", "c"].map(|origin| enter(&sentinel, call().origin(origin)));
        assert!(of_each.iter().all(Result::is_ok));
        assert_eq!(passed(&sentinel, call().param("x")), 2);
        clock.advance(length - SECOND);
        let blocked = enter(&sentinel, call()).unwrap_err();
        assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Flow, "quota"));
        assert_eq!(blocked.retry_after(), Some(SECOND));
        let whole = if length < DAY { DAY * 31 } else { length };
        assert_eq!(
            (blocked.limit(), blocked.interval()),
            (Some(5), Some(whole))
        );
        // Heavier than a whole quota.
        let never = enter(&sentinel, call().batch(6)).unwrap_err();
        assert_eq!(never.retry_after(), None);
        let left = || {
            let node = sentinel.node("r").unwrap();
            node.keyed_rules()[0].left("any value")
        };
        assert_eq!(left(), 0);
        clock.advance(SECOND);
        assert_eq!(left(), 5);
    }
}

#[test]
fn the_budget_of_a_month_is_shown_as_one_of_all_callers() {
    let keyed = KeyedRule::per_calendar_month("r", 70)
        .cost("tokens")
        .id("each");
    let month = FlowRule::per_calendar_month("r", 50)
        .cost("tokens")
        .id("all");
    let (sentinel, clock) = engine(Rules::new().with(keyed).with(month));
    let mut spent = enter(&sentinel, call().param("x").reserve("tokens", 10)).unwrap();
    spent.charge("tokens", 4);
    let figures = || {
        let budgets = sentinel.node("r").unwrap().budgets();
        let [all, each] = &budgets[..] else {
            panic!("{budgets:?}")
        };
        assert_eq!((all.rule(), each.rule(), each.left()), ("all", "each", 70));
        assert!(!all.is_by_key() && each.is_by_key());
        (all.used(), all.reserved(), all.left())
    };
    assert_eq!(figures(), (4, 6, 40));
    spent.settle("tokens", 60);
    assert_eq!(figures(), (60, 0, 0));
    clock.advance(HOUR * 6);
    assert_eq!(figures(), (0, 0, 50));
}

#[test]
fn a_provider_may_have_less_left_than_a_month() {
    let (sentinel, clock) = engine(
        FlowRule::per_calendar_month("r", 1_000)
            .cost("tokens")
            .id("all"),
    );
    let wants = |units| enter(&sentinel, call().reserve("tokens", units));
    let mut first = wants(10).unwrap();
    first.settle("tokens", 10);
    first.meter().left("tokens", 100, SECOND * 20);
    let blocked = wants(101).unwrap_err();
    assert_eq!(blocked.retry_after(), Some(SECOND * 20));
    assert_eq!(wants(991).unwrap_err().retry_after(), Some(HOUR * 6));
    assert_eq!(sentinel.node("r").unwrap().budgets()[0].left(), 100);
    assert_eq!(
        sentinel.node("r").unwrap().keyed_rules()[0].left("any"),
        100
    );
    let mut second = wants(100).unwrap();
    assert!(wants(0).is_err());
    second.settle("tokens", 30);
    // A reload keeps the number, and a larger one is ignored.
    sentinel.reload(
        FlowRule::per_calendar_month("r", 2_000)
            .cost("tokens")
            .id("all")
            .into(),
    );
    second.meter().left("tokens", 500, SECOND * 40);
    assert!(wants(71).is_err() && wants(70).is_ok());
    clock.advance(SECOND * 20);
    assert!(wants(900).is_ok());
    // Of rules for each key, none has the number of all callers.
    let (sentinel, _) = engine(KeyedRule::per_calendar_month("r", 1_000).cost("tokens"));
    let by = |key| enter(&sentinel, call().param(key).reserve("tokens", 900));
    by("x").unwrap().meter().left("tokens", 1, SECOND);
    assert!(by("y").is_ok());
}

#[test]
fn each_origin_can_have_a_quota_of_its_own() {
    let rule = FlowRule::per_calendar_day("r", 3).by_origin();
    let (sentinel, clock) = engine(rule.utc_offset(60));
    for _ in 0..3 {
        assert_eq!(passed(&sentinel, call().origin("a")), 3);
        assert_eq!(passed(&sentinel, call().origin("b")), 3);
        let blocked = enter(&sentinel, call().origin("a")).unwrap_err();
        let until_midnight = blocked.retry_after().unwrap();
        assert!(until_midnight == HOUR * 5 || until_midnight == DAY);
        clock.advance(until_midnight);
    }
}

#[test]
fn a_budget_of_a_month_is_charged_until_its_end() {
    let rule = FlowRule::per_calendar_month("r", 1_u32 << 30).cost("tokens");
    let (sentinel, clock) = engine(rule);
    let half = || call().reserve("tokens", 1 << 29);
    let [mut first, second] = [enter(&sentinel, half()), enter(&sentinel, half())]
        .map(|entry| entry.expect("the reservations are the whole budget"));
    let refused = enter(&sentinel, call().reserve("tokens", 1)).unwrap_err();
    // Only reservations are in the way, and nobody knows when they end.
    assert_eq!(refused.retry_after(), Some(SECOND));
    first.settle("tokens", 10);
    drop((first, second));
    let refused = enter(&sentinel, half()).unwrap_err();
    assert_eq!(refused.kind(), BlockKind::Flow);
    // The second call has told nothing, so it cost what it had reserved.
    assert_eq!(refused.retry_after(), Some(HOUR * 6));
    clock.advance(HOUR * 6);
    assert!(enter(&sentinel, half()).is_ok());
}

#[test]
fn in_shadow_mode_a_month_of_all_callers_refuses_nobody() {
    let rule = Rule::from(FlowRule::per_calendar_month("r", 5));
    let (sentinel, _) = engine(Rules::new().with(rule.shadow()));
    assert_eq!(passed(&sentinel, call()), 100);
    let snapshot = sentinel.snapshot();
    assert_eq!(
        snapshot.shadows().next().map(|(_, refused)| refused),
        Some(95)
    );
}

#[test]
fn a_reload_keeps_the_count_of_the_calendar_it_counts_by() {
    let month = || FlowRule::per_calendar_month("r", 5);
    let (sentinel, _) = engine(month());
    assert_eq!(passed(&sentinel, call()), 5);
    let larger = FlowRule::per_calendar_month("r", 8);
    assert!(sentinel.reload(larger.into()));
    assert_eq!(passed(&sentinel, call()), 3);
    for other in [
        month().utc_offset(60),
        FlowRule::per_calendar_day("r", 5),
        month(),
    ] {
        assert!(sentinel.reload(other.clone().into()));
        assert_eq!(passed(&sentinel, call()), 5, "{other:?}");
    }
}

#[test]
fn a_call_that_another_rule_refuses_spends_nothing_of_the_day() {
    let rules = Rules::new()
        .with(FlowRule::per_calendar_day("r", 5))
        .with(FlowRule::per_second("r", 2));
    let (sentinel, clock) = engine(rules);
    let counts: Vec<_> = (0..4)
        .map(|_| {
            clock.advance(SECOND);
            passed(&sentinel, call())
        })
        .collect();
    assert_eq!(counts, [2, 2, 1, 0]);
}

#[test]
fn what_a_rule_by_the_calendar_cannot_have_is_refused_by_name() {
    let month = || FlowRule::per_calendar_month("r", 5);
    let elsewhere = "left out for a day or month of the calendar";
    for (rule, field) in [
        (month().strict(), "strict"),
        (month().lend(true), "lend"),
        (month().buckets(4), "buckets"),
        (month().throttle(SECOND), "throttle"),
        (month().warm_up(SECOND), "warm_up"),
        (month().when("s"), "when"),
        (month().for_origin("o"), "for_origin"),
        (month().in_context("o"), "in_context"),
        (FlowRule::per_calendar_day("*", 5), "resource"),
        (month().utc_offset(1_440), "utc_offset"),
        (FlowRule::per_hour("r", 5).utc_offset(60), "utc_offset"),
        (FlowRule::per_calendar_day("r", 1_u32 << 31), "threshold"),
        (
            FlowRule::per_calendar_day("r", (1 << 30) + 1).cost("tokens"),
            "threshold",
        ),
        (FlowRule::per_calendar_day("r", 0.5), "threshold"),
    ] {
        let error = Rules::build([rule.clone()]).unwrap_err();
        let [problem] = error.problems() else {
            panic!("{error}");
        };
        assert_eq!(problem.field(), field, "{problem}");
        let of_calendar = ["utc_offset", "threshold", "resource"];
        if !of_calendar.contains(&field) {
            assert_eq!(problem.allowed(), elsewhere);
        }
        assert!(Rules::build([Rule::from(rule).shadow()]).is_err());
    }
    for good in [
        FlowRule::per_calendar_day("r", (1_u32 << 31) - 1).utc_offset(1_439),
        month().utc_offset(-1_439).by_origin(),
        month().cost("tokens"),
        FlowRule::per_calendar_day("r", 0),
    ] {
        assert_eq!(Rules::build([good]).map(|rules| rules.len()), Ok(1));
    }
    assert_eq!(month().calendar(), Some(CalendarPeriod::Month));
}

#[test]
fn no_call_waits_for_the_next_day() {
    let (sentinel, _) = engine(FlowRule::per_calendar_day("r", 1));
    assert!(matches!(sentinel.try_enter(call()), Verdict::Pass(_)));
    let verdict = sentinel.try_enter(call().prioritized(true));
    assert!(matches!(verdict, Verdict::Block(_)));
}
