//! The form of this crate: every setting of every rule, there and back.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tower_sentinel::document::{Document, Format, Problem};
use tower_sentinel::rule::SystemRule;
use tower_sentinel::system::Capacity;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    MissingKey, Rule, Rules,
};

use super::{ms, strict};

/// Every setting of every rule, and the rule that one would write by hand.
pub(super) fn everything() -> Vec<(Value, Rule)> {
    let mut all = limits();
    all.extend(protections());
    all.extend(keyed_rules());
    all
}

fn limits() -> Vec<(Value, Rule)> {
    vec![
        (
            json!({
                "kind": "flow", "resource": "/a", "threshold": 12.5, "interval": "1m30s",
                "buckets": 9, "strict": true, "for_origin": "shop", "lend": true,
                "max_occupy_ratio": 0.25, "max_waiting": 7, "id": "a-1",
            }),
            FlowRule::per("/a", 12.5, ms(90_000))
                .buckets(9)
                .strict()
                .for_origin("shop")
                .lend(true)
                .max_occupy_ratio(0.25)
                .max_waiting(7)
                .id("a-1")
                .into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/a", "threshold": 200_000, "interval": "1m",
                "cost": "tokens",
            }),
            FlowRule::per_minute("/a", 200_000).cost("tokens").into(),
        ),
        (
            json!({
                "kind": "isolation", "resource": "/s", "max": 3, "id": "tight", "shadow": true,
            }),
            IsolationRule::new("/s", 3).id("tight").shadow(),
        ),
        (
            json!({
                "kind": "isolation", "resource": "/s", "max": 3, "queue": "2s", "max_waiting": 9,
            }),
            IsolationRule::new("/s", 3)
                .queue(ms(2_000))
                .max_waiting(9)
                .into(),
        ),
        (
            json!({"kind": "isolation", "resource": "/s", "max": 3, "for_origin": "shop"}),
            IsolationRule::new("/s", 3).for_origin("shop").into(),
        ),
        (
            json!({"kind": "isolation", "resource": "/s", "max": 3, "when": "/t"}),
            IsolationRule::new("/s", 3).when("/t").into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/m", "threshold": 30,
                "memory": "0.7..0.9", "memory_threshold": 5,
            }),
            FlowRule::per_second("/m", 30).memory(0.7..0.9, 5).into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/m", "threshold": 30,
                "memory_bytes": "1048576..9007199254740993", "memory_threshold": 5,
            }),
            FlowRule::per_second("/m", 30)
                .memory_bytes(1_048_576..9_007_199_254_740_993, 5)
                .into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/a", "threshold": 3, "interval": "2s",
                "for_origin": "shop", "throttle": "250ms", "warm_up": "10s", "cold_factor": 4,
            }),
            FlowRule::per("/a", 3, ms(2_000))
                .for_origin("shop")
                .throttle(ms(250))
                .warm_up(ms(10_000))
                .cold_factor(4.0)
                .into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/b", "threshold": 0, "for_origin": "other",
                "lend": false,
            }),
            FlowRule::per_second("/b", 0)
                .for_origin("other")
                .lend(false)
                .into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "read", "threshold": 5, "when": "write",
            }),
            FlowRule::per_second("read", 5).when("write").into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "db", "threshold": 5, "in_context": "batch",
            }),
            FlowRule::per_second("db", 5).in_context("batch").into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/c", "threshold": 1, "by_origin": true,
                "missing": "skip",
            }),
            FlowRule::per_second("/c", 1)
                .by_origin()
                .missing(MissingKey::Skip)
                .into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/d", "threshold": 1, "by_origin": true,
                "missing": "share",
            }),
            FlowRule::per_second("/d", 1)
                .by_origin()
                .missing(MissingKey::Share)
                .into(),
        ),
        (
            json!({"kind": "flow", "resource": "*", "threshold": 5, "interval": "1m"}),
            FlowRule::per("*", 5, ms(60_000)).into(),
        ),
        (
            json!({"kind": "isolation", "resource": "/a", "max": 8, "id": "eight"}),
            IsolationRule::new("/a", 8).id("eight").into(),
        ),
        (
            json!({
                "kind": "adaptive", "resource": "/a", "floor": 2, "ceiling": 500, "start": 9,
                "burst": "2s", "id": "self",
            }),
            AdaptiveRule::new("/a")
                .floor(2)
                .ceiling(500)
                .start(9)
                .burst(std::time::Duration::from_secs(2))
                .id("self")
                .into(),
        ),
    ]
}

