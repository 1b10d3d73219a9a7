//! What is measured: this crate, and in a few lines each what others do on a server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use tower_sentinel::store::{RedisStore, StoreHandle, StoreSettings};
use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};

/// Generic cell rate by the server's clock: one number per key, the time at which the next call
/// conforms. What comes up to a twentieth of the limit early passes as well.
const GCRA: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local step = 1000000 / ARGV[1]
local at = tonumber(redis.call('GET', KEYS[1]) or now)
if at < now then at = now end
if at - now > step * ARGV[1] / 20 then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', at + step), 'PX', 2000)
return 1";

/// The kinds, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Script,
    Increment,
    /// The same, and who is over the limit is remembered until the window ends.
    IncrementCached,
    /// Each process counts for itself, and tells and asks the server every 100 ms.
    Apart,
    Leased,
    Exact,
}

/// One process.
pub(crate) struct Process {
    limiter: Limiter,
    trips: Rc<Cell<u64>>,
}

enum Limiter {
    Remote {
        kind: Kind,
        connection: MultiplexedConnection,
        script: Script,
        limit: u32,
        /// The second that is known to be over.
        over: Cell<u64>,
    },
    Apart(Rc<Apart>),
    Ours {
        sentinel: Sentinel,
        _handle: StoreHandle,
    },
}

struct Apart {
    limit: u32,
    /// The second, what the server has counted in it, and what it has not been told.
    seen: RefCell<(u64, u64, u64)>,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Script,
        Self::Increment,
        Self::IncrementCached,
        Self::Apart,
        Self::Leased,
        Self::Exact,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Script => "GCRA, a script for each call",
            Self::Increment => "INCRBY in a fixed window",
            Self::IncrementCached => "the same, who is over cached",
            Self::Apart => "counted apart, sync 100 ms",
            Self::Leased => "ours, leased",
            Self::Exact => "ours, exact",
        }
    }
}

pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

impl Process {
    /// One of `nodes` processes with a limit a second. Those with the same `name` count together.
    pub(crate) async fn new(kind: Kind, url: &str, name: &str, limit: u32, nodes: u32) -> Self {
        let trips = Rc::new(Cell::new(0));
        let limiter = match kind {
            Kind::Leased | Kind::Exact => {
                let rule = FlowRule::per_second(name, limit).buckets(1).shared();
                let rule = if kind == Kind::Exact {
                    rule.exact()
                } else {
                    rule
                };
                let settings = StoreSettings::new().nodes(nodes);
                let sentinel = Sentinel::builder()
                    .rules(rule)
                    .store(RedisStore::new(url).unwrap().with_prefix("ts").unwrap())
                    // A busy machine is no outage here.
                    .store_settings(settings.store_wait(Duration::from_secs(1)))
                    .build();
                let handle = sentinel.start_store().unwrap();
                Limiter::Ours {
                    sentinel,
                    _handle: handle,
                }
            }
            _ => {
                let client = Client::open(url).unwrap();
                let connection = client.get_multiplexed_async_connection().await.unwrap();
                if kind == Kind::Apart {
                    let apart = Rc::new(Apart {
                        limit,
                        seen: RefCell::new((0, 0, 0)),
                    });
                    let sync = apart
                        .clone()
                        .sync(connection, name.to_owned(), trips.clone());
                    tokio::task::spawn_local(sync);
                    Limiter::Apart(apart)
                } else {
                    Limiter::Remote {
                        kind,
                        connection,
                        script: Script::new(GCRA),
                        limit,
                        over: Cell::new(0),
                    }
                }
            }
        };
        Self { limiter, trips }
    }

    /// How many times the server was asked.
    pub(crate) fn trips(&self) -> u64 {
        match &self.limiter {
            Limiter::Ours { sentinel, .. } => sentinel.store().unwrap().trips(),
            _ => self.trips.get(),
        }
    }

    /// Decides one call at once, if that is possible without the server.
    pub(crate) fn decide_here(&self, name: &str) -> Option<bool> {
        match &self.limiter {
            Limiter::Ours { sentinel, .. } => match sentinel.try_enter(Call::new(name)) {
                Verdict::Pass(_) => Some(true),
                Verdict::Wait(_) => None,
                _ => Some(false),
            },
            Limiter::Apart(apart) => Some(apart.decide()),
            Limiter::Remote { .. } => None,
        }
    }

    /// Decides one call.
    pub(crate) async fn decide(&self, name: &str) -> bool {
        match &self.limiter {
            Limiter::Ours { sentinel, .. } => sentinel.enter(Call::new(name)).await.is_ok(),
            Limiter::Apart(apart) => apart.decide(),
            Limiter::Remote {
                kind,
                connection,
                script,
                limit,
                over,
            } => {
                let mut connection = connection.clone();
                let second = wall().as_secs();
                if *kind == Kind::IncrementCached && over.get() == second {
                    return false;
                }
                self.trips.set(self.trips.get() + 1);
                if *kind == Kind::Script {
                    let mut asked = script.key(name);
                    let passes: u32 = asked
                        .arg(*limit)
                        .invoke_async(&mut connection)
                        .await
                        .unwrap();
                    return passes == 1;
                }
                let count = add(&mut connection, name, second, 1).await;
                if count > u64::from(*limit) {
                    over.set(second);
                }
                count <= u64::from(*limit)
            }
        }
    }
}

/// Adds to the counter of a second.
async fn add(connection: &mut MultiplexedConnection, name: &str, second: u64, n: u64) -> u64 {
    let key = format!("{name}:{second}");
    let mut commands = redis::pipe();
    commands.cmd("INCRBY").arg(&key).arg(n);
    commands.cmd("PEXPIRE").arg(&key).arg(2_000).ignore();
    let (count,): (u64,) = commands.query_async(connection).await.unwrap();
    count
}

impl Apart {
    fn decide(&self) -> bool {
        let second = wall().as_secs();
        let mut seen = self.seen.borrow_mut();
        if seen.0 != second {
            *seen = (second, 0, 0);
        }
        let passes = seen.1 + seen.2 < self.limit.into();
        seen.2 += u64::from(passes);
        passes
    }

    async fn sync(
        self: Rc<Self>,
        mut connection: MultiplexedConnection,
        name: String,
        trips: Rc<Cell<u64>>,
    ) {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let (second, _, untold) = *self.seen.borrow();
            trips.set(trips.get() + 1);
            let count = add(&mut connection, &name, second, untold).await;
            let mut seen = self.seen.borrow_mut();
            if seen.0 == second {
                seen.1 = count;
                seen.2 -= untold;
            }
        }
    }
}
