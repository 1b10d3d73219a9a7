//! The bounded registry: who has a place of its own, who shares one, and that
//! nothing counted is ever lost.

use std::time::Duration;

use tower_sentinel::read::{BreakerState, NodeSnapshot, Scope, Snapshot};
use tower_sentinel::stat::Totals;
use tower_sentinel::system::{ManualProbe, Memory, Sampler};
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, FlowRule, IsolationRule, Key, KeyedRule, Rule, Rules,
    Sentinel, Verdict,
};

use crate::support::{configured, enter, run};

const OVERFLOW: &str = "__overflow__";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Whether a call passes; it ends at once.
fn passes(sentinel: &Sentinel, call: Call<'_>) -> bool {
    enter(sentinel, call).is_ok()
}

/// Calls `names`, one after the other.
fn call_all(sentinel: &Sentinel, names: impl IntoIterator<Item = String>) {
    for name in names {
        drop(sentinel.try_enter(Call::new(&name)));
    }
}

/// The resources of a snapshot, in order.
fn resources(snapshot: &Snapshot) -> Vec<&str> {
    let nodes = snapshot.nodes().iter();
    let nodes = nodes.filter(|node| *node.scope() == Scope::Resource);
    nodes.map(NodeSnapshot::resource).collect()
}

// === resources ===

#[test]
fn resources_beyond_the_bound_share_one_whose_rules_apply_to_them() {
    let rule = FlowRule::per_second(OVERFLOW, 2).id("rest");
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(3));
    for name in ["a", "b", "c"] {
        assert!((0..5).all(|_| passes(&sentinel, Call::new(name))));
    }
    assert!(passes(&sentinel, Call::new("d")) && passes(&sentinel, Call::new("e")));
    let blocked = enter(&sentinel, Call::new("f")).unwrap_err();
    assert_eq!((blocked.resource(), blocked.rule()), (OVERFLOW, "rest"));
    // Those that have a place are not touched by it.
    assert!(passes(&sentinel, Call::new("a")));
    clock.advance(SECOND);
    assert!(passes(&sentinel, Call::new("g")));

    let snapshot = sentinel.snapshot();
    assert_eq!(resources(&snapshot), [OVERFLOW, "a", "b", "c"]);
    assert_eq!((snapshot.overflowed(), snapshot.evicted()), (4, 0));
    assert!(sentinel.node("d").is_none());
    let totals = sentinel.node(OVERFLOW).unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (3, 1));
}

#[test]
fn a_reload_reaches_those_without_a_place() {
    let (sentinel, _clock) = configured(Rules::new(), |builder| builder.max_resources(1));
    let passed = |limit| {
        assert!(sentinel.reload(FlowRule::per_second(OVERFLOW, limit).into()));
        (0..20)
            .filter(|_| passes(&sentinel, Call::new("d")))
            .count()
    };
    assert!((0..3).all(|_| passes(&sentinel, Call::new("a"))));
    assert!(passes(&sentinel, Call::new("d")));
    assert_eq!(passed(5), 4, "what passed before is counted");
    assert_eq!(passed(12), 7);
    assert_eq!(passed(3), 0);
}

#[test]
fn a_resource_with_a_rule_has_a_place_whatever_the_bound() {
    let rules = Rules::new()
        .with(FlowRule::per_second("vip", 3))
        .with(IsolationRule::new("report", 1));
    let (sentinel, _clock) = configured(rules, |builder| builder.max_resources(1));
    call_all(&sentinel, (0..100).map(|number| format!("/{number}")));
    assert_eq!(
        (0..9)
            .filter(|_| passes(&sentinel, Call::new("vip")))
            .count(),
        3
    );
    let report = enter(&sentinel, Call::new("report")).unwrap();
    assert!(!passes(&sentinel, Call::new("report")));
    assert_eq!(report.resource(), "report");
    // A rule that comes later brings a place with it.
    sentinel.reload(FlowRule::per_second("/77", 2).into());
    assert_eq!(
        (0..9)
            .filter(|_| passes(&sentinel, Call::new("/77")))
            .count(),
        2
    );
}

