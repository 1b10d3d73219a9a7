//! The connection of a store, and how it is opened.
//!
//! Connecting takes several trips, so it can take longer than a beat waits. A beat that gives up
//! leaves the attempt as it is, and the next beat continues it. Only an attempt that exceeds
//! [`CONNECTS`] is started again.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, RedisResult, Value, cmd,
};
use tokio::time::Instant;

use super::SCRIPTS;
use super::evicting::Evicting;
#[cfg(feature = "redis-cluster")]
use super::masters::Masters;
use crate::base::sync::Lock;
use crate::store::NodeId;

/// The maximum duration of an attempt to connect. After a network that dropped all packets has
/// recovered, an engine notices it at most this much later.
pub(super) const CONNECTS: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Clone)]
pub(super) enum Link {
    /// One server.
    One(MultiplexedConnection),
    /// The masters of a Cluster.
    #[cfg(feature = "redis-cluster")]
    Cluster(Masters),
}

type Connecting = Pin<Box<dyn Future<Output = RedisResult<Link>> + Send>>;

/// The connection that a store and all its clones share.
#[derive(Default)]
pub(super) struct Connection {
    state: Lock<Opening>,
    /// The engines that wait for the attempt to connect.
    waiting: std::sync::Arc<WakeAll>,
}

/// The state of a connection that may be open, or being opened.
#[derive(Default)]
struct Opening {
    /// The open connection, if there is one.
    open: Option<Link>,
    /// The running attempt to connect.
    connecting: Option<Connecting>,
    /// The number of connections opened so far, which identifies the current one.
    number: u64,
    /// The engines that have sent a beat on this connection and have no answer yet.
    doubted_by: Vec<NodeId>,
}

/// The wakers of all engines that wait for a connection. Any progress of the attempt wakes them
/// all, as the engine that polled it last may no longer wait.
#[derive(Default)]
struct WakeAll(Lock<Vec<Waker>>);

impl Connection {
    /// Returns the connection and its number, if there is one.
    pub(super) fn get(&self) -> Option<(Link, u64)> {
        let state = self.state.lock();
        Some((state.open.clone()?, state.number))
    }

    /// Drops the connection with this number, unless another connection has replaced it.
    pub(super) fn close(&self, number: u64) {
        let mut state = self.state.lock();
        if state.number == number {
            state.open = None;
        }
    }

    /// Notes that the beat of `node` was answered.
    pub(super) fn trust(&self, node: NodeId) {
        self.state.lock().doubted_by.retain(|other| *other != node);
    }

    /// Returns the connection for a beat of `node`. Opens a new connection with `connect` if there
    /// is none, or if the last beat of `node` on the current one was not answered.
    pub(super) async fn get_or_open<F>(
        &self,
        node: NodeId,
        connect: impl FnOnce() -> F,
    ) -> RedisResult<(Link, u64)>
    where
        F: Future<Output = RedisResult<Link>> + Send + 'static,
    {
        {
            let mut state = self.state.lock();
            if state.doubted_by.contains(&node) {
                state.open = None;
            }
            if let Some(open) = state.open.clone() {
                state.doubted_by.push(node);
                return Ok((open, state.number));
            }
            state.connecting.get_or_insert_with(|| Box::pin(connect()));
        }
        poll_fn(|cx| self.poll_connecting(node, cx)).await
    }

    /// Polls the attempt to connect, for a beat of `node`.
    fn poll_connecting(
        &self,
        node: NodeId,
        cx: &mut Context<'_>,
    ) -> Poll<RedisResult<(Link, u64)>> {
        self.waiting.add(cx.waker());
        let mut state = self.state.lock();
        if state.open.is_none() {
            // Taken out of the state, so that an attempt that panics, for example because its
            // runtime has ended, is not polled again.
            let Some(mut connecting) = state.connecting.take() else {
                // The attempt has failed, and another engine on this store got the error. The next
                // beat begins a new attempt.
                let failed = (redis::ErrorKind::Io, "another engine could not connect");
                return Poll::Ready(Err(failed.into()));
            };
            let waker = Waker::from(self.waiting.clone());
            let opened = connecting.as_mut().poll(&mut Context::from_waker(&waker));
            let Poll::Ready(opened) = opened else {
                state.connecting = Some(connecting);
                return Poll::Pending;
            };
            self.waiting.wake_by_ref();
            state.open = Some(opened?);
            state.number += 1;
            state.doubted_by.clear();
        }
        state.doubted_by.push(node);
        let opened = state.open.clone().map(|open| (open, state.number));
        Poll::Ready(opened.ok_or_else(|| (redis::ErrorKind::Io, "there is none").into()))
    }
}

