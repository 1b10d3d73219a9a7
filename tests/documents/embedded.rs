//! Rules as a value of other documents.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tower_sentinel::document::Document;
use tower_sentinel::{FlowRule, Rules};

use super::own::everything;

/// What `value` says instead of rules.
fn error(value: Value) -> String {
    serde_json::from_value::<Rules>(value)
        .unwrap_err()
        .to_string()
}

#[test]
fn every_setting_goes_there_and_back() {
    let (tables, rules): (Vec<_>, Vec<_>) = everything().into_iter().unzip();
    let rules = Rules::build(rules).unwrap();
    assert_eq!(
        serde_json::from_value::<Rules>(json!(tables)).unwrap(),
        rules
    );
    let written = super::json(&Document::from_rules(&rules));
    assert_eq!(serde_json::to_value(&rules).unwrap(), written["rules"]);

    let settings = BTreeMap::from([("limits", &rules)]);
    let text = toml::to_string(&settings).unwrap();
    let settings: BTreeMap<String, Rules> = toml::from_str(&text).unwrap();
    assert_eq!(settings["limits"], rules);
}

#[test]
fn none_are_none() {
    assert_eq!(
        serde_json::from_str::<Rules>("[]").unwrap(),
        Rules::default()
    );
    assert_eq!(serde_json::to_string(&Rules::new()).unwrap(), "[]");
}

#[test]
fn an_error_tells_everything_with_its_place() {
    let list = json!([
        {"kind": "flow", "resource": "/a", "threshold": 5},
        {"kind": "flow", "resource": "/b", "treshold": 5},
        {"kind": "isolation", "resource": "/c", "max": -1},
        7,
    ]);
    assert_eq!(
        error(list),
        "[1].threshold is missing, must be a number\n\
         [1].treshold is not known, did you mean `threshold`?\n\
         [2].max is -1, must be a whole number between 0 and 4294967295\n\
         [3] is 7, must be a table"
    );
    let text =
        "port = 80\n\n[[limits]]\nkind = \"flow\"\nresource = \"/a\"\nthreshold = 1979-05-27\n";
    let error = toml::from_str::<BTreeMap<String, Rules>>(&text[11..]).unwrap_err();
    assert_eq!(
        error.message(),
        "[0].threshold is \"1979-05-27\", must be a number"
    );
}

#[test]
fn what_is_no_list_is_no_rules() {
    for (value, excerpt) in [
        (json!({"rules": []}), "a table"),
        (json!("/a"), "\"/a\""),
        (json!(null), "null"),
    ] {
        assert_eq!(
            error(value),
            format!("rules are {excerpt}, must be a list of tables")
        );
    }
    let twice = r#"[{"kind": "flow", "resource": "/a", "threshold": 1, "threshold": 2}]"#;
    assert!(serde_json::from_str::<Rules>(twice).is_err());
    let zeros = json!(vec![0; Document::MAX_RULES + 1]);
    assert_eq!(
        error(zeros),
        "the document has 100001 rules, must be at most 100000"
    );
}

#[test]
fn they_stand_among_settings_of_a_program() {
    #[derive(serde::Deserialize, serde::Serialize)]
    struct Settings {
        port: u16,
        #[serde(default)]
        limits: Rules,
    }

    let settings: Settings = toml::from_str("port = 80").unwrap();
    assert!(settings.limits.is_empty());
    let settings = Settings {
        limits: FlowRule::per_second("/a", 5).into(),
        ..settings
    };
    assert_eq!(
        serde_json::to_value(&settings).unwrap(),
        json!({
            "port": 80,
            "limits": [{"kind": "flow", "resource": "/a", "threshold": 5, "interval": "1s"}],
        })
    );
    let text = toml::to_string(&settings).unwrap();
    let read: Settings = toml::from_str(&text).unwrap();
    assert_eq!((read.port, read.limits), (80, settings.limits));
}