#[test]
fn idle_resources_make_place_and_those_in_use_or_with_a_rule_do_not() {
    let rule = FlowRule::per_second("ruled", 10);
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(4));
    let running = enter(&sentinel, Call::new("busy")).unwrap();
    call_all(&sentinel, ["ruled", "idle", "fresh"].map(String::from));
    clock.advance(MINUTE - SECOND);
    call_all(&sentinel, ["fresh".to_owned()]);
    clock.advance(SECOND);
    // An hour of new names: each takes the place of the one before.
    for minute in 0..60 {
        call_all(&sentinel, [format!("/{minute}")]);
        for _ in 0..2 {
            clock.advance(MINUTE / 2);
            call_all(&sentinel, ["fresh".to_owned()]);
        }
    }
    let snapshot = sentinel.snapshot();
    for name in ["busy", "ruled", "fresh"] {
        assert!(resources(&snapshot).contains(&name), "{name} was forgotten");
    }
    assert_eq!((snapshot.resources(), snapshot.evicted()), (4, 60));
    assert_eq!(snapshot.overflowed(), 0);
    assert!(sentinel.node("idle").is_none());
    let busy = sentinel.node("busy").unwrap();
    assert_eq!(busy.concurrency(), 1);
    drop(running);
    assert_eq!((busy.concurrency(), busy.totals().complete()), (0, 1));
}

#[test]
fn what_calls_from_before_a_reload_count_on_does_not_make_place() {
    let rules = || {
        Rules::new()
            .with(IsolationRule::new("busy", 1))
            .with(FlowRule::per_second("r", 9).for_origin("ann"))
    };
    let (sentinel, clock) = configured(rules(), |builder| {
        builder.max_resources(3).max_origins(3).origins(true)
    });
    let running = enter(&sentinel, Call::new("busy").origin("ann")).unwrap();
    call_all(&sentinel, ["old".to_owned()]);
    // Both are made anew, by another thread, and neither is called for an hour.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sentinel.reload(CircuitBreakerRule::error_count("*", 9).into());
            assert!(passes(&sentinel, Call::new("busy").origin("ann")));
            call_all(&sentinel, ["old".to_owned()]);
        });
    });
    for minute in 0..60 {
        clock.advance(MINUTE);
        let (name, origin) = (format!("/{minute}"), format!("o{minute}"));
        drop(sentinel.try_enter(Call::new(&name).origin(&origin)));
    }
    let snapshot = sentinel.snapshot();
    assert!(resources(&snapshot).contains(&"busy") && !resources(&snapshot).contains(&"old"));
    let of_ann = |node: &&NodeSnapshot| *node.scope() == Scope::Origin("ann".into());
    let ann = snapshot.nodes().iter().find(of_ann).unwrap();
    assert_eq!((ann.resource(), ann.concurrency()), ("busy", 1));
    assert_eq!(snapshot.overflowed(), 0, "the others make place");
    // The call that runs is one, for a rule that comes back as well.
    sentinel.reload(rules());
    assert!(!passes(&sentinel, Call::new("busy")));
    drop(running);
    assert!(passes(&sentinel, Call::new("busy")));
    let totals = sentinel.node("busy").unwrap().totals();
    assert_eq!((totals.pass(), totals.complete()), (3, 3));
    for minute in 0..60 {
        clock.advance(MINUTE);
        call_all(&sentinel, [format!("/{minute}")]);
    }
    assert_eq!(sentinel.snapshot().overflowed(), 0);
}

