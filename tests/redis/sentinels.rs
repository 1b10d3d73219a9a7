//! The master that Sentinels name, and the one after it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_sentinel::store::{RedisStore, StoreState};
use tower_sentinel::{Call, FlowRule};

use crate::redis::{Server, binary, free_port};
use crate::{passed, started, until};

/// A Sentinel process, which ends when it is dropped.
struct Watcher(Child, u16);

impl Watcher {
    /// The first line of the answer to `command` that begins with `start`.
    async fn ask(&self, command: &str, start: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.1)).await.ok()?;
        let command = format!("{command}\r\n");
        stream.write_all(command.as_bytes()).await.ok()?;
        let mut lines = BufReader::new(stream).lines();
        loop {
            let line = lines.next_line().await.ok()??;
            if line.starts_with(start) {
                return Some(line);
            }
        }
    }

    /// Whether it has found the replica of its master.
    async fn knows_replica(&self) -> bool {
        let line = self.ask("INFO sentinel", "master0:").await;
        line.is_some_and(|line| line.contains("status=ok") && line.contains("slaves=1"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a Sentinel that watches the master at `port`, and does not mind if a busy machine lets
/// it stand.
fn watch(folder: &Path, port: u16) -> Watcher {
    let own = free_port();
    let settings = format!(
        "port {own}\ndir {}\nsentinel monitor shop 127.0.0.1 {port} 1\n\
         sentinel down-after-milliseconds shop 20000\nsentinel failover-timeout shop 2000\n",
        folder.display()
    );
    let file = folder.join("sentinel.conf");
    fs::write(&file, settings).unwrap();
    let mut command = Command::new(binary().unwrap());
    command.arg(&file).arg("--sentinel").stdout(Stdio::null());
    Watcher(command.spawn().unwrap(), own)
}

/// Waits until `server` answers `command` with this in it.
async fn settle(server: &Server, command: &str, part: &str) {
    let since = Instant::now();
    while !server.say(command).contains(part) {
        assert!(since.elapsed().as_secs() < 30, "{}", server.say(command));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The value of the only counter.
fn counter(server: &Server) -> Vec<u8> {
    let keys = server.say("KEYS ts:1:*");
    let is_counter = |line: &&str| line.starts_with("ts:1:{") && line.len() == 39;
    let key = keys.split("\r\n").find(is_counter);
    key.map(|key| server.get(key)).unwrap_or_default()
}

#[tokio::test]
async fn after_a_failover_the_new_master_counts_on() {
    let (first, second) = (free_port(), free_port());
    let (port, own) = (first.to_string(), second.to_string());
    let Some(mut master) = Server::start(
        "master",
        &["--port", &port, "--repl-diskless-sync-delay", "0"],
    )
    .await
    else {
        return;
    };
    let arguments = ["--port", &own, "--replicaof", "127.0.0.1", &port];
    let replica = Server::start("replica", &arguments).await.unwrap();
    settle(&replica, "INFO replication", "master_link_status:up").await;
    let watcher = watch(replica.folder(), first);
    // The Sentinel knows the replica before it needs it.
    let since = Instant::now();
    while !watcher.knows_replica().await {
        assert!(
            since.elapsed().as_secs() < 20,
            "the Sentinel knows no replica"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let sentinels = [
        // One that is away is passed over.
        "redis://127.0.0.1:1".to_owned(),
        format!("redis://127.0.0.1:{}", watcher.1),
    ];
    let store = || RedisStore::sentinel("redis://shop", &sentinels).unwrap();
    let rule = || FlowRule::per_minute("/v1", 40).shared().exact();
    let wait = Duration::from_secs(1);
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
    let since = Instant::now();
    while counter(&replica).is_empty() || counter(&replica) != counter(&master) {
        assert!(since.elapsed().as_secs() < 10, "it is not replicated");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let soon = "SENTINEL SET shop down-after-milliseconds 500";
    assert!(watcher.ask(soon, "+OK").await.is_some());
    master.kill();
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Down).await;
        // Each engine has a share of ten, of which six are used.
        let by_share = passed(sentinel, call, 20).await;
        assert_eq!(by_share, 4);
        admitted += by_share;
    }
    settle(&replica, "INFO replication", "role:master").await;
    let since = Instant::now();
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Live).await;
    }
    let away = since.elapsed();
    println!("live {away:?} after the new master took over");
    assert!(away <= Duration::from_secs(2), "{away:?}");
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
