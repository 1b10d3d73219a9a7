//! A user with no more rights than are needed.

use std::sync::mpsc::channel;
use std::time::Duration;

use tower_sentinel::hook::{Finding, FindingKind};
use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreSettings};
use tower_sentinel::{Call, FlowRule, KeyedRule, Sentinel};

use crate::cluster::Cluster;
use crate::redis::Server;
use crate::{asked, errors, named, passed, started};

const WAIT: Duration = Duration::from_secs(5);

/// Those of the documentation.
pub(crate) const RIGHTS: &str =
    "+evalsha +script|load +time +get +set +zadd +zremrangebyscore +zcard +zrange +zrank +zrem";

fn rule() -> FlowRule {
    FlowRule::per_minute("/v1", 8).shared().exact()
}

#[tokio::test]
async fn the_rights_of_the_documentation_suffice() {
    let Some(server) = Server::start("rights", &[]).await else {
        return;
    };
    server.say(&format!("ACL SETUSER shop on >hush ~shop:* {RIGHTS}"));
    let url = server.url() + "?user=shop&pass=hush";
    let store = RedisStore::new(&url).unwrap().with_prefix("shop").unwrap();
    let (sentinel, handle) = started(store, rule(), WAIT).await;
    let before = errors(&sentinel);
    assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 8);
    assert_eq!(errors(&sentinel), before, "no draw has failed");
    handle.shutdown().await;
    let alive = server.say("ZCARD shop:1:{nodes}");
    assert_eq!(alive, ":0\r\n", "it has said that it leaves");
}

/// What is found about the policy of the server, when a store by this URL is live.
async fn found_of_policy(url: &str) -> Option<String> {
    let store = RedisStore::new(url).unwrap().with_prefix("shop").unwrap();
    let (sentinel, _handle) = started(store, rule(), WAIT).await;
    let found = sentinel.findings().into_iter();
    let mut found = found.filter(|it| it.kind() == FindingKind::StoreEvicts);
    found.next().map(|it| it.to_string())
}

#[tokio::test]
async fn a_server_that_removes_counters_is_found_by_the_name_of_its_policy() {
    let policy = ["--maxmemory-policy", "volatile-ttl"];
    let Some(server) = Server::start("evicts", &policy).await else {
        return;
    };
    let found = found_of_policy(&server.url()).await;
    assert_eq!(
        found.as_deref(),
        Some(
            "the store removes counters when its memory is full: its policy is \"volatile-ttl\", and \
             a limit whose counter is removed is admitted once more; set `maxmemory-policy` to \
             noeviction, and leave it room"
        ),
    );
    // A managed server says no more than this.
    server.say(&format!("ACL SETUSER some on >hush ~shop:* {RIGHTS} +info"));
    server.say(&format!("ACL SETUSER none on >hush ~shop:* {RIGHTS}"));
    let url = |user| server.url() + "?user=" + user + "&pass=hush";
    assert_eq!(found_of_policy(&url("some")).await, found);
    assert_eq!(found_of_policy(&url("none")).await, None, "it may not ask");
    // It is asked with each new connection.
    server.say("CONFIG SET maxmemory-policy noeviction");
    assert_eq!(found_of_policy(&server.url()).await, None, "it keeps them");
}

#[tokio::test]
async fn one_master_of_a_cluster_that_removes_counters_is_enough() {
    let Some(cluster) = Cluster::start("evicts-cluster").await else {
        return;
    };
    for evicts in [None, Some(0), Some(1), Some(2)] {
        for (index, (master, _)) in cluster.masters.iter().enumerate() {
            let policy = if Some(index) == evicts {
                "allkeys-lfu"
            } else {
                "noeviction"
            };
            master.say(&format!("CONFIG SET maxmemory-policy {policy}"));
        }
        // Only masters that are asked have a connection.
        let rule = KeyedRule::per_minute("/v1", 8).window().shared().exact();
        let (sentinel, _handle) = started(cluster.store(), rule, WAIT).await;
        cluster.reach_all(&sentinel).await;
        let found = sentinel.findings().into_iter();
        let mut found = found.filter(|it| it.kind() == FindingKind::StoreEvicts);
        let names_policy = found
            .next()
            .map(|it| it.to_string().contains("allkeys-lfu"));
        assert_eq!(names_policy, evicts.map(|_| true), "{evicts:?}");
    }
}

/// Hooks hear of it without being asked, by the task of the store.
#[tokio::test]
async fn hooks_hear_of_a_server_that_removes_counters() {
    let Some(server) = Server::start("evicts-told", &["--maxmemory-policy", "allkeys-lru"]).await
    else {
        return;
    };
    let (tell, told) = channel();
    let sentinel = Sentinel::builder()
        .rules(rule())
        .store(named(&server.url()))
        .store_settings(StoreSettings::new().nodes(1).store_wait(WAIT))
        .on_finding(move |finding: &Finding| tell.send(finding.kind()).unwrap())
        .build();
    let _handle = sentinel.start_store().unwrap();
    let mut found = Vec::new();
    while !found.contains(&FindingKind::StoreEvicts) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        found.extend(told.try_iter());
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let Some(server) = Server::start("missing", &[]).await else {
        return;
    };
    // Without one of these a process cannot say that it leaves; the other is for 257 and more.
    let is_seen_here = |right: &&str| !["+zrem", "+zrank"].contains(right);
    for right in RIGHTS.split(' ').filter(is_seen_here) {
        let others = RIGHTS.split(' ').filter(|other| *other != right);
        let others = others.collect::<Vec<_>>().join(" ");
        server.say("SCRIPT FLUSH");
        server.say("FLUSHALL");
        server.say(&format!("ACL SETUSER shop reset on >hush ~shop:* {others}"));
        let url = server.url() + "?user=shop&pass=hush";
        let store = RedisStore::new(&url).unwrap().with_prefix("shop").unwrap();
        let (sentinel, handle) = asked(store, rule(), WAIT).await;
        let passed = passed(&sentinel, Call::new("/v1"), 12).await;
        assert_eq!(passed, 2, "without {right}: the share is 2");
        let findings = sentinel.findings();
        let mut told = findings.iter().map(ToString::to_string);
        let is_named = told.any(|it| it.contains("the store refused: NOPERM"));
        assert!(is_named, "without {right}: {findings:?}");
        let status = sentinel.store().unwrap();
        assert!(status.errors(StoreErrorKind::Refused) > 0, "{status:?}");
        handle.shutdown().await;
    }
}
