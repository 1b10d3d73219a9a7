//! Mistakes in the set-up of a store: what an engine says of them by itself.

use std::sync::mpsc::{Receiver, channel};

use tower_sentinel::clock::TokioClock;
use tower_sentinel::hook::{Finding, FindingKind};
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Fault, MemoryStore, QuotaStore, RedisStore, StoreError,
    StoreErrorKind, StoreFuture, StoreHandle, StoreMistake, StoreSettings, StoreState, WhenDown,
};
use tower_sentinel::{Call, FlowRule, Rules, Sentinel};

use super::{SECOND, ms};

/// An engine, and the findings of which its hook hears. Nobody asks for them.
fn engine(
    rules: impl Into<Rules>,
    store: &MemoryStore,
    settings: StoreSettings,
) -> (Sentinel, Receiver<Finding>) {
    let (tell, told) = channel();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(TokioClock::new())
        .store(store.clone())
        .store_settings(settings)
        .on_finding(move |finding: &Finding| tell.send(finding.clone()).unwrap())
        .build();
    (sentinel, told)
}

fn rule() -> FlowRule {
    FlowRule::per_minute("/v1", 9).shared()
}

fn kinds(told: &Receiver<Finding>) -> Vec<FindingKind> {
    told.try_iter().map(|finding| finding.kind()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_is_live_from_its_first_answer_on() {
    for (fault, after_20_ms, after_60_ms) in [
        (
            Fault::SlowAnswer(ms(30)),
            StoreState::Starting,
            StoreState::Live,
        ),
        // A listener that accepts, and says nothing.
        (Fault::LostAnswer, StoreState::Starting, StoreState::Down),
        (
            Fault::Error(StoreErrorKind::Refused),
            StoreState::Down,
            StoreState::Down,
        ),
    ] {
        let store = MemoryStore::with_clock(TokioClock::new());
        store.set_fault(Some(fault));
        // So long is a beat waited for.
        let settings = StoreSettings::new().nodes(1).store_wait(ms(50));
        let (sentinel, _told) = engine(rule(), &store, settings);
        let state = || sentinel.store().unwrap().state();
        let handle = sentinel.start_store().unwrap();
        tokio::time::sleep(ms(20)).await;
        assert_eq!(state(), after_20_ms, "{fault:?}");
        if after_60_ms == StoreState::Live {
            tokio::time::sleep(ms(40)).await;
        } else {
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(state(), after_60_ms, "{fault:?}");
        drop(handle);
    }
}

/// What hooks hear within five seconds of an engine that is started.
async fn told_when_started(
    rules: impl Into<Rules>,
    fault: Option<Fault>,
    settings: StoreSettings,
) -> Vec<Finding> {
    let store = MemoryStore::with_clock(TokioClock::new());
    store.set_fault(fault);
    let (sentinel, told) = engine(rules, &store, settings);
    let handle = sentinel.start_store().unwrap();
    tokio::time::sleep(SECOND * 5).await;
    drop(handle);
    told.try_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_hear_what_is_wrong_with_the_store_without_a_call() {
    let three = || StoreSettings::new().nodes(3);
    let away = Fault::Error(StoreErrorKind::Unreachable);
    let refuses = Fault::Error(StoreErrorKind::Refused);
    let few = || FlowRule::per_minute("/v1", 2).shared();
    for (rule, fault, settings, kinds) in [
        (rule(), None, three(), vec![]),
        (
            rule(),
            Some(away),
            three(),
            vec![FindingKind::StoreUnreachable],
        ),
        (
            rule(),
            Some(Fault::LostRequest),
            three(),
            vec![FindingKind::StoreUnreachable],
        ),
        (
            rule(),
            Some(refuses),
            three(),
            vec![FindingKind::StoreRefuses],
        ),
        (few(), None, three(), vec![FindingKind::NoShare]),
        (
            rule(),
            None,
            StoreSettings::new(),
            vec![FindingKind::NodesNotSet],
        ),
        (rule().local_limit(1), None, StoreSettings::new(), vec![]),
        (
            rule().when_down(WhenDown::Closed),
            None,
            StoreSettings::new(),
            vec![],
        ),
        (rule().per_node(), None, StoreSettings::new(), vec![]),
        (FlowRule::per_minute("/v1", 9), Some(away), three(), vec![]),
    ] {
        let told = told_when_started(rule.clone(), fault, settings).await;
        let found: Vec<_> = told.iter().map(Finding::kind).collect();
        assert_eq!(found, kinds, "{rule:?} {fault:?}: {told:?}");
    }
    let told = told_when_started(rule(), Some(away), three()).await;
    assert_eq!(
        told[0].to_string(),
        "the store has not answered: the store cannot be reached: as it was told to be; look at its \
         address, and whether it can be reached from here",
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_is_no_finding_any_more() {
    let store = MemoryStore::with_clock(TokioClock::new());
    store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    let (sentinel, told) = engine(rule(), &store, StoreSettings::new().nodes(1));
    let handle = sentinel.start_store().unwrap();
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(kinds(&told), [FindingKind::StoreUnreachable]);
    store.set_fault(None);
    tokio::time::sleep(SECOND * 2).await;
    drop(sentinel.enter(Call::new("/v1")).await);
    assert_eq!(sentinel.findings(), []);
    // That it goes later is an outage, which has a state, and no mistake in the set-up.
    store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(sentinel.findings(), []);
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn hooks_hear_at_the_first_call_that_nobody_has_started_the_store() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let rules = Rules::new()
        .with(rule())
        .with(FlowRule::per_minute("/v2", 9));
    let (sentinel, told) = engine(rules, &store, StoreSettings::new().nodes(1));
    drop(sentinel.try_enter(Call::new("/v2")));
    assert_eq!(kinds(&told), []);
    drop(sentinel.try_enter(Call::new("/v1")));
    assert_eq!(kinds(&told), [FindingKind::StoreNotStarted]);
}

#[tokio::test(start_paused = true)]
async fn processes_with_other_settings_are_found_by_each_other() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let settings = |nodes, secret| StoreSettings::new().nodes(nodes).digest_secret(secret);
    let all = [
        settings(3, "hush"),
        settings(3, "hush"),
        settings(4, "other"),
    ]
    .map(|settings| {
        let (sentinel, told) = engine(rule(), &store, settings);
        let handle: StoreHandle = sentinel.start_store().unwrap();
        (sentinel, told, handle)
    });
    tokio::time::sleep(SECOND * 3).await;
    for ((_, told, _), expected) in all.iter().zip([
        "1 have another `digest_secret`, or none, and count apart from this one; 1 have another \
         `nodes` than 3",
        "1 have another `digest_secret`, or none, and count apart from this one; 1 have another \
         `nodes` than 3",
        "2 have another `digest_secret`, or none, and count apart from this one; 2 have another \
         `nodes` than 4",
    ]) {
        let told: Vec<_> = told.try_iter().map(|finding| finding.to_string()).collect();
        let problem = "processes that use the store have other settings: ";
        assert_eq!(told, [format!("{problem}{expected}")]);
        assert!(!told[0].contains("hush"), "{told:?}");
    }
    let [(one, ..), _, (_, _, gone)] = all;
    gone.shutdown().await;
    tokio::time::sleep(SECOND * 3).await;
    drop(one.enter(Call::new("/v1")).await);
    assert_eq!(one.findings(), [], "the other one is gone");
}

/// Nothing is connected to: these hosts are names.
#[test]
fn a_password_that_goes_to_another_machine_in_plain_text_is_found() {
    let one = |url: &str| RedisStore::new(url).unwrap();
    let sentinel = |url: &str, at: &str| RedisStore::sentinel(url, [at]).unwrap();
    for (store, is_found) in [
        (one("redis://:hush@cache"), true),
        (one("redis://ann:hush@10.0.0.9:6380/4"), true),
        (one("redis://:hush@[2001:db8::1]"), true),
        (one("rediss://:hush@cache"), false),
        (one("redis://cache"), false),
        (one("redis://ann@cache"), false),
        (one("redis://:hush@localhost"), false),
        (one("redis://:hush@127.0.0.9:6379"), false),
        (one("redis://:hush@[::1]:6379"), false),
        (one("redis+unix:///a/socket?pass=hush"), false),
        (sentinel("redis://:hush@shop", "redis://s1:26379"), true),
        (sentinel("redis://:hush@shop", "rediss://s1:26379"), true),
        (sentinel("redis://shop", "redis://:hush@s1:26379"), true),
        (sentinel("rediss://:hush@shop", "redis://s1:26379"), false),
        (
            sentinel("redis://:hush@shop", "redis://127.0.0.1:26379"),
            false,
        ),
        (
            RedisStore::cluster(["redis://:hush@127.0.0.1", "redis://:hush@b"]).unwrap(),
            true,
        ),
        (RedisStore::cluster(["rediss://:hush@b"]).unwrap(), false),
    ] {
        let what = store.mistakes();
        let sentinel = Sentinel::builder()
            .rules(rule())
            .store(store)
            .store_settings(StoreSettings::new().nodes(3))
            .build();
        let found = sentinel.findings().into_iter();
        let mut found = found.filter(|it| it.kind() == FindingKind::PlainPassword);
        let told = found.next().map(|it| it.to_string());
        let expected = "the password of the store is sent in plain text: use TLS, by an address that \
                        begins with `rediss://`";
        assert_eq!(told.as_deref(), is_found.then_some(expected), "{what:?}");
    }
}

/// A store whose author has made a mistake.
#[derive(Debug)]
struct Careless(MemoryStore);

impl QuotaStore for Careless {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        self.0.draw(draws)
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        self.0.beat(alive)
    }

    fn mistakes(&self) -> Vec<StoreMistake> {
        panic!("a mistake in the code that looks for mistakes")
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_over_its_mistakes_has_noticed_none() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let sentinel = Sentinel::builder()
        .rules(rule())
        .store(Careless(store))
        .store_settings(StoreSettings::new().nodes(1))
        .build();
    let handle = sentinel.start_store().unwrap();
    tokio::time::sleep(SECOND * 2).await;
    assert!(sentinel.enter(Call::new("/v1")).await.is_ok());
    assert_eq!(sentinel.findings(), []);
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
    drop(handle);
}

#[tokio::test]
async fn a_store_on_a_server_needs_the_name_of_its_service() {
    let store = RedisStore::new("redis://127.0.0.1:1").unwrap();
    let start = |store: RedisStore| {
        let sentinel = Sentinel::builder().rules(rule()).store(store).build();
        sentinel.start_store()
    };
    let error = start(store.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store has no prefix, must have the name of the service: two services without one would \
         count their rules together",
    );
    assert!(start(store.with_prefix("shop").unwrap()).is_ok());
}
