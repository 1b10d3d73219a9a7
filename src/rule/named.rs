//! Keys that rules name, asked for by borrowed ones.

use papaya::HashMap;

use crate::call::{Key, OwnedKey};

/// What rules say of the keys that they name. Filled while the rules are put in
/// place, and only read then.
///
/// The map is one that can be asked by a borrowed key, and by a hash that is
/// quick: who calls does not choose what is in it.
#[derive(Debug, Default)]
pub(super) struct Named<V>(HashMap<OwnedKey, V, foldhash::fast::RandomState>);

impl<V: Clone + Default> Named<V> {
    /// Changes what is said of `name`, however a call may spell it.
    pub(super) fn change(&mut self, name: &str, change: impl Fn(&mut V)) {
        let named = self.0.pin();
        for key in Key::spellings(name) {
            let mut said = named.get(&key).cloned().unwrap_or_default();
            change(&mut said);
            named.insert(key.into(), said);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `key` is named.
    #[inline]
    pub(super) fn has(&self, key: &Key<'_>) -> bool {
        !self.is_empty() && self.0.pin().contains_key(key)
    }

    /// What is said of `key`.
    pub(super) fn get(&self, key: &Key<'_>) -> Option<V> {
        self.0.pin().get(key).cloned()
    }
}
