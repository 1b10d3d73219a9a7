//! Values that this crate did not write: the script takes them as its model does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tower_sentinel::FlowRule;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, QuotaStore, RedisStore, StoreError, StoreFuture,
};

use crate::redis::Server;
use crate::{started, store};

/// Keeps the draws that it passes on.
#[derive(Clone, Debug)]
struct Kept {
    store: RedisStore,
    draws: Arc<Mutex<Vec<Draw>>>,
}

impl QuotaStore for Kept {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(async move {
            self.draws.lock().await.extend_from_slice(draws);
            self.store.draw(draws).await
        })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        self.store.beat(alive)
    }
}

/// Draws of each kind that an engine makes: the first, ones that give back, one that reports.
async fn some_draws(server: &Server, buckets: u32) -> Vec<Draw> {
    let kept = Kept {
        store: store(server),
        draws: Arc::default(),
    };
    let second = Duration::from_secs(1);
    let rule = FlowRule::per("/v1", 40, second).buckets(buckets).shared();
    let (sentinel, handle) = started(kept.clone(), rule, second).await;
    for round in 0..60 {
        for weight in [1, 3] {
            let call = tower_sentinel::Call::new("/v1").batch(weight);
            drop(sentinel.enter(call).await);
        }
        if round == 30 {
            server.say("FLUSHALL");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    handle.shutdown().await;
    let mut draws = std::mem::take(&mut *kept.draws.lock().await);
    // No two alike, as far as the arguments go.
    draws.sort_by_key(Draw::arguments);
    draws.dedup_by_key(|draw| draw.arguments());
    draws.truncate(24);
    draws
}

/// Numbers that may stand for an epoch or a bucket.
fn numbers(now: f64) -> Vec<f64> {
    let mut all = vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        -1.0,
        0.5,
        f64::MIN_POSITIVE,
        9_007_199_254_740_992.0,
        9_007_199_254_740_994.0,
        1.8e19,
        f64::MAX,
    ];
    all.extend((-130..=3).map(|step| now + f64::from(step)));
    all
}

fn value(epoch: f64, base: f64, counts: &[u32]) -> Vec<u8> {
    let mut all = epoch.to_le_bytes().to_vec();
    all.extend(base.to_le_bytes());
    all.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
    all
}

/// Every value that is tried for a counter of so many buckets, of which `now` is the present one.
fn values(buckets: u32, now: f64) -> Vec<Vec<u8>> {
    let slots = buckets as usize + 1;
    let plain: Vec<u32> = (0..slots as u32).map(|slot| slot % 5).collect();
    let counts = [plain.clone(), vec![u32::MAX; slots], vec![0; slots]];
    let mut all: Vec<_> = counts
        .iter()
        .flat_map(|counts| {
            numbers(now)
                .into_iter()
                .map(|base| value(5.0, base, counts))
        })
        .collect();
    all.extend(
        numbers(5.0)
            .into_iter()
            .map(|epoch| value(epoch, now, &plain)),
    );
    // Too short, too long, and other bytes.
    let whole = value(5.0, now, &plain);
    all.extend((0..whole.len()).map(|length| whole[..length].to_vec()));
    all.push([&whole[..], &[0]].concat());
    all.push(vec![0xff; whole.len()]);
    all.push(
        b"\r\nFLUSHALL\r\n"
            .repeat(whole.len())
            .split_off(whole.len()),
    );
    all
}

#[tokio::test]
async fn values_of_any_kind_are_taken_as_by_the_model() {
    for (buckets, name) in [(1_u32, "one"), (2, "two"), (10, "ten")] {
        let Some(server) = Server::start(&format!("values-{name}"), &[]).await else {
            return;
        };
        let draws = some_draws(&server, buckets).await;
        assert!(draws.len() > 4, "only {} draws", draws.len());
        let redis = store(&server);
        // Opens the connection.
        let (_sentinel, handle) = started(
            redis.clone(),
            FlowRule::per_minute("/other", 1).shared(),
            Duration::from_secs(5),
        )
        .await;
        while redis.draw(&draws[..1]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let bucket_us = draws[0].arguments()[0];
        let (mut tried, mut talk) = (0, server.talk());
        for draw in &draws {
            let key = draw.key();
            let now = (crate::wall_us() / bucket_us) as f64;
            for value in values(buckets, now) {
                talk.command(&[b"SET", key.as_bytes(), &value]);
                let answers = redis.draw(std::slice::from_ref(draw)).await.unwrap();
                let answer = answers[0].clone().unwrap();
                let (Drawn::Granted { bucket, rest, .. } | Drawn::Lost { bucket, rest, .. }) =
                    answer
                else {
                    panic!("there are two answers");
                };
                let at = Duration::from_micros((bucket + 1) * bucket_us) - rest;
                let (model, bytes) = draw.apply(&value, at);
                assert_eq!(answer, model, "{draw:?} on {value:?}");
                assert_eq!(talk.get(&key), bytes.unwrap_or(value), "{draw:?}");
                tried += 1;
            }
        }
        println!("{buckets} buckets: {} draws, {tried} values", draws.len());
        handle.shutdown().await;
    }
}
