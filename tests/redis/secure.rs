//! Servers with TLS: one, the masters of a Cluster, and those that want certificates of clients.

use std::time::Duration;

use tokio::time::Instant;
use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreState};
use tower_sentinel::{Call, FlowRule, KeyedRule, Sentinel};

use crate::certificates::Certificates;
use crate::cluster::{Cluster, USERS};
use crate::guarded::RIGHTS;
use crate::redis::{Server, free_port};
use crate::{asked, errors, passed, started, until};

const WAIT: Duration = Duration::from_secs(5);

fn rule() -> FlowRule {
    FlowRule::per_minute("/v1", 8).shared().exact()
}

/// A server with TLS, and its port.
async fn secure_server(
    name: &str,
    files: &Certificates,
    wants_clients: bool,
) -> Option<(Server, u16)> {
    let port = free_port();
    let arguments = files.arguments(port, wants_clients);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let server = Server::start(name, &arguments).await?;
    server.say(&format!("ACL SETUSER shop on >hush ~shop:* {RIGHTS}"));
    Some((server, port))
}

#[tokio::test]
async fn a_server_with_tls_counts_for_those_who_trust_it() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let Some((server, port)) = secure_server("tls", &files, false).await else {
        return;
    };
    let url = format!("rediss://shop:hush@127.0.0.1:{port}");
    let store = RedisStore::new(&url).unwrap().with_prefix("shop").unwrap();
    let trusting = store.clone().with_root_certificate(files.text("ca.pem"));
    let (sentinel, handle) = started(trusting.unwrap(), rule(), WAIT).await;
    assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 8);
    handle.shutdown().await;
    assert!(server.say("KEYS shop:1:{*}").contains("shop:1:{"));

    // Neither the machine nor the other authority knows it; and what speaks no TLS is none.
    let other = store.clone().with_root_certificate(files.text("other.pem"));
    let plain = RedisStore::new(&url.replace("rediss", "redis"))
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    for store in [store, other.unwrap(), plain] {
        let (sentinel, handle) = asked(store, rule(), Duration::from_secs(1)).await;
        until(&sentinel, StoreState::Down).await;
        let status = sentinel.store().unwrap();
        let gone = [StoreErrorKind::Unreachable, StoreErrorKind::Late];
        let gone = gone.map(|kind| status.errors(kind));
        assert!(gone.iter().sum::<u64>() > 0, "{status:?}");
        assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 2);
        let shown = format!(
            "{status:?} {sentinel:?} {handle:?} {:?}",
            sentinel.findings()
        );
        assert!(
            !shown.contains("hush") && !shown.contains(&port.to_string()),
            "{shown}"
        );
        handle.shutdown().await;
    }
}

#[tokio::test]
async fn a_cluster_with_tls_counts_for_those_who_trust_it() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let Some(cluster) = secure_cluster("tls-cluster", &files, false).await else {
        return;
    };
    let rule = || KeyedRule::per_minute("/v1", 3).window().shared();
    let store = cluster.secure_store();
    let trusting = store.clone().with_root_certificate(files.text("ca.pem"));
    let (sentinel, handle) = started(trusting.unwrap(), rule(), WAIT).await;
    let keys = cluster.reach_all(&sentinel).await;
    let before = errors(&sentinel);
    for user in 0..USERS {
        let call = Call::new("/v1").param(user);
        assert_eq!(passed(&sentinel, call, 4).await, 3);
    }
    let spread = [0, 1, 2].map(|index| cluster.keys(index).len() - keys[index]);
    assert_eq!(spread.iter().sum::<usize>(), USERS as usize);
    assert!(spread.iter().all(|count| *count > 0), "{spread:?}");
    assert_eq!(errors(&sentinel), before, "no draw has failed");
    handle.shutdown().await;

    let other = store.clone().with_root_certificate(files.text("other.pem"));
    for store in [store, other.unwrap()] {
        let (sentinel, handle) = asked(store, rule(), WAIT).await;
        until(&sentinel, StoreState::Down).await;
        until_told(&sentinel, "not by a trusted authority").await;
        handle.shutdown().await;
    }
}

/// Three masters with TLS alone.
async fn secure_cluster(name: &str, files: &Certificates, want_clients: bool) -> Option<Cluster> {
    let at_port = |port| {
        let mut arguments = files.arguments(port, want_clients);
        arguments.extend(["--tls-cluster", "yes"].map(str::to_owned));
        arguments
    };
    Cluster::start_with(name, at_port).await
}

