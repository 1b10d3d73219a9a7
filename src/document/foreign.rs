//! Rules that look like ones that are read here, and say something else.
//!
//! Their keys give them away. Read as what they look like they would load and limit
//! otherwise than where they come from: a rule of a gateway has a `count` as well, but of
//! an interval of its own, and one of Sentinel in Rust a `threshold`.

use super::fields::Fields;
use super::sentinel::{GO, Kind, has};
use super::value::{Table, Value, find};

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

/// Keys of Sentinel in Rust.
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

/// Whether a rule of this kind is none that is read here; the first key that tells is
/// refused.
pub(super) fn is_refused(kind: Kind, fields: &mut Fields<'_>) -> bool {
    let table = fields.table;
    let first = |keys: &[&'static str]| keys.iter().copied().find(|key| has(table, key));
    if is_wrapped(table) {
        let allowed = "absent: the dashboard keeps a rule so, put its keys in its place";
        fields.refuse("rule", allowed);
    } else if let Some(key) = first(&RUST) {
        let allowed = "absent: rules of Sentinel in Rust are not read, only those for Go";
        fields.refuse(key, allowed);
    } else if let Some(key) = first(&GATEWAY).filter(|_| kind == Kind::Flow) {
        let allowed = "absent: rules of a gateway are not read, write a `HotParamRule`";
        fields.refuse(key, allowed);
    } else if let Some(key) = first(&GO).filter(|_| has(table, "count")) {
        let allowed = format!("absent beside `{key}`: a rule for Go has a `threshold`");
        fields.refuse("count", allowed);
    } else {
        return false;
    }
    true
}

/// Whether a table is refused whatever its kind, which its keys do not show.
pub(super) fn is_of_no_kind(table: &Table) -> bool {
    is_wrapped(table) || RUST.iter().any(|key| has(table, key))
}

/// Whether a table is how the dashboard keeps a rule of some kinds: with the rule in it.
fn is_wrapped(table: &Table) -> bool {
    !has(table, "resource") && matches!(find(table, "rule"), Some(Value::Table(_)))
}
