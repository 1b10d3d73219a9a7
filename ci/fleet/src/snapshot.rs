//! A server that is killed in the midst of a window, and comes back at once: with a snapshot of the
//! window's begin, or with nothing. What was admitted of the limit in each window.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;
use tower_sentinel::store::{RedisStore, StoreSettings};
use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::PROCESSES;
use crate::server::Server;

const LIMIT: u32 = 1_000;
const WINDOW_MS: u64 = 10_000;
/// All together offer twice the limit.
const EACH_PER_SECOND: f64 = 2e3 * LIMIT as f64 / WINDOW_MS as f64 / PROCESSES as f64;
/// They begin so long before the window, in the midst of which the server is killed, and run for so
/// long.
const BEFORE_MS: u64 = 3_000;
const RUNS_MS: u64 = BEFORE_MS + 2 * WINDOW_MS + 500;
/// The bar.
const MOST: f64 = 1.05;

/// Wall time: the server goes by it.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

/// Sleeps until so long after the begin of the window of that number.
fn sleep_until(window: u64, ms: u64) {
    let at = window * WINDOW_MS + ms;
    std::thread::sleep(Duration::from_millis(at.saturating_sub(now_ms())));
}

/// One of the processes: prints the number of each bucket, and how many calls it has admitted there.
pub(crate) fn child(url: &str, buckets: u32, number: u32) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let rule = FlowRule::per("/v1", LIMIT, Duration::from_millis(WINDOW_MS));
    let sentinel = Sentinel::builder()
        .rules(rule.buckets(buckets).shared())
        .store(RedisStore::new(url).unwrap().with_prefix("fleet").unwrap())
        .store_settings(StoreSettings::new().nodes(PROCESSES as u32))
        .build();
    let bucket_ms = WINDOW_MS / u64::from(buckets);
    let admitted = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    runtime.block_on(async {
        let handle = sentinel.start_store().unwrap();
        let begin = now_ms();
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        let mut made = 0;
        while now_ms() < begin + RUNS_MS {
            ticks.tick().await;
            // They do not call all at once.
            let ms = (now_ms() - begin) as f64 + f64::from(number);
            let due = (ms * EACH_PER_SECOND / 1e3) as u64;
            for _ in made..due {
                let (sentinel, admitted) = (sentinel.clone(), admitted.clone());
                tokio::spawn(async move {
                    let asked = now_ms() / bucket_ms;
                    let passes = sentinel.enter(Call::new("/v1")).await.is_ok();
                    // At a border nobody knows in which of the two the store has counted it.
                    if passes && now_ms() / bucket_ms == asked {
                        *admitted.lock().await.entry(asked).or_default() += 1;
                    }
                });
            }
            made = due;
        }
        handle.shutdown().await;
    });
    for (bucket, count) in &*admitted.blocking_lock() {
        println!("{bucket} {count}");
    }
}

/// Asserts that no window admits more than the bar, in so many runs of each kind.
pub(crate) fn check(runs: u32) {
    let mut worst = 0.0_f64;
    for (has_snapshot, what) in [(true, "with its snapshot"), (false, "empty")] {
        for buckets in [1, 2] {
            for number in 1..=runs {
                let all = run(has_snapshot, buckets);
                let shares = all.iter().map(|share| format!("{share:.3}"));
                let shares = shares.collect::<Vec<_>>().join(", ");
                println!(
                    "restarted {what}, buckets {buckets}, run {number}: of the limit {shares}"
                );
                worst = all.into_iter().fold(worst, f64::max);
            }
        }
    }
    assert!(worst <= MOST, "{worst} of the limit");
}

/// The part of the limit that was admitted in each window of so many buckets.
fn run(has_snapshot: bool, buckets: u32) -> Vec<f64> {
    let mut server = Server::start();
    let window = (now_ms() + BEFORE_MS) / WINDOW_MS + 1;
    sleep_until(window - 1, WINDOW_MS - BEFORE_MS);
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["window", &server.url()])
                .args([buckets.to_string(), number.to_string()])
                .stdout(Stdio::piped())
                .spawn();
            child.unwrap()
        })
        .collect();
    sleep_until(window, 50);
    server.save();
    sleep_until(window, WINDOW_MS / 2);
    server.restart(has_snapshot);
    let mut admitted = BTreeMap::<u64, u32>::new();
    for child in children {
        let said = child.wait_with_output().unwrap();
        assert!(said.status.success());
        for line in String::from_utf8(said.stdout).unwrap().lines() {
            let (bucket, count) = line.split_once(' ').unwrap();
            *admitted.entry(bucket.parse().unwrap()).or_default() += count.parse::<u32>().unwrap();
        }
    }
    let of_window = |&last: &u64| {
        let first = (last + 1).saturating_sub(buckets.into());
        let sum: u32 = admitted.range(first..=last).map(|(_, count)| count).sum();
        f64::from(sum) / f64::from(LIMIT)
    };
    admitted.keys().map(of_window).collect()
}
