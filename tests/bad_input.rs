//! Bad input: every rule and window that cannot work is an error that says
//! which, why, and what would.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::clock::Tick;
use tower_sentinel::rule::InvalidRule;
use tower_sentinel::stat::{Event, LeapArray};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, FlowRule, IsolationRule, KeyedRule, ManualClock, Rule,
    Rules, Sentinel, SentinelLayer,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

const THRESHOLD: &str = "between 0 and 2147483647";
const INTERVAL: &str = "between 1 ms and 366 days";
const BUCKETS: &str = "between 1 and 1024";
const BLANK: &str = "a name that is not blank";
const NO_STAR: &str = "a name: only circuit breakers, adaptive rules, and \
     flow and isolation rules that count all callers together, and not by the calendar, may be for all resources";
const NO_LINE: &str =
    "left out with `for_origin` and `when`: calls wait for slots that all callers share";
const LONG: &str = "at most 256 bytes";
const CONTROL: &str = "free of control characters";
const RATIO: &str = "above 0 and at most 1";

/// A rule, and the field, the value and the allowed range of its only problem.
type Case = (Rule, &'static str, &'static str, &'static str);

fn case(
    rule: impl Into<Rule>,
    field: &'static str,
    value: &'static str,
    allowed: &'static str,
) -> Case {
    (rule.into(), field, value, allowed)
}

fn flow(threshold: f64) -> FlowRule {
    FlowRule::per_second("/r", threshold)
}

fn over(interval: Duration) -> FlowRule {
    FlowRule::per("/r", 1, interval)
}

fn cases() -> Vec<Case> {
    let day = SECOND * 86_400;
    let long = "x".repeat(257);
    vec![
        case(flow(-1.0), "threshold", "-1", THRESHOLD),
        case(flow(f64::NAN), "threshold", "NaN", THRESHOLD),
        case(flow(f64::INFINITY), "threshold", "inf", THRESHOLD),
        case(flow(f64::NEG_INFINITY), "threshold", "-inf", THRESHOLD),
        case(flow(2_147_483_648.0), "threshold", "2147483648", THRESHOLD),
        case(flow(u32::MAX.into()), "threshold", "4294967295", THRESHOLD),
        case(flow(-1e-300), "threshold", "-1e-300", THRESHOLD),
        case(
            flow(f64::MAX),
            "threshold",
            "1.7976931348623157e308",
            THRESHOLD,
        ),
        case(over(Duration::ZERO), "interval", "0ns", INTERVAL),
        case(
            over(MS - Duration::from_nanos(1)),
            "interval",
            "999.999µs",
            INTERVAL,
        ),
        case(over(day * 366 + MS), "interval", "31622400.001s", INTERVAL),
        case(
            over(Duration::MAX),
            "interval",
            "18446744073709551615.999999999s",
            INTERVAL,
        ),
        case(flow(1.0).buckets(0), "buckets", "0", BUCKETS),
        case(flow(1.0).buckets(1_025), "buckets", "1025", BUCKETS),
        case(
            flow(1.0).buckets(u32::MAX),
            "buckets",
            "4294967295",
            BUCKETS,
        ),
        case(
            flow(1.0).buckets(3),
            "buckets",
            "3",
            "a number that divides the interval of 1s",
        ),
        case(
            over(MS),
            "buckets",
            "2",
            "at most 1, so that a bucket lasts 1 ms",
        ),
        case(
            over(MS * 10).buckets(20),
            "buckets",
            "20",
            "at most 10, so that a bucket lasts 1 ms",
        ),
        case(
            flow(1.0).max_occupy_ratio(0.0),
            "max_occupy_ratio",
            "0",
            RATIO,
        ),
        case(
            flow(1.0).max_occupy_ratio(-0.1),
            "max_occupy_ratio",
            "-0.1",
            RATIO,
        ),
        case(
            flow(1.0).max_occupy_ratio(1.01),
            "max_occupy_ratio",
            "1.01",
            RATIO,
        ),
        case(
            flow(1.0).max_occupy_ratio(f64::NAN),
            "max_occupy_ratio",
            "NaN",
            RATIO,
        ),
        case(FlowRule::per_second("", 1), "resource", "\"\"", BLANK),
        case(
            FlowRule::per_second(" \t", 1),
            "resource",
            "\" \\t\"",
            BLANK,
        ),
        case(
            FlowRule::per_second(&*long, 1),
            "resource",
            "257 bytes long",
            LONG,
        ),
        case(
            FlowRule::per_second("a\r\nb", 1),
            "resource",
            "\"a\\r\\nb\"",
            CONTROL,
        ),
        case(flow(1.0).for_origin(""), "origin", "\"\"", BLANK),
        case(
            flow(1.0).for_origin(&*long),
            "origin",
            "257 bytes long",
            LONG,
        ),
        case(flow(1.0).for_origin("a\0"), "origin", "\"a\\0\"", CONTROL),
        case(flow(1.0).id(""), "id", "\"\"", BLANK),
        case(flow(1.0).id("a\nb"), "id", "\"a\\nb\"", CONTROL),
        case(IsolationRule::new("", 1), "resource", "\"\"", BLANK),
        case(
            IsolationRule::new("/r", 1_u32 << 31),
            "max",
            "2147483648",
            THRESHOLD,
        ),
        case(
            IsolationRule::new("/r", u32::MAX),
            "max",
            "4294967295",
            THRESHOLD,
        ),
        case(IsolationRule::new("/r", 1).id(" "), "id", "\" \"", BLANK),
        case(
            IsolationRule::new("/r", 1).for_origin(" "),
            "origin",
            "\" \"",
            BLANK,
        ),
        case(
            IsolationRule::new("/r", 1).when(""),
            "related",
            "\"\"",
            BLANK,
        ),
        case(
            IsolationRule::new("/r", 1).when("*"),
            "related",
            "\"*\"",
            NO_STAR,
        ),
        case(
            IsolationRule::new("/r", 1).for_origin("a").when("/s"),
            "related",
            "\"/s\"",
            "without an origin where the rule counts origins apart",
        ),
        case(
            IsolationRule::new("/r", 1)
                .for_origin("other")
                .queue(Duration::from_secs(1)),
            "queue",
            "1s",
            NO_LINE,
        ),
        case(
            IsolationRule::new("/r", 1).when("/s").queue(Duration::ZERO),
            "queue",
            "0ns",
            NO_LINE,
        ),
        case(
            IsolationRule::new("*", 1).for_origin("other"),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
        case(
            IsolationRule::new("*", 1).when("/s"),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
        case(
            AdaptiveRule::new("/r")
                .floor(1_u32 << 31)
                .ceiling((1_u32 << 31) - 1),
            "floor",
            "2147483648",
            "between 1 and 2147483647",
        ),
        case(
            AdaptiveRule::new("/r").burst(MS * 10_001),
            "burst",
            "10.001s",
            "at most 10s",
        ),
        case(
            FlowRule::per_second("*", 1).by_origin(),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
        case(
            FlowRule::per_second("*", 1).in_context("job"),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
        case(
            FlowRule::per_second("*", 1).when("/r"),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
        case(
            FlowRule::per_second("/r", 1).when("*"),
            "related",
            "\"*\"",
            NO_STAR,
        ),
        case(KeyedRule::per_second("*", 1), "resource", "\"*\"", NO_STAR),
        case(
            AuthorityRule::deny("*", ["robot"]),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
        case(
            FlowRule::per_second("*", 1).by_origin().shadow(),
            "resource",
            "\"*\"",
            NO_STAR,
        ),
    ]
}

#[test]
fn every_bad_field_is_named_with_its_value_and_what_is_allowed() {
    for (rule, field, value, allowed) in cases() {
        // Not the first of the set, so that its index is told apart from zero.
        let rules: [Rule; 2] = [flow(1.0).id("good").into(), rule.clone()];
        let error = Rules::build(rules).unwrap_err();
        let [problem] = error.problems() else {
            panic!("{rule:?} has more than one problem: {error}");
        };
        assert_eq!(
            (
                problem.index(),
                problem.field(),
                problem.value(),
                problem.allowed()
            ),
            (1, field, value, allowed),
            "{rule:?}"
        );
        let text = problem.to_string();
        assert!(text.starts_with("rule 1 ("), "{text}");
        assert!(
            text.ends_with(&format!("{field} is {value}, must be {allowed}")),
            "{text}"
        );
        assert_eq!(text, error.to_string());
        // One by one it is said in the same way.
        let alone = Rules::new().try_with(rule).unwrap_err();
        assert_eq!(
            (alone.problems()[0].index(), alone.problems()[0].field()),
            (0, field)
        );
    }
}

#[test]
fn what_stands_at_the_edge_of_the_allowed_is_allowed() {
    let day = SECOND * 86_400;
    let long = "x".repeat(256);
    let rules: Vec<Rule> = vec![
        flow(0.0).into(),
        flow(-0.0).into(),
        flow(2_147_483_647.0).into(),
        over(MS).buckets(1).into(),
        over(day * 366).buckets(1_024).into(),
        over(MS * 1_024).buckets(1_024).into(),
        flow(1.0)
            .max_occupy_ratio(f64::MIN_POSITIVE)
            .max_waiting(u32::MAX)
            .into(),
        flow(1.0).for_origin(&*long).id(&*long).into(),
        FlowRule::per_second(&*long, 1).into(),
        IsolationRule::new("/r", 0).into(),
        IsolationRule::new("/r", (1_u32 << 31) - 1).into(),
        AdaptiveRule::new("/low")
            .ceiling(1)
            .start(1)
            .burst(Duration::ZERO)
            .into(),
        AdaptiveRule::new("/high")
            .floor((1_u32 << 31) - 1)
            .ceiling((1_u32 << 31) - 1)
            .start((1_u32 << 31) - 1)
            .burst(MS * 10_000)
            .into(),
    ];
    let rules = Rules::build(rules).unwrap();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .build();
    let call = Call::new("/r").origin(&long).prioritized(true);
    assert!(matches!(
        sentinel.try_enter(call),
        tower_sentinel::Verdict::Block(_)
    ));
}

#[test]
fn a_template_has_at_most_25_parameters() {
    let template = |count: usize| (0..count).map(|n| format!("/{{p{n}}}")).collect::<String>();
    for good in [
        template(25),
        template(25) + "/{*rest}",
        template(25) + "/{{a}}/{{b}}",
    ] {
        assert!(Rules::build([flow(1.0).when(good)]).is_ok());
    }
    let long = template(26);
    for (rule, field) in [
        (FlowRule::per_second(&*long, 1), "resource"),
        (FlowRule::per_second(format!("GET {long}"), 1), "resource"),
        (flow(1.0).when(&*long), "related"),
        (flow(1.0).when("/{{{a}".to_owned() + &long), "related"),
    ] {
        let error = Rules::build([rule]).unwrap_err();
        let [problem] = error.problems() else {
            panic!("{error}");
        };
        assert_eq!(problem.field(), field);
        assert_eq!(problem.allowed(), "a template with at most 25 parameters");
    }
}

#[test]
fn a_conflict_names_the_other_template_as_it_is_written() {
    for (first, second) in [
        ("/{{a}}/{b}", "/{{a}}/{c}"),
        ("/{a}/{{b}}/{c}", "GET /{a}/{{b}}/{*rest}"),
        ("/x{{{a}", "GET /x{{{b}"),
    ] {
        let rules = ["job", first, second].map(|name| FlowRule::per_second(name, 1));
        let error = Rules::build(rules).unwrap_err();
        let allowed = format!("a template that does not conflict with {first:?} of rule 1");
        assert_eq!(error.problems()[0].allowed(), allowed);
    }
}

#[test]
fn a_template_that_is_wrong_conflicts_with_no_other() {
    let rules = ["/a/{id}/{*rest}/x", "/a/{*rest}"].map(|name| FlowRule::per_second(name, 1));
    let error = Rules::build(rules).unwrap_err();
    let told: Vec<_> = error.problems().iter().map(InvalidRule::index).collect();
    assert_eq!(told, [0]);
}

#[test]
fn no_rule_has_the_id_that_another_has_by_its_place() {
    for (ids, expected) in [
        ([Some("flow-1"), None], Some((1, "\"flow-1\""))),
        ([None, Some("flow-0")], Some((1, "\"flow-0\""))),
        ([Some("flow-0"), None], None),
        ([None, Some("flow-1")], None),
        ([None, Some("isolation-0")], None),
    ] {
        let rules = ids.map(|id| match id {
            Some(id) => flow(1.0).id(id),
            None => flow(1.0),
        });
        let error = Rules::build(rules).err();
        let told = error.as_ref().map(|error| {
            let [problem] = error.problems() else {
                panic!("{error}");
            };
            assert_eq!(problem.field(), "id");
            (problem.index(), problem.value())
        });
        assert_eq!(told, expected, "{ids:?}");
    }
}

#[test]
fn a_name_that_is_too_long_is_looked_at_no_further() {
    // As a template it would be a list of millions of braces.
    let rule = FlowRule::per_second("/".to_owned() + &"{{".repeat(1 << 20), 1);
    let error = Rules::build([rule]).unwrap_err();
    let told: Vec<_> = error.problems().iter().map(InvalidRule::value).collect();
    assert_eq!(told, ["2097153 bytes long"]);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let rules: Vec<Rule> = vec![
        FlowRule::per_second("", -5)
            .buckets(7)
            .max_occupy_ratio(2.0)
            .into(),
        flow(1.0).id("twice").into(),
        IsolationRule::new("b\n", u32::MAX).id("twice").into(),
        FlowRule::per_second("/users/{id}", 1).into(),
        FlowRule::per_second("/users/{name}", 1).into(),
        FlowRule::per_second("/users/{", 1).into(),
    ];
    let error = Rules::build(rules).unwrap_err();
    let found: Vec<_> = error
        .problems()
        .iter()
        .map(|p| (p.index(), p.field()))
        .collect();
    let expected = [
        (0, "resource"),
        (0, "threshold"),
        (0, "buckets"),
        (0, "max_occupy_ratio"),
        (2, "resource"),
        (2, "max"),
        (2, "id"),
        (4, "resource"),
        (5, "resource"),
    ];
    assert_eq!(found, expected);
    let conflict = &error.problems()[7];
    assert_eq!(conflict.value(), "\"/users/{name}\"");
    assert_eq!(
        conflict.allowed(),
        "a template that does not conflict with \"/users/{id}\" of rule 3"
    );
    let duplicate = &error.problems()[6];
    assert_eq!(
        duplicate.allowed(),
        "different from that of every other rule"
    );
    // One line tells all of it.
    assert_eq!(
        error.to_string().matches("; rule ").count(),
        expected.len() - 1
    );
}

#[test]
fn of_many_things_that_are_wrong_the_text_has_the_first_hundred() {
    let text_of = |count| {
        let error = Rules::build(vec![flow(-1.0); count]).unwrap_err();
        assert_eq!(error.problems().len(), count);
        error.to_string()
    };
    let told = |index| format!("rule {index} (flow \"/r\"): threshold is -1, must be {THRESHOLD}");
    assert!(text_of(100).ends_with(&format!("; {}", told(99))));
    let text = text_of(20_000);
    assert!(text.starts_with(&format!("{}; {}; ", told(0), told(1))));
    assert!(text.ends_with(&format!("; {}; and 19900 more", told(99))));
}

#[test]
fn what_is_wrong_with_one_rule_is_short_whatever_is_in_it() {
    let long = "x".repeat(1 << 16);
    let error = Rules::build([
        AuthorityRule::deny(&*long, vec![""; 2_000]),
        AuthorityRule::deny(" ".repeat(1 << 16), ["a"]),
    ])
    .unwrap_err();
    let problems = error.problems();
    assert_eq!(problems.len(), 100 + 1);
    assert!(problems.iter().all(|it| it.to_string().len() < 600));
    assert_eq!(problems[100].value(), "65536 bytes long");
}

#[test]
fn rules_that_stand_in_the_program_panic_where_they_stand() {
    let message = "rule 0 (flow \"/r\"): threshold is -1, must be between 0 and 2147483647";
    assert_eq!(
        Rules::new().try_with(flow(-1.0)).unwrap_err().to_string(),
        message
    );

    let places: [fn(); 6] = [
        || drop(Rules::new().with(flow(-1.0))),
        || drop(Rules::from(flow(-1.0))),
        || drop(Rules::from([flow(-1.0)])),
        || drop(Sentinel::new(flow(-1.0))),
        || drop(Sentinel::builder().rules(flow(-1.0))),
        || drop(SentinelLayer::new(flow(-1.0))),
    ];
    let first_line = line!() - 7;
    let line = std::sync::Arc::new(AtomicU32::new(0));
    let before = std::panic::take_hook();
    let seen = line.clone();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(place) = panic.location().filter(|place| place.file() == file!()) {
            seen.store(place.line(), Ordering::Relaxed);
        }
    }));
    let panics = places.map(|place| {
        let panic = catch_unwind(AssertUnwindSafe(place)).unwrap_err();
        (
            panic.downcast::<String>().unwrap(),
            line.swap(0, Ordering::Relaxed),
        )
    });
    std::panic::set_hook(before);
    for (place, (text, line)) in panics.into_iter().enumerate() {
        assert_eq!((&**text, line), (message, first_line + place as u32));
    }
}

#[test]
fn a_bad_window_of_the_engine_names_what_is_allowed() {
    let cases = [
        (SECOND, 0, "buckets is 0, must be between 1 and 3600"),
        (
            SECOND * 60,
            3_601,
            "buckets is 3601, must be between 1 and 3600",
        ),
        (
            Duration::ZERO,
            2,
            "interval is 0ns, must be between 10 ms and 1 hour",
        ),
        (
            MS * 9,
            1,
            "interval is 9ms, must be between 10 ms and 1 hour",
        ),
        (
            Duration::MAX,
            1,
            "interval is 18446744073709551615.999999999s, must be between 10 ms and 1 hour",
        ),
        (
            SECOND * 3_602,
            2,
            "interval is 3602s, must be between 10 ms and 1 hour",
        ),
        (
            SECOND,
            3,
            "buckets is 3, must be a number that divides the interval of 1s",
        ),
        (
            SECOND,
            200,
            "buckets is 200, must be at most 100, so that a bucket lasts 10 ms",
        ),
        (
            MS * 900,
            3,
            "buckets is 3, must be a number that cuts 900ms into buckets that divide one second or are whole seconds",
        ),
        (
            MS * 1_500,
            1,
            "buckets is 1, must be a number that cuts 1.5s into buckets that divide one second or are whole seconds",
        ),
    ];
    for (interval, buckets, expected) in cases {
        let error = Sentinel::builder().window(interval, buckets).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    for (interval, buckets) in [(MS * 500, 1), (SECOND, 100), (SECOND * 10, 5)] {
        assert!(Sentinel::builder().window(interval, buckets).is_ok());
    }
}

#[test]
fn figures_over_so_long_that_their_steps_wrap_are_refused() {
    // 2³² steps of one second: none, as 32 bits count them.
    let (ages, hour) = (Duration::from_secs(1 << 32), SECOND * 3_600);
    assert!(Sentinel::builder().window(ages, 1).is_err());
    // The longest that are allowed run, and are bounded.
    for buckets in [1, 60, 3_600] {
        let builder = Sentinel::builder().window(hour, buckets).unwrap();
        let sentinel = builder.clock(ManualClock::new()).build();
        drop(sentinel.try_enter(Call::new("job")));
        let view = sentinel.node("job").unwrap();
        assert_eq!(view.sum(Event::Pass), 1);
        assert!(view.footprint() <= 256 << 10, "{}", view.footprint());
    }
}

#[test]
fn a_bad_array_and_a_bad_quota_of_one_name_what_is_allowed() {
    let cases = [
        (
            Duration::ZERO,
            2,
            "interval is 0ns, must be between 1 ms and 146 years",
        ),
        (
            MS * 20,
            3,
            "buckets is 3, must be a number that divides the interval of 20ms",
        ),
        (
            MS * 20,
            40,
            "buckets is 40, must be at most 20, so that a bucket lasts 1 ms",
        ),
    ];
    for (interval, buckets, expected) in cases {
        let error = LeapArray::new(interval, buckets).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    let array = LeapArray::new(SECOND, 2).unwrap();
    let whole = "must be between 1 and 2 whole buckets of 500ms";
    let part = "must be a number that divides 2, the buckets of 500ms in 1s";
    let cases = [
        (
            array.quota(MS * 700, 1),
            format!("interval is 700ms, {whole}"),
        ),
        (
            array.quota(Duration::ZERO, 1),
            format!("interval is 0ns, {whole}"),
        ),
        (
            array.quota(SECOND * 2, 1),
            format!("interval is 2s, {whole}"),
        ),
        (
            array.quota(SECOND, 1 << 31),
            "limit is 2147483648, must be between 0 and 2147483647".to_owned(),
        ),
        (
            array.quota_in(SECOND, 0, 1),
            format!("buckets is 0, {part}"),
        ),
        (
            array.quota_in(SECOND, 3, 1),
            format!("buckets is 3, {part}"),
        ),
    ];
    for (quota, expected) in cases {
        assert_eq!(quota.unwrap_err().to_string(), expected);
    }
    assert!(array.quota(Duration::MAX, 1).is_err());

    assert!(
        array
            .try_acquire(Tick::ZERO, u32::MAX, &[array.quota(SECOND, 5).unwrap()])
            .is_err()
    );
}

/// Any number, the odd ones often.
fn number() -> impl Strategy<Value = f64> {
    let odd = [
        0.0,
        -0.0,
        0.2,
        1.0,
        2_147_483_647.0,
        f64::MAX,
        f64::NAN,
        f64::INFINITY,
        -1.0,
    ];
    prop_oneof![proptest::sample::select(odd.to_vec()), any::<f64>()]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..5,
        any::<u32>(),
        Just(u32::MAX),
        Just(1 << 31),
        Just(1_000)
    ]
}

fn length() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0_u64..5_000).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_nanos),
        any::<(u64, u32)>().prop_map(|(secs, nanos)| Duration::new(secs / 2, nanos)),
        Just(SECOND),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_rule_is_made_of_it_is_an_error_or_it_works(
        resource in prop_oneof![Just("/a/{b}".to_owned()), "\\PC{0,12}", "[/{}*a\\x00]{0,8}"],
        origin in prop_oneof![Just("other".to_owned()), ".{0,5}"],
        (threshold, ratio) in (number(), prop_oneof![3 => 0.001..1.0, 1 => number()]),
        (buckets, waiting, max, weight) in (count(), count(), count(), count()),
        (interval, step) in (length(), length()),
        is_strict in any::<bool>(),
    ) {
        let rule = FlowRule::per(&*resource, threshold, interval)
            .buckets(buckets).max_occupy_ratio(ratio).max_waiting(waiting).lend(true);
        let rule = if is_strict { rule.strict() } else { rule };
        let rules: [Rule; 3] = [
            rule.clone().into(),
            rule.for_origin(&*origin).into(),
            IsolationRule::new(&*resource, max).into(),
        ];
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder().clock(clock.clone()).build();
        if sentinel.try_reload(rules).is_ok() {
            for _ in 0..3 {
                let call = Call::new(&resource).origin(&origin).batch(weight).prioritized(true);
                drop(sentinel.try_enter(call));
                clock.advance(step.min(SECOND * 86_400 * 366));
            }
            prop_assert_eq!(sentinel.inbound().concurrency(), 0);
        } else {
            prop_assert!(sentinel.rules().is_empty());
        }
    }
}
