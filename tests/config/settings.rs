//! Rules as settings make them: what limits nobody, or everybody, is an error that names the
//! cure.

use std::num::NonZeroU64;
use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::keyed::KeyedLimiter;
use tower_sentinel::middleware::{CallLayer, skip::paths};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    ManualClock, MissingKey, Rule, Rules, Sentinel, SentinelLayer, SystemRule, Verdict,
};

const SECOND: Duration = Duration::from_secs(1);

/// Field, value and what is allowed, of the only problem of `rule`.
fn problem(rule: impl Into<Rule>) -> (&'static str, String, String) {
    let error = Rules::build([rule]).unwrap_err();
    let [problem] = error.problems() else {
        panic!("{error}");
    };
    let (value, allowed) = (problem.value().to_owned(), problem.allowed().to_owned());
    (problem.field(), value, allowed)
}

#[test]
fn a_route_of_another_router_is_refused_with_ours() {
    for (theirs, ours) in [
        ("/users/:id", "/users/{id}"),
        ("/users/:id/posts/:post", "/users/{id}/posts/{post}"),
        ("/files/*", "/files/{*rest}"),
        ("/files/*path", "/files/{*path}"),
        ("/files/**", "/files/{*rest}"),
        ("/users/<id>", "/users/{id}"),
        ("/users/{id:[0-9]+}", "/users/{id}"),
        ("/files/{path...}", "/files/{*path}"),
    ] {
        let name = theirs.to_owned();
        let rules: [Rule; 7] = [
            FlowRule::per_second(&name, 1).into(),
            KeyedRule::per_second(&name, 1).into(),
            IsolationRule::new(&name, 1).into(),
            AdaptiveRule::new(&name).into(),
            CircuitBreakerRule::error_ratio(&name, 0.5).into(),
            AuthorityRule::deny(&name, ["a"]).into(),
            FlowRule::per_second(&name, 1).shadow(),
        ];
        let allowed = format!("written {ours:?}, as in axum 0.8");
        for rule in rules {
            let kind = format!("{rule:?}");
            let expected = ("resource", format!("{theirs:?}"), allowed.clone());
            assert_eq!(problem(rule), expected, "{kind}");
        }
        let related = FlowRule::per_second("a", 1).when(theirs);
        assert_eq!(problem(related).0, "related");
        let by_method = format!("GET {theirs}");
        let expected = ("resource", format!("{by_method:?}"), allowed.clone());
        assert_eq!(problem(IsolationRule::new(by_method, 1)), expected);
        // Paths that a layer skips are written in the same way.
        let skipped = std::panic::catch_unwind(|| drop(paths([theirs]))).unwrap_err();
        let text = skipped.downcast_ref::<String>().unwrap();
        assert!(text.contains(&allowed), "{text}");
        assert!(Rules::build([FlowRule::per_second(ours, 1)]).is_ok());
    }
    for good in ["/v1/projects:list", "jobs:*", "/a*", "POST:/a", "/{{x:y}}"] {
        assert!(
            Rules::build([FlowRule::per_second(good, 1)]).is_ok(),
            "{good}"
        );
    }
}

