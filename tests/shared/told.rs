//! What an engine tells of its store and of shared rules: snapshots, findings and metrics.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use serde_json::Value;
use tower_sentinel::hook::{Finding, FindingKind, Hook};
use tower_sentinel::observe::page::Page;
use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::read::SharedSnapshot;
use tower_sentinel::store::{
    Fault, MemoryStore, RedisStore, StoreErrorKind, StoreSettings, StoreState, WhenDown,
};
use tower_sentinel::{Call, FlowRule, KeyedRule, Rule, Rules, Sentinel};

use super::{Fleet, SECOND, ms};

/// What an engine has counted for its rule of this id.
fn shared(sentinel: &Sentinel, id: &str) -> SharedSnapshot {
    let snapshot = sentinel.snapshot();
    let mut all = snapshot.shared_rules().iter();
    all.find(|it| it.rule() == id).unwrap().clone()
}

/// All figures of these series, without their labels.
fn series(sentinel: &Sentinel, name: &str) -> Vec<f64> {
    let families = Metrics::new(sentinel).families();
    let family = families.iter().find(|it| it.name() == name).unwrap();
    let samples = family.samples().iter();
    samples.map(|it| it.value().as_f64()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_calls_have_taken_adds_up_with_and_without_the_store() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/leased", 50).shared().id("leased"))
        .with(
            FlowRule::per_second("/exact", 50)
                .shared()
                .exact()
                .id("exact"),
        )
        .with(
            KeyedRule::per_second("/keys", 50)
                .window()
                .shared()
                .id("keys"),
        )
        .with(
            FlowRule::per_second("/open", 50)
                .shared()
                .when_down(WhenDown::Open)
                .id("open"),
        );
    let fleet = Fleet::new::<2>(rules).await;
    let resources = [
        ("leased", "/leased"),
        ("exact", "/exact"),
        ("keys", "/keys"),
        ("open", "/open"),
    ];
    let (mut passed, mut refused) = ([0_u64; 4], [0_u64; 4]);
    for tenth in 0..60 {
        let is_away = (20..40).contains(&tenth);
        let error = Fault::Error(StoreErrorKind::Unreachable);
        fleet.store.set_fault(is_away.then_some(error));
        for (place, (_, resource)) in resources.into_iter().enumerate() {
            for number in 0..8_usize {
                let engine = fleet.engine(number % 3 % 2);
                let call = Call::new(resource).param("ann");
                match engine.enter(call.batch(number as u32 % 2 + 1)).await {
                    Ok(_) => passed[place] += number as u64 % 2 + 1,
                    Err(_) => refused[place] += 1,
                }
            }
        }
        tokio::time::sleep(ms(100)).await;
    }
    // The task of the store comes by again where a key is asked for.
    tokio::time::sleep(SECOND * 2).await;
    for index in 0..2 {
        drop(
            fleet
                .engine(index)
                .enter(Call::new("/keys").param("ann").batch(51))
                .await,
        );
        drop(
            fleet
                .engine(index)
                .enter(Call::new("/keys").param("ann"))
                .await,
        );
    }
    for (place, (id, _)) in resources.into_iter().enumerate() {
        let both = [0, 1].map(|index| shared(fleet.engine(index), id));
        let sum = |of: fn(&SharedSnapshot) -> u64| both.iter().map(of).sum::<u64>();
        let (granted, local) = (sum(SharedSnapshot::granted), sum(SharedSnapshot::local));
        let is_by_key = id == "keys";
        let more = if is_by_key { 2 } else { 0 };
        assert_eq!(granted + local, passed[place] + more, "{id}: {both:?}");
        assert!(granted > 0 && local > 0, "{id}: {both:?}");
        assert_eq!(sum(SharedSnapshot::refused), refused[place] + more, "{id}");
        assert!(sum(SharedSnapshot::waited) > 0, "{id}");
        assert_eq!(both[0].store_key().is_none(), is_by_key);
        assert_eq!(both[0].store_key(), both[1].store_key());
        assert!(both[0].cells() > 0);
    }
    // A reload keeps what was counted.
    let engine = fleet.engine(0);
    let before = shared(engine, "leased");
    engine.reload(
        FlowRule::per_second("/leased", 60)
            .shared()
            .id("leased")
            .into(),
    );
    fleet.begin_second().await;
    drop(engine.enter(Call::new("/leased")).await.unwrap());
    let after = shared(engine, "leased");
    let sum = |it: &SharedSnapshot| it.granted() + it.local();
    assert_eq!(sum(&after), sum(&before) + 1);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_a_reload_gives_another_number_counts_under_that() {
    let one = || FlowRule::per_second("/one", 9).shared().exact();
    let two = || FlowRule::per_second("/two", 9).shared().exact();
    let fleet = Fleet::new::<1>(Rules::new().with(one()).with(two())).await;
    let engine = fleet.engine(0);
    assert_eq!(fleet.passed(3, Call::new("/two")).await, 3);
    engine.reload(two().into());
    assert_eq!(fleet.passed(4, Call::new("/two")).await, 4);
    // What was counted under the old one stays there, and nothing else comes to it.
    assert_eq!(shared(engine, "flow-0").granted(), 4);
    engine.reload(Rules::new().with(one()).with(two()));
    assert_eq!(shared(engine, "flow-0").granted(), 4);
    assert_eq!(shared(engine, "flow-1").granted(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_told_in_snapshots_series_and_on_the_page() {
    let rule = FlowRule::per_second("/v1", 9).shared().exact().id("nine");
    let fleet = Fleet::new::<2>(rule).await;
    let engine = fleet.engine(0);
    assert_eq!(fleet.passed(2, Call::new("/v1")).await, 2);
    let json: Value = serde_json::from_str(&engine.snapshot().to_json()).unwrap();
    let store = &json["store"];
    assert_eq!(
        (&store["state"], &store["nodes"]),
        (&"live".into(), &2.into())
    );
    assert_eq!(
        (&store["draws"], &store["last_error"]),
        (&1.into(), &Value::Null)
    );
    assert_eq!(store["errors"].as_object().unwrap().len(), 6);
    let own = &json["shared_rules"][0];
    assert_eq!((&own["rule"], &own["granted"]), (&"nine".into(), &1.into()));
    assert_eq!((&own["waited"], &own["cells"]), (&1.into(), &1.into()));
    assert!(own["store_key"].as_str().unwrap().starts_with("ts:1:{"));

    for (name, figures) in [
        ("sentinel_store_up", &[1.0][..]),
        ("sentinel_store_nodes", &[2.0]),
        ("sentinel_store_draws", &[1.0]),
        ("sentinel_store_errors", &[0.0; 6]),
        ("sentinel_shared_granted", &[1.0]),
        ("sentinel_shared_waited", &[1.0]),
        ("sentinel_shared_refused", &[0.0]),
        ("sentinel_shared_local", &[0.0]),
        ("sentinel_shared_lost", &[0.0]),
    ] {
        assert_eq!(series(engine, name), figures, "{name}");
    }
    assert_eq!(series(engine, "sentinel_store_trip_seconds").len(), 1);

    fleet
        .store
        .set_fault(Some(Fault::Error(StoreErrorKind::Full)));
    tokio::time::sleep(SECOND).await;
    assert_eq!(series(engine, "sentinel_store_up"), [0.0]);
    let text = Metrics::new(engine).render(TextFormat::Classic);
    let full = text
        .lines()
        .find(|it| it.starts_with("sentinel_store_errors_total{kind=\"full\"}"));
    assert!(!full.unwrap().ends_with(" 0"), "{full:?}");
    let page = state(engine).await;
    assert_eq!(page["store"]["state"], "down");
    assert_eq!(page["store"]["last_error"], "full");

    // An engine without a store has none of it.
    let none = Sentinel::new(FlowRule::per_second("/v1", 9));
    assert!(none.snapshot().store().is_none() && none.snapshot().shared_rules().is_empty());
    for family in Metrics::new(&none).families() {
        let is_of_store = ["sentinel_store_", "sentinel_shared_"];
        if is_of_store.iter().any(|it| family.name().starts_with(it)) {
            assert!(family.samples().is_empty(), "{}", family.name());
        }
    }
    assert_eq!(state(&none).await["store"], Value::Null);
}

/// The data of the live page.
async fn state(sentinel: &Sentinel) -> Value {
    use tower::ServiceExt;
    let request = http::Request::get("/?state").header("host", "localhost");
    let page = Page::new(sentinel).open();
    let answer = page.oneshot(request.body(()).unwrap()).await.unwrap();
    let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 1 << 20).await;
    serde_json::from_slice(&body.unwrap()).unwrap()
}

/// The kinds of what is found about the store, with the sentences.
fn found(sentinel: &Sentinel) -> Vec<(FindingKind, String)> {
    let all = sentinel.findings().into_iter();
    let of_store = all.filter(|it| it.kind() != FindingKind::NoCalls);
    of_store.map(|it| (it.kind(), it.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_nobody_has_started_is_found() {
    let rule = FlowRule::per_second("/v1", 9).shared();
    let sentinel = Sentinel::builder()
        .rules(rule)
        .store(MemoryStore::new())
        .store_settings(StoreSettings::new().nodes(1))
        .build();
    let [(kind, text)] = &found(&sentinel)[..] else {
        panic!("{:?}", found(&sentinel))
    };
    assert_eq!(*kind, FindingKind::StoreNotStarted);
    assert!(text.contains("start_store"), "{text}");
    let handle = sentinel.start_store().unwrap();
    tokio::time::sleep(ms(20)).await;
    assert_eq!(found(&sentinel), []);
    handle.shutdown().await;
    assert_eq!(found(&sentinel).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn more_processes_than_were_set_and_short_buckets_are_found() {
    let rules = Rules::new()
        .with(FlowRule::per("/fast", 9, ms(60)).shared().exact())
        .with(FlowRule::per_second("/slow", 9).shared().exact());
    let fleet = Fleet::with::<2>(rules, StoreSettings::new().nodes(1)).await;
    let engine = fleet.engine(0);
    let kinds = || -> Vec<_> {
        let found = engine.findings().into_iter();
        found.map(|it| (it.kind(), it.rule().to_owned())).collect()
    };
    drop(engine.enter(Call::new("/fast")).await);
    let more = (FindingKind::MoreNodes, String::new());
    assert!(kinds().contains(&more), "{:?}", kinds());
    fleet.store.set_fault(Some(Fault::SlowRequest(ms(5))));
    for _ in 0..100 {
        drop(engine.enter(Call::new("/fast")).await);
        tokio::time::sleep(ms(20)).await;
    }
    let short = (FindingKind::ShortBuckets, "flow-0".to_owned());
    assert!(kinds().contains(&short), "{:?}", kinds());
    assert!(!kinds().contains(&(FindingKind::ShortBuckets, "flow-1".to_owned())));
}

#[test]
fn a_limit_below_the_number_of_processes_is_found() {
    let minute = |limit: u32| FlowRule::per_minute("/v1", limit).shared();
    let login = || KeyedRule::per_second("/v1", 9).window().shared();
    let empty = |rule: Rule, nodes| -> Vec<_> {
        let sentinel = Sentinel::builder()
            .rules(Rules::build([rule]).unwrap())
            .store(MemoryStore::new())
            .store_settings(StoreSettings::new().nodes(nodes))
            .build();
        let found = found(&sentinel).into_iter();
        found
            .filter(|(kind, _)| *kind == FindingKind::NoShare)
            .map(|(_, text)| text)
            .collect()
    };
    assert_eq!(
        empty(minute(3).into(), 5),
        [
            "rule \"flow-0\" for \"/v1\" admits nothing in some processes without the store: its \
             limit of 3 is one each for as many of 5; set `local_limit`, or another `when_down`"
        ],
    );
    for (rule, nodes, expected) in [
        (minute(3).into(), 3, 0),
        (minute(0).into(), 5, 0),
        (minute(3).per_node().into(), 5, 0),
        (minute(3).local_limit(1).into(), 5, 0),
        (minute(3).when_down(WhenDown::Closed).into(), 5, 0),
        (login().param("user").into(), 9, 0),
        (login().param("user").into(), 10, 1),
        (login().param("user").tier("free", 4).into(), 5, 1),
        (login().param("user").tier("none", 0).into(), 5, 0),
    ] {
        let rule: Rule = rule;
        assert_eq!(empty(rule.clone(), nodes).len(), expected, "{rule:?}");
    }
}

#[derive(Debug)]
struct Told(Sender<FindingKind>);

impl Hook for Told {
    fn on_finding(&self, finding: &Finding) {
        self.0.send(finding.kind()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn that_the_store_refuses_is_found_and_hooks_hear_of_it_once_a_minute() {
    let fleet = Fleet::new::<1>(FlowRule::per_second("/v1", 9).shared()).await;
    let engine = fleet.engine(0);
    let (tell, told) = channel();
    engine.hooks().register("told", Arc::new(Told(tell)));
    drop(engine.enter(Call::new("/v1")).await);
    assert_eq!(found(engine), []);
    fleet
        .store
        .set_fault(Some(Fault::Error(StoreErrorKind::Refused)));
    for _ in 0..130 {
        tokio::time::sleep(SECOND).await;
        let found = found(engine);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, FindingKind::StoreRefuses);
    }
    assert_eq!(
        told.try_iter().collect::<Vec<_>>(),
        [FindingKind::StoreRefuses; 3]
    );
    fleet.store.set_fault(None);
    tokio::time::sleep(SECOND * 62).await;
    assert_eq!(found(engine), []);
    assert_eq!(engine.store().unwrap().state(), StoreState::Live);
}

#[tokio::test]
async fn no_address_password_or_key_is_in_any_output() {
    const MARKER: &str = "m4rk3r";
    let url = format!("redis://{MARKER}:{MARKER}@127.0.0.1:1/0");
    let rule = KeyedRule::per_second("/keys", 9).window().shared();
    let sentinel = Sentinel::builder()
        .rules(rule)
        .store(RedisStore::new(&url).unwrap().with_prefix("ts").unwrap())
        .store_settings(StoreSettings::new().digest_secret(MARKER))
        .build();
    let handle = sentinel.start_store().unwrap();
    // It does not answer: the call waits until the rule serves it without the store.
    drop(sentinel.enter(Call::new("/keys").param(MARKER)).await);
    while sentinel.store().unwrap().last_error().is_none() {
        tokio::task::yield_now().await;
    }
    let snapshot = sentinel.snapshot();
    for (what, text) in [
        ("JSON", snapshot.to_json()),
        ("snapshot", format!("{snapshot:?}")),
        (
            "metrics",
            Metrics::new(&sentinel).render(TextFormat::OpenMetrics),
        ),
        ("findings", format!("{:?}", sentinel.findings())),
        ("page", state(&sentinel).await.to_string()),
        ("engine", format!("{sentinel:?} {handle:?}")),
        (
            "error",
            sentinel.store().unwrap().last_error().unwrap().to_string(),
        ),
    ] {
        assert!(!text.is_empty(), "{what}");
        for secret in [MARKER, "127.0.0.1", "redis://"] {
            assert!(!text.contains(secret), "{what}: {text}");
        }
    }
}
