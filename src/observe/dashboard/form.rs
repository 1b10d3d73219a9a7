//! Converts rules to and from Sentinel's JSON form, and finds the rules that the form cannot
//! express.
//!
//! A rule is written as well as the form allows and read back, and the settings that the form has
//! no field for are copied over. If the result equals the rule, a dashboard can show and replace
//! it. So one function, [`carry`], decides which settings a form can lack, for rules that are shown
//! and for rules that are pushed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::document::{Document, Kind};
use crate::rule::{
    AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, Rule, Rules, SystemRule,
    kept,
};
use crate::store::WhenDown;

/// A type of rules in the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JavaForm {
    Flow,
    Degrade,
    System,
    Authority,
    ParamFlow,
}

/// A rule in Sentinel's form.
#[derive(Clone, Debug)]
pub(super) struct ShownRule {
    pub(super) value: Value,
    /// The rule that `value` reads back as, without the settings that the form has no field for.
    pub(super) read: Rule,
}

/// The number of buckets that a form shows for a shared keyed rule. Such a rule has no setting for
/// its buckets.
const BUCKETS_BY_PARAMETER: u32 = 2;
/// The difference between a time limit and the whole milliseconds in its form. Sentinel and this
/// crate differ in whether a time equal to the limit is within bounds.
const NANOSECOND: Duration = Duration::from_nanos(1);

// === impl JavaForm ===

impl JavaForm {
    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::Flow => Kind::Flow,
            Self::Degrade => Kind::CircuitBreaker,
            Self::System => Kind::System,
            Self::Authority => Kind::Authority,
            Self::ParamFlow => Kind::HotParam,
        }
    }

    /// Writes `rule` in this form; `None` if the form cannot express it.
    pub(super) fn show(self, rule: &Rule) -> Option<ShownRule> {
        // In Sentinel `*` is a name like any other, so it cannot stand for all resources.
        if rule.is_default() {
            return None;
        }
        let value = match (self, rule) {
            (Self::Flow, Rule::Flow(rule)) => flow(rule)?,
            (Self::Flow, Rule::Isolation(rule)) => isolation(rule),
            (Self::Degrade, Rule::CircuitBreaker(rule)) => breaker(rule)?,
            (Self::System, Rule::System(rule)) => system(rule)?,
            (Self::Authority, Rule::Authority(rule)) => authority(rule),
            (Self::ParamFlow, Rule::Keyed(rule)) => keyed(rule)?,
            _ => return None,
        };
        let read = self.read(&value)?;
        (carry(&read, rule) == *rule).then_some(ShownRule { value, read })
    }

    /// Reads a rule from `value`, for an engine with a store: shared rules are accepted.
    pub(super) fn read(self, value: &Value) -> Option<Rule> {
        let document = Document::read_sentinel(&json!([value]).to_string(), self.kind()).ok()?;
        let read = document.with_store().strict().ok()?;
        read.into_iter().next().map(unnumbered)
    }
}

/// Writes a flow rule, with the codes that `document::java` reads; `None` if the form cannot
/// express it.
fn flow(rule: &FlowRule) -> Option<Value> {
    let (strategy, reference) = match (rule.get_when(), rule.get_in_context()) {
        (Some(related), _) => (1, Some(related)),
        (None, Some(context)) => (2, Some(context)),
        (None, None) => (0, None),
    };
    let behavior = match (rule.get_warm_up(), rule.get_throttle()) {
        (None, None) => 0,
        (Some(_), None) => 1,
        (None, Some(_)) => 2,
        (Some(_), Some(_)) => 3,
    };
    // 10 and 500 are the defaults of the form.
    let seconds = rule.get_warm_up().map_or(10, |it| it.as_secs());
    let millis = rule.get_throttle().map_or(Some(500), millis)?;
    let mut value = json!({
        "resource": rule.resource(),
        "limitApp": rule.get_for_origin().unwrap_or("default"),
        "grade": 1,
        "count": rule.threshold(),
        "strategy": strategy,
        "controlBehavior": behavior,
        "warmUpPeriodSec": seconds,
        "maxQueueingTimeMs": millis,
        "clusterMode": rule.is_shared(),
    });
    if rule.is_shared() {
        // In Sentinel the count of a shared rule is per second, for any length of the window.
        value["count"] = (rule.threshold() / rule.interval().as_secs_f64()).into();
        let window = (rule.interval(), rule.get_buckets());
        value["clusterConfig"] = cluster(rule.is_per_node(), rule.get_when_down(), window)?;
    }
    if let Some(reference) = reference {
        value["refResource"] = reference.into();
    }
    Some(value)
}