#[test]
fn totals_never_fall_and_lose_nothing_when_resources_are_forgotten() {
    let (sentinel, clock) = configured(FlowRule::per_second("/3", 1), |builder| {
        builder.max_resources(8).idle_after(SECOND)
    });
    let mut last = Totals::default();
    let mut running = Vec::new();
    let (mut calls, mut passed) = (0, 0);
    for step in 0_u64..5_000 {
        let name = format!("/{}", step * step % 23);
        let outbound = step % 5 == 0;
        let call = Call::new(&name).batch(1 + step as u32 % 3);
        let call = if outbound { call.outbound() } else { call };
        let weight = u64::from(!outbound) * (1 + step % 3);
        calls += weight;
        if let Ok(entry) = enter(&sentinel, call) {
            passed += weight;
            running.push(entry);
        }
        if running.len() > 5 {
            drop(running.swap_remove(step as usize % 5));
        }
        clock.advance(Duration::from_millis(step % 7 * 150));
        let totals = sentinel.inbound().totals();
        assert!(totals.pass() >= last.pass() && totals.complete() >= last.complete());
        assert!(totals.block() >= last.block() && totals.calls() >= last.calls());
        assert_eq!((totals.pass(), totals.block()), (passed, calls - passed));
        assert_eq!(totals.block_by(BlockKind::Flow), totals.block());
        last = totals;
    }
    drop(running);
    assert_eq!(sentinel.inbound().totals().complete(), passed);
    let snapshot = sentinel.snapshot();
    assert!(snapshot.evicted() > 100, "{} evicted", snapshot.evicted());
    assert!(
        snapshot.totals().pass() > passed,
        "outbound calls are in it too"
    );
}

#[test]
fn threads_that_come_back_to_what_others_have_forgotten_lose_nothing() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 30_000;
    let (sentinel, clock) = configured(Rules::new(), |builder| {
        builder.max_resources(4).idle_after(Duration::ZERO)
    });
    let names: Vec<_> = (0..9).map(|name| format!("/{name}")).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (sentinel, clock, names) = (&sentinel, &clock, &names);
            scope.spawn(move || {
                for call in 0..CALLS {
                    // Rows of calls to one name, so that the thread keeps it, and then to
                    // another one, so that all of them come to be idle.
                    let name = (call / 20 * (thread + 1) + call % 2 * thread) as usize;
                    drop(enter(sentinel, Call::new(&names[name % names.len()])));
                    clock.advance(Duration::from_millis(200));
                }
            });
        }
    });
    let totals = sentinel.inbound().totals();
    let all = THREADS * CALLS;
    assert_eq!([totals.pass(), totals.complete(), totals.calls()], [all; 3]);
    let snapshot = sentinel.snapshot();
    assert!(snapshot.evicted() > 100, "{} evicted", snapshot.evicted());
    assert!(snapshot.resources() <= 5, "four, and the shared one");
}

#[test]
fn a_long_name_is_known_by_a_short_one() {
    let (sentinel, _clock) = configured(FlowRule::per_second("a", 1), |builder| builder);
    let (first, second) = ("x".repeat(64 * 1_024), "y".repeat(64 * 1_024));
    for (name, calls) in [(&first, 3), (&second, 2)] {
        call_all(&sentinel, std::iter::repeat_n(name.clone(), calls));
    }
    let node = |name: &String| sentinel.node(name).unwrap();
    assert_eq!(
        [&first, &second].map(|name| node(name).totals().pass()),
        [3, 2]
    );
    assert!(node(&first).resource().len() <= 256);
}

// === names of what many share ===

/// Every way to share a quota with all calls that have no key, and whether a call by `key`
/// passes after one without a key has taken that quota.
fn passes_after_one_without(key: Option<&str>) -> Vec<bool> {
    let of = |rule: KeyedRule| Rules::from(rule);
    let one = || KeyedRule::per_second("r", 1);
    let ways = [
        FlowRule::per_second("r", 1).by_origin().into(),
        of(one()),
        of(one().window()),
        of(one().throttle(Duration::ZERO)),
        of(KeyedRule::concurrency("r", 1)),
        of(one().by_origin()),
    ];
    let judge = |rules: Rules| {
        let (sentinel, _clock) = configured(rules, |builder| builder);
        let call = Call::new("r");
        let _running = enter(&sentinel, call).unwrap();
        let call = key.map_or(call, |key| call.origin(key).param(key));
        passes(&sentinel, call)
    };
    ways.map(judge).into()
}

#[test]
fn a_key_that_reads_like_the_missing_one_has_a_quota_of_its_own() {
    assert_eq!(passes_after_one_without(None), [false; 6]);
    assert_eq!(passes_after_one_without(Some("-")), [true; 6]);
    // A program may say that there is none.
    let (sentinel, _clock) = configured(KeyedRule::per_second("r", 1), |builder| builder);
    assert!(passes(&sentinel, Call::new("r").param(Key::MISSING)));
    assert!(!passes(&sentinel, Call::new("r")));
    let params = &sentinel.node("r").unwrap().keyed_rules()[0];
    assert_eq!((params.left(Key::MISSING), params.left("-")), (0, 1));
}

