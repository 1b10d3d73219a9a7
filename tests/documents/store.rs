//! The store of a document, and the rules that need it.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, StoreSection};
use tower_sentinel::store::{QuotaStore, RedisStore, StoreSettings, WhenDown};
use tower_sentinel::{FlowRule, KeyedRule, Rules};

use super::{lines, ms, strict};

const TOML: &str = r#"
[store]
url_env = "CARGO_PKG_NAME"
prefix = "shop"
nodes = 3
digest_secret_env = "CARGO_PKG_VERSION"
when_down = "closed"
store-wait = "20ms"
horizon = 0.005

[[rules]]
kind = "flow"
resource = "/search"
threshold = 1000
shared = true
"#;

fn read(store: &Value, rules: &Value) -> Document {
    let text = json!({"store": store, "rules": rules}).to_string();
    Document::read(&text, Format::Json).unwrap()
}

fn section(store: &Value) -> StoreSection {
    let document = read(store, &json!([]));
    strict(&document);
    document.store().unwrap().clone()
}

fn shared() -> Value {
    json!([{"kind": "flow", "resource": "/a", "threshold": 5, "shared": true}])
}

#[test]
fn a_store_has_the_settings_of_the_program_by_their_names() {
    let document = Document::read(TOML, Format::Toml).unwrap();
    let search = FlowRule::per_second("/search", 1_000).shared();
    assert_eq!(strict(&document), Rules::from(search));
    let section = document.store().unwrap();
    assert_eq!(section.url().unwrap().as_deref(), Some("tower-sentinel"));
    assert_eq!(section.prefix(), Some("shop"));
    let by_hand = StoreSettings::new()
        .nodes(3)
        .when_down(WhenDown::Closed)
        .store_wait(ms(20))
        .horizon(ms(5));
    let settings = section.settings().unwrap();
    assert_eq!(format!("{settings:?}"), format!("{by_hand:?}"));
    // What is left out has its default.
    let plain = section_of_nothing().settings().unwrap();
    assert_eq!(format!("{plain:?}"), format!("{:?}", StoreSettings::new()));
}

fn section_of_nothing() -> StoreSection {
    section(&json!({}))
}

#[test]
fn an_empty_store_is_that_of_the_program() {
    let document = read(&json!({}), &shared());
    let rule = FlowRule::per_second("/a", 5).shared();
    assert_eq!(strict(&document), Rules::from(rule));
    let section = document.store().unwrap();
    assert_eq!((section.url(), section.prefix()), (Ok(None), None));
    let plain = Document::read(r#"{"rules": []}"#, Format::Json).unwrap();
    assert_eq!(plain.store(), None);
}

#[test]
fn a_shared_rule_without_a_store_is_an_error_on_its_line() {
    let text = TOML.split_once("[[rules]]").unwrap().1;
    let text = format!("[[rules]]{text}");
    let document = Document::read(&text, Format::Toml).unwrap();
    let expected = "line 5, column 1: rules[0].shared is true, must be left out where the document \
         has no `store`: add one with the address of the server, or an empty one if the program \
         has a store";
    assert_eq!(document.strict().unwrap_err().to_string(), expected);
    let json = r#"{"rules": [
        {"kind": "keyed", "resource": "/a", "threshold": 5, "window": true,
         "shared": true}
    ]}"#;
    let document = Document::read(json, Format::Json).unwrap();
    let (rules, problems) = document.lenient();
    assert!(rules.is_empty());
    let problem = &problems.as_slice()[0];
    assert_eq!(
        (problem.path(), problem.line()),
        ("rules[0].shared", Some(3))
    );
    // One that is switched off is like any other.
    let off = json.replace("true}", "false}");
    let document = Document::read(&off, Format::Json).unwrap();
    let rule = KeyedRule::per_second("/a", 5).window();
    assert_eq!(strict(&document), Rules::from(rule));
}

