//! Translates Sentinel's cluster rules, which its clients check with a token server.
//!
//! Without a store, a cluster rule limits this process alone, with a warning. With a store, the
//! rule is shared, and the store takes the role of the token server. A token server applies only
//! the count of a rule, in its window, and ignores all other settings.

use std::time::Duration;

use super::fields::{Fields, Form};
use super::load::Document;
use super::sentinel::REFUSES_ALL;
use super::value::{Datum, find};
use crate::rule::{FlowRule, KeyedRule};
use crate::store::WhenDown;

/// The key of the settings of a cluster rule.
const CONFIG: &str = "clusterConfig";
/// The effect of a setting that a token server ignores.
const IGNORED_BY_SERVERS: &str =
    "ignored, as by a token server of Sentinel, which looks at the count alone";
/// The settings that concern only a token server, with their defaults.
const SERVER_SETTINGS: [(&str, i32); 4] = [
    ("resourceTimeout", 2_000),
    ("resourceTimeoutStrategy", 0),
    ("acquireRefuseStrategy", 0),
    ("clientOfflineTime", 2_000),
];

/// The settings by which a token server counts a rule.
pub(super) struct Cluster {
    id: String,
    is_per_node: bool,
    when_down: WhenDown,
    interval: Duration,
    buckets: u32,
}

impl Document {
    /// Reads the document for an engine that has a [store](crate::Builder::store): Sentinel's rules
    /// with `clusterMode` are then [shared](crate::FlowRule::shared), under the id
    /// `cluster-<flowId>`. A document in the form of this crate does not change, because its rules
    /// say themselves whether they are shared.
    ///
    /// | `clusterConfig` | here |
    /// |---|---|
    /// | `thresholdType` 0, 1 | [`per_node`](crate::FlowRule::per_node); the limit of all processes |
    /// | `windowIntervalMs`, `sampleCount` | the interval and its buckets; a window by parameter has two |
    /// | `fallbackToLocalWhenFail` true | [`WhenDown::LocalShare`], with a warning, because in Sentinel each process then has the whole count |
    /// | `fallbackToLocalWhenFail` false | [`WhenDown::Open`] |
    ///
    /// `count` is per second, and is multiplied by the interval. A token server ignores all other
    /// settings of a rule, so each other setting has a warning if it is set. A rule with `grade` 0
    /// limits this process alone, with a warning.
    ///
    /// ```
    /// use tower_sentinel::document::{Document, Kind};
    /// use tower_sentinel::store::WhenDown;
    /// use tower_sentinel::{FlowRule, Rules};
    ///
    /// let text = r#"[{"resource": "/pay", "count": 10, "clusterMode": true, "clusterConfig":
    ///     {"flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false}}]"#;
    /// let document = Document::read_sentinel(text, Kind::Flow)?;
    /// assert_eq!(document.strict()?, Rules::from(FlowRule::per_second("/pay", 10)));
    /// let shared = FlowRule::per_second("/pay", 10).buckets(10).id("cluster-7");
    /// let shared = shared.shared().when_down(WhenDown::Open);
    /// assert_eq!(document.with_store().strict()?, Rules::from(shared));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_store(mut self) -> Self {
        if let Some(shared) = self.shared.take() {
            (self.rules, self.problems) = *shared;
        }
        self
    }
}

/// Returns whether any rule of `list` is a cluster rule.
pub(super) fn has_cluster_rule(list: &[Datum]) -> bool {
    list.iter().any(|item| {
        let Datum::Table(table) = item else {
            return false;
        };
        find(table, "clusterMode") == Some(&Datum::Flag(true))
    })
}

/// Returns how a token server counts the rule, if it is a cluster rule and the engine has a store.
/// `falls_back` is the default of `fallbackToLocalWhenFail`: whether a client that gets no answer
/// uses its own limit.
pub(super) fn of(fields: &mut Fields<'_>, falls_back: bool, is_rate: bool) -> Option<Cluster> {
    fields.known(&[CONFIG]);
    if !fields.is_set("clusterMode") {
        return None;
    }
    if fields.has_store && is_rate {
        return Some(read(fields, falls_back));
    }
    let config_says = match fields.peek(CONFIG) {
        Some(Datum::Table(config)) => match find(config, "fallbackToLocalWhenFail") {
            Some(Datum::Flag(falls_back)) => *falls_back,
            _ => falls_back,
        },
        _ => false,
    };
    let note = match (fields.has_store, config_says) {
        (true, _) => "ignored, this process alone is limited: calls at once cannot be shared",
        (false, true) => {
            "ignored, this process alone is limited, as by Sentinel while no token server answers"
        }
        (false, false) => {
            "ignored, this process alone is limited, \
             where Sentinel limits nothing while no token server answers"
        }
    };
    fields.warn("clusterMode", note);
    None
}

