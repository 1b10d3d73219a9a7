//! Rules on who may call, and on all inbound calls together.

use std::time::Duration;

use tower_sentinel::stat::Event;
use tower_sentinel::system::{ManualProbe, Sampler, SystemReason};
use tower_sentinel::{
    AuthorityRule, BlockKind, Blocked, Call, Entry, FlowRule, IsolationRule, ManualClock, Rules,
    Sentinel, SystemRule, Verdict,
};

use crate::support::bench;

struct Bench {
    sentinel: Sentinel,
    clock: ManualClock,
    probe: ManualProbe,
}

impl Bench {
    fn new(rules: impl Into<Rules>) -> Self {
        let probe = ManualProbe::new();
        let sampler = Sampler::new(probe.clone());
        let bench::Bench { sentinel, clock } =
            bench::Bench::with(rules, |builder| builder.sampler(sampler));
        Self {
            sentinel,
            clock,
            probe,
        }
    }

    /// The running call, or who refused it.
    fn judge(&self, call: Call<'_>) -> Result<Entry, Blocked> {
        crate::support::enter(&self.sentinel, call)
    }

    /// The running call, or what refused it.
    fn enter(&self, call: Call<'_>) -> Result<Entry, BlockKind> {
        self.judge(call).map_err(|blocked| blocked.kind())
    }

    fn is_in(&self, call: Call<'_>) -> bool {
        self.enter(call).is_ok()
    }
}

// === authority ===

#[test]
fn only_those_on_the_list_may_call() {
    let bench = Bench::new(AuthorityRule::allow_list("r", "a, b"));
    let call = Call::new("r");
    assert!(bench.is_in(call.origin("a")) && bench.is_in(call.origin("b")));
    assert_eq!(
        bench.enter(call.origin("c")).err(),
        Some(BlockKind::Authority)
    );
    assert_eq!(
        bench.enter(call.origin("ab")).err(),
        Some(BlockKind::Authority)
    );
    // Who does not say who it is passes, unless the rule says otherwise.
    assert!(bench.is_in(call));
    assert!(bench.is_in(Call::new("other").origin("c")));
    let strict = AuthorityRule::allow_list("r", "a, b").deny_unknown();
    assert!(bench.sentinel.reload(strict.into()));
    assert_eq!(bench.enter(call).err(), Some(BlockKind::Authority));
    assert!(bench.is_in(call.origin("a")));
}

#[test]
fn all_but_those_on_the_list_may_call() {
    let rules = Rules::new()
        .with(AuthorityRule::deny("r", ["bot", "10.0.0.7"]))
        .with(AuthorityRule::deny("r", ["spy"]));
    let bench = Bench::new(rules);
    let call = Call::new("r");
    assert!(bench.is_in(call.origin("shop")));
    for origin in ["bot", "spy"] {
        assert_eq!(
            bench.enter(call.origin(origin)).err(),
            Some(BlockKind::Authority)
        );
    }
    let ip: std::net::IpAddr = "10.0.0.7".parse().unwrap();
    assert_eq!(
        bench.enter(call.origin(ip)).err(),
        Some(BlockKind::Authority)
    );
}

#[test]
fn who_may_not_call_takes_nothing_from_those_who_may() {
    let rules = Rules::new()
        .with(AuthorityRule::deny("r", ["bot"]))
        .with(IsolationRule::new("r", 1))
        .with(FlowRule::per_second("r", 1));
    let bench = Bench::new(rules);
    assert!((0..100).all(|_| !bench.is_in(Call::new("r").origin("bot"))));
    assert!(bench.is_in(Call::new("r").origin("shop")));
    let totals = bench.sentinel.node("r").unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (1, 100));
}

// === system ===

#[test]
fn all_inbound_calls_share_a_rate() {
    let rules = Rules::new().with(SystemRule::new().qps(5));
    let bench = Bench::new(rules);
    let names = ["a", "b", "c"];
    let passed = (0..30)
        .filter(|i| bench.is_in(Call::new(names[i % 3])))
        .count();
    assert_eq!(passed, 5);
    assert_eq!(bench.enter(Call::new("a")).err(), Some(BlockKind::System));
    // Outbound calls are neither counted nor refused.
    assert!((0..30).all(|_| bench.is_in(Call::new("a").outbound())));
    bench.clock.advance(Duration::from_secs(1));
    assert!(bench.is_in(Call::new("a").batch(5)));
    assert!(!bench.is_in(Call::new("a")));
}