#[test]
fn a_fraction_of_a_call_where_whole_ones_count_is_refused() {
    let whole = "0 or at least 1, as whole calls are counted: write 1 per";
    let (queue, burst) = ("let calls queue with `throttle`", "add a `burst` of 1");
    let half = |rule: Rule, field, value: &str, longer: &str, cure: &str| {
        let expected = (
            field,
            value.to_owned(),
            format!("{whole} {longer}, or {cure}"),
        );
        assert_eq!(problem(rule), expected);
    };
    let flow = FlowRule::per_second("r", 0.5);
    for rule in [
        flow.clone(),
        flow.clone().by_origin(),
        flow.clone().buckets(10).strict(),
        flow.clone().warm_up(SECOND),
        flow.clone().when("s"),
    ] {
        half(rule.into(), "threshold", "0.5", "2s", queue);
    }
    let rule = FlowRule::per("r", 0.25, SECOND * 60);
    half(rule.into(), "threshold", "0.25", "240s", queue);
    let value = KeyedRule::per_second("r", 0.5);
    half(value.clone().into(), "threshold", "0.5", "2s", burst);
    let window = "leave out `window` and add a `burst` of 1";
    half(
        value.clone().window().into(),
        "threshold",
        "0.5",
        "2s",
        window,
    );
    let values = KeyedRule::per_second("r", 5);
    let rule = values.clone().except("a", 0.1);
    half(rule.into(), "except", "0.1", "10s", burst);
    let rule = values.tier("free", 0.1);
    half(rule.into(), "tier", "0.1", "10s", burst);
    let resource = "give each resource a `FlowRule` with `throttle`";
    half(
        SystemRule::new().qps(0.5).into(),
        "qps",
        "0.5",
        "2s",
        resource,
    );
    // No interval is as long as that.
    let (_, _, allowed) = problem(FlowRule::per_second("r", f64::MIN_POSITIVE));
    assert!(
        allowed.ends_with("counted: let calls queue with `throttle`"),
        "{allowed}"
    );
    let good: [Rule; 7] = [
        flow.clone().throttle(SECOND).into(),
        FlowRule::per_second("r", 0).into(),
        FlowRule::per_second("r", 1.5).into(),
        value.clone().burst(1).into(),
        value.clone().throttle(SECOND).into(),
        KeyedRule::per_second("r", 0).except("a", 1).into(),
        SystemRule::new().qps(0).into(),
    ];
    assert!(Rules::build(good).is_ok());
}

#[test]
fn what_to_do_without_a_key_is_refused_where_there_is_none() {
    let allowed = "left out without `by_origin`: the rule has no key that may be missing";
    for (missing, name) in [
        // Also what holds by default: it was written for a key.
        (MissingKey::Share, "share"),
        (MissingKey::Skip, "skip"),
        (MissingKey::Refuse, "refuse"),
    ] {
        let rule = FlowRule::per_second("r", 1).missing(missing);
        let expected = ("missing", name.to_owned(), allowed.to_owned());
        for rule in [
            rule.clone(),
            rule.clone().for_origin("a"),
            rule.clone().for_origin("other"),
            rule.clone().in_context("a"),
            rule.clone().when("other"),
            rule.clone().throttle(SECOND),
        ] {
            assert_eq!(problem(rule.clone()), expected);
            assert!(Rules::build([Rule::from(rule).shadow()]).is_err());
        }
        assert!(Rules::build([rule.by_origin()]).is_ok());
        let values = KeyedRule::per_second("r", 1).missing(missing);
        assert!(Rules::build([values]).is_ok());
    }
}

#[test]
fn settings_that_a_limit_on_costs_cannot_have_are_refused() {
    let rule = || FlowRule::per_minute("r", 100).cost("tokens");
    let text = |text: &str| text.to_owned();
    let absent = "left out with `cost`: a cost has no turn";
    let callers = |field| format!("left out with `{field}`: it counts all callers together");
    let tokens = || text("\"tokens\"");
    for (rule, expected) in [
        (
            rule().throttle(SECOND),
            ("throttle", text("1s"), text(absent)),
        ),
        (
            rule().warm_up(SECOND),
            ("warm_up", text("1s"), text(absent)),
        ),
        (
            rule().lend(true),
            (
                "lend",
                text("true"),
                text("left out with `cost`: nothing is lent of what is not known"),
            ),
        ),
        (rule().when("other"), ("cost", tokens(), callers("when"))),
        (
            rule().in_context("a"),
            ("cost", tokens(), callers("in_context")),
        ),
        (rule().by_origin(), ("cost", tokens(), callers("by_origin"))),
        (
            rule().for_origin("a"),
            ("cost", tokens(), callers("for_origin")),
        ),
        (
            FlowRule::per_minute("r", (1_u32 << 30) + 1).cost("tokens"),
            (
                "threshold",
                text("1073741825"),
                text("between 0 and 1073741824"),
            ),
        ),
    ] {
        assert_eq!(problem(rule.clone()), expected);
        assert!(Rules::build([Rule::from(rule).shadow()]).is_err());
    }
    let longest = "x".repeat(64);
    let allowed = "1 to 64 visible ASCII characters without spaces";
    for unit in ["", " ", "two words", "größe", "a\n", &format!("{longest}x")] {
        let shown = format!("{:?}", unit.chars().take(64).collect::<String>());
        let rule = FlowRule::per_minute("r", 1).cost(unit);
        assert_eq!(problem(rule), ("cost", shown, text(allowed)));
    }
    let requests = problem(FlowRule::per_minute("r", 1).cost("requests"));
    assert_eq!((requests.0, &*requests.1), ("cost", "\"requests\""));
    for good in [
        rule().strict().buckets(10),
        rule().lend(false),
        FlowRule::per_minute("r", 1 << 30).cost(longest),
        FlowRule::per_minute("*", 0).cost("{}"),
    ] {
        assert_eq!(Rules::build([good]).map(|rules| rules.len()), Ok(1));
    }
}

