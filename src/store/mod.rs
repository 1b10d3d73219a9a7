//! Stores that count a limit for several processes.
//!
//! A [`QuotaStore`] holds one counter per rule and subject. Processes draw permits from it
//! in advance, so that most calls are decided without the store. All that a store must be
//! able to do is to change one small value atomically, and to read a clock that all
//! processes share: the decision itself is [`Draw::apply`], a pure function.
//!
//! * `RedisStore` (feature `redis`) is one on a Redis or Valkey server.
//! * [`MemoryStore`] keeps counters in the process, for tests and for several engines in one
//!   program. It can be told to fail in the ways in which a server on a network fails.
//!
//! # Examples
//!
//! A store over any key-value service with an atomic update is a few lines:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//! use std::time::Duration;
//! use tower_sentinel::store::{Alive, Beat, Draw, Drawn, QuotaStore, StoreError, StoreFuture};
//!
//! #[derive(Debug, Default)]
//! struct MyStore(Mutex<HashMap<String, Vec<u8>>>);
//!
//! impl MyStore {
//!     /// The time of the service, not that of one process.
//!     fn now(&self) -> Duration {
//!         Duration::from_secs(1_700_000_000)
//!     }
//! }
//!
//! impl QuotaStore for MyStore {
//!     fn draw<'a>(
//!         &'a self,
//!         draws: &'a [Draw],
//!     ) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
//!         Box::pin(async move {
//!             let mut values = self.0.lock().unwrap();
//!             Ok(draws
//!                 .iter()
//!                 .map(|draw| {
//!                     let value = values.entry(draw.key()).or_default();
//!                     let (drawn, new) = draw.apply(value, self.now());
//!                     if let Some(new) = new {
//!                         *value = new; // to be kept for `draw.lifetime()`
//!                     }
//!                     Ok(drawn)
//!                 })
//!                 .collect())
//!         })
//!     }
//!
//!     fn beat(&self, _alive: Alive) -> StoreFuture<'_, Beat> {
//!         Box::pin(async { Ok(Beat::new(1, 0, Default::default())) })
//!     }
//! }
//! ```

#[cfg(feature = "shared")]
mod ahead;
#[cfg(feature = "shared")]
mod beat;
#[cfg(feature = "shared")]
mod books;
#[cfg(feature = "shared")]
mod budget;
#[cfg(feature = "shared")]
mod cell;
#[cfg(feature = "shared")]
mod counter;
#[cfg(feature = "shared")]
mod demand;
mod digest;
#[cfg(feature = "shared")]
mod draw;
mod error;
mod figures;
#[cfg(feature = "shared")]
mod handle;
#[cfg_attr(not(feature = "shared"), path = "no_hub.rs")]
mod hub;
mod key;
#[cfg(feature = "shared")]
mod keyed;
#[cfg(feature = "shared")]
mod late;
#[cfg(feature = "shared")]
mod ledger;
#[cfg(feature = "shared")]
mod memory;
mod mistake;
#[cfg(all(test, sentinel_loom))]
mod models;
#[cfg(feature = "shared")]
mod pace;
#[cfg(feature = "shared")]
mod quota;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "shared")]
mod refill;
#[cfg(feature = "shared")]
mod request;
#[cfg(feature = "shared")]
mod seen;
mod settings;
mod status;
#[cfg(feature = "shared")]
mod terms;
#[cfg(all(test, not(sentinel_loom)))]
mod tests;
#[cfg(feature = "shared")]
mod ticket;
#[cfg(feature = "shared")]
mod trips;

#[cfg(feature = "shared")]
use std::fmt;
#[cfg(feature = "shared")]
use std::pin::Pin;

#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub use beat::{Alive, Beat};
#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub use draw::{Draw, Drawn, Epoch, NodeId};
pub use error::{StoreError, StoreErrorKind};
#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub use handle::StoreHandle;
#[cfg(feature = "shared")]
pub(crate) use key::StoreKey;
#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub use memory::{Fault, MemoryStore};
pub use mistake::StoreMistake;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use settings::{StoreSettings, WhenDown};
pub use status::{StoreState, StoreStatus};

#[cfg(feature = "shared")]
pub(crate) use cell::LeaseFound;
pub(crate) use digest::Digester;
pub(crate) use figures::RuleCounts;
#[cfg(feature = "shared")]
pub(crate) use figures::RuleFigures;
pub(crate) use hub::Hub;
#[cfg(feature = "serde")]
pub(crate) use key::is_prefix;
#[cfg(feature = "shared")]
pub(crate) use keyed::KeyedQuotas;
#[cfg(feature = "shared")]
pub(crate) use late::LateCall;
#[cfg(feature = "shared")]
pub(crate) use quota::{Asked, SharedQuota};
#[cfg(feature = "shared")]
pub(crate) use terms::{QuotaRule, Terms, Window};
#[cfg(feature = "shared")]
pub(crate) use ticket::{Answer, Ticket, Validity};

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
#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that several processes share.
///
/// The [module](self) has a store of one's own. Implementations need not retry, and need not limit
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
#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
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
