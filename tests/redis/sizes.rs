//! What a counter takes on a server.

use std::ops::Range;
use std::time::Duration;

use futures_util::future::join_all;
use tower_sentinel::{Call, FlowRule};

use crate::redis::Server;
use crate::{passed, started, store};

const WAIT: Duration = Duration::from_secs(5);

/// One user is a counter.
fn rule(buckets: u32) -> FlowRule {
    let rule = FlowRule::per_minute("/v1", 2).buckets(buckets);
    rule.by_origin().shared()
}

/// What the server says that the only counter with this prefix takes.
fn usage(server: &Server, prefix: &str) -> u32 {
    let keys = server.say(&format!("KEYS {prefix}:1:*"));
    let is_counter = |line: &&str| line.len() == prefix.len() + 37;
    let counters: Vec<_> = keys.split("\r\n").filter(is_counter).collect();
    let [counter] = counters[..] else {
        panic!("{keys}");
    };
    let usage = server.say(&format!("MEMORY USAGE {counter}"));
    let bytes = usage.trim().strip_prefix(':').map(str::parse);
    bytes.unwrap_or_else(|| panic!("{usage}")).unwrap()
}

#[tokio::test]
async fn a_counter_takes_at_most_180_bytes_by_itself() {
    let long = "12345678901234567890123456789012";
    for (buckets, prefix) in [(1, "ts"), (2, "ts"), (2, "billing"), (2, long), (10, "ts")] {
        let Some(server) = Server::start("size", &[]).await else {
            return;
        };
        let store = store(&server).with_prefix(prefix).unwrap();
        let (sentinel, handle) = started(store, rule(buckets), WAIT).await;
        let call = Call::new("/v1").origin("ann");
        assert_eq!(passed(&sentinel, call, 4).await, 2);
        let bytes = usage(&server, prefix);
        println!("{bytes} bytes with {buckets} buckets and the prefix {prefix:?}");
        assert!(bytes <= 180, "{bytes}, {buckets} buckets, {prefix:?}");
        handle.shutdown().await;
    }
}

/// Memory of the whole server. Its tables of keys and of their ends double when they are full, so from
/// full ones to full ones all of them are counted.
#[tokio::test]
async fn a_counter_takes_at_most_180_bytes_with_its_places() {
    let Some(server) = Server::start("sizes", &[]).await else {
        return;
    };
    let (sentinel, handle) = started(store(&server), rule(2), WAIT).await;
    let used = || {
        let info = server.say("INFO memory");
        let mut lines = info.lines();
        let line = lines.find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().trim().parse::<i64>().unwrap()
    };
    let ask = async |users: Range<u32>| {
        for first in users.step_by(256) {
            let asked = (first..first + 256).map(|user| {
                let sentinel = &sentinel;
                async move {
                    let origin = user.to_string();
                    let call = Call::new("/v1").origin(origin.as_str());
                    assert_eq!(passed(sentinel, call, 1).await, 1);
                }
            });
            join_all(asked).await;
        }
    };
    // A few less than fill the tables: there are the keys of the processes as well.
    let (first, last) = (16_384 - 256, 32_768 - 256);
    ask(0..first).await;
    let before = used();
    ask(first..last).await;
    let each = (used() - before) / i64::from(last - first);
    println!("{each} bytes a key");
    assert!((80..=180).contains(&each), "{each}");
    handle.shutdown().await;
}
