//! Both texts of an engine with every kind of rule and with names that would break them, compared
//! with files that other parsers have read.
//!
//! With `SENTINEL_BLESS=1` the files are written anew.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::call::Param;
use tower_sentinel::observe::{Family, Metrics, TextFormat};
use tower_sentinel::source::{SourceError, Watch, from_fn};
use tower_sentinel::store::MemoryStore;
use tower_sentinel::system::{ManualProbe, Memory, Sampler};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BoxError, Call, CircuitBreakerRule, Clock, FlowRule,
    IsolationRule, KeyedRule, ManualClock, MissingKey, Rule, Rules, Sentinel, SentinelLayer,
    SystemRule, Verdict,
};

use crate::family;
use crate::support::{ms, ready, run};

/// Names and ids that would end a label, a line or the text, or turn it around.
const HOSTILE: [&str; 4] = [
    "quote \" and {brace=\"x\"} 1 \\ \\n",
    "line\nend # EOF, nul \0, tab \t and return \r",
    "# EOF",
    "turned \u{202e} and \u{200f} mark, кириллица 漢字 🦀",
];

/// An engine that has done everything once.
fn engine(histograms: bool) -> (Sentinel, Vec<Verdict>) {
    let mut rules = Rules::new()
        .with(FlowRule::per_second("/flow", 10).id("flow"))
        .with(
            FlowRule::per_second("/queue", 10)
                .throttle(ms(500))
                .id("queue"),
        )
        .with(
            FlowRule::per("/origins", 1, ms(4_000))
                .by_origin()
                .missing(MissingKey::Refuse),
        )
        .with(KeyedRule::per_second("/search", 1).max_keys(1).id("search"))
        .with(
            KeyedRule::per_second("/search", 1_000)
                .block_for(Duration::from_secs(60))
                .id("guessing"),
        )
        .with(IsolationRule::new("/report", 1))
        .with(AdaptiveRule::new("/adaptive").ceiling(64))
        .with(CircuitBreakerRule::error_count("/pay", 1).id("pay-errors"))
        .with(AuthorityRule::deny("/closed", ["everybody"]))
        .with(FlowRule::per_minute("/chat", 100).cost("tokens").id("tpm"))
        .with(
            SystemRule::new()
                .concurrency(100)
                .qps(1_000)
                .rt(ms(900))
                .load(8)
                .cpu(0.9),
        )
        .with(CircuitBreakerRule::slow_ratio("*", ms(200), 0.5).id("any-slow"))
        .with(
            FlowRule::per_minute("/shared", 2)
                .shared()
                .id("all-replicas"),
        )
        .with(Rule::from(FlowRule::per_second("/flow", 1).id("tighter")).shadow());
    // Rules are not called by control characters; layers are.
    for (place, name) in HOSTILE.into_iter().enumerate() {
        let rule = FlowRule::per_second(name, 0).id(format!("{name}-{place}"));
        rules = rules.clone().try_with(rule).unwrap_or(rules);
    }
    let clock = ManualClock::new();
    let probe = ManualProbe::new();
    probe.set_load(1.5);
    probe.set_cpu(0.25);
    probe.set_memory(Memory::new(1 << 20, 1 << 30));
    let sampler = Sampler::new(probe);
    sampler.sample(clock.now());
    sampler.sample_memory(clock.now());
    let mut builder = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .store(MemoryStore::new())
        .sampler(sampler);
    if histograms {
        builder = builder
            .histograms_with(&[ms(10), ms(100), ms(1_000)])
            .unwrap();
    }
    let sentinel = builder.build();

    let call = |name| sentinel.try_enter(Call::new(name));
    let takes = |name, time: Duration| {
        let running = call(name);
        clock.advance(time);
        assert!(matches!(running, Verdict::Pass(_)));
    };
    takes("/flow", ms(5));
    takes("/flow", ms(50));
    drop(sentinel.try_enter(Call::new("/flow").batch(20)));
    run(&sentinel, Call::new("/flow").outbound().batch(3)).fail();
    run(&sentinel, Call::new("/flow").outbound()).cancel();
    drop(call("/queue"));
    let Verdict::Wait(waiting) = call("/queue") else {
        panic!("its turn comes later");
    };
    let dropped = call("/queue");
    clock.advance(ms(100));
    drop((waiting.admit().unwrap(), dropped));
    for origin in ["ann", "bob", "ann", "ann"] {
        drop(sentinel.try_enter(Call::new("/origins").origin(origin)));
    }
    drop(call("/origins"));
    let user = |value| [Param::new("user", value)];
    for value in ["ann", "ann", "bob", "eve"] {
        drop(sentinel.try_enter(Call::new("/search").params(&user(value))));
    }
    drop(call("/search"));
    run(&sentinel, Call::new("/pay")).fail();
    drop(call("/pay"));
    let chat = |most| run(&sentinel, Call::new("/chat").reserve("tokens", most));
    chat(50).settle("tokens", 20);
    drop(chat(30));
    chat(40).settle("tokens", 60);
    drop(sentinel.try_enter(Call::new("/closed").origin("everybody").batch(5)));
    for name in HOSTILE {
        let layer = SentinelLayer::with(sentinel.clone()).named(name);
        let answer =
            |_: Request<()>| std::future::ready(Ok::<_, BoxError>(Response::new(Body::empty())));
        assert!(ready(layer.layer(service_fn(answer)).oneshot(Request::new(()))).is_ok());
    }
    // Nobody has started the store.
    (0..3).for_each(|_| drop(call("/shared")));
    drop(call("/made-up"));
    let running = vec![call("/report"), call("/report"), call("/adaptive")];
    (sentinel, running)
}

