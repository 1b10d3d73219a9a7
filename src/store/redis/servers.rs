//! The servers that hold the counters: one server, the master of a group that Sentinels watch, or
//! all masters of a Cluster.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis-tls")]
use redis::Client;
#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
use redis::RedisError;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};
use tokio::time::timeout;

#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
use super::answer::says_why;
use super::evicting::Evicting;
use super::link::{Link, connect, greet};
#[cfg(feature = "redis-cluster")]
use super::masters::Masters;
#[cfg(feature = "redis-sentinel")]
use super::sentinels::find_master;
#[cfg(feature = "redis-tls")]
use super::tls;
use super::unopened::Unopened;
use crate::base::invalid::InvalidSetting;

/// The maximum time in which a server must accept a new connection. It is shorter than
/// [`CONNECTS`](super::link::CONNECTS), to leave time to find out why the server does not answer.
const OPENS: Duration = Duration::from_millis(750);

/// See the [module](self).
#[derive(Clone)]
pub(super) enum Servers {
    One(ConnectionInfo),
    #[cfg(feature = "redis-sentinel")]
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        /// The settings of the master, with its name instead of the host.
        master: ConnectionInfo,
    },
    #[cfg(feature = "redis-cluster")]
    /// Some servers of the Cluster.
    Cluster(Vec<ConnectionInfo>),
}

/// Parses the URL of the setting `field`. The error does not show the URL, as it may contain a
/// password.
pub(super) fn read_url(field: &str, url: &str) -> Result<ConnectionInfo, InvalidSetting> {
    let wrong = |problem: String| Err(InvalidSetting::because(format!("{field} {problem}")));
    if let Some(parameter) = unknown_parameter(url) {
        return wrong(format!(
            "has the parameter {parameter:?}, must have none behind a host: the database is the \
             path, as in `redis://host:port/4`, TLS is `rediss://`, and user and password stand \
             before the host; `redis+unix:///path` may have `db`, `user` and `pass`"
        ));
    }
    let read = match url.into_connection_info() {
        Ok(read) => read,
        Err(error) => {
            let kind = error.kind();
            return wrong(format!(
                "is not that of a Redis server, must be `redis://host:port`, with TLS \
                 `rediss://host:port`, or `redis+unix:///path` ({kind:?})"
            ));
        }
    };
    match read.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            let problem = "has `#insecure`, must be left out: certificates are always checked";
            wrong(problem.to_owned())
        }
        ConnectionAddr::TcpTls { .. } if cfg!(not(feature = "redis-tls")) => {
            wrong("begins with `rediss://`, which needs the feature `redis-tls`".to_owned())
        }
        _ => Ok(read),
    }
}

/// Returns the name of the first unknown parameter of `url`, without its value, which may be a
/// secret.
fn unknown_parameter(url: &str) -> Option<&str> {
    let (before, query) = url.split_once('?')?;
    let is_socket = ["unix:", "redis+unix:", "valkey+unix:"]
        .iter()
        .any(|scheme| before.starts_with(scheme));
    let query = query.split('#').next().unwrap_or_default();
    let names = query.split('&').filter(|part| !part.is_empty());
    let mut names = names.map(|part| part.split('=').next().unwrap_or_default());
    names.find(|name| !(is_socket && ["db", "user", "pass"].contains(name)))
}

/// Parses all URLs of the setting `field`. Requires at least one URL, and refuses URLs of sockets.
#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
pub(super) fn read_urls<U: AsRef<str>>(
    field: &str,
    urls: impl IntoIterator<Item = U>,
) -> Result<Vec<ConnectionInfo>, InvalidSetting> {
    let mut all = Vec::new();
    for (index, url) in urls.into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        let read = read_url(&field, url.as_ref())?;
        if matches!(read.addr(), ConnectionAddr::Unix(_)) {
            let problem = format!("{field} is that of a socket, must be `redis://host:port`");
            return Err(InvalidSetting::because(problem));
        }
        all.push(read);
    }
    if all.is_empty() {
        let problem = format!("{field} is empty, must have at least one URL");
        return Err(InvalidSetting::because(problem));
    }
    Ok(all)
}

impl Servers {
    /// Creates a Cluster of which `nodes` are some servers. They must have the same scheme, user
    /// and password, and use database 0.
    #[cfg(feature = "redis-cluster")]
    pub(super) fn cluster(nodes: Vec<ConnectionInfo>) -> Result<Self, InvalidSetting> {
        for (index, node) in nodes.iter().enumerate() {
            let db = node.redis_settings().db();
            if db != 0 {
                let field = format!("urls[{index}]");
                let problem = format!("the database {db}");
                return Err(InvalidSetting::new(&field, problem, "0 in a Cluster"));
            }
            let of = |node: &ConnectionInfo| {
                let settings = node.redis_settings();
                let (user, password) = (settings.username(), settings.password());
                let is_secure = matches!(node.addr(), ConnectionAddr::TcpTls { .. });
                (
                    user.map(str::to_owned),
                    password.map(str::to_owned),
                    is_secure,
                )
            };
            if of(node) != of(&nodes[0]) {
                let problem = format!(
                    "urls[{index}] differs from urls[0], must have the same scheme, user and \
                     password"
                );
                return Err(InvalidSetting::because(problem));
            }
        }
        Ok(Self::Cluster(nodes))
    }