/// Writes how the processes of a store share a rule; Sentinel calls them a cluster. The `flowId` is
/// a placeholder, which the dashboard replaces with its own number.
fn cluster(
    is_per_node: bool,
    when_down: Option<WhenDown>,
    (interval, buckets): (Duration, u32),
) -> Option<Value> {
    let falls_back = match when_down.unwrap_or_default() {
        WhenDown::LocalShare => true,
        WhenDown::Open => false,
        _ => return None,
    };
    Some(json!({
        "flowId": 1,
        "thresholdType": u8::from(!is_per_node),
        "fallbackToLocalWhenFail": falls_back,
        "strategy": 0,
        "sampleCount": buckets,
        "windowIntervalMs": millis(interval)?,
    }))
}

/// Writes an isolation rule, which is a flow rule of grade 0 in Sentinel.
fn isolation(rule: &IsolationRule) -> Value {
    let mut value = json!({
        "resource": rule.resource(),
        "limitApp": rule.get_for_origin().unwrap_or("default"),
        "grade": 0,
        "count": rule.max(),
        "strategy": u8::from(rule.get_when().is_some()),
        "controlBehavior": 0,
        "clusterMode": false,
    });
    if let Some(related) = rule.get_when() {
        value["refResource"] = related.into();
    }
    value
}

/// Writes a circuit breaker; `None` if the form cannot express it.
fn breaker(rule: &CircuitBreakerRule) -> Option<Value> {
    if rule.get_last_calls().is_some() {
        return None;
    }
    let ratios = (rule.get_slow_ratio(), rule.get_error_ratio());
    let (grade, count, slow) = match (ratios, rule.get_error_count()) {
        ((Some(slow), _), _) => (0, millis(rule.get_max_rt()?)? as f64, Some(slow)),
        ((None, Some(ratio)), _) => (1, ratio, None),
        ((None, None), Some(count)) => (2, count.into(), None),
        _ => return None,
    };
    let mut value = json!({
        "resource": rule.resource(),
        "limitApp": "default",
        "grade": grade,
        "count": count,
        "timeWindow": rule.get_open_for().as_secs(),
        "minRequestAmount": min_calls(rule),
        "statIntervalMs": millis(rule.get_interval())?,
    });
    if let Some(slow) = slow {
        value["slowRatioThreshold"] = slow.into();
    }
    Some(value)
}

/// Returns the minimum number of ended calls before the breaker can open, as set or by default.
fn min_calls(rule: &CircuitBreakerRule) -> u32 {
    let count = rule.get_error_count().map_or(5, |count| count.clamp(1, 5));
    rule.get_min_calls().unwrap_or(count)
}

/// Writes an authority rule.
fn authority(rule: &AuthorityRule) -> Value {
    json!({
        "resource": rule.resource(),
        "limitApp": rule.origins().join(","),
        "strategy": u8::from(!rule.is_allow()),
    })
}

/// Writes the limits of a system rule. The limits on load, CPU and concurrency are written as the
/// next lower number, because Sentinel refuses a call only if a figure is above its limit.
fn system(rule: &SystemRule) -> Option<Value> {
    let below = |limit: Option<f64>| limit.map_or(-1.0, just_below);
    let rt = rule.get_rt().map(|rt| i64::try_from(rt.as_millis()));
    let most = rule.get_concurrency().map(|most| i64::from(most) - 1);
    Some(json!({
        "highestSystemLoad": below(rule.get_load()),
        "highestCpuUsage": below(rule.get_cpu()),
        "qps": rule.get_qps().unwrap_or(-1.0),
        "avgRt": rt.transpose().ok()?.unwrap_or(-1),
        "maxThread": most.unwrap_or(-1),
    }))
}

