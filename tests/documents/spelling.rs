//! One spelling for each name, two for those who write, and the places of what is wrong.

use serde_json::{Value, json};
use tower_sentinel::call::Direction;
use tower_sentinel::document::{Document, Format, Kind};
use tower_sentinel::read::Scope;
use tower_sentinel::stat::{Event, Outcome};
use tower_sentinel::system::{Capacity, SystemReason};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    MissingKey, Rule, Rules, SystemRule,
};

use super::lines;

fn own(rule: &Value) -> Document {
    let text = json!({"rules": [rule]}).to_string();
    Document::read(&text, Format::Json).unwrap()
}

fn one_of_each_kind() -> [(Rule, Option<BlockKind>, Option<Kind>); 7] {
    [
        (
            FlowRule::per_second("a", 1).into(),
            Some(BlockKind::Flow),
            Some(Kind::Flow),
        ),
        (
            IsolationRule::new("a", 1).into(),
            Some(BlockKind::Isolation),
            Some(Kind::Isolation),
        ),
        (AdaptiveRule::new("a").into(), None, None),
        (
            CircuitBreakerRule::error_ratio("a", 0.5).into(),
            Some(BlockKind::CircuitBreaker),
            Some(Kind::CircuitBreaker),
        ),
        (
            AuthorityRule::deny("a", ["x"]).into(),
            Some(BlockKind::Authority),
            Some(Kind::Authority),
        ),
        (
            SystemRule::new().qps(1).into(),
            Some(BlockKind::System),
            Some(Kind::System),
        ),
        (
            KeyedRule::per_second("a", 1).into(),
            Some(BlockKind::Keyed),
            Some(Kind::HotParam),
        ),
    ]
}

#[test]
fn a_kind_has_one_name_in_rules_refusals_documents_and_messages() {
    for (rule, refusal, kind) in one_of_each_kind() {
        let name = rule.kind();
        for of_kind in [refusal.map(BlockKind::as_str), kind.map(Kind::as_str)] {
            // The kind of Sentinel's own files keeps the name that it has there.
            let ours = of_kind.map(|it| if it == "hot-param" { "keyed" } else { it });
            assert!(ours.is_none_or(|it| it == name), "{name}: {of_kind:?}");
        }
        assert_eq!(rule.clone().shadow().kind(), name);
        let document = Document::from_rules(&Rules::from(rule.clone()));
        let written = super::json(&document);
        assert_eq!(written["rules"][0]["kind"], name);
        // As the id of a second rule that has its name.
        let id = format!("{name}-1");
        let mut named = written["rules"][0].clone();
        named["id"] = json!(id);
        let text = json!({"rules": [named, written["rules"][0]]}).to_string();
        let told = lines(&Document::read(&text, Format::Json).unwrap());
        let of_id = format!("rules[1].id is \"{id}\"");
        assert!(told.iter().any(|line| line.starts_with(&of_id)), "{told:?}");
    }
}

#[test]
fn every_name_is_what_is_displayed() {
    let names: Vec<(&str, String)> = [
        BlockKind::Flow,
        BlockKind::Isolation,
        BlockKind::Keyed,
        BlockKind::CircuitBreaker,
        BlockKind::Authority,
        BlockKind::System,
        BlockKind::NoTimer,
        BlockKind::MissingKey,
    ]
    .map(|it| (it.as_str(), it.to_string()))
    .into_iter()
    .chain([Event::Pass, Event::Occupied].map(|it| (it.as_str(), it.to_string())))
    .chain([Outcome::Success, Outcome::Ignore].map(|it| (it.as_str(), it.to_string())))
    .chain([Direction::Inbound, Direction::Outbound].map(|it| (it.as_str(), it.to_string())))
    .chain([SystemReason::Qps, SystemReason::Cpu].map(|it| (it.as_str(), it.to_string())))
    .chain([Capacity::Robust, Capacity::Sentinel].map(|it| (it.as_str(), it.to_string())))
    .chain([MissingKey::Share, MissingKey::Refuse].map(|it| (it.as_str(), it.to_string())))
    .chain([Format::Json, Format::Toml].map(|it| (it.as_str(), it.to_string())))
    .chain([Kind::Flow, Kind::HotParam].map(|it| (it.as_str(), it.to_string())))
    .chain([Scope::Resource, Scope::OverflowOrigins].map(|it| {
        let text = it.to_string();
        (it.as_str(), text)
    }))
    .collect();
    for (name, text) in names {
        assert_eq!(name, text);
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(name.chars().all(is_plain), "{name}");
    }
}

