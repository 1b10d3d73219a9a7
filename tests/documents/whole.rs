//! Whole documents: all rules or the good ones, and texts that are none.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, Kind, Problem, Problems};
use tower_sentinel::{AdaptiveRule, CircuitBreakerRule, FlowRule, IsolationRule, Rules};

use super::{lines, sentinel};

#[test]
fn the_good_rules_are_loaded_and_the_others_listed() {
    let list = json!([
        {"resource": "/a", "count": 1},
        {"resource": "", "count": 1},
        {"resource": "/b", "count": 2, "controlBehavior": 2, "maxQueueingTimeMs": -1},
        "rule",
        {"resource": "/users/{id}", "count": 3},
        {"resource": "/users/{name}", "count": 4},
        {"resource": "/d", "count": 5, "clusterMode": true},
    ]);
    let document = sentinel(Kind::Flow, &list);
    let (rules, problems) = document.lenient();
    let by_hand = Rules::new()
        .with(FlowRule::per_second("/a", 1))
        .with(FlowRule::per_second("/users/{id}", 3))
        .with(FlowRule::per_second("/d", 5));
    assert_eq!(rules, by_hand);
    let indices: Vec<_> = problems
        .into_iter()
        .map(|problem| problem.index())
        .collect();
    assert_eq!(indices, [1, 2, 3, 5, 6].map(Some));
    assert_eq!(document.strict().unwrap_err(), *document.problems());
    let errors = document.problems().errors().count();
    let warnings: Vec<_> = document.problems().warnings().map(Problem::path).collect();
    assert_eq!((errors, warnings), (4, vec!["[6].clusterMode"]));
    // The place of a rule in a message is that in the document.
    assert_eq!(
        lines(&document)[3],
        "[5].resource is \"/users/{name}\", must be a template that does not conflict with \
         \"/users/{id}\" of rule 4"
    );
    assert_eq!(super::json(&document), list);
}

#[test]
fn a_bad_rule_leaves_no_trace() {
    let breaker = |resource: &str, ratio: f64, id: &str| {
        json!({
            "kind": "circuit-breaker", "resource": resource, "error_ratio": ratio, "id": id,
        })
    };
    let isolation =
        |max: u32| json!({"kind": "isolation", "resource": "/a/{y}", "max": max, "id": "x"});
    let adaptive = |floor: u32| json!({"kind": "adaptive", "resource": "b", "floor": floor});
    // Its template, its id and its place among 32 breakers are free again.
    let mut list = vec![breaker("/a/{x}", 7.0, "x"), isolation(1)];
    // Not those of a good one.
    list.extend([isolation(2), isolation(3)]);
    list.extend([adaptive(0), adaptive(2), adaptive(3)]);
    list.extend((0..40).map(|_| breaker("c", 7.0, "y")));
    list.extend((0..32).map(|index| breaker("c", 0.5, &format!("c-{index}"))));
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let (rules, problems) = document.lenient();
    let mut by_hand = Rules::new()
        .with(IsolationRule::new("/a/{y}", 1).id("x"))
        .with(AdaptiveRule::new("b").floor(2));
    for index in 0..32 {
        by_hand = by_hand.with(CircuitBreakerRule::error_ratio("c", 0.5).id(format!("c-{index}")));
    }
    assert_eq!(rules, by_hand);
    let paths: Vec<_> = problems.iter().map(Problem::path).collect();
    let first = ["error_ratio", "id", "id", "floor", "resource"];
    let first = [0, 2, 3, 4, 6].into_iter().zip(first);
    let first: Vec<_> = first
        .map(|(at, key)| format!("rules[{at}].{key}"))
        .collect();
    assert_eq!(paths[..5], first);
    assert_eq!(paths.len(), 45);
    let second = problems.as_slice()[1].allowed();
    assert_eq!(second, "different from that of every other rule");
}

