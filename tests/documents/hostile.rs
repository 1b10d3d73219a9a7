//! Whatever comes: no panic, and what is taken is the same after a round trip.

use super::lines;
use proptest::prelude::*;
use tower_sentinel::Rules;
use tower_sentinel::document::{Document, Format, Kind};

const OWN: &str = r#"{"rules": [
    {"kind": "flow", "resource": "/a", "threshold": 12.5, "interval": "1m30s", "buckets": 9,
     "strict": true, "for_origin": "shop", "lend": false, "max_waiting": 7},
    {"kind": "flow", "resource": "b", "threshold": 1, "throttle": "1s", "warm_up": 5,
     "cold_factor": 2, "in_context": "c", "id": "x"},
    {"kind": "isolation", "resource": "/a", "max": 8},
    {"kind": "adaptive", "resource": "/a", "floor": 2, "ceiling": 50, "burst": "1s"},
    {"kind": "circuit-breaker", "resource": "*", "slow_ratio": 0.3, "max_rt": "300ms"},
    {"kind": "authority", "resource": "/a", "allow": ["x", "y"], "deny_unknown": true},
    {"kind": "system", "qps": 1e3, "load": 0.1, "rt": "400ms1ns", "concurrency": 4},
    {"kind": "keyed", "resource": "/a", "threshold": 0.7, "param_at": -1, "burst": 3,
     "except": [{"value": "7", "threshold": 1}], "tier": [{"name": "p", "threshold": 2}]}
]}"#;
const TOML: &str = r#"
[[rules]]
kind = "flow"
resource = "/a"
threshold = 12.5
interval = "1m30s"

[[rules]]
kind = "keyed"
resource = "/a"
concurrency = 3
except = [{ value = "7", threshold = 1 }]
"#;
const JAVA: &str = r#"[
    {"resource": "/a", "grade": 1, "count": 0.3, "limitApp": "other", "clusterMode": false},
    {"resource": "/a", "grade": 0, "count": 8, "id": 18446744073709551615},
    {"resource": "b", "count": 5, "strategy": 2, "refResource": "web", "controlBehavior": 3},
    {"resource": "b", "threshold": 5, "tokenCalculateStrategy": 1, "warmUpPeriodSec": 3},
    {"resource": "c", "timeWindow": 3, "grade": 1, "count": 0.1},
    {"resource": "c", "paramIdx": 0, "count": 3, "paramFlowItemList": [{"object": "x"}]},
    {"qps": 7.5, "avgRt": 3, "highestSystemLoad": 1.1, "resource": "x"},
    {"metricType": 2, "triggerCount": 3, "resource": "x", "limitApp": "y"},
    {"resource": "d", "threshold": 5, "metricType": 0}
]"#;

const KINDS: [Kind; 6] = [
    Kind::Flow,
    Kind::Isolation,
    Kind::CircuitBreaker,
    Kind::Authority,
    Kind::System,
    Kind::HotParam,
];

/// What must hold for any document that can be read.
fn check(document: &Document, format: Format) {
    let (good, problems) = document.lenient();
    for problem in &problems {
        assert!(!problem.to_string().is_empty());
    }
    let strict = document.strict();
    if let Ok(rules) = &strict {
        assert_eq!(*rules, good);
    }
    // Bad or good, it can be written, in both syntaxes.
    let texts = [Format::Json, Format::Toml].map(|format| document.write(format));
    let own = Document::from_rules(&good);
    for format in [Format::Json, Format::Toml] {
        let again = Document::read(&own.write(format), format).unwrap();
        assert_eq!(again.strict().unwrap(), good);
    }
    if strict.is_ok() && format == Format::Toml {
        for (text, format) in texts.iter().zip([Format::Json, Format::Toml]) {
            let again = Document::read(text, format).unwrap();
            assert_eq!(again.strict().unwrap(), good);
        }
    }
}