#[test]
fn hyphens_and_underscores_are_the_same() {
    let by_hand = own(&json!({
        "kind": "circuit-breaker", "resource": "a", "slow_ratio": 0.5, "max_rt": "1s",
        "open_for": "5s", "count_cancelled_as_slow": false,
    }));
    let other = own(&json!({
        "kind": "circuit_breaker", "resource": "a", "slow-ratio": 0.5, "max-rt": "1s",
        "open-for": "5s", "count-cancelled_as-slow": false,
    }));
    assert_eq!(super::strict(&other), super::strict(&by_hand));
    let other = own(&json!({
        "kind": "keyed", "resource": "a", "threshold": 1, "max-keys": 7, "param-at": 1,
    }));
    let by_hand = KeyedRule::per_second("a", 1).max_keys(7).param_at(1);
    assert_eq!(super::strict(&other), by_hand.into());
    // A message names a key as it is written.
    let bad = own(&json!({"kind": "flow", "resource": "a", "threshold": 1, "warm-up": "5x"}));
    assert!(lines(&bad)[0].starts_with("rules[0].warm-up is \"5x\", must be a time"));
    // Out of range, which the rule itself tells.
    let bad = own(&json!({"kind": "flow", "resource": "a", "threshold": 1, "for-origin": ""}));
    assert!(lines(&bad)[0].starts_with("rules[0].for-origin is \"\", must be a name"));
    let twice = own(&json!({
        "kind": "flow", "resource": "a", "threshold": 1, "warm_up": "5s", "warm-up": "6s",
    }));
    let told = lines(&twice);
    let [first, second] = ["warm_up", "warm-up"];
    let either = |read: &str, other: &str| {
        told == [format!(
            "rules[0].{other} is {}, must be absent beside `{read}`, which is the same key",
            if other == "warm-up" {
                "\"6s\""
            } else {
                "\"5s\""
            }
        )]
    };
    assert!(either(first, second) || either(second, first), "{told:?}");
    // Those of Sentinel have capitals instead.
    let java = json!([{"resource": "a", "count": 1, "limit-app": "x"}]);
    let document = Document::read_sentinel(&java.to_string(), Kind::Flow).unwrap();
    assert_eq!(
        lines(&document),
        ["[0].limit-app is \"x\": not known and so ignored, did you mean `limitApp`?"]
    );
}

#[test]
fn a_keyed_rule_is_also_read_by_the_name_of_sentinel() {
    let read = |kind| {
        let rule = json!({"kind": kind, "resource": "a", "threshold": 2, "param": "user"});
        own(&rule).strict().unwrap()
    };
    for name in ["hot-param", "hot_param"] {
        assert_eq!(read(name).iter().next(), read("keyed").iter().next());
    }
    assert_eq!(read("hot-param").iter().count(), 1);
}

#[test]
fn a_name_that_is_nearly_right_is_proposed() {
    for (rule, told) in [
        (
            json!({"kind": "flows", "resource": "a", "threshold": 1}),
            "; did you mean \"flow\"?",
        ),
        (
            json!({"kind": "flwo", "resource": "a", "threshold": 1}),
            "; did you mean \"flow\"?",
        ),
        (
            json!({"kind": "flow", "resource": "a", "threshold": 1, "lned": true}),
            "lned is not known, did you mean `lend`?",
        ),
        (
            json!({"kind": "circuitbreaker", "resource": "a"}),
            "; did you mean \"circuit-breaker\"?",
        ),
        (
            json!({"kind": "Hot-Params", "resource": "a"}),
            "; did you mean \"hot-param\"?",
        ),
        (
            json!({"kind": "quota", "resource": "a"}),
            "\"system\", \"keyed\", \"hot-param\"",
        ),
        (
            json!({
                "kind": "flow", "resource": "a", "threshold": 1, "by_origin": true,
                "missing": "Refuse",
            }),
            "\"refuse\"; did you mean \"refuse\"?",
        ),
        (
            json!({"kind": "system", "qps": 1, "capacity": "robus"}),
            "\"sentinel\"; did you mean \"robust\"?",
        ),
    ] {
        let line = lines(&own(&rule)).remove(0);
        assert!(line.ends_with(told), "{line}");
    }
}

