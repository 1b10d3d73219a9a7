//! The dashboard of Alibaba Sentinel, which shows a running engine and changes its rules.
//!
//! The dashboard is a separate program, in Java. Every ten seconds a [`Dashboard`] sends it the
//! address of this program, a *beat*. It also answers the dashboard's commands, which ask for the
//! counts of each second, for the resources as a list and as a tree, and for the rules of each
//! type. It speaks the protocol of Sentinel 1.8.9.
//!
//! It adds no work to calls: commands read what the engine counts anyway. Resources whose names
//! callers [can make up](crate::read::NodeSnapshot::is_listed) are not reported. Origins,
//! parameters and keys are reported only if rules name them.
//!
//! # Rules
//!
//! The dashboard has five types of rules, and always replaces all rules of a type. It knows only
//! the settings that its forms have. So it shows and replaces only the rules that Sentinel for Java
//! can express. All other rules stay in force and are not shown: rules [by
//! origin](crate::FlowRule::by_origin) or for another interval than a second,
//! [strict](crate::FlowRule::strict) and adaptive rules, rules in [shadow
//! mode](crate::Rule::shadow), and rules for `*`. A rule that is changed keeps the settings that a
//! form has no field for: its id, its buckets, the maximum number of waiting calls, the number of
//! probes of a breaker, and whether a breaker opens at its limit or only above it.
//!
//! | type | rules |
//! |---|---|
//! | flow | [`FlowRule`](crate::FlowRule), [`IsolationRule`](crate::IsolationRule) as a limit of threads |
//! | degrade | [`CircuitBreakerRule`](crate::CircuitBreakerRule) over an interval |
//! | system | [`SystemRule`](crate::SystemRule), each limit by itself |
//! | authority | the first [`AuthorityRule`](crate::AuthorityRule) of a resource |
//! | hot parameters | [`KeyedRule`](crate::KeyedRule) for the parameter [at a place](crate::KeyedRule::param_at) |
//!
//! With a [sink](Dashboard::push), rules that the dashboard sends are checked, stored in the sink
//! for the next start of the program, and come into force. If any rule is invalid, nothing changes,
//! and the dashboard shows why. Nothing changes either if the sink fails, or [has other
//! rules](crate::source::SourceErrorKind::Changed) than those in force.
//!
//! A form of the dashboard adds, changes or removes one rule, and sends all other rules of the type
//! from the dashboard's memory: the rules that it has read last, or none after its restart. If what
//! is sent lacks two rules that are in force, or lacks one and changes another, the dashboard has
//! not read the rules in force. Then the request is refused, and the answer says what to do: open
//! the list of the rules of this type, which reads them, and send again. A script that replaces all
//! rules of a type says so by a third parameter, `replace=all`. With the feature `tracing`, each
//! change is logged in one line, with the rules that were added, changed and removed. Each refusal
//! is logged as well: for three of the types the dashboard does not show why rules were refused.
//!
//! A rule that is in "cluster" mode in the form becomes a [shared](crate::FlowRule::shared) rule if
//! the engine has a [store](crate::Builder::store), as with
//! [`Document::with_store`](crate::document::Document::with_store). The shared rule has no id,
//! because the dashboard numbers rules anew whenever it reads them; so the processes find their
//! common count by the resource. A rule that already has an id keeps it. Without a store, a rule in
//! "cluster" mode is refused.
//!
//! Problems of a rule are reported in the terms of the form: the resource, the field and its range,
//! the newest rule first. The dashboard shows no warnings, so a rule that would do something else
//! than the form says, such as a rule of 0.5 calls a second without a queue, is refused as well.
//!
//! # Access
//!
//! The protocol has no authentication. So commands are accepted only from the addresses of the
//! dashboard and from networks that are [allowed](Dashboard::allow), and the server listens on a
//! loopback address unless it is [bound](Dashboard::bind) to another address. Requests that a
//! browser can have sent are refused, by `Origin`, `Referer`, `Sec-Fetch-*`, and by a `Host` that
//! is not an address: otherwise a web page could call a server on the same machine. Rules are
//! changed by `POST` only. The head of a request has at most 16 KiB and its body 1 MiB, a request
//! can take 10 s, and there are at most 16 connections. Anyone who can send from an allowed address
//! can change rules, so keep other machines off the network between the dashboard and the program.

mod access;
mod beat;
mod calendar;
mod commands;
mod form;
mod lines;
mod list;
mod problems;
mod rules;
mod running;
mod server;
mod start;
mod tree;
mod wire;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::sentinel::Sentinel;
use crate::source::RuleSink;
use running::BeatState;
pub use running::DashboardHandle;

/// The version of Sentinel that the beat reports. The dashboard uses fewer commands and parameters
/// for older versions, and treats a version below 1 as missing.
const VERSION: &str = "1.8.9";
/// The default port of Sentinel's command server.
const PORT: u16 = 8719;
/// The number of ports that are tried, starting with the configured one.
const PORTS: u16 = 16;
/// The maximum length of a program's name, in characters.
const MOST_NAME: usize = 256;
/// How long the start waits for the dashboard's addresses, which are looked up before the first
/// beat so that its commands are accepted at once.
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
/// // With `.connect("10.0.0.5:8080")` the dashboard would show the program in a few seconds. Here,
/// // requests from this machine stand in for the dashboard's.
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

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("app", &self.app)
            .field("dashboard", &self.dashboard)
            .field("bind", &self.bind)
            .finish_non_exhaustive()
    }
}