#[test]
fn every_setting_of_a_shared_rule_goes_there_and_back() {
    let flow = FlowRule::per("/a", 9, Duration::from_secs(2))
        .shared()
        .exact()
        .per_node()
        .when_down(WhenDown::LocalShare)
        .local_limit(4)
        .store_wait(ms(7));
    let keyed = KeyedRule::per_minute("/a", 9)
        .window()
        .shared()
        .when_down(WhenDown::Open);
    let rules = Rules::new()
        .with(flow)
        .with(keyed.clone().cost("tokens").tier("pro", 90))
        .with(keyed);
    for format in [Format::Json, Format::Toml] {
        let text = Document::from_rules(&rules).write(format);
        let document = Document::read(&text, format).unwrap();
        assert_eq!(strict(&document), rules, "{text}");
        assert_eq!(document.store(), Some(&StoreSection::default()));
        let again = Document::read(&document.write(format), format).unwrap();
        assert_eq!(strict(&again), rules);
    }
    let written = super::json(&Document::from_rules(&rules));
    let expected = json!({
        "kind": "flow", "resource": "/a", "threshold": 9, "interval": "2s", "shared": true,
        "exact": true, "per_node": true, "when_down": "local-share", "local_limit": 4,
        "store_wait": "7ms",
    });
    assert_eq!(written["rules"][0], expected);
    let expected = json!({
        "kind": "keyed", "resource": "/a", "threshold": 9, "interval": "1m", "window": true,
        "cost": "tokens", "tier": [{"name": "pro", "threshold": 90}], "shared": true,
        "when_down": "open",
    });
    assert_eq!(written["rules"][1], expected);
    assert_eq!(written["store"], json!({}));
    // Rules that need no store say nothing of one.
    let local = Document::from_rules(&Rules::from(FlowRule::per_second("/a", 5)));
    assert_eq!(super::json(&local).get("store"), None);
}

#[test]
fn a_store_goes_from_one_syntax_to_the_other_and_back() {
    let first = Document::read(TOML, Format::Toml).unwrap();
    let json = first.write(Format::Json);
    let second = Document::read(&json, Format::Json).unwrap();
    assert_eq!(strict(&second), strict(&first));
    assert_eq!(second.store(), first.store());
    let third = Document::read(&second.write(Format::Toml), Format::Toml).unwrap();
    assert_eq!(third.store(), first.store());
    // Other rules in the same document leave it as it is.
    let other = Rules::from(FlowRule::per_second("/b", 1));
    let changed = first.with_rules(&other);
    assert_eq!(strict(&changed), other);
    assert_eq!(changed.store(), first.store());
    let again = Document::read(&changed.write(Format::Toml), Format::Toml).unwrap();
    assert_eq!(
        (strict(&again), again.store()),
        (other.clone(), first.store())
    );
    let without = Document::from_rules(&other).with_rules(&strict(&first));
    assert_eq!(without.store(), Some(&StoreSection::default()));
}

