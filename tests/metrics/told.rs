//! What single series tell.

use std::time::Duration;

use tower_sentinel::observe::{FamilyKind, Metrics};
use tower_sentinel::store::MemoryStore;
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Criticality, FlowRule, IsolationRule,
    KeyedRule, MissingKey, Rule, Rules, Sentinel, SystemRule, Verdict,
};

use crate::support::{configured, engine, ms, run};
use crate::{family, figures, passes};

/// The labels and the figure of each series.
fn told<const N: usize>(series: [(&str, f64); N]) -> Vec<(String, f64)> {
    series
        .map(|(labels, figure)| (labels.to_owned(), figure))
        .into()
}

#[test]
fn only_a_rule_that_blocks_values_has_a_count_of_that() {
    let rule = |name| KeyedRule::per_minute(name, 1).id(name);
    let rules = Rules::new()
        .with(rule("/login").block_for(Duration::from_secs(60)))
        .with(rule("/search"));
    let (sentinel, clock) = engine(rules);
    let metrics = Metrics::new(&sentinel);
    let labels = "resource=\"/login\",direction=\"inbound\",rule=\"/login\"";
    for (calls, blocks) in [(1, 0.0), (3, 1.0), (2, 2.0)] {
        for name in ["/login", "/search"] {
            for _ in 0..calls {
                passes(&sentinel, Call::new(name).param("ann"));
            }
        }
        assert_eq!(
            figures(&metrics, "sentinel_keys_blocked"),
            told([(labels, blocks)])
        );
        if calls == 3 {
            clock.advance(Duration::from_secs(60));
        }
    }
}

#[test]
fn the_refusals_of_each_kind_of_rule_begin_at_zero() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/a", 9))
        .with(KeyedRule::per_second("/a", 9).missing(MissingKey::Refuse))
        .with(SystemRule::new().qps(1_000))
        .with(CircuitBreakerRule::error_ratio("*", 0.5))
        .with(Rule::from(IsolationRule::new("/a", 9)).shadow());
    let (sentinel, _clock) = engine(rules);
    let metrics = Metrics::new(&sentinel);
    drop(run(&sentinel, Call::new("/a").param(1_u64)));
    drop(run(&sentinel, Call::new("/a").param(1_u64).outbound()));
    let of = |direction: &str, reasons: &[&str]| -> Vec<_> {
        let labels = |reason| format!("resource=\"/a\",direction={direction:?},reason={reason:?}");
        reasons.iter().map(|reason| (labels(reason), 0.0)).collect()
    };
    let mut expected = of(
        "inbound",
        &[
            "circuit_breaker",
            "flow",
            "keyed",
            "missing_key",
            "no_timer",
            "system",
        ],
    );
    expected.extend(of(
        "outbound",
        &[
            "circuit_breaker",
            "flow",
            "keyed",
            "missing_key",
            "no_timer",
        ],
    ));
    assert_eq!(figures(&metrics, "sentinel_blocked"), expected);
    let all = figures(&metrics, "sentinel_engine_blocked");
    assert!(all.len() >= 8 && all.iter().all(|(_, count)| *count == 0.0));
}

#[test]
fn a_rule_begins_with_each_way_in_which_calls_may_be_refused_by_it() {
    let cases: [(Rule, &[&str]); 14] = [
        (
            FlowRule::per_second("/a", 9).into(),
            &["flow", "no_timer"], // a prioritized call waits for what it borrows
        ),
        (FlowRule::per_second("/a", 9).lend(false).into(), &["flow"]),
        (
            FlowRule::per_second("/a", 9).throttle(ms(9)).into(),
            &["flow", "no_timer"],
        ),
        (
            FlowRule::per_second("/a", 9)
                .by_origin()
                .lend(false)
                .missing(MissingKey::Refuse)
                .into(),
            &["flow", "missing_key"],
        ),
        (
            FlowRule::per_second("/a", 9).lend(false).shared().into(),
            &["flow", "no_timer", "store"],
        ),
        (KeyedRule::per_second("/a", 9).into(), &["keyed"]),
        (
            KeyedRule::per_second("/a", 9).throttle(ms(9)).into(),
            &["keyed", "no_timer"],
        ),
        (
            KeyedRule::concurrency("/a", 9).queue(ms(9)).into(),
            &["keyed", "no_timer"],
        ),
        (
            KeyedRule::per_second("/a", 9).window().shared().into(),
            &["keyed", "no_timer", "store"],
        ),
        (IsolationRule::new("/a", 9).into(), &["isolation"]),
        (
            IsolationRule::new("/a", 9).queue(ms(9)).into(),
            &["isolation", "no_timer"],
        ),
        (AdaptiveRule::new("/a").into(), &["isolation"]),
        (
            CircuitBreakerRule::error_ratio("/a", 0.5).into(),
            &["circuit_breaker"],
        ),
        (AuthorityRule::deny("/a", ["b"]).into(), &["authority"]),
    ];
    for (rule, reasons) in cases {
        let (sentinel, _clock) = configured(rule.clone(), |it| it.store(MemoryStore::new()));
        drop(sentinel.try_enter(Call::new("/a").origin("c").param(1_u64)));
        let labels = |reason| format!("resource=\"/a\",direction=\"inbound\",reason={reason:?}");
        let expected: Vec<_> = reasons.iter().map(|it| (labels(it), 0.0)).collect();
        let metrics = Metrics::new(&sentinel);
        assert_eq!(figures(&metrics, "sentinel_blocked"), expected, "{rule:?}");
        // The engine's own has each kind that there is.
        let all = figures(&metrics, "sentinel_engine_blocked");
        assert_eq!(all.len(), 9, "{all:?}");
    }
}