#[test]
fn settings_that_a_keyed_limit_on_costs_cannot_have_are_refused() {
    let rule = || KeyedRule::per_minute("r", 100).cost("tokens");
    let absent = "left out with `cost`: a cost has no turn";
    let most = "between 0 and 1073741824";
    let too_many = (1_u32 << 30) + 1;
    for (rule, (field, value, allowed)) in [
        (rule().throttle(SECOND), ("max_wait", "1s", absent)),
        (
            KeyedRule::concurrency("r", 3).cost("tokens"),
            (
                "cost",
                "\"tokens\"",
                "left out with `concurrency`: that counts calls",
            ),
        ),
        (
            rule().queue(SECOND),
            ("queue", "1s", "left out without `concurrency`"),
        ),
        (
            rule().shared(),
            (
                "shared",
                "true",
                "used with `window`: a refilled quota has no buckets to lease from",
            ),
        ),
        (
            KeyedRule::per_minute("r", too_many).cost("tokens"),
            ("threshold", "1073741825", most),
        ),
        (rule().burst(too_many), ("burst", "1073741825", most)),
        (rule().capacity(too_many), ("capacity", "1073741825", most)),
        (
            rule().tier("pro", too_many),
            ("tier", "1073741825 for \"pro\"", most),
        ),
        (
            rule().except("ann", too_many),
            ("except", "1073741825 for \"ann\"", most),
        ),
        (
            KeyedRule::per_minute("r", too_many).cost("tokens").window(),
            ("threshold", "1073741825", most),
        ),
        (
            KeyedRule::per("r", 1 << 20, SECOND / 2)
                .cost("tokens")
                .window(),
            ("threshold", "1048576", "between 0 and 1048575"),
        ),
        (
            rule().cost("requests"),
            (
                "cost",
                "\"requests\"",
                "another unit: a rule without `cost` counts requests",
            ),
        ),
        (
            rule().cost("two words"),
            (
                "cost",
                "\"two words\"",
                "1 to 64 visible ASCII characters without spaces",
            ),
        ),
    ] {
        let expected = (field, value.to_owned(), allowed.to_owned());
        assert_eq!(problem(rule.clone()), expected);
        assert!(Rules::build([Rule::from(rule).shadow()]).is_err());
    }
    for good in [
        rule().window().tier("pro", 1 << 30).except("ann", 0),
        rule().burst(1 << 30).tier("pro", 1 << 30),
        rule().by_origin().missing(MissingKey::Refuse),
    ] {
        assert_eq!(Rules::build([good]).map(|rules| rules.len()), Ok(1));
    }
}

