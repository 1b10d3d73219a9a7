//! Rules for each value of a parameter, in the engine and in the layer.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::call::Param;
use tower_sentinel::clock::Tick;
use tower_sentinel::key::{Header, from_fn};
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::rule::MissingKey;
use tower_sentinel::{
    BlockKind, Blocked, Call, Clock, FlowRule, IsolationRule, Key, KeyedRule, ManualClock, Rule,
    Rules, Sentinel, SentinelLayer, Verdict,
};

use crate::support::bench::Bench;
use crate::support::{ms, ready};

const MINUTE: Duration = Duration::from_secs(60);

impl Bench {
    fn passed(&self, n: usize, call: Call<'_>) -> usize {
        (0..n).filter(|_| self.enter(call).is_ok()).count()
    }
}

fn by(value: &str) -> Call<'_> {
    Call::new("r").param(value)
}

// === counting ===

#[test]
fn a_value_spends_its_burst_and_is_refilled_all_the_time() {
    // D11 of the worked examples.
    let bench = Bench::new(KeyedRule::per_second("r", 5).burst(2).except("y", 1));
    assert_eq!(bench.passed(20, by("x")), 7);
    assert_eq!(bench.passed(20, by("y")), 3);
    assert_eq!(bench.at(199).passed(20, by("x")), 0);
    assert_eq!(bench.at(200).passed(20, by("x")), 1);
    assert_eq!(bench.at(1_001).passed(20, by("x")), 4);
    assert_eq!(bench.at(60_000).passed(20, by("x")), 7);
}

#[test]
fn a_window_holds_no_more_than_its_threshold() {
    let bench = Bench::new(KeyedRule::per_second("r", 5).window());
    assert_eq!(bench.at(999).passed(20, by("x")), 5);
    assert_eq!(bench.at(1_499).passed(20, by("x")), 0);
    assert_eq!(bench.at(1_500).passed(20, by("x")), 5);
}

#[test]
fn a_refusal_says_when_the_value_has_room() {
    let bench = Bench::new(KeyedRule::per_second("r", 5).id("each"));
    assert_eq!(bench.passed(20, by("x")), 5);
    let blocked = bench.enter(by("x")).unwrap_err();
    assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Keyed, "each"));
    assert_eq!(
        (blocked.limit(), blocked.interval()),
        (Some(5), Some(ms(1_000)))
    );
    assert_eq!(blocked.retry_after(), Some(ms(200)));
    assert_eq!(
        blocked.to_string(),
        "call to \"r\" refused by keyed rule \"each\""
    );
    let never = bench.enter(by("x").batch(6)).unwrap_err();
    assert_eq!(never.retry_after(), None);
    let closed = Bench::new(KeyedRule::per_second("r", 0));
    assert_eq!(closed.enter(by("x")).unwrap_err().retry_after(), None);
}

