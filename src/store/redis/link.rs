//! A connection, and how it comes to be there.
//!
//! Connecting takes several trips, so it lasts over several probes: each of them is given up
//! by its own deadline, and the next one finds it further. Only what takes too long altogether
//! begins anew.

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

/// The longest that connecting takes altogether. Also how late an engine may notice that a
/// network is back which had swallowed everything.
pub(super) const CONNECTS: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Clone)]
pub(super) enum Link {
    One(MultiplexedConnection),
    #[cfg(feature = "redis-cluster")]
    Cluster(Masters),
}

type Connecting = Pin<Box<dyn Future<Output = RedisResult<Link>> + Send>>;

/// The connection of a store and all its clones.
#[derive(Default)]
pub(super) struct Connection {
    state: Lock<Opening>,
    waiting: std::sync::Arc<WakeAll>,
}

#[derive(Default)]
struct Opening {
    open: Option<Link>,
    connecting: Option<Connecting>,
    /// How many connections there were before this one.
    number: u64,
    /// Whose beats have begun on this connection, and have not been answered.
    doubted_by: Vec<NodeId>,
}

/// The engines that wait for a connection, all of them: each is woken by whatever happens.
#[derive(Default)]
struct WakeAll(Lock<Vec<Waker>>);

impl Connection {
    /// The connection and its number, if there is one.
    pub(super) fn get(&self) -> Option<(Link, u64)> {
        let state = self.state.lock();
        Some((state.open.clone()?, state.number))
    }

    /// Forgets the connection of this number.
    pub(super) fn close(&self, number: u64) {
        let mut state = self.state.lock();
        if state.number == number {
            state.open = None;
        }
    }

    /// The beat of `node` was answered.
    pub(super) fn trust(&self, node: NodeId) {
        self.state.lock().doubted_by.retain(|other| *other != node);
    }

    /// The connection for a beat of `node`: a new one by `connect`, if its last beat on this one
    /// had no answer.
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

    fn poll_connecting(
        &self,
        node: NodeId,
        cx: &mut Context<'_>,
    ) -> Poll<RedisResult<(Link, u64)>> {
        self.waiting.add(cx.waker());
        let mut state = self.state.lock();
        if state.open.is_none() {
            // Taken out, so that one which panics, as without its runtime, is not asked again.
            let Some(mut connecting) = state.connecting.take() else {
                // Another engine on this store has seen why. The next probe begins anew.
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
    /// Makes `scripts` known to all servers; to those of a Cluster that have answered by then.
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

    /// Runs `command`, which has a key.
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

    /// Runs `commands`, each of which has a key, in one trip. Each has a result of its own. In a
    /// Cluster those fail whose master has not answered by then.
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

/// Connects to one server. The caller has a time limit of its own for the whole trip.
pub(super) async fn connect(info: ConnectionInfo) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = Client::open(info)?;
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    opened.await
}

/// Makes `scripts` known to a server.
pub(super) async fn load_scripts(
    open: &mut MultiplexedConnection,
    scripts: &[&str],
) -> RedisResult<()> {
    let answers = run(open, scripts.iter().map(load)).await?;
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

/// Makes all scripts known to a server that was connected to, and asks for its policy of memory.
/// Where it refuses a script, the first use of that says so.
pub(super) async fn greet(open: &mut MultiplexedConnection, evicting: &Evicting) {
    let mut memory = cmd("INFO");
    memory.arg("memory");
    let commands = SCRIPTS.iter().map(load).chain([memory]);
    let answers = run(open, commands).await.unwrap_or_default();
    if let Some(Ok(answer)) = answers.last() {
        evicting.note(answer);
    }
}

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

/// Runs all of them at once. Returns their results in order.
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
