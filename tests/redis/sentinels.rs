//! The master that Sentinels name, and the one after it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};
use tower_sentinel::store::{RedisStore, StoreState};
use tower_sentinel::{Call, FlowRule};

use crate::certificates::Certificates;
use crate::redis::{Server, binary, free_port};
use crate::secure::until_told;
use crate::{asked, passed, started, until};

/// A Sentinel process, which ends when it is dropped.
struct Watcher {
    child: Child,
    port: u16,
    socket: PathBuf,
}

impl Watcher {
    /// Starts a Sentinel that listens with these `settings`, and watches the master at `watched`. It
    /// does not mind if a busy machine lets that stand.
    async fn start(folder: &Path, settings: &str, port: u16, watched: u16) -> Self {
        let socket = folder.join(format!("sentinel-{port}"));
        let settings = format!(
            "{settings}\nunixsocket {}\ndir {}\nsentinel monitor shop 127.0.0.1 {watched} 1\n\
             sentinel down-after-milliseconds shop 20000\nsentinel failover-timeout shop 2000\n",
            socket.display(),
            folder.display()
        );
        let file = folder.join(format!("sentinel-{port}.conf"));
        fs::write(&file, settings).unwrap();
        let mut command = Command::new(binary().unwrap());
        command.arg(&file).arg("--sentinel").stdout(Stdio::null());
        let mut watcher = Self {
            child: command.spawn().unwrap(),
            port,
            socket,
        };
        while UnixStream::connect(&watcher.socket).await.is_err() {
            let ended = watcher.child.try_wait().unwrap();
            assert!(ended.is_none(), "the Sentinel ended at once");
            sleep(Duration::from_millis(1)).await;
        }
        watcher
    }

    /// The first line of the answer to `command` that begins with `start`.
    async fn ask(&self, command: &str, start: &str) -> Option<String> {
        let mut stream = UnixStream::connect(&self.socket).await.ok()?;
        let command = format!("{command}\r\n");
        stream.write_all(command.as_bytes()).await.ok()?;
        // It ends the connection when it has answered.
        stream.shutdown().await.ok()?;
        let mut lines = BufReader::new(stream).lines();
        loop {
            let line = lines.next_line().await.ok()??;
            if line.starts_with(start) {
                return Some(line);
            }
        }
    }