fn protections() -> Vec<(Value, Rule)> {
    vec![
        (
            json!({
                "kind": "circuit-breaker", "resource": "*", "slow_ratio": 0.5, "max_rt": "300ms",
                "exceeds": true, "min_calls": 20, "open_for": "5s", "open_up_to": "1m", "interval": "30s",
                "buckets": 3, "probes": 2, "count_cancelled_as_slow": false, "id": "slow",
            }),
            CircuitBreakerRule::slow_ratio("*", ms(300), 0.5)
                .exceeds()
                .min_calls(20)
                .open_for(ms(5_000))
                .open_up_to(ms(60_000))
                .interval(ms(30_000))
                .buckets(3)
                .probes(2)
                .count_cancelled_as_slow(false)
                .id("slow")
                .into(),
        ),
        (
            json!({"kind": "circuit-breaker", "resource": "/a", "error_ratio": 0.1}),
            CircuitBreakerRule::error_ratio("/a", 0.1).into(),
        ),
        (
            json!({"kind": "circuit-breaker", "resource": "/a", "error_count": 50}),
            CircuitBreakerRule::error_count("/a", 50).into(),
        ),
        (
            json!({
                "kind": "circuit-breaker", "resource": "/a", "error_ratio": 0.5,
                "last_calls": 20, "min_calls": 10,
            }),
            CircuitBreakerRule::error_ratio("/a", 0.5)
                .last_calls(20)
                .min_calls(10)
                .into(),
        ),
        (
            json!({"kind": "circuit-breaker", "resource": "/a", "consecutive_errors": 5}),
            CircuitBreakerRule::consecutive_errors("/a", 5).into(),
        ),
        (
            json!({"kind": "circuit-breaker", "resource": "/a", "pushback": true}),
            CircuitBreakerRule::pushback("/a").into(),
        ),
        (
            json!({"kind": "circuit-breaker", "resource": "/a", "pushback": true, "open_up_to": "5m"}),
            CircuitBreakerRule::pushback("/a")
                .open_up_to(ms(300_000))
                .into(),
        ),
        (
            json!({
                "kind": "authority", "resource": "/a", "allow": ["shop", "office"],
                "deny_unknown": true, "id": "who",
            }),
            AuthorityRule::allow("/a", ["shop", "office"])
                .deny_unknown()
                .id("who")
                .into(),
        ),
        (
            json!({"kind": "authority", "resource": "/a", "deny": ["::1"]}),
            AuthorityRule::deny("/a", ["::1"]).into(),
        ),
        (
            json!({
                "kind": "system", "qps": 1000, "load": 2.5, "cpu": 0.85, "rt": "400ms",
                "concurrency": 64, "capacity": "sentinel", "id": "machine",
            }),
            SystemRule::new()
                .qps(1_000)
                .load(2.5)
                .cpu(0.85)
                .rt(ms(400))
                .concurrency(64)
                .capacity(Capacity::Sentinel)
                .id("machine")
                .into(),
        ),
    ]
}

