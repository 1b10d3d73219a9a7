//! A user with no more rights than are needed.

use std::time::Duration;

use tower_sentinel::store::{RedisStore, StoreErrorKind};
use tower_sentinel::{Call, FlowRule};

use crate::redis::Server;
use crate::{passed, started};

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
    assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 8);
    let status = sentinel.store().unwrap();
    assert!(status.last_error().is_none(), "{status:?}");
    handle.shutdown().await;
    let alive = server.say("ZCARD shop:1:{nodes}");
    assert_eq!(alive, ":0\r\n", "it has said that it leaves");
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
        let (sentinel, handle) = started(store, rule(), WAIT).await;
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