#[test]
fn a_quota_of_its_own_for_the_missing_key_is_named_by_what_it_reads_like() {
    let rule = KeyedRule::per_second("r", 5).except("-", 1);
    let (sentinel, _clock) = configured(rule, |builder| builder);
    assert!(passes(&sentinel, Call::new("r")));
    assert!(!passes(&sentinel, Call::new("r")));
}

#[test]
fn a_client_that_sends_the_name_of_the_overflow_has_no_part_in_it() {
    let rules = Rules::new()
        .with(FlowRule::per_second(OVERFLOW, 2).id("rest"))
        .with(FlowRule::per_second("-", 2).id("no name"))
        .with(FlowRule::per_second("*", 3).id("all"))
        .with(Rule::from(FlowRule::per_second(OVERFLOW, 0).id("shadow")).shadow());
    let (sentinel, _clock) = configured(rules, |builder| builder.max_resources(4));
    let passed = |name: Key<'_>| {
        let calls = (0..9).filter(|_| passes(&sentinel, Call::new(name)));
        calls.count()
    };
    // Each is one of all other names, and known by a hash.
    let joined = Key::Joined("__overflow__", "");
    assert_eq!(["-", OVERFLOW].map(|name| passed(name.into())), [3, 3]);
    assert_eq!(passed(Key::MISSING), 2);
    assert_eq!(passed(joined), 3, "which is another name");
    assert!(sentinel.node(OVERFLOW).is_none());
    assert_eq!(sentinel.shadows()[0].would_block(), 0);
    let blocked = enter(&sentinel, Call::new("-")).unwrap_err();
    assert_eq!(blocked.rule(), "all");
    assert!(blocked.resource().starts_with('#'), "{blocked:?}");

    // What has no place is counted where it always was.
    assert_eq!(["d", "e"].map(|name| passed(name.into())), [2, 0]);
    let node = sentinel.node(OVERFLOW).unwrap();
    assert_eq!((node.resource(), node.totals().pass()), (OVERFLOW, 2));
    assert_eq!(sentinel.node("-").unwrap().totals().pass(), 2);
    assert_eq!(sentinel.shadows()[0].would_block(), 2);
    let shown = |name| {
        let snapshot = sentinel.snapshot();
        let all = resources(&snapshot).into_iter();
        all.filter(|shown| *shown == name).count()
    };
    assert_eq!([shown(OVERFLOW), shown("-")], [1, 1]);
}

#[test]
fn a_rule_that_looks_at_the_overflow_looks_at_what_has_no_place() {
    let rules = Rules::new().with(FlowRule::per_second("r", 2).when(OVERFLOW));
    let (sentinel, _clock) = configured(rules, |builder| builder.max_resources(1));
    // It is by name alone that these count elsewhere.
    call_all(&sentinel, (0..5).map(|_| OVERFLOW.to_owned()));
    assert!(passes(&sentinel, Call::new("r")));
    call_all(&sentinel, ["b", "c", "d"].map(String::from));
    assert!(!passes(&sentinel, Call::new("r")));
}

#[test]
fn an_origin_that_reads_like_a_shared_one_has_a_node_of_its_own() {
    let (sentinel, _clock) = configured(Rules::new(), |builder| {
        builder.origins(true).contexts(true).max_origins(2)
    });
    for origin in ["-", OVERFLOW, "late"] {
        assert!(passes(&sentinel, Call::new("r").origin(origin)));
    }
    let snapshot = sentinel.snapshot();
    let pass = |scope: &Scope| {
        let mut nodes = snapshot.nodes().iter();
        let node = nodes.find(|node| node.scope() == scope);
        node.map(|node| node.totals().pass())
    };
    let own = ["-", OVERFLOW].map(|name| pass(&Scope::Origin(name.to_owned())));
    assert_eq!(own, [Some(1); 2]);
    assert_eq!(pass(&Scope::OverflowOrigins), Some(1));
}

// === origins ===