fn keyed_rules() -> Vec<(Value, Rule)> {
    vec![
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 2.5, "interval": "1m",
                "param": "user", "burst": 3, "max_keys": 1000, "missing": "skip", "id": "hot",
                "except": [{"value": "7", "threshold": 1}, {"value": "7", "threshold": 0.5}],
                "except_unlimited": ["8", "9"],
                "tier": [{"name": "pro", "threshold": 100}], "tier_unlimited": ["enterprise"],
            }),
            KeyedRule::per("/a", 2.5, ms(60_000))
                .param("user")
                .burst(3)
                .max_keys(1_000)
                .missing(MissingKey::Skip)
                .except("7", 1)
                .except("7", 0.5)
                .except_unlimited("8")
                .except_unlimited("9")
                .tier("pro", 100)
                .tier_unlimited("enterprise")
                .id("hot")
                .into(),
        ),
        (
            json!({"kind": "keyed", "resource": "/a", "threshold": 2, "interval": "50us", "capacity": 7}),
            KeyedRule::per("/a", 2, ms(1) / 20).capacity(7).into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 5, "interval": "1m",
                "block_for": "1h",
            }),
            KeyedRule::per_minute("/a", 5)
                .block_for(ms(3_600_000))
                .into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 2_000_000, "calendar": "month",
                "utc_offset": -300, "tier": [{"name": "pro", "threshold": 20_000_000}],
            }),
            KeyedRule::per_calendar_month("/a", 2_000_000)
                .utc_offset(-300)
                .tier("pro", 20_000_000)
                .into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 5_000_000, "calendar": "day",
                "cost": "tokens",
            }),
            KeyedRule::per_calendar_day("/a", 5_000_000)
                .cost("tokens")
                .into(),
        ),
        (
            json!({
                "kind": "flow", "resource": "/a", "threshold": 50_000_000, "calendar": "month",
                "utc_offset": 60, "cost": "tokens",
            }),
            FlowRule::per_calendar_month("/a", 50_000_000)
                .utc_offset(60)
                .cost("tokens")
                .into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 2, "param_at": -1,
                "window": true,
            }),
            KeyedRule::per_second("/a", 2).param_at(-1).window().into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 10_000, "interval": "1m",
                "cost": "tokens", "tier": [{"name": "pro", "threshold": 60_000}],
            }),
            KeyedRule::per_minute("/a", 10_000)
                .cost("tokens")
                .tier("pro", 60_000)
                .into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "threshold": 2, "by_origin": true,
                "throttle": "2s",
            }),
            KeyedRule::per_second("/a", 2)
                .by_origin()
                .throttle(ms(2_000))
                .into(),
        ),
        (
            json!({"kind": "keyed", "resource": "/a", "concurrency": 4}),
            KeyedRule::concurrency("/a", 4).into(),
        ),
        (
            json!({
                "kind": "keyed", "resource": "/a", "concurrency": 4, "queue": "2s",
                "max_waiting": 9,
            }),
            KeyedRule::concurrency("/a", 4)
                .queue(ms(2_000))
                .max_waiting(9)
                .into(),
        ),
    ]
}

fn read(rules: &[Value]) -> Document {
    Document::read(&json!({ "rules": rules }).to_string(), Format::Json).unwrap()
}

#[test]
fn every_setting_is_read_as_its_builder_method_sets_it() {
    for (table, rule) in everything() {
        let rules = strict(&read(std::slice::from_ref(&table)));
        assert_eq!(rules.iter().collect::<Vec<_>>(), [&rule], "{table}");
    }
}

#[test]
fn no_setting_is_read_and_forgotten() {
    for (table, rule) in everything() {
        for key in table.as_object().unwrap().keys() {
            let mut without = table.as_object().unwrap().clone();
            without.remove(key);
            let document = read(&[Value::Object(without)]);
            let same = document
                .strict()
                .is_ok_and(|rules| rules.iter().eq([&rule]));
            assert!(!same, "without {key} it is the same: {table}");
        }
    }
}

/// The names of the public methods in `source` that return the rule.
fn builders(source: &str) -> impl Iterator<Item = &str> {
    source.split("pub fn ").skip(1).filter_map(|rest| {
        let signature = rest.split('{').next()?;
        let name = signature.split('(').next()?;
        signature.contains("-> Self").then_some(name)
    })
}