    /// Waits until it knows the replica of its master, and so many Sentinels.
    async fn settle(&self, sentinels: usize) {
        let others = format!("slaves=1,sentinels={sentinels}");
        let since = Instant::now();
        loop {
            let line = self.ask("INFO sentinel", "master0:").await;
            let line = line.unwrap_or_default();
            if line.contains("status=ok") && line.contains(&others) {
                return;
            }
            assert!(since.elapsed().as_secs() < 60, "{line:?}, not {others}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A master, its replica, and the Sentinels that watch them.
struct Group {
    master: Server,
    replica: Server,
    /// The port of the replica.
    second: u16,
    watchers: Vec<Watcher>,
}

impl Group {
    /// Servers, and so many Sentinels, with these arguments for the port of each.
    async fn start(
        name: &str,
        servers: impl Fn(u16) -> Vec<String>,
        watchers: usize,
        sentinels: impl Fn(u16) -> Vec<String>,
    ) -> Option<Self> {
        let (first, second) = (free_port(), free_port());
        let soon = ["--repl-diskless-sync-delay", "0"].map(str::to_owned);
        let of_master = [servers(first), soon.to_vec()].concat();
        let master = start(&format!("{name}-master"), &of_master).await?;
        let of = ["--replicaof", "127.0.0.1", &first.to_string()].map(str::to_owned);
        let of_replica = [servers(second), of.to_vec()].concat();
        let replica = start(&format!("{name}-replica"), &of_replica).await?;
        settle(&replica, "INFO replication", "master_link_status:up").await;
        let mut group = Self {
            master,
            replica,
            second,
            watchers: Vec::new(),
        };
        for _ in 0..watchers {
            let port = free_port();
            let settings = sentinels(port);
            let lines = settings.chunks(2).map(|pair| pair.join(" "));
            let settings = lines.collect::<Vec<_>>().join("\n").replace("--", "");
            let folder = group.replica.folder();
            let watcher = Watcher::start(folder, &settings, port, first).await;
            group.watchers.push(watcher);
        }
        // They know all others before they need them.
        for watcher in &group.watchers {
            watcher.settle(watchers).await;
        }
        Some(group)
    }

    /// The URLs of the Sentinels, behind that of one that is away.
    fn urls(&self, scheme: &str) -> Vec<String> {
        let ports = self.watchers.iter().map(|watcher| watcher.port);
        let ports = std::iter::once(1).chain(ports);
        let urls = ports.map(|port| format!("{scheme}://127.0.0.1:{port}"));
        urls.collect()
    }
}

async fn start(name: &str, arguments: &[String]) -> Option<Server> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Server::start(name, &arguments).await
}

fn without_tls(port: u16) -> Vec<String> {
    ["--port", &port.to_string()].map(str::to_owned).to_vec()
}

/// With TLS alone, and for those that show a certificate.
fn with_certificates(files: &Certificates, port: u16) -> Vec<String> {
    let alone = ["--port", "0", "--tls-replication", "yes"].map(str::to_owned);
    [&files.arguments(port, true), &alone[..]].concat()
}

/// Waits until `server` answers `command` with this in it.
async fn settle(server: &Server, command: &str, part: &str) {
    let since = Instant::now();
    while !server.say(command).contains(part) {
        assert!(since.elapsed().as_secs() < 60, "{}", server.say(command));
        sleep(Duration::from_millis(20)).await;
    }
}

/// The value of the only counter.
fn counter(server: &Server) -> Vec<u8> {
    let keys = server.say("KEYS ts:1:*");
    let is_counter = |line: &&str| line.starts_with("ts:1:{") && line.len() == 39;
    let key = keys.split("\r\n").find(is_counter);
    key.map(|key| server.get(key)).unwrap_or_default()
}

/// Has the master die, and asserts that two engines with that store admit one limit before, while
/// it is away, and under the new one.
async fn assert_counts_on(mut group: Group, store: impl Fn() -> RedisStore) {
    let rule = || FlowRule::per_minute("/v1", 40).shared().exact();
    let wait = Duration::from_secs(5);
    let engines = [
        started(store(), rule(), wait).await,
        started(store(), rule(), wait).await,
    ];
    let call = Call::new("/v1");
    let mut admitted = 0;
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Live).await;
        admitted += passed(sentinel, call, 6).await;
    }
    assert_eq!(admitted, 12);
    assert!(
        engines
            .iter()
            .all(|(it, _)| it.store().unwrap().draws() >= 6)
    );
    // What is not replicated when the master dies may be handed out again: here all of it is.
    let Group {
        master,
        replica,
        second,
        watchers,
    } = &mut group;
    let since = Instant::now();
    while counter(replica).is_empty() || counter(replica) != counter(master) {
        assert!(since.elapsed().as_secs() < 60, "it is not replicated");
        sleep(Duration::from_millis(10)).await;
    }
    // One finds it down, and the others have only to agree.
    let soon = "SENTINEL SET shop down-after-milliseconds 500";
    let told = watchers[0].ask(soon, "+OK").await;
    assert!(told.is_some());
    master.kill();
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Down).await;
        // Each engine has a share of ten, of which six are used.
        let by_share = passed(sentinel, call, 20).await;
        assert_eq!(by_share, 4);
        admitted += by_share;
    }
    let (name_it, second) = ("SENTINEL get-master-addr-by-name shop", second.to_string());
    while watchers[0].ask(name_it, &second).await.is_none() {
        sleep(Duration::from_millis(20)).await;
    }
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Live).await;
    }
    for _ in 0..30 {
        for (sentinel, _) in &engines {
            admitted += passed(sentinel, call, 1).await;
        }
    }
    assert_eq!(
        admitted, 40,
        "no permit was handed out twice, and none was lost"
    );
    assert!(replica.say("INFO commandstats").contains("cmdstat_evalsha"));
}

