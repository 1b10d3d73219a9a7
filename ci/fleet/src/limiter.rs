//! What is measured: this crate, and a script per call by the same client.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use tower_sentinel::store::{RedisStore, StoreHandle, StoreSettings, StoreState};
use tower_sentinel::{Call, KeyedRule, Sentinel};

const LIMIT: u32 = 5;
/// Generic cell rate by the server's clock.
const GCRA: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local step = 1000000 / ARGV[1]
local at = tonumber(redis.call('GET', KEYS[1]) or now)
if at < now then at = now end
if at - now > step * ARGV[1] then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', at + step), 'PX', 2000)
return 1";

#[derive(Clone)]
pub(crate) enum Limiter {
    Script(MultiplexedConnection, Script),
    Increment(MultiplexedConnection),
    Ours(Sentinel),
}

impl Limiter {
    pub(crate) async fn new(kind: &str, url: &str) -> (Self, Option<StoreHandle>) {
        if kind == "script" || kind == "increment" {
            let client = Client::open(url).unwrap();
            let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
            let opened = client.get_multiplexed_async_connection_with_config(&config);
            let connection = opened.await.unwrap();
            let limiter = match kind {
                "script" => Self::Script(connection, Script::new(GCRA)),
                _ => Self::Increment(connection),
            };
            return (limiter, None);
        }
        let rule = KeyedRule::per_second("/v1", LIMIT).window().shared();
        let rule = if kind == "exact" { rule.exact() } else { rule };
        let mut settings = StoreSettings::new().nodes(4);
        if let Some(ms) = kind.strip_prefix("ours-") {
            settings = settings.store_wait(Duration::from_millis(ms.parse().unwrap()));
        }
        let sentinel = Sentinel::builder()
            .rules(rule.max_keys(1 << 17))
            .store(RedisStore::new(url).unwrap().with_prefix("fleet").unwrap())
            .store_settings(settings)
            .build();
        let handle = sentinel.start_store().unwrap();
        (Self::Ours(sentinel), Some(handle))
    }

    /// Decides one call of this key.
    pub(crate) async fn decide(&mut self, key: u64) -> bool {
        match self {
            Self::Script(connection, script) => {
                let mut asked = script.key(format!("k:{key:x}"));
                let passes: u32 = asked.arg(LIMIT).invoke_async(connection).await.unwrap();
                passes == 1
            }
            Self::Increment(connection) => {
                let mut commands = redis::pipe();
                let key = format!("k:{key:x}");
                commands.cmd("INCRBY").arg(&key).arg(1);
                commands.cmd("PEXPIRE").arg(&key).arg(2_000).ignore();
                let (count,): (u32,) = commands.query_async(connection).await.unwrap();
                count <= LIMIT
            }
            Self::Ours(sentinel) => sentinel.enter(Call::new("/v1").param(key)).await.is_ok(),
        }
    }

    /// Whether its store is there, and how many draws and trips there were.
    pub(crate) fn state(&self) -> (bool, u64, u64) {
        match self {
            Self::Ours(sentinel) => {
                let store = sentinel.store().unwrap();
                (
                    store.state() == StoreState::Live,
                    store.draws(),
                    store.trips(),
                )
            }
            _ => (true, 0, 0),
        }
    }

    pub(crate) fn error(&self) -> String {
        match self {
            Self::Ours(sentinel) => format!("{:?}", sentinel.store().unwrap().last_error()),
            _ => String::new(),
        }
    }
}