/// The text without what differs from run to run.
fn text(metrics: &Metrics, format: TextFormat) -> String {
    let text = metrics
        .render(format)
        .replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let lines = text.split_inclusive('\n').map(|line| {
        match line.strip_prefix("sentinel_rules_last_reload_timestamp_seconds ") {
            Some(time) => {
                assert!(time.trim().parse::<f64>().unwrap() > 1.7e9);
                "sentinel_rules_last_reload_timestamp_seconds 1764000000.5\n"
            }
            None => line,
        }
    });
    lines.collect()
}

/// The service of such an engine, with a source of rules that works and one that fails.
fn metrics(histograms: bool) -> (Metrics, Vec<Verdict>) {
    let (sentinel, running) = engine(histograms);
    let source = |answer: Result<Option<Rules>, SourceError>| {
        let watch = Watch::new(Sentinel::new(Rules::new()), from_fn(move || answer.clone()));
        let _ = watch.poll_once();
        watch
    };
    let up = source(Ok(None));
    let down = source(Err(SourceError::new("away")));
    let metrics = Metrics::new(&sentinel)
        .watch("rules.toml", &up)
        .watch(HOSTILE[0], &down);
    (metrics, running)
}

#[test]
fn both_texts_are_those_that_other_parsers_have_read() {
    let (with, _running) = metrics(true);
    let (without, _running) = metrics(false);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics");
    for (name, metrics, format) in [
        ("histograms.txt", &with, TextFormat::Classic),
        ("histograms.om", &with, TextFormat::OpenMetrics),
        ("summaries.txt", &without, TextFormat::Classic),
        ("summaries.om", &without, TextFormat::OpenMetrics),
    ] {
        let (file, now) = (folder.join(name), text(metrics, format));
        if std::env::var_os("SENTINEL_BLESS").is_some() {
            std::fs::write(&file, &now).unwrap();
        }
        let known = std::fs::read_to_string(&file).unwrap();
        for (known, now) in known.lines().zip(now.lines()) {
            assert_eq!(known, now, "in {name}");
        }
        assert_eq!(known, now, "in {name}");
    }
}

