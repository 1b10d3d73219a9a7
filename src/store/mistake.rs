//! Mistakes in the setup of a store that only the store can detect.

/// A mistake in the setup of a store that the store itself [has
/// detected](super::QuotaStore::mistakes). The engine reports it as a
/// [finding](crate::Sentinel::findings).
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{QuotaStore, RedisStore, StoreMistake};
///
/// let store = RedisStore::new("redis://:hush@cache:6379")?;
/// assert_eq!(store.mistakes(), [StoreMistake::PlainPassword]);
/// // Nobody else can read what goes to the machine itself.
/// assert_eq!(RedisStore::new("redis://:hush@localhost")?.mistakes(), []);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreMistake {
    /// The store evicts counters when its memory is full, by the policy of this name. The rule of
    /// an evicted counter admits its whole limit once more.
    Evicts(String),
    /// A password is sent to another machine without TLS.
    PlainPassword,
}