#[test]
fn origins_beyond_the_bound_share_one_quota_on_each_resource() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 3).for_origin("other"))
        .with(FlowRule::per_second("s", 2).for_origin("other"));
    let (sentinel, clock) = configured(rules, |builder| builder.max_origins(2));
    let passed = |resource: &str, origin: &str| {
        let call = Call::new(resource).origin(origin);
        (0..5).filter(|_| passes(&sentinel, call)).count()
    };
    assert_eq!(["a", "b"].map(|origin| passed("r", origin)), [3, 3]);
    // "c" and all after it have three together, and on "s" two together.
    assert_eq!(["c", "d", "e"].map(|origin| passed("r", origin)), [3, 0, 0]);
    assert_eq!(["a", "c"].map(|origin| passed("s", origin)), [2, 0]);
    clock.advance(SECOND);
    assert_eq!(["a", "d", "c"].map(|origin| passed("r", origin)), [3, 3, 0]);

    let snapshot = sentinel.snapshot();
    let shared = snapshot.nodes().iter();
    let shared = shared.filter(|node| *node.scope() == Scope::OverflowOrigins);
    let shared: Vec<_> = shared
        .map(|node| (node.resource(), node.totals().pass()))
        .collect();
    assert_eq!(shared, [("r", 6), ("s", 2)]);
}

#[test]
fn what_origins_share_is_forgotten_with_its_resource() {
    const BOUND: usize = 64;
    let (sentinel, clock) = configured(Rules::new(), |builder| {
        let builder = builder.origins(true).idle_after(SECOND);
        builder.max_resources(BOUND).max_origins(BOUND)
    });
    for call in 0..20_000 {
        let (resource, origin) = (format!("/{call}"), format!("10.0.0.{call}"));
        drop(sentinel.try_enter(Call::new(&resource).origin(&origin)));
        clock.advance(SECOND / 100);
    }
    let snapshot = sentinel.snapshot();
    assert!(snapshot.resources() <= BOUND, "{}", snapshot.resources());
    // A place for each origin, and for each resource that has one to share.
    assert!(snapshot.origins() <= 2 * BOUND, "{}", snapshot.origins());
}

#[test]
fn a_resource_that_comes_back_is_not_shown_with_the_origins_that_it_had() {
    let (sentinel, clock) = configured(Rules::new(), |builder| {
        let builder = builder.origins(true).idle_after(SECOND);
        builder.max_resources(1)
    });
    for resource in ["a", "b", "a"] {
        drop(sentinel.try_enter(Call::new(resource).origin("x")));
        clock.advance(MINUTE);
    }
    let snapshot = sentinel.snapshot();
    assert_eq!((resources(&snapshot), snapshot.evicted()), (vec!["a"], 2));
    let nodes = snapshot.nodes().iter();
    let shown: Vec<_> = nodes.map(|node| (node.resource(), node.scope())).collect();
    let origin = Scope::Origin("x".to_owned());
    assert_eq!(shown, [("a", &Scope::Resource), ("a", &origin)]);
}

#[test]
fn a_named_origin_keeps_its_rule_beyond_the_bound() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 3).for_origin("app"))
        .with(FlowRule::per_second("r", 1).for_origin("other"))
        .with(FlowRule::per_second("s", 2).for_origin("app"));
    let (sentinel, _clock) = configured(rules, |builder| builder.max_origins(2));
    for origin in ["a", "b", "c"] {
        drop(enter(&sentinel, Call::new("r").origin(origin)));
    }
    // "a" and "b" have the places; "c" shares what "other" leaves the rest.
    let app = Call::new("r").origin("app");
    assert_eq!((0..9).filter(|_| passes(&sentinel, app)).count(), 3);
    assert!(!passes(&sentinel, Call::new("r").origin("d")));
    let elsewhere = Call::new("s").origin("app");
    assert_eq!((0..9).filter(|_| passes(&sentinel, elsewhere)).count(), 2);
}

