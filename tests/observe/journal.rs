//! What the journal says, and how little of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_sentinel::clock::TokioClock;
use tower_sentinel::observe::dashboard::Dashboard;
use tower_sentinel::observe::journal::Journal;
use tower_sentinel::source::{InMemory, SourceError, Watch, from_fn};
use tower_sentinel::store::{Fault, MemoryStore, StoreErrorKind, WhenDown};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Criticality, FlowRule, Hook, KeyedRule,
    ManualClock, Rules, Sentinel, Verdict, hook::PassEvent,
};

use crate::support::log::Log;
use crate::support::{attempts, configured, ms, run};

/// An engine, its journal, and what that has said.
struct Bench {
    sentinel: Sentinel,
    clock: ManualClock,
    journal: Journal,
    log: Log,
}

impl Bench {
    fn new(rules: impl Into<Rules>) -> Self {
        let (sentinel, clock) = configured(rules, |builder| builder);
        let journal = Journal::new(&sentinel);
        let log = Log::default();
        Self {
            sentinel,
            clock,
            journal,
            log,
        }
    }

    fn refused(&self, call: Call<'_>) {
        assert!(matches!(self.sentinel.try_enter(call), Verdict::Block(_)));
    }

    /// Looks once, after a second, and returns what was said.
    fn look(&self) -> Vec<String> {
        self.clock.advance(ms(1_000));
        tracing::subscriber::with_default(self.log.clone(), || self.journal.poll_once());
        self.log.said()
    }

    /// Looks so many times, and returns all that was said.
    fn looks(&self, times: u32) -> Vec<String> {
        (0..times).flat_map(|_| self.look()).collect()
    }
}

#[test]
fn refusals_begin_go_on_and_end() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 0).id("never"))
        .with(FlowRule::per_second("/search", 9).id("nine"));
    let bench = Bench::new(rules);
    assert_eq!(bench.looks(3), [""; 0]);
    bench.refused(Call::new("/search").batch(3));
    let own = "direction inbound";
    let began =
        format!("WARN refusals began, {own}, reason flow, refused 3, resource /search, rule never");
    assert_eq!(bench.look(), [&*began]);
    for _ in 0..59 {
        bench.refused(Call::new("/search"));
        assert_eq!(bench.look(), [""; 0]);
    }
    bench.refused(Call::new("/search"));
    let text = |what: &str, refused: u32, seconds: u32| {
        format!(
            "INFO refusals {what}, {own}, reasons flow={refused}, refused {refused}, \
             resource /search, seconds {seconds}"
        )
    };
    assert_eq!(bench.look(), [text("go on", 63, 60)]);
    // So short a break is none.
    assert_eq!(bench.looks(9), [""; 0]);
    bench.refused(Call::new("/search"));
    assert_eq!(bench.looks(10), [""; 0]);
    assert_eq!(bench.look(), [text("ended", 64, 70)]);
    assert_eq!(bench.looks(100), [""; 0]);
    bench.refused(Call::new("/search").batch(3));
    assert_eq!(bench.look(), [began]);
}

#[test]
fn a_million_refusals_of_many_resources_are_a_few_lines_with_exact_totals() {
    const RESOURCES: u64 = 300;
    let names: Vec<_> = (0..RESOURCES).map(|n| format!("/{n}")).collect();
    let rules = names.iter().map(|name| FlowRule::per_second(name, 0));
    let bench = Bench::new(Rules::build(rules).unwrap());
    let total = attempts();
    // Ten minutes, and one in which all of it ends.
    let (mut lines, mut number) = (Vec::new(), 0);
    let mut most = 0;
    for minute in 0..12 {
        let mut of_minute = Vec::new();
        for second in 0..60 {
            let until = total * (minute * 60 + second + 1) / 600;
            while number < until.min(total) {
                // In turn, and now and then one for long.
                let place = if number % 7 == 0 {
                    0
                } else {
                    number % RESOURCES
                };
                bench.refused(Call::new(&*names[place as usize]));
                number += 1;
            }
            of_minute.extend(bench.look());
        }
        most = most.max(of_minute.len());
        lines.extend(of_minute);
    }
    assert_eq!(number, total);
    // Twenty of refusals that began, and ten of others: never one more.
    assert!((20..=30).contains(&most), "{most} lines a minute");
    // What has ended, and what ended without a line.
    let told = lines
        .iter()
        .filter(|line| line.contains("ended") || line.contains("more refusals"));
    let refused = told.map(|line| {
        let (_, count) = line.split_once("refused ").unwrap();
        count.split(',').next().unwrap().parse::<u64>().unwrap()
    });
    assert_eq!(refused.sum::<u64>(), total);
    println!("{} lines, at most {most} a minute", lines.len());
}

