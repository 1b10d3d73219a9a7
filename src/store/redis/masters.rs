//! Connections to all masters of a Cluster. They are independent: while one master is unavailable
//! or hangs, counters on other masters are not delayed.
//!
//! A trip sends one pipeline to each master. A master that does not answer in time, or ends its
//! connection, is *away*: nothing is sent to it, and commands for its slots fail at once.
//! Meanwhile, a task asks the other masters for the slot map, and tries to connect to the masters
//! that are away, until all are connected.

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

/// The maximum wait for one server: a quarter of the time to connect, so that several servers can
/// be tried.
const EACH: Duration = Duration::from_millis(CONNECTS.as_millis() as u64 / 4);
/// The pause between two attempts to reach masters that are away.
const GAP: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Masters(Arc<ClusterState>);

/// The state that clones of [`Masters`] share.
struct ClusterState {
    /// The settings of one server of the Cluster. The settings of the other servers differ only in
    /// the address.
    like: ConnectionInfo,
    evicting: Arc<Evicting>,
    known: Lock<KnownMasters>,
}

/// The masters of the Cluster as far as they are known, and the task that reconnects them.
#[derive(Default)]
struct KnownMasters {
    slots: SlotMap,
    links: BTreeMap<MasterAddress, MasterLink>,
    /// The number of connections opened so far, from which connections are numbered.
    opened: u64,
    /// Whether a master was lost, or has redirected a command, since the current pass of the
    /// mending task began.
    must_mend: bool,
    /// The task that reconnects masters and refreshes the slot map, while it runs.
    mender: Option<JoinHandle<()>>,
}

/// The connection to one master.
enum MasterLink {
    /// An open connection and its number.
    Open(MultiplexedConnection, u64),
    /// No connection, and the reason.
    Away(io::ErrorKind),
}

/// A command of a trip, on its way to a master.
struct Errand {
    /// The position of the command in the trip.
    index: usize,
    /// Whether the slot is being migrated to this master, so that `ASKING` must precede the
    /// command.
    is_asking: bool,
}

/// The answers to the commands of a trip, by position; `None` until an answer has arrived.
type Answers = Vec<Option<RedisResult<Value>>>;
/// The commands of a trip, by the master to which they go.
type Errands = BTreeMap<MasterAddress, Vec<Errand>>;

impl Masters {
    /// Connects to all masters of a Cluster. `nodes` are some of its servers. One of them must
    /// answer with the slot map, and at least one master must be reachable. A task connects to the
    /// remaining masters later.
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

    /// Runs each of `commands` on the master that has its key. Only commands to a master that does
    /// not answer in time fail.
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
            // Redirections to unknown masters are not followed. Their commands fail as moved until
            // the task has found these masters.
            again.retain(|at, _| self.link(at).is_ok());
            self.run(commands, again, &mut answers, until).await;
        }
        let gone = || Err(gone(io::ErrorKind::NotConnected));
        answers
            .into_iter()
            .map(|it| it.unwrap_or_else(gone))
            .collect()
    }

    /// Loads `scripts` into all masters that can be reached.
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

    /// Runs each command on the master of its errand. Returns new errands for the commands that a
    /// master has redirected to another one.
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
                        // The answer to `ASKING` is skipped.
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

    /// Sends a trip to the master at `at`. If it fails, the master is away from then on.
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

    /// Returns the master that has the slot of the command's key.
    fn owner_of(&self, command: &Cmd) -> Option<MasterAddress> {
        let slot = key_of(command).map(slot_of)?;
        let known = self.0.known.lock();
        // If no master has the slot, any master is asked, and answers with the error.
        let owner = known.slots.owner(slot);
        owner.or_else(|| known.links.keys().next()).cloned()
    }

    /// Returns the open connection to a master and its number.
    fn link(&self, at: &MasterAddress) -> RedisResult<(MultiplexedConnection, u64)> {
        match self.0.known.lock().links.get(at) {
            Some(MasterLink::Open(link, number)) => Ok((link.clone(), *number)),
            Some(MasterLink::Away(why)) => Err(gone(*why)),
            None => Err(gone(io::ErrorKind::NotConnected)),
        }
    }

    /// Returns whether any master has an open connection.
    fn has_any(&self) -> bool {
        let known = self.0.known.lock();
        known.links.values().any(MasterLink::is_open)
    }

    /// Notes that the connection of this number has failed.
    fn lose(&self, at: &MasterAddress, number: u64, why: io::ErrorKind) {
        if let Some(link) = self.0.known.lock().links.get_mut(at) {
            if matches!(link, MasterLink::Open(_, there) if *there == number) {
                *link = MasterLink::Away(why);
            }
        }
        self.mend();
    }

    // --- mending ---

    /// Starts the task that connects to masters that are away and refreshes the slot map, unless
    /// the task already runs.
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

    /// Refreshes the slot map, and connects to masters that are away. Returns whether mending can
    /// end.
    async fn mend_once(&self) -> bool {
        self.0.known.lock().must_mend = false;
        let Some(slots) = self.find_slots().await else {
            // No master answers. If no master has a connection either, mending ends, as the next
            // beat opens all connections anew.
            return !self.has_any();
        };
        let error = self.reach(slots).await;
        error.is_none() && !self.0.known.lock().must_mend
    }

    /// Asks the connected masters in sequence for the slot map, until one answers.
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

    /// Stores the slot map, and connects to all masters in it that have no connection. Returns the
    /// last error.
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

/// The mending task: runs until all masters are connected, no master is connected, or the store is
/// dropped.
async fn mend_all(masters: Weak<ClusterState>) {
    loop {
        let Some(masters) = masters.upgrade().map(Masters) else {
            return;
        };
        if masters.mend_once().await {
            let mut known = masters.0.known.lock();
            // The task is removed under the same lock under which `must_mend` is read. So a trip
            // that sets `must_mend` starts a new task, or the flag is noticed here.
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

/// Creates the error for a master without a connection.
fn gone(why: io::ErrorKind) -> RedisError {
    io::Error::from(why).into()
}

/// Limits the time of a request.
async fn within<T>(time: Duration, asked: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let asked = timeout(time, asked).await;
    asked.unwrap_or_else(|_| Err(gone(io::ErrorKind::TimedOut)))
}

/// Connects to one server and loads the scripts.
async fn connect(info: ConnectionInfo, evicting: &Evicting) -> RedisResult<MultiplexedConnection> {
    let mut link = super::link::connect(info).await?;
    greet(&mut link, evicting).await;
    Ok(link)
}

/// Asks the server at `asked` for the slot map.
async fn ask_slots(
    link: &mut MultiplexedConnection,
    asked: &MasterAddress,
) -> RedisResult<SlotMap> {
    let mut command = cmd("CLUSTER");
    let answer: Value = command.arg("SLOTS").query_async(link).await?;
    let unreadable = || (redis::ErrorKind::Io, "it does not tell its slots").into();
    SlotMap::read(&answer, asked).ok_or_else(unreadable)
}

/// Returns the address in the settings of a server.
fn address_of(node: &ConnectionInfo) -> MasterAddress {
    let (host, port) = match node.addr() {
        ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
        ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
        _ => (String::new(), 0),
    };
    MasterAddress { host, port }
}

/// Returns the first key of a command that runs a script.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().nth(3) {
        Some(Arg::Simple(key)) => Some(key),
        _ => None,
    }
}

/// Reads a redirection in the answer of the master at `asked`: the master that it names instead,
/// and whether the slot is still being migrated there.
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