#[test]
fn an_exhausted_origin_cannot_come_back_with_a_fresh_quota() {
    let long = |interval| FlowRule::per("r", 3, interval).for_origin("other");
    let short = || FlowRule::per_second("r", 1_000).for_origin("other");
    let apart = |rule: FlowRule| rule.memory_bytes(1 << 60..1 << 61, 1);
    // Alone, and beside a shorter window: on one ring, and on one ring each.
    let ten = SECOND * 10;
    for (interval, rules) in [
        (MINUTE, vec![long(MINUTE)]),
        (ten, vec![short(), long(ten)]),
        (MINUTE, vec![apart(short()), apart(long(MINUTE))]),
    ] {
        let rules = Rules::build(rules).unwrap();
        let (sentinel, clock) = configured(rules, |builder| {
            builder.max_origins(4).idle_after(Duration::ZERO)
        });
        let flood = |from: u64| {
            for origin in from..from + 1_000 {
                drop(sentinel.try_enter(Call::new("r").origin(origin)));
            }
        };
        let greedy = || {
            let call = Call::new("r").origin("greedy");
            (0..9).filter(|_| passes(&sentinel, call)).count()
        };
        assert_eq!(greedy(), 3);
        for second in 1..interval.as_secs() {
            clock.advance(SECOND);
            flood(second * 1_000);
            assert_eq!(sentinel.snapshot().evicted(), 0, "after {second} s");
        }
        assert_eq!(greedy(), 0);
        // Two windows later nothing of what it did matters: it makes place.
        clock.advance(interval * 2);
        flood(1_000_000);
        assert!(sentinel.snapshot().evicted() > 0);
        assert!(
            sentinel.snapshot().origins() <= 5,
            "four, and the shared one"
        );
    }
}

#[test]
fn an_origin_that_had_its_turn_cannot_come_back_as_the_first_of_a_queue() {
    let memory = ManualProbe::new();
    // A call a minute, in three ways.
    let falling = FlowRule::per("r", 60, MINUTE).memory(0.5..0.9, 1);
    let rules = [
        FlowRule::per("r", 1, MINUTE),
        FlowRule::per_second("r", 1.0 / 60.0),
        falling,
    ];
    memory.set_memory(Memory::new(95, 100));
    for rule in rules {
        // Beside a quick queue, which alone would forget it soon.
        let quick = FlowRule::per_second("r", 1_000);
        let rules = [quick, rule.clone()].map(|it| it.for_origin("other").throttle(Duration::ZERO));
        let (sentinel, clock) = configured(Rules::build(rules).unwrap(), |builder| {
            let sampler = Sampler::new(memory.clone());
            let builder = builder.max_origins(4).sampler(sampler);
            builder.idle_after(Duration::ZERO)
        });
        let greedy = || passes(&sentinel, Call::new("r").origin("greedy"));
        assert!(greedy());
        for second in 0..50_u64 {
            clock.advance(SECOND);
            for origin in 0..100 {
                drop(sentinel.try_enter(Call::new("r").origin(second * 100 + origin)));
            }
        }
        clock.advance(SECOND * 9);
        assert!(!greedy(), "{rule:?}");
        clock.advance(SECOND);
        assert!(greedy(), "{rule:?}");
    }
}

#[test]
fn a_heavy_call_in_a_queue_is_not_forgotten_because_others_want_the_place() {
    let queue = FlowRule::per_second("*", 10).throttle(Duration::ZERO);
    let heavy = Call::new("r").batch(200);
    let (sentinel, clock) =
        configured(queue, |builder| builder.max_resources(1).idle_after(SECOND));
    assert!(passes(&sentinel, heavy));
    // 200 tokens at 10 per second are 20 seconds.
    for _ in 0..19 {
        clock.advance(SECOND);
        drop(sentinel.try_enter(Call::new("other")));
    }
    assert!(!passes(&sentinel, heavy));
    clock.advance(SECOND);
    assert!(passes(&sentinel, heavy));
}

#[test]
fn a_breaker_of_all_resources_does_not_close_because_others_want_the_place() {
    let rule = CircuitBreakerRule::error_count("*", 2)
        .min_calls(2)
        .interval(MINUTE)
        .open_for(MINUTE);
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(3).idle_after(SECOND));
    let fail = |resource| run(&sentinel, Call::new(resource)).fail();
    fail("counts");
    fail("opens");
    fail("opens");
    drop(sentinel.try_enter(Call::new("by hand")));
    sentinel.node("by hand").unwrap().breakers()[0].force_open();
    for second in 0..58 {
        clock.advance(SECOND);
        drop(sentinel.try_enter(Call::new(&format!("/{second}"))));
    }
    assert!(!passes(&sentinel, Call::new("opens")));
    fail("counts");
    assert!(
        !passes(&sentinel, Call::new("counts")),
        "the second failure in a minute"
    );

    // Whoever opened one by hand wants it to stay so.
    for minute in 0..10 {
        clock.advance(MINUTE);
        drop(sentinel.try_enter(Call::new(&format!("/{minute}"))));
    }
    assert!(sentinel.node("opens").is_none());
    assert!(!passes(&sentinel, Call::new("by hand")));
}

