//! Whatever a server says no with is told by its name: in the status, a finding, and metrics.

use std::time::Duration;

use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreSettings, StoreState};
use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::certificates::Certificates;
use crate::redis::{Server, free_port};
use crate::{asked, named, passed, store, until};

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
    let (sentinel, handle) = asked(store, rule, Duration::from_secs(5)).await;
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
    let wrong = RedisStore::new(&(server.url() + "?pass=wrong-one"))
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    assert!(!format!("{wrong:?}").contains("wrong-one"));
    assert_named(wrong, StoreErrorKind::Refused, "WRONGPASS", true).await;
    let nobody = RedisStore::new(&(server.url() + "?user=nobody&pass=wrong-one"))
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    assert_named(nobody, StoreErrorKind::Refused, "WRONGPASS", true).await;
}

/// Waits for the last error of an engine on `store`, and asserts that it ends with these words.
async fn assert_not_opened(store: RedisStore, words: &str) {
    let rule = FlowRule::per_minute("/v1", 8).shared();
    let (sentinel, handle) = asked(store, rule, Duration::from_secs(5)).await;
    until(&sentinel, StoreState::Down).await;
    let error = sentinel.store().unwrap().last_error().unwrap().to_string();
    assert!(error.ends_with(words), "{error:?} instead of {words:?}");
    for secret in ["hush", "127.0.0.1", "nowhere"] {
        assert!(!error.contains(secret), "{error}");
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn why_a_connection_cannot_be_opened_is_told_apart() {
    let port = free_port();
    let Some(server) = Server::start("unopened", &["--port", &port.to_string()]).await else {
        return;
    };
    let address = format!("127.0.0.1:{port}");
    let refused = "the connection was refused: nobody listens at the address";
    let no_tls = "there is no TLS at the address, where the URL wants it";
    let no_database = "ERR, there is no database of that number";
    let too_many = "the server has as many clients as it takes (maxclients)";
    assert_not_opened(named("redis://:hush@127.0.0.1:1"), refused).await;
    let no_socket = "there is no socket at the path";
    assert_not_opened(named("redis+unix:///nowhere/at/all"), no_socket).await;
    assert_not_opened(named(&format!("redis://{address}/99")), no_database).await;
    assert_not_opened(named(&format!("rediss://{address}")), no_tls).await;
    let _only = server.talk();
    server.say("CONFIG SET maxclients 1");
    assert_not_opened(named(&format!("redis://{address}")), too_many).await;
}

#[tokio::test]
async fn a_server_that_speaks_only_tls_is_told() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let port = free_port();
    let arguments = files.arguments(port, false);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let Some(_server) = Server::start("only-tls", &arguments).await else {
        return;
    };
    let store = named(&format!("redis://:hush@127.0.0.1:{port}"));
    let words = "the server ended the new connection; is there TLS at the address?";
    assert_not_opened(store, words).await;
}

/// Half of the replicas have another secret, or another number of replicas.
#[tokio::test]
async fn processes_with_other_settings_are_found_by_each_other() {
    let Some(server) = Server::start("others", &[]).await else {
        return;
    };
    let settings = |nodes, secret| StoreSettings::new().nodes(nodes).digest_secret(secret);
    let engines = [
        settings(3, "hush"),
        settings(3, "other"),
        settings(4, "hush"),
    ]
    .map(|settings| {
        let sentinel = Sentinel::builder()
            .rules(FlowRule::per_minute("/v1", 8).shared())
            .store(store(&server))
            .store_settings(settings)
            .build();
        let handle = sentinel.start_store().unwrap();
        (sentinel, handle)
    });
    let one = "1 have another `digest_secret`, or none, and count apart from this one";
    let two = "2 have another `digest_secret`, or none, and count apart from this one";
    for ((sentinel, _), (secret, nodes)) in engines.iter().zip([
        (one, "1 have another `nodes` than 3"),
        (two, "1 have another `nodes` than 3"),
        (one, "2 have another `nodes` than 4"),
    ]) {
        let expected = format!("{secret}; {nodes}");
        let is_found = || {
            let found = sentinel.findings().into_iter();
            found
                .map(|it| it.cause().to_owned())
                .any(|it| it == expected)
        };
        let mut looks = 0;
        while !is_found() {
            looks += 1;
            assert!(
                looks < 4_000,
                "no {expected:?} in {:?}",
                sentinel.findings()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