#[test]
fn every_builder_method_has_its_key() {
    let sources = [
        (
            "flow",
            concat!(
                include_str!("../../src/rule/flow/mod.rs"),
                include_str!("../../src/rule/shaping.rs")
            ),
            16,
        ),
        (
            "isolation",
            include_str!("../../src/rule/isolation/setters.rs"),
            4,
        ),
        (
            "adaptive",
            include_str!("../../src/rule/adaptive/mod.rs"),
            5,
        ),
        (
            "circuit-breaker",
            include_str!("../../src/rule/circuit_breaker/setters.rs"),
            11,
        ),
        (
            "authority",
            include_str!("../../src/rule/authority/setters.rs"),
            6,
        ),
        (
            "system",
            include_str!("../../src/rule/system/setters.rs"),
            8,
        ),
        (
            "keyed",
            include_str!("../../src/rule/keyed_rule/mod.rs"),
            15,
        ),
    ];
    let page = include_str!("../../src/document/mod.rs");
    for (kind, source, least) in sources {
        let keys: BTreeSet<String> = everything()
            .into_iter()
            .filter(|(table, _)| table["kind"] == kind)
            .flat_map(|(table, _)| table.as_object().unwrap().clone().into_iter())
            .map(|(key, _)| key)
            .collect();
        let names: BTreeSet<&str> = builders(source).collect();
        assert!(
            names.len() >= least,
            "only {} methods of {kind}",
            names.len()
        );
        for name in names {
            let key = match name {
                "new" | "per" | "per_second" | "per_minute" | "per_hour" => continue,
                "allow_list" => "allow",
                "deny_list" => "deny",
                name => name,
            };
            assert!(keys.contains(key), "{kind} has no {key}");
        }
        let row = page
            .lines()
            .find(|line| line.contains(&format!("| `{kind}` (")));
        let all_kinds_have = |key: &&String| ["kind", "shadow"].contains(&key.as_str());
        for key in keys.iter().filter(|key| !all_kinds_have(key)) {
            assert!(row.unwrap().contains(&format!("`{key}`")), "{kind}: {key}");
        }
    }
}

#[test]
fn rules_go_from_one_syntax_to_the_other_and_back() {
    let mut rules = Rules::new();
    for (index, (_, rule)) in everything().into_iter().enumerate() {
        // One adaptive rule and one id of each name are all that a set may have.
        rules = rules
            .try_with(rule)
            .unwrap_or_else(|error| panic!("{index}: {error}"));
    }
    let first = Document::from_rules(&rules);
    assert_eq!(strict(&first), rules);
    let json = first.write(Format::Json);
    let second = Document::read(&json, Format::Json).unwrap();
    assert_eq!(strict(&second), rules);
    assert_eq!(second.write(Format::Json), json);
    let toml = second.write(Format::Toml);
    let third = Document::read(&toml, Format::Toml).unwrap();
    assert_eq!(strict(&third), rules);
    assert_eq!(
        third.write(Format::Toml),
        Document::read(&toml, Format::Toml)
            .unwrap()
            .write(Format::Toml)
    );
    let back = Document::read(&third.write(Format::Json), Format::Json).unwrap();
    assert_eq!(strict(&back), rules);
    assert_eq!(super::json(&back), super::json(&first));
}

#[test]
fn a_rule_that_is_put_into_shadow_mode_twice_by_hand_is_written_once() {
    let shadow = FlowRule::per_second("/a", 5).shadow();
    let twice = Rules::from(Rule::Shadow(Box::new(shadow.clone())));
    for format in [Format::Json, Format::Toml] {
        let text = Document::from_rules(&twice).write(format);
        let again = Document::read(&text, format).unwrap();
        assert_eq!(strict(&again), Rules::from(shadow.clone()));
    }
}

#[test]
fn what_was_read_is_what_is_written() {
    let tables: Vec<Value> = everything().into_iter().map(|(table, _)| table).collect();
    let document = read(&tables);
    assert_eq!(super::json(&document), json!({ "rules": tables }));
    // The words of everybody's rules are those of the documents.
    let from_rules = Document::from_rules(&strict(&document));
    for (table, written) in tables
        .iter()
        .zip(super::json(&from_rules)["rules"].as_array().unwrap())
    {
        let written = written.as_object().unwrap();
        let is_default = |key: &str| matches!(key, "interval" | "open_for");
        let kept: Map<_, _> = written
            .iter()
            .filter(|(key, _)| !is_default(key) || table.get(key).is_some())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(Value::Object(kept), *table);
    }
}

