//! The dashboard of Alibaba Sentinel, which shows a running engine and changes its rules.
//!
//! The dashboard is a program of its own, in Java. A [`Dashboard`] tells it every ten seconds where
//! this program is, by a *beat*, and answers its commands: what was counted in each second, the
//! resources as a list and as a tree, and the rules of each type. It speaks the protocol of
//! Sentinel 1.8.9.
//!
//! Calls pay nothing for it: commands read what the engine counts anyway. Resources whose names
//! callers [can make up](crate::NodeSnapshot::is_listed) are not told, and origins, parameters and
//! keys only where rules name them.
//!
//! # Rules
//!
//! The dashboard has five types of rules, and replaces all of a type at once. It knows only what
//! its forms have. So it sees the rules that Sentinel for Java can express, and replaces only
//! those; all others stay as they are, unseen: rules [by origin](crate::FlowRule::by_origin) or for
//! another interval than a second, [strict](crate::FlowRule::strict) and adaptive ones, rules in
//! [shadow mode](crate::Rule::shadow), and those for `*`. A rule that is changed keeps what a form
//! has no field for: its id, its buckets, how many calls may wait, how many probes a breaker has,
//! and whether it opens where its limit is reached or where it is exceeded.
//!
//! | type | rules |
//! |---|---|
//! | flow | [`FlowRule`](crate::FlowRule), [`IsolationRule`](crate::IsolationRule) as a limit of threads |
//! | degrade | [`CircuitBreakerRule`](crate::CircuitBreakerRule) over an interval |
//! | system | [`SystemRule`](crate::SystemRule), each limit by itself |
//! | authority | the first [`AuthorityRule`](crate::AuthorityRule) of a resource |
//! | hot parameters | [`KeyedRule`](crate::KeyedRule) for the parameter [at a place](crate::KeyedRule::param_at) |
//!
//! With a [sink](Dashboard::push), rules that the dashboard sends are checked, kept by the sink,
//! and come into force, so that the next start of the program finds them. If any of them is bad,
//! nothing changes, and the dashboard shows why. Nor does anything change if the sink fails, or
//! [keeps other rules](crate::source::SourceErrorKind::Changed) than those in force.
//!
//! A form of the dashboard adds, changes or removes one rule, and sends all others of the type as
//! the dashboard keeps them: those of the program that it has listed last, and none after its
//! restart. Rules that lack two of those in force, or that lack one and change another, come from a
//! form that has not seen them. They are refused, and the answer says what to do: open the list of
//! these rules, which reads them, and send again. A script that replaces all rules of a type says
//! so by a third parameter, `replace=all`. With the feature `tracing` each change is one line of
//! the log, with the rules that were added, changed and removed, and each refusal is one as well:
//! of three types the dashboard does not show why rules were refused.
//!
//! A rule of which the form says "cluster" is [shared](crate::FlowRule::shared), if the engine has
//! a
//! [store](crate::Builder::store), as [`Document::with_store`](crate::document::Document::with_store)
//! reads it, but without an id: the dashboard numbers rules anew whenever it reads them, so the
//! processes count together by the resource. A rule that has an id keeps it. Without a store such a
//! rule is refused.
//!
//! A person reads what is wrong with a rule in the words of the form: its resource, the field and
//! the range, the newest rule first. Nobody reads warnings there, so a rule that would do something
//! else than the form says, such as one of 0.5 calls a second without a queue, is refused as well.
//!
//! # Access
//!
//! The protocol has no authentication. So commands are taken from the addresses of the dashboard
//! alone, and of networks that are [allowed](Dashboard::allow); the server is at a loopback address
//! unless it is [bound](Dashboard::bind) to another. Requests that a browser may have sent are
//! refused, by `Origin`, `Referer`, `Sec-Fetch-*`, and by a `Host` that is no address: a web page
//! could call a server on the same machine otherwise. Rules are changed by `POST` only. Heads have
//! at most 16 KiB, bodies 1 MiB, a request may take 10 s, and there are at most 16 connections.
//! Whoever can send from an allowed address may change rules, so keep the network between the two
//! closed to others.

mod access;
mod beat;
mod calendar;
mod commands;
mod form;
mod lines;
mod list;
mod problems;
mod rules;
mod server;
mod tree;
mod wire;

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use access::KnownPeers;
use beat::HeartBeat;
use commands::Commands;
use server::serve;

use crate::base::panics::catch_panic;
use crate::base::sync::Lock;
use crate::base::timer;
use crate::key::Nets;
use crate::sentinel::Sentinel;
use crate::source::RuleSink;

/// The version of Sentinel whose protocol this is. The dashboard goes by it: it reads and sends
/// less to older ones, and takes one below 1 for none.
const VERSION: &str = "1.8.9";
/// Where Sentinel's command server is.
const PORT: u16 = 8719;
/// How many ports are tried, from that one on.
const PORTS: u16 = 16;
/// Most characters of the name of a program.
const MOST_NAME: usize = 256;
/// How long it may take to look up where the dashboard is, before there is a beat.
const LOOK_UP: Duration = Duration::from_secs(3);

