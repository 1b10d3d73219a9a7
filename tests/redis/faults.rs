//! What the store may do to four engines under twice their limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreState};
use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::redis::Server;
use crate::{Admitted, LIMIT, SKEW, engine, load, rule, store, worst};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Four engines that make twice as many calls as they may, while `fault` happens. Returns the
/// worst window.
async fn run(server: &mut Server, buckets: u32, fault: impl AsyncFnOnce(&mut Server)) -> u32 {
    server.say("FLUSHALL");
    let stop = Arc::new(AtomicBool::new(false));
    let bucket_us = 1_000_000 / u64::from(buckets);
    let mut running = Vec::new();
    let mut engines = Vec::new();
    for part in SKEW {
        let (sentinel, handle) = engine(store(server), rule(buckets));
        let per_second = 2 * LIMIT * part / 100;
        running.push(tokio::spawn(load(
            sentinel.clone(),
            per_second,
            stop.clone(),
            bucket_us,
        )));
        engines.push((sentinel, handle));
    }
    tokio::time::sleep(ms(1_400)).await;
    fault(server).await;
    tokio::time::sleep(ms(2_000)).await;
    for (sentinel, _) in &engines {
        assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = Admitted::new();
    for running in running {
        for (bucket, count) in running.await.unwrap() {
            *all.entry(bucket).or_default() += count;
        }
    }
    worst(&all, buckets)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_hands_the_limit_out_twice() {
    let Some(mut server) = Server::start("faults", &[]).await else {
        return;
    };
    let server = &mut server;
    let mut rows = Vec::new();
    for buckets in [1, 2] {
        let mut row = |name, worst| {
            println!("{name}, {buckets} buckets: worst {worst} of {LIMIT}");
            rows.push((name, worst));
        };
        let fault = async |server: &mut Server| {
            server.kill();
            tokio::time::sleep(ms(1_500)).await;
            server.run(&[]).await;
        };
        row("killed, restarted empty", run(server, buckets, fault).await);
        let fault = async |server: &mut Server| {
            server.kill();
            server.run(&[]).await;
        };
        row("restarted empty at once", run(server, buckets, fault).await);
        let fault = async |server: &mut Server| {
            server.signal("STOP");
            tokio::time::sleep(ms(1_200)).await;
            server.signal("CONT");
        };
        row("stopped", run(server, buckets, fault).await);
        let fault = async |server: &mut Server| {
            server.say("FLUSHALL");
        };
        row("flushed", run(server, buckets, fault).await);
        let fault = async |server: &mut Server| {
            server.say("SCRIPT FLUSH");
        };
        row("without its scripts", run(server, buckets, fault).await);
        let fault = async |server: &mut Server| {
            server.say("CLIENT PAUSE 600");
        };
        row("paused", run(server, buckets, fault).await);
        let fault = async |server: &mut Server| {
            server.say("REPLICAOF 127.0.0.1 1");
            tokio::time::sleep(ms(800)).await;
            server.say("REPLICAOF NO ONE");
        };
        row("read-only", run(server, buckets, fault).await);
    }
    // The bound of the guarantees is 1.75 times the limit.
    for (name, worst) in rows {
        assert!(worst <= LIMIT * 125 / 100, "{name}: {worst}");
    }
}

/// What an engine notes of a store that refuses it, and that it admits its share all the same.
async fn refused(store: RedisStore, kind: StoreErrorKind) -> Sentinel {
    let rule = FlowRule::per_minute("/v1", 8).shared();
    let (sentinel, handle) = engine(store, rule);
    tokio::time::sleep(ms(200)).await;
    let mut passed = 0;
    for _ in 0..20 {
        passed += usize::from(sentinel.enter(Call::new("/v1")).await.is_ok());
    }
    assert!(
        (1..=3).contains(&passed),
        "a share of 8 over 4, and one of a late call: {passed}"
    );
    let status = sentinel.store().unwrap();
    assert!(status.errors(kind) > 0, "{status:?}");
    drop(handle);
    sentinel
}

#[tokio::test]
async fn a_server_that_refuses_is_named_and_leaves_shares() {
    let Some(server) = Server::start("refusals", &["--requirepass", "hush"]).await else {
        return;
    };
    // Without a password.
    let sentinel = refused(store(&server), StoreErrorKind::Refused).await;
    let error = sentinel.store().unwrap().last_error().unwrap().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
    // With a wrong one, which nobody shows.
    let url = server.url() + "?pass=wrong";
    let wrong = RedisStore::new(&url).unwrap();
    assert!(!format!("{wrong:?}").contains("wrong"));
    let sentinel = refused(wrong, StoreErrorKind::Refused).await;
    let error = sentinel.store().unwrap().last_error().unwrap().to_string();
    assert!(!error.contains("wrong"), "{error}");
}

#[tokio::test]
async fn a_server_without_memory_or_rights_serves_shares() {
    let Some(server) = Server::start("full", &[]).await else {
        return;
    };
    server.say("CONFIG SET maxmemory 1");
    refused(store(&server), StoreErrorKind::Full).await;
    server.say("CONFIG SET maxmemory 0");
    server.say("ACL SETUSER default -evalsha");
    refused(store(&server), StoreErrorKind::Refused).await;
}

#[tokio::test]
async fn no_server_at_all_leaves_shares() {
    let store = RedisStore::new("redis+unix:///nowhere/at/all").unwrap();
    refused(store, StoreErrorKind::Unreachable).await;
}
