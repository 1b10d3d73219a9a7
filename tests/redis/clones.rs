//! Several engines on one store: they have one connection, which none takes from the others.

use std::time::Duration;

use tower_sentinel::store::{RedisStore, StoreHandle, StoreState};
use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::proxy::{Proxy, Way};
use crate::redis::Server;
use crate::{asked, errors, passed, started};

#[tokio::test]
async fn engines_on_clones_of_a_slow_store_are_never_without_it() {
    let Some(server) = Server::start("clones", &[]).await else {
        return;
    };
    let proxy = Proxy::start(server.socket()).await;
    // Their beats overlap: each takes nearly as long as the time between two.
    proxy.set(Way::Delay(Duration::from_millis(200)));
    let store = RedisStore::new(&proxy.url())
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    let mut engines: Vec<(Sentinel, StoreHandle)> = Vec::new();
    for _ in 0..5 {
        let rule = FlowRule::per_minute("/v1", 500).shared().exact();
        engines.push(started(store.clone(), rule, Duration::from_secs(5)).await);
    }
    let before: Vec<_> = engines.iter().map(|(it, _)| errors(it)).collect();
    for _ in 0..6 {
        let calls = engines.iter().map(|(sentinel, _)| {
            let sentinel = sentinel.clone();
            tokio::spawn(async move { passed(&sentinel, Call::new("/v1"), 1).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap(), 1);
        }
    }
    let after: Vec<_> = engines.iter().map(|(it, _)| errors(it)).collect();
    assert_eq!(after, before, "no request has failed");
    for (sentinel, handle) in engines {
        assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
        handle.shutdown().await;
    }
    let stats = server.say("INFO stats");
    let mut lines = stats.lines();
    let opened = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    // That of the store, one by which the start was noticed, and this one.
    assert_eq!(opened.unwrap().trim(), "3");
}

#[tokio::test]
async fn connecting_goes_on_while_beats_are_given_up() {
    let Some(server) = Server::start("far", &[]).await else {
        return;
    };
    let proxy = Proxy::start(server.socket()).await;
    // Opening a connection takes several trips, and each beat has time for one and a half.
    proxy.set(Way::Delay(Duration::from_millis(200)));
    let store = RedisStore::new(&proxy.url())
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    let rule = FlowRule::per_minute("/v1", 8).shared().exact();
    let (sentinel, handle) = asked(store, rule, Duration::from_millis(300)).await;
    crate::until(&sentinel, StoreState::Down).await;
    crate::until(&sentinel, StoreState::Live).await;
    handle.shutdown().await;
}
