//! A store on Redis or Valkey: a single server, the master of a group with Sentinels, or a Cluster.
//!
//! Two constant scripts do all the work: one applies a draw, and the other counts a beat. A trip is
//! one pipeline, or one for each master of a Cluster. There is one connection to each server. Only
//! a beat opens a connection, so a server that was unavailable gets no draws until it has answered
//! a beat.

mod answer;
mod evicting;
mod link;
#[cfg(feature = "redis-cluster")]
mod masters;
mod open;
#[cfg(feature = "redis-sentinel")]
mod sentinels;
mod servers;
#[cfg(feature = "redis-cluster")]
mod slots;
#[cfg(feature = "redis-tls")]
mod tls;
mod unopened;

use std::fmt;
use std::sync::Arc;

use redis::Script;

use self::evicting::Evicting;
use self::link::Connection;
use self::servers::Servers;
use super::{Alive, Beat, Draw, Drawn, QuotaStore, StoreError, StoreFuture, StoreMistake};

/// The script that applies a draw, as [`Draw::apply`] does.
const DRAW: &str = include_str!("draw.lua");
/// The script that counts a beat.
const BEAT: &str = include_str!("beat.lua");
/// The scripts that are loaded into each server.
const SCRIPTS: [&str; 2] = [BEAT, DRAW];
/// The capacity of the buffer of a command, in bytes: enough for nearly any draw without growing.
const COMMAND_BYTES: usize = 192;

/// A [`QuotaStore`] on a Redis server from 6.2 on, or a Valkey server from 7.2 on.
///
/// The server needs no modules and no persistence. It must not evict keys: set `noeviction`, and
/// leave enough memory; a counter of one or two buckets takes about 180 bytes. A user with an
/// access list needs `~PREFIX:* +evalsha +script|load +time +get +set +zadd +zremrangebyscore
/// +zcard +zrange +zrank +zrem`; `+select` for a database other than 0; and in a Cluster
/// `+cluster|slots +asking`. With `+info`, the store checks the eviction policy when it opens a
/// connection. A policy other than `noeviction` is a
/// [finding](crate::hook::FindingKind::StoreEvicts).
///
/// All clones share one connection. The task that asks the store opens it. The task opens a new
/// connection if the old one breaks, or if the server accepts no more writes or does not answer. A
/// forked process must not share the connection of its parent:
/// [start](crate::Sentinel::start_store) the store after the fork.
///
/// Neither errors nor `Debug` show the address or a password.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{QuotaStore, RedisStore};
///
/// // Only read here; the connection is opened by `Sentinel::start_store`.
/// let store = RedisStore::new("redis://cache:6379")?.with_prefix("shop")?;
/// assert_eq!(store.prefix(), "shop");
/// assert!(RedisStore::new("http://cache").is_err());
/// assert!(store.with_prefix("no spaces").is_err());
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
#[derive(Clone)]
pub struct RedisStore {
    servers: Servers,
    #[cfg(feature = "redis-tls")]
    certificates: redis::TlsCertificates,
    prefix: Arc<str>,
    shared: Arc<Common>,
}

/// The parts that all clones share.
struct Common {
    draw: Script,
    beat: Script,
    connection: Connection,
    /// The eviction policy that a connected server has, if it evicts counters.
    evicting: Arc<Evicting>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            draw: Script::new(DRAW),
            beat: Script::new(BEAT),
            connection: Connection::default(),
            evicting: Arc::default(),
        }
    }
}

impl QuotaStore for RedisStore {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(self.draw_all(draws))
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(self.say_alive(alive))
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn mistakes(&self) -> Vec<StoreMistake> {
        let evicts = self.shared.evicting.policy().map(StoreMistake::Evicts);
        let shows = self.servers.show_password();
        let shows = shows.then_some(StoreMistake::PlainPassword);
        evicts.into_iter().chain(shows).collect()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may have a password.
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