    /// Returns these servers with `certificates` for their TLS connections.
    #[cfg(feature = "redis-tls")]
    pub(super) fn with_certificates(
        self,
        certificates: &redis::TlsCertificates,
    ) -> Result<Self, InvalidSetting> {
        let secure = |info: ConnectionInfo| {
            if !is_secure(&info) {
                let problem = "url does not begin with `rediss://`, must where there is a \
                     certificate";
                return Err(InvalidSetting::because(problem));
            }
            let client = Client::build_with_tls(info, certificates.clone());
            let client = client.map_err(|error| tls::not_pem(error.kind()))?;
            Ok(client.get_connection_info().clone())
        };
        Ok(match self {
            Self::One(info) => Self::One(secure(info)?),
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel { sentinels, master } => {
                // Sentinels often have no TLS even if their servers do.
                let each = |info| match is_secure(&info) {
                    true => secure(info),
                    false => Ok(info),
                };
                let sentinels = sentinels.into_iter().map(each);
                Self::Sentinel {
                    sentinels: sentinels.collect::<Result<_, _>>()?,
                    master: secure(master)?,
                }
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(nodes) => {
                let nodes = nodes.into_iter().map(secure);
                Self::Cluster(nodes.collect::<Result<_, _>>()?)
            }
        })
    }

    /// Connects to the server that holds the counters now, and loads the scripts.
    pub(super) async fn connect(self, evicting: Arc<Evicting>) -> RedisResult<Link> {
        evicting.forget();
        #[cfg(feature = "redis-tls")]
        if self.has_tls() {
            tls::choose_cryptography();
        }
        let info = match self {
            Self::One(info) => info,
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel { sentinels, master } => find_master(sentinels, master).await?,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(nodes) => {
                return Ok(Link::Cluster(Masters::open(&nodes, evicting).await?));
            }
        };
        let opened = timeout(OPENS, connect(info.clone())).await;
        let opened =
            opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        let mut link = match opened {
            Ok(link) => link,
            Err(error) => return Err(Unopened::explain(info.addr(), error).await),
        };
        greet(&mut link, &evicting).await;
        Ok(Link::One(link))
    }

    /// Returns whether a password is sent to another machine without TLS.
    pub(super) fn show_password(&self) -> bool {
        let shows = |info: &ConnectionInfo| has_plain_password(info) && is_elsewhere(info);
        match self {
            Self::One(info) => shows(info),
            // Only the Sentinels know the address of the master. It is assumed to be on another
            // machine if a Sentinel is.
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel { sentinels, master } => {
                let is_far = has_plain_password(master) && sentinels.iter().any(is_elsewhere);
                is_far || sentinels.iter().any(shows)
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(nodes) => nodes.iter().any(shows),
        }
    }

    /// Returns whether any of the servers is reached by TLS.
    #[cfg(feature = "redis-tls")]
    pub(super) fn has_tls(&self) -> bool {
        match self {
            Self::One(info) => is_secure(info),
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel { sentinels, master } => {
                is_secure(master) || sentinels.iter().any(is_secure)
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(nodes) => nodes.iter().any(is_secure),
        }
    }
}

/// Returns whether the settings of a server have a password and no TLS.
fn has_plain_password(info: &ConnectionInfo) -> bool {
    let is_plain = matches!(info.addr(), ConnectionAddr::Tcp(..));
    is_plain && info.redis_settings().password().is_some()
}

/// Returns whether the server is on another machine, so that data to it crosses a network.
fn is_elsewhere(info: &ConnectionInfo) -> bool {
    let (ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) = info.addr() else {
        return false;
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    let is_here = address.is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
    !is_here && !host.eq_ignore_ascii_case("localhost")
}

#[cfg(feature = "redis-tls")]
fn is_secure(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Creates the address of a server that is reached in the same way as the server at `like`, with or
/// without TLS.
#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
pub(super) fn with_address(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like.clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Picks the more useful of two servers' errors: the error that [names a reason](says_why). If both
/// name a reason, or neither does, picks the later error.
#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
pub(super) fn more_telling(known: Option<RedisError>, error: RedisError) -> RedisError {
    known
        .filter(|known| says_why(known) && !says_why(&error))
        .unwrap_or(error)
}
