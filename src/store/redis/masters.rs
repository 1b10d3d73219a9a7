//! Connections to all masters of a Cluster, each by itself: while one is away or hangs, what lies
//! on the others does not wait for it.
//!
//! All that a trip has for one master goes there as one pipeline. A master that does not answer in
//! time, or ends its connection, is away: it is asked for nothing, and all that lies on it fails at
//! once. Meanwhile a task asks the others which master has which slot, and connects to those that
//! are away, until none is.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    Arg, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, RedisResult, Value, cmd,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::evicting::Evicting;
use super::link::{CONNECTS, greet, join_all, load_scripts};
use super::servers::{more_telling, with_address};
use super::slots::{MasterAddress, SlotMap, slot_of};
use crate::base::sync::Lock;

/// The longest that one server is waited for while a connection to the Cluster is opened.
const EACH: Duration = Duration::from_millis(CONNECTS.as_millis() as u64 / 4);
/// Time between two attempts to reach masters that are away.
const GAP: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Masters(Arc<ClusterState>);

struct ClusterState {
    /// A server of the Cluster: all others differ only in their addresses.
    like: ConnectionInfo,
    evicting: Arc<Evicting>,
    known: Lock<KnownMasters>,
}

#[derive(Default)]
struct KnownMasters {
    slots: SlotMap,
    links: BTreeMap<MasterAddress, MasterLink>,
    /// How many connections there were.
    opened: u64,
    must_mend: bool,
    mender: Option<JoinHandle<()>>,
}

enum MasterLink {
    /// With the number of the connection.
    Open(MultiplexedConnection, u64),
    /// And why.
    Away(io::ErrorKind),
}

/// One of several commands, and where it goes.
struct Errand {
    index: usize,
    /// Whether the slot is on its way there.
    is_asking: bool,
}

type Answers = Vec<Option<RedisResult<Value>>>;
type Errands = BTreeMap<MasterAddress, Vec<Errand>>;

impl Masters {
    /// Connects to all masters of the Cluster of which `nodes` are some servers: at least one of
    /// each must be there.
    pub(super) async fn open(
        nodes: &[ConnectionInfo],
        evicting: Arc<Evicting>,
    ) -> RedisResult<Self> {
        let mut failed = None;
        for node in nodes {
            let asked = async {
                let mut link = connect(node.clone(), &evicting).await?;
                ask_slots(&mut link, &address_of(node)).await
            };
            let slots = match within(EACH, asked).await {
                Ok(slots) => slots,
                Err(error) => {
                    failed = Some(more_telling(failed, error));
                    continue;
                }
            };
            let masters = Self(Arc::new(ClusterState {
                like: node.clone(),
                evicting: evicting.clone(),
                known: Lock::new(KnownMasters::default()),
            }));
            match masters.reach(slots).await {
                Some(error) if !masters.has_any() => failed = Some(more_telling(failed, error)),
                Some(_) => {
                    masters.mend();
                    return Ok(masters);
                }
                None => return Ok(masters),
            }
        }
        Err(failed.unwrap_or_else(|| gone(io::ErrorKind::NotConnected)))
    }

    /// Runs each of `commands`, all of which have a key, on the master that has it. Commands to a
    /// master that has not answered in time fail alone.
    pub(super) async fn ask(
        &self,
        commands: &[Cmd],
        until: Option<Instant>,
    ) -> Vec<RedisResult<Value>> {
        let mut answers: Answers = commands.iter().map(|_| None).collect();
        let mut first = Errands::new();
        for (index, command) in commands.iter().enumerate() {
            let errand = Errand {
                index,
                is_asking: false,
            };
            match self.owner_of(command) {
                Some(owner) => first.entry(owner).or_default().push(errand),
                None => answers[index] = Some(Err(gone(io::ErrorKind::NotConnected))),
            }
        }
        let mut again = self.run(commands, first, &mut answers, until).await;
        if !again.is_empty() {
            self.mend();
            // Of others the answer is that they have moved, until the task has found them.
            again.retain(|at, _| self.link(at).is_ok());
            self.run(commands, again, &mut answers, until).await;
        }
        let gone = || Err(gone(io::ErrorKind::NotConnected));
        answers
            .into_iter()
            .map(|it| it.unwrap_or_else(gone))
            .collect()
    }