#[test]
fn a_bad_rule_leaves_no_template_of_what_it_looks_at() {
    let rule = |threshold: i32, related: &str| json!({"kind": "flow", "resource": "a", "threshold": threshold, "when": related});
    // A template that it shares with a good one stays.
    let shares = json!({
        "kind": "flow", "resource": "/b/{y}", "threshold": 1, "when": "/b/{w}",
    });
    let list = [
        rule(-1, "/b/{x}"),
        rule(1, "/b/{y}"),
        rule(1, "/b/{z}"),
        shares,
        rule(1, "/b/{z}"),
    ];
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let paths: Vec<_> = document.problems().iter().map(Problem::path).collect();
    let whens = ["rules[2].when", "rules[3].when", "rules[4].when"];
    assert_eq!((paths[0], &paths[1..]), ("rules[0].threshold", &whens[..]));
    assert_eq!(document.lenient().0.len(), 1);
}

#[test]
fn a_bad_rule_leaves_no_template_of_the_rest_of_a_path() {
    let rule = |resource: &str, threshold: i32| json!({"kind": "flow", "resource": resource, "threshold": threshold});
    // Of two templates, the second conflicts.
    let two = json!({
        "kind": "flow", "resource": "/b/{*rest}", "threshold": 1, "when": "/a/{*x}",
    });
    // Of these, the first.
    let mirrored = json!({
        "kind": "flow", "resource": "/a/{*x}", "threshold": 1, "when": "/c/{*rest}",
    });
    let list = json!([
        rule("/a/b", 1),
        rule("/a/{*rest}", -1),
        rule("/a/{*path}", 1),
        rule("/b/c", 1),
        two,
        rule("/b/{*path}", 1),
        mirrored,
        rule("/c/{*path}", 1),
    ]);
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let paths: Vec<_> = document.problems().iter().map(Problem::path).collect();
    let expected = ["rules[1].threshold", "rules[4].when", "rules[6].resource"];
    assert_eq!(paths, expected);
    assert_eq!(document.lenient().0.len(), 5);
}

#[test]
fn a_bad_rule_leaves_no_gap_among_templates() {
    let rule = |resource: &str, related: &str| json!({"kind": "flow", "resource": resource, "threshold": 1, "when": related});
    let list = json!([
        rule("/{{a}}/{x}", "b"),
        // It differs from that in what is a parameter.
        rule("/{x}/{{a}}", "/{"),
        rule("/{{a}}/{y}", "b"),
    ]);
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let paths: Vec<_> = document.problems().iter().map(Problem::path).collect();
    assert_eq!(paths, ["rules[1].when", "rules[2].resource"]);
}

#[test]
fn a_bad_template_takes_no_place_of_a_good_one() {
    let rule = |resource: &str, related: &str| json!({"kind": "flow", "resource": resource, "threshold": 1, "when": related});
    let list = json!([
        rule("/users/{id}", "b"),
        // Nothing is left of the parameters of its first template.
        rule("/a/{id}/x", "/users/{name}"),
        rule("/a/{*rest}", "b"),
        // Nor of those before what is wrong.
        rule("/b/{id}/{*rest}/x", "b"),
        rule("/b/{*rest}", "b"),
        // What is forgotten may be named again, in these words and in others.
        rule("/c/{*rest}", "/users/{name}"),
        rule("/c/{*rest}", "b"),
        rule("/d/{*rest}", "/users/{name}"),
        rule("/d/{*path}", "b"),
        rule("/d/{*rest}", "b"),
    ]);
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let told = lines(&document);
    let expected = [
        "rules[1].when is \"/users/{name}\", must be a template that does not conflict with \
         \"/users/{id}\" of rule 0",
        "rules[3].resource is \"/b/{id}/{*rest}/x\", must be a template such as \
         \"/users/{id}\" (Catch-all parameters are only allowed at the end of a route)",
        "rules[5].when is \"/users/{name}\", must be a template that does not conflict with \
         \"/users/{id}\" of rule 0",
        "rules[7].when is \"/users/{name}\", must be a template that does not conflict with \
         \"/users/{id}\" of rule 0",
        "rules[9].resource is \"/d/{*rest}\", must be a template that does not conflict with \
         \"/d/{*path}\" of rule 8",
    ];
    assert_eq!(told, expected);
    assert_eq!(document.lenient().0.len(), 5);
}