#[test]
fn no_more_inbound_calls_run_at_once_than_the_rule_lets() {
    let bench = Bench::new(SystemRule::new().concurrency(2));
    let mut running = vec![
        bench.enter(Call::new("a")).unwrap(),
        bench.enter(Call::new("b")).unwrap(),
    ];
    assert_eq!(bench.enter(Call::new("c")).err(), Some(BlockKind::System));
    running.pop();
    assert!(bench.is_in(Call::new("c")));
}

#[test]
fn slow_answers_keep_others_out_until_they_are_forgotten() {
    let bench = Bench::new(SystemRule::new().rt(Duration::from_millis(50)));
    let entry = bench.enter(Call::new("a")).unwrap();
    bench.clock.advance(Duration::from_millis(60));
    drop(entry);
    assert_eq!(bench.enter(Call::new("b")).err(), Some(BlockKind::System));
    bench.clock.advance(Duration::from_secs(1));
    assert!(bench.is_in(Call::new("b")));
}

#[test]
fn a_call_of_more_than_a_minute_counts_as_a_minute() {
    for (seconds, passes) in [(60, false), (61, true)] {
        let bench = Bench::new(SystemRule::new().rt(Duration::from_secs(seconds)));
        let entry = bench.enter(Call::new("a")).unwrap();
        bench.clock.advance(Duration::from_secs(3_600));
        drop(entry);
        let node = bench.sentinel.node("a").unwrap();
        assert_eq!(node.average_rt(), Some(Duration::from_secs(60)));
        assert_eq!(bench.is_in(Call::new("b")), passes, "{seconds} s");
    }
}

#[test]
fn an_old_connection_that_closes_is_slow_unless_another_engine_counts_it() {
    for is_apart in [false, true] {
        let bench = Bench::new(SystemRule::new().rt(Duration::from_millis(500)));
        let apart = Sentinel::builder().clock(bench.clock.clone()).build();
        let counts = if is_apart { &apart } else { &bench.sentinel };
        let Verdict::Pass(connection) = counts.try_enter(Call::new("sockets")) else {
            panic!("nothing limits connections");
        };
        bench.clock.advance(Duration::from_secs(3_600));
        for _ in 0..100 {
            let quick = bench.enter(Call::new("a")).unwrap();
            bench.clock.advance(Duration::from_millis(1));
            drop(quick);
        }
        drop(connection);
        assert_eq!(bench.is_in(Call::new("a")), is_apart);
    }
}

#[test]
fn a_busy_machine_keeps_calls_out_and_an_unknown_one_does_not() {
    let bench = Bench::new(SystemRule::new().cpu(0.8));
    assert!(bench.is_in(Call::new("a")));
    bench.probe.set_cpu(0.8);
    // A reading is good for a second.
    assert!(bench.is_in(Call::new("a")));
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.enter(Call::new("a")).err(), Some(BlockKind::System));
    bench.probe.set_cpu(None);
    bench.clock.advance(Duration::from_secs(1));
    assert!(bench.is_in(Call::new("a")));
}

#[test]
fn load_alone_refuses_nobody_whom_the_service_can_hold() {
    let bench = Bench::new(SystemRule::new().load(4));
    // Fifty calls of 20 ms in a second, one after the other.
    for _ in 0..50 {
        let entry = bench.enter(Call::new("a")).unwrap();
        bench.clock.advance(Duration::from_millis(20));
        drop(entry);
    }
    bench.probe.set_load(9.0);
    bench.clock.advance(Duration::from_secs(1));
    // That is one at a time; one is always let in.
    let first = bench.enter(Call::new("a")).unwrap();
    let second = bench.enter(Call::new("a")).unwrap();
    assert_eq!(bench.enter(Call::new("a")).err(), Some(BlockKind::System));
    drop((first, second));
    assert!(bench.is_in(Call::new("a")));
}

#[test]
fn what_the_service_can_hold_is_known_where_resources_keep_no_seconds() {
    for keeps_seconds in [true, false] {
        let (clock, probe) = (ManualClock::new(), ManualProbe::new());
        let sentinel = Sentinel::builder()
            .rules(SystemRule::new().load(1))
            .sampler(Sampler::new(probe.clone()))
            .minute(keeps_seconds)
            .clock(clock.clone())
            .build();
        let call = || sentinel.try_enter(Call::new("r"));
        // A hundred in a second, each half a second long: fifty at once.
        let running: Vec<_> = (0..100).map(|_| call()).collect();
        clock.advance(Duration::from_millis(500));
        drop(running);
        clock.advance(Duration::from_millis(500));

        probe.set_load(2.0);
        clock.advance(Duration::from_secs(1));
        let calls: Vec<_> = (0..100).map(|_| call()).collect();
        let running = calls.iter().filter(|it| matches!(it, Verdict::Pass(_)));
        assert_eq!(running.count(), 51, "seconds are kept: {keeps_seconds}");
    }
}