/// Reads `text` in every way.
fn try_everything(text: &str) -> usize {
    let mut read = 0;
    for format in [Format::Json, Format::Toml] {
        if let Ok(document) = Document::read(text, format) {
            check(&document, format);
            read += 1;
        }
    }
    for kind in KINDS {
        let Ok(document) = Document::read_sentinel(text, kind) else {
            continue;
        };
        check(&document, Format::Json);
        let written = document.write(Format::Json);
        let again = Document::read_sentinel(&written, kind).unwrap();
        // All but the places of the problems.
        assert_eq!(again.lenient().0, document.lenient().0);
        assert_eq!(lines(&again), lines(&document));
        assert_eq!(again.write(Format::Json), written);
        read += 1;
    }
    if let Ok(document) = Document::read(text, Format::Json) {
        let is_own = document.strict().is_ok() && text.trim_start().starts_with('{');
        if is_own {
            for format in [Format::Json, Format::Toml] {
                let again = Document::read(&document.write(format), format).unwrap();
                assert_eq!(again.strict(), document.strict());
            }
        }
    }
    read
}

/// Pieces that a mutation puts in place of others.
const PIECES: [&str; 24] = [
    "",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "-1",
    "0",
    "1e308",
    "0.1",
    "nan",
    "18446744073709551615",
    "\"1d\"",
    "\"default\"",
    "\"\\u0000\"",
    "\"/{x\"",
    "\"id\"",
    "\n",
    "=",
    "9007199254740993",
];

#[derive(Clone, Debug)]
struct Mutation {
    start: prop::sample::Index,
    length: usize,
    piece: String,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let piece = prop_oneof![
        prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        any::<f64>().prop_map(|number| number.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<String>(),
    ];
    (any::<prop::sample::Index>(), 0..12_usize, piece).prop_map(|(start, length, piece)| Mutation {
        start,
        length,
        piece,
    })
}

fn mutated(text: &str, mutations: &[Mutation]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for mutation in mutations {
        let start = mutation.start.index(chars.len() + 1);
        let end = (start + mutation.length).min(chars.len());
        chars.splice(start..end, mutation.piece.chars());
    }
    chars.into_iter().collect()
}

/// A number in one of the documents becomes another one.
fn renumbered(text: &str, which: prop::sample::Index, number: &str) -> String {
    let mut parts = Vec::new();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = text;
    while let Some(start) = rest.find(is_number) {
        let tail = &rest[start..];
        let length = tail.find(|c| !is_number(c)).unwrap_or(tail.len());
        parts.push((text.len() - tail.len(), length));
        rest = &tail[length..];
    }
    let (start, length) = parts[which.index(parts.len())];
    format!("{}{number}{}", &text[..start], &text[start + length..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        try_everything(&text);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        try_everything(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_mutated_document_never_panics(
        which in 0..3_usize,
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        try_everything(&mutated([OWN, TOML, JAVA][which], &mutations));
    }

    #[test]
    fn any_number_in_any_place_is_read_back_equal(
        which in 0..3_usize,
        place in any::<prop::sample::Index>(),
        number in prop_oneof![
            any::<f64>().prop_filter("JSON has no others", |number| number.is_finite())
                .prop_map(|number| number.to_string()),
            (0.0..1e3_f64).prop_map(|number| number.to_string()),
            any::<u64>().prop_map(|number| number.to_string()),
            (0..1000_u32).prop_map(|number| number.to_string()),
        ],
    ) {
        try_everything(&renumbered([OWN, TOML, JAVA][which], place, &number));
    }
}

#[test]
fn the_documents_that_are_mutated_are_good() {
    for (text, format) in [(OWN, Format::Json), (TOML, Format::Toml)] {
        let rules: Rules = Document::read(text, format).unwrap().strict().unwrap();
        assert!(!rules.is_empty());
        assert!(try_everything(text) >= 1);
    }
    let loaded = KINDS.map(|kind| {
        let document = Document::read_sentinel(JAVA, kind).unwrap();
        document.lenient().0.len()
    });
    assert!(loaded.iter().all(|count| *count > 0), "{loaded:?}");
    assert_eq!(try_everything(JAVA), KINDS.len());
}