#[test]
fn changes_of_breakers_are_told_and_those_of_one_that_flaps_are_summed_up() {
    let breaker = CircuitBreakerRule::error_count("/pay", 1)
        .open_for(ms(1_000))
        .id("errors");
    let bench = Bench::new(breaker);
    run(&bench.sentinel, Call::new("/pay")).fail();
    let own = "direction inbound";
    let rest = "resource /pay, rule errors";
    let opened = format!("WARN breaker opened, {own}, from closed, {rest}, to open, value 1");
    assert_eq!(bench.look(), [opened.replace("value 1", "value 1.0")]);
    drop(run(&bench.sentinel, Call::new("/pay")));
    let told = [
        format!("DEBUG breaker half-open, {own}, from open, {rest}, to half-open"),
        format!("INFO breaker closed, {own}, from half-open, {rest}, to closed"),
    ];
    assert_eq!(bench.look(), told);
    let view = bench.sentinel.node("/pay").unwrap().breakers().remove(0);
    for _ in 0..500 {
        view.force_open();
        view.force_close();
    }
    let said = bench.looks(60);
    let told = format!("INFO breaker flapped, changes 1000, {own}, {rest}, to closed");
    assert_eq!(said, [told]);
}

#[test]
fn shedding_begins_reaches_critical_calls_and_ends() {
    let rule = AdaptiveRule::new("/search").start(3).ceiling(3);
    let bench = Bench::new(rule.burst(Duration::ZERO));
    let call = |class| Call::new("/search").criticality(class);
    let enter = |class| bench.sentinel.try_enter(call(class));
    let calm = |calls: u32| {
        for _ in 0..calls {
            let running = enter(Criticality::Sheddable);
            bench.clock.advance(ms(50));
            drop((running, enter(Criticality::Critical)));
        }
    };
    calm(200);
    let shed = |lines: Vec<String>| {
        let about = |line: &String| line.contains("shedding") || line.contains("critical calls");
        lines.into_iter().filter(about).collect::<Vec<_>>()
    };
    assert_eq!(shed(bench.look()), [""; 0]);
    let running: Vec<_> = (0..3).map(|_| enter(Criticality::Critical)).collect();
    bench.refused(call(Criticality::Sheddable));
    let began = "WARN shedding began, classes sheddable, critical_bound 3, direction inbound, \
                 resource /search";
    assert_eq!(shed(bench.look()), [began]);
    bench.refused(call(Criticality::Critical));
    assert_eq!(
        shed(bench.look()),
        ["WARN critical calls are refused, direction inbound, resource /search"]
    );
    bench.refused(call(Criticality::Critical));
    assert_eq!(shed(bench.look()), [""; 0]);
    drop(running);
    calm(400);
    let ended = shed(bench.look());
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(
        ended[0]
            .starts_with("INFO shedding ended, direction inbound, refused critical=2 sheddable=1"),
        "{ended:?}"
    );
    // A new episode that lasts has its line when the last one is a minute old.
    let _running: Vec<_> = (0..3).map(|_| enter(Criticality::Critical)).collect();
    bench.refused(call(Criticality::Sheddable));
    let mut looks = 0;
    loop {
        let lines = shed(bench.look());
        looks += 1;
        if let [line] = &lines[..] {
            assert!(line.contains("shedding began"), "{line}");
            break;
        }
        assert!(lines.is_empty() && looks <= 60, "{lines:?}, {looks}");
    }
    assert!(looks > 1, "it began too soon after the last one");
}

