//! What a store of shared quotas must be able to do.

use std::fmt;
use std::pin::Pin;

use super::{Alive, Beat, Draw, Drawn, StoreError, StoreMistake};

/// The result of a store: a boxed future, so that the trait is object-safe.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{StoreError, StoreErrorKind, StoreFuture};
///
/// fn unreachable(why: &str) -> StoreFuture<'_, u32> {
///     Box::pin(async move { Err(StoreError::new(StoreErrorKind::Unreachable, why)) })
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let error = unreachable("no route").await.unwrap_err();
/// assert_eq!(error.kind(), StoreErrorKind::Unreachable);
/// # });
/// ```
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that several processes share.
///
/// The [module](super) has a store of one's own. Implementations need not retry, and need not limit
/// how long they take: the engine drops a future that is late, and asks again by its own clock.
///
/// # Cancel safety
///
/// A dropped future may or may not have had its effect. The engine then assumes the worse:
/// the permits are lost, and nothing is given back twice.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tower_sentinel::store::{MemoryStore, QuotaStore};
///
/// // An engine knows no more of a store than this.
/// let store: Arc<dyn QuotaStore> = Arc::new(MemoryStore::new());
/// assert_eq!(store.prefix(), "ts");
/// ```
pub trait QuotaStore: fmt::Debug + Send + Sync + 'static {
    /// Applies each of `draws` to the value of its key, at most once, and returns the answers in
    /// the same order. So a client must not send one again that may have arrived: what it gives
    /// back would be given back twice.
    ///
    /// # Errors
    ///
    /// The outer error says that nothing is known to have happened. The inner one says that
    /// about a single draw, where the others have an answer.
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>>;

    /// Reports that a process is alive, or that it leaves, and asks which others are alive: those
    /// that have reported within the last second. The store [counts](Alive::count) the beats.
    ///
    /// # Errors
    ///
    /// The store could not be asked.
    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat>;

    /// Returns what stands before the keys of all counters: 1 to 32 ASCII letters, digits, `_`,
    /// `.`, `:` or `-`. With anything else [`start_store`](crate::Sentinel::start_store) fails.
    /// Processes count together only if it is the same, and services that must not count together
    /// need different ones. Default `ts`.
    fn prefix(&self) -> &str {
        "ts"
    }

    /// Returns the mistakes in its set-up that it has noticed by now: each is a
    /// [finding](crate::Sentinel::findings). It is asked about once a second, and must answer at
    /// once; if it panics, it has noticed none. Default: none.
    fn mistakes(&self) -> Vec<StoreMistake> {
        Vec::new()
    }
}