#[test]
fn settings_that_a_rule_that_blocks_values_cannot_have_are_refused() {
    let rule = || KeyedRule::per_minute("r", 5).block_for(SECOND * 60);
    let elsewhere = "left out with `window`, `throttle` or `concurrency`";
    let length = "between the interval, 60s, and 366 days";
    let most = "at most 3662109 with `block_for`: one call in 16384 ns";
    let shared = "used with `window`: a refilled quota has no buckets to lease from";
    for (rule, (field, value, allowed)) in [
        (rule().window(), ("block_for", "60s", elsewhere)),
        (rule().throttle(SECOND), ("block_for", "60s", elsewhere)),
        (
            KeyedRule::concurrency("r", 3).block_for(SECOND),
            ("block_for", "1s", elsewhere),
        ),
        (rule().block_for(SECOND * 59), ("block_for", "59s", length)),
        (
            rule().block_for(Duration::ZERO),
            ("block_for", "0ns", length),
        ),
        (
            rule().block_for(SECOND * 366 * 86_400 + SECOND),
            ("block_for", "31622401s", length),
        ),
        (
            KeyedRule::per_minute("r", 4_000_000).block_for(SECOND * 60),
            ("threshold", "4000000", most),
        ),
        (
            rule().tier("pro", 4_000_000),
            ("tier", "4000000 for \"pro\"", most),
        ),
        (
            rule().except("ann", 4_000_000),
            ("except", "4000000 for \"ann\"", most),
        ),
        (rule().shared(), ("shared", "true", shared)),
    ] {
        let expected = (field, value.to_owned(), allowed.to_owned());
        assert_eq!(problem(rule), expected);
    }
    for good in [
        rule(),
        rule()
            .burst(9)
            .tier("pro", 3_000_000)
            .except_unlimited("ann"),
        rule().block_for(SECOND * 366 * 86_400).by_origin(),
        rule().cost("failures"),
    ] {
        assert_eq!(Rules::build([good]).map(|rules| rules.len()), Ok(1));
    }
}

#[test]
fn a_queue_for_values_is_refused_unless_it_is_for_those_at_once() {
    let allowed = "left out without `concurrency`";
    let rates = || KeyedRule::per_second("r", 1);
    for rule in [
        rates(),
        rates().window(),
        rates().throttle(SECOND),
        KeyedRule::concurrency("r", 1).window(),
    ] {
        let queue = ("queue", "1s".to_owned(), allowed.to_owned());
        assert_eq!(problem(rule.clone().queue(SECOND)), queue);
        // Also what lets no call wait.
        let none = ("queue", "0ns".to_owned(), allowed.to_owned());
        assert_eq!(problem(rule.clone().queue(Duration::ZERO)), none);
        let most = ("max_waiting", "3".to_owned(), allowed.to_owned());
        assert_eq!(problem(rule.max_waiting(3)), most);
    }
    let at_once = || KeyedRule::concurrency("r", 1);
    let day = Duration::from_secs(86_400);
    let longer = day + Duration::from_nanos(1);
    let queue = ("queue", format!("{longer:?}"), "at most 1 day".to_owned());
    assert_eq!(problem(at_once().queue(longer)), queue);
    let allowed = format!("between 0 and {}", u32::MAX);
    let most = ("max_waiting", (1_u64 << 32).to_string(), allowed);
    assert_eq!(problem(at_once().max_waiting(1_u64 << 32)), most);
    let good = [
        at_once().queue(day).max_waiting(u32::MAX),
        at_once().queue(Duration::ZERO).max_waiting(0),
        at_once().max_waiting(3),
    ];
    assert!(Rules::build(good[..2].iter().cloned()).is_ok());
    assert!(Rules::build(good[2..].iter().cloned()).is_ok());
}

