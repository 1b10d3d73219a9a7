//! The constructors of a store on Redis, and its requests.

use std::io;
use std::sync::Arc;

use redis::{Cmd, RedisError, cmd};
use tokio::time::Instant;

use super::super::key::is_prefix;
use super::super::{Alive, Beat, Draw, Drawn, NodeId, StoreError, StoreErrorKind};
use super::answer::{integers, is_unknown_script, loggable, read_beat, read_drawn, unreadable};
use super::link::{CONNECTS, Link};
#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
use super::servers;
use super::servers::{Servers, read_url};
#[cfg(feature = "redis-tls")]
use super::tls;
#[cfg(feature = "redis-tls")]
use super::unopened::Unopened;
use super::{BEAT, COMMAND_BYTES, DRAW, RedisStore};
use crate::base::invalid::InvalidSetting;

impl RedisStore {
    /// Creates a store on the server at `url`: `redis://[[user]:password@]host[:port][/db]`,
    /// `rediss://…` with TLS (feature `redis-tls`), or `redis+unix:///path/to/socket`. Does not
    /// connect yet.
    ///
    /// # Errors
    ///
    /// `url` is not the address of a Redis server. The error does not show it.
    pub fn new(url: &str) -> Result<Self, InvalidSetting> {
        Ok(Self::on(Servers::One(read_url("url", url)?)))
    }

    /// Creates a store on the master of a group that Redis Sentinels watch. `url` is as in
    /// [`new`](Self::new), with the name of the master instead of the host, such as
    /// `redis://:password@mymaster`. `sentinels` are the URLs of the Sentinels, at least one.
    ///
    /// For each new connection, the Sentinels are asked in sequence for the present master. After a
    /// failover, permits that the old master granted in its last 250 ms and did not replicate can
    /// be granted again. If the new master lacks older data as well, the processes notice it and
    /// report their permits.
    ///
    /// # Errors
    ///
    /// A URL is not the address of a server or is the address of a socket, or there is no Sentinel.
    /// The error does not show the URLs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::store::RedisStore;
    ///
    /// let sentinels = ["redis://s1:26379", "redis://s2:26379", "redis://s3:26379"];
    /// assert!(RedisStore::sentinel("redis://:hush@mymaster", sentinels).is_ok());
    /// let none: [&str; 0] = [];
    /// assert!(RedisStore::sentinel("redis://mymaster", none).is_err());
    /// ```
    #[cfg(feature = "redis-sentinel")]
    pub fn sentinel<U: AsRef<str>>(
        url: &str,
        sentinels: impl IntoIterator<Item = U>,
    ) -> Result<Self, InvalidSetting> {
        let master = read_url("url", url)?;
        if matches!(master.addr(), redis::ConnectionAddr::Unix(_)) {
            let problem = "url is that of a socket, must have the name of a master as its host";
            return Err(InvalidSetting::because(problem));
        }
        let sentinels = servers::read_urls("sentinels", sentinels)?;
        Ok(Self::on(Servers::Sentinel { sentinels, master }))
    }

    /// Creates a store on a Cluster. `urls` are the URLs of some of its servers, at least one. All
    /// servers have the same user and password.
    ///
    /// Each counter is on one of the masters. While this master is unavailable, only its counters
    /// are served without the store. The list of live processes is on one of the masters as well.
    /// While that master is unavailable, all counters are served without the store.
    ///
    /// While any master is unavailable, a task tries to reach it every 100 ms. The task runs on the
    /// runtime of the task that asks the store, and ends with the store at the latest.
    ///
    /// # Errors
    ///
    /// A URL is not the address of a server or is the address of a socket, the URLs differ in user
    /// or password, or there is no URL. The error does not show the URLs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::store::RedisStore;
    ///
    /// assert!(RedisStore::cluster(["redis://a:7000", "redis://b:7000"]).is_ok());
    /// assert!(RedisStore::cluster(["redis://:one@a", "redis://:two@b"]).is_err());
    /// ```
    #[cfg(feature = "redis-cluster")]
    pub fn cluster<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Self, InvalidSetting> {
        let nodes = servers::read_urls("urls", urls)?;
        Ok(Self::on(Servers::cluster(nodes)?))
    }