/// Reads the settings of a cluster rule; see [`of`].
fn read(fields: &mut Fields<'_>, falls_back: bool) -> Cluster {
    let path = fields.path_of(CONFIG);
    let empty = Vec::new();
    let table = match fields.peek(CONFIG) {
        Some(Datum::Table(table)) => table,
        _ => {
            fields.refuse(CONFIG, "a table with a `flowId`");
            &empty
        }
    };
    let mut config = Fields::new(path, table, Form::Sentinel);
    let id = config.whole("flowId", 1..=i64::MAX);
    let is_global = config.whole("thresholdType", 0..=1).unwrap_or(0) == 1;
    let own = config.flag("fallbackToLocalWhenFail");
    let samples = config.whole("sampleCount", 1..=i32::MAX).unwrap_or(10);
    let interval = config
        .whole("windowIntervalMs", 1..=i32::MAX)
        .unwrap_or(1_000);
    config.whole("strategy", 0..=0);
    let when_down = if own.unwrap_or(falls_back) {
        let note = "while the store is away this process has its share of the count, where each \
             client of Sentinel has the whole one";
        config.warn_harmless("fallbackToLocalWhenFail", note);
        WhenDown::LocalShare
    } else {
        WhenDown::Open
    };
    for (key, default) in SERVER_SETTINGS {
        if config.has_other(key, default) {
            config.warn_harmless(key, "ignored, as there is no token server");
        }
    }
    config.known(&SERVER_SETTINGS.map(|(key, _)| key));
    if !table.is_empty() || fields.is_good() {
        config.need("flowId", "a whole number, at least 1");
    }
    if interval % samples != 0 {
        let allowed = format!("a number that divides the {interval} ms of the window");
        config.refuse("sampleCount", allowed);
    }
    for problem in config.finish() {
        fields.note(problem);
    }
    Cluster {
        id: format!("cluster-{}", id.unwrap_or_default()),
        is_per_node: !is_global,
        when_down,
        interval: Duration::from_millis(interval.unsigned_abs().into()),
        buckets: samples.unsigned_abs(),
    }
}

impl Cluster {
    /// Creates the shared flow rule that counts as the token server does.
    pub(super) fn flow(self, fields: &mut Fields<'_>, resource: String, count: f64) -> FlowRule {
        self.warn_of(fields, &["strategy", "controlBehavior"]);
        let is_for_one = |name: &str| !matches!(name.trim(), "" | "default");
        if matches!(fields.peek("limitApp"), Some(Datum::Text(name)) if is_for_one(name)) {
            fields.warn("limitApp", IGNORED_BY_SERVERS);
        }
        fields.keys = vec![
            ("threshold", "count"),
            ("interval", CONFIG),
            ("id", CONFIG),
            ("buckets", CONFIG),
        ];
        let limit = self.limit(fields, count);
        let rule = FlowRule::per(resource, limit, self.interval)
            .buckets(self.buckets)
            .id(self.id)
            .when_down(self.when_down)
            .shared();
        if self.is_per_node {
            rule.per_node()
        } else {
            rule
        }
    }

    /// Creates the shared keyed rule that counts as the token server does, without its parameter.
    pub(super) fn keyed_rule(
        self,
        fields: &mut Fields<'_>,
        resource: String,
        count: f64,
        exceptions: impl Iterator<Item = (String, u32)>,
    ) -> KeyedRule {
        self.warn_of(fields, &["burstCount", "controlBehavior"]);
        if fields.has_other("durationInSec", 1) {
            fields.warn("durationInSec", IGNORED_BY_SERVERS);
        }
        fields.keys = vec![
            ("threshold", "count"),
            ("interval", CONFIG),
            ("id", CONFIG),
            ("except", "paramFlowItemList"),
        ];
        let limit = self.limit(fields, count);
        let rule = KeyedRule::per(resource, limit, self.interval)
            .window()
            .id(self.id)
            .when_down(self.when_down)
            .shared();
        let rule = if self.is_per_node {
            rule.per_node()
        } else {
            rule
        };
        let seconds = self.interval.as_secs_f64();
        exceptions.fold(rule, |rule, (value, count)| {
            rule.except(value, f64::from(count) * seconds)
        })
    }

    /// Warns of each of `keys` whose value is not 0.
    fn warn_of(&self, fields: &mut Fields<'_>, keys: &[&str]) {
        for key in keys {
            if fields.has_other(key, 0) {
                fields.warn(key, IGNORED_BY_SERVERS);
            }
        }
    }

    /// Returns the limit for a window if `count` is the limit per second.
    fn limit(&self, fields: &mut Fields<'_>, count: f64) -> f64 {
        let limit = count * self.interval.as_secs_f64();
        if limit > 0.0 && limit < 1.0 {
            fields.warn("count", REFUSES_ALL);
            return 0.0;
        }
        limit
    }
}