    /// Makes `scripts` known to all masters that are there.
    pub(super) async fn load(&self, scripts: &[&str], until: Option<Instant>) {
        let open: Vec<_> = {
            let known = self.0.known.lock();
            known.links.keys().cloned().collect()
        };
        let load = open.into_iter().map(|at| {
            self.trip(at, until, |mut link| async move {
                load_scripts(&mut link, scripts).await
            })
        });
        join_all(load).await;
    }

    /// Runs each command on the master of its errand. Returns the errands to the masters that they
    /// name instead.
    async fn run(
        &self,
        commands: &[Cmd],
        errands: Errands,
        answers: &mut Answers,
        until: Option<Instant>,
    ) -> Errands {
        let trips = errands.iter().map(|(at, errands)| {
            let mut pipe = Pipeline::new();
            pipe.ignore_errors();
            for errand in errands {
                if errand.is_asking {
                    pipe.cmd("ASKING");
                }
                pipe.add_command(commands[errand.index].clone());
            }
            self.trip(at.clone(), until, |mut link| async move {
                pipe.query_async(&mut link).await
            })
        });
        let done: Vec<RedisResult<Vec<RedisResult<Value>>>> = join_all(trips).await;
        let mut again = Errands::new();
        for ((at, errands), done) in errands.iter().zip(done) {
            let mut done = match done {
                Ok(done) => Ok(done.into_iter()),
                Err(error) => Err(error),
            };
            for errand in errands {
                let answer = match &mut done {
                    Ok(done) => {
                        // The answer to `ASKING` is of no interest.
                        let _ = errand.is_asking.then(|| done.next());
                        done.next()
                            .unwrap_or_else(|| Err(gone(io::ErrorKind::BrokenPipe)))
                    }
                    Err(error) => Err(error.clone()),
                };
                if let Some((elsewhere, is_asking)) = redirected(&answer, at) {
                    let errand = Errand {
                        index: errand.index,
                        is_asking,
                    };
                    again.entry(elsewhere).or_default().push(errand);
                }
                answers[errand.index] = Some(answer);
            }
        }
        again
    }

    /// Asks the master at `at`. If that fails, it is away from then on.
    async fn trip<T, F>(
        &self,
        at: MasterAddress,
        until: Option<Instant>,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let (link, number) = self.link(&at)?;
        let asked = match until {
            Some(until) => timeout_at(until, ask(link)).await,
            None => Ok(ask(link).await),
        };
        let (error, why) = match asked {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if error.is_timeout() => (error, io::ErrorKind::TimedOut),
            Ok(Err(error)) => (error, io::ErrorKind::BrokenPipe),
            Err(_) => (gone(io::ErrorKind::TimedOut), io::ErrorKind::TimedOut),
        };
        self.lose(&at, number, why);
        Err(error)
    }

    fn owner_of(&self, command: &Cmd) -> Option<MasterAddress> {
        let slot = key_of(command).map(slot_of)?;
        let known = self.0.known.lock();
        // Of a slot that nobody has, any master says so.
        let owner = known.slots.owner(slot);
        owner.or_else(|| known.links.keys().next()).cloned()
    }

    fn link(&self, at: &MasterAddress) -> RedisResult<(MultiplexedConnection, u64)> {
        match self.0.known.lock().links.get(at) {
            Some(MasterLink::Open(link, number)) => Ok((link.clone(), *number)),
            Some(MasterLink::Away(why)) => Err(gone(*why)),
            None => Err(gone(io::ErrorKind::NotConnected)),
        }
    }

    fn has_any(&self) -> bool {
        let known = self.0.known.lock();
        known.links.values().any(MasterLink::is_open)
    }

    /// The connection of this number failed.
    fn lose(&self, at: &MasterAddress, number: u64, why: io::ErrorKind) {
        if let Some(link) = self.0.known.lock().links.get_mut(at) {
            if matches!(link, MasterLink::Open(_, there) if *there == number) {
                *link = MasterLink::Away(why);
            }
        }
        self.mend();
    }

    // --- mending ---