#[test]
fn many_bad_templates_among_many_good_ones_take_no_minutes() {
    let rule = |resource: String, related: &str| json!({"kind": "flow", "resource": resource, "threshold": 1, "when": related});
    let good = (0..5_000).map(|n| rule(format!("/a{n}/b"), "/users/{id}"));
    let bad = (0..5_000).map(|n| rule(format!("/a{n}/{{*rest}}"), "/users/{name}"));
    // The same one again, as someone has copied it.
    let again = (0..5_000).map(|_| rule("/a0/{*rest}".to_owned(), "/users/{name}"));
    let list: Vec<_> = good.chain(bad).chain(again).collect();
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    assert_eq!(document.problems().len(), 10_000);
    assert_eq!(document.lenient().0.len(), 5_000);
}

#[test]
fn what_rules_cannot_be_together_is_told() {
    let breaker = json!({"kind": "circuit-breaker", "resource": "a", "error_count": 5});
    let adaptive = json!({"kind": "adaptive", "resource": "a"});
    let mut list = vec![breaker; 33];
    list.extend([adaptive.clone(), adaptive]);
    let text = json!({ "rules": list }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let paths: Vec<_> = document.problems().iter().map(Problem::path).collect();
    assert_eq!(paths, ["rules[32].resource", "rules[34].resource"]);
    assert_eq!(document.lenient().0.len(), 33);
}

/// The only problem of a text that is no document.
fn only(problems: Problems) -> Problem {
    let mut all = problems.into_iter();
    let problem = all.next().unwrap();
    assert!(all.next().is_none() && !problem.is_warning());
    assert_eq!(
        (problem.path(), problem.value(), problem.index()),
        ("", "", None)
    );
    problem
}

fn error(text: &str, format: Format) -> Problem {
    only(Document::read(text, format).unwrap_err())
}

#[test]
fn a_text_that_is_no_document_is_an_error_with_its_place() {
    let table = [
        (
            Format::Json,
            "",
            "line 1, column 1: EOF while parsing a value",
        ),
        (
            Format::Json,
            "{\n  \"rules\": [,]\n}",
            "line 2, column 13: expected value",
        ),
        (
            Format::Json,
            "[1, 2",
            "line 1, column 5: EOF while parsing a list",
        ),
        // Columns are counted from 1, also where a half of a document ends with its line.
        (
            Format::Json,
            "{\"rules\": [\n",
            "line 2, column 1: EOF while parsing a list",
        ),
        (
            Format::Json,
            "[] []",
            "line 1, column 4: trailing characters",
        ),
        (
            Format::Json,
            "{\"rules\": [{\n\"a\": 1,\n\"a\": 2}]}",
            "line 3, column 3: the key \"a\" is given twice",
        ),
        (Format::Json, "[NaN]", "line 1, column 2: expected value"),
        (
            Format::Json,
            "[1e999]",
            "line 1, column 6: number out of range",
        ),
        (
            Format::Json,
            "7",
            "the document is 7, must be a table with `rules`, or a list of Sentinel's rules",
        ),
        (
            Format::Json,
            "null",
            "the document is null, must be a table with `rules`, or a list of Sentinel's rules",
        ),
    ];
    for (format, text, expected) in table {
        assert_eq!(error(text, format).to_string(), expected, "{text}");
    }
    let toml = [
        ("rules = [\n  { kind = }\n]", 2, 12),
        ("rules = []\nrules = []\n", 2, 1),
        ("a = 1\n\n[[a]]\n", 3, 3),
        ("x = 99999999999999999999999999999999999999999", 1, 5),
    ];
    for (text, line, column) in toml {
        let error = error(text, Format::Toml);
        assert_eq!(
            (error.line(), error.column()),
            (Some(line), Some(column)),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
    let error = only(Document::read_sentinel("{}", Kind::Flow).unwrap_err());
    assert_eq!(
        error.to_string(),
        "the document is a table, must be a list of Sentinel's rules"
    );
    assert_eq!((error.line(), error.column()), (None, None));
}

#[test]
fn rules_of_this_crate_in_a_bare_list_are_told_from_those_of_sentinel() {
    for rule in [
        r#""kind": "flow", "resource": "a", "threshold": 5, "interval": "1m""#,
        r#""kind": "isolation", "resource": "a", "max": 5"#,
        r#""kind": "adaptive", "resource": "a""#,
        r#""kind": "circuit-breaker", "resource": "a", "error_ratio": 0.5"#,
        r#""kind": "authority", "resource": "a", "allow": ["b"]"#,
        r#""kind": "system", "qps": 5, "cpu": 0.9"#,
        r#""kind": "keyed", "resource": "a", "threshold": 5, "burst": 1"#,
    ] {
        assert_eq!(
            error(&format!("[{{{rule}}}]"), Format::Json).to_string(),
            "rules with a `kind` must be in a table: {\"rules\": […]}",
            "{rule}"
        );
        let whole = format!("{{\"rules\": [{{{rule}}}]}}");
        assert!(
            Document::read(&whole, Format::Json)
                .unwrap()
                .strict()
                .is_ok()
        );
    }
}

#[test]
fn the_mark_of_the_byte_order_is_no_part_of_a_document() {
    let rules = Rules::from(FlowRule::per_second("r", 1));
    for format in [Format::Json, Format::Toml] {
        let text = Document::from_rules(&rules).write(format);
        let document = Document::read(&format!("\u{feff}{text}"), format).unwrap();
        assert_eq!(document.strict().unwrap(), rules);
    }
    let broken = only(Document::read("\u{feff}{", Format::Json).unwrap_err());
    assert_eq!((broken.line(), broken.column()), (Some(1), Some(1)));
}

#[test]
fn values_that_only_toml_has_are_refused() {
    let text = "
        [[rules]]
        kind = \"flow\"
        resource = \"a\"
        threshold = nan
        [[rules]]
        kind = \"flow\"
        resource = \"a\"
        threshold = inf
        [[rules]]
        kind = \"flow\"
        resource = \"a\"
        threshold = 1979-05-27
    ";
    let document = Document::read(text, Format::Toml).unwrap();
    assert_eq!(
        lines(&document),
        [
            "rules[0].threshold is NaN, must be between 0 and 2147483647",
            "rules[1].threshold is inf, must be between 0 and 2147483647",
            "rules[2].threshold is \"1979-05-27\", must be a number",
        ]
    );
    // JSON has no such numbers, so they are gone there.
    let again = Document::read(&document.write(Format::Json), Format::Json).unwrap();
    assert_eq!(
        lines(&again)[0],
        "rules[0].threshold is null, must be a number"
    );
}

#[test]
fn every_key_and_value_has_a_text_in_both_syntaxes() {
    let odd = json!({" \n\"'\u{1}": "\u{7f}\r\n'''\"\"\"", "": "é"});
    let text = json!({
        "rules": [[], {}, null, [null, [{}]], odd],
        "$__toml_private_datetime": {"$__toml_private_datetime": "x"},
        "numbers": [u64::MAX, i64::MIN, -0.0, 5e-324, f64::MAX],
    });
    let document = Document::read(&text.to_string(), Format::Json).unwrap();
    assert_eq!(super::json(&document), text);
    let toml = document.write(Format::Toml);
    let again = Document::read(&toml, Format::Toml).unwrap();
    assert_eq!(super::json(&again)["rules"], json!([[], {}, [[{}]], odd]));
}

#[test]
fn nesting_has_a_bound() {
    for (levels, format, open, close) in
        [(127, Format::Json, "[", "]"), (80, Format::Toml, "[", "]")]
    {
        let text = |levels: usize| {
            let value = open.repeat(levels) + &close.repeat(levels);
            match format {
                Format::Toml => format!("a = {value}"),
                _ => value,
            }
        };
        let message = |levels| match Document::read(&text(levels), format) {
            Ok(document) => document.problems().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(!message(levels).contains("recurs"), "{}", message(levels));
        assert!(
            message(levels + 1).contains("recurs"),
            "{}",
            message(levels + 1)
        );
    }
    for levels in [100_usize, 1_000, 800_000] {
        for open in ["[", "{\"a\":"] {
            let error = error(&open.repeat(levels), Format::Json);
            assert!(
                levels < 127 || error.to_string().contains("recurs"),
                "{error}"
            );
        }
        for text in [
            format!("a = {}", "[".repeat(levels)),
            format!("a = {}", "{a=".repeat(levels)),
            format!("{}a = 1", "a.".repeat(levels)),
            format!("[{}a]", "a.".repeat(levels)),
        ] {
            let error = error(&text, Format::Toml);
            assert!(error.to_string().contains("recurs"), "{error}");
        }
    }
}

/// The reader of TOML counts the levels of a dotted key and those around it apart.
#[test]
fn levels_of_dotted_keys_and_of_what_is_around_them_count_together() {
    let dotted = |levels: usize| vec!["a"; levels].join(".");
    let lists = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let tables = |levels: usize, key: &str| {
        let open = format!("{{{key}=").repeat(levels);
        format!("a = {open}1{}\n", "}".repeat(levels))
    };
    let below = |levels: usize| format!("[{}]\na = {}\n", dotted(40), lists(levels));
    for text in [below(40), tables(20, &dotted(4)), tables(80, "a")] {
        assert!(Document::read(&text, Format::Toml).is_ok(), "{text}");
    }
    // Within each bound of the reader, and too many for the stack of a thread.
    let deep = tables(78, &dotted(80));
    for text in [
        below(41),
        tables(21, &dotted(4)),
        deep.clone(),
        format!("[{}]\n{deep}", dotted(80)),
        // It has more to say of these, and drops what it has read.
        format!("{deep}="),
        format!("{deep}{deep}"),
        // It goes on behind what is wrong.
        format!("b = \\\"\"\"\n{deep}"),
        format!("# b\r{deep}"),
        format!("a = {}", format!("{{{}=,", dotted(80)).repeat(78)),
    ] {
        let error = error(&text, Format::Toml).to_string();
        assert!(error.contains("nested too deep"), "{error}");
    }
    #[derive(Debug, serde::Deserialize)]
    struct Settings {
        _a: Rules,
    }
    let text = tables(30, &dotted(5)).replacen('a', "_a", 1);
    let error = toml::from_str::<Settings>(&text).unwrap_err();
    assert!(error.message().contains("nested too deep"), "{error}");
}

#[test]
fn a_long_document_is_read_and_a_longer_one_refused() {
    let mut text = String::new();
    let mut count = 0;
    while text.len() < 2 << 20 {
        write!(
            text,
            "[[rules]]\nkind = \"flow\"\nresource = \"/r{count}\"\nthreshold = 5\n\n"
        )
        .unwrap();
        count += 1;
    }
    let document = Document::read(&text, Format::Toml).unwrap();
    assert_eq!(document.strict().unwrap().len(), count);
    let zeros = format!("[{}0]", "0,".repeat(Document::MAX_RULES));
    let own = format!("{{\"rules\": {zeros}}}");
    for document in [
        Document::read_sentinel(&zeros, Kind::Flow),
        Document::read(&own, Format::Json),
    ] {
        assert_eq!(
            document.unwrap_err().to_string(),
            "the document has 100001 rules, must be at most 100000"
        );
    }
    // As many as may be are read, one by one.
    let zeros = format!("[{}0]", "0,".repeat(Document::MAX_RULES - 1));
    assert!(Document::read_sentinel(&zeros, Kind::Flow).is_ok());
    let empty = r#"{"rules": []}"#;
    let longest = format!("{empty}{}", " ".repeat(Document::MAX_BYTES - empty.len()));
    assert!(Document::read(&longest, Format::Json).is_ok());
    let longer = " ".repeat(Document::MAX_BYTES + 1);
    for format in [Format::Json, Format::Toml] {
        assert_eq!(
            error(&longer, format).to_string(),
            "the document is 4194305 bytes long, must be at most 4194304"
        );
    }
}

#[test]
fn of_many_unknown_keys_the_first_are_told() {
    let mut rule = json!({"kind": "isolation", "resource": "a", "max": 1});
    for index in 0..1_000 {
        rule[format!("x{index}")] = json!(0);
    }
    let text = json!({ "rules": [rule] }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    assert_eq!(document.problems().len(), 100);
    assert!(document.lenient().0.is_empty());
}

#[test]
fn of_many_problems_of_one_rule_the_first_are_told() {
    let own = json!({
        "kind": "keyed", "resource": "a", "threshold": 1, "except": vec![json!({}); 101],
    });
    let text = json!({ "rules": vec![own; 1_100] }).to_string();
    let document = Document::read(&text, Format::Json).unwrap();
    let told = |index| {
        let problems = document.problems().iter();
        problems.filter(|it| it.index() == Some(index)).count()
    };
    // All rules are told of, if not all that is wrong with them.
    assert_eq!([0, 999, 1_000, 1_099].map(told), [100, 100, 1, 1]);

    let param = |count: &Value| json!({"resource": "a", "paramIdx": 0, "count": count});
    let mut rules = [param(&json!(1)), param(&json!(-1)), param(&json!(1))];
    for rule in &mut rules {
        rule["paramFlowItemList"] = json!(vec![json!({"object": "x"}); 100]);
    }
    rules[2]["paramFlowItemList"][99] = json!(3);
    let document = sentinel(Kind::HotParam, &json!(rules));
    assert_eq!(document.lenient().0.len(), 1);
    assert_eq!(document.problems().len(), 300);
    // However many warnings come before it.
    let refused: Vec<_> = document.problems().errors().map(Problem::path).collect();
    assert_eq!(refused, ["[1].count", "[2].paramFlowItemList[99]"]);
    assert_eq!(
        document
            .problems()
            .iter()
            .filter(|it| it.index() == Some(1))
            .count(),
        100
    );
}

#[test]
fn of_many_problems_the_text_has_the_first_hundred_and_errors_before_warnings() {
    let text_of = |rules: &[Value]| {
        let problems = sentinel(Kind::Flow, &json!(rules)).problems().clone();
        assert_eq!(problems.len(), rules.len());
        // Without their places.
        let text = problems.to_string();
        let lines = text.lines().map(|line| match line.split_once(": [") {
            Some((_, rest)) => format!("[{rest}"),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let warned = json!({"resource": "a", "count": 1, "clusterMode": true});
    let bad = json!({"resource": "a", "count": -1});
    let refused = |index| format!("[{index}].count is -1, must be between 0 and 2147483647");

    // As many as it may have: all of them, in their order.
    let mut rules = vec![warned.clone(); 99];
    rules.push(bad.clone());
    let text = text_of(&rules);
    let told: Vec<_> = text.lines().collect();
    assert_eq!((told.len(), told[99]), (100, refused(99).as_str()));

    // A rule that is refused is told, however many warnings come before it.
    rules.insert(0, warned);
    let text = text_of(&rules);
    let told: Vec<_> = text.lines().collect();
    assert_eq!((told.len(), told[0]), (101, refused(100).as_str()));
    assert!(told[1].starts_with("[0].clusterMode is true: "));
    assert_eq!(told[100], "and 1 more");

    // One mistake in each rule, as a program makes it.
    let text = text_of(&vec![bad; 20_000]);
    assert!(text.starts_with(&format!("{}\n{}\n", refused(0), refused(1))));
    assert!(text.ends_with("\nand 19900 more"));
}

#[test]
fn a_message_is_short_whatever_the_value() {
    let long = "x".repeat(1 << 19);
    let rule = json!({"kind": long, "a": 1});
    let except = json!([{"value": long, "threshold": -1e300}]);
    let text = json!({ "rules": [
        rule,
        {"kind": "isolation", "resource": long, "max": 1},
        {"kind": "keyed", "resource": "a", "threshold": 1, "except": except},
    ] });
    let mut text = text.to_string();
    let extra = format!(",\"{long}\":[]}}");
    text.replace_range(text.len() - 1.., &extra);
    let document = Document::read(&text, Format::Json).unwrap();
    assert_eq!(document.problems().len(), 5);
    for problem in document.problems() {
        assert!(problem.to_string().len() < 300, "{problem}");
    }
}

#[test]
fn a_document_can_be_shared() {
    fn is_shared<T: Send + Sync + Clone + std::fmt::Debug>() {}
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_shared::<Document>();
    is_error::<Problems>();
    is_error::<Problem>();
    let document = Document::from_rules(&Rules::from(CircuitBreakerRule::error_count("a", 1)));
    assert!(document.problems().is_empty());
}