#[test]
fn a_bad_store_is_told_with_its_place() {
    let range = "must be between 1 ms and 10 s";
    let name = "must be the name of an environment variable: ASCII letters, digits and `_`";
    let url = "redis://cache";
    let list = "must be a list of addresses such as `redis://host:port`, at least one";
    let own = "must be absent without `url` or `url_env`: the store of the program has one";
    let cases = [
        (
            json!(7),
            "store is 7, must be a table, which may be empty".to_owned(),
        ),
        (
            json!([]),
            "store is a list of 0, must be a table, which may be empty".to_owned(),
        ),
        (
            json!({"url": 7}),
            "store.url is 7, must be a text".to_owned(),
        ),
        (
            json!({"url": "cache:6379"}),
            "store.url is a text, must be an address such as `redis://host:port`".to_owned(),
        ),
        (
            json!({"url": url, "url_env": "REDIS_URL"}),
            "store.url_env is a text, must be absent beside `url`".to_owned(),
        ),
        // Its value may be the secret itself.
        (
            json!({"url_env": "redis://:hush@cache"}),
            format!("store.url_env is a text, {name}"),
        ),
        (
            json!({"digest_secret_env": ""}),
            format!("store.digest_secret_env is a text, {name}"),
        ),
        (
            json!({"ulr": "redis://:hush@cache"}),
            "store.ulr is not known, did you mean `url`?".to_owned(),
        ),
        (
            json!({"url": url, "prefix": "a b"}),
            "store.prefix is \"a b\", must be 1 to 32 of the characters A-Z a-z 0-9 _ . : -"
                .to_owned(),
        ),
        (
            json!({"prefix": "a"}),
            "store.prefix is \"a\", must be absent without `url` or `url_env`: the store of the \
             program has one"
                .to_owned(),
        ),
        (
            json!({"url": "redis://:hush@a,b", "cluster": true}),
            "store.url is a text, must be an address such as `redis://host:port`".to_owned(),
        ),
        (
            json!({"url": " , ", "cluster": true}),
            "store.url is a text, must be an address such as `redis://host:port`".to_owned(),
        ),
        (
            json!({"url": url, "cluster": 1}),
            "store.cluster is 1, must be true or false".to_owned(),
        ),
        (
            json!({"cluster": true}),
            format!("store.cluster is true, {own}"),
        ),
        (
            json!({"url": url, "cluster": true, "sentinels": ["redis://s1"]}),
            "store.cluster is true, must be left out beside `sentinels`: it has no master for all \
             keys"
                .to_owned(),
        ),
        (
            json!({"url": url, "sentinels": []}),
            format!("store.sentinels is a list of 0, {list}"),
        ),
        (
            json!({"url": url, "sentinels": ["redis://s1", ":hush@s2"]}),
            format!("store.sentinels is a list of 2, {list}"),
        ),
        (
            json!({"url": url, "sentinels": ["redis://s1"], "sentinels_env": "A"}),
            "store.sentinels_env is a text, must be absent beside `sentinels`".to_owned(),
        ),
        (
            json!({"url": url, "sentinels_env": "redis://:hush@s1"}),
            format!("store.sentinels_env is a text, {name}"),
        ),
        (
            json!({"sentinels_env": "A"}),
            format!("store.sentinels_env is a text, {own}"),
        ),
        (
            json!({"url": url, "certificate_file": ""}),
            "store.certificate_file is \"\", must be the path of a file".to_owned(),
        ),
        (
            json!({"certificate_file": "ca.pem"}),
            format!("store.certificate_file is \"ca.pem\", {own}"),
        ),
        (
            json!({"url": url, "client_certificate_file": "", "client_key_file": "a.key"}),
            "store.client_certificate_file is \"\", must be the path of a file".to_owned(),
        ),
        (
            json!({"url": url, "client_certificate_file": "a.pem"}),
            "store.client_certificate_file is \"a.pem\", must be left out without \
             `client_key_file`"
                .to_owned(),
        ),
        (
            json!({"url": url, "client_key_file": "a.key"}),
            "store.client_key_file is \"a.key\", must be left out without \
             `client_certificate_file`"
                .to_owned(),
        ),
        (
            json!({"url": url, "client_certificate_file": "a.pem", "client_key_file": 7}),
            "store.client_key_file is 7, must be a text".to_owned(),
        ),
        (
            json!({"nodes": 0}),
            "store.nodes is 0, must be a whole number between 1 and 65535".to_owned(),
        ),
        (
            json!({"nodes": 1e9}),
            "store.nodes is 1000000000.0, must be a whole number between 1 and 65535".to_owned(),
        ),
        (
            json!({"when_down": "opne"}),
            "store.when_down is \"opne\", must be one of \"local-share\", \"open\", \"closed\"; \
             did you mean \"open\"?"
                .to_owned(),
        ),
        (
            json!({"store_wait": 0}),
            format!("store.store_wait is 0, {range}"),
        ),
        (
            json!({"horizon": "11s"}),
            format!("store.horizon is \"11s\", {range}"),
        ),
    ];
    for (store, expected) in cases {
        let document = read(&store, &shared());
        assert_eq!(lines(&document), [expected]);
        let told = format!("{document:?} {:?}", document.problems());
        assert!(!told.contains("hush"), "{told}");
        assert!(document.strict().is_err());
        let problem = &document.problems().as_slice()[0];
        assert_eq!(
            (problem.index(), problem.line()),
            (None, Some(1)),
            "{problem}"
        );
    }
    for line in ["nodes = 0", "cluster = 3", "sentinels = []"] {
        let bad = TOML.replace("nodes = 3", line);
        let document = Document::read(&bad, Format::Toml).unwrap();
        let problems = document.strict().unwrap_err();
        assert_eq!(problems.as_slice()[0].line(), Some(5), "{line}");
    }
}