/// Asserts that the problems of a text with these `paths`, in the order of their places, are
/// where `«` stands in `marked`.
fn assert_places(marked: &str, format: Format, paths: &[&str]) {
    let mut text = String::new();
    let mut marks = Vec::new();
    for (index, part) in marked.split('«').enumerate() {
        if index > 0 {
            let start = text.rfind('\n').map_or(0, |at| at + 1);
            let line = text.matches('\n').count() + 1;
            marks.push((line, text.len() - start + 1));
        }
        text.push_str(part);
    }
    let expected: Vec<_> = marks.into_iter().zip(paths.iter().copied()).collect();
    assert_eq!(expected.len(), paths.len());
    // The mark of the byte order takes no place.
    for text in [&text, &format!("\u{feff}{text}")] {
        let mut found = places(text, format);
        found.sort();
        let found: Vec<_> = found
            .iter()
            .map(|(place, path)| (*place, &**path))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

/// The places of the problems of `text`, with their paths.
fn places(text: &str, format: Format) -> Vec<((usize, usize), String)> {
    let document = Document::read(text, format).unwrap();
    let problems = document.problems().iter().map(|problem| {
        let (line, column) = problem.line().zip(problem.column()).unwrap();
        let start = format!("line {line}, column {column}: {}", problem.path());
        assert!(problem.to_string().starts_with(&start), "{problem}");
        ((line, column), problem.path().to_owned())
    });
    problems.collect()
}

#[test]
fn a_problem_in_toml_has_line_and_column() {
    let text = "# ümlaut
[[rules]]
kind = 'flow'
resource = 'a'
threshold = 1
  «interval = '5x'
«tresholds = 2

«[[rules]]
kind = 'isolation'
resource = 'b'

[[rules]]
kind = 'keyed'
resource = 'c'
threshold = 1
except = [
  { value = 'ö', threshold = 1 },
  { «value = 5, threshold = 1 },
  «7,
]
«'ö [.\"ä' = 1
[[rules.tier]]
name = 'pro'
«threshold = 'x'
";
    let paths = [
        "rules[0].interval",
        "rules[0].tresholds",
        "rules[1].max",
        "rules[2].except[1].value",
        "rules[2].except[2]",
        r#"rules[2]["ö [.\"ä"]"#,
        "rules[2].tier[0].threshold",
    ];
    assert_places(text, Format::Toml, &paths);
}

#[test]
fn a_problem_in_json_has_line_and_column() {
    let text = r#"{
  "rules": [
    {"kind": "flow", "resource": "ö \"[]{}\\", "threshold": 1, «"interval" : "5x"},
    «{"kind":"isolation","resource":"b"} , «7,
    {"kind": "keyed", "resource": "c", "threshold": 1.5e0, "window": true,
     "except":[{"value":"x","threshold":1},{ «"value": null, "threshold":1 } ],
     «"ö [.\"ä": [[], {}, "]"], "tier": [ ], «"tresholds":{}}
  ], «"other" : [ { } ]
}"#;
    let paths = [
        "rules[0].interval",
        "rules[1].max",
        "rules[2]",
        "rules[3].except[1].value",
        r#"rules[3]["ö [.\"ä"]"#,
        "rules[3].tresholds",
        "other",
    ];
    assert_places(text, Format::Json, &paths);
    // Of Sentinel's, whose list is the whole document.
    let text = "[\n {\"resource\": \"a\", «\"count\": -1},\n «{\"count\": 1}]";
    assert_places(text, Format::Json, &["[0].count", "[1].resource"]);
}

#[test]
fn a_problem_of_no_place_has_none() {
    for (format, text) in [(Format::Toml, "a = 1"), (Format::Json, "{}")] {
        let document = Document::read(text, format).unwrap();
        let problem = &document.problems().as_slice()[0];
        assert_eq!(
            (problem.line(), problem.column()),
            (None, None),
            "{problem}"
        );
        assert!(
            problem.to_string().starts_with("rules is missing"),
            "{problem}"
        );
    }
}