/// Makes an engine known to Sentinel's dashboard, and answers its commands; see the
/// [module](self).
///
/// # Examples
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use tokio::net::TcpStream;
/// use tower_sentinel::observe::dashboard::Dashboard;
/// use tower_sentinel::{FlowRule, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
/// // With `.connect("10.0.0.5:8080")` the dashboard would show it in a few seconds. Without, this
/// // machine is asked to stand in for it.
/// let running = Dashboard::new(&sentinel, "shop")
///     .allow(["127.0.0.1/32".parse()?])
///     .bind(([127, 0, 0, 1], 0))
///     .spawn()
///     .await?;
///
/// let ask = async |command: &str, more: &str| {
///     let mut stream = TcpStream::connect(running.addr()).await?;
///     let head = format!("GET /{command} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n");
///     stream.write_all(head.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes()).await?;
///     let mut answer = String::new();
///     stream.read_to_string(&mut answer).await?;
///     Ok::<_, std::io::Error>(answer)
/// };
/// let rules = ask("getRules?type=flow", "").await?;
/// assert!(rules.starts_with("HTTP/1.1 200 OK") && rules.contains(r#""resource":"/search""#));
/// // A web page is not the dashboard.
/// let refused = ask("getRules?type=flow", "Origin: http://evil.example\r\n").await?;
/// assert!(refused.starts_with("HTTP/1.1 403 Forbidden"));
/// running.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[doc(alias("heartbeat", "command_center"))]
#[must_use = "it does nothing unless it is spawned"]
pub struct Dashboard {
    sentinel: Sentinel,
    app: String,
    dashboard: Option<String>,
    bind: SocketAddr,
    advertise: Option<IpAddr>,
    others: Vec<IpNet>,
    sink: Option<Box<dyn RuleSink>>,
}

/// The tasks of a [`Dashboard`]: its beat and its server. Dropping the handle stops both, and
/// closes all connections.
///
/// # Examples
///
/// ```
/// use tower_sentinel::observe::dashboard::{Dashboard, DashboardHandle};
/// use tower_sentinel::{Rules, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(Rules::new());
/// let dashboard = Dashboard::new(&sentinel, "shop").bind(([127, 0, 0, 1], 0));
/// let handle: DashboardHandle = dashboard.spawn().await?;
/// // Nobody was named who could accept one, or refuse it.
/// assert_eq!((handle.beats(), handle.last_problem()), (0, None));
/// let addr = handle.addr();
/// handle.stop().await;
/// assert!(std::net::TcpStream::connect(addr).is_err());
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "dropping it stops beat and server"]
pub struct DashboardHandle {
    addr: SocketAddr,
    state: Arc<BeatState>,
    tasks: Vec<JoinHandle<()>>,
}

/// The outcome of the beats.
#[derive(Debug, Default)]
struct BeatState(Lock<BeatsTold>);

#[derive(Debug, Default)]
struct BeatsTold {
    beats: u64,
    problem: Option<String>,
}

// === impl Dashboard ===

impl Dashboard {
    /// Creates one for `sentinel`, in a program that the dashboard calls `app`: between 1 and 256
    /// characters. Instances of one program have the same name.
    pub fn new(sentinel: &Sentinel, app: impl Into<String>) -> Self {
        Self {
            sentinel: sentinel.clone(),
            app: app.into(),
            dashboard: None,
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            advertise: None,
            others: Vec::new(),
            sink: None,
        }
    }

    /// Sets where the dashboard is: a name or an address with a port, such as `10.0.0.5:8080`.
    /// Default: nowhere, so there are no beats, and commands come from those that are
    /// [allowed](Self::allow).
    ///
    /// The name is looked up for each beat, and commands are taken from all addresses that it has.
    pub fn connect(mut self, dashboard: impl Into<String>) -> Self {
        self.dashboard = Some(dashboard.into());
        self
    }

    /// Sets where commands are taken. Default: `127.0.0.1:8719`. If the port is taken, the next
    /// ones are tried, 16 in all; port 0 is any that is free. A dashboard on another machine needs
    /// an address that it can reach, such as `0.0.0.0:8719`.
    pub fn bind(mut self, addr: impl Into<SocketAddr>) -> Self {
        self.bind = addr.into();
        self
    }

    /// Sets at which address the dashboard reaches the program. Default: the one from which the
    /// program reaches the dashboard. It is needed behind a translation of addresses, as in a
    /// container. Use IPv4: the dashboard makes no proper URL of an IPv6 address.
    pub fn advertise(mut self, ip: impl Into<IpAddr>) -> Self {
        self.advertise = Some(ip.into());
        self
    }

    /// Takes commands from `nets` as well as from the dashboard, such as where it calls from
    /// another address than it has. A second call adds to the first.
    pub fn allow(mut self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        self.others.extend(nets);
        self
    }