#[test]
fn what_has_its_default_is_not_written() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/a", 1))
        .with(AdaptiveRule::new("/a"))
        .with(KeyedRule::per_second("/a", 1));
    let expected = json!({"rules": [
        {"kind": "flow", "resource": "/a", "threshold": 1, "interval": "1s"},
        {"kind": "adaptive", "resource": "/a"},
        {"kind": "keyed", "resource": "/a", "threshold": 1, "interval": "1s"},
    ]});
    assert_eq!(super::json(&Document::from_rules(&rules)), expected);
}

#[test]
fn a_document_of_toml_reads_as_people_write_it() {
    let text = r#"
        # Who may do what.
        [[rules]]
        kind = "authority"
        resource = "/admin"
        allow = "10.0.0.1, office"

        [[rules]]
        kind = "keyed"
        resource = "/search"
        threshold = 10
        interval = 60
        except = [{ value = "crawler", threshold = 1 }]
        [[rules.tier]]
        name = "pro"
        threshold = 1_000

        [[rules]]
        kind = "flow"
        resource = "/pay"
        threshold = 10.0
        interval = 0.5
        strict = false
    "#;
    let rules = Rules::new()
        .with(AuthorityRule::allow("/admin", ["10.0.0.1", "office"]))
        .with(
            KeyedRule::per("/search", 10, ms(60_000))
                .except("crawler", 1)
                .tier("pro", 1_000),
        )
        .with(FlowRule::per("/pay", 10, ms(500)));
    assert_eq!(strict(&Document::read(text, Format::Toml).unwrap()), rules);
}

#[test]
fn origins_may_stand_between_the_commas_of_one_text() {
    let document =
        read(&[json!({"kind": "authority", "resource": "/a", "deny": "shop, ,office,"})]);
    let expected = AuthorityRule::deny("/a", ["shop", "office"]);
    assert_eq!(strict(&document), expected.into());
}

#[test]
fn a_list_may_be_empty_but_must_be_there() {
    for (format, text) in [
        (Format::Toml, "rules = []"),
        (Format::Json, r#"{"rules": []}"#),
        (Format::Json, "[]"),
    ] {
        assert!(strict(&Document::read(text, format).unwrap()).is_empty());
    }
    for (format, text) in [(Format::Toml, ""), (Format::Json, "{}")] {
        let document = Document::read(text, format).unwrap();
        assert_eq!(
            super::lines(&document),
            ["rules is missing, must be a list of tables, which may be empty"]
        );
        assert!(document.strict().is_err());
    }
}

#[test]
fn a_setting_of_older_versions_is_warned_of_and_changes_nothing() {
    let text = r#"{"rules": [
        {"kind": "adaptive", "resource": "/a", "tolerance": 1.5, "smoothing": 0.3, "floor": 2},
        {"kind": "isolation", "resource": "/a", "max": 3, "tolerance": 1.5}
    ]}"#;
    let document = Document::read(text, Format::Json).unwrap();
    let told: Vec<_> = document
        .problems()
        .warnings()
        .map(ToString::to_string)
        .collect();
    let note = "ignored, as rules have no such setting any more";
    assert_eq!(
        told,
        [
            format!("line 2, column 48: rules[0].tolerance is 1.5: {note}"),
            format!("line 2, column 66: rules[0].smoothing is 0.3: {note}"),
        ]
    );
    let rules = Rules::new().with(AdaptiveRule::new("/a").floor(2));
    assert_eq!(document.lenient().0, rules);
    // Another kind never had it.
    let refused: Vec<_> = document.problems().errors().map(Problem::path).collect();
    assert_eq!(refused, ["rules[1].tolerance"]);
}
