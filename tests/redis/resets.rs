//! Keys that are given their whole quota back, over two engines of one server.

use std::time::Duration;

use tower_sentinel::store::RedisStore;
use tower_sentinel::{Call, FlowRule, KeyedRule, Rule, Sentinel};

use crate::cluster::Cluster;
use crate::redis::Server;
use crate::{passed, started, store};

const WAIT: Duration = Duration::from_secs(5);
/// No bucket ends while a test runs.
const LONG: Duration = Duration::from_secs(300 * 86_400);

fn by(user: &str) -> Call<'_> {
    let call = Call::new("/v1").param(user).origin(user);
    call.reserve("tokens", 1)
}

async fn reset(engine: &Sentinel, user: &str) -> bool {
    let rules = engine.node("/v1").unwrap().shared_keyed_rules();
    rules[0].reset(user).await.unwrap()
}

/// Waits until a call of this user passes, for half a minute at the most.
async fn until_one_passes(engine: &Sentinel, user: &str) {
    for _ in 0..3_000 {
        if engine.enter(by(user)).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{user} is refused");
}

/// Resets a user by one engine of two, each with a store of its own.
async fn reset_by_one_of_two(store: impl Fn() -> RedisStore, rule: impl Into<Rule>) {
    let rule = rule.into();
    let (one, _here) = started(store(), rule.clone(), WAIT).await;
    let (two, _there) = started(store(), rule.clone(), WAIT).await;
    for user in ["ann", "bob", "eve"] {
        assert_eq!(passed(&one, by(user), 6).await, 6, "{rule:?}");
        assert_eq!(passed(&two, by(user), 6).await, 4, "{rule:?}");
    }
    for user in ["ann", "bob", "eve"] {
        assert_eq!(passed(&one, by(user), 6).await, 0, "{rule:?}");
    }
    for user in ["ann", "eve"] {
        assert!(reset(&one, user).await, "{rule:?}");
    }
    assert_eq!(passed(&one, by("ann"), 6).await, 6, "{rule:?}");
    until_one_passes(&two, "ann").await;
    assert_eq!(passed(&two, by("ann"), 12).await, 3, "{rule:?}");
    until_one_passes(&two, "eve").await;
    assert_eq!(passed(&two, by("eve"), 12).await, 9, "{rule:?}");
    for engine in [&one, &two] {
        assert_eq!(passed(engine, by("bob"), 6).await, 0, "{rule:?}");
    }
    assert!(!reset(&two, "ida").await);
    assert_eq!(passed(&one, by("ida"), 12).await, 10, "{rule:?}");
}

fn rules() -> [Rule; 4] {
    let window = || KeyedRule::per("/v1", 10, LONG).window().shared().exact();
    let flow = |buckets| FlowRule::per("/v1", 10, LONG).by_origin().buckets(buckets);
    [
        window().into(),
        window().cost("tokens").into(),
        flow(1).shared().exact().into(),
        flow(10).shared().exact().into(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_reset_has_its_whole_quota_over_all_engines() {
    for (number, rule) in rules().into_iter().enumerate() {
        let Some(server) = Server::start(&format!("resets{number}"), &[]).await else {
            return;
        };
        reset_by_one_of_two(|| store(&server), rule).await;
    }
}

/// There the counter of a key and the one of resets lie on two masters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_cluster_are_reset() {
    let Some(cluster) = Cluster::start("resets").await else {
        return;
    };
    for rule in rules() {
        reset_by_one_of_two(|| cluster.store(), rule).await;
    }
}
