//! Four processes with the same 100 000 users on one server.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use tower_sentinel::store::RedisStore;
use tower_sentinel::{Call, KeyedRule};

use crate::redis::Server;
use crate::{SKEW, errors, started, wall_us};

/// Tells a child what it is, as `url calls seed`.
const CHILD: &str = "SENTINEL_TEST_CHILD_BY_KEY";
const USERS: u64 = 100_000;
/// So many users make every second call.
const BUSY: u64 = 300;
/// The limit of a user, in a window of so many buckets.
const LIMIT: u32 = 5;
const WINDOW: Duration = Duration::from_secs(4);
const BUCKETS: u64 = 2;
/// Calls of all processes, and how many of one process are out at a time.
const CALLS: u32 = 60_000;
const AT_ONCE: u32 = 64;

/// Admitted calls by user and bucket.
type Admitted = BTreeMap<(u64, u64), u32>;

/// The child: it prints what it has admitted to whom. Alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<_> = told.split(' ').collect();
    let (calls, seed): (u32, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let rule = KeyedRule::per("/user", LIMIT, WINDOW).max_keys(1 << 18);
    let store = RedisStore::new(words[0])
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    // The machine may be busy: late answers would be an outage, which has another bound.
    let wait = Duration::from_secs(5);
    let (sentinel, handle) = started(store, rule.window().shared(), wait).await;
    let before = errors(&sentinel);
    let callers = (0..AT_ONCE).map(|caller| {
        let sentinel = sentinel.clone();
        let mut random = seed + u64::from(caller);
        tokio::spawn(async move {
            let mut admitted = Admitted::new();
            for _ in 0..calls / AT_ONCE {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let number = random >> 33;
                let user = if number % 2 == 0 {
                    number / 2 % BUSY
                } else {
                    number / 2 % USERS
                };
                let bucket = wall_us() * BUCKETS / WINDOW.as_micros() as u64;
                let has_passed = sentinel.enter(Call::new("/user").param(user)).await.is_ok();
                if has_passed && wall_us() * BUCKETS / WINDOW.as_micros() as u64 == bucket {
                    *admitted.entry((user, bucket)).or_default() += 1;
                }
            }
            admitted
        })
    });
    let callers: Vec<_> = callers.collect();
    for caller in callers {
        for ((user, bucket), count) in caller.await.unwrap() {
            println!("admitted {user} {bucket} {count}");
        }
    }
    let status = sentinel.store().unwrap();
    assert_eq!(errors(&sentinel), before, "no draw has failed: {status:?}");
    println!("draws {} {}", status.draws(), calls);
    handle.shutdown().await;
}

#[tokio::test]
async fn four_processes_admit_one_limit_of_each_user() {
    let Some(server) = Server::start("by-key", &[]).await else {
        return;
    };
    let children = SKEW.map(|part| {
        let calls = CALLS * part / 100;
        Command::new(std::env::current_exe().unwrap())
            .args(["by_key::child", "--exact", "--nocapture"])
            .env(CHILD, format!("{} {calls} {part}", server.url()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut all = Admitted::new();
    let mut draws = 0;
    for mut child in children {
        let mut text = String::new();
        let mut out = child.stdout.take().unwrap();
        out.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        for line in text.lines() {
            let mut words = line.split(' ');
            let kind = words.next().unwrap();
            let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            match (kind, &numbers[..]) {
                ("admitted", &[user, bucket, count]) => {
                    *all.entry((user, bucket)).or_default() += count as u32;
                }
                ("draws", &[count, calls]) => {
                    assert!(count <= calls, "{count} draws for {calls} calls");
                    draws += count;
                }
                _ => {}
            }
        }
    }
    let users = all.keys().map(|(user, _)| user);
    let users: std::collections::BTreeSet<_> = users.collect();
    let total: u32 = all.values().sum();
    let worst = all
        .iter()
        .map(|(&(user, bucket), count)| count + all.get(&(user, bucket + 1)).copied().unwrap_or(0));
    let worst = worst.max().unwrap();
    println!(
        "{} users, {total} admitted, {draws} draws, worst window {worst}",
        users.len()
    );
    assert!(worst <= LIMIT, "{worst} in the window of a user");
    assert!(users.len() > 20_000, "only {} users", users.len());
}