#[test]
fn a_storm_of_refusals_keeps_no_breaker_out_and_a_breaker_that_flaps_no_other() {
    let names: Vec<_> = (0..40).map(|n| format!("/{n}")).collect();
    let rules = names.iter().map(|name| FlowRule::per_second(name, 0));
    let rules = Rules::build(rules).unwrap();
    let breakers = ["/pay", "/ship"].map(|name| CircuitBreakerRule::error_count(name, 1));
    let bench = Bench::new(breakers.into_iter().fold(rules, Rules::with));
    for (number, name) in names.iter().enumerate() {
        bench.refused(Call::new(name).batch(1 + number as u32));
    }
    drop(run(&bench.sentinel, Call::new("/ship")));
    let flapping = bench.sentinel.node("/ship").unwrap().breakers().remove(0);
    for _ in 0..100 {
        flapping.force_open();
        flapping.force_close();
    }
    run(&bench.sentinel, Call::new("/pay")).fail();
    let said = bench.look();
    let count = |what: &str| said.iter().filter(|line| line.contains(what)).count();
    assert_eq!(count("refusals began"), 20, "{said:?}");
    let is_pay = |line: &&String| line.contains("breaker opened") && line.contains("/pay");
    assert_eq!(said.iter().filter(is_pay).count(), 1, "{said:?}");
    assert!(count("/ship") <= 2, "{said:?}");
    // They go on; what had no line is summed up with its names and all that was refused.
    for _ in 0..58 {
        names.iter().for_each(|name| bench.refused(Call::new(name)));
        bench.look();
    }
    let said = bench.looks(2);
    let more = said.iter().find(|line| line.contains("more refusals"));
    let more = more.unwrap_or_else(|| panic!("{said:?}"));
    assert!(
        more.contains("resources 20") && more.contains("and 10 more"),
        "{more}"
    );
    let (_, refused) = more.split_once("refused ").unwrap();
    let refused: u64 = refused.split(',').next().unwrap().parse().unwrap();
    let all: u64 = (1..=40).sum::<u64>() + 40 * 58;
    assert!((20 * 58..all).contains(&refused), "{refused} of {all}");
}

#[test]
fn names_that_callers_make_up_are_one_and_stand_in_no_line() {
    const MARKER: &str = "k3y-0f-a-c4ll3r";
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 0).id("any"))
        .with(KeyedRule::per_second("/search", 0).max_keys(1).id("each"))
        .with(CircuitBreakerRule::error_count("*", 1));
    let (sentinel, clock) = configured(rules, |builder| builder.max_resources(3).origins(true));
    let bench = Bench {
        journal: Journal::new(&sentinel),
        log: Log::default(),
        sentinel,
        clock,
    };
    for number in 0..5 {
        let name = format!("/{MARKER}/{number}");
        bench.refused(
            Call::new(&*name)
                .origin(MARKER)
                .context(MARKER)
                .tier(MARKER),
        );
        bench.refused(Call::new("/search").origin(MARKER).param(&*name));
    }
    bench.refused(Call::new("/search"));
    let said = bench.looks(80);
    assert!(said.iter().all(|line| !line.contains(MARKER)), "{said:?}");
    let of = |start: &str| said.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        of("WARN refusals began, direction any, reason flow"),
        1,
        "{said:?}"
    );
    assert!(
        said.iter()
            .any(|line| line.contains("resource others, rule any")),
        "{said:?}"
    );
    assert_eq!(of("WARN no place for names"), 1);
    assert_eq!(of("WARN calls without a key, calls 1"), 1);
}