#[test]
fn a_bad_setting_of_a_shared_rule_is_told_with_its_place() {
    let cases = [
        (json!({"shared": 1}), "shared is 1, must be true or false"),
        (
            json!({"exact": true}),
            "exact is true, must be left out without `shared`",
        ),
        (
            json!({"per_node": true}),
            "per_node is true, must be left out without `shared`",
        ),
        (
            json!({"when_down": "open"}),
            "when_down is \"open\", must be left out without `shared`",
        ),
        (
            json!({"local_limit": 3}),
            "local_limit is 3, must be left out without `shared`",
        ),
        (
            json!({"store_wait": 1}),
            "store_wait is 1, must be left out without `shared`",
        ),
        (
            json!({"shared": true, "when_down": "shut"}),
            "when_down is \"shut\", must be one of \"local-share\", \"open\", \"closed\"",
        ),
        (
            json!({"shared": true, "local_limit": 2_147_483_648_u32}),
            "local_limit is 2147483648, must be between 0 and 2147483647",
        ),
        (
            json!({"shared": true, "when_down": "closed", "local_limit": 3}),
            "local_limit is 3, must be left out unless `when_down` is local-share",
        ),
        (
            json!({"shared": true, "store_wait": "11s"}),
            "store_wait is \"11s\", must be between 1 ms and 10 s",
        ),
        (
            json!({"shared": true, "throttle": 1}),
            "shared is true, must be left out with `throttle`, `warm_up` or `memory`",
        ),
    ];
    for (settings, expected) in cases {
        let mut rule = json!({"kind": "flow", "resource": "/a", "threshold": 5});
        let table = rule.as_object_mut().unwrap();
        table.extend(settings.as_object().unwrap().clone());
        let document = read(&json!({}), &json!([rule]));
        let told = lines(&document);
        let is_told = told[0].starts_with(&format!("rules[0].{expected}"));
        assert!(is_told && told.len() == 1, "{told:?}");
    }
}

#[test]
fn a_variable_that_is_not_set_is_told_by_its_name() {
    let url = section(&json!({"url_env": "NOT_SET_ANYWHERE"}));
    let expected =
        "store.url_env is \"NOT_SET_ANYWHERE\", must be an environment variable that is set";
    assert_eq!(url.url().unwrap_err().to_string(), expected);
    let secret = section(&json!({"digest_secret_env": "NOT_SET_ANYWHERE"}));
    assert_eq!(secret.url(), Ok(None));
    assert_eq!(
        secret.settings().unwrap_err().to_string(),
        expected.replace("url_env", "digest_secret_env"),
    );
}

