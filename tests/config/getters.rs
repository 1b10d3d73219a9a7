//! What a rule was told can be read from it: each setter has a getter.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tower_sentinel::rule::CalendarPeriod;
use tower_sentinel::store::WhenDown;
use tower_sentinel::system::Capacity;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    MissingKey, SystemRule,
};

const SECOND: Duration = Duration::from_secs(1);

/// The methods of each rule below `src/rule`: those that take it and change it, and those that
/// read it.
fn methods() -> [BTreeSet<(String, String)>; 2] {
    fn collect(folder: &Path, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, texts);
            } else {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut texts = Vec::new();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rule");
    collect(&rules, &mut texts);
    let [mut setters, mut getters] = [BTreeSet::new(), BTreeSet::new()];
    for text in texts {
        let mut on = Vec::new();
        // The arguments may begin on the next line.
        let text = text.replace("(\n", "(");
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("impl ") {
                on = match rest.strip_suffix(" {") {
                    // Written once, for both kinds that may be shared.
                    Some("$rule") => vec!["FlowRule", "KeyedRule"],
                    Some(name) if name.ends_with("Rule") => vec![name],
                    _ => Vec::new(),
                };
            }
            let Some(rest) = line.strip_prefix("pub ") else {
                continue;
            };
            let rest = rest.strip_prefix("const ").unwrap_or(rest);
            let Some((name, arguments)) = rest
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once('('))
            else {
                continue;
            };
            let list = match arguments.trim_start() {
                it if it.starts_with("mut self") => &mut setters,
                it if it.starts_with("&self)") => &mut getters,
                _ => continue,
            };
            list.extend(on.iter().map(|rule| ((*rule).to_owned(), name.to_owned())));
        }
    }
    [setters, getters]
}

#[test]
fn each_setter_of_a_rule_has_a_getter() {
    let [setters, getters] = methods();
    assert!(setters.len() > 60, "only {} were found", setters.len());
    let lacking: Vec<_> = setters
        .iter()
        .filter(|(rule, name)| {
            let has = |prefix| getters.contains(&(rule.clone(), format!("{prefix}_{name}")));
            !has("get") && !has("is")
        })
        .collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}

/// The names of the rows in `text`, in which settings are read and written.
fn rows(text: &str) -> BTreeSet<&str> {
    let rows = text.split("Field::new(").skip(1);
    rows.map(|row| row.split('"').nth(1).unwrap()).collect()
}

#[test]
fn each_setter_of_a_rule_has_a_row() {
    let [setters, _] = methods();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rule");
    let read = |file: &str| fs::read_to_string(sources.join(file)).unwrap();
    let shared = read("sharing.rs");
    let mut checked = 0;
    for (rule, file) in [
        ("FlowRule", "flow"),
        ("KeyedRule", "keyed_rule"),
        ("IsolationRule", "isolation"),
        ("AdaptiveRule", "adaptive"),
        ("CircuitBreakerRule", "circuit_breaker"),
        ("AuthorityRule", "authority"),
        ("SystemRule", "system"),
    ] {
        let text = read(&format!("{file}/fields.rs"));
        let mut rows = rows(&text);
        if text.contains("Self::SHARING") {
            rows.extend(self::rows(&shared));
        }
        for (_, setter) in setters.iter().filter(|(of, _)| of == rule) {
            assert!(rows.contains(setter.as_str()), "{rule}::{setter}");
            checked += 1;
        }
    }
    assert_eq!(checked, setters.len());
}

/// Checks what a getter returns of a rule where its setting was left alone, and where it was set.
macro_rules! reads {
    ($plain:expr; $($setter:ident($($value:expr),*) => $getter:ident: $before:expr, $after:expr;)*) => {{
        let plain = $plain;
        $(
            assert_eq!(plain.$getter(), $before, stringify!($getter));
            let changed = plain.clone().$setter($($value),*);
            assert_eq!(changed.$getter(), $after, stringify!($getter));
        )*
        BTreeSet::from([$(stringify!($setter)),*])
    }};
}

/// Checks that `read` are all setters of `rule`.
fn all_were_read(rule: &str, read: &BTreeSet<&str>) {
    let [setters, _] = methods();
    let of_rule = setters.iter().filter(|(of, _)| of == rule);
    let names: BTreeSet<_> = of_rule.map(|(_, name)| name.as_str()).collect();
    assert_eq!(&names, read, "{rule}");
}