/// Writes a keyed rule for the parameter at an index.
fn keyed(rule: &KeyedRule) -> Option<Value> {
    if rule.get_capacity().is_some() {
        return None;
    }
    let is_queue = rule.get_throttle().is_some();
    // In Sentinel a wait must be shorter than the maximum, so a maximum that is 1 ns below whole
    // milliseconds is written as whole milliseconds.
    let millis = rule.get_throttle().map_or(Some(0), |wait| {
        millis(wait).or_else(|| millis(wait + NANOSECOND))
    })?;
    // In Sentinel the count of a shared rule is per second, for any length of the window.
    let window = rule.interval().as_secs_f64();
    let per = if rule.is_shared() { window } else { 1.0 };
    let own = rule.get_except().iter().map(|(value, count)| {
        let count = count / per;
        let is_whole = count.fract() == 0.0;
        is_whole.then(|| json!({ "object": value, "count": count as u32, "classType": "String" }))
    });
    let mut value = json!({
        "resource": rule.resource(),
        "limitApp": "default",
        "grade": u8::from(!rule.is_concurrency()),
        "paramIdx": rule.get_param_at()?,
        "count": rule.threshold() / per,
        "durationInSec": rule.interval().as_secs(),
        "burstCount": rule.get_burst(),
        "controlBehavior": if is_queue { 2 } else { 0 },
        "maxQueueingTimeMs": millis,
        "paramFlowItemList": own.collect::<Option<Vec<_>>>()?,
        "clusterMode": rule.is_shared(),
    });
    if rule.is_shared() {
        // The count is per second, and `clusterConfig` has the window.
        value["durationInSec"] = 1.into();
        let window = (rule.interval(), BUCKETS_BY_PARAMETER);
        value["clusterConfig"] = cluster(rule.is_per_node(), rule.get_when_down(), window)?;
    }
    Some(value)
}

/// Returns `time` in milliseconds, if it is a whole number of them.
fn millis(time: Duration) -> Option<u64> {
    let millis = u64::try_from(time.as_millis()).ok()?;
    (Duration::from_millis(millis) == time).then_some(millis)
}

/// Returns the next number below `limit`, or -1 (no limit) if `limit` is not above zero.
fn just_below(limit: f64) -> f64 {
    if limit > 0.0 {
        f64::from_bits(limit.to_bits() - 1)
    } else {
        -1.0
    }
}

/// Removes the number that a dashboard has assigned to `rule`, which was read from a form.
pub(super) fn unnumbered(rule: Rule) -> Rule {
    match rule {
        Rule::Flow(rule) => rule.carry_sharing(None).into(),
        Rule::Keyed(rule) => rule.carry_sharing(None).into(),
        other => other,
    }
}

/// Copies the settings that the form cannot express from `old` to `rule`, which was read from a
/// form. Rules of different kinds are left as they are.
pub(super) fn carry(rule: &Rule, old: &Rule) -> Rule {
    let carried = match (rule, old) {
        (Rule::Flow(rule), Rule::Flow(old)) => carry_flow(rule.clone(), old).into(),
        (Rule::Isolation(rule), Rule::Isolation(old)) => kept(rule.clone(), old).into(),
        (Rule::CircuitBreaker(rule), Rule::CircuitBreaker(old)) => carry_breaker(rule, old).into(),
        (Rule::Authority(rule), Rule::Authority(old)) => kept(rule.clone(), old).into(),
        (Rule::System(rule), Rule::System(old)) => carry_system(rule.clone(), old).into(),
        (Rule::Keyed(rule), Rule::Keyed(old)) => carry_keyed(rule.clone(), old).into(),
        (rule, _) => rule.clone(),
    };
    match Rules::build([carried.clone()]) {
        Ok(_) => carried,
        Err(_) => rule.clone(),
    }
}