#[test]
fn a_set_is_made_of_whatever_rules_are_at_hand() {
    let flow = || FlowRule::per_second("a", 1);
    let slots = || IsolationRule::new("a", 1);
    let breaker = || CircuitBreakerRule::error_ratio("a", 0.5);
    let expected = Rules::new().with(flow()).with(slots()).with(breaker());
    let mixed = || -> Vec<Rule> { vec![flow().into(), slots().into(), breaker().into()] };
    assert_eq!(Rules::from((flow(), slots(), breaker())), expected);
    assert_eq!(Rules::from(mixed()), expected);
    let array: [Rule; 3] = mixed().try_into().unwrap();
    assert_eq!(Rules::from(array), expected);
    assert_eq!(Rules::from((flow(),)), flow().into());
    assert_eq!(Rules::from(vec![flow(); 2]).len(), 2);
    assert!(Rules::from(Vec::<Rule>::new()).is_empty());
    // As many as a tuple may have, some in shadow mode.
    let twelve = Rules::from((
        flow(),
        slots(),
        breaker(),
        flow().shadow(),
        AdaptiveRule::new("a"),
        AuthorityRule::deny("a", ["x"]),
        SystemRule::new().qps(1),
        KeyedRule::per_second("a", 1),
        flow(),
        flow(),
        flow(),
        slots().shadow(),
    ));
    assert_eq!(
        (twelve.len(), twelve.iter().nth(3).unwrap().is_shadow()),
        (12, true)
    );
    // All problems of all of them, with their places.
    let bad = || {
        (
            FlowRule::per_second("a", -1),
            slots(),
            IsolationRule::new(" ", 1),
        )
    };
    let caught = std::panic::catch_unwind(|| Rules::from(bad())).unwrap_err();
    let text = caught.downcast_ref::<String>().unwrap();
    assert!(
        text.starts_with("rule 0 (flow \"a\"): threshold is -1, must be "),
        "{text}"
    );
    assert!(
        text.contains("; rule 2 (isolation \" \"): resource is \" \", must be "),
        "{text}"
    );
}

#[test]
fn a_minute_and_an_hour_have_constructors() {
    let of = |interval| FlowRule::per("a", 5, interval);
    assert_eq!(FlowRule::per_minute("a", 5), of(SECOND * 60));
    assert_eq!(FlowRule::per_hour("a", 5), of(SECOND * 3_600));
    let of = |interval| KeyedRule::per("a", 5, interval);
    assert_eq!(KeyedRule::per_minute("a", 5), of(SECOND * 60));
    assert_eq!(KeyedRule::per_hour("a", 5), of(SECOND * 3_600));
    let now = Tick::from_millis(1_000_000);
    for (limiter, token) in [
        (KeyedLimiter::per_minute(60), SECOND),
        (KeyedLimiter::per_hour(60), SECOND * 60),
    ] {
        let limiter = limiter.build(now).unwrap();
        assert!(limiter.try_acquire(now, "a", 60).is_ok());
        let full = limiter.try_acquire(now, "a", 1).unwrap_err();
        assert_eq!(full.available_at(), Some(now + token));
    }
}

#[test]
fn every_type_of_number_is_taken_as_what_it_is() {
    let expected = FlowRule::per_second("r", 7.0).buckets(5).max_waiting(9);
    assert_eq!(
        FlowRule::per_second("r", 7_u8)
            .buckets(5_u64)
            .max_waiting(9_usize),
        expected
    );
    assert_eq!(
        FlowRule::per_second("r", 7_i64)
            .buckets(5_i8)
            .max_waiting(9_i128),
        expected
    );
    assert_eq!(
        FlowRule::per_second("r", 7_usize)
            .buckets(5_u128)
            .max_waiting(9_isize),
        expected
    );
    let seven = NonZeroU64::new(7).unwrap();
    assert_eq!(
        FlowRule::per_second("r", seven).buckets(5).max_waiting(9),
        expected
    );
    assert_eq!(
        FlowRule::per_second("r", 7.0_f32).buckets(5).max_waiting(9),
        expected
    );
    assert_eq!(IsolationRule::new("r", 32_usize).max(), 32);
    assert_eq!(IsolationRule::new("r", seven).max(), 7);
    let now = Tick::from_millis(1_000);
    let limiter = KeyedLimiter::per_second(2_u64)
        .burst(1_usize)
        .max_keys(8_i64);
    assert!(limiter.build(now).unwrap().try_acquire(now, "a", 3).is_ok());
}

