//! What the store may do to four engines under twice their limits.

use std::time::Duration;

use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreState};
use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::crowd::{Crowd, LIMIT, LIMIT_OF_USER, STORE_WAIT, Worst};
use crate::proxy::{Proxy, Way};
use crate::redis::Server;
use crate::{asked, passed, store, until, wall_us};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The longest that it may take from the end of a fault until all engines ask the store again.
const MOST_AWAY: Duration = Duration::from_secs(2);

/// What a row of the table may admit at the most, in percent of the limits.
struct Bound {
    single: u32,
    by_key: u32,
}

/// All processes lose the store at the same moment.
const LOST_FOR_ALL: Bound = Bound {
    single: 105,
    by_key: 125,
};
/// The store answers all the time.
const HEALTHY: Bound = Bound {
    single: 100,
    by_key: 100,
};
/// One process of four is cut off: it adds its share.
const ONE_CUT_OFF: Bound = Bound {
    single: 125,
    by_key: 125,
};

/// What holds for any window that a fault touches, at whatever moment it comes: twice the
/// limit, less a share.
const ANY_MOMENT: Bound = Bound {
    single: 175,
    by_key: 175,
};
/// A machine that lets tasks stand for so long chooses the moment of a fault by itself, and
/// makes processes late: what holds then is that of any moment.
const STALLED: Duration = Duration::from_millis(25);

/// Runs a crowd on `server`, directly or by way of `proxies`, while `fault` happens.
async fn run(
    name: &str,
    bound: &Bound,
    server: &mut Server,
    proxies: [Option<&Proxy>; 4],
    fault: impl AsyncFnOnce(&mut Server),
) {
    let stores = proxies.map(|proxy| match proxy {
        Some(proxy) => RedisStore::new(&proxy.url())
            .unwrap()
            .with_prefix("ts")
            .unwrap(),
        None => store(server),
    });
    let crowd = Crowd::start(stores, STORE_WAIT);
    crowd.until_live().await;
    // In each window the fault comes when less than the limit was asked for.
    let into_second = wall_us() % 1_000_000;
    tokio::time::sleep(Duration::from_micros(2_400_000 - into_second)).await;
    fault(server).await;
    let away = crowd.until_live().await;
    tokio::time::sleep(ms(1_200)).await;
    let worst = crowd.end().await;
    let Worst {
        single,
        by_key,
        longest,
        stall,
    } = worst;
    let is_stalled = stall > STALLED;
    let bound = if is_stalled { &ANY_MOMENT } else { bound };
    println!(
        "{name}: worst {single:?} of {LIMIT}, {by_key} of {LIMIT_OF_USER}; \
         live after {away:?}, longest wait {longest:?}, longest stall {stall:?}"
    );
    let most = single.into_iter().max().unwrap();
    assert!(
        most * 100 <= LIMIT * bound.single,
        "{name}: {single:?} of {LIMIT}, at most {} %",
        bound.single
    );
    assert!(
        by_key * 100 <= LIMIT_OF_USER * bound.by_key,
        "{name}: {by_key} of {LIMIT_OF_USER}, at most {} %",
        bound.by_key
    );
    assert!(
        is_stalled || away <= MOST_AWAY,
        "{name}: live after {away:?}"
    );
    let is_soon = longest <= STORE_WAIT * 5;
    assert!(is_stalled || is_soon, "{name}: a call waited {longest:?}");
}

