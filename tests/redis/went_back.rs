//! A server that comes back with older data.

use std::time::Duration;

use tower_sentinel::store::StoreState;
use tower_sentinel::{Call, FlowRule};

use crate::redis::Server;
use crate::{engine_with, passed, store, until};

/// How many beats the server has counted.
fn beats(server: &Server) -> u64 {
    let count = String::from_utf8(server.get("ts:1:{nodes}n")).unwrap();
    count.parse().unwrap_or(0)
}

/// Waits until the server has counted so many more beats.
async fn beat(server: &Server, more: u64) {
    let enough = beats(server) + more;
    while beats(server) < enough {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_restarted_from_a_snapshot_hands_nothing_out_twice() {
    let Some(mut server) = Server::start("snapshot", &[]).await else {
        return;
    };
    let week = Duration::from_secs(7 * 86_400);
    let rule = FlowRule::per("/v1", 20, week).buckets(1).shared().exact();
    let engines = [(); 2].map(|()| {
        let long = Duration::from_secs(5);
        engine_with(store(&server), rule.clone(), long)
    });
    for (engine, _) in &engines {
        until(engine, StoreState::Live).await;
    }
    beat(&server, 4).await;
    server.say("SAVE");
    let call = Call::new("/v1");
    for (engine, _) in &engines {
        assert_eq!(passed(engine, call, 8).await, 8, "all are the store's");
    }
    // Each has heard of more beats than the snapshot has.
    beat(&server, 6).await;
    server.kill();
    for (engine, _) in &engines {
        until(engine, StoreState::Down).await;
    }
    let draws = engines
        .each_ref()
        .map(|(it, _)| it.store().unwrap().draws());
    server.run_from_snapshot(&[]).await;
    for ((engine, _), before) in engines.iter().zip(draws) {
        until(engine, StoreState::Live).await;
        let draws = engine.store().unwrap().draws();
        assert!(draws > before, "what was admitted is told to the store");
    }
    let mut after = 0;
    for (engine, _) in &engines {
        after += passed(engine, call, 20).await;
    }
    assert_eq!(16 + after, 20, "the store knows of all calls");
}
