//! A master of a Cluster that hangs: it keeps its connections, and answers nothing.

use std::time::Duration;

use tokio::time::Instant;
use tower_sentinel::store::{StoreErrorKind, StoreHandle, StoreState};
use tower_sentinel::{Call, KeyedRule, Sentinel};

use crate::cluster::{Cluster, USERS};
use crate::{passed, started, until};

/// Half of it is more than a busy machine takes for a call, but now and then.
const WAIT: Duration = Duration::from_secs(2);
/// Of each user, for all processes. There are four, so this is a share of two.
const LIMIT: u32 = 8;

type Engine = (Sentinel, StoreHandle);

/// Two engines with connections of their own, both live.
async fn pair(cluster: &Cluster) -> [Engine; 2] {
    let rule = || {
        let rule = KeyedRule::per_minute("/v1", LIMIT).window();
        rule.shared().exact()
    };
    let first = started(cluster.store(), rule(), WAIT).await;
    let engines = [first, started(cluster.store(), rule(), WAIT).await];
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Live).await;
    }
    engines
}

/// What calls have met.
#[derive(Debug, Default)]
struct Met {
    /// How many passed, of each user.
    passed: Vec<u32>,
    /// How long a call took at the most, to be read: a busy machine has a say in it.
    longest: Duration,
    /// How many calls took more than half of what they may.
    slow: u32,
}

/// Has both engines make so many calls of each user, in turns.
async fn call_all(engines: &[Engine; 2], calls: u32) -> Met {
    let mut met = Met::default();
    for user in 0..USERS {
        let mut of_user = 0;
        for _ in 0..calls {
            for (sentinel, _) in engines {
                let since = Instant::now();
                of_user += passed(sentinel, Call::new("/v1").param(user), 1).await;
                let took = since.elapsed();
                met.longest = met.longest.max(took);
                met.slow += u32::from(took > WAIT / 2);
            }
        }
        met.passed.push(of_user);
    }
    met
}

/// How many calls of each user passed in all of these.
fn passed_in(parts: [&Met; 3]) -> Vec<u32> {
    let of_user = |user: usize| parts.iter().map(|part| part.passed[user]).sum();
    (0..USERS as usize).map(of_user).collect()
}

/// How many users had so many calls that passed.
fn count(met: &Met, passed: u32) -> usize {
    met.passed.iter().filter(|it| **it == passed).count()
}

/// Makes calls of new users until the server of this number counts one of them. Returns how long
/// that took.
async fn until_counted(engines: &[Engine; 2], cluster: &Cluster, index: usize) -> Duration {
    let since = Instant::now();
    let before = cluster.keys(index).len();
    for user in 1_000.. {
        for (sentinel, _) in engines {
            passed(sentinel, Call::new("/v1").param(user), 1).await;
        }
        if cluster.keys(index).len() > before {
            break;
        }
        let states = engines.each_ref().map(|(sentinel, _)| sentinel.store());
        assert!(
            since.elapsed().as_secs() < 60,
            "it counts nothing: {states:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    since.elapsed()
}

#[tokio::test]
async fn a_master_that_hangs_leaves_the_others_served() {
    let Some(cluster) = Cluster::start("hang").await else {
        return;
    };
    let engines = pair(&cluster).await;
    let hangs = (cluster.owner("ts:1:{nodes}") + 1) % 3;
    let before = call_all(&engines, 1).await;
    assert_eq!(count(&before, 2), USERS as usize);
    let on_it = cluster.keys(hangs).len();
    assert!(on_it > 0);
    cluster.masters[hangs].0.signal("STOP");
    let met = call_all(&engines, 5).await;
    println!("{on_it} users on it: {met:?}");
    // The first of each engine on it, and others only by chance.
    assert!(met.slow <= 10, "{met:?}");
    // Of what lies on it each engine admits the rest of its share of two, which is one.
    assert_eq!(count(&met, 2), on_it, "{met:?}");
    assert_eq!(count(&met, 6), USERS as usize - on_it, "{met:?}");
    for (sentinel, _) in &engines {
        let status = sentinel.store().unwrap();
        assert_eq!(status.state(), StoreState::Live, "{status:?}");
        assert!(status.errors(StoreErrorKind::Late) > 0, "{status:?}");
        let error = status.last_error().unwrap().to_string();
        assert!(error.contains("did not answer in time"), "{error}");
    }
    cluster.masters[hangs].0.signal("CONT");
    let took = until_counted(&engines, &cluster, hangs).await;
    println!("counted {took:?} after it went on");
    // Until both have told it what they took without it, they draw no more than their share.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rest = call_all(&engines, 5).await;
    let all = passed_in([&before, &met, &rest]);
    assert!(all.iter().all(|it| *it <= LIMIT), "{all:?}");
    // A draw of each engine was on its way when it stopped, and it ran them for nobody.
    assert!(
        all.iter().sum::<u32>() + 2 >= LIMIT * USERS as u32,
        "{all:?}"
    );
}

#[tokio::test]
async fn without_the_master_that_counts_processes_no_call_waits() {
    let Some(cluster) = Cluster::start("hang-nodes").await else {
        return;
    };
    let engines = pair(&cluster).await;
    let hangs = cluster.owner("ts:1:{nodes}");
    cluster.masters[hangs].0.signal("STOP");
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Down).await;
    }
    // No call asks the store, so none waits for it.
    let asked = || {
        engines
            .each_ref()
            .map(|(it, _)| it.store().unwrap().draws())
    };
    let before = asked();
    let met = call_all(&engines, 3).await;
    println!("{met:?}");
    assert_eq!(asked(), before, "{met:?}");
    assert_eq!(
        count(&met, 4),
        USERS as usize,
        "two of each engine: {met:?}"
    );
    cluster.masters[hangs].0.signal("CONT");
    for (sentinel, _) in &engines {
        until(sentinel, StoreState::Live).await;
    }
}

#[tokio::test]
async fn the_replica_of_a_master_that_hangs_counts_on() {
    let Some(mut cluster) = Cluster::start("hang-replica").await else {
        return;
    };
    let hangs = (cluster.owner("ts:1:{nodes}") + 1) % 3;
    let replica = cluster.add_replica(hangs).await;
    let engines = pair(&cluster).await;
    let before = call_all(&engines, 1).await;
    assert_eq!(count(&before, 2), USERS as usize);
    let on_it = cluster.keys(hangs).len();
    let since = Instant::now();
    while cluster.keys(replica).len() < on_it {
        assert!(since.elapsed().as_secs() < 60, "it is not replicated");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.masters[hangs].0.signal("STOP");
    let met = call_all(&engines, 5).await;
    println!("{on_it} users on it: {met:?}");
    // As by a vote of the masters, for which a busy machine may take long.
    let takes_over = cluster.masters[replica].0.say("CLUSTER FAILOVER TAKEOVER");
    assert!(takes_over.contains("OK"), "{takes_over}");
    let took = until_counted(&engines, &cluster, replica).await;
    println!("counted {took:?} after the replica took over");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rest = call_all(&engines, 5).await;
    let all = passed_in([&before, &met, &rest]);
    assert!(all.iter().all(|it| *it == LIMIT), "{all:?}");
    for (sentinel, _) in &engines {
        let status = sentinel.store().unwrap();
        assert_eq!(status.state(), StoreState::Live, "{status:?}");
    }
}