#[test]
fn names_neither_end_a_line_nor_turn_it_around() {
    let rule = FlowRule::per_second("a\u{202e}b \"c\" \\", 0).id("</b>");
    let bench = Bench::new(rule);
    bench.refused(Call::new("a\u{202e}b \"c\" \\"));
    let said = bench.look();
    assert!(
        said[0].ends_with("resource a\\u202eb \\\"c\\\" \\\\, rule \\u003c/b\\u003e"),
        "{said:?}"
    );
}

#[test]
fn reloads_and_sources_are_told() {
    let rule = |id: &str, limit: u32| FlowRule::per_second("/a", limit).id(id);
    let (sentinel, clock) = configured((rule("a", 1), rule("b", 1)), |builder| builder);
    let answers = [
        Ok(None),
        Err(SourceError::new("no\nanswer")),
        Ok(Some(Rules::from(rule("c", 1)))),
    ];
    let mut answers = answers.into_iter();
    let source = from_fn(move || answers.next().unwrap_or(Ok(None)));
    let watch = Watch::new(sentinel.clone(), source);
    let bench = Bench {
        journal: Journal::new(&sentinel).watch("rules.toml", &watch),
        log: Log::default(),
        sentinel,
        clock,
    };
    let said = || {
        watch.poll_once();
        bench.look()
    };
    bench
        .sentinel
        .reload((rule("b", 2), rule("c", 1), rule("d", 1)).into());
    assert_eq!(
        said(),
        ["INFO rules in force, added 2, changed 1, removed 1, rules 3"]
    );
    assert_eq!(
        said(),
        ["WARN rules kept, error no\\u000aanswer, source rules.toml"]
    );
    assert_eq!(bench.looks(100), [""; 0]);
    assert_eq!(
        said(),
        [
            "INFO rules in force, added 0, changed 0, removed 2, rules 1",
            "INFO rules readable again, source rules.toml",
        ]
    );
}

#[test]
fn a_hook_that_panics_is_told_and_a_journal_leaves_no_hook() {
    #[derive(Debug)]
    struct Broken;

    impl Hook for Broken {
        fn on_pass(&self, _: &PassEvent<'_>) {
            panic!("it is broken");
        }
    }

    let bench = Bench::new(Rules::new());
    bench.sentinel.hooks().register("broken", Arc::new(Broken));
    (0..2).for_each(|_| drop(run(&bench.sentinel, Call::new("a"))));
    assert_eq!(bench.look(), ["ERROR hook panicked, panics 2"]);
    assert_eq!(bench.look(), [""; 0]);
    let sentinel = bench.sentinel.clone();
    assert_eq!(sentinel.hooks().names().len(), 2);
    drop(bench);
    assert_eq!(*sentinel.hooks().names(), [Arc::<str>::from("broken")]);
    // By a thread, which takes the hook with it.
    let handle = Journal::new(&sentinel)
        .spawn(Duration::from_secs(3_600))
        .unwrap();
    handle.stop();
    assert_eq!(*sentinel.hooks().names(), [Arc::<str>::from("broken")]);
}

#[tokio::test(start_paused = true)]
async fn refusals_for_want_of_the_store_name_the_rule_that_needs_it() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let rule = FlowRule::per_second("/v1", 9).shared();
    let sentinel = Sentinel::builder()
        .rules(rule.when_down(WhenDown::Closed).id("fleet"))
        .clock(TokioClock::new())
        .store(store.clone())
        .build();
    let _handle = sentinel.start_store().unwrap();
    store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(ms(3_000)).await;
    let (journal, log) = (Journal::new(&sentinel), Log::default());
    assert!(sentinel.enter(Call::new("/v1")).await.is_err());
    tokio::time::sleep(ms(1_000)).await;
    tracing::subscriber::with_default(log.clone(), || journal.poll_once());
    let began = "WARN refusals began, direction inbound, reason store, refused 1, \
                 resource /v1, rule fleet";
    let said = log.said();
    assert!(said.contains(&began.to_owned()), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_and_comes_back_is_told_and_refusals_of_it_once_a_minute() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("/v1", 9).shared())
        .clock(TokioClock::new())
        .store(store.clone())
        .build();
    let _handle = sentinel.start_store().unwrap();
    tokio::time::sleep(ms(600)).await;
    let (journal, log) = (Journal::new(&sentinel), Log::default());
    let look = async |seconds: u32| {
        let mut said = Vec::new();
        for _ in 0..seconds {
            tokio::time::sleep(ms(1_000)).await;
            tracing::subscriber::with_default(log.clone(), || journal.poll_once());
            said.append(&mut log.said());
        }
        said
    };
    assert_eq!(look(3).await, [""; 0]);
    store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    assert_eq!(look(5).await, ["WARN store down, error unreachable"]);
    store.set_fault(None);
    assert_eq!(look(3).await, ["INFO store back, seconds 5"]);
    store.set_fault(Some(Fault::Error(StoreErrorKind::Refused)));
    let said = look(130).await;
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[0], "WARN store down, error refused");
    for line in &said[1..] {
        assert!(line.starts_with("WARN store refuses, refused "), "{line}");
    }
}

