//! The figures of an engine for Prometheus: both texts, how they are served, and what they never
//! do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_types,
    reason = "a test may hold a lock of the standard library"
)]

mod bounded;
mod facade;
mod falling;
mod golden;
mod names;
mod otel;
mod served;
mod told;

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use tower_sentinel::observe::{Family, Metrics, Value};
use tower_sentinel::{Call, Sentinel, Verdict};

/// The labels of a series as one text, in their order.
fn series(family: &Family) -> BTreeMap<String, &Value> {
    let samples = family.samples().iter();
    let mut series = BTreeMap::new();
    for sample in samples {
        let labels: Vec<_> = sample
            .labels()
            .map(|(name, text)| format!("{name}={text:?}"))
            .collect();
        let double = series.insert(labels.join(","), sample.value());
        assert!(double.is_none(), "{} has two of {labels:?}", family.name());
    }
    series
}

/// The family of this name.
fn family(metrics: &Metrics, name: &str) -> Family {
    let families = metrics.families();
    let found = families.into_iter().find(|family| family.name() == name);
    found.unwrap_or_else(|| panic!("there is no {name}"))
}

/// Each series of a family with its figure.
fn figures(metrics: &Metrics, name: &str) -> Vec<(String, f64)> {
    let family = family(metrics, name);
    let series = series(&family).into_iter();
    series
        .map(|(labels, value)| (labels, value.as_f64()))
        .collect()
}

/// How many series there are in all.
fn count(metrics: &Metrics) -> usize {
    let families = metrics.families();
    families.iter().map(|family| series(family).len()).sum()
}

fn passes(sentinel: &Sentinel, call: Call<'_>) -> bool {
    matches!(sentinel.try_enter(call), Verdict::Pass(_))
}