#[test]
fn a_breaker_that_has_grown_does_not_close_because_others_want_the_place() {
    let rule = CircuitBreakerRule::consecutive_errors("*", 1)
        .open_for(SECOND)
        .open_up_to(SECOND * 32);
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(1).idle_after(SECOND));
    for doubled in 0..=5 {
        run(&sentinel, Call::new("down")).fail();
        let open = SECOND * (1 << doubled);
        clock.advance(open - Duration::from_millis(1));
        drop(sentinel.try_enter(Call::new("other")));
        assert!(!passes(&sentinel, Call::new("down")), "{open:?}");
        clock.advance(Duration::from_millis(1));
    }
}

#[test]
fn a_breaker_that_is_closed_keeps_no_place_for_as_long_as_it_might_be_open() {
    let rule = CircuitBreakerRule::error_count("*", 2)
        .interval(SECOND * 3)
        .open_for(MINUTE)
        .open_up_to(MINUTE * 60);
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(1).idle_after(SECOND));
    run(&sentinel, Call::new("fails once")).fail();
    // What it has counted matters for three seconds; when it was last used is known to
    // the second.
    for (second, is_there) in [(3, true), (1, false)] {
        clock.advance(SECOND * second);
        drop(sentinel.try_enter(Call::new("other")));
        assert_eq!(sentinel.node("fails once").is_some(), is_there);
    }
}

#[test]
fn a_breaker_that_waits_for_a_probe_does_not_close_because_others_want_the_place() {
    let rule = CircuitBreakerRule::error_count("*", 2).open_for(MINUTE);
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(1).idle_after(SECOND));
    let fail = || run(&sentinel, Call::new("down")).fail();
    fail();
    fail();
    clock.advance(MINUTE);
    // A probe that says nothing.
    enter(&sentinel, Call::new("down")).unwrap().ignore();
    clock.advance(SECOND * 59);
    drop(sentinel.try_enter(Call::new("other")));
    fail();
    assert!(!passes(&sentinel, Call::new("down")), "one bad probe");
}

#[test]
fn an_open_breaker_stays_open_when_its_resource_is_evicted_until_a_call_decides() {
    let growing = |rule: CircuitBreakerRule| rule.open_for(SECOND).open_up_to(SECOND * 32);
    for rule in [
        growing(CircuitBreakerRule::consecutive_errors("*", 1)),
        growing(CircuitBreakerRule::error_count("*", 1)),
        growing(CircuitBreakerRule::error_ratio("*", 0.5).min_calls(1)),
        growing(CircuitBreakerRule::error_ratio("*", 0.5).last_calls(1)),
        growing(CircuitBreakerRule::slow_ratio("*", Duration::ZERO, 0.5).min_calls(1)),
    ] {
        let (sentinel, clock) = configured(rule.clone(), |builder| {
            builder.max_resources(1).idle_after(SECOND)
        });
        let fail = || {
            let mut call = run(&sentinel, Call::new("down"));
            clock.advance(Duration::from_millis(1));
            call.fail();
        };
        let evict = || {
            drop(sentinel.try_enter(Call::new("other")));
            assert!(sentinel.node("down").is_none());
            clock.advance(MINUTE * 60);
        };
        for doubled in 0..8 {
            fail();
            let open = SECOND * (1 << doubled.min(5));
            let Verdict::Block(blocked) = sentinel.try_enter(Call::new("down")) else {
                panic!("{rule:?}: it is open");
            };
            assert_eq!(blocked.retry_after(), Some(open), "{rule:?}");
            clock.advance(MINUTE * 60);
            evict();
            // Rules that are loaded meanwhile go on from it.
            if doubled == 3 {
                sentinel.reload(rule.clone().id("renamed").into());
            }
        }
        // The first call is a probe, and with its good end the breaker is as new.
        let probe = run(&sentinel, Call::new("down"));
        let state = || sentinel.node("down").unwrap().breakers()[0].state();
        assert_eq!(state(), BreakerState::HalfOpen);
        assert!(!passes(&sentinel, Call::new("down")), "one probe");
        drop(probe);
        assert_eq!(state(), BreakerState::Closed, "{rule:?}");
        clock.advance(MINUTE * 60);
        evict();
        assert!(passes(&sentinel, Call::new("down")));
        assert_eq!(state(), BreakerState::Closed);
    }
}

