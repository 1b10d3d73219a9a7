//! A store on a Redis or Valkey server.
//!
//! Two constant scripts do everything: one applies a draw, the other one says that the process
//! is alive. A trip is one pipeline. There is one connection, and only a beat opens it: a
//! server that was away is asked by nothing else until it has answered one.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, RedisResult, Script, Value,
};

use super::key::is_prefix;
use super::{
    Beat, Draw, Drawn, Epoch, NodeId, QuotaStore, StoreError, StoreErrorKind, StoreFuture,
};
use crate::base::invalid::InvalidSetting;
use crate::base::sync::Lock;

/// A [`QuotaStore`] on a Redis server from 6.2 on, or a Valkey server from 7.2 on.
///
/// The server needs no modules and no persistence. It must not evict keys: set `noeviction`, or
/// leave it room; a counter takes about 174 bytes. A user with an access list needs
/// `~PREFIX:* +evalsha +eval +script|load +time +get +set +zadd +zremrangebyscore +zcard +zrange
/// +zrank +zrem`, and `+client|setinfo` if it must not be refused in the log.
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
    client: Client,
    prefix: Arc<str>,
    shared: Arc<Connected>,
}

struct Connected {
    draw: Script,
    beat: Script,
    connection: Lock<State>,
}

#[derive(Default)]
struct State {
    open: Option<MultiplexedConnection>,
    /// Whether a beat has begun on it and has not been answered.
    is_doubted: bool,
}

impl RedisStore {
    /// Creates a store on the server at `url`: `redis://[user][:password@]host[:port][/db]`, or
    /// `redis+unix:///path/to/socket`. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// The address is none of a Redis server. The error does not show it.
    pub fn new(url: &str) -> Result<Self, InvalidSetting> {
        let client = Client::open(url).map_err(|error| {
            // Its text may have the address, with the password in it.
            let kind = error.kind();
            InvalidSetting::because(format!(
                "url is not that of a Redis server, must be `redis://host:port` or \
                 `redis+unix:///path` ({kind:?})"
            ))
        })?;
        Ok(Self {
            client,
            prefix: "ts".into(),
            shared: Arc::new(Connected {
                draw: Script::new(include_str!("draw.lua")),
                beat: Script::new(include_str!("beat.lua")),
                connection: Lock::default(),
            }),
        })
    }

    /// Sets what stands before all keys. Default `ts`.
    ///
    /// # Errors
    ///
    /// The prefix is empty, longer than 32 bytes, or has other characters than ASCII letters,
    /// digits, `_`, `.`, `:` and `-`.
    pub fn with_prefix(mut self, prefix: &str) -> Result<Self, InvalidSetting> {
        if !is_prefix(prefix) {
            return Err(InvalidSetting::because(format!(
                "prefix is {prefix:?}, must be 1 to 32 of the characters A-Z a-z 0-9 _ . : -"
            )));
        }
        self.prefix = prefix.into();
        Ok(self)
    }

    /// The connection, if there is one.
    fn open(&self) -> Result<MultiplexedConnection, StoreError> {
        let state = self.shared.connection.lock();
        let none = || StoreError::new(StoreErrorKind::Unreachable, "there is no connection");
        state.open.clone().ok_or_else(none)
    }

    /// The connection for a beat: a new one, if the last beat on it had no answer.
    async fn open_for_beat(&self) -> Result<MultiplexedConnection, StoreError> {
        {
            let mut state = self.shared.connection.lock();
            if state.is_doubted {
                state.open = None;
            }
            if let Some(open) = state.open.clone() {
                state.is_doubted = true;
                return Ok(open);
            }
        }
        // The engine gives up what takes too long.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let client = &self.client;
        let opened = client.get_multiplexed_async_connection_with_config(&config);
        let opened = opened.await.map_err(|error| told(&error))?;
        let mut state = self.shared.connection.lock();
        state.open = Some(opened.clone());
        state.is_doubted = true;
        Ok(opened)
    }

    /// The error for the engine. A broken connection is forgotten.
    fn failed(&self, error: &RedisError) -> StoreError {
        if error.code().is_none() || error.is_io_error() {
            self.shared.connection.lock().open = None;
        }
        told(error)
    }

