//! Three masters of a Cluster: keys on all of them, one trip for all, a slot that moves, and
//! masters that die or hang.

use std::time::Duration;

use tokio::time::Instant;
use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreHandle, StoreSettings, StoreState};
use tower_sentinel::{Call, FlowRule, KeyedRule, Rules, Sentinel};

use crate::guarded::RIGHTS;
use crate::proxy::{Proxy, Way};
use crate::redis::{Server, free_port};
use crate::{errors, passed, until};

pub(crate) const USERS: u64 = 30;
/// Those of the documentation, beside the others.
const RIGHTS_IN_A_CLUSTER: &str = "+cluster|slots +asking";
/// Slots of each master: from the first to the one before the last.
const SLOTS: [(u16, u16); 3] = [(0, 5_461), (5_461, 10_923), (10_923, 16_384)];

/// Three masters, each with its port.
pub(crate) struct Cluster {
    pub(crate) masters: Vec<(Server, u16)>,
}

impl Cluster {
    pub(crate) async fn start(name: &str) -> Option<Self> {
        Self::start_with(name, |port| vec!["--port".to_owned(), port.to_string()]).await
    }

    /// The same with these arguments for the port of each.
    pub(crate) async fn start_with(
        name: &str,
        at_port: impl Fn(u16) -> Vec<String>,
    ) -> Option<Self> {
        let mut masters = Vec::new();
        let mut meet = Vec::new();
        for (index, (first, end)) in SLOTS.into_iter().enumerate() {
            let (server, port, bus) = start_node(&format!("{name}-{index}"), &at_port).await?;
            server.say(&format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
            // Those that meet must not be of one age.
            server.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            meet.push(format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            masters.push((server, port));
        }
        for command in &meet[1..] {
            masters[0].0.say(command);
        }
        let cluster = Self { masters };
        for all_know in [
            "cluster_known_nodes:3",
            "cluster_slots_assigned:16384",
            "cluster_state:ok",
        ] {
            cluster.settle("CLUSTER INFO", all_know).await;
        }
        Some(cluster)
    }

    /// Adds a replica of a master to the servers, and returns its number.
    pub(crate) async fn add_replica(&mut self, of: usize) -> usize {
        let index = self.masters.len();
        let name = format!("replica-{}", self.masters[0].1);
        let node = start_node(&name, |port| vec!["--port".to_owned(), port.to_string()]);
        let (server, port, bus) = node.await.unwrap();
        let id = self.id(of);
        self.masters[0]
            .0
            .say(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        self.masters.push((server, port));
        self.settle("CLUSTER INFO", "cluster_known_nodes:4").await;
        let since = Instant::now();
        let replicate = format!("CLUSTER REPLICATE {id}");
        while !self.masters[index].0.say(&replicate).contains("OK") {
            assert!(since.elapsed().as_secs() < 60, "it knows no {id}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let is_linked = |all: String| all.contains("master_link_status:up");
        while !is_linked(self.masters[index].0.say("INFO replication")) {
            assert!(since.elapsed().as_secs() < 60, "it does not replicate");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // All others know whose it is.
        self.settle("CLUSTER SLOTS", &format!(":{port}\r\n")).await;
        index
    }

    /// Waits until all masters answer `command` with this in it.
    async fn settle(&self, command: &str, part: &str) {
        for (server, _) in &self.masters {
            let since = Instant::now();
            while !server.say(command).contains(part) {
                assert!(since.elapsed().as_secs() < 60, "{}", server.say(command));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Makes calls of new users until each master counts one of them: then there is a connection
    /// to each, which a busy machine may need several attempts for. Returns how many keys each
    /// master has.
    pub(crate) async fn reach_all(&self, sentinel: &Sentinel) -> [usize; 3] {
        let (since, indices) = (Instant::now(), [0, 1, 2]);
        let before = indices.map(|index| self.keys(index).len());
        let first = 1_000_000 * (1 + before.iter().sum::<usize>() as u64);
        for user in first.. {
            passed(sentinel, Call::new("/v1").param(user), 1).await;
            let keys = indices.map(|index| self.keys(index).len());
            if indices.iter().all(|index| keys[*index] > before[*index]) {
                until(sentinel, StoreState::Live).await;
                return keys;
            }
            assert!(since.elapsed().as_secs() < 60, "{:?}", sentinel.store());
        }
        unreachable!("the numbers do not end");
    }

    pub(crate) fn store(&self) -> RedisStore {
        self.store_of("")
    }

    /// The same for a user, as `name:password@`.
    fn store_of(&self, user: &str) -> RedisStore {
        let ports = self.masters.iter().map(|(_, port)| port);
        let urls = ports.map(|port| format!("redis://{user}127.0.0.1:{port}"));
        RedisStore::cluster(urls)
            .unwrap()
            .with_prefix("ts")
            .unwrap()
    }

    /// The same over TLS.
    pub(crate) fn secure_store(&self) -> RedisStore {
        let ports = self.masters.iter().map(|(_, port)| port);
        let urls = ports.map(|port| format!("rediss://127.0.0.1:{port}"));
        RedisStore::cluster(urls)
            .unwrap()
            .with_prefix("ts")
            .unwrap()
    }

    fn slot(&self, key: &str) -> u16 {
        let answer = self.masters[0].0.say(&format!("CLUSTER KEYSLOT {key}"));
        answer.trim().trim_start_matches(':').parse().unwrap()
    }

    /// The master that has the slot of `key` at first.
    pub(crate) fn owner(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let mut all = SLOTS.iter();
        all.position(|(_, end)| slot < *end).unwrap()
    }

    /// The counters of a master.
    pub(crate) fn keys(&self, index: usize) -> Vec<String> {
        let all = self.masters[index].0.say("KEYS ts:1:*");
        let is_counter = |line: &&str| line.starts_with("ts:1:{") && line.len() == 39;
        all.split("\r\n")
            .filter(is_counter)
            .map(str::to_owned)
            .collect()
    }

    /// The name of a master among the servers.
    fn id(&self, index: usize) -> String {
        let id = self.masters[index].0.say("CLUSTER MYID");
        id.split("\r\n").nth(1).unwrap().to_owned()
    }
}

/// Starts a server of a Cluster. Returns it with its port, and the one where servers meet.
async fn start_node(
    name: &str,
    at_port: impl Fn(u16) -> Vec<String>,
) -> Option<(Server, u16, u16)> {
    let (port, bus) = (free_port(), free_port());
    let (at_port, bus_text) = (at_port(port), bus.to_string());
    let mut arguments: Vec<_> = at_port.iter().map(String::as_str).collect();
    arguments.extend([
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus_text,
        "--cluster-require-full-coverage",
        "no",
        "--cluster-node-timeout",
        "60000",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    let server = Server::start(name, &arguments).await?;
    Some((server, port, bus))
}

type Engine = (Sentinel, StoreHandle);

async fn engine(store: RedisStore, rules: impl Into<Rules>) -> Engine {
    let settings = StoreSettings::new().nodes(2);
    let builder = Sentinel::builder().rules(rules.into()).store(store);
    let settings = settings.store_wait(Duration::from_secs(5));
    let sentinel = builder.store_settings(settings).build();
    let handle = sentinel.start_store().unwrap();
    until(&sentinel, StoreState::Live).await;
    (sentinel, handle)
}

/// Two engines with a connection each.
async fn pair(cluster: &Cluster, rules: impl Into<Rules>) -> [Engine; 2] {
    let rules = rules.into();
    let first = engine(cluster.store(), rules.clone()).await;
    [first, engine(cluster.store(), rules).await]
}

async fn passed_by_both(engines: &[Engine; 2], call: Call<'_>, calls: u32) -> u32 {
    let mut all = 0;
    for _ in 0..calls {
        for (sentinel, _) in engines {
            all += passed(sentinel, call, 1).await;
        }
    }
    all
}

#[tokio::test]
async fn keys_of_all_masters_have_one_quota_each() {
    let Some(cluster) = Cluster::start("spread").await else {
        return;
    };
    let engines = pair(&cluster, KeyedRule::per_minute("/v1", 3).window().shared()).await;
    cluster.reach_all(&engines[1].0).await;
    let keys = cluster.reach_all(&engines[0].0).await;
    let before = engines.each_ref().map(|(sentinel, _)| errors(sentinel));
    for user in 0..USERS {
        let call = Call::new("/v1").param(user);
        assert_eq!(passed_by_both(&engines, call, 3).await, 3);
    }
    let spread = [0, 1, 2].map(|index| cluster.keys(index).len() - keys[index]);
    assert_eq!(spread.iter().sum::<usize>(), USERS as usize);
    assert!(spread.iter().all(|count| *count > 0), "{spread:?}");
    let after = engines.each_ref().map(|(sentinel, _)| errors(sentinel));
    assert_eq!(after, before, "no draw has failed");
}

#[tokio::test]
async fn the_rights_of_the_documentation_suffice_in_a_cluster() {
    let Some(cluster) = Cluster::start("rights-all").await else {
        return;
    };
    for (server, _) in &cluster.masters {
        server.say(&format!(
            "ACL SETUSER shop on >hush ~ts:* {RIGHTS} {RIGHTS_IN_A_CLUSTER}"
        ));
    }
    let rule = KeyedRule::per_minute("/v1", 3).window().shared();
    let (sentinel, handle) = engine(cluster.store_of("shop:hush@"), rule).await;
    cluster.reach_all(&sentinel).await;
    let before = errors(&sentinel);
    for user in 0..USERS {
        let call = Call::new("/v1").param(user);
        assert_eq!(passed(&sentinel, call, 4).await, 3);
    }
    assert_eq!(errors(&sentinel), before, "no draw has failed");
    handle.shutdown().await;
}

#[tokio::test]
async fn all_rules_of_a_call_take_one_trip_to_all_masters() {
    let Some(cluster) = Cluster::start("trip").await else {
        return;
    };
    // Clients find the masters behind proxies.
    let mut proxies = Vec::new();
    for (server, _) in &cluster.masters {
        let proxy = Proxy::start(server.socket()).await;
        server.say(&format!(
            "CONFIG SET cluster-announce-port {}",
            proxy.port()
        ));
        proxies.push(proxy);
    }
    for proxy in &proxies {
        cluster
            .settle("CLUSTER SLOTS", &format!(":{}\r\n", proxy.port()))
            .await;
    }
    let store = RedisStore::cluster(proxies.iter().map(Proxy::url))
        .unwrap()
        .with_prefix("ts")
        .unwrap();
    let rules = (0..12).map(|index| {
        let rule = FlowRule::per_minute("/v1", 100).id(format!("rule-{index}"));
        tower_sentinel::Rule::from(rule.shared().exact())
    });
    let (sentinel, _handle) = engine(store, rules.collect::<Vec<_>>()).await;
    assert_eq!(passed(&sentinel, Call::new("/v1"), 1).await, 1);
    let spread: Vec<_> = (0..3).map(|index| cluster.keys(index).len()).collect();
    assert!(spread.iter().all(|count| *count > 0), "{spread:?}");
    let trip = Duration::from_millis(1_500);
    proxies.iter().for_each(|proxy| proxy.set(Way::Delay(trip)));
    let since = Instant::now();
    assert_eq!(passed(&sentinel, Call::new("/v1"), 1).await, 1);
    let took = since.elapsed();
    println!("{took:?} for 12 keys on {spread:?}, with {trip:?} of delay");
    // The masters one after the other would take three.
    assert!(took >= trip && took < trip * 3, "{took:?}");
}

#[tokio::test]
async fn a_slot_that_moves_takes_its_count_along() {
    let Some(cluster) = Cluster::start("move").await else {
        return;
    };
    let engines = pair(&cluster, FlowRule::per_minute("/v1", 100).shared().exact()).await;
    let call = Call::new("/v1");
    let mut admitted = passed_by_both(&engines, call, 10).await;
    assert_eq!(admitted, 20);
    let from = (0..3).find(|index| !cluster.keys(*index).is_empty());
    let from = from.unwrap();
    let (to, other) = ((from + 1) % 3, (from + 2) % 3);
    let key = cluster.keys(from).remove(0);
    let slot = cluster.slot(&key);
    let (source, target) = (cluster.id(from), cluster.id(to));
    let port = cluster.masters[to].1;
    // After each step both engines call.
    for (server, command) in [
        (to, format!("CLUSTER SETSLOT {slot} IMPORTING {source}")),
        (from, format!("CLUSTER SETSLOT {slot} MIGRATING {target}")),
        (from, format!("MIGRATE 127.0.0.1 {port} {key} 0 5000")),
        (to, format!("CLUSTER SETSLOT {slot} NODE {target}")),
        (from, format!("CLUSTER SETSLOT {slot} NODE {target}")),
        (other, format!("CLUSTER SETSLOT {slot} NODE {target}")),
    ] {
        let answer = cluster.masters[server].0.say(&command);
        assert!(answer.contains("OK"), "{command}: {answer}");
        admitted += passed_by_both(&engines, call, 3).await;
    }
    assert_eq!(admitted, 56, "none was refused while the slot moved");
    for _ in 0..12 {
        admitted += passed_by_both(&engines, call, 10).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(admitted, 100);
    assert_eq!((cluster.keys(from).len(), cluster.keys(to)), (0, vec![key]));
}

#[tokio::test]
async fn a_slot_without_an_owner_leaves_shares() {
    let Some(cluster) = Cluster::start("gap").await else {
        return;
    };
    let engines = pair(&cluster, FlowRule::per_minute("/v1", 10).shared().exact()).await;
    let call = Call::new("/v1");
    let before = passed_by_both(&engines, call, 1).await;
    let from = (0..3).find(|index| !cluster.keys(*index).is_empty());
    let from = from.unwrap();
    let slot = cluster.slot(&cluster.keys(from)[0]);
    let gone = cluster.masters[from]
        .0
        .say(&format!("CLUSTER DELSLOTS {slot}"));
    assert!(gone.contains("OK"), "{gone}");
    let after = passed_by_both(&engines, call, 12).await;
    assert_eq!((before, after), (2, 8), "five of each engine");
    for (sentinel, _) in &engines {
        let status = sentinel.store().unwrap();
        assert_eq!(status.state(), StoreState::Live, "{status:?}");
        assert!(status.errors(StoreErrorKind::Moved) > 0, "{status:?}");
    }
}

#[tokio::test]
async fn a_master_that_dies_takes_only_its_own_keys_along() {
    let Some(mut cluster) = Cluster::start("death").await else {
        return;
    };
    let engines = pair(&cluster, KeyedRule::per_minute("/v1", 4).window().shared()).await;
    assert_eq!(
        passed_by_both(&engines, Call::new("/v1").param(1_000), 1).await,
        2
    );
    let dies = (cluster.owner("ts:1:{nodes}") + 1) % 3;
    cluster.masters[dies].0.kill();
    let mut of_user = Vec::new();
    for user in 0..USERS {
        let call = Call::new("/v1").param(user);
        of_user.push(passed_by_both(&engines, call, 5).await);
    }
    // Of a key without its master each engine admits its share of two.
    assert!(of_user.iter().all(|passed| *passed == 4), "{of_user:?}");
    let alive = (0..3).filter(|index| *index != dies);
    let counted: usize = alive.map(|index| cluster.keys(index).len()).sum();
    assert!((1..USERS as usize).contains(&counted), "{counted}");
    for (sentinel, _) in &engines {
        let status = sentinel.store().unwrap();
        assert_eq!(status.state(), StoreState::Live, "{status:?}");
    }
}