/// As with a wrong host, and with a wrong password: `start_store` itself cannot know.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_wrong_from_its_start_has_a_line() {
    for (kind, expected) in [
        (
            StoreErrorKind::Unreachable,
            &["WARN store down, error unreachable"][..],
        ),
        (
            StoreErrorKind::Refused,
            &[
                "WARN store down, error refused",
                "WARN store refuses, refused ",
            ],
        ),
    ] {
        let store = MemoryStore::with_clock(TokioClock::new());
        store.set_fault(Some(Fault::Error(kind)));
        let sentinel = Sentinel::builder()
            .rules(FlowRule::per_second("/v1", 9).shared())
            .clock(TokioClock::new())
            .store(store)
            .build();
        let (journal, log) = (Journal::new(&sentinel), Log::default());
        let _handle = sentinel.start_store().unwrap();
        // Nobody calls.
        tokio::time::sleep(ms(1_000)).await;
        tracing::subscriber::with_default(log.clone(), || journal.poll_once());
        let said = log.said();
        let is_expected = |(line, begin): (&String, &&str)| line.starts_with(*begin);
        let are_expected =
            said.len() == expected.len() && said.iter().zip(expected).all(is_expected);
        assert!(are_expected, "{kind:?}: {said:?} instead of {expected:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lines_of_the_store_have_a_budget_that_no_storm_of_refusals_takes() {
    let names: Vec<_> = (0..60).map(|number| format!("/r{number}")).collect();
    let refused = names
        .iter()
        .map(|name| FlowRule::per_minute(name.as_str(), 0));
    let rules = refused.fold(Rules::new(), Rules::with);
    let store = MemoryStore::with_clock(TokioClock::new());
    let sentinel = Sentinel::builder()
        .rules(rules.with(FlowRule::per_second("/v1", 9).shared()))
        .clock(TokioClock::new())
        .store(store.clone())
        .build();
    let _handle = sentinel.start_store().unwrap();
    tokio::time::sleep(ms(600)).await;
    let (journal, log) = (Journal::new(&sentinel), Log::default());
    let look = async || {
        for name in &names {
            assert!(matches!(
                sentinel.try_enter(Call::new(name)),
                Verdict::Block(_)
            ));
        }
        tokio::time::sleep(ms(1_000)).await;
        tracing::subscriber::with_default(log.clone(), || journal.poll_once());
        log.said()
    };
    let mut said = look().await;
    let of_refusals = said.len();
    assert_eq!(of_refusals, 20, "the storm has taken all of its lines");
    // Twelve outages of a second, in one minute.
    for second in 0..48 {
        let is_away = second % 4 == 0;
        store.set_fault(is_away.then_some(Fault::Error(StoreErrorKind::Unreachable)));
        said.append(&mut look().await);
    }
    let is_of_store = |line: &&String| line.contains("store");
    let of_store: Vec<_> = said.iter().filter(is_of_store).collect();
    assert_eq!(of_store.len(), 10, "{of_store:?}");
    for pair in of_store.chunks(2) {
        assert_eq!(pair[0], "WARN store down, error unreachable");
        assert!(pair[1].starts_with("INFO store back, seconds "), "{pair:?}");
    }
    let mut later = Vec::new();
    for _ in 0..20 {
        later.append(&mut look().await);
    }
    let of_store: Vec<_> = later.iter().filter(is_of_store).collect();
    assert_eq!(of_store, ["INFO more changes of the store, changes 14"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_shared_rule_would_refuse_is_no_refusal() {
    let rule = FlowRule::per_minute("/v1", 3).shared().exact();
    let sentinel = Sentinel::builder()
        .rules(rule.shadow())
        .clock(TokioClock::new())
        .store(MemoryStore::with_clock(TokioClock::new()))
        .build();
    let _handle = sentinel.start_store().unwrap();
    tokio::time::sleep(ms(600)).await;
    let (journal, log) = (Journal::new(&sentinel), Log::default());
    for _ in 0..9 {
        drop(sentinel.enter(Call::new("/v1")).await.unwrap());
    }
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(sentinel.shadows()[0].would_block(), 6);
    tracing::subscriber::with_default(log.clone(), || journal.poll_once());
    assert_eq!(log.said(), [""; 0]);
}

/// Sends `rules` of the type `kind` as Sentinel's dashboard does, and returns the answer.
async fn push(addr: SocketAddr, kind: &str, rules: serde_json::Value) -> String {
    let data: String = rules
        .to_string()
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let body = format!("type={kind}&data={data}");
    let request = format!(
        "POST /setRules HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len(),
    );
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn each_change_by_the_dashboard_is_one_line() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let rules = Rules::new()
        .with(FlowRule::per_second("/a", 5))
        .with(FlowRule::per_second("/b", 5).id("b"))
        .with(AuthorityRule::allow("/a", ["ann", "bob"]));
    let sentinel = Sentinel::new(rules);
    let handle = Dashboard::new(&sentinel, "shop")
        .allow(["127.0.0.1/32".parse().unwrap()])
        .bind(([127, 0, 0, 1], 0))
        .push(InMemory);
    let handle = handle.spawn().await.unwrap();
    let flow =
        |name: &str, count: u32| json!({"resource": name, "count": count, "limitApp": "app"});
    let of_all = |mut rule: serde_json::Value| {
        rule["limitApp"] = json!("default");
        rule
    };
    let (a, b) = (of_all(flow("/a", 5)), of_all(flow("/b", 5)));
    // One that has not seen the others, one more, two that change, and one that goes.
    for rules in [
        json!([flow("/c", 1)]),
        json!([a, b, flow("/c", 1)]),
        json!([a, of_all(flow("/b", 6)), flow("/c", 2)]),
        json!([a, of_all(flow("/b", 6)), flow("/c", 2)]),
        json!([a, flow("/c", 2)]),
    ] {
        push(handle.addr(), "flow", rules).await;
    }
    push(handle.addr(), "authority", json!([])).await;
    let said = log.said();
    let (refused, changes) = said.split_first().unwrap();
    let expected = "WARN rules refused, by dashboard, error 2 rules in force are missing: ";
    assert!(refused.starts_with(expected), "{refused}");
    let c = |count: u32| {
        format!("flow /c: threshold = {count}, interval = 1 s, for_origin = \\\"app\\\"")
    };
    let b = "flow /b (b): threshold = 5, interval = 1 s -> threshold = 6, interval = 1 s";
    let c_changes = format!("{} -> {}", c(1), &c(2)["flow /c: ".len()..]);
    let line = |added: &str, changed: &str, removed: &str| {
        format!(
            "INFO rules changed, added {added}, by dashboard, changed {changed}, removed {removed}"
        )
    };
    let expected = [
        line(&c(1), "", ""),
        line("", &format!("{b}; {c_changes}"), ""),
        line("", "", "flow /b (b): threshold = 6, interval = 1 s"),
        line("", "", "authority /a: allow = 2 names"),
    ];
    assert_eq!(changes, expected);
}