#[test]
fn an_adaptive_rule_tells_what_it_grants_to_each_class() {
    let rule = AdaptiveRule::new("/a").start(3).burst(Duration::ZERO);
    let (sentinel, clock) = engine(rule);
    let metrics = Metrics::new(&sentinel);
    let call = |class| Call::new("/a").criticality(class);
    // It learns how long calls take, with nobody refused.
    for _ in 0..40 {
        let running = sentinel.try_enter(call(Criticality::Sheddable));
        clock.advance(ms(50));
        drop(running);
    }
    let mut running: Vec<_> = (0..3)
        .map(|_| sentinel.try_enter(call(Criticality::Critical)))
        .collect();
    assert!(running.iter().all(|it| matches!(it, Verdict::Pass(_))));
    let labels =
        |class: &str| format!("resource=\"/a\",direction=\"inbound\",criticality={class:?}");
    let of = |name: &str, class: &str| {
        let all = figures(&metrics, name);
        assert_eq!(all.len(), 4, "{all:?}");
        let own = all.into_iter().find(|(own, _)| *own == labels(class));
        own.unwrap().1
    };
    assert_eq!(of("sentinel_criticality_admitted", "sheddable"), 40.0);
    assert_eq!(of("sentinel_criticality_admitted", "critical"), 3.0);
    assert_eq!(of("sentinel_criticality_bound", "critical"), 3.0);
    let shedding = || figures(&metrics, "sentinel_shedding")[0].1;
    assert_eq!(shedding(), 0.0);
    let Verdict::Block(blocked) = sentinel.try_enter(call(Criticality::Sheddable)) else {
        panic!("there is no slot");
    };
    assert_eq!(blocked.criticality(), Some(Criticality::Sheddable));
    assert_eq!(of("sentinel_criticality_blocked", "sheddable"), 1.0);
    assert_eq!(shedding(), 1.0);
    running.clear();
}

#[test]
fn a_breaker_has_one_series_for_each_state() {
    let (sentinel, clock) = engine(CircuitBreakerRule::error_count("/pay", 1).id("errors"));
    let metrics = Metrics::new(&sentinel);
    let states = |name: &str, label: &str| {
        let expected = ["closed", "half_open", "open"];
        let series = figures(&metrics, name).into_iter().zip(expected);
        let states = series.map(|((labels, figure), state)| {
            let own = "resource=\"/pay\",direction=\"inbound\",rule=\"errors\"";
            assert_eq!(labels, format!("{own},{label}={state:?}"));
            figure
        });
        states.collect::<Vec<_>>()
    };
    let both = || {
        let state = states("sentinel_breaker_state", "state");
        (state, states("sentinel_breaker_transitions", "to"))
    };
    drop(run(&sentinel, Call::new("/pay")));
    assert_eq!(both(), (vec![1.0, 0.0, 0.0], vec![0.0, 0.0, 0.0]));
    run(&sentinel, Call::new("/pay")).fail();
    assert_eq!(both(), (vec![0.0, 0.0, 1.0], vec![0.0, 0.0, 1.0]));
    clock.advance(ms(60_000));
    let probe = run(&sentinel, Call::new("/pay"));
    assert_eq!(both(), (vec![0.0, 1.0, 0.0], vec![0.0, 1.0, 1.0]));
    drop(probe);
    assert_eq!(both(), (vec![1.0, 0.0, 0.0], vec![1.0, 1.0, 1.0]));
}