    /// Trusts only certificates of the authorities in `pem`. Default: the authorities that the
    /// machine trusts.
    ///
    /// # Errors
    ///
    /// There is no certificate in `pem`, or a URL does not begin with `rediss://`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::store::RedisStore;
    ///
    /// let store = RedisStore::new("rediss://cache:6380")?;
    /// assert!(store.with_root_certificate("no certificate").is_err());
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    #[cfg(feature = "redis-tls")]
    pub fn with_root_certificate(
        mut self,
        pem: impl Into<Vec<u8>>,
    ) -> Result<Self, InvalidSetting> {
        self.certificates.root_cert = Some(tls::read_roots(pem.into())?);
        self.with_certificates()
    }

    /// Presents `certificate` to servers that ask for a client certificate (mutual TLS). It is in
    /// PEM, followed by the certificates of intermediate authorities, if there are any. `key` is
    /// its private key, in PEM and without a passphrase. Sentinels and all servers of a Cluster get
    /// the same certificate. Default: no certificate.
    ///
    /// A server that rejects the certificate, or requires a certificate and gets none, ends the
    /// connection. The store is then down, and its [last
    /// error](crate::store::StoreStatus::last_error) names the reason.
    ///
    /// # Errors
    ///
    /// There is no certificate in `certificate` or no key in `key`, the two do not belong to each
    /// other, or a URL does not begin with `rediss://`. The error shows neither.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::store::RedisStore;
    ///
    /// let store = RedisStore::new("rediss://cache:6380")?;
    /// let refused = store.with_client_certificate("no certificate", "no key");
    /// assert_eq!(
    ///     refused.unwrap_err().to_string(),
    ///     "client certificate is none, must be one or several in PEM",
    /// );
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    #[cfg(feature = "redis-tls")]
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Result<Self, InvalidSetting> {
        let client = tls::read_client(certificate.into(), key.into())?;
        self.certificates.client_tls = Some(client);
        self.with_certificates()
    }

    /// Applies the certificates to the settings of the servers.
    #[cfg(feature = "redis-tls")]
    fn with_certificates(mut self) -> Result<Self, InvalidSetting> {
        self.servers = self.servers.with_certificates(&self.certificates)?;
        // Clones may already have a connection, to a server that this store would not trust.
        self.shared = Arc::default();
        Ok(self)
    }

    /// Creates a store on `servers`, without a prefix.
    fn on(servers: Servers) -> Self {
        Self {
            servers,
            #[cfg(feature = "redis-tls")]
            certificates: redis::TlsCertificates {
                client_tls: None,
                root_cert: None,
            },
            prefix: "".into(),
            shared: Arc::default(),
        }
    }

    /// Sets the prefix of all keys: the name of the service. Services that use one server with the
    /// same prefix would count their rules together. So the prefix must be set: without a prefix,
    /// [`start_store`](crate::Sentinel::start_store) fails.
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

    /// Returns the connection for a beat of `node` and its number. Connects if necessary.
    async fn open_for_beat(&self, node: NodeId) -> Result<(Link, u64), StoreError> {
        let (servers, evicting) = (self.servers.clone(), self.shared.evicting.clone());
        let connect = || async {
            let connected = tokio::time::timeout(CONNECTS, servers.connect(evicting)).await;
            connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        };
        let opened = self.shared.connection.get_or_open(node, connect).await;
        opened.map_err(|error| self.not_opened(&error))
    }

    /// Converts the error of a connection that could not be opened.
    fn not_opened(&self, error: &RedisError) -> StoreError {
        #[cfg(feature = "redis-tls")]
        if self.servers.has_tls() && Unopened::of(error).is_none() {
            let shows_certificate = self.certificates.client_tls.is_some();
            if let Some(reason) = tls::reason(error, shows_certificate) {
                return reason;
            }
        }
        loggable(error)
    }

