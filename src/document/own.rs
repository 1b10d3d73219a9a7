//! The form of this crate: a key for each builder method.

use std::time::Duration;

use super::fields::Fields;
use super::store;
use super::time;
use super::value::{Datum, Entries, find};
use crate::rule::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    MissingKey, Rule, Setting, SystemRule,
};
use crate::store::WhenDown;
use crate::system::Capacity;

const SECOND: Duration = Duration::from_secs(1);
/// From here on, floating point numbers leave whole numbers out.
const FIRST_GAP: f64 = 9_007_199_254_740_992.0;

/// Reads the rest of a table.
type ReadRule = fn(&mut Fields<'_>) -> Rule;

/// The kinds of rules by [name](Rule::kind).
const KINDS: [(&str, ReadRule); 8] = [
    ("flow", flow),
    ("isolation", isolation),
    ("adaptive", adaptive),
    ("circuit-breaker", circuit_breaker),
    ("authority", authority),
    ("system", system),
    ("keyed", keyed_rule),
    // As Sentinel says.
    ("hot-param", keyed_rule),
];

const MISSING: [(&str, MissingKey); 3] = [
    (MissingKey::Share.as_str(), MissingKey::Share),
    (MissingKey::Skip.as_str(), MissingKey::Skip),
    (MissingKey::Refuse.as_str(), MissingKey::Refuse),
];

pub(super) const WHEN_DOWN: [(&str, WhenDown); 3] = [
    (WhenDown::LocalShare.as_str(), WhenDown::LocalShare),
    (WhenDown::Open.as_str(), WhenDown::Open),
    (WhenDown::Closed.as_str(), WhenDown::Closed),
];

/// The keys of fields that rules call otherwise.
const KEYS: [(&str, &str); 15] = [
    ("origin", "for_origin"),
    ("related", "when"),
    ("context", "in_context"),
    ("max_wait", "throttle"),
    ("count", "consecutive_errors"),
    ("count", "error_count"),
    ("ratio", "slow_ratio"),
    ("ratio", "error_ratio"),
    ("origins", "allow"),
    ("origins", "deny"),
    ("threshold", "concurrency"),
    ("threshold", "threshold"),
    ("memory", "memory_bytes"),
    ("memory", "memory"),
    ("memory.threshold", "memory_threshold"),
];

// === reading ===

/// Returns whether `value` looks like a rule of this form.
pub(super) fn is_rule(value: &Datum) -> bool {
    matches!(value, Datum::Table(table) if find(table, "kind").is_some())
}

/// The rule that a table stands for.
pub(super) fn rule(fields: &mut Fields<'_>) -> Option<Rule> {
    fields.keys = &KEYS;
    let Some(reader) = fields.needed_choice("kind", &KINDS) else {
        // Its possible keys are unknown.
        fields.know_all();
        return None;
    };
    let is_shadow = fields.is_set("shadow");
    let rule = reader(fields);
    if let (true, Some(why)) = (fields.has("shared"), rule.info().never_shared()) {
        if fields.is_set("shared") {
            fields.refuse("shared", why);
        }
    }
    Some(if is_shadow { rule.shadow() } else { rule })
}

/// `rule` with one more setting, if there is one.
pub(super) fn with<R, T>(rule: R, value: Option<T>, set: impl FnOnce(R, T) -> R) -> R {
    match value {
        Some(value) => set(rule, value),
        None => rule,
    }
}

/// `rule` with one more switch, if it is on.
fn switched<R>(rule: R, is_on: bool, set: impl FnOnce(R) -> R) -> R {
    if is_on { set(rule) } else { rule }
}

/// A rule with its settings for sharing.
macro_rules! sharing {
    ($rule:expr, $fields:expr, $kind:ty) => {{
        let rule = switched($rule, $fields.is_set("shared"), <$kind>::shared);
        let rule = switched(rule, $fields.is_set("exact"), <$kind>::exact);
        let rule = switched(rule, $fields.is_set("per_node"), <$kind>::per_node);
        let when_down = $fields.choice("when_down", &WHEN_DOWN);
        let rule = with(rule, when_down, <$kind>::when_down);
        let rule = with(rule, $fields.count("local_limit"), <$kind>::local_limit);
        with(rule, $fields.time("store_wait"), <$kind>::store_wait)
    }};
}

fn flow(fields: &mut Fields<'_>) -> Rule {
    let resource = fields.needed_text("resource");
    let threshold = fields.needed_number("threshold");
    let interval = fields.time("interval").unwrap_or(SECOND);
    let rule = FlowRule::per(resource, threshold, interval);
    let rule = with(rule, fields.count("buckets"), FlowRule::buckets);
    let rule = switched(rule, fields.is_set("strict"), FlowRule::strict);
    let rule = switched(rule, fields.is_set("by_origin"), FlowRule::by_origin);
    let rule = with(rule, fields.text("for_origin"), FlowRule::for_origin);
    fields.at_most_one(&["by_origin", "for_origin"]);
    let rule = with(rule, fields.choice("missing", &MISSING), FlowRule::missing);
    let rule = with(rule, fields.text("when"), FlowRule::when);
    let rule = with(rule, fields.text("in_context"), FlowRule::in_context);
    fields.at_most_one(&["when", "in_context"]);
    let rule = with(rule, fields.time("throttle"), FlowRule::throttle);
    let rule = with(rule, fields.time("warm_up"), FlowRule::warm_up);
    let rule = with(rule, fields.number("cold_factor"), FlowRule::cold_factor);
    let rule = memory(rule, fields);
    let rule = with(rule, fields.flag("lend"), FlowRule::lend);
    let ratio = fields.number("max_occupy_ratio");
    let rule = with(rule, ratio, FlowRule::max_occupy_ratio);
    let rule = with(rule, fields.count("max_waiting"), FlowRule::max_waiting);
    let rule = sharing!(rule, fields, FlowRule);
    with(rule, fields.text("id"), FlowRule::id).into()
}

fn memory(rule: FlowRule, fields: &mut Fields<'_>) -> FlowRule {
    let shares = fields.range("memory", "a range such as \"0.7..0.9\"");
    let bytes = fields.range("memory_bytes", "a range such as \"1048576..2097152\"");
    let threshold = fields.number("memory_threshold");
    fields.at_most_one(&["memory", "memory_bytes"]);
    let has_marks = fields.has("memory") || fields.has("memory_bytes");
    if has_marks {
        let allowed = "a number, where the threshold falls with memory";
        fields.need("memory_threshold", allowed);
    } else if fields.has("memory_threshold") {
        let allowed = "absent without `memory` or `memory_bytes`";
        fields.refuse("memory_threshold", allowed);
    }
    match (shares, bytes, threshold) {
        (Some(marks), _, Some(threshold)) => rule.memory(marks, threshold),
        (None, Some(marks), Some(threshold)) => rule.memory_bytes(marks, threshold),
        _ => rule,
    }
}

fn isolation(fields: &mut Fields<'_>) -> Rule {
    let resource = fields.needed_text("resource");
    let max = fields.needed_count("max");
    let rule = IsolationRule::new(resource, max);
    let rule = with(rule, fields.text("for_origin"), IsolationRule::for_origin);
    let rule = with(rule, fields.text("when"), IsolationRule::when);
    let rule = with(rule, fields.time("queue"), IsolationRule::queue);
    let most = fields.count("max_waiting");
    let rule = with(rule, most, IsolationRule::max_waiting);
    with(rule, fields.text("id"), IsolationRule::id).into()
}

fn adaptive(fields: &mut Fields<'_>) -> Rule {
    let rule = AdaptiveRule::new(fields.needed_text("resource"));
    let rule = with(rule, fields.count("floor"), AdaptiveRule::floor);
    let rule = with(rule, fields.count("ceiling"), AdaptiveRule::ceiling);
    let rule = with(rule, fields.count("start"), AdaptiveRule::start);
    let rule = with(rule, fields.number("tolerance"), AdaptiveRule::tolerance);
    let rule = with(rule, fields.number("smoothing"), AdaptiveRule::smoothing);
    with(rule, fields.text("id"), AdaptiveRule::id).into()
}

fn circuit_breaker(fields: &mut Fields<'_>) -> Rule {
    const CONDITIONS: [&str; 4] = [
        "slow_ratio",
        "error_ratio",
        "error_count",
        "consecutive_errors",
    ];
    let resource = fields.needed_text("resource");
    let max_rt = fields.time("max_rt");
    let slow_ratio = fields.number("slow_ratio");
    let error_ratio = fields.number("error_ratio");
    let error_count = fields.count("error_count");
    let consecutive_errors = fields.count("consecutive_errors");
    fields.at_most_one(&CONDITIONS);
    if !CONDITIONS.iter().any(|key| fields.has(key)) {
        let allowed =
            "given one of `slow_ratio`, `error_ratio`, `error_count` and `consecutive_errors`";
        fields.refuse_all("without a condition", allowed);
    }
    if fields.has("slow_ratio") {
        fields.need("max_rt", time::ALLOWED);
    } else if fields.has("max_rt") {
        fields.refuse("max_rt", "absent without `slow_ratio`");
    }
    for other in ["min_calls", "last_calls", "interval", "buckets"] {
        fields.at_most_one(&["consecutive_errors", other]);
    }
    for other in ["interval", "buckets"] {
        fields.at_most_one(&["last_calls", other]);
    }
    let rule = match (slow_ratio, error_ratio, consecutive_errors) {
        (Some(ratio), ..) => {
            CircuitBreakerRule::slow_ratio(resource, max_rt.unwrap_or_default(), ratio)
        }
        (None, Some(ratio), _) => CircuitBreakerRule::error_ratio(resource, ratio),
        (None, None, Some(count)) => CircuitBreakerRule::consecutive_errors(resource, count),
        (None, None, None) => CircuitBreakerRule::error_count(resource, error_count.unwrap_or(1)),
    };
    let rule = switched(rule, fields.is_set("exceeds"), CircuitBreakerRule::exceeds);
    let rule = with(
        rule,
        fields.count("min_calls"),
        CircuitBreakerRule::min_calls,
    );
    let rule = with(rule, fields.time("open_for"), CircuitBreakerRule::open_for);
    let longest = fields.time("open_up_to");
    let rule = with(rule, longest, CircuitBreakerRule::open_up_to);
    let calls = fields.count("last_calls");
    let rule = with(rule, calls, CircuitBreakerRule::last_calls);
    let rule = with(rule, fields.time("interval"), CircuitBreakerRule::interval);
    let rule = with(rule, fields.count("buckets"), CircuitBreakerRule::buckets);
    let rule = with(rule, fields.count("probes"), CircuitBreakerRule::probes);
    let cancelled = fields.flag("count_cancelled_as_slow");
    let rule = with(rule, cancelled, CircuitBreakerRule::count_cancelled_as_slow);
    with(rule, fields.text("id"), CircuitBreakerRule::id).into()
}

fn authority(fields: &mut Fields<'_>) -> Rule {
    let resource = fields.needed_text("resource");
    let allow = fields.texts("allow");
    let deny = fields.texts("deny");
    fields.at_most_one(&["allow", "deny"]);
    if !fields.has("allow") && !fields.has("deny") {
        fields.refuse_all("without a list", "given `allow` or `deny`");
    }
    let rule = match (allow, deny) {
        (Some(origins), _) => AuthorityRule::allow(resource, origins),
        (None, origins) => AuthorityRule::deny(resource, origins.unwrap_or_default()),
    };
    let is_denied = fields.is_set("deny_unknown");
    let rule = switched(rule, is_denied, AuthorityRule::deny_unknown);
    with(rule, fields.text("id"), AuthorityRule::id).into()
}

fn system(fields: &mut Fields<'_>) -> Rule {
    const CAPACITIES: [(&str, Capacity); 2] = [
        (Capacity::Robust.as_str(), Capacity::Robust),
        (Capacity::Sentinel.as_str(), Capacity::Sentinel),
    ];
    let rule = SystemRule::new();
    let rule = with(rule, fields.number("qps"), SystemRule::qps);
    let rule = with(rule, fields.number("load"), SystemRule::load);
    let rule = with(rule, fields.number("cpu"), SystemRule::cpu);
    let rule = with(rule, fields.time("rt"), SystemRule::rt);
    let rule = with(rule, fields.count("concurrency"), SystemRule::concurrency);
    let capacity = fields.choice("capacity", &CAPACITIES);
    let rule = with(rule, capacity, SystemRule::capacity);
    with(rule, fields.text("id"), SystemRule::id).into()
}

fn keyed_rule(fields: &mut Fields<'_>) -> Rule {
    let resource = fields.needed_text("resource");
    let param = fields.text("param");
    let param_at = fields.whole("param_at", i32::MIN..=i32::MAX);
    let is_by_origin = fields.is_set("by_origin");
    fields.at_most_one(&["param", "param_at", "by_origin"]);
    let concurrency = fields.count("concurrency");
    for key in [
        "threshold",
        "interval",
        "window",
        "throttle",
        "burst",
        "capacity",
    ] {
        fields.at_most_one(&["concurrency", key]);
    }
    let threshold = if fields.has("concurrency") {
        fields.number("threshold").unwrap_or_default()
    } else {
        fields.needed_number("threshold")
    };
    let interval = fields.time("interval").unwrap_or(SECOND);
    let rule = match concurrency {
        Some(max) => KeyedRule::concurrency(resource, max),
        None => KeyedRule::per(resource, threshold, interval),
    };
    let rule = with(rule, param, KeyedRule::param);
    let rule = with(rule, param_at, KeyedRule::param_at);
    let rule = switched(rule, is_by_origin, KeyedRule::by_origin);
    let rule = switched(rule, fields.is_set("window"), KeyedRule::window);
    let rule = with(rule, fields.time("throttle"), KeyedRule::throttle);
    fields.at_most_one(&["window", "throttle"]);
    let rule = with(rule, fields.count("burst"), KeyedRule::burst);
    let mut rule = with(rule, fields.count("capacity"), KeyedRule::capacity);
    fields.at_most_one(&["burst", "capacity"]);
    let threshold_of = |key| {
        move |fields: &mut Fields<'_>| (fields.needed_text(key), fields.needed_number("threshold"))
    };
    for (value, threshold) in fields.tables("except", threshold_of("value")) {
        rule = rule.except(value, threshold);
    }
    for (tier, threshold) in fields.tables("tier", threshold_of("name")) {
        rule = rule.tier(tier, threshold);
    }
    let rule = with(rule, fields.count("max_keys"), KeyedRule::max_keys);
    let rule = with(rule, fields.time("queue"), KeyedRule::queue);
    let most = fields.count("max_waiting");
    let rule = with(rule, most, KeyedRule::max_waiting);
    let missing = fields.choice("missing", &MISSING);
    let rule = with(rule, missing, KeyedRule::missing);
    let rule = sharing!(rule, fields, KeyedRule);
    with(rule, fields.text("id"), KeyedRule::id).into()
}

// === writing ===

/// The document of `rules`.
pub(super) fn tree<'a>(rules: impl Iterator<Item = &'a Rule> + Clone) -> Datum {
    let mut table = vec![("rules".to_owned(), list(rules.clone()))];
    if rules.into_iter().any(Rule::is_shared) {
        // The program has a store, else there were no such rules.
        table.push((store::KEY.to_owned(), Datum::Table(Entries::new())));
    }
    Datum::Table(table)
}