#[test]
fn times_are_a_summary_or_a_histogram_for_all_engines_together() {
    let sentinel = |histograms: bool| {
        let (sentinel, clock) = configured(FlowRule::per_second("/a", 9), |builder| {
            if histograms {
                builder.histograms()
            } else {
                builder
            }
        });
        let running = run(&sentinel, Call::new("/a"));
        clock.advance(ms(30));
        drop(running);
        sentinel
    };
    let kind = |metrics: &Metrics| family(metrics, "sentinel_call_duration_seconds").kind();
    let [without, with] = [false, true].map(sentinel);
    assert_eq!(kind(&Metrics::new(&without)), FamilyKind::Summary);
    let both = Metrics::named("a", &without).and("b", &with);
    assert_eq!(kind(&both), FamilyKind::Histogram);
    let text = both.render(tower_sentinel::observe::TextFormat::Classic);
    let own = "resource=\"/a\",direction=\"inbound\"";
    for line in [
        format!("sentinel_call_duration_seconds_bucket{{engine=\"a\",{own},le=\"+Inf\"}} 1"),
        format!("sentinel_call_duration_seconds_sum{{engine=\"a\",{own}}} 0.03"),
        format!("sentinel_call_duration_seconds_bucket{{engine=\"b\",{own},le=\"0.025\"}} 0"),
        format!("sentinel_call_duration_seconds_bucket{{engine=\"b\",{own},le=\"0.05\"}} 1"),
        format!("sentinel_call_duration_seconds_count{{engine=\"b\",{own}}} 1"),
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}

#[test]
fn a_number_and_the_text_that_is_written_like_it_are_one_series() {
    let rules = Rules::new()
        .with(IsolationRule::new("7", 9))
        .with(CircuitBreakerRule::error_count("7", 1).id("errors"));
    let sentinel = Sentinel::builder().rules(rules).histograms().build();
    let metrics = Metrics::new(&sentinel);
    let _running = [
        run(&sentinel, Call::new("7")),
        run(&sentinel, Call::new(7_u64)),
    ];
    drop(run(&sentinel, Call::new("7")));
    drop(run(&sentinel, Call::new(7_u64)));
    let own = "resource=\"7\",direction=\"inbound\"";
    assert_eq!(figures(&metrics, "sentinel_completed"), told([(own, 2.0)]));
    assert_eq!(
        figures(&metrics, "sentinel_active_calls"),
        told([(own, 2.0)])
    );
    assert_eq!(figures(&metrics, "sentinel_slots_used"), told([(own, 2.0)]));
    assert_eq!(figures(&metrics, "sentinel_breaker_state").len(), 3);
}

#[test]
fn rules_are_told_as_they_are_configured_and_what_they_refuse() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/a", 90).id("ninety"))
        .with(Rule::from(IsolationRule::new("/a", 1).id("one")).shadow());
    let (sentinel, _clock) = engine(rules);
    let metrics = Metrics::new(&sentinel);
    let _running = [(); 2].map(|()| run(&sentinel, Call::new("/a")));
    assert!(!passes(&sentinel, Call::new("/a").batch(91)));
    let shadow = "rule=\"one\",kind=\"isolation\",resource=\"/a\"";
    let enforced = "rule=\"ninety\",kind=\"flow\",resource=\"/a\"";
    let limits = told([(enforced, 90.0), (shadow, 1.0)]);
    assert_eq!(figures(&metrics, "sentinel_rule_limit"), limits);
    let intervals = figures(&metrics, "sentinel_rule_interval_seconds");
    assert_eq!(intervals, told([(enforced, 60.0)]));
    let blocked = figures(&metrics, "sentinel_rule_blocked");
    assert_eq!(blocked, told([("rule=\"ninety\",kind=\"flow\"", 91.0)]));
    assert_eq!(
        figures(&metrics, "sentinel_shadow_blocked"),
        told([("rule=\"one\"", 1.0)])
    );
    let rules = figures(&metrics, "sentinel_rules").into_iter();
    let there: Vec<_> = rules.filter(|(_, count)| *count > 0.0).collect();
    assert_eq!(
        there,
        told([("kind=\"flow\"", 1.0), ("kind=\"shadow\"", 1.0)])
    );
    assert_eq!(
        figures(&metrics, "sentinel_rules_reloads"),
        told([("", 0.0)])
    );
    sentinel.reload(Rules::new());
    assert_eq!(
        figures(&metrics, "sentinel_rules_reloads"),
        told([("", 1.0)])
    );
    assert_eq!(figures(&metrics, "sentinel_rule_limit"), []);
    // All rules in shadow mode refuse nothing.
    let rule = FlowRule::per_second("/a", 0);
    let (sentinel, _clock) = configured(rule, |builder| builder.shadow(true));
    let metrics = Metrics::new(&sentinel);
    drop(run(&sentinel, Call::new("/a")));
    assert_eq!(figures(&metrics, "sentinel_rule_blocked"), []);
    assert_eq!(
        figures(&metrics, "sentinel_shadow_blocked"),
        told([("rule=\"\"", 1.0)])
    );
}