    /// Takes rules from the dashboard, and has `sink` keep them, such as a
    /// [`RuleFile`](crate::source::RuleFile) beside the file that the program reads at its start.
    /// Default: rules cannot be changed by the dashboard.
    pub fn push(mut self, sink: impl RuleSink) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Starts the beat and the server, in the present tokio runtime, which needs I/O and a timer.
    /// The first beat is sent at once. A dashboard that does not answer is no error here: it is
    /// asked again every ten seconds, and [`last_problem`](DashboardHandle::last_problem) tells why
    /// it does not know the program.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, if no port is free, or if there is no such runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has started.
    pub async fn spawn(self) -> io::Result<DashboardHandle> {
        self.check()?;
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        if timer::sleep(Duration::ZERO).is_err() {
            return Err(io::Error::other("the tokio runtime has no timer"));
        }
        let listener = listen(self.bind)?;
        let addr = listener.local_addr()?;
        let access = Arc::new(KnownPeers::new(Nets::new(self.others)));
        let state = Arc::new(BeatState::default());
        let commands = Commands::new(self.sentinel, self.app.clone(), self.sink);
        let beat = self.dashboard.map(|dashboard| HeartBeat {
            dashboard,
            app: self.app,
            server: addr,
            advertise: self.advertise,
            access: access.clone(),
            state: state.clone(),
        });
        if let Some(beat) = &beat {
            // If it is not found, the beat tells.
            let _ = timeout(LOOK_UP, beat.look_up()).await;
        }
        let beat = beat.map(|beat| runtime.spawn(beat.run()));
        let server = runtime.spawn(serve(listener, access, Arc::new(commands)));
        let tasks = beat.into_iter().chain([server]).collect();
        Ok(DashboardHandle { addr, state, tasks })
    }

    /// Returns whether all settings are in range.
    fn check(&self) -> io::Result<()> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let length = self.app.chars().count();
        if !(1..=MOST_NAME).contains(&length) || self.app.trim().is_empty() {
            return invalid(format!(
                "app has {length} characters, must have between 1 and {MOST_NAME}, and not only \
                 blanks"
            ));
        }
        let Some(dashboard) = &self.dashboard else {
            return Ok(());
        };
        let is_name = |c: char| c.is_ascii_graphic() && !"/@?#\\".contains(c);
        let parts = dashboard.rsplit_once(':');
        let is_good = parts.is_some_and(|(name, port)| {
            let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
            is_port && !name.is_empty() && name.chars().all(is_name)
        });
        if !is_good {
            return invalid(format!(
                "dashboard is {dashboard:?}, must be a name or an address with a port, such as \
                 \"10.0.0.5:8080\""
            ));
        }
        Ok(())
    }
}

/// A listener at `addr`, or at one of the next ports if that one is taken.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let mut tried = 1;
    let mut at = addr;
    let listener = loop {
        match StdListener::bind(at) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tried < PORTS => {
                let Some(next) = at.port().checked_add(1) else {
                    return Err(error);
                };
                at.set_port(next);
                tried += 1;
            }
            Err(error) => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("bind to {at}: {error}"),
                ));
            }
            Ok(listener) => break listener,
        }
    };
    listener.set_nonblocking(true)?;
    // tokio panics where a runtime has no I/O.
    let made = catch_panic(|| TcpListener::from_std(listener));
    made.unwrap_or_else(|| Err(io::Error::other("the tokio runtime has no I/O")))
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("app", &self.app)
            .field("dashboard", &self.dashboard)
            .field("bind", &self.bind)
            .finish_non_exhaustive()
    }
}

// === impl DashboardHandle ===

impl DashboardHandle {
    /// Returns where commands are taken: the address that was [bound](Dashboard::bind), with the
    /// port that was free.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns how many beats the dashboard has accepted.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.state.0.lock().beats
    }

    /// Returns what was wrong with the last beat: why the dashboard does not know the program, or
    /// why it cannot send commands. `None` if nothing was, or before the first one.
    #[must_use]
    pub fn last_problem(&self) -> Option<String> {
        self.state.0.lock().problem.clone()
    }

    /// Stops beat and server, closes all connections, and waits until that is done. A change of
    /// rules that is being carried out is finished, unanswered.
    pub async fn stop(mut self) {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            // It has been aborted, or has panicked.
            let _ = task.await;
        }
    }
}

impl Drop for DashboardHandle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl fmt::Debug for DashboardHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardHandle")
            .field("addr", &self.addr)
            .field("beats", &self.beats())
            .field("last_problem", &self.last_problem())
            .finish_non_exhaustive()
    }
}

// === impl BeatState ===

impl BeatState {
    /// Notes what has come of a beat, and what is wrong nevertheless if it was accepted.
    fn told(&self, beat: Result<Option<String>, String>) {
        let mut told = self.0.lock();
        told.beats += u64::from(beat.is_ok());
        told.problem = beat.unwrap_or_else(Some);
    }
}

/// The name of the host, as far as the system tells it in a file.
fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.or_else(|_| fs::read_to_string("/etc/hostname"));
    let name: String = name
        .unwrap_or_default()
        .trim()
        .chars()
        .take(MOST_NAME)
        .collect();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}