#[test]
fn a_number_of_any_type_out_of_range_is_told_as_it_is() {
    let most = "between 0 and 2147483647";
    let flow = || FlowRule::per_second("r", 1);
    let value = || KeyedRule::per_second("r", 1);
    let breaker = || CircuitBreakerRule::error_ratio("r", 0.5);
    let huge = u64::from(u32::MAX) + 2;
    let cases: [(Rule, &str, &str, &str); 17] = [
        (
            FlowRule::per_second("r", huge).into(),
            "threshold",
            "4294967297",
            most,
        ),
        (
            FlowRule::per_second("r", -1_i64).into(),
            "threshold",
            "-1",
            most,
        ),
        (
            flow().buckets(huge).into(),
            "buckets",
            "4294967297",
            "between 1 and 1024",
        ),
        (
            flow().buckets(-2_i64).into(),
            "buckets",
            "-2",
            "between 1 and 1024",
        ),
        (
            flow().max_waiting(-1).into(),
            "max_waiting",
            "-1",
            "between 0 and 4294967295",
        ),
        (
            IsolationRule::new("r", huge).into(),
            "max",
            "4294967297",
            most,
        ),
        (IsolationRule::new("r", -1_i8).into(), "max", "-1", most),
        (
            KeyedRule::concurrency("r", -1).into(),
            "threshold",
            "-1",
            most,
        ),
        (value().burst(huge).into(), "burst", "4294967297", most),
        (value().burst(-1).into(), "burst", "-1", most),
        (
            value().max_keys(huge).into(),
            "max_keys",
            "4294967297",
            "between 1 and 67108864",
        ),
        (
            breaker().probes(huge).into(),
            "probes",
            "4294967297",
            "between 1 and 63",
        ),
        (
            breaker().min_calls(-1).into(),
            "min_calls",
            "-1",
            "between 1 and 1000000",
        ),
        (
            breaker().buckets(-1).into(),
            "buckets",
            "-1",
            "between 1 and 64",
        ),
        (
            CircuitBreakerRule::error_count("r", huge).into(),
            "count",
            "4294967297",
            "between 1 and 1000000",
        ),
        (
            AdaptiveRule::new("r").ceiling(huge).into(),
            "ceiling",
            "4294967297",
            "between the floor, 1, and 2147483647",
        ),
        (
            SystemRule::new().concurrency(-1_i64).into(),
            "concurrency",
            "-1",
            most,
        ),
    ];
    for (rule, field, value, allowed) in cases {
        let expected = (field, value.to_owned(), allowed.to_owned());
        assert_eq!(problem(rule), expected);
    }
    let now = Tick::ZERO;
    for (limiter, told) in [
        (
            KeyedLimiter::per_second(1).burst(-1),
            "burst is -1, must be between 0 and 2147483647",
        ),
        (
            KeyedLimiter::per_second(1).max_keys(huge),
            "max_keys is 4294967297, must be between 1 and 67108864",
        ),
    ] {
        assert_eq!(limiter.build(now).unwrap_err().to_string(), told);
    }
}

#[test]
fn a_quota_is_refilled_within_microseconds() {
    let short = Duration::from_micros(50);
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(KeyedRule::per("r", 1, short).burst(2))
        .clock(clock.clone())
        .build();
    let passes = || {
        matches!(
            sentinel.try_enter(Call::new("r").param("a")),
            Verdict::Pass(_)
        )
    };
    assert_eq!([(); 4].map(|()| passes()), [true, true, true, false]);
    clock.advance(short - Duration::from_nanos(1));
    assert!(!passes());
    clock.advance(Duration::from_nanos(1));
    assert!(passes() && !passes());

    let least = Duration::from_micros(1);
    let below = least - Duration::from_nanos(1);
    assert!(Rules::build([KeyedRule::per("r", 1, least)]).is_ok());
    let told = |allowed: &str| ("interval", "999ns".to_owned(), allowed.to_owned());
    let rule = KeyedRule::per("r", 1, below);
    assert_eq!(problem(rule.clone()), told("between 1 µs and 366 days"));
    assert_eq!(
        problem(rule.throttle(SECOND)),
        told("between 1 ms and 366 days")
    );
    let now = Tick::from_millis(1_000);
    let limiter = KeyedLimiter::per(1, least).build(now).unwrap();
    assert!(limiter.try_acquire(now, "a", 1).is_ok());
    assert!(limiter.try_acquire(now, "a", 1).is_err());
    assert!(limiter.try_acquire(now + least, "a", 1).is_ok());
    assert!(KeyedLimiter::per(1, below).build(now).is_err());
    assert!(KeyedLimiter::per(1, short * 2).window().build(now).is_err());
}