#[test]
fn good_probes_of_a_breaker_whose_resource_is_evicted_count() {
    let rule = CircuitBreakerRule::consecutive_errors("*", 1).probes(2);
    let (sentinel, clock) = configured(rule, |builder| builder.max_resources(1).idle_after(SECOND));
    // Long enough to be known by its hash.
    let down = "down".repeat(100);
    let state = || sentinel.node(&*down).map(|node| node.breakers()[0].state());
    run(&sentinel, Call::new(&down)).fail();
    for expected in [BreakerState::HalfOpen, BreakerState::Closed] {
        clock.advance(MINUTE);
        drop(sentinel.try_enter(Call::new("other")));
        assert_eq!(state(), None);
        clock.advance(MINUTE);
        assert!(passes(&sentinel, Call::new(&down)));
        assert_eq!(state(), Some(expected));
    }
}

#[test]
fn a_breaker_that_opened_by_an_older_rule_stays_open_although_others_want_the_place() {
    let rule = |open_for| CircuitBreakerRule::error_count("*", 1).open_for(open_for);
    let (sentinel, clock) = configured(rule(MINUTE), |builder| {
        builder.max_resources(1).idle_after(SECOND)
    });
    run(&sentinel, Call::new("down")).fail();
    sentinel.reload(rule(SECOND).into());
    assert!(!passes(&sentinel, Call::new("down")));
    clock.advance(SECOND * 59);
    drop(sentinel.try_enter(Call::new("other")));
    assert!(!passes(&sentinel, Call::new("down")));
}

#[test]
fn a_row_of_errors_that_a_rule_for_all_counts_makes_place_and_that_of_a_name_stays() {
    for (rule, is_kept) in [("*", false), ("rare", true)] {
        let rule = CircuitBreakerRule::consecutive_errors(rule, 3).open_for(SECOND);
        let (sentinel, clock) =
            configured(rule, |builder| builder.max_resources(1).idle_after(MINUTE));
        let fail = || run(&sentinel, Call::new("rare")).fail();
        fail();
        // Nobody wants the place, or nobody may have it yet.
        clock.advance(MINUTE * 60);
        fail();
        clock.advance(SECOND * 59);
        drop(sentinel.try_enter(Call::new("other")));
        clock.advance(SECOND * 61);
        drop(sentinel.try_enter(Call::new("other")));
        clock.advance(MINUTE * 2);
        fail();
        assert_eq!(!passes(&sentinel, Call::new("rare")), is_kept);
    }
}

#[test]
fn ten_thousand_rules_hold_on_one_resource_and_on_as_many() {
    // On one resource the tightest counts, wherever it stands.
    let on_one = (0..10_000_u32).map(|n| FlowRule::per_second("r", 5 + (n * 7_919) % 10_000));
    let (sentinel, _clock) = configured(Rules::build(on_one).unwrap(), |builder| builder);
    let passed = (0..20).filter(|_| passes(&sentinel, Call::new("r")));
    assert_eq!(passed.count(), 5);

    let on_many = (0..10_000_u32).map(|n| FlowRule::per_second(format!("/r/{n}"), n % 3));
    let (sentinel, _clock) = configured(Rules::build(on_many).unwrap(), |builder| builder);
    for n in [0, 1, 2, 4_999, 9_998, 9_999] {
        let name = format!("/r/{n}");
        let passed = (0..5).filter(|_| passes(&sentinel, Call::new(&name)));
        assert_eq!(passed.count(), n % 3, "{name}");
    }
}