impl WakeAll {
    fn add(&self, waker: &Waker) {
        let mut all = self.0.lock();
        if !all.iter().any(|other| other.will_wake(waker)) {
            all.push(waker.clone());
        }
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(Waker::wake);
    }
}

impl Wake for WakeAll {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }
}

impl Link {
    /// Loads `scripts` into all servers. In a Cluster, masters that do not answer before `until`
    /// are left out.
    pub(super) async fn load(
        &mut self,
        scripts: &[&str],
        until: Option<Instant>,
    ) -> RedisResult<()> {
        #[cfg(not(feature = "redis-cluster"))]
        let _ = until;
        match self {
            Self::One(open) => load_scripts(open, scripts).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(masters) => {
                masters.load(scripts, until).await;
                Ok(())
            }
        }
    }

    /// Runs `command` on the server that has its key.
    pub(super) async fn ask_one(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(open) => command.query_async(open).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(masters) => {
                let mut answers = masters.ask(std::slice::from_ref(command), None).await;
                answers.remove(0)
            }
        }
    }

    /// Runs `commands`, each of which has a key, in one trip, and returns a result for each. In a
    /// Cluster, commands fail if their master does not answer before `until`.
    pub(super) async fn ask(
        &mut self,
        commands: Vec<Cmd>,
        until: Option<Instant>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        #[cfg(not(feature = "redis-cluster"))]
        let _ = until;
        match self {
            Self::One(open) => run(open, commands).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(masters) => Ok(masters.ask(&commands, until).await),
        }
    }
}

/// Connects to one server, without a time limit: the caller limits the time.
pub(super) async fn connect(info: ConnectionInfo) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = Client::open(info)?;
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    opened.await
}

/// Loads `scripts` into a server.
pub(super) async fn load_scripts(
    open: &mut MultiplexedConnection,
    scripts: &[&str],
) -> RedisResult<()> {
    let answers = run(open, scripts.iter().map(load)).await?;
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

/// Loads all scripts into a new connection's server, and asks for its memory policy. Errors are
/// ignored: a script that was refused fails at its first use.
pub(super) async fn greet(open: &mut MultiplexedConnection, evicting: &Evicting) {
    let mut memory = cmd("INFO");
    memory.arg("memory");
    let commands = SCRIPTS.iter().map(load).chain([memory]);
    let answers = run(open, commands).await.unwrap_or_default();
    if let Some(Ok(answer)) = answers.last() {
        evicting.note(answer);
    }
}

/// Creates the command that loads `script`.
fn load(script: &&str) -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(*script);
    command
}

/// Runs `commands` on a server, in one trip.
async fn run(
    open: &mut MultiplexedConnection,
    commands: impl IntoIterator<Item = Cmd>,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut pipe = Pipeline::new();
    pipe.ignore_errors();
    for command in commands {
        pipe.add_command(command);
    }
    pipe.query_async(open).await
}

/// Runs all futures concurrently. Returns their results in order.
#[cfg(feature = "redis-cluster")]
pub(super) async fn join_all<F: Future>(all: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = all.into_iter().map(Box::pin).enumerate().collect();
    let mut done: Vec<_> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        running.retain_mut(|(index, future)| match future.as_mut().poll(cx) {
            Poll::Ready(result) => {
                done[*index] = Some(result);
                false
            }
            Poll::Pending => true,
        });
        if running.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