/// Applies `set` to `rule` and `value`, if there is a value.
fn with<R, V>(rule: R, value: Option<V>, set: impl FnOnce(R, V) -> R) -> R {
    match value {
        Some(value) => set(rule, value),
        None => rule,
    }
}

fn carry_flow(rule: FlowRule, old: &FlowRule) -> FlowRule {
    let rule = kept(rule, old);
    let factor = old
        .get_cold_factor()
        .filter(|_| rule.get_warm_up().is_some());
    let rule = with(rule, factor, FlowRule::cold_factor);
    rule.carry_sharing(Some(old))
}

fn carry_breaker(rule: &CircuitBreakerRule, old: &CircuitBreakerRule) -> CircuitBreakerRule {
    let (resource, interval) = (rule.resource(), rule.get_interval());
    let new = match (rule.get_slow_ratio(), rule.get_error_ratio()) {
        (Some(ratio), _) => {
            let max_rt = rule.get_max_rt().unwrap_or_default();
            CircuitBreakerRule::slow_ratio(resource, max_rt, ratio)
        }
        (None, Some(ratio)) => CircuitBreakerRule::error_ratio(resource, ratio),
        (None, None) => {
            let count = rule.get_error_count().unwrap_or_default();
            CircuitBreakerRule::error_count(resource, count)
        }
    };
    // A form has no field for whether a breaker opens at its limit or only above it, so the old
    // choice is kept. But a slow ratio of 1 always opens at its limit, as nothing exceeds it.
    let exceeds = rule.get_exceeds() && old.get_exceeds();
    let new = if exceeds { new.exceeds() } else { new };
    // A minimum that equals the default stays unset if it was unset before.
    let is_explicit =
        old.get_min_calls().is_some() || Some(min_calls(&new)) != rule.get_min_calls();
    let calls = rule.get_min_calls().filter(|_| is_explicit);
    let new = with(new, calls, CircuitBreakerRule::min_calls)
        .open_for(rule.get_open_for())
        .interval(interval);
    let longest = old.get_open_up_to().map(|it| it.max(rule.get_open_for()));
    let new = with(new, longest, CircuitBreakerRule::open_up_to);
    kept(new, old)
}

fn carry_system(rule: SystemRule, old: &SystemRule) -> SystemRule {
    let has_load = rule.get_load().is_some();
    let rule = with(
        rule,
        has_load.then(|| old.get_capacity()),
        SystemRule::capacity,
    );
    // A form's limit is read back as 1 ns more, for `>` in place of `>=`. For an average that makes
    // no practical difference, so the old limit is kept.
    let rt = old
        .get_rt()
        .filter(|rt| rule.get_rt() == Some(*rt + NANOSECOND));
    kept(with(rule, rt, SystemRule::rt), old)
}

fn carry_keyed(rule: KeyedRule, old: &KeyedRule) -> KeyedRule {
    let rule = kept(rule, old);
    let wait = old.get_throttle();
    let is_same = |wait: &Duration| {
        rule.get_throttle()
            .is_some_and(|it| it + NANOSECOND == *wait)
    };
    let wait = wait.filter(is_same);
    let rule = with(rule, wait, KeyedRule::throttle);
    // Only a limit on concurrent calls can have this queue.
    let lines_up = rule.is_concurrency() && old.get_queue().is_some();
    let rule = with(rule, old.get_queue().filter(|_| lines_up), KeyedRule::queue);
    let most = lines_up.then(|| old.get_max_waiting());
    let rule = with(rule, most, KeyedRule::max_waiting);
    // Only a rule whose quota is refilled can block values.
    let is_refilled = !(rule.is_concurrency() || rule.is_window() || rule.get_throttle().is_some());
    let block = old.get_block_for().filter(|_| is_refilled);
    let rule = with(rule, block, KeyedRule::block_for);
    rule.carry_sharing(Some(old))
}
