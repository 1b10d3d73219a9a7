//! A server with TLS, and a user with no more rights than are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreState};
use tower_sentinel::{Call, FlowRule};

use crate::redis::{Server, free_port};
use crate::{passed, started, until};

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

/// An authority, and a certificate of 127.0.0.1 by it, in a folder that goes with the value.
struct Certificates(PathBuf);

impl Certificates {
    fn make() -> Option<Self> {
        let name = format!("sentinel-{}-certificates", std::process::id());
        let all = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&all.0).unwrap();
        fs::write(all.0.join("name"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        let is_made = [
            format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"),
            format!("req -x509 {key} -days 2 -subj /CN=other -keyout other.key -out other.pem"),
            format!("req {key} -subj /CN=server -keyout server.key -out server.csr"),
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile name -out server.pem"
                .to_owned(),
        ]
        .iter()
        .all(|arguments| run_openssl(&all.0, arguments));
        if is_made {
            return Some(all);
        }
        let is_required = std::env::var_os("SENTINEL_REDIS_REQUIRED").is_some();
        assert!(!is_required, "there is no openssl");
        println!("SKIPPED, no openssl");
        None
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn text(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_openssl(folder: &Path, arguments: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl
        .args(arguments.split_whitespace())
        .current_dir(folder);
    let done = openssl.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_server_with_tls_counts_for_those_who_trust_it() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let port = free_port().to_string();
    let arguments = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &files.path("server.pem"),
        "--tls-key-file",
        &files.path("server.key"),
        "--tls-ca-cert-file",
        &files.path("ca.pem"),
        "--tls-auth-clients",
        "no",
    ];
    let Some(server) = Server::start("tls", &arguments).await else {
        return;
    };
    server.say(&format!("ACL SETUSER shop on >hush ~shop:* {RIGHTS}"));
    let url = format!("rediss://shop:hush@127.0.0.1:{port}");
    let store = RedisStore::new(&url).unwrap().with_prefix("shop").unwrap();
    let trusting = store.clone().with_root_certificate(files.text("ca.pem"));
    let (sentinel, handle) = started(trusting.unwrap(), rule(), WAIT).await;
    assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 8);
    handle.shutdown().await;
    assert!(server.say("KEYS shop:1:{*}").contains("shop:1:{"));

    // Neither the machine nor the other authority knows it; and what speaks no TLS is none.
    let other = store.clone().with_root_certificate(files.text("other.pem"));
    let plain = RedisStore::new(&url.replace("rediss", "redis")).unwrap();
    for store in [store, other.unwrap(), plain] {
        let (sentinel, handle) = started(store, rule(), Duration::from_secs(1)).await;
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
        assert!(!shown.contains("hush") && !shown.contains(&port), "{shown}");
        handle.shutdown().await;
    }
}
