//! Whatever a server says no with is told by its name: in the status, a finding, and metrics.

use std::time::Duration;

use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::store::{RedisStore, StoreErrorKind};
use tower_sentinel::{Call, FlowRule};

use crate::redis::Server;
use crate::{passed, started, store};

/// What happens to a server, what is told of it, and whether it is for its operator to mend.
const CASES: [(&str, StoreErrorKind, &str, bool); 6] = [
    (
        "ACL SETUSER default -evalsha",
        StoreErrorKind::Refused,
        "NOPERM",
        true,
    ),
    (
        "ACL SETUSER default -set",
        StoreErrorKind::Refused,
        "NOPERM",
        true,
    ),
    (
        "ACL SETUSER default resetkeys ~other:*",
        StoreErrorKind::Refused,
        "NOPERM",
        true,
    ),
    (
        "CONFIG SET requirepass hush",
        StoreErrorKind::Refused,
        "NOAUTH",
        true,
    ),
    ("CONFIG SET maxmemory 1", StoreErrorKind::Full, "OOM", false),
    (
        "REPLICAOF 127.0.0.1 1",
        StoreErrorKind::ReadOnly,
        "READONLY",
        false,
    ),
];

async fn assert_named(store: RedisStore, kind: StoreErrorKind, word: &str, is_found: bool) {
    let rule = FlowRule::per_minute("/v1", 8).shared();
    let (sentinel, handle) = started(store, rule, Duration::from_secs(5)).await;
    assert_eq!(
        passed(&sentinel, Call::new("/v1"), 20).await,
        2,
        "the share is 2"
    );
    let status = sentinel.store().unwrap();
    assert!(status.errors(kind) > 0, "{word}: {status:?}");
    let error = status.last_error().unwrap().to_string();
    assert!(error.contains(word), "{error}");
    let findings = sentinel.findings();
    let mut told = findings.iter().map(ToString::to_string);
    assert_eq!(
        told.any(|it| it.contains(word)),
        is_found,
        "{word}: {findings:?}"
    );
    let text = Metrics::new(&sentinel).render(TextFormat::Classic);
    let label = kind.as_str().replace('-', "_");
    let series = format!("sentinel_store_errors_total{{kind=\"{label}\"}} ");
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix(&series));
    let count = count.unwrap_or_else(|| panic!("no {series} in {text}"));
    assert!(count.parse::<f64>().unwrap() > 0.0, "{word}: {count}");
    assert!(text.contains("sentinel_store_up 0"), "{word}");
    handle.shutdown().await;
}

#[tokio::test]
async fn what_a_server_refuses_is_named() {
    for (index, (command, kind, word, is_found)) in CASES.into_iter().enumerate() {
        let Some(server) = Server::start(&format!("named-{index}"), &[]).await else {
            return;
        };
        server.say(command);
        assert_named(store(&server), kind, word, is_found).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_shown() {
    let Some(server) = Server::start("password", &["--requirepass", "hush"]).await else {
        return;
    };
    let wrong = RedisStore::new(&(server.url() + "?pass=wrong-one")).unwrap();
    assert!(!format!("{wrong:?}").contains("wrong-one"));
    assert_named(wrong, StoreErrorKind::Refused, "WRONGPASS", true).await;
    let nobody = RedisStore::new(&(server.url() + "?user=nobody&pass=wrong-one")).unwrap();
    assert_named(nobody, StoreErrorKind::Refused, "WRONGPASS", true).await;
}
