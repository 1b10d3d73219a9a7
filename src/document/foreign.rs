//! Refuses rules of other programs that look like Sentinel's rules for Java or Go but mean
//! something else.
//!
//! Foreign rules are recognized by their keys. Read as a rule for Java or Go, a foreign rule would
//! load and limit something else. For example, a gateway's rule has a `count` too, but for a
//! configurable interval; a rule of Sentinel in Rust has a `threshold`; and a rule on the tokens of
//! language models has `specificItems`.

use super::fields::Fields;
use super::sentinel::{GO, Kind, has};
use super::value::{Datum, Entries, find};

/// Keys of `GatewayFlowRule` that no `FlowRule` has.
const GATEWAY: [&str; 7] = [
    "intervalSec",
    "paramItem",
    "resourceMode",
    "burst",
    "maxQueueingTimeoutMs",
    "interval",
    "intervalUnit",
];

/// Keys of rules of Sentinel in Rust.
const RUST: [&str; 24] = [
    "calculate_strategy",
    "control_strategy",
    "relation_strategy",
    "ref_resource",
    "stat_interval_ms",
    "max_queueing_time_ms",
    "warm_up_period_sec",
    "warm_up_cold_factor",
    "low_mem_usage_threshold",
    "high_mem_usage_threshold",
    "mem_low_water_mark",
    "mem_high_water_mark",
    "retry_timeout_ms",
    "min_request_amount",
    "max_allowed_rt_ms",
    "stat_sliding_window_bucket_count",
    "metric_type",
    "trigger_count",
    "param_index",
    "param_key",
    "burst_count",
    "duration_in_sec",
    "params_max_capacity",
    "specific_items",
];

/// Keys of `FlowRule` that no gateway's rule has. A rule with one of these keys is a `FlowRule`,
/// and Sentinel ignores any gateway's keys in it.
const NO_GATEWAY: [&str; 7] = [
    "limitApp",
    "strategy",
    "refResource",
    "warmUpPeriodSec",
    "maxQueueingTimeMs",
    "clusterMode",
    "clusterConfig",
];

/// Returns whether a rule of this kind is foreign, and refuses the first key that shows this.
pub(super) fn refuse_foreign(kind: Kind, fields: &mut Fields<'_>) -> bool {
    let table = fields.table;
    let first = |keys: &[&'static str]| keys.iter().copied().find(|key| has(table, key));
    let of_no_gateway = first(&NO_GATEWAY);
    let may_be_gateway = kind == Kind::Flow && of_no_gateway.is_none();
    if is_wrapped(table) {
        let allowed = "absent: the dashboard keeps a rule so, put its keys in its place";
        fields.refuse("rule", allowed);
    } else if let Some(key) = first(&RUST) {
        let allowed = "absent: rules of Sentinel in Rust are not read, only those for Go";
        fields.refuse(key, allowed);
    } else if let Some(key) = of_tokens(table) {
        let allowed = "absent: LLM token rules of Sentinel for Go are not read";
        fields.refuse(key, allowed);
    } else if let Some(key) = first(&GATEWAY).filter(|_| may_be_gateway) {
        let allowed = "absent: rules of a gateway are not read, write a `KeyedRule`";
        fields.refuse(key, allowed);
    } else if let Some(key) = first(&GO).filter(|_| has(table, "count")) {
        let allowed = format!("absent beside `{key}`: a rule for Go has a `threshold`");
        fields.refuse("count", allowed);
    } else {
        if let Some(key) = of_no_gateway.filter(|_| kind == Kind::Flow) {
            warn_of_gateway(fields, key);
        }
        return false;
    }
    true
}

/// Warns of a gateway's keys in a rule that is not a gateway's, because it has the key `shows`.
fn warn_of_gateway(fields: &mut Fields<'_>, shows: &str) {
    let table = fields.table;
    for key in GATEWAY.into_iter().filter(|key| has(table, key)) {
        let note = format!(
            "ignored, as by Sentinel: a rule with `{shows}` is none of a gateway, and its `count` is \
             that of a second"
        );
        fields.warn(key, &note);
    }
}

/// Returns whether a table is refused as a rule of any kind.
pub(super) fn is_always_refused(table: &Entries) -> bool {
    is_wrapped(table) || of_tokens(table).is_some() || RUST.iter().any(|key| has(table, key))
}

/// Returns the key that shows that a table is an LLM token rule of Sentinel for Go
/// (`llm_token_ratelimit`), which limits the tokens of language models.
fn of_tokens(table: &Entries) -> Option<&'static str> {
    let is_item = |item: &Datum| match item {
        Datum::Table(item) => has(item, "keyItems") || has(item, "identifier"),
        _ => false,
    };
    if matches!(find(table, "encoding"), Some(Datum::Table(_))) {
        return Some("encoding");
    }
    match find(table, "specificItems") {
        Some(Datum::List(items)) if items.iter().any(is_item) => return Some("specificItems"),
        _ => {}
    }
    match find(table, "strategy") {
        Some(Datum::Text(name)) if matches!(&**name, "peta" | "fixed-window") => Some("strategy"),
        _ => None,
    }
}

/// Returns whether a table is in the form in which the dashboard stores rules of some kinds: the
/// rule is nested under the key `rule`.
fn is_wrapped(table: &Entries) -> bool {
    !has(table, "resource") && matches!(find(table, "rule"), Some(Datum::Table(_)))
}
