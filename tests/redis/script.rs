//! The script gives the answers and the bytes of its model, for every draw of a busy engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, NodeId, QuotaStore, RedisStore, StoreError, StoreFuture,
};
use tower_sentinel::{Call, FlowRule, KeyedRule};

use crate::redis::Server;
use crate::{engine, engine_with, started, store};

/// Compares each draw with what the model makes of the same value at the same time.
#[derive(Clone, Debug)]
struct Compared {
    store: RedisStore,
    server: Arc<Shown>,
    compared: Arc<AtomicU64>,
    /// Trips of an engine overlap; a value that is read before and after a draw must not.
    turn: Arc<Mutex<()>>,
}

struct Shown(Server);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl Compared {
    fn of(server: Server) -> Self {
        Self {
            store: store(&server),
            server: Arc::new(Shown(server)),
            compared: Arc::default(),
            turn: Arc::default(),
        }
    }

    async fn compare(self, draws: Vec<Draw>) -> Result<Vec<Result<Drawn, StoreError>>, StoreError> {
        let _turn = self.turn.lock().await;
        let mut all = Vec::new();
        for draw in &draws {
            let key = draw.key();
            let mut before = self.server.0.get(&key);
            if self.compared.load(Ordering::Relaxed) == 100 && before.len() > 16 {
                // As if the server's clock had been set back since then.
                let bucket = f64::from_le_bytes(before[8..16].try_into().unwrap());
                before[8..16].copy_from_slice(&(bucket + 1e4).to_le_bytes());
                self.server.0.command(&[b"SET", key.as_bytes(), &before]);
            }
            let answers = self.store.draw(std::slice::from_ref(draw)).await?;
            let answer = answers[0].clone()?;
            let (Drawn::Granted { bucket, rest, .. } | Drawn::Lost { bucket, rest, .. }) = answer
            else {
                panic!("there are two answers");
            };
            let bucket_us = draw.arguments()[0];
            let now = Duration::from_micros((bucket + 1) * bucket_us) - rest;
            let (model, bytes) = draw.apply(&before, now);
            assert_eq!(answer, model, "{draw:?}");
            if let Some(bytes) = bytes {
                assert_eq!(self.server.0.get(&key), bytes);
            }
            self.compared.fetch_add(1, Ordering::Relaxed);
            all.push(Ok(answer));
        }
        Ok(all)
    }
}

impl QuotaStore for Compared {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        // A task goes on with a trip that the engine has given up, as the server does.
        let comparison = tokio::spawn(self.clone().compare(draws.to_vec()));
        Box::pin(async {
            comparison
                .await
                .expect("the script does what its model does")
        })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        self.store.beat(alive)
    }
}