#[test]
fn what_panics_with_bad_rules_has_a_twin_that_does_not() {
    let good = || vec![FlowRule::per_second("r", 1), FlowRule::per_second("s", 1)];
    let bad = || vec![FlowRule::per_second("r", 1), FlowRule::per_second("s", -1)];
    fn describe<'a>((): &'a ()) -> Call<'a> {
        Call::new("r")
    }
    let sentinel = Sentinel::try_new(good()).unwrap();
    let layer = SentinelLayer::try_new(good()).unwrap();
    let calls = CallLayer::try_new(good(), describe).unwrap();
    for made in [&sentinel, layer.sentinel(), calls.sentinel()] {
        assert_eq!(made.rules(), good().into());
    }
    for error in [
        Sentinel::try_new(bad()).unwrap_err(),
        SentinelLayer::try_new(bad()).unwrap_err(),
        CallLayer::try_new(bad(), describe).unwrap_err(),
    ] {
        assert_eq!(
            (error.problems().len(), error.problems()[0].index()),
            (1, 1)
        );
    }
}

#[test]
fn a_capacity_is_the_whole_size_of_the_bucket() {
    let now = Tick::from_millis(1_000);
    let at_once = |rule: KeyedRule| {
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder().rules(rule).clock(clock).build();
        let call = Call::new("r").param("a");
        (0..100)
            .filter(|_| matches!(sentinel.try_enter(call), Verdict::Pass(_)))
            .count()
    };
    let rule = |threshold: f64| KeyedRule::per_second("r", threshold);
    for (threshold, capacity) in [(2.0, 2), (2.0, 10), (2.5, 3), (2.5, 10), (0.5, 1), (0.5, 7)] {
        let expected = (capacity, threshold);
        let whole = rule(threshold).burst(3).capacity(capacity);
        assert_eq!((at_once(whole) as i32, threshold), expected);
        let limiter = KeyedLimiter::per_second(threshold)
            .burst(3)
            .capacity(capacity);
        let limiter = limiter.build(now).unwrap();
        assert_eq!((limiter.left(now, "a") as i32, threshold), expected);
        assert!(limiter.try_acquire(now, "a", capacity as u32).is_ok());
        assert!(limiter.try_acquire(now, "a", 1).is_err());
    }
    assert_eq!(at_once(rule(2.0).capacity(10).burst(1)), 3);
    assert_eq!(at_once(rule(0.0).capacity(10)), 0);
    assert_eq!(at_once(rule(2.0).capacity(10).except("a", 5)), 13);

    let most = "between 0 and 2147483647";
    for (rule, value, allowed) in [
        (
            rule(5.0).capacity(4_u8),
            "4",
            "between the threshold, 5, and 2147483647",
        ),
        (
            rule(2.5).capacity(2_usize),
            "2",
            "between the threshold, 2.5, and 2147483647",
        ),
        (rule(5.0).capacity(-1_i64), "-1", most),
        (rule(5.0).capacity(1_u64 << 31), "2147483648", most),
    ] {
        let expected = ("capacity", value.to_owned(), allowed.to_owned());
        assert_eq!(problem(rule), expected);
    }
    for rule in [
        rule(5.0).capacity(7).window(),
        rule(5.0).capacity(7).throttle(SECOND),
        KeyedRule::concurrency("r", 5).capacity(7),
    ] {
        let allowed = "left out with `window`, `throttle` or `concurrency`";
        let expected = ("capacity", "7".to_owned(), allowed.to_owned());
        assert_eq!(problem(rule), expected);
    }
    for (limiter, told) in [
        (
            KeyedLimiter::per_second(5).capacity(4),
            "capacity is 4, must be between the threshold, 5, and 2147483647",
        ),
        (
            KeyedLimiter::per_second(5).capacity(7).window(),
            "capacity is 7, must be left out for a window",
        ),
    ] {
        assert_eq!(limiter.build(now).unwrap_err().to_string(), told);
    }
}
