//! The key of a resource in the table, and the query with which a call looks up the resource.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc as StdArc;

use papaya::Equivalent;

use crate::breaker::NameHash;
use crate::call::{Direction, Key, OwnedKey};
use crate::engine::context::EngineContext;

/// The key of a resource in its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceKey {
    pub(super) direction: Direction,
    name: OwnedKey,
}

/// The direction and name by which a call looks up its resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceQuery<'a> {
    pub(crate) direction: Direction,
    /// The name, short enough to be stored: see `Key::shortened`.
    pub(crate) name: &'a Key<'a>,
}

/// The identity of a resource that the registry creates or renews.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewResource<'a> {
    pub(crate) query: &'a ResourceQuery<'a>,
    /// The number of the resource. A resource that replaces another one keeps the number of the
    /// replaced one instead.
    pub(crate) id: u64,
    /// Whether a router has matched the name, so callers cannot invent it.
    pub(crate) has_matched: bool,
}

impl ResourceKey {
    /// Runs `f` with the query that finds this key.
    pub(crate) fn with_query<R>(&self, f: impl FnOnce(&ResourceQuery<'_>) -> R) -> R {
        f(&ResourceQuery {
            direction: self.direction,
            name: &self.name.as_key(),
        })
    }
}

impl ResourceQuery<'_> {
    /// Returns a hash of 128 bits, which identifies the resource.
    pub(super) fn name_hash(&self, shared: &EngineContext) -> NameHash {
        shared.hash.each_ref().map(|state| state.hash_one(self))
    }

    /// Creates the key to store in the table, and the text of the name.
    pub(crate) fn keep(&self) -> (ResourceKey, StdArc<str>) {
        let name = OwnedKey::from(*self.name);
        let text = match &name {
            OwnedKey::Str(text) => text.clone(),
            other => other.as_key().to_string().into(),
        };
        let key = ResourceKey {
            direction: self.direction,
            name,
        };
        (key, text)
    }
}

impl Equivalent<ResourceKey> for ResourceQuery<'_> {
    #[inline]
    fn equivalent(&self, key: &ResourceKey) -> bool {
        self.direction == key.direction && self.name.is_kept_as(&key.name)
    }
}

impl Hash for ResourceQuery<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash_open(state);
        // Only outbound keys hash their direction, which suffices to distinguish the two
        // directions.
        if self.direction != Direction::Inbound {
            self.direction.hash(state);
        }
    }
}

impl Hash for ResourceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.with_query(|query| query.hash(state));
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_query_hashes_like_its_key() {
        use std::hash::BuildHasher;
        let state = std::hash::RandomState::new();
        let name = &Key::Joined("GET", "/a");
        let hashes = [Direction::Inbound, Direction::Outbound].map(|direction| {
            let query = ResourceQuery { direction, name };
            let (key, text) = query.keep();
            assert_eq!(&*text, "GET /a");
            assert!(query.equivalent(&key));
            assert_eq!(state.hash_one(query), state.hash_one(&key));
            state.hash_one(query)
        });
        assert_ne!(hashes[0], hashes[1]);
    }
}