    async fn draw_all(&self, draws: &[Draw]) -> Result<Vec<Result<Drawn, StoreError>>, StoreError> {
        let mut connection = self.open()?;
        let all: Vec<_> = (0..draws.len()).collect();
        let mut answers = self.ask(&mut connection, draws, &all).await?;
        let unknown: Vec<_> = all
            .into_iter()
            .filter(|&index| answers[index].as_ref().is_err_and(is_unknown_script))
            .collect();
        if !unknown.is_empty() {
            let script = self.shared.draw.prepare_invoke();
            let loaded = script.load_async(&mut connection).await;
            loaded.map_err(|error| self.failed(&error))?;
            let again = self.ask(&mut connection, draws, &unknown).await?;
            for (index, answer) in unknown.into_iter().zip(again) {
                answers[index] = answer;
            }
        }
        Ok(answers
            .into_iter()
            .map(|answer| read_drawn(&answer))
            .collect())
    }

    /// Asks for the draws at `indices`, in one trip.
    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        draws: &[Draw],
        indices: &[usize],
    ) -> Result<Vec<RedisResult<Value>>, StoreError> {
        let mut pipe = Pipeline::with_capacity(indices.len());
        pipe.ignore_errors();
        let hash = self.shared.draw.get_hash();
        for &index in indices {
            let draw = &draws[index];
            pipe.cmd("EVALSHA")
                .arg(hash)
                .arg(1)
                .arg(draw.key().to_string());
            for argument in draw.arguments() {
                pipe.arg(argument);
            }
        }
        let answers: RedisResult<Vec<RedisResult<Value>>> = pipe.query_async(connection).await;
        let answers = answers.map_err(|error| self.failed(&error))?;
        if answers.len() != indices.len() {
            let detail = "it did not answer each draw";
            return Err(StoreError::new(StoreErrorKind::Refused, detail));
        }
        Ok(answers)
    }

    async fn say_alive(&self, node: NodeId, leaves: bool) -> Result<Beat, StoreError> {
        let mut connection = self.open_for_beat().await?;
        let prefix = &self.prefix;
        let mut beat = self.shared.beat.key(format!("{prefix}:1:{{nodes}}"));
        beat.key(format!("{prefix}:1:{{nodes}}e"));
        beat.arg(node.to_string()).arg(u8::from(leaves));
        let answer: RedisResult<Value> = beat.invoke_async(&mut connection).await;
        let answer = answer.map_err(|error| self.failed(&error))?;
        let mut state = self.shared.connection.lock();
        state.is_doubted = false;
        drop(state);
        let numbers = integers(&answer);
        let [nodes, rank, epoch] = *numbers.as_deref().unwrap_or_default() else {
            return Err(unreadable());
        };
        match (
            u32::try_from(nodes),
            u32::try_from(rank),
            u64::try_from(epoch),
        ) {
            (Ok(nodes), Ok(rank), Ok(epoch)) => Ok(Beat::new(nodes, rank, Epoch(epoch))),
            _ => Err(unreadable()),
        }
    }
}

impl QuotaStore for RedisStore {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(self.draw_all(draws))
    }

    fn beat(&self, node: NodeId, leaves: bool) -> StoreFuture<'_, Beat> {
        Box::pin(self.say_alive(node, leaves))
    }

    fn prefix(&self) -> &str {
        &self.prefix
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

fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

fn read_drawn(answer: &RedisResult<Value>) -> Result<Drawn, StoreError> {
    let answer = answer.as_ref().map_err(told)?;
    let drawn = integers(answer).and_then(|numbers| Drawn::read(&numbers));
    drawn.ok_or_else(unreadable)
}

/// The list of integers that a script returns.
fn integers(value: &Value) -> Option<Vec<i64>> {
    let Value::Array(items) = value else {
        return None;
    };
    let integer = |item: &Value| match item {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    items.iter().map(integer).collect()
}

fn unreadable() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "its answer has another shape")
}

/// An error as it may be shown: by its code alone.
fn told(error: &RedisError) -> StoreError {
    use StoreErrorKind as Kind;
    if error.is_timeout() {
        return StoreError::new(Kind::Late, "the connection timed out");
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return StoreError::new(Kind::Refused, "NOAUTH");
    }
    let Some(code) = error.code() else {
        return StoreError::new(Kind::Unreachable, "the connection is gone");
    };
    let kind = match code {
        "READONLY" | "LOADING" | "MASTERDOWN" | "MISCONF" => Kind::ReadOnly,
        "OOM" => Kind::Full,
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "CROSSSLOT" => Kind::Moved,
        _ => Kind::Refused,
    };
    StoreError::new(kind, code)
}