#[test]
fn values_wait_in_queues_of_their_own() {
    let bench = Bench::new(KeyedRule::per_second("r", 10).throttle(ms(250)));
    let mut waits = Vec::new();
    let mut queue = Vec::new();
    for value in ["x", "x", "y", "x", "x", "y"] {
        match bench.sentinel.try_enter(by(value)) {
            Verdict::Pass(_) => waits.push(Some(0)),
            Verdict::Wait(waiting) => {
                waits.push(Some(waiting.delay().as_millis()));
                queue.push(waiting);
            }
            Verdict::Block(blocked) => {
                assert_eq!(blocked.kind(), BlockKind::Keyed);
                waits.push(None);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        waits,
        [Some(0), Some(100), Some(0), Some(200), None, Some(100)]
    );
    // The last in a queue gives its turn back; who runs keeps it.
    drop(queue.remove(1));
    let Verdict::Wait(next) = bench.sentinel.try_enter(by("x")) else {
        panic!("a turn is free");
    };
    assert_eq!(next.delay(), ms(200));
    bench.at(200);
    for waiting in queue.into_iter().chain([next]) {
        drop(waiting.admit().unwrap());
    }
    let node = bench.sentinel.node("r").unwrap();
    assert_eq!((node.waiting(), node.concurrency()), (0, 0));
    assert_eq!(node.totals().waits(), 3);
}

#[test]
fn a_turn_may_be_later_than_any_loan() {
    let rules = |most_ms| KeyedRule::per("r", 6, ms(3_000)).throttle(ms(most_ms));
    let bench = Bench::new(rules(2_000));
    let wait = || match bench.sentinel.try_enter(by("x")) {
        Verdict::Pass(_) => Some((ms(0), None)),
        Verdict::Wait(waiting) => Some((waiting.delay(), Some(waiting))),
        Verdict::Block(_) => None,
        other => panic!("{other:?}"),
    };
    let mut queue: Vec<_> = (0..6).map_while(|_| wait()).collect();
    let waits: Vec<_> = queue.iter().map(|(wait, _)| wait.as_millis()).collect();
    assert_eq!(waits, [0, 500, 1_000, 1_500, 2_000]);
    // New rules may have a longer wait for the same queue, or a shorter one.
    assert!(bench.sentinel.reload(rules(256_000).into()));
    queue.extend((0..600).map_while(|_| wait()));
    assert_eq!(queue.last().unwrap().0, ms(256_000));
    assert!(bench.sentinel.reload(rules(2_000).into()));
    bench.at(254_500);
    assert_eq!(wait().map(|(wait, _)| wait), Some(ms(2_000)));
}

#[test]
fn so_many_calls_wait_at_once_whatever_their_values() {
    let bench = Bench::new(KeyedRule::per_second("r", 2).throttle(MINUTE));
    let mut queue = Vec::new();
    for value in 0..10_001_u64 {
        let call = Call::new("r").param(value);
        assert!(matches!(bench.sentinel.try_enter(call), Verdict::Pass(_)));
        match bench.sentinel.try_enter(call) {
            Verdict::Wait(waiting) => queue.push(waiting),
            Verdict::Block(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(queue.len(), 10_000);
}

#[test]
fn a_threshold_of_0_refuses_everything_whatever_the_burst() {
    let rule = || KeyedRule::per_second("r", 3).burst(9);
    let bench = Bench::new(rule().except("x", 0).tier("none", 0));
    assert_eq!(bench.passed(20, by("x")), 0);
    assert_eq!(bench.passed(20, by("y").tier("none")), 0);
    assert_eq!(bench.passed(20, by("y")), 12);
    assert_eq!(bench.enter(by("x")).unwrap_err().retry_after(), None);
    let bench = Bench::new(KeyedRule::per_second("r", 0).burst(9));
    assert_eq!(bench.at(60_000).passed(20, by("x")), 0);
}

#[test]
fn a_queue_and_a_window_of_the_resource_are_one_wait() {
    let rules = Rules::new()
        .with(KeyedRule::per_second("r", 10).throttle(ms(2_000)))
        .with(FlowRule::per_second("r", 2));
    let bench = Bench::new(rules);
    let _first = bench.enter(by("x")).unwrap();
    let Verdict::Wait(second) = bench.sentinel.try_enter(by("x")) else {
        panic!("its turn comes at 100");
    };
    assert_eq!(second.delay(), ms(100));
    // The window is full: the turn goes back, and so do the tokens of "y".
    let blocked = bench.enter(by("x")).unwrap_err();
    assert_eq!(blocked.kind(), BlockKind::Flow);
    drop(second);
    let Verdict::Wait(again) = bench.sentinel.try_enter(by("x")) else {
        panic!("its turn is free again");
    };
    assert_eq!(again.delay(), ms(100));
}

#[test]
fn who_may_not_wait_for_the_turn_of_a_value_is_told_when_it_is() {
    let rules = Rules::new()
        .with(KeyedRule::per_second("r", 10).throttle(ms(2_000)))
        .with(
            FlowRule::per_second("r", 1_000)
                .throttle(ms(100))
                .max_waiting(1),
        );
    let bench = Bench::new(rules);
    let _first = bench.enter(by("x")).unwrap();
    let Verdict::Wait(_second) = bench.sentinel.try_enter(by("x")) else {
        panic!("its turn comes at 100");
    };
    // One waits already. The queue of the resource alone has room much earlier.
    let blocked = bench.enter(by("x")).unwrap_err();
    assert_eq!(blocked.retry_after(), Some(ms(200)));
    assert_eq!(bench.at(200).passed(2, by("x")), 1);
}

#[test]
fn who_may_not_wait_for_the_turn_of_a_value_is_told_the_limit_of_that_value() {
    let rule = KeyedRule::per_second("r", 10)
        .throttle(ms(2_000))
        .except("x", 0.5)
        .tier("pro", 2);
    let bench = Bench::new(rule);
    for (call, limit, interval) in [
        (by("x"), 1, ms(2_000)),
        (by("y").tier("pro"), 2, ms(1_000)),
        (by("z"), 10, ms(1_000)),
    ] {
        let call = call.patience(ms(1));
        drop(bench.enter(call).unwrap());
        let blocked = bench.enter(call).unwrap_err();
        let told = (blocked.limit(), blocked.interval());
        assert_eq!(told, (Some(limit), Some(interval)), "{call:?}");
    }
}

#[test]
fn what_a_value_took_is_given_back_when_the_resource_refuses() {
    for prioritized in [false, true] {
        let rules = Rules::new()
            .with(KeyedRule::per("r", 3, MINUTE).window())
            .with(FlowRule::per_second("r", 1))
            .with(IsolationRule::new("r", 1));
        let bench = Bench::new(rules);
        let call = by("x").prioritized(prioritized).patience(ms(1));
        for second in 0..3 {
            bench.at(1_000 * second);
            assert_eq!(bench.passed(5, call), 1, "second {second}");
        }
        let blocked = bench.at(3_000).enter(call).unwrap_err();
        assert_eq!(blocked.kind(), BlockKind::Keyed);
        // Nobody holds the slot.
        assert_eq!(bench.at(3_000).passed(1, by("y")), 1);
    }
}

#[test]
fn so_many_run_at_once_for_each_value_until_they_end() {
    let bench = Bench::new(KeyedRule::concurrency("r", 2));
    // A weight is of no account.
    let running = [
        bench.enter(by("x").batch(9)).unwrap(),
        bench.enter(by("x")).unwrap(),
    ];
    let blocked = bench.enter(by("x")).unwrap_err();
    assert_eq!(
        (blocked.kind(), blocked.limit()),
        (BlockKind::Keyed, Some(2))
    );
    assert_eq!(blocked.interval(), None);
    // As soon as one of them ends.
    assert_eq!(blocked.retry_after(), Some(Duration::ZERO));
    let other = bench.enter(by("y")).unwrap();
    let [mut first, second] = running;
    first.fail();
    drop(first);
    let third = bench.enter(by("x")).unwrap();
    assert!(bench.enter(by("x")).is_err());
    second.cancel();
    drop((third, other));
    assert_eq!(bench.passed(9, by("x")), 9);
    let params = bench.sentinel.node("r").unwrap().keyed_rules();
    assert_eq!(params[0].values(), 0, "all are at rest");
}

#[test]
fn two_rules_count_calls_at_once_by_different_values() {
    let rules = Rules::new()
        .with(KeyedRule::concurrency("r", 3).param("address"))
        .with(KeyedRule::concurrency("r", 1).param("user"));
    let bench = Bench::new(rules);
    let from = |user| [Param::new("address", "a"), Param::new("user", user)];
    let mut running = Vec::new();
    for user in ["1", "2", "3"] {
        let params = from(user);
        let call = Call::new("r").params(&params);
        running.push(bench.enter(call).unwrap());
        assert!(bench.enter(call).is_err(), "one for each user");
    }
    let fourth = from("4");
    let call = Call::new("r").params(&fourth);
    assert!(bench.enter(call).is_err(), "three for the address");
    running.clear();
    assert!(bench.enter(call).is_ok());
    for param in bench.sentinel.node("r").unwrap().keyed_rules() {
        assert_eq!(param.values(), 0);
    }
    let third = KeyedRule::concurrency("r", 1);
    let error = Rules::new()
        .with(third.clone())
        .with(third.clone())
        .try_with(third)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("at most 2 rules that count calls at once"),
        "{error}"
    );
}

#[test]
fn who_has_waited_holds_its_place_among_those_of_its_value_until_it_ends() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1).throttle(ms(5_000)))
        .with(KeyedRule::concurrency("r", 1));
    let bench = Bench::new(rules);
    drop(bench.enter(by("x")).unwrap());
    let Verdict::Wait(waiting) = bench.sentinel.try_enter(by("x")) else {
        panic!("its turn is in a second");
    };
    bench.at(1_000);
    let running = waiting.admit().expect("its turn has come");
    bench.at(3_000);
    let blocked = bench.enter(by("x")).unwrap_err();
    assert_eq!(blocked.kind(), BlockKind::Keyed);
    drop(running);
    assert!(bench.enter(by("x")).is_ok());
}

#[test]
fn who_is_refused_by_another_rule_spends_nothing() {
    for rule in [
        KeyedRule::per_second("r", 2),
        KeyedRule::per_second("r", 2).window(),
        KeyedRule::concurrency("r", 2),
    ] {
        let rules = Rules::new()
            .with(rule)
            .with(FlowRule::per_second("r", 1).for_origin("full"));
        let bench = Bench::new(rules);
        let full = by("x").origin("full");
        let running = bench.enter(full).unwrap();
        for _ in 0..5 {
            let blocked = bench.enter(full).unwrap_err();
            assert_eq!(blocked.kind(), BlockKind::Flow);
        }
        let second = bench.enter(by("x")).unwrap();
        assert!(bench.enter(by("x")).is_err(), "two of two");
        drop((running, second));
    }
}

/// A clock that moves on by half a second after it was next read, once it is told.
#[derive(Clone, Debug)]
struct Jumping {
    clock: ManualClock,
    is_told: Arc<AtomicBool>,
}

impl Clock for Jumping {
    fn now(&self) -> Tick {
        let now = self.clock.now();
        if self.is_told.swap(false, Ordering::Relaxed) {
            self.clock.advance(ms(500));
        }
        now
    }
}

#[test]
fn a_call_that_is_refused_late_gives_back_less_by_the_time_since_its_start() {
    let others: [Rule; 3] = [
        FlowRule::per_second("r", 1).into(),
        FlowRule::per_second("r", 1).for_origin("full").into(),
        KeyedRule::per("r", 1, MINUTE).window().into(),
    ];
    for other in others {
        let clock = Jumping {
            clock: ManualClock::starting_at(Tick::from_millis(10_000)),
            is_told: Arc::default(),
        };
        let sentinel = Sentinel::builder()
            .rules(
                Rules::new()
                    .with(KeyedRule::per_second("r", 10))
                    .with(other),
            )
            .clock(clock.clone())
            .build();
        let call = by("x").origin("full");
        let enter = |weight| sentinel.try_enter(call.batch(weight));
        assert!(matches!(enter(1), Verdict::Pass(_)));
        clock.is_told.store(true, Ordering::Relaxed);
        assert!(matches!(enter(6), Verdict::Block(_)));
        // Six cost 600 ms, behind the 100 ms of the first. Half a second later five
        // of them have been earned again: one was left to be given back.
        assert_eq!(clock.now(), Tick::from_millis(10_500));
        let params = sentinel.node("r").unwrap().keyed_rules();
        assert_eq!(params[0].left("x"), 9);
    }
}

#[test]
fn a_waiter_that_is_dropped_spends_nothing() {
    let rules = Rules::new()
        .with(KeyedRule::per("r", 3, MINUTE))
        .with(FlowRule::per_second("r", 1));
    let bench = Bench::new(rules);
    drop(bench.at(700).enter(by("x")).unwrap());
    for _ in 0..5 {
        let call = by("x").prioritized(true);
        let Verdict::Wait(waiting) = bench.at(1_200).sentinel.try_enter(call) else {
            panic!("the second opens at 1500");
        };
        drop(waiting);
    }
    let params = bench.sentinel.node("r").unwrap().keyed_rules();
    assert_eq!(params[0].left("x"), 2);
}

#[test]
fn a_waiter_holds_its_share_and_runs_by_it() {
    let rules = Rules::new()
        .with(KeyedRule::per("r", 2, MINUTE))
        .with(FlowRule::per_second("r", 1));
    let bench = Bench::new(rules);
    drop(bench.at(700).enter(by("x")).unwrap());
    let call = by("x").prioritized(true);
    let Verdict::Wait(waiting) = bench.at(1_200).sentinel.try_enter(call) else {
        panic!("the second opens at 1500");
    };
    let left = || bench.sentinel.node("r").unwrap().keyed_rules()[0].left("x");
    assert_eq!(left(), 0);
    bench.at(1_500);
    drop(waiting.admit().unwrap());
    assert_eq!(left(), 0);
}

// === which value, which quota ===

#[test]
fn a_value_is_found_by_its_place_its_name_or_as_the_origin() {
    let params = [
        Param::new("first", "a"),
        Param::missing("second"),
        Param::new("third", "c"),
    ];
    let call = Call::new("r").origin("o").params(&params);
    let rule = || KeyedRule::per_second("r", 1).missing(MissingKey::Skip);
    let table = [
        (rule(), Some("a")),
        (rule().param_at(0), Some("a")),
        (rule().param_at(1), None),
        (rule().param_at(2), Some("c")),
        (rule().param_at(3), None),
        (rule().param_at(-1), Some("c")),
        (rule().param_at(-2), None),
        (rule().param_at(-3), Some("a")),
        (rule().param_at(-4), None),
        (rule().param_at(i32::MIN), None),
        (rule().param("third"), Some("c")),
        (rule().param("second"), None),
        (rule().param("fourth"), None),
        (rule().by_origin(), Some("o")),
    ];
    for (rule, value) in table {
        let bench = Bench::new(rule.clone());
        let passed = bench.passed(5, call);
        assert_eq!(passed, if value.is_some() { 1 } else { 5 }, "{rule:?}");
        let known = bench.sentinel.node("r").unwrap().keyed_rules();
        if let Some(value) = value {
            assert_eq!(known[0].left(value), 0, "{rule:?}");
        }
        assert_eq!(known[0].left("b"), 1, "{rule:?}");
    }
}

#[test]
fn calls_without_a_value_share_a_quota_or_are_let_go_or_refused() {
    let rule = |missing| KeyedRule::per_second("r", 2).missing(missing);
    let passed = |missing| {
        let bench = Bench::new(rule(missing));
        (bench.passed(5, Call::new("r")), bench.enter(Call::new("r")))
    };
    assert_eq!(passed(MissingKey::Share).0, 2);
    assert_eq!(passed(MissingKey::Skip).0, 5);
    let (none, verdict) = passed(MissingKey::Refuse);
    assert_eq!(
        (none, verdict.unwrap_err().kind()),
        (0, BlockKind::MissingKey)
    );
}

#[test]
fn calls_without_the_parameter_of_a_rule_are_counted() {
    let rule = || KeyedRule::per_second("r", 2).id("each");
    let user = [Param::new("user", "ann")];
    let no_user = [Param::missing("user"), Param::new("page", 1)];
    // The rule, five calls to it, and how many of them have no value.
    let table: [(KeyedRule, Call<'_>, u64); 9] = [
        (rule().param("user"), Call::new("r").params(&user), 0),
        (rule().param("user"), Call::new("r").params(&no_user), 5),
        (rule().param("name"), Call::new("r").params(&user), 5),
        // A parameter without a name is not the one that the rule means.
        (rule().param("user"), by("ann"), 5),
        (rule().param_at(-1), by("ann"), 0),
        (rule().param_at(1), by("ann"), 5),
        (rule(), Call::new("r"), 5),
        (rule().by_origin(), by("ann"), 5),
        (rule().by_origin(), Call::new("r").origin("ann"), 0),
    ];
    for (rule, call, expected) in table {
        for missing in [MissingKey::Share, MissingKey::Skip, MissingKey::Refuse] {
            // The common path, and the one of calls that more is asked of.
            for call in [call, call.prioritized(true)] {
                let rule = rule.clone().missing(missing);
                let bench = Bench::new(rule.clone());
                bench.passed(5, call);
                let missing = || bench.sentinel.node("r").unwrap().keyed_rules()[0].missing();
                assert_eq!(missing(), expected, "{rule:?} {call:?}");
                // A reload that keeps what the values have spent keeps this as well.
                bench.sentinel.reload(rule.clone().burst(1).into());
                bench.passed(1, call);
                assert_eq!(missing(), expected / 5 * 6, "{rule:?} {call:?}");
            }
        }
    }
    let flow = Bench::new(FlowRule::per_second("r", 2).by_origin());
    flow.passed(3, Call::new("r"));
    assert_eq!(
        flow.sentinel.node("r").unwrap().keyed_rules()[0].missing(),
        3
    );
}

#[test]
fn an_exception_is_the_same_as_text_address_or_number() {
    let rule = KeyedRule::per_second("r", 1)
        .except("10.0.0.1", 3)
        .except("42", 9)
        .except("42", 4)
        .except("007", 5);
    let bench = Bench::new(rule);
    let call = Call::new("r");
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(bench.passed(9, call.param(address)), 3);
    assert_eq!(bench.passed(9, call.param("10.0.0.1")), 3);
    assert_eq!(bench.passed(9, call.param(42_u64)), 4);
    assert_eq!(bench.passed(9, call.param("42")), 4);
    assert_eq!(bench.passed(9, call.param("007")), 5);
    assert_eq!(bench.passed(9, call.param(7_u64)), 1);
    assert_eq!(bench.passed(9, call.param("other")), 1);
}

#[test]
fn tiers_have_their_quotas_and_an_exception_goes_before_them() {
    let rule = KeyedRule::per_second("r", 1)
        .tier("pro", 8)
        .tier("pro", 3)
        .tier("team", 5)
        .except("vip", 7);
    let bench = Bench::new(rule);
    let table = [
        ("a", None, 1),
        ("b", Some("pro"), 3),
        ("c", Some("team"), 5),
        ("d", Some("unknown"), 1),
        ("vip", Some("pro"), 7),
    ];
    bench.passed(1, by("other"));
    let params = bench.sentinel.node("r").unwrap().keyed_rules();
    assert_eq!(["a", "vip"].map(|value| params[0].left(value)), [1, 7]);
    for (value, tier, expected) in table {
        let call = tier.map_or(by(value), |tier| by(value).tier(tier));
        assert_eq!(bench.passed(9, call), expected, "{value} {tier:?}");
    }
    // A caller that changes its plan keeps what it has spent: three of five.
    assert_eq!(bench.passed(9, by("b").tier("team")), 2);
    assert_eq!(bench.at(201).passed(9, by("b").tier("team")), 1);
}

#[test]
fn a_tier_that_reads_like_a_number_or_an_address_is_also_that_one() {
    let ip = IpAddr::from([10, 0, 0, 1]);
    let rule = KeyedRule::per_second("r", 2)
        .tier("7", 3)
        .tier("007", 4)
        .tier("10.0.0.1", 5);
    let bench = Bench::new(rule);
    let table = [
        ("a", Key::Int(7), 3),
        ("b", Key::Str("7"), 3),
        ("c", Key::Str("007"), 4),
        ("d", Key::Ip(ip), 5),
        ("e", Key::Str("10.0.0.1"), 5),
        ("f", Key::Int(8), 2),
    ];
    for (value, tier, expected) in table {
        assert_eq!(bench.passed(9, by(value).tier(tier)), expected, "{tier:?}");
    }
}

#[test]
fn the_layer_takes_values_and_tiers_out_of_a_request() {
    let rules = Rules::new()
        .with(KeyedRule::per("/", 2, MINUTE).param("key").tier("paid", 3))
        .with(KeyedRule::per("/", 4, MINUTE).param("user"));
    let layer = SentinelLayer::new(rules)
        .param_named("key", Header::from_static("x-key"))
        .param_named("user", Header::from_static("x-user"))
        .tier(from_fn(|head| {
            head.headers()
                .get("x-plan")
                .and_then(|plan| Some(plan.to_str().ok()?.into()))
        }));
    let answer = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    let mut service = layer.layer(service_fn(answer));
    let mut status = |key: &str, user: &str, plan: &str| {
        let request = Request::get("/")
            .header("x-key", key)
            .header("x-user", user)
            .header("x-plan", plan)
            .body(Body::empty())
            .unwrap();
        let response = ready(ready(service.ready()).unwrap().call(request)).unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            assert!(response.headers().contains_key("retry-after"));
        }
        response.status().as_u16()
    };
    let free: Vec<_> = (0..3).map(|_| status("k1", "u1", "free")).collect();
    assert_eq!(free, [200, 200, 429]);
    let paid: Vec<_> = (0..4).map(|_| status("k2", "u2", "paid")).collect();
    assert_eq!(paid, [200, 200, 200, 429]);
    // The refused call of k1 took nothing of its user.
    assert_eq!([0; 3].map(|_| status("k3", "u1", "paid")), [200, 200, 429]);
}

#[test]
fn a_layer_takes_tiers_alone_out_of_a_request() {
    // Requests without a value are those of one caller, by the quota of its tier.
    let rule = KeyedRule::per("/", 1, MINUTE).tier("paid", 3);
    for (tier, expected) in [("free", 1), ("paid", 3)] {
        let layer = SentinelLayer::new(rule.clone()).tier(from_fn(move |_| Some(tier.into())));
        let answer = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
        let service = layer.layer(service_fn(answer));
        let passes = |_: &usize| {
            let request = Request::get("/").body(Body::empty()).unwrap();
            ready(service.clone().oneshot(request)).unwrap().status() == StatusCode::OK
        };
        assert_eq!((0..5).filter(passes).count(), expected, "{tier}");
    }
}

#[test]
fn a_layer_has_eight_parameters_and_no_more() {
    let rule = KeyedRule::per("/", 1, MINUTE).param("7");
    let eight = (0..8).fold(SentinelLayer::new(rule), |layer, index| {
        layer.param_named(index.to_string(), from_fn(move |_| Some(index.into())))
    });
    let answer = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    let service = eight.layer(service_fn(answer));
    let [first, second] = [0; 2].map(|_| {
        let request = Request::get("/").body(Body::empty()).unwrap();
        ready(service.clone().oneshot(request)).unwrap().status()
    });
    // The last one counts.
    assert_eq!(
        (first, second),
        (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS)
    );
    let nine = catch_unwind(AssertUnwindSafe(|| eight.param(from_fn(|_| None))));
    let message = nine.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert_eq!(message, "a layer has at most 8 parameters");
}

// === blocks ===

#[test]
fn a_value_that_exceeds_its_limit_is_refused_for_so_long() {
    const SECOND: Duration = Duration::from_secs(1);
    let rule = || {
        KeyedRule::per_minute("r", 5)
            .tier("pro", 50)
            .block_for(MINUTE * 10)
    };
    // Burst, calls at 0 of so many tokens, whether the value is blocked by them, and until when.
    let table = [
        (0, vec![1; 5], false, 0),
        (0, vec![1; 6], true, 600),
        (0, vec![5], false, 0),
        (0, vec![3, 3], true, 600),
        (0, vec![6], false, 0),
        (0, vec![0; 9], false, 0),
        (70, vec![75], false, 0),
        // What is spent takes longer to earn.
        (70, vec![75, 1], true, 900),
    ];
    for (burst, weights, is_blocked, until) in table {
        let bench = Bench::new(rule().burst(burst));
        let mut last = None;
        for weight in &weights {
            last = bench.enter(by("x").batch(*weight)).err();
        }
        let view = bench.sentinel.node("r").unwrap().keyed_rules().remove(0);
        let what = format!("{burst} {weights:?}");
        assert_eq!(view.blocks(), u64::from(is_blocked), "{what}");
        if !is_blocked {
            continue;
        }
        assert_eq!(
            last.unwrap().retry_after(),
            Some(SECOND * until as u32),
            "{what}"
        );
        assert_eq!((view.left("x"), view.left("y")), (0, 5 + burst), "{what}");
        // Whatever it does meanwhile, and by whatever tier.
        for s in [1, 61, 300, until - 1] {
            bench.at(s * 1_000);
            assert_eq!(bench.passed(3, by("x")), 0, "{what} at {s}");
            assert_eq!(bench.passed(3, by("x").tier("pro")), 0, "{what} at {s}");
            let refused = bench.enter(by("x")).unwrap_err();
            assert_eq!(
                refused.retry_after(),
                Some(SECOND * (until - s) as u32),
                "{what}"
            );
            assert_eq!(bench.passed(1, by("y")), 1, "{what}: another value");
        }
        assert_eq!(view.blocks(), 1, "{what}");
        bench.at(until * 1_000);
        assert_eq!(view.left("x"), 5 + burst, "{what}");
        assert_eq!(bench.passed(99, by("x")), 5 + burst as usize, "{what}");
        assert_eq!(view.blocks(), 2, "{what}");
    }
}

#[test]
fn a_block_outlives_a_reload_and_a_reset_lifts_it() {
    let rule = || KeyedRule::per_minute("r", 5).block_for(MINUTE * 10);
    let bench = Bench::new(rule());
    assert_eq!(bench.passed(6, by("x")), 5);
    let view = || bench.sentinel.node("r").unwrap().keyed_rules().remove(0);
    bench
        .sentinel
        .reload(KeyedRule::per_minute("r", 500).into());
    assert_eq!(bench.passed(9, by("x")), 0);
    bench.sentinel.reload(rule().except_unlimited("x").into());
    assert_eq!(bench.passed(9, by("x")), 9);
    bench.sentinel.reload(rule().into());
    assert_eq!(bench.passed(9, by("x")), 0);
    assert!(view().reset("x"));
    assert_eq!((view().left("x"), bench.passed(9, by("x"))), (5, 5));
    assert_eq!((view().blocks(), view().resets()), (2, 1));
    // Values without a place are not blocked, and those without a value are, together.
    assert_eq!(bench.passed(6, Call::new("r")), 5);
    assert_eq!(bench.at(300_000).passed(6, Call::new("r")), 0);
    // Words of a faster rate have no room for a block.
    bench
        .sentinel
        .reload(KeyedRule::per_minute("r", 60_000_000).into());
    bench.sentinel.reload(rule().into());
    assert_eq!(bench.passed(9, by("z")), 5);
    assert_eq!(bench.at(500_000).passed(9, by("z")), 0);
}

#[test]
fn a_call_that_is_not_run_gives_nothing_back_to_a_blocked_value() {
    let queue = FlowRule::per_second("r", 1).throttle(ms(5_000));
    for (flow, prioritized) in [(queue, false), (FlowRule::per_second("r", 1), true)] {
        let bench = Bench::new(
            Rules::new()
                .with(KeyedRule::per_minute("r", 2).block_for(MINUTE))
                .with(flow),
        );
        let view = || bench.sentinel.node("r").unwrap().keyed_rules().remove(0);
        let call = by("x").prioritized(prioritized);
        assert_eq!(bench.passed(1, call), 1);
        let Verdict::Wait(waiting) = bench.at(700).sentinel.try_enter(call) else {
            panic!("it waits for its turn, or for a loan");
        };
        let refused = bench.enter(call).unwrap_err();
        assert_eq!(refused.retry_after(), Some(MINUTE));
        assert_eq!((view().blocks(), view().left("x")), (1, 0));
        bench.at(900);
        drop(waiting);
        assert_eq!(view().left("x"), 0);
        let refused = bench.enter(call).unwrap_err();
        assert_eq!(refused.kind(), BlockKind::Keyed);
        assert_eq!(refused.retry_after(), Some(ms(59_800)));
        assert_eq!(bench.at(60_699).passed(1, call), 0);
        assert_eq!(bench.at(60_700).passed(1, call), 1);
        assert_eq!((view().blocks(), view().left("x")), (1, 1));
    }
}

#[test]
fn a_call_that_a_later_rule_refuses_blocks_nobody() {
    let rules = Rules::new()
        .with(KeyedRule::per_minute("r", 2).block_for(MINUTE))
        .with(FlowRule::per_second("r", 1));
    let bench = Bench::new(rules);
    // The second one is refunded at once, as the flow rule refuses it, so the third is as well.
    assert_eq!(bench.passed(3, by("x")), 1);
    let view = bench.sentinel.node("r").unwrap().keyed_rules().remove(0);
    assert_eq!((view.blocks(), view.left("x")), (0, 1));
}

/// Makes a call of "x" that reserves `wanted` of "failures", and ends it at a cost of `cost`.
/// Returns why it is refused.
fn attempt(bench: &Bench, wanted: u32, cost: u32) -> Option<Blocked> {
    match bench.enter(by("x").reserve("failures", wanted)) {
        Ok(mut entry) => {
            entry.settle("failures", cost);
            None
        }
        Err(blocked) => Some(blocked),
    }
}

#[test]
fn a_value_is_blocked_by_what_its_calls_cost_and_not_by_what_they_reserve() {
    const SECOND: Duration = Duration::from_secs(1);
    let rule = || {
        KeyedRule::per_minute("r", 3)
            .cost("failures")
            .block_for(MINUTE * 10)
    };
    let bench = Bench::new(rule());
    let view = || bench.sentinel.node("r").unwrap().keyed_rules().remove(0);
    // Calls that cost nothing block nobody, and neither do three that run at once.
    assert!((0..99).all(|_| attempt(&bench, 1, 0).is_none()));
    let running: Vec<_> = (0..3)
        .map(|_| bench.enter(by("x").reserve("failures", 1)).unwrap())
        .collect();
    assert!(attempt(&bench, 1, 1).is_some());
    // More than the rule ever grants is refused for ever, and blocks nobody.
    assert_eq!(attempt(&bench, 4, 1).unwrap().retry_after(), None);
    assert_eq!(view().blocks(), 0);
    for mut entry in running {
        entry.settle("failures", 0);
    }
    // One call still runs while three others fail.
    let mut late = bench.enter(by("x")).unwrap();
    assert!((0..3).all(|_| attempt(&bench, 1, 1).is_none()));
    let refused = attempt(&bench, 1, 1).unwrap();
    assert_eq!(refused.retry_after(), Some(MINUTE * 10));
    assert_eq!(
        (view().blocks(), view().left("x"), view().left("y")),
        (1, 0, 3)
    );
    // What it costs is counted, and does not prolong the block.
    bench.at(30_000);
    assert!(!late.charge("failures", 2));
    drop(late);
    let budget = &bench.sentinel.node("r").unwrap().budgets()[0];
    assert_eq!(
        (
            budget.charged_total(),
            budget.reserved(),
            budget.cut_total()
        ),
        (5, 0, 0)
    );
    for s in [31, 61, 599] {
        bench.at(s * 1_000);
        for wanted in [0, 1, 3] {
            let refused = attempt(&bench, wanted, 0).unwrap();
            assert_eq!(
                refused.retry_after(),
                Some(SECOND * (600 - s) as u32),
                "{wanted}"
            );
        }
    }
    assert_eq!(view().blocks(), 1);
    bench.at(600_000);
    assert_eq!(view().left("x"), 3);
    // A first charge at the end of a block is one like any other.
    assert!((0..3).all(|_| attempt(&bench, 1, 1).is_none()));
    assert_eq!(view().left("x"), 0);
    assert!(attempt(&bench, 0, 0).is_some());
    assert_eq!(view().blocks(), 2);
    assert!(view().reset("x") && attempt(&bench, 3, 0).is_none());
    bench
        .sentinel
        .reload(KeyedRule::per_minute("r", 3).cost("failures").into());
    assert!((0..3).all(|_| attempt(&bench, 1, 1).is_none()));
    let refused = attempt(&bench, 1, 1).unwrap();
    assert_eq!(refused.retry_after(), Some(SECOND * 20), "no block");
}

// === reload ===

#[test]
fn a_reload_keeps_what_values_have_spent() {
    let rule = |threshold: u32| KeyedRule::per("r", threshold, MINUTE).window();
    let bench = Bench::new(rule(5));
    assert_eq!(bench.passed(3, by("x")), 3);
    let more = Rules::new()
        .with(FlowRule::per_second("s", 1))
        .with(rule(5));
    assert!(bench.sentinel.reload(more));
    assert_eq!(bench.passed(1, by("x")), 1);
    assert!(bench.sentinel.reload(rule(7).into()), "another threshold");
    assert_eq!(bench.passed(9, by("x")), 3);
    let other = KeyedRule::per("r", 7, MINUTE * 2).window();
    assert!(bench.sentinel.reload(other.into()), "another interval");
    assert_eq!(bench.passed(9, by("x")), 7, "starts anew");
    let larger = KeyedRule::per("r", 7, MINUTE * 2).window().max_keys(9);
    assert!(
        bench.sentinel.reload(larger.clone().into()),
        "another table"
    );
    assert_eq!(bench.passed(9, by("x")), 7, "starts anew");
    let other = larger.clone().tier("pro", 8).except("y", 1).except("x", 7);
    assert!(bench.sentinel.reload(other.into()), "only limits");
    assert_eq!(bench.passed(9, by("x")), 0);
    let other = larger.clone().id("x").missing(MissingKey::Refuse);
    assert!(bench.sentinel.reload(other.into()), "only the rest");
    assert_eq!(bench.passed(9, by("x")), 0);
    let other = larger.by_origin();
    assert!(bench.sentinel.reload(other.into()), "another parameter");
    assert_eq!(bench.passed(9, by("x").origin("x")), 7, "starts anew");
}

#[test]
fn a_higher_limit_counts_at_once_and_a_lower_one_too() {
    const HOUR: Duration = Duration::from_secs(3_600);
    type Change = fn(KeyedRule) -> KeyedRule;
    let rule = |threshold| KeyedRule::per("r", threshold, HOUR).tier("pro", 100);
    // How many of 5 are spent, what the rule becomes, the tier from then on, how many more pass, and
    // after how many seconds there is one again.
    let table: [(usize, Change, Option<&str>, usize, u64); 8] = [
        (5, |rule| rule, Some("pro"), 95, 36),
        (5, |rule| rule.except("x", 100), None, 95, 36),
        (5, |rule| rule.burst(2), None, 2, 720),
        (5, |rule| rule.capacity(9), None, 4, 720),
        (2, |rule| rule.except("x", 3), None, 1, 1_200),
        (4, |rule| rule.except("x", 3), None, 0, 2 * 720),
        (5, |rule| rule.except_unlimited("x"), None, 200, 0),
        (5, |rule| rule.id("same"), None, 0, 720),
    ];
    for (spent, change, tier, more, next_s) in table {
        for windows in [false, true] {
            let counted = |rule: KeyedRule| if windows { rule.window() } else { rule };
            let bench = Bench::new(counted(rule(5)));
            let call = || tier.map_or(by("x"), |tier| by("x").tier(tier));
            let what = format!("{spent} spent, {tier:?}, {more} more, {windows}");
            assert_eq!(bench.passed(spent, by("x")), spent, "{what}");
            let new = change(rule(5));
            if windows && new.get_burst() > 0 {
                continue;
            }
            bench.sentinel.reload(counted(new).into());
            if more > 0 && tier.is_none() {
                let left = bench.sentinel.node("r").unwrap().keyed_rules()[0].left("x");
                assert!(left == u32::MAX || left as usize == more, "{what}");
            }
            assert_eq!(bench.passed(200, call()), more, "{what}");
            if !windows && next_s > 0 {
                let next = next_s * 1_000;
                assert_eq!(bench.at(next - 1).passed(9, call()), 0, "{what}");
                assert_eq!(bench.at(next).passed(9, call()), 1, "{what}");
            }
        }
    }
    // The whole threshold as well, and back: nothing is forgotten, and nothing is there twice.
    let bench = Bench::new(rule(5));
    assert_eq!(bench.passed(9, by("x")), 5);
    bench.sentinel.reload(rule(50).into());
    assert_eq!(bench.passed(99, by("x")), 45);
    bench.sentinel.reload(rule(5).into());
    assert_eq!(bench.passed(99, by("x")), 0);
    bench.sentinel.reload(rule(50).into());
    assert_eq!(bench.passed(99, by("x")), 0);
    assert_eq!(bench.passed(99, by("x").tier("pro")), 50);
    assert_eq!(bench.passed(99, by("x")), 0);
}

#[test]
fn a_changed_rule_goes_on_from_the_one_of_its_id() {
    let rule = |threshold: u32, id: &str| KeyedRule::per("r", threshold, MINUTE).window().id(id);
    let bench = Bench::new(rule(5, "first"));
    assert_eq!(bench.passed(3, by("x")), 3);
    let both = Rules::new().with(rule(5, "first")).with(rule(5, "second"));
    assert!(bench.sentinel.reload(both));
    assert_eq!(bench.passed(1, by("x")), 1);
    let turned = Rules::new().with(rule(9, "second")).with(rule(9, "first"));
    assert!(bench.sentinel.reload(turned));
    let params = bench.sentinel.node("r").unwrap().keyed_rules();
    assert_eq!([0, 1].map(|place| params[place].left("x")), [8, 5]);
}

#[test]
fn calls_in_flight_end_where_they_began() {
    let rule = |max| KeyedRule::concurrency("r", max);
    let bench = Bench::new(rule(2));
    let old = [bench.enter(by("x")).unwrap(), bench.enter(by("x")).unwrap()];
    assert!(bench.sentinel.reload(rule(3).into()));
    let third = bench.enter(by("x")).unwrap();
    assert!(bench.enter(by("x")).is_err(), "the two still run");
    // A rule that is gone and comes back knows nothing of them.
    assert!(bench.sentinel.reload(Rules::new()));
    assert!(bench.sentinel.reload(rule(1).into()));
    let new = bench.enter(by("x")).unwrap();
    drop((old, third));
    assert!(bench.enter(by("x")).is_err(), "theirs were not its own");
    drop(new);
    assert!(bench.enter(by("x")).is_ok());
}

// === bad input ===

#[test]
fn every_bad_field_is_named_with_its_value_and_what_is_allowed() {
    let rule = || KeyedRule::per_second("r", 5);
    let table = [
        (KeyedRule::per_second(" ", 5), "resource is \" \""),
        (
            KeyedRule::per_second("r", -1),
            "threshold is -1, must be between 0 and 2147483647",
        ),
        (KeyedRule::per_second("r", f64::NAN), "threshold is NaN"),
        (
            KeyedRule::per("r", 1_048_576, ms(998)).window(),
            "threshold is 1048576, must be between 0 and 1048575",
        ),
        (
            KeyedRule::per("r", 5, Duration::ZERO),
            "interval is 0ns, must be between 1 µs and 366 days",
        ),
        (
            KeyedRule::per("r", 5, Duration::from_nanos(1_000_001)).window(),
            "interval is 1.000001ms, must be a multiple of 2 ns for a window",
        ),
        (rule().burst(1).window(), "burst is 1, must be 0 with"),
        (
            rule().burst(u32::MAX),
            "burst is 4294967295, must be between 0 and 2147483647",
        ),
        (
            rule().throttle(MINUTE * 5),
            "max_wait is 300s, must be at most 256s",
        ),
        (
            rule().max_keys(0),
            "max_keys is 0, must be between 1 and 67108864",
        ),
        (rule().max_keys(u32::MAX), "max_keys is 4294967295"),
        (rule().param(""), "param is \"\""),
        (rule().except("", 1), "except is \"\""),
        (rule().except("v", f64::INFINITY), "except is inf"),
        (rule().tier("\n", 1), "tier is \"\\n\""),
        (rule().tier("t", -0.5), "tier is -0.5"),
        (rule().tier_unlimited(" "), "tier_unlimited is \" \""),
        (
            rule().tier("t", 5).tier_unlimited("t"),
            "tier_unlimited is \"t\", must be a tier without a threshold in `tier`",
        ),
        (
            rule().except_unlimited("v").except("v", 0),
            "except_unlimited is \"v\", must be a value without a threshold of its own in `except`",
        ),
        (rule().id(""), "id is \"\""),
    ];
    for (rule, expected) in table {
        let error = Rules::build([rule]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}: {expected}");
        assert!(error.contains("keyed"), "{error}");
    }
}

#[test]
fn what_stands_at_the_edge_of_the_allowed_is_allowed() {
    let most = (1_u32 << 31) - 1;
    let longest = Duration::from_secs(86_400) * 366;
    let odd = Duration::from_nanos(1_000_001);
    let rules = [
        KeyedRule::per_second("r", most).burst(most).max_keys(1),
        KeyedRule::per("r", 0, ms(1)).window(),
        KeyedRule::per("r", most, longest).window(),
        KeyedRule::per("r", 1_048_575, ms(1)).window(),
        KeyedRule::per("r", 1, odd).max_keys(1 << 26),
        KeyedRule::per_second("r", 1).throttle(ms(256_000)),
        KeyedRule::per_second("r", 1).except("v", most).tier("t", 0),
    ];
    assert_eq!(Rules::build(rules).unwrap().len(), 7);
}

#[test]
fn a_window_holds_two_million_calls_and_a_budget_five_million_tokens() {
    const DAY: Duration = Duration::from_secs(86_400);
    let window = |limit: u32| KeyedRule::per("r", limit, DAY).window();
    let bench = Bench::new(window(2_000_000).tier("small", 3).id("day"));
    let by = |key| Call::new("r").param(key);
    for _ in 0..2 {
        drop(bench.enter(by("a").batch(1_000_000)).unwrap());
    }
    let blocked = bench.enter(by("a")).unwrap_err();
    assert_eq!((blocked.rule(), blocked.limit()), ("day", Some(2_000_000)));
    // It is ten seconds past midnight.
    assert_eq!(blocked.retry_after(), Some(DAY - ms(10_000)));
    assert_eq!(bench.passed(9, by("b").tier("small")), 3);
    let left = |bench: &Bench| bench.sentinel.node("r").unwrap().keyed_rules()[0].left("a");
    assert_eq!(left(&bench), 0);
    // A larger limit keeps the count; one that needs no second word begins anew.
    let reload = |bench: &Bench, rule: KeyedRule| assert!(bench.sentinel.reload(rule.into()));
    reload(&bench, window(3_000_000).id("day"));
    assert_eq!(left(&bench), 1_000_000);
    reload(&bench, window(1_048_575).id("day"));
    assert_eq!(left(&bench), 1_048_575);

    let bench = Bench::new(window(5_000_000).cost("tokens"));
    let mut entry = bench.enter(by("a").reserve("tokens", 5_000_000)).unwrap();
    assert!(bench.enter(by("a").reserve("tokens", 1)).is_err());
    entry.settle("tokens", 4_000_000);
    drop(entry);
    assert_eq!(left(&bench), 1_000_000);
    assert!(bench.enter(by("a").reserve("tokens", 1_000_001)).is_err());
    assert!(bench.enter(by("a").reserve("tokens", 1_000_000)).is_ok());
}

// === flow rules by origin ===
fn each() -> FlowRule {
    FlowRule::per("r", 5, MINUTE).by_origin().id("each")
}

#[test]
fn a_flow_rule_by_origin_gives_each_its_window() {
    let bench = Bench::new(each());
    let from = |origin| Call::new("r").origin(origin);
    assert_eq!(bench.at(10_000).passed(9, from("a")), 5);
    assert_eq!(bench.passed(9, from("b").batch(2)), 2);
    assert_eq!(bench.passed(9, from("b")), 1);
    assert_eq!(bench.passed(9, Call::new("r")), 5);
    let blocked = bench.enter(from("a")).unwrap_err();
    assert_eq!(
        (blocked.kind(), blocked.rule(), blocked.limit()),
        (BlockKind::Flow, "each", Some(5)),
    );
    assert_eq!(blocked.interval(), Some(MINUTE));
    // The bucket from 0 to 30 s of the clock leaves the window at 60 s.
    assert_eq!(blocked.retry_after(), Some(ms(40_000)));
    assert_eq!(bench.at(49_999).passed(9, from("a")), 0);
    assert_eq!(bench.at(50_000).passed(9, from("a")), 5);
    let node = bench.sentinel.node("r").unwrap();
    // Seven of them weighed two.
    assert_eq!(node.totals().block(), 4 + 14 + 8 + 4 + 1 + 9 + 4);
}

#[test]
fn a_flow_rule_by_origin_keeps_a_table_and_no_nodes() {
    for threshold in [5, 1_048_575, 1_048_576, (1_u32 << 31) - 1] {
        let rule = FlowRule::per("r", threshold, MINUTE).by_origin();
        let limit = rule.threshold() as u32;
        let bench = Bench::new(rule);
        drop(bench.enter(Call::new("r").origin("a")).unwrap());
        let params = bench.sentinel.node("r").unwrap().keyed_rules();
        assert_eq!((params.len(), params[0].left("a")), (1, limit - 1));
        assert_eq!(bench.sentinel.snapshot().origins(), 0);
    }
}

#[test]
fn what_a_table_of_origins_cannot_keep_is_refused_with_the_way_out() {
    let rule = || FlowRule::per("r", 5, MINUTE);
    let cases: [(&str, FlowRule); 5] = [
        ("lend is true", rule().lend(true)),
        ("strict is true", rule().strict()),
        ("buckets is 10", rule().buckets(10)),
        ("warm_up is 60s", rule().warm_up(MINUTE)),
        ("memory is 0.7..0.9", rule().memory(0.7..0.9, 1)),
    ];
    for (told, rule) in cases {
        let error = Rules::build([rule.clone().by_origin()])
            .unwrap_err()
            .to_string();
        assert!(error.contains(told), "{error}");
        assert!(error.contains("`for_origin(\"other\")`"), "{error}");
        // Which has it for each.
        let bench = Bench::new(rule.for_origin("other"));
        drop(bench.enter(Call::new("r").origin("a")).unwrap());
        drop(bench.enter(Call::new("r").origin("b")).unwrap());
        assert_eq!(bench.sentinel.snapshot().origins(), 2);
    }
    // All other origins stand in one queue, and each in one of its own by another rule.
    let error = Rules::build([rule().throttle(ms(0)).by_origin()]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("throttle is 0ns"), "{error}");
    assert!(error.contains("`.by_origin().throttle(…)`"), "{error}");
    let each = KeyedRule::per("r", 5, MINUTE).by_origin();
    let bench = Bench::new(each.throttle(ms(0)));
    drop(bench.enter(Call::new("r").origin("a")).unwrap());
    drop(bench.enter(Call::new("r").origin("b")).unwrap());
    let most = FlowRule::per("r", 1_048_576, ms(998)).by_origin();
    let error = Rules::build([most]).unwrap_err().to_string();
    assert!(error.contains("threshold is 1048576"), "{error}");
}

#[test]
fn a_table_of_origins_has_places_for_as_many_as_the_engine_is_told() {
    let rule = FlowRule::per("r", 1, MINUTE).by_origin();
    let bench = Bench::with(rule, |builder| builder.max_origins(1_000));
    let passed = || {
        let origins = (0..1_000_u64).map(|origin| Call::new("r").origin(origin));
        origins.filter(|&call| bench.enter(call).is_ok()).count()
    };
    assert_eq!([passed(), passed()], [1_000, 0]);
}

#[test]
fn another_interval_begins_a_table_of_origins_anew() {
    let call = Call::new("r").origin("a");
    let bench = Bench::new(each());
    assert_eq!(bench.passed(9, call), 5);
    let longer = FlowRule::per("r", 5, 2 * MINUTE).by_origin().id("each");
    assert!(bench.sentinel.reload(longer.into()));
    assert_eq!(bench.passed(9, call), 5);
}

#[test]
fn clients_are_told_what_is_left_of_the_quota_of_their_value() {
    let rules = Rules::new()
        .with(FlowRule::per("/", 100, MINUTE))
        .with(
            KeyedRule::per("/", 5, MINUTE)
                .window()
                .except_unlimited("eve")
                .id("each"),
        )
        // Calls at once are no quota in any time.
        .with(KeyedRule::concurrency("/", 2));
    let layer = SentinelLayer::new(rules)
        .param(Header::from_static("x-user"))
        .fields(RateLimitFields::Legacy);
    let answer = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    let mut service = layer.layer(service_fn(answer));
    let mut remaining = |user: &str| {
        let request = Request::get("/").header("x-user", user);
        let request = request.body(Body::empty()).unwrap();
        let response = ready(ready(service.ready()).unwrap().call(request)).unwrap();
        let headers = response.headers();
        ["x-ratelimit-limit", "x-ratelimit-remaining"]
            .map(|name| headers[name].to_str().unwrap().to_owned())
    };
    assert_eq!(remaining("ann"), ["5", "4"]);
    assert_eq!(remaining("ann"), ["5", "3"]);
    assert_eq!(remaining("bob"), ["5", "4"]);
    assert_eq!(remaining("eve"), ["100", "96"], "the rule of all calls");
}