#[test]
fn a_redis_store_is_made_of_the_section() {
    let store = |store: Value| RedisStore::from_settings(&section(&store));
    let good = store(json!({"url": "redis://:hush@cache:6379", "prefix": "shop"})).unwrap();
    assert_eq!(good.prefix(), "shop");
    for (bad, expected) in [
        (
            json!({}),
            "store.url is missing, must be given, or `url_env`",
        ),
        (
            json!({"url": "redis://cache"}),
            "store.prefix is missing, must be the name of the service",
        ),
        (
            json!({"url": "http://:hush@cache"}),
            "url is not that of a Redis server",
        ),
        (
            json!({"url": "redis://"}),
            "url is not that of a Redis server",
        ),
        (
            json!({"url_env": "CARGO_PKG_NAME"}),
            "url is not that of a Redis server",
        ),
        (
            json!({"url_env": "NOT_SET_ANYWHERE"}),
            "store.url_env is \"NOT_SET_ANYWHERE\", must be",
        ),
    ] {
        let error = store(bad).unwrap_err().to_string();
        assert!(
            error.starts_with(expected) && !error.contains("hush"),
            "{error}"
        );
    }
    let shown = format!("{:?}", section(&json!({"url": "redis://:hush@cache"})));
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn a_store_may_be_a_cluster_or_the_master_of_sentinels() {
    for good in [
        json!({"url": "redis://:hush@a:7000, redis://:hush@b:7000", "cluster": true}),
        json!({"url": "redis://a", "cluster": false}),
        json!({"url": "redis://shop", "sentinels": ["redis://s1", "redis://s2"]}),
        json!({"url": "redis://shop", "sentinels": "redis://s1 , redis://s2"}),
    ] {
        let mut good = good;
        good["prefix"] = json!("shop");
        let section = section(&good);
        assert_eq!(section.is_cluster(), good["cluster"] == true);
        if good.get("sentinels").is_some() {
            let sentinels = section.sentinels().unwrap();
            assert_eq!(sentinels, ["redis://s1", "redis://s2"]);
        }
        let store = RedisStore::from_settings(&section).unwrap();
        let shown = format!("{section:?} {store:?}");
        assert!(!shown.contains("hush"), "{shown}");
    }
    let secure = json!({"url": "rediss://a", "certificate_file": "Cargo.toml"});
    let client = |certificate: &str, key: &str| {
        json!({
            "url": "rediss://:hush@a",
            "client_certificate_file": certificate,
            "client_key_file": key,
        })
    };
    let files = section(&client("Cargo.toml", "Cargo.lock"));
    let paths = (files.client_certificate_file(), files.client_key_file());
    assert_eq!(paths, (Some("Cargo.toml"), Some("Cargo.lock")));
    assert_eq!(section(&secure).certificate_file(), Some("Cargo.toml"));
    for (bad, expected) in [
        (
            json!({"url": "redis://a, redis://b/3", "cluster": true}),
            "urls[1] is the database 3, must be 0 in a Cluster",
        ),
        (
            json!({"url": "redis+unix:///a/socket", "sentinels": ["redis://s1"]}),
            "url is that of a socket, must have the name of a master as its host",
        ),
        (
            json!({"url": "redis://shop", "sentinels": ["redis://s1", "http://:hush@s2"]}),
            "sentinels[1] is not that of a Redis server",
        ),
        (
            json!({"url": "redis://shop", "sentinels_env": "NOT_SET_ANYWHERE"}),
            "store.sentinels_env is \"NOT_SET_ANYWHERE\", must be an environment variable",
        ),
        (
            json!({"url": "redis://shop", "sentinels_env": "CARGO_PKG_NAME"}),
            "sentinels[0] is not that of a Redis server",
        ),
        (
            json!({"url": "rediss://:hush@a", "certificate_file": "not/there.pem"}),
            "store.certificate_file is \"not/there.pem\", must be a file that can be read (entity \
             not found)",
        ),
        (secure, "certificate is none, must be one or several in PEM"),
        (
            client("not/there.pem", "Cargo.toml"),
            "store.client_certificate_file is \"not/there.pem\", must be a file that can be read \
             (entity not found)",
        ),
        (
            client("Cargo.toml", "not/there.key"),
            "store.client_key_file is \"not/there.key\", must be a file that can be read (entity \
             not found)",
        ),
        (
            client("Cargo.toml", "Cargo.toml"),
            "client certificate is none, must be one or several in PEM",
        ),
    ] {
        let error = RedisStore::from_settings(&section(&bad))
            .unwrap_err()
            .to_string();
        let is_told = error.starts_with(expected) && !error.contains("hush");
        assert!(is_told, "{error}");
    }
}