/// Runs a crowd directly on `server`, while `fault` happens to it.
async fn run_on(name: &str, server: &mut Server, fault: impl AsyncFnOnce(&mut Server)) {
    run(name, &LOST_FOR_ALL, server, [None; 4], fault).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_its_data_hands_nothing_out_twice() {
    let Some([mut one, mut two]) = Server::start_two("losses").await else {
        return;
    };
    let (one, two) = (&mut one, &mut two);
    let restarts = async {
        run_on("killed, restarted empty", one, async |server| {
            server.kill();
            tokio::time::sleep(ms(1_500)).await;
            server.run(&[]).await;
        })
        .await;
        run_on("restarted empty at once", one, async |server| {
            server.kill();
            server.run(&[]).await;
        })
        .await;
        run_on("restarted from a snapshot", one, async |server| {
            server.say("SAVE");
            // The windows of the snapshot are over when it comes back.
            tokio::time::sleep(ms(1_000)).await;
            server.kill();
            server.run_from_snapshot(&[]).await;
        })
        .await;
    };
    let flushes = async {
        run_on("flushed", two, async |server| {
            server.say("FLUSHALL");
        })
        .await;
        run_on("without its scripts", two, async |server| {
            server.say("SCRIPT FLUSH");
        })
        .await;
    };
    tokio::join!(restarts, flushes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_hands_nothing_out_twice() {
    let Some([mut one, mut two]) = Server::start_two("stops").await else {
        return;
    };
    let stopped = run_on("stopped", &mut one, async |server| {
        server.signal("STOP");
        tokio::time::sleep(ms(1_500)).await;
        server.signal("CONT");
    });
    let paused = run_on("paused", &mut two, async |server| {
        server.say("CLIENT PAUSE 900");
        tokio::time::sleep(ms(900)).await;
    });
    tokio::join!(stopped, paused);
}

/// Runs a crowd on `server`, which refuses from the one command until the other.
async fn run_refused(server: &mut Server, [name, begins, ends]: [&str; 3]) {
    run_on(name, server, async |server| {
        server.say(begins);
        tokio::time::sleep(ms(900)).await;
        server.say(ends);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_hands_nothing_out_twice() {
    let Some([mut one, mut two]) = Server::start_two("refuses").await else {
        return;
    };
    let read_only = ["read-only", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"];
    let full = [
        "out of memory",
        "CONFIG SET maxmemory 1",
        "CONFIG SET maxmemory 0",
    ];
    let without_rights = [
        "without rights",
        "ACL SETUSER default -evalsha",
        "ACL SETUSER default +evalsha",
    ];
    let (one, two) = (&mut one, &mut two);
    let writes = async {
        run_refused(one, read_only).await;
        run_refused(one, full).await;
    };
    let rights = async {
        run_refused(two, without_rights).await;
        run_on("another password", two, async |server| {
            // Who is connected stays so: all are sent away.
            server.say("CONFIG SET requirepass hush");
            server.say_all(&["AUTH hush", "CLIENT KILL TYPE normal"]);
            tokio::time::sleep(ms(900)).await;
            server.say_all(&["AUTH hush", "CONFIG SET requirepass "]);
        })
        .await;
    };
    tokio::join!(writes, rights);
}

const FAST: Way = Way::Delay(Duration::ZERO);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_fails_hands_nothing_out_twice() {
    let Some([mut one, mut two]) = Server::start_two("network").await else {
        return;
    };
    tokio::join!(cut(&mut one), delay(&mut two));
}

/// Connections end, or lose what they are sent.
async fn cut(server: &mut Server) {
    let proxy = &Proxy::start(server.socket()).await;
    let all = [Some(proxy); 4];
    run("cut", &LOST_FOR_ALL, server, all, async |_| {
        proxy.set(Way::Cut);
        tokio::time::sleep(ms(900)).await;
        proxy.set(FAST);
    })
    .await;
    run("cut for a moment", &LOST_FOR_ALL, server, all, async |_| {
        proxy.set(Way::Cut);
        tokio::time::sleep(ms(1)).await;
        proxy.set(FAST);
    })
    .await;
    run("half-open", &LOST_FOR_ALL, server, all, async |_| {
        proxy.set(Way::Swallow);
        tokio::time::sleep(ms(900)).await;
        proxy.set(FAST);
    })
    .await;
    let one = [Some(proxy), None, None, None];
    run("one cut off", &ONE_CUT_OFF, server, one, async |_| {
        proxy.set(Way::Cut);
        tokio::time::sleep(ms(1_500)).await;
        proxy.set(FAST);
    })
    .await;
}

/// Answers come late, or too late.
async fn delay(server: &mut Server) {
    let proxy = &Proxy::start(server.socket()).await;
    let all = [Some(proxy); 4];
    for delay in [5, 50] {
        let name = format!("{delay} ms of delay");
        proxy.set(Way::Delay(ms(delay)));
        run(&name, &HEALTHY, server, all, async |_| {}).await;
    }
    proxy.set(FAST);
    run(
        "too late for a while",
        &LOST_FOR_ALL,
        server,
        all,
        async |_| {
            proxy.set(Way::Delay(2 * STORE_WAIT));
            tokio::time::sleep(ms(1_500)).await;
            proxy.set(FAST);
        },
    )
    .await;
}

/// What an engine notes of a store that refuses it, and that it admits its share all the same.
async fn refused(store: RedisStore, kind: StoreErrorKind) -> Sentinel {
    let rule = FlowRule::per_minute("/v1", 8).shared();
    let (sentinel, handle) = asked(store, rule, Duration::from_secs(5)).await;
    until(&sentinel, StoreState::Down).await;
    let passed = passed(&sentinel, Call::new("/v1"), 20).await;
    assert_eq!(passed, 2, "a share of 8 over 4");
    let status = sentinel.store().unwrap();
    assert!(status.errors(kind) > 0, "{status:?}");
    drop(handle);
    sentinel
}

#[tokio::test]
async fn a_server_that_refuses_is_named_and_leaves_shares() {
    let Some(server) = Server::start("refusals", &["--requirepass", "hush"]).await else {
        return;
    };
    // Without a password.
    let sentinel = refused(store(&server), StoreErrorKind::Refused).await;
    let error = sentinel.store().unwrap().last_error().unwrap().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
    // With a wrong one, which nobody shows.
    let url = server.url() + "?pass=wrong";
    let wrong = RedisStore::new(&url).unwrap().with_prefix("ts").unwrap();
    assert!(!format!("{wrong:?}").contains("wrong"));
    let sentinel = refused(wrong, StoreErrorKind::Refused).await;
    let error = sentinel.store().unwrap().last_error().unwrap().to_string();
    assert!(!error.contains("wrong"), "{error}");
}

#[tokio::test]
async fn a_server_without_memory_or_rights_serves_shares() {
    let Some(server) = Server::start("full", &[]).await else {
        return;
    };
    server.say("CONFIG SET maxmemory 1");
    refused(store(&server), StoreErrorKind::Full).await;
    server.say("CONFIG SET maxmemory 0");
    server.say("ACL SETUSER default -evalsha");
    refused(store(&server), StoreErrorKind::Refused).await;
}

#[tokio::test]
async fn no_server_at_all_leaves_shares() {
    let store = RedisStore::new("redis+unix:///nowhere/at/all")
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    refused(store, StoreErrorKind::Unreachable).await;
}
