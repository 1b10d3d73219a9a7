//! Configures and starts a [`Dashboard`].

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::access::KnownPeers;
use super::beat::HeartBeat;
use super::commands::Commands;
use super::running::BeatState;
use super::running::DashboardHandle;
use super::server::serve;
use super::{Dashboard, LOOK_UP, MOST_NAME, PORT, PORTS};
use crate::base::panics::catch_panic;
use crate::base::timer;
use crate::key::Nets;
use crate::sentinel::Sentinel;
use crate::source::RuleSink;

// === impl Dashboard ===

impl Dashboard {
    /// Creates a `Dashboard` for `sentinel`. `app` is the name of the program in the dashboard, of
    /// 1 to 256 characters. Instances of one program have the same name.
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

    /// Sets the address of the dashboard: a name or an IP address with a port, such as
    /// `10.0.0.5:8080`. Default: none, so no beats are sent, and commands are accepted only from
    /// networks that are [allowed](Self::allow).
    ///
    /// The name is looked up for each beat, and commands are accepted from all its addresses.
    pub fn connect(mut self, dashboard: impl Into<String>) -> Self {
        self.dashboard = Some(dashboard.into());
        self
    }

    /// Sets the address of the command server. Default: `127.0.0.1:8719`. If the port is taken, the
    /// next ones are tried, 16 in all; port 0 stands for any free port. A dashboard on another
    /// machine needs an address that it can reach, such as `0.0.0.0:8719`.
    pub fn bind(mut self, addr: impl Into<SocketAddr>) -> Self {
        self.bind = addr.into();
        self
    }

    /// Sets the address at which the dashboard reaches the program. Default: the local address of
    /// the connection to the dashboard. Set it behind address translation, as in a container. Use
    /// IPv4: the dashboard does not build a valid URL from an IPv6 address.
    pub fn advertise(mut self, ip: impl Into<IpAddr>) -> Self {
        self.advertise = Some(ip.into());
        self
    }

    /// Accepts commands from `nets` as well as from the dashboard. Needed if the dashboard sends
    /// from another address than its name resolves to. Further calls add networks.
    pub fn allow(mut self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        self.others.extend(nets);
        self
    }

    /// Accepts rules from the dashboard and stores them in `sink`, such as a
    /// [`RuleFile`](crate::source::RuleFile) that the program reads at its start. Default: the
    /// dashboard cannot change rules.
    pub fn push(mut self, sink: impl RuleSink) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Starts the beat and the server in the current tokio runtime, which needs I/O and a timer.
    /// The first beat is sent at once. A dashboard that does not answer is no error here: a beat
    /// is sent every ten seconds, and [`last_problem`](DashboardHandle::last_problem) returns why
    /// the dashboard does not know the program.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, if no port is free, if there is no tokio runtime, or if the
    /// runtime has no I/O or no timer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, nothing has started.
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
            // The beat looks the name up again, and reports a failure.
            let _ = timeout(LOOK_UP, beat.look_up()).await;
        }
        let beat = beat.map(|beat| runtime.spawn(beat.run()));
        let server = runtime.spawn(serve(listener, access, Arc::new(commands)));
        let tasks = beat.into_iter().chain([server]).collect();
        Ok(DashboardHandle { addr, state, tasks })
    }

    /// Checks that all settings are in range.
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

/// Binds a listener to `addr`, or to one of the next ports if the port is taken.
pub(super) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
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
    // tokio panics if the runtime has no I/O.
    let made = catch_panic(|| TcpListener::from_std(listener));
    made.unwrap_or_else(|| Err(io::Error::other("the tokio runtime has no I/O")))
}

/// Returns the name of the host, from the files in which Linux keeps it, or else `localhost`.
pub(super) fn hostname() -> String {
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
