//! Figures about the keys of a rule: whether a key has been seen, how many are in use, and their
//! memory.

#[cfg(all(feature = "page", feature = "serde"))]
use super::Digest;
use super::costs::KeyCosts;
use super::keys::HotKeys;
use super::table::KeyTable;
use crate::base::sync::Ordering;
use crate::clock::Tick;

impl HotKeys {
    /// Returns whether a call with a key has passed since the table was made. Scans the slots until
    /// it finds one that a key owns.
    pub(crate) fn has_met_key(&self) -> bool {
        let missing = self.missing;
        let has_reserved = |costs: &KeyCosts| costs.knows_others_than(missing);
        self.has_passed_uncounted.load(Ordering::Relaxed)
            || self.table.has_owner_but(missing.0)
            || self
                .wide
                .as_deref()
                .is_some_and(|wide| wide.knows_others_than(missing))
            || self.costs.as_deref().is_some_and(has_reserved)
    }

    /// The number of calls that were judged by the word that all keys without a slot share, because
    /// the table was full.
    pub(crate) fn overflows(&self) -> u64 {
        let of_gauges = self.costs.as_ref().map_or(0, |costs| costs.overflows());
        let of_odd = self.wide.as_ref().map_or(0, |wide| wide.overflows());
        self.table.overflows() + of_odd + of_gauges
    }

    /// The number of keys that are not at rest. Scans the whole table.
    pub(crate) fn keys_in_use(&self, now: Tick) -> usize {
        if self.wide.is_some() {
            return self.keys_in_wide_windows(now);
        }
        let mut in_use = 0;
        self.judged(now, &self.limit(0.0, 0), 0, &mut |judge| {
            in_use = self.table.in_use(judge);
        });
        in_use
    }

    /// Returns whether `key` is not at rest, or has reserved units.
    #[cfg(all(feature = "page", feature = "serde"))]
    pub(crate) fn is_in_use(&self, now: Tick, key: Digest) -> bool {
        let mut is_in_use = self.reserved(key) > 0;
        if self.wide.is_some() {
            return is_in_use || self.is_in_wide_window(now, key);
        }
        self.judged(now, &self.limit(0.0, 0), 0, &mut |judge| {
            is_in_use |= self.table.is_in_use(key.0, judge);
        });
        is_in_use
    }

    /// The size in bytes. It is constant, except that lines of waiting calls are allocated on first
    /// use.
    pub(crate) fn footprint(&self) -> usize {
        let lines = self.lines.get().map_or(0, |lines| lines.footprint());
        let wide = self.wide.as_ref().map_or(0, |wide| wide.footprint());
        let costs = self.costs.as_ref().map_or(0, |costs| costs.footprint());
        let own = size_of::<Self>() - size_of::<KeyTable>();
        own + self.table.footprint() + lines + wide + costs
    }
}
