//! The names of series are the same in the code, the docs, the alerts and the dashboard.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tower_sentinel::observe::{FamilyKind, Metrics};
use tower_sentinel::{Rules, Sentinel};

/// Files that name series.
const FILES: [&str; 5] = [
    "docs/metrics.md",
    "ops/grafana/tower-sentinel.json",
    "ops/prometheus/alerts.yml",
    "ops/prometheus/alerts_test.yml",
    "README.md",
];

/// All words in `text` that begin like a series.
fn names(text: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_word(c));
    // One with an underscore at its end is the beginning of several.
    let is_name = |word: &&str| word.starts_with("sentinel_") && !word.ends_with('_');
    words.filter(is_name).collect()
}

#[test]
fn all_names_in_docs_alerts_and_dashboard_are_series_and_each_series_is_named() {
    let families = Metrics::new(&Sentinel::new(Rules::new())).families();
    let mut series = BTreeSet::new();
    for family in &families {
        let name = family.name();
        let suffixes: &[_] = match family.kind() {
            FamilyKind::Counter => &["_total"],
            FamilyKind::Summary => &["", "_sum", "_count", "_bucket"],
            _ => &[""],
        };
        series.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = FILES.map(|file| fs::read_to_string(root.join(file)).unwrap());
    for (file, text) in FILES.iter().zip(&texts) {
        for name in names(text) {
            assert!(
                series.contains(name),
                "{file} has {name}, which is no series"
            );
        }
    }
    let [docs, dashboard, ..] = &texts;
    for (what, text) in [("the docs", docs), ("the dashboard", dashboard)] {
        let told = names(text);
        for family in &families {
            let own: Vec<_> = told
                .iter()
                .filter(|name| name.starts_with(family.name()))
                .collect();
            assert!(!own.is_empty(), "{what} say nothing of {}", family.name());
        }
    }
}

#[test]
fn each_alert_has_its_section_and_is_tested_both_ways() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file| fs::read_to_string(root.join(file)).unwrap();
    let (alerts, tests, docs) = (read(FILES[2]), read(FILES[3]), read(FILES[0]));
    let names = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let anchors = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    let mut count = 0;
    for (name, url) in names.zip(anchors) {
        let (_, anchor) = url.split_once('#').unwrap();
        assert!(
            docs.contains(&format!("<a id=\"{anchor}\"></a>")),
            "{name} has no section"
        );
        let all: Vec<_> = tests.match_indices(&format!("alertname: {name}")).collect();
        assert!(all.len() >= 2, "{name} is not tested both ways");
        count += 1;
    }
    assert_eq!(count, 16);
}