#[test]
fn a_flow_rule_tells_its_settings() {
    let read = reads! { FlowRule::per_second("r", 9);
        buckets(5) => get_buckets: 2, 5;
        cost("tokens") => get_cost: None, Some("tokens");
        utc_offset(60) => get_utc_offset: 0, 60;
        strict() => is_strict: false, true;
        by_origin() => is_by_origin: false, true;
        for_origin("a") => get_for_origin: None, Some("a");
        when("b") => get_when: None, Some("b");
        in_context("c") => get_in_context: None, Some("c");
        missing(MissingKey::Skip) => get_missing: None, Some(MissingKey::Skip);
        throttle(SECOND) => get_throttle: None, Some(SECOND);
        warm_up(SECOND * 2) => get_warm_up: None, Some(SECOND * 2);
        cold_factor(4.0) => get_cold_factor: None, Some(4.0);
        memory(0.5..0.8, 3) => get_memory: None, Some((0.5..0.8, 3.0));
        memory_bytes(5..8, 4) => get_memory_bytes: None, Some((5..8, 4.0));
        lend(false) => get_lend: None, Some(false);
        max_occupy_ratio(0.25) => get_max_occupy_ratio: 1.0, 0.25;
        max_waiting(7) => get_max_waiting: 10_000, 7;
        shared() => is_shared: false, true;
        exact() => is_exact: false, true;
        per_node() => is_per_node: false, true;
        when_down(WhenDown::Closed) => get_when_down: None, Some(WhenDown::Closed);
        local_limit(6) => get_local_limit: None, Some(6);
        store_wait(SECOND * 3) => get_store_wait: None, Some(SECOND * 3);
        id("i") => get_id: None, Some("i");
    };
    all_were_read("FlowRule", &read);
    let others = FlowRule::per_second("r", 9).for_origin("other");
    assert_eq!(others.get_for_origin(), Some("other"));
    // Of the two ways to set the memory, the getter of the other one has nothing.
    let bytes = FlowRule::per_second("r", 9).memory_bytes(5..8, 4);
    assert_eq!(bytes.get_memory(), None);
    assert_eq!(bytes.memory(0.5..0.8, 3).get_memory_bytes(), None);
}

#[test]
fn a_keyed_rule_tells_its_settings() {
    let read = reads! { KeyedRule::per_second("r", 9);
        param("p") => get_param: None, Some("p");
        param_at(-1) => get_param_at: Some(0), Some(-1);
        by_origin() => is_by_origin: false, true;
        burst(3) => get_burst: 0, 3;
        capacity(12) => get_capacity: None, Some(12);
        cost("tokens") => get_cost: None, Some("tokens");
        window() => is_window: false, true;
        throttle(SECOND) => get_throttle: None, Some(SECOND);
        queue(SECOND * 2) => get_queue: None, Some(SECOND * 2);
        max_waiting(7) => get_max_waiting: 1_000, 7;
        except("a", 2) => get_except: [], [("a".to_owned(), 2.0)];
        except_unlimited("c") => get_except_unlimited: [""; 0], ["c"];
        tier("b", 4) => get_tier: [], [("b".to_owned(), 4.0)];
        tier_unlimited("d") => get_tier_unlimited: [""; 0], ["d"];
        max_keys(500) => get_max_keys: 65_536, 500;
        utc_offset(-300) => get_utc_offset: 0, -300;
        block_for(SECOND * 9) => get_block_for: None, Some(SECOND * 9);
        missing(MissingKey::Skip) => get_missing: MissingKey::Share, MissingKey::Skip;
        shared() => is_shared: false, true;
        exact() => is_exact: false, true;
        per_node() => is_per_node: false, true;
        when_down(WhenDown::Closed) => get_when_down: None, Some(WhenDown::Closed);
        local_limit(6) => get_local_limit: None, Some(6);
        store_wait(SECOND * 3) => get_store_wait: None, Some(SECOND * 3);
        id("i") => get_id: None, Some("i");
    };
    all_were_read("KeyedRule", &read);
    assert!(KeyedRule::concurrency("r", 9).is_concurrency());
    let rate = KeyedRule::per_second("r", 9);
    assert!(!rate.is_concurrency());
    assert_eq!(rate.calendar(), None);
    let day = FlowRule::per_calendar_day("r", 9);
    assert_eq!(day.calendar(), Some(CalendarPeriod::Day));
    assert_eq!(FlowRule::per_second("r", 9).calendar(), None);
    let month = KeyedRule::per_calendar_month("r", 9);
    assert_eq!(month.calendar(), Some(CalendarPeriod::Month));
    assert_eq!(month.interval(), SECOND * 31 * 86_400);
    assert_eq!(rate.clone().capacity(12).get_burst(), 3);
    assert_eq!(rate.clone().param("p").get_param_at(), None);
    assert_eq!(rate.by_origin().get_param_at(), None);
}

