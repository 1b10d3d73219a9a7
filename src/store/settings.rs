//! The settings with which an engine uses its store.

use std::fmt;
use std::time::Duration;

/// The maximum of `store_wait` and `horizon`.
const MOST_WAIT: Duration = Duration::from_secs(10);
/// The minimum of `store_wait` and `horizon`.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The settings with which an engine uses its store, set by
/// [`Builder::store_settings`](crate::Builder::store_settings).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::store::{StoreSettings, WhenDown};
///
/// let settings = StoreSettings::new()
///     .nodes(3)
///     .store_wait(Duration::from_millis(20))
///     .when_down(WhenDown::LocalShare);
/// assert!(format!("{settings:?}").contains("nodes: 3"));
/// ```
#[derive(Clone)]
pub struct StoreSettings {
    nodes: Option<u32>,
    pub(crate) when_down: WhenDown,
    pub(crate) store_wait: Duration,
    pub(crate) horizon: Duration,
    pub(crate) secret: Option<Box<[u8]>>,
}

/// How a shared rule decides about a call if the store cannot be asked: before the store is
/// started, while it is down, and if it does not answer the call in time.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{MemoryStore, WhenDown};
/// use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
///
/// // Nobody has started the store.
/// let passed = |when_down| {
///     let rule = FlowRule::per_minute("/v1", 4).shared().when_down(when_down);
///     let sentinel = Sentinel::builder().rules(rule).store(MemoryStore::new()).build();
///     let passes = |_: &_| matches!(sentinel.try_enter(Call::new("/v1")), Verdict::Pass(_));
///     (0..9).filter(passes).count()
/// };
/// assert_eq!(passed(WhenDown::LocalShare), 4); // the share of one of one
/// assert_eq!((passed(WhenDown::Open), passed(WhenDown::Closed)), (9, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenDown {
    /// Each process admits its share of the limit: the limit divided by the
    /// [number of processes](StoreSettings::nodes), or the number that the rule sets.
    ///
    /// The shares are whole numbers and add up to the limit. If the limit is below the number of
    /// processes, some processes admit one call each, and the other processes none. A process
    /// learns its share from its first beat. Until then it admits at least one call, so that no
    /// limit blocks everything. For example, five processes that have never reached the store admit
    /// five calls a minute under a limit of three.
    #[default]
    LocalShare,
    /// The rule limits nothing.
    Open,
    /// The rule refuses every call.
    Closed,
}

impl WhenDown {
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const ALL: [Self; 3] = [Self::LocalShare, Self::Open, Self::Closed];
    /// The names of the settings in documents.
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const NAMES: [&'static str; 3] = [
        Self::ALL[0].as_str(),
        Self::ALL[1].as_str(),
        Self::ALL[2].as_str(),
    ];

    /// Returns the name of the setting in documents: `local-share`, `open` or `closed`.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::store::WhenDown::LocalShare.as_str(), "local-share");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LocalShare => "local-share",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for WhenDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl StoreSettings {
    /// Creates the settings with their defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nodes: None,
            when_down: WhenDown::LocalShare,
            store_wait: Duration::from_millis(200),
            horizon: Duration::from_millis(20),
            secret: None,
        }
    }

    /// Sets the number of processes that use the store, usually the number of replicas: between 1
    /// and 65 535. Default 1, with a [finding](crate::Sentinel::findings) that it was not set.
    ///
    /// The number takes effect while the store is away. Each process then admits its
    /// [share](WhenDown::LocalShare): the limit divided by this number, or by the number of
    /// processes at the last beat if that is larger. If the number is too small, processes that
    /// have never reached the store together admit more than the limit.
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Returns the configured number of processes; 1 if it was not set.
    pub(crate) fn nodes_or_one(&self) -> u32 {
        self.nodes.unwrap_or(1)
    }

    pub(crate) const fn has_nodes(&self) -> bool {
        self.nodes.is_some()
    }

    /// Sets what rules do while the store cannot be asked, unless a rule has its own setting.
    /// Default: [`WhenDown::LocalShare`].
    #[must_use]
    pub fn when_down(mut self, when_down: WhenDown) -> Self {
        self.when_down = when_down;
        self
    }

    /// Sets the maximum time that a call waits for the store: between 1 ms and 10 s. Default 200
    /// ms.
    ///
    /// A call without an answer by then is decided without the store. Permits that the late answer
    /// grants still count. A store that answers none of three beats in a row within this time is
    /// considered down. So set it above the slowest answers of a healthy store, including the time
    /// that a busy process needs to read them. Set it to no more than a call can spare: when the
    /// store fails, up to four consecutive calls wait this long. Trips should be shorter than a
    /// tenth of the buckets.
    #[must_use]
    pub fn store_wait(mut self, wait: Duration) -> Self {
        self.store_wait = wait;
        self
    }

    /// Sets the time for which permits are drawn ahead: between 1 ms and 10 s, and in effect at
    /// most a tenth of a bucket. Default 20 ms. A longer horizon means fewer requests to the store,
    /// but more permits that one process holds while other processes need them. If a request takes
    /// longer than the horizon, more calls wait.
    #[must_use]
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// Sets the secret with which names and keys are hashed before they are sent to the store. All
    /// processes must have the same secret. Default: a public constant. With the default, anyone
    /// who reads the store can test guesses of keys, and can search for keys that share a counter.
    #[must_use]
    pub fn digest_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().into());
        self
    }

    /// Describes the first setting that is out of its range: its name, its value, and the range.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_wait = |time: Duration| (LEAST_WAIT..=MOST_WAIT).contains(&time);
        let range = "must be between 1 ms and 10 s";
        let nodes = self.nodes_or_one();
        if !(1..=65_535).contains(&nodes) {
            return Some(format!("nodes is {nodes}, must be between 1 and 65535"));
        }
        if !is_wait(self.store_wait) {
            return Some(format!("store_wait is {:?}, {range}", self.store_wait));
        }
        if !is_wait(self.horizon) {
            return Some(format!("horizon is {:?}, {range}", self.horizon));
        }
        let is_empty = self.secret.as_ref().is_some_and(|secret| secret.is_empty());
        is_empty.then(|| "digest_secret is empty, must have at least one byte".to_owned())
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is not shown.
        f.debug_struct("StoreSettings")
            .field("nodes", &self.nodes_or_one())
            .field("when_down", &self.when_down)
            .field("store_wait", &self.store_wait)
            .field("horizon", &self.horizon)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_range_is_named_with_its_range() {
        let plain = StoreSettings::new;
        assert_eq!(plain().problem(), None);
        let ms = Duration::from_millis;
        let bad = [
            (plain().nodes(0), "nodes is 0, must be between 1 and 65535"),
            (
                plain().nodes(70_000),
                "nodes is 70000, must be between 1 and 65535",
            ),
            (
                plain().store_wait(ms(0)),
                "store_wait is 0ns, must be between 1 ms and 10 s",
            ),
            (
                plain().horizon(ms(10_001)),
                "horizon is 10.001s, must be between 1 ms and 10 s",
            ),
            (
                plain().digest_secret(""),
                "digest_secret is empty, must have at least one byte",
            ),
        ];
        for (settings, problem) in bad {
            assert_eq!(settings.problem().as_deref(), Some(problem));
        }
        let shown = format!("{:?}", plain().digest_secret("hush"));
        assert!(!shown.contains("hush"), "{shown}");
    }
}