#[test]
fn a_rule_that_comes_later_counts_from_then_on() {
    let bench = Bench::new(Rules::new());
    let early = bench.enter(Call::new("a")).unwrap();
    assert!(
        bench
            .sentinel
            .reload(SystemRule::new().concurrency(1).into())
    );
    let late = bench.enter(Call::new("a")).unwrap();
    assert!(!bench.is_in(Call::new("a")));
    // It was not counted when it came, so it is not when it goes.
    drop(early);
    assert!(!bench.is_in(Call::new("a")));
    drop(late);
    assert!(bench.is_in(Call::new("a")));
    assert!(bench.sentinel.reload(Rules::new()));
    assert!((0..9).all(|_| bench.is_in(Call::new("a"))));
    assert_eq!(bench.sentinel.inbound().sum(Event::Pass), 12);
}

#[test]
fn who_was_not_called_while_the_first_rule_was_there_is_counted_all_the_same() {
    let bench = Bench::new(Rules::new());
    assert!(bench.is_in(Call::new("a")));
    let rule = || SystemRule::new().concurrency(1).into();
    assert!(bench.sentinel.reload(rule()));
    // By these rules nobody comes to "a".
    assert!(bench.sentinel.reload(Rules::new()));
    assert!(bench.is_in(Call::new("a")));
    let running = bench.enter(Call::new("a")).unwrap();
    assert!(bench.sentinel.reload(rule()));
    assert!(!bench.is_in(Call::new("b")));
    drop(running);
    assert!(bench.is_in(Call::new("b")));
}

#[test]
fn a_waiting_call_counts_among_all_when_it_runs() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1).throttle(Duration::from_secs(2)))
        .with(SystemRule::new().concurrency(2));
    let bench = Bench::new(rules);
    let first = bench.enter(Call::new("r")).unwrap();
    let Verdict::Wait(waiting) = bench.sentinel.try_enter(Call::new("r")) else {
        panic!("its turn comes in a second");
    };
    let other = bench.enter(Call::new("s")).unwrap();
    drop(first);
    bench.clock.advance(Duration::from_secs(1));
    let second = waiting.admit().unwrap();
    assert!(!bench.is_in(Call::new("s")));
    drop((second, other));
    assert!(bench.is_in(Call::new("s")));
}

#[test]
fn refusals_say_what_they_are() {
    let rules = Rules::new()
        .with(AuthorityRule::deny("r", ["bot"]).id("no-bots"))
        .with(SystemRule::new().qps(0).id("all-of-us"));
    let bench = Bench::new(rules);
    let blocked = |call| bench.judge(call).unwrap_err();
    let authority = blocked(Call::new("r").origin("bot"));
    assert_eq!(
        (authority.rule(), authority.retry_after()),
        ("no-bots", None)
    );
    assert_eq!(
        authority.to_string(),
        "call to \"r\" refused by authority rule \"no-bots\""
    );
    let system = blocked(Call::new("r"));
    assert_eq!(
        (system.kind(), system.rule()),
        (BlockKind::System, "all-of-us")
    );
    assert_eq!(
        system.to_string(),
        "call to \"r\" refused by system rule \"all-of-us\" (qps)"
    );
    let reasons = [authority, system].map(|blocked| blocked.system_reason());
    assert_eq!(reasons, [None, Some(SystemReason::Qps)]);
}

#[test]
fn a_refusal_by_a_system_rule_says_which_of_its_limits_was_met() {
    let second = Duration::from_secs(1);
    let all = SystemRule::new()
        .qps(100)
        .concurrency(3)
        .rt(second)
        .load(4)
        .cpu(0.8);
    let bench = Bench::new(all);
    let reason = |call| bench.judge(call).unwrap_err().system_reason();
    assert_eq!(reason(Call::new("a").batch(101)), Some(SystemReason::Qps));

    let mut running: Vec<_> = (0..3)
        .map(|_| bench.enter(Call::new("a")).unwrap())
        .collect();
    assert_eq!(reason(Call::new("a")), Some(SystemReason::Concurrency));

    bench.probe.set_cpu(0.9);
    bench.clock.advance(second);
    running.pop();
    assert_eq!(reason(Call::new("a")), Some(SystemReason::Rt));
    // It took a second, which is what the service can hold at once: one call.
    bench.probe.set_load(9.0);
    bench.clock.advance(second);
    assert_eq!(reason(Call::new("a")), Some(SystemReason::Load));
    bench.probe.set_load(0.0);
    bench.clock.advance(second);
    assert_eq!(reason(Call::new("a")), Some(SystemReason::Cpu));
}