/// Rules have names of at most 256 bytes; layers and sources have any. With `SENTINEL_TEXTS` as a
/// folder the texts are written there, for other parsers.
#[test]
fn a_name_of_64_kib_is_one_label_as_its_digest_or_whole() {
    let long = format!(
        "\"{{a=\"b\"}} \\n\0\u{202e}\n# EOF\n{}",
        "漢z".repeat(16 << 10)
    );
    assert!(long.len() > 64 << 10);
    let sentinel = Sentinel::new(Rules::new());
    for name in HOSTILE.into_iter().chain([&*long]) {
        let layer = SentinelLayer::with(sentinel.clone()).named(name);
        let answer =
            |_: Request<()>| std::future::ready(Ok::<_, BoxError>(Response::new(Body::empty())));
        assert!(ready(layer.layer(service_fn(answer)).oneshot(Request::new(()))).is_ok());
    }
    let source = Watch::new(Sentinel::new(Rules::new()), from_fn(|| Ok(None)));
    let metrics = Metrics::new(&sentinel).watch(&*long, &source);
    let completed = family(&metrics, "sentinel_completed");
    let names = completed
        .samples()
        .iter()
        .filter_map(|it| it.labels().next());
    let others: Vec<_> = names.filter(|(_, it)| !HOSTILE.contains(it)).collect();
    let [("resource", digest)] = others[..] else {
        panic!("{} others", others.len())
    };
    assert_eq!(digest.len(), 33);
    let escaped = [("\\", "\\\\"), ("\n", "\\n"), ("\"", "\\\"")]
        .iter()
        .fold(long, |text, (from, to)| text.replace(from, to));
    let up = format!("sentinel_rule_source_up{{source=\"{escaped}\"}} 1");
    for (format, file) in [
        (TextFormat::Classic, "long.txt"),
        (TextFormat::OpenMetrics, "long.om"),
    ] {
        let text = metrics.render(format);
        let lines = |line| text.split('\n').filter(|it| *it == line).count();
        assert_eq!(lines(&*up), 1);
        assert_eq!(
            lines("# EOF"),
            usize::from(format == TextFormat::OpenMetrics)
        );
        if let Some(folder) = std::env::var_os("SENTINEL_TEXTS") {
            std::fs::write(Path::new(&folder).join(file), text).unwrap();
        }
    }
}

#[test]
fn a_text_has_each_family_once_and_each_series_once() {
    for histograms in [true, false] {
        let (metrics, _running) = metrics(histograms);
        for format in [TextFormat::Classic, TextFormat::OpenMetrics] {
            let text = metrics.render(format);
            let (mut families, mut series) = (HashSet::new(), HashSet::new());
            let mut family = "";
            for line in text.lines() {
                if let Some(head) = line.strip_prefix("# TYPE ") {
                    family = head.split(' ').next().unwrap();
                    assert!(families.insert(family), "{family} is split");
                } else if !line.starts_with("# ") {
                    assert!(line.starts_with(family), "{line} is not of {family}");
                    let (labels, figure) = line.rsplit_once(' ').unwrap();
                    assert!(series.insert(labels), "{labels} is there twice");
                    assert!(figure.parse::<f64>().unwrap() >= 0.0);
                    if let Some((_, edge)) = labels.split_once(",le=\"") {
                        let edge = edge.split('"').next().unwrap();
                        assert!(edge == "+Inf" || edge.contains('.'), "{line}");
                    }
                }
            }
            let ends = text.matches("\n# EOF\n").count();
            assert_eq!(ends, usize::from(format == TextFormat::OpenMetrics));
            assert_eq!(text.ends_with("\n# EOF\n"), ends == 1);
        }
    }
}

#[test]
fn every_family_has_a_sample_where_everything_has_happened() {
    let (metrics, _running) = metrics(true);
    let empty: Vec<_> = metrics
        .families()
        .iter()
        .filter(|family| family.samples().is_empty())
        .map(Family::name)
        .collect();
    assert_eq!(empty, [""; 0]);
}