/// Waits until the last error of the store has this in it, and asserts that no secret is. On a busy
/// machine attempts before may have ended for want of time.
pub(crate) async fn until_told(sentinel: &Sentinel, part: &str) {
    let since = Instant::now();
    let status = loop {
        let status = sentinel.store().unwrap();
        let error = status.last_error().map(ToString::to_string);
        if error.as_ref().is_some_and(|error| error.contains(part)) {
            break status;
        }
        assert!(
            since.elapsed().as_secs() < 60,
            "{error:?} instead of {part:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let shown = format!("{status:?} {sentinel:?} {:?}", sentinel.findings());
    assert!(
        !shown.contains("hush") && !shown.contains("127.0.0.1"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_server_that_wants_certificates_counts_for_those_who_have_one() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let Some((server, port)) = secure_server("mutual", &files, true).await else {
        return;
    };
    let url = format!("rediss://shop:hush@127.0.0.1:{port}");
    let store = RedisStore::new(&url).unwrap().with_prefix("shop").unwrap();
    let store = store.with_root_certificate(files.text("ca.pem")).unwrap();
    let shown = |name: &str| {
        let pair = ["pem", "key"].map(|end| files.text(&format!("{name}.{end}")));
        let [certificate, key] = pair;
        store
            .clone()
            .with_client_certificate(certificate, key)
            .unwrap()
    };
    for (refused, part) in [
        (store.clone(), "it may want a client certificate"),
        (shown("stranger"), "it may not take the client certificate"),
    ] {
        let (sentinel, handle) = asked(refused, rule(), WAIT).await;
        until(&sentinel, StoreState::Down).await;
        until_told(&sentinel, part).await;
        assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 2);
        handle.shutdown().await;
    }
    assert!(!server.say("KEYS *").contains("shop:1:{"));
    let (sentinel, handle) = started(shown("client"), rule(), WAIT).await;
    let before = errors(&sentinel);
    assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 8);
    assert_eq!(errors(&sentinel), before, "no draw has failed");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_cluster_that_wants_certificates_counts_for_those_who_have_one() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let Some(cluster) = secure_cluster("mutual-cluster", &files, true).await else {
        return;
    };
    let rule = || KeyedRule::per_minute("/v1", 3).window().shared();
    let plain = cluster
        .secure_store()
        .with_root_certificate(files.text("ca.pem"));
    let plain = plain.unwrap();
    let pair = ["client.pem", "client.key"].map(|name| files.text(name));
    let [certificate, key] = pair;
    let shown = plain.clone().with_client_certificate(certificate, key);
    let (sentinel, handle) = asked(plain, rule(), WAIT).await;
    until(&sentinel, StoreState::Down).await;
    until_told(&sentinel, "it may want a client certificate").await;
    handle.shutdown().await;
    let (sentinel, handle) = started(shown.unwrap(), rule(), WAIT).await;
    cluster.reach_all(&sentinel).await;
    for user in 0..USERS {
        let call = Call::new("/v1").param(user);
        assert_eq!(passed(&sentinel, call, 4).await, 3);
    }
    let spread: Vec<_> = (0..3).map(|index| cluster.keys(index).len()).collect();
    assert!(spread.iter().all(|count| *count > 0), "{spread:?}");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_away_wants_no_certificate() {
    let away = "rediss://:hush@127.0.0.1:1";
    let sentinels = RedisStore::sentinel("rediss://:hush@shop", [away]);
    for store in [
        RedisStore::new(away),
        sentinels,
        RedisStore::cluster([away]),
    ] {
        let store = store.unwrap().with_prefix("ts").unwrap();
        let (sentinel, handle) = asked(store, rule(), WAIT).await;
        until(&sentinel, StoreState::Down).await;
        until_told(&sentinel, "the connection was refused").await;
        handle.shutdown().await;
    }
}

#[test]
fn certificates_and_keys_that_are_none_are_told_apart() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let store = || RedisStore::new("rediss://:hush@cache").unwrap();
    let text = |name: &str| files.text(name);
    let locked = String::from_utf8(text("client.key")).unwrap();
    let locked = locked.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let broken = |name: &str| {
        let text = String::from_utf8(files.text(name)).unwrap();
        let middle = text.len() / 2;
        [&text[..middle], "*", &text[middle..]]
            .concat()
            .into_bytes()
    };
    let key = "client key is none, must be a private key in PEM, without a passphrase";
    for (certificate, private, expected) in [
        (Vec::new(), text("client.key"), "client certificate is none"),
        (
            text("client.key"),
            text("client.key"),
            "client certificate is none",
        ),
        (
            broken("client.pem"),
            text("client.key"),
            "client certificate cannot be read",
        ),
        (text("client.pem"), Vec::new(), key),
        (text("client.pem"), text("client.pem"), key),
        (text("client.pem"), broken("client.key"), key),
        (text("client.pem"), locked.into_bytes(), key),
        (
            text("client.pem"),
            text("server.key"),
            "client key is not that of the client certificate",
        ),
    ] {
        let refused = store().with_client_certificate(certificate, private);
        let told = refused.unwrap_err().to_string();
        assert!(
            told.starts_with(expected),
            "{told:?} instead of {expected:?}"
        );
        assert!(!told.contains("hush"), "{told}");
    }
    let plain = RedisStore::new("redis://:hush@cache").unwrap();
    let refused = plain.with_client_certificate(text("client.pem"), text("client.key"));
    let told = refused.unwrap_err().to_string();
    assert!(
        told.starts_with("url does not begin with `rediss://`"),
        "{told}"
    );
    let good = store().with_client_certificate(text("client.pem"), text("client.key"));
    let shown = format!("{good:?}");
    assert!(
        good.is_ok() && !shown.contains("hush") && !shown.contains("KEY"),
        "{shown}"
    );
    // One does not forget the other, in either order.
    let both = good.unwrap().with_root_certificate(text("ca.pem"));
    assert!(both.is_ok(), "{both:?}");
}
