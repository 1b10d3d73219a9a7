//! Mistakes in the set-up of a store that nobody but the store can see.

/// A mistake in its set-up, as a store [has noticed](super::QuotaStore::mistakes) it: a
/// [finding](crate::Sentinel::findings) says so.
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
    /// The store removes counters when its memory is full, by the policy of this name: a limit is
    /// admitted once more then.
    Evicts(String),
    /// A password goes to another machine without TLS.
    PlainPassword,
}
