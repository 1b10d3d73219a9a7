//! The dashboard of Alibaba Sentinel, which shows a running engine and changes its rules.
//!
//! The dashboard is a program of its own, in Java. A [`Dashboard`] tells it every ten seconds where
//! this program is, by a *beat*, and answers its commands: what was counted in each second, the
//! resources as a list and as a tree, and the rules of each type. It speaks the protocol of
//! Sentinel 1.8.9.
//!
//! Calls pay nothing for it: commands read what the engine counts anyway. Resources whose names
//! callers [can make up](crate::read::NodeSnapshot::is_listed) are not told, and origins, parameters and
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

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("app", &self.app)
            .field("dashboard", &self.dashboard)
            .field("bind", &self.bind)
            .finish_non_exhaustive()
    }
}