#[tokio::test]
async fn every_draw_of_a_busy_engine_is_that_of_the_model() {
    for (buckets, name) in [(1_u32, "one"), (2, "two"), (10, "ten")] {
        let Some(server) = Server::start(&format!("script-{name}"), &[]).await else {
            return;
        };
        let compared = Compared::of(server);
        let rule = FlowRule::per("/v1", 50, Duration::from_millis(100 * u64::from(buckets)))
            .buckets(buckets)
            .shared();
        let (sentinel, handle) = engine(compared.clone(), rule);
        tokio::time::sleep(Duration::from_millis(50)).await;
        for round in 0..400 {
            let calls = (0..3).map(|weight| {
                let (sentinel, weight) = (sentinel.clone(), 1 + weight % 2);
                tokio::spawn(async move {
                    let entered = sentinel.enter(Call::new("/v1").batch(weight)).await;
                    drop(entered);
                })
            });
            let calls: Vec<_> = calls.collect();
            if round % 3 == 0 {
                // Some leave before they have an answer.
                calls.iter().for_each(JoinHandle::abort);
            }
            if round == 200 {
                compared.server.0.say("FLUSHALL");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        handle.shutdown().await;
        let count = compared.compared.load(Ordering::Relaxed);
        assert!(count > 20, "only {count} draws were compared");
    }
}

#[tokio::test]
async fn the_largest_quotas_of_a_key_are_counted_as_by_the_model() {
    const MOST: u32 = (1 << 31) - 1;
    let Some(server) = Server::start("script-large", &[]).await else {
        return;
    };
    let compared = Compared::of(server);
    let rule = KeyedRule::per_hour("/v1", MOST).window().shared();
    let wait = Duration::from_secs(5);
    let (sentinel, handle) = started(compared.clone(), rule, wait).await;
    let call = Call::new("/v1").param("ann").batch(Call::MAX_WEIGHT);
    let mut passed = 0;
    for _ in 0..128 {
        passed += u32::from(sentinel.enter(call).await.is_ok());
    }
    // The last of 127 can lack what is in the lease.
    assert!((126..=127).contains(&passed), "{passed}");
    handle.shutdown().await;
    assert!(compared.compared.load(Ordering::Relaxed) > 100);
}

/// Tells which processes there are.
#[derive(Clone, Debug)]
struct Watched(RedisStore, Arc<Mutex<HashMap<NodeId, Alive>>>);

impl QuotaStore for Watched {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        self.0.draw(draws)
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(async move {
            let beat = self.0.beat(alive).await;
            self.1.lock().await.insert(alive.node(), alive);
            beat
        })
    }
}

/// Otherwise nobody would get the remainder of a limit in an outage, or two would.
#[tokio::test]
async fn each_process_keeps_a_rank_of_its_own() {
    let Some(server) = Server::start("rank", &[]).await else {
        return;
    };
    let watched = Watched(store(&server), Arc::default());
    let rule = FlowRule::per_minute("/v1", 3).shared();
    let _engines = [(); 3].map(|()| engine(watched.clone(), rule.clone()));
    while watched.1.lock().await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let nodes: Vec<_> = watched.1.lock().await.values().copied().collect();
    let mut beats = Vec::new();
    for first in 0..3 {
        // Another one is the last to beat each time.
        let order = (first..first + 3).map(|at| nodes[at % 3]);
        let mut answers = Vec::new();
        for node in order {
            answers.push(watched.0.beat(node).await.unwrap().with_count(0));
        }
        answers.rotate_right(first);
        beats.push(answers);
    }
    assert!(beats.iter().all(|again| *again == beats[0]), "{beats:?}");
    let [one, two, three] = beats[0][..] else {
        panic!("there are three");
    };
    assert!(one != two && two != three && three != one, "{beats:?}");
}

#[tokio::test]
async fn values_of_other_formats_count_as_none() {
    let Some(server) = Server::start("foreign", &[]).await else {
        return;
    };
    let rule = FlowRule::per_minute("/v1", 3).shared().exact();
    let (sentinel, handle) = engine_with(store(&server), rule, Duration::from_secs(1));
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(sentinel.enter(Call::new("/v1")).await.unwrap());
    let keys = server.say("KEYS ts:1:*");
    let is_counter = |line: &&str| line.starts_with("ts:1:{") && line.len() == 39;
    let key = keys.split("\r\n").find(is_counter).unwrap().to_owned();
    // A counter of another length is none. The process knows of the permit that it had, sees
    // that it is lost, and tells the store of it.
    server.command(&[b"SET", key.as_bytes(), b"what is this?"]);
    let _ = sentinel.enter(Call::new("/v1")).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let mut passed = 0;
    for _ in 0..9 {
        passed += usize::from(sentinel.enter(Call::new("/v1")).await.is_ok());
    }
    assert_eq!(passed, 2, "one of three was used");
    // A value of another type is refused by the server, and the process admits its share.
    server.say("FLUSHALL");
    server.command(&[b"LPUSH", key.as_bytes(), b"x"]);
    let _ = sentinel.enter(Call::new("/v1")).await;
    handle.shutdown().await;
}
