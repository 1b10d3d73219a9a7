//! Four processes with a skewed load on one server.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_sentinel::store::RedisStore;

use crate::redis::Server;
use crate::{Admitted, LIMIT, SKEW, errors, load, rule, started, worst};

/// Tells a child what it is, as `url buckets calls-per-second`.
const CHILD: &str = "SENTINEL_TEST_CHILD";
const RUNS: Duration = Duration::from_millis(2_600);

/// The child: it prints how many calls it has admitted in each bucket. Alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<_> = told.split(' ').collect();
    let (buckets, per_second) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    // The machine may be busy: late answers would be an outage, which has another bound.
    let store = RedisStore::new(words[0])
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    let (sentinel, handle) = started(store, rule(buckets), Duration::from_secs(5)).await;
    let before = errors(&sentinel);
    let stop = Arc::new(AtomicBool::new(false));
    let bucket_us = 1_000_000 / u64::from(buckets);
    let loading = tokio::spawn(load(sentinel.clone(), per_second, stop.clone(), bucket_us));
    tokio::time::sleep(RUNS).await;
    stop.store(true, Ordering::Relaxed);
    let admitted = loading.await.unwrap();
    assert_eq!(errors(&sentinel), before, "no draw has failed");
    handle.shutdown().await;
    for (bucket, count) in admitted {
        println!("admitted {bucket} {count}");
    }
}

/// What four processes have admitted together.
fn run(server: &Server, buckets: u32, percent: u32) -> Admitted {
    let children = SKEW.map(|part| {
        let per_second = LIMIT * percent / 100 * part / 100;
        Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture"])
            .env(CHILD, format!("{} {buckets} {per_second}", server.url()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut all = Admitted::new();
    for mut child in children {
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            if let ["admitted", bucket, count] = words[..] {
                *all.entry(bucket.parse().unwrap()).or_default() += count.parse::<u32>().unwrap();
            }
        }
    }
    all
}

#[tokio::test]
async fn four_processes_admit_one_limit() {
    let Some(servers) = Server::start_two("processes").await else {
        return;
    };
    let cases = [vec![(1, 70), (2, 500)], vec![(1, 200), (2, 100), (10, 200)]];
    // Side by side, as each of them takes its time.
    std::thread::scope(|scope| {
        for (server, cases) in servers.iter().zip(cases) {
            scope.spawn(move || {
                for (buckets, percent) in cases {
                    server.say("FLUSHALL");
                    assert_one_limit(server, buckets, percent);
                }
            });
        }
    });
}

fn assert_one_limit(server: &Server, buckets: u32, percent: u32) {
    let admitted = run(server, buckets, percent);
    let (worst, total) = (worst(&admitted, buckets), admitted.values().sum::<u32>());
    println!("{buckets} buckets, {percent} %: worst {worst}, in all {total}");
    assert!(worst <= LIMIT, "{buckets} buckets, {percent} %: {worst}");
    assert!(
        total > LIMIT / 2,
        "{buckets} buckets, {percent} %: only {total}"
    );
}
