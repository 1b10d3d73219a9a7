//! A map from the keys that rules name to settings, for lookups by borrowed keys.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::call::{Key, OwnedKey};

/// The settings of rules for the keys that they name. Filled while a rule set is built, and
/// read-only from then on.
///
/// It is looked up by borrowed keys, with a fast hash, which is safe as callers do not choose the
/// stored keys. Each resource whose rules name keys has such a map, so a map takes no more memory
/// than its content needs.
#[derive(Debug)]
pub(crate) struct Named<V> {
    /// Each key with its settings.
    entries: Vec<(OwnedKey, V)>,
    /// The index in `entries` of each key, under the key's hash or, if that is taken, the next free
    /// number.
    places: HashMap<u64, u32, RandomState>,
    hash: RandomState,
}

impl<V> Default for Named<V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: HashMap::default(),
            hash: RandomState::default(),
        }
    }
}

impl<V: Default> Named<V> {
    /// Changes the settings of `name`, under each spelling by which a call can give it.
    pub(crate) fn change(&mut self, name: &str, change: impl Fn(&mut V)) {
        for key in Key::spellings(name) {
            let place = self.find(&key).unwrap_or_else(|free| {
                self.places.insert(free, self.entries.len() as u32);
                self.entries.push((key.into(), V::default()));
                self.entries.len() - 1
            });
            change(&mut self.entries[place].1);
        }
    }

    /// Returns whether no key is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether `key` is named.
    #[inline]
    pub(crate) fn has(&self, key: &Key<'_>) -> bool {
        !self.is_empty() && self.find(key).is_ok()
    }

    /// The settings of all keys, repeated for each spelling of a name.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The settings of `key`.
    pub(crate) fn get(&self, key: &Key<'_>) -> Option<&V> {
        let place = self.find(key).ok()?;
        Some(&self.entries[place].1)
    }

    /// Returns the index of `key` in `entries`, or else the hash under which to insert it.
    fn find(&self, key: &Key<'_>) -> Result<usize, u64> {
        let mut hash = self.hash.hash_one(key);
        while let Some(&place) = self.places.get(&hash) {
            if key.is_kept_as(&self.entries[place as usize].0) {
                return Ok(place as usize);
            }
            hash = hash.wrapping_add(1);
        }
        Err(hash)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn few_names_take_little_memory() {
        let cost = allocation_counter::measure(|| {
            let mut named = Named::<Vec<u32>>::default();
            named.change("a", |value| value.push(1));
            named.change("10.0.0.1", |value| value.push(2));
            assert_eq!(named.get(&Key::Ip([10, 0, 0, 1].into())), Some(&vec![2]));
        });
        assert!(cost.bytes_max < 1_024, "{cost:?}");
    }

    #[test]
    fn keys_with_equal_hashes_are_distinguished() {
        let mut named = Named::<u32>::default();
        named.change("a", |value| *value = 1);
        // Simulates a collision: "b" seems to have the hash of "a".
        let hash = named.hash.hash_one(Key::Str("b"));
        named.places.insert(hash, 0);
        named.change("b", |value| *value = 2);
        assert_eq!(
            [named.get(&Key::Str("a")), named.get(&Key::Str("b"))],
            [Some(&1), Some(&2)]
        );
        assert!(!named.has(&Key::Str("c")));
    }
}
