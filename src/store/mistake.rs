//! Mistakes in the set-up of a store that only the store can detect.

/// A mistake in the set-up of a store that the store [has noticed](super::QuotaStore::mistakes).
/// The engine reports it as a [finding](crate::Sentinel::findings).
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
    /// The store evicts counters when its memory is full, by the policy of this name. A counter
    /// that is evicted admits its whole limit once more.
    Evicts(String),
    /// A password goes to another machine without TLS.
    PlainPassword,
}
