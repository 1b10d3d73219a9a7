//! The trait of stores that count limits for several processes.

use std::fmt;
use std::pin::Pin;

use super::{Alive, Beat, Draw, Drawn, StoreError, StoreMistake};

/// The future of a store's answer. It is boxed, so that the trait is object-safe.
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
/// The [module](super) shows how to write one. Implementations need neither retries nor timeouts:
/// the engine drops late futures, and decides when to ask again.
///
/// # Cancel safety
///
/// A dropped future may or may not have had its effect. For each part of a draw, the engine assumes
/// the worse case: the requested permits are lost, and the returned permits are not returned again.
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
    /// the same order. "At most once" forbids retries of a draw that may have arrived, as a retry
    /// would return its permits twice.
    ///
    /// # Errors
    ///
    /// The outer error means that no draw is known to have been applied. An inner error means this
    /// for a single draw, while the other draws have answers.
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>>;

    /// Reports that a process is alive, or that it leaves. The answer contains the number of live
    /// processes: those that have reported within the last second. The store [counts](Alive::count)
    /// the beats.
    ///
    /// # Errors
    ///
    /// The store could not be asked.
    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat>;

    /// Returns the prefix of the keys of all counters: 1 to 32 ASCII letters, digits, `_`, `.`, `:`
    /// or `-`. With any other text [`start_store`](crate::Sentinel::start_store) fails. Only
    /// processes with the same prefix count together, so services that must not count together need
    /// different prefixes. Default `ts`.
    fn prefix(&self) -> &str {
        "ts"
    }

    /// Returns the mistakes in the store's setup that the store has detected so far. Each becomes a
    /// [finding](crate::Sentinel::findings). The engine calls this about once a second, and it must
    /// return at once. A panic counts as no mistakes. Default: none.
    fn mistakes(&self) -> Vec<StoreMistake> {
        Vec::new()
    }
}