/// Asserts that an engine with each store is down, and that its last error has this in it.
async fn assert_refused<const N: usize>(refused: [(RedisStore, &str); N]) {
    for (store, part) in refused {
        let rule = FlowRule::per_minute("/v1", 8).shared().exact();
        let (sentinel, handle) = asked(store, rule, Duration::from_secs(1)).await;
        until(&sentinel, StoreState::Down).await;
        until_told(&sentinel, part).await;
        handle.shutdown().await;
    }
}

#[tokio::test]
async fn after_a_failover_the_new_master_counts_on() {
    let group = Group::start("failover", without_tls, 1, without_tls).await;
    let Some(group) = group else {
        return;
    };
    let urls = group.urls("redis");
    let store = |master: &str| {
        RedisStore::sentinel(master, &urls)
            .unwrap()
            .with_prefix("ts")
            .unwrap()
    };
    let backwards = RedisStore::sentinel("redis://shoe", urls.iter().rev())
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    let unknown = "no Sentinel knows a master of that name";
    assert_refused([(store("redis://shoe"), unknown), (backwards, unknown)]).await;
    assert_counts_on(group, || store("redis://shop")).await;
}

/// What the client certificate `name` of `files` is shown for.
fn showing(store: RedisStore, files: &Certificates, name: &str) -> RedisStore {
    let [certificate, key] = ["pem", "key"].map(|end| files.text(&format!("{name}.{end}")));
    store.with_client_certificate(certificate, key).unwrap()
}

/// Those of a test's own, which trusts the servers.
fn trusting<'a>(files: &Certificates, urls: impl Iterator<Item = &'a String>) -> RedisStore {
    let store = RedisStore::sentinel("rediss://shop", urls)
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    store.with_root_certificate(files.text("ca.pem")).unwrap()
}

#[tokio::test]
async fn sentinels_that_want_certificates_answer_those_who_have_one() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let secure = |port| with_certificates(&files, port);
    let Some(group) = Group::start("mutual-failover", secure, 2, secure).await else {
        return;
    };
    let urls = group.urls("rediss");
    let wants = "it may want a client certificate";
    let stranger = showing(trusting(&files, urls.iter()), &files, "stranger");
    assert_refused([
        (trusting(&files, urls.iter()), wants),
        // What the last one of them says is not all.
        (trusting(&files, urls.iter().rev()), wants),
        (stranger, "it may not take the client certificate"),
    ])
    .await;
    let store = || showing(trusting(&files, urls.iter()), &files, "client");
    assert_counts_on(group, store).await;
}

#[tokio::test]
async fn sentinels_without_tls_name_a_master_that_wants_certificates() {
    let Some(files) = Certificates::make() else {
        return;
    };
    let secure = |port| with_certificates(&files, port);
    // As clients of their master they have TLS as well.
    let open = |port| {
        let of_a_client = with_certificates(&files, 0);
        [
            without_tls(port),
            of_a_client[2..10].to_vec(),
            ["--tls-replication", "yes"].map(str::to_owned).to_vec(),
        ]
        .concat()
    };
    let Some(group) = Group::start("half-secure", secure, 1, open).await else {
        return;
    };
    let urls = group.urls("redis");
    let wants = "it may want a client certificate";
    assert_refused([(trusting(&files, urls.iter()), wants)]).await;
    let store = showing(trusting(&files, urls.iter()), &files, "client");
    let rule = FlowRule::per_minute("/v1", 8).shared().exact();
    let (sentinel, handle) = started(store, rule, Duration::from_secs(5)).await;
    assert_eq!(passed(&sentinel, Call::new("/v1"), 12).await, 8);
    handle.shutdown().await;
}