    /// Starts a task that reaches the masters that are away and finds out where slots are now.
    fn mend(&self) {
        let mut known = self.0.known.lock();
        known.must_mend = true;
        if known
            .mender
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            known.mender = Some(runtime.spawn(mend_all(Arc::downgrade(&self.0))));
        }
    }

    /// Returns whether there is nothing to mend any more.
    async fn mend_once(&self) -> bool {
        self.0.known.lock().must_mend = false;
        let Some(slots) = self.find_slots().await else {
            // A beat opens all anew.
            return !self.has_any();
        };
        let error = self.reach(slots).await;
        error.is_none() && !self.0.known.lock().must_mend
    }

    /// Asks the masters that are there, one after the other, which has which slot.
    async fn find_slots(&self) -> Option<SlotMap> {
        let all: Vec<_> = self.0.known.lock().links.keys().cloned().collect();
        for at in all {
            let until = Some(Instant::now() + EACH);
            let asked = at.clone();
            let found = self.trip(at, until, |mut link| async move {
                ask_slots(&mut link, &asked).await
            });
            if let Ok(slots) = found.await {
                return Some(slots);
            }
        }
        None
    }

    /// Takes over the slots, and connects to all masters that have some. Returns the last error.
    async fn reach(&self, slots: SlotMap) -> Option<RedisError> {
        let away: Vec<_> = {
            let mut known = self.0.known.lock();
            let owners = slots.owners();
            known.slots = slots;
            known.links.retain(|at, _| owners.contains(at));
            let is_away =
                |at: &MasterAddress| !known.links.get(at).is_some_and(MasterLink::is_open);
            owners.into_iter().filter(is_away).collect()
        };
        let connect = away.into_iter().map(|at| async move {
            let info = self.0.like.clone();
            let address = with_address(info.addr(), at.host.clone(), at.port);
            let opened = within(EACH, connect(info.set_addr(address), &self.0.evicting)).await;
            let mut known = self.0.known.lock();
            known.opened += 1;
            let (link, error) = match opened {
                Ok(link) => (MasterLink::Open(link, known.opened), None),
                Err(error) if error.is_timeout() => {
                    (MasterLink::Away(io::ErrorKind::TimedOut), Some(error))
                }
                Err(error) => (MasterLink::Away(io::ErrorKind::BrokenPipe), Some(error)),
            };
            known.links.insert(at, link);
            error
        });
        join_all(connect).await.into_iter().flatten().next_back()
    }
}

/// Mends until all masters are there, or nobody needs them any more.
async fn mend_all(masters: Weak<ClusterState>) {
    loop {
        let Some(masters) = masters.upgrade().map(Masters) else {
            return;
        };
        if masters.mend_once().await {
            let mut known = masters.0.known.lock();
            // With that under the lock, a trip that finds more to mend starts a task or is seen
            // here.
            if !known.must_mend || !known.links.values().any(MasterLink::is_open) {
                known.mender = None;
                return;
            }
        }
        drop(masters);
        tokio::time::sleep(GAP).await;
    }
}

impl MasterLink {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open(..))
    }
}

impl Drop for ClusterState {
    fn drop(&mut self) {
        if let Some(mender) = self.known.lock().mender.take() {
            mender.abort();
        }
    }
}

fn gone(why: io::ErrorKind) -> RedisError {
    io::Error::from(why).into()
}

async fn within<T>(time: Duration, asked: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let asked = timeout(time, asked).await;
    asked.unwrap_or_else(|_| Err(gone(io::ErrorKind::TimedOut)))
}

/// Connects to one server, which knows the scripts then.
async fn connect(info: ConnectionInfo, evicting: &Evicting) -> RedisResult<MultiplexedConnection> {
    let mut link = super::link::connect(info).await?;
    greet(&mut link, evicting).await;
    Ok(link)
}

async fn ask_slots(
    link: &mut MultiplexedConnection,
    asked: &MasterAddress,
) -> RedisResult<SlotMap> {
    let mut command = cmd("CLUSTER");
    let answer: Value = command.arg("SLOTS").query_async(link).await?;
    let unreadable = || (redis::ErrorKind::Io, "it does not tell its slots").into();
    SlotMap::read(&answer, asked).ok_or_else(unreadable)
}

fn address_of(node: &ConnectionInfo) -> MasterAddress {
    let (host, port) = match node.addr() {
        ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
        ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
        _ => (String::new(), 0),
    };
    MasterAddress { host, port }
}

/// The first key of a command that runs a script.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().nth(3) {
        Some(Arg::Simple(key)) => Some(key),
        _ => None,
    }
}

/// The master that an answer of the one at `asked` names instead of itself, and whether the slot
/// is still on its way there.
fn redirected(answer: &RedisResult<Value>, asked: &MasterAddress) -> Option<(MasterAddress, bool)> {
    let error = answer.as_ref().err()?;
    let is_asking = match error.code()? {
        "MOVED" => false,
        "ASK" => true,
        _ => return None,
    };
    let at = error.detail()?.split(' ').next_back()?;
    Some((MasterAddress::read(at, asked)?, is_asking))
}