/// A table for each of `rules`.
pub(super) fn list<'a>(rules: impl Iterator<Item = &'a Rule>) -> Datum {
    let tables = rules.map(|rule| {
        let settings = rule.settings().0.into_iter();
        Datum::Table(
            settings
                .map(|(name, setting)| (name.to_owned(), value(setting)))
                .collect(),
        )
    });
    Datum::List(tables.collect())
}

fn value(setting: Setting) -> Datum {
    match setting {
        Setting::Text(text) => Datum::Text(text),
        Setting::Texts(texts) => Datum::List(texts.into_iter().map(Datum::Text).collect()),
        Setting::Number(value) => number(value),
        Setting::Count(count) => Datum::Whole(count.into()),
        Setting::Flag(flag) => Datum::Flag(flag),
        Setting::Time(time) => Datum::Text(time::print(time)),
        Setting::Thresholds(key, list) => {
            let tables = list.into_iter().map(|(name, threshold)| {
                let name = (key.to_owned(), Datum::Text(name));
                Datum::Table(vec![name, ("threshold".to_owned(), number(threshold))])
            });
            Datum::List(tables.collect())
        }
    }
}

/// A number, without a point if it needs none.
fn number(number: f64) -> Datum {
    if number.fract() == 0.0 && number.abs() < FIRST_GAP {
        Datum::Whole(number as i128)
    } else {
        Datum::Number(number)
    }
}