#[test]
fn who_waits_and_runs_is_told_as_it_is_now() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/a", 10).throttle(ms(500)))
        .with(IsolationRule::new("/a", 3));
    let (sentinel, clock) = engine(rules);
    let metrics = Metrics::new(&sentinel);
    let _running = run(&sentinel, Call::new("/a"));
    let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("/a")) else {
        panic!("its turn comes later");
    };
    let own = "resource=\"/a\",direction=\"inbound\"";
    let now = || {
        let of = |name: &str| figures(&metrics, name);
        for name in [
            "sentinel_waiting_calls",
            "sentinel_active_calls",
            "sentinel_slots_used",
        ] {
            assert_eq!(of(name)[0].0, own);
        }
        [
            "sentinel_waiting_calls",
            "sentinel_active_calls",
            "sentinel_slots_used",
            "sentinel_slots_limit",
        ]
        .map(|name| of(name)[0].1)
    };
    // A call whose turn comes within the present bucket counts as one in flight.
    assert_eq!(now(), [1.0, 2.0, 1.0, 3.0]);
    clock.advance(ms(100));
    let _second = waiting.admit().unwrap();
    assert_eq!(now(), [0.0, 2.0, 2.0, 3.0]);
    let waits = family(&metrics, "sentinel_wait_duration_seconds");
    assert_eq!(waits.samples()[0].value().as_f64(), 0.1);
}

#[test]
fn a_scrape_reads_the_machine_where_no_rule_does() {
    let probe = ManualProbe::new();
    probe.set_cpu(0.25);
    probe.set_load(1.5);
    let sampler = Sampler::new(probe.clone());
    let (sentinel, clock) = configured(Rules::new(), |builder| builder.sampler(sampler));
    let metrics = Metrics::new(&sentinel);
    assert_eq!(
        figures(&metrics, "sentinel_system_cpu_ratio"),
        told([("", 0.25)])
    );
    assert_eq!(figures(&metrics, "sentinel_system_load"), told([("", 1.5)]));
    probe.set_load(2.5);
    clock.advance(ms(10_000));
    assert_eq!(figures(&metrics, "sentinel_system_load"), told([("", 2.5)]));
}

#[test]
fn the_limit_of_a_resource_is_that_of_the_rules_that_count_all_of_its_calls() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/a", 60))
        .with(FlowRule::per_second("/a", 5))
        .with(FlowRule::per_second("/a", 2).by_origin())
        .with(FlowRule::per_second("/a", 3).shadow())
        .with(FlowRule::per_minute("/ours", 120).shared())
        .with(FlowRule::per_second("/mine", 4).for_origin("x"))
        .with(IsolationRule::new("/other", 5))
        .with(FlowRule::per_second("*", 9));
    let (sentinel, _clock) = configured(rules, |builder| builder.store(MemoryStore::new()));
    let metrics = Metrics::new(&sentinel);
    for name in ["/a", "/ours", "/mine", "/other"] {
        drop(run(&sentinel, Call::new(name)));
    }
    let told = told([
        (
            "resource=\"/a\",direction=\"inbound\",scope=\"process\"",
            1.0,
        ),
        (
            "resource=\"/other\",direction=\"inbound\",scope=\"process\"",
            9.0,
        ),
        (
            "resource=\"/ours\",direction=\"inbound\",scope=\"shared\"",
            2.0,
        ),
    ]);
    assert_eq!(figures(&metrics, "sentinel_calls_limit"), told);
}