#[test]
fn a_circuit_breaker_tells_its_settings() {
    let read = reads! { CircuitBreakerRule::error_ratio("r", 0.5);
        open_for(SECOND) => get_open_for: SECOND * 10, SECOND;
        open_up_to(SECOND * 60) => get_open_up_to: None, Some(SECOND * 60);
        min_calls(3) => get_min_calls: None, Some(3);
        interval(SECOND * 5) => get_interval: SECOND, SECOND * 5;
        last_calls(20) => get_last_calls: None, Some(20);
        buckets(4) => get_buckets: None, Some(4);
        probes(2) => get_probes: 1, 2;
        exceeds() => get_exceeds: false, true;
        count_cancelled_as_slow(false) => get_count_cancelled_as_slow: true, false;
        id("i") => get_id: None, Some("i");
    };
    all_were_read("CircuitBreakerRule", &read);
    let thresholds = |rule: CircuitBreakerRule| {
        let ratios = (
            rule.get_max_rt(),
            rule.get_slow_ratio(),
            rule.get_error_ratio(),
        );
        (
            ratios,
            rule.get_error_count(),
            rule.get_consecutive_errors(),
        )
    };
    let none = (None, None, None);
    for (rule, expected) in [
        (
            CircuitBreakerRule::slow_ratio("r", SECOND, 0.5),
            ((Some(SECOND), Some(0.5), None), None, None),
        ),
        (
            CircuitBreakerRule::error_ratio("r", 0.5),
            ((None, None, Some(0.5)), None, None),
        ),
        (
            CircuitBreakerRule::error_count("r", 3),
            (none, Some(3), None),
        ),
        (
            CircuitBreakerRule::consecutive_errors("r", 4),
            (none, None, Some(4)),
        ),
    ] {
        assert_eq!(thresholds(rule), expected);
    }
}

#[test]
fn rules_of_other_kinds_tell_their_settings() {
    let read = reads! { IsolationRule::new("r", 9);
        for_origin("other") => get_for_origin: None, Some("other");
        when("s") => get_when: None, Some("s");
        queue(SECOND) => get_queue: None, Some(SECOND);
        max_waiting(7) => get_max_waiting: 10_000, 7;
        id("i") => get_id: None, Some("i");
    };
    all_were_read("IsolationRule", &read);
    let read = reads! { AdaptiveRule::new("r");
        floor(2) => get_floor: 1, 2;
        ceiling(50) => get_ceiling: 200, 50;
        start(10) => get_start: None, Some(10);
        burst(SECOND) => get_burst: SECOND / 2, SECOND;
        id("i") => get_id: None, Some("i");
    };
    all_were_read("AdaptiveRule", &read);
    let read = reads! { AuthorityRule::deny("r", ["a"]);
        deny_unknown() => get_deny_unknown: false, true;
        id("i") => get_id: None, Some("i");
    };
    all_were_read("AuthorityRule", &read);
    assert!(AuthorityRule::allow("r", ["a"]).is_allow());
    assert!(!AuthorityRule::deny("r", ["a"]).is_allow());
    let read = reads! { SystemRule::new();
        load(2.5) => get_load: None, Some(2.5);
        cpu(0.5) => get_cpu: None, Some(0.5);
        qps(100) => get_qps: None, Some(100.0);
        rt(SECOND) => get_rt: None, Some(SECOND);
        concurrency(8) => get_concurrency: None, Some(8);
        capacity(Capacity::Sentinel) => get_capacity: Capacity::Robust, Capacity::Sentinel;
        id("i") => get_id: None, Some("i");
    };
    all_were_read("SystemRule", &read);
}