    /// Converts the error of a request on the connection of this number. Closes the connection if
    /// it is broken, or if its server accepts no writes: a new connection may lead to another
    /// server.
    fn failed(&self, error: &RedisError, number: u64) -> StoreError {
        let error = loggable(error);
        let (gone, elsewhere) = (StoreErrorKind::Unreachable, StoreErrorKind::ReadOnly);
        if [gone, elsewhere, StoreErrorKind::Late].contains(&error.kind()) {
            self.shared.connection.close(number);
        }
        error
    }

    /// Sends draws in one trip. Draws for which a server lacked the script are sent once more.
    pub(super) async fn draw_all(
        &self,
        draws: &[Draw],
    ) -> Result<Vec<Result<Drawn, StoreError>>, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Unreachable, "there is no connection");
        let (mut link, number) = self.shared.connection.get().ok_or_else(none)?;
        let failed = |error: RedisError| self.failed(&error, number);
        let commands = draws.iter().map(|draw| self.command(draw)).collect();
        // Masters of a Cluster have three quarters of the wait to answer. So even if one master
        // hangs, the answers of the other masters are in time for their calls.
        let until = draws.first().map(|draw| Instant::now() + draw.wait * 3 / 4);
        let mut answers = link.ask(commands, until).await.map_err(failed)?;
        if answers.len() != draws.len() {
            return Err(unreadable());
        }
        let unknown: Vec<_> = (0..draws.len())
            .filter(|&index| answers[index].as_ref().is_err_and(is_unknown_script))
            .collect();
        if !unknown.is_empty() {
            link.load(&[DRAW], until).await.map_err(failed)?;
            let again = unknown.iter().map(|&index| self.command(&draws[index]));
            let again = link.ask(again.collect(), until).await.map_err(failed)?;
            for (index, answer) in unknown.into_iter().zip(again) {
                answers[index] = answer;
            }
        }
        Ok(answers.iter().map(read_drawn).collect())
    }

    /// Creates the command of a draw. Arguments after the fourth are left out if they have no
    /// effect.
    fn command(&self, draw: &Draw) -> Cmd {
        let arguments = draw.arguments();
        let sent = if draw.is_plain() { 4 } else { arguments.len() };
        let mut command = Cmd::with_capacity(5 + sent, COMMAND_BYTES);
        command
            .arg("EVALSHA")
            .arg(self.shared.draw.get_hash())
            .arg(1);
        let kept_ms = draw.lifetime().as_micros().div_ceil(1_000);
        let kept_ms = u64::try_from(kept_ms).unwrap_or(u64::MAX);
        command.arg(draw.key()).arg(kept_ms);
        for &argument in &arguments[..sent] {
            command.arg(argument);
        }
        command
    }

    /// Sends a beat, on a new connection if necessary.
    pub(super) async fn say_alive(&self, alive: Alive) -> Result<Beat, StoreError> {
        let node = alive.node;
        let open = self.shared.connection.get().filter(|_| alive.is_leaving);
        let (mut link, number) = match open {
            // A process that leaves uses the open connection, even if its last beat was dropped
            // unanswered.
            Some(open) => open,
            None => self.open_for_beat(node).await?,
        };
        let prefix = &self.prefix;
        let mut beat = cmd("EVALSHA");
        beat.arg(self.shared.beat.get_hash()).arg(4);
        for key in ["", "e", "n", "r"] {
            beat.arg(format!("{prefix}:1:{{nodes}}{key}"));
        }
        beat.arg(format!("{node}:{}", alive.settings()));
        // A server reports a missing password only for commands with at most this many words, so no
        // more may be added.
        beat.arg(u8::from(alive.is_leaving) + u8::from(alive.tells_reset));
        beat.arg(alive.seen);
        let mut answer = link.ask_one(&beat).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            answer = match link.load(&[BEAT], None).await {
                Ok(()) => link.ask_one(&beat).await,
                Err(error) => Err(error),
            };
        }
        // Even an error shows that the connection works, if the server has sent it. A broken
        // connection is closed below.
        self.shared.connection.trust(node);
        let answer = answer.map_err(|error| self.failed(&error, number))?;
        let numbers = integers(&answer);
        numbers
            .and_then(|numbers| read_beat(&numbers))
            .ok_or_else(unreadable)
    }
}
