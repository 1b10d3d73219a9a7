//! Stores that count a limit for several processes.
//!
//! A [`QuotaStore`] holds one counter per rule and subject. Processes draw permits from it in
//! advance, so that most calls are decided without the store. A store only has to update one small
//! value atomically, by a clock that all processes share. The decision itself is made by
//! [`Draw::apply`], a pure function.
//!
//! * `RedisStore` (feature `redis`) keeps counters on a Redis or Valkey server.
//! * [`MemoryStore`] keeps counters in the process, for tests and for several engines in one
//!   program. It can be made to fail in the ways in which a server on a network fails.
//!
//! # Examples
//!
//! A store over any key-value service with atomic updates takes a few lines:
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
mod calendar;
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
pub(crate) mod models;
#[cfg(feature = "shared")]
mod pace;
#[cfg(feature = "shared")]
mod quota;
#[cfg(feature = "shared")]
mod quota_store;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "shared")]
mod refill;
#[cfg(feature = "shared")]
mod request;
#[cfg(feature = "shared")]
mod resets;
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
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub use memory::{Fault, MemoryStore};
pub use mistake::StoreMistake;
#[cfg(feature = "shared")]
#[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
pub use quota_store::{QuotaStore, StoreFuture};
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use settings::{StoreSettings, WhenDown};
pub use status::{StoreState, StoreStatus};

#[cfg(feature = "shared")]
pub(crate) use self::{
    cell::LeaseFound, figures::RuleFigures, key::StoreKey, keyed::KeyedQuotas, late::LateCall,
};
pub(crate) use digest::Digester;
pub(crate) use figures::RuleCounts;
pub(crate) use hub::Hub;
#[cfg(feature = "serde")]
pub(crate) use key::is_prefix;
#[cfg(feature = "shared")]
pub(crate) use quota::{Asked, SharedQuota};
#[cfg(feature = "shared")]
pub(crate) use terms::{QuotaRule, Terms, Window};
#[cfg(feature = "shared")]
pub(crate) use ticket::{Answer, Ticket, Validity};
