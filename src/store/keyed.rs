//! The counters of one rule that counts each key apart.

use super::digest::{CounterDigest, RuleDigest};
use super::quota::SharedQuota;
use super::settings::WhenDown;
use super::terms::{QuotaRule, Terms};
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::call::Key;
use crate::clock::{Tick, nanos};
use crate::stat::{Resident, Table, TablePlace};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeyedQuotas {
    table: Table<Keyed>,
    digest: RuleDigest,
    rule: Arc<QuotaRule>,
    /// The quota that keys without a place share while the store is away.
    others: Arc<SharedQuota>,
}

/// The counter of one key.
#[derive(Debug)]
struct Keyed {
    quota: Arc<SharedQuota>,
    place: TablePlace,
    /// When it was last asked for, in ns.
    used: AtomicU64,
}

impl KeyedQuotas {
    /// Those of the rule with this `digest`, of at most so many keys.
    pub(crate) fn new(digest: RuleDigest, rule: Arc<QuotaRule>, terms: Terms, most: u32) -> Self {
        // A name that no key has.
        let others = rule.hub.digester().counter(digest, None);
        let others = SharedQuota::new(others, terms, &rule);
        Self {
            table: Table::new(most as usize),
            digest,
            rule,
            others,
        }
    }

    /// The counter of `key` by these `terms`.
    pub(crate) fn of(&self, key: &Key<'_>, terms: Terms, now: Tick) -> Arc<SharedQuota> {
        let digest = self.rule.hub.digester().counter(self.digest, Some(key));
        let found = |keyed: &Arc<Keyed>| {
            keyed.touch(now);
            keyed.quota.clone()
        };
        let quota = self.table.find(&digest, found);
        let quota = quota.unwrap_or_else(|| self.make(digest, terms, now));
        quota.set_terms(terms);
        quota
    }

    pub(crate) fn rule(&self) -> &QuotaRule {
        &self.rule
    }

    /// How many keys have a counter, and how many permits these have in hand. Walks over all.
    pub(crate) fn in_hand(&self, now: Tick) -> (usize, u64) {
        let (mut keys, mut permits) = (0, 0);
        self.table.read_all(|keyed| {
            keys += 1;
            permits += u64::from(keyed.quota.in_hand(now));
        });
        (keys, permits)
    }

    #[cold]
    fn make(&self, digest: CounterDigest, terms: Terms, now: Tick) -> Arc<SharedQuota> {
        let new = |terms| SharedQuota::new(digest, terms, &self.rule);
        let made = self.table.find_or_make(&digest, now, || Keyed {
            quota: new(terms),
            place: TablePlace::default(),
            used: AtomicU64::new(now.as_nanos()),
        });
        match made {
            Some(keyed) => keyed.quota.clone(),
            None if !self.rule.hub.is_up() => self.others.clone(),
            // It is asked for by this call alone, and nothing is remembered of it.
            None => new(Terms {
                exact: true,
                when_down: WhenDown::Closed,
                // Nobody would know how much of it is borrowed.
                ahead: 0,
                ..terms
            }),
        }
    }
}

impl Keyed {
    #[inline]
    fn touch(&self, now: Tick) {
        // Not with each call: all of a key write there.
        if now.nanos_since(Tick::from_nanos(self.used.load(Ordering::Relaxed))) > 1_000_000 {
            self.used.store(now.as_nanos(), Ordering::Relaxed);
        }
    }
}

impl Resident for Keyed {
    type Key = CounterDigest;
    type Sum = ();

    fn key(&self) -> &CounterDigest {
        self.quota.digest()
    }

    fn place(&self) -> &TablePlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        let used = Tick::from_nanos(self.used.load(Ordering::Relaxed));
        let is_held = Arc::strong_count(&self.quota) > 1;
        let memory = self.quota.window().memory();
        !is_held && now.nanos_since(used) > nanos(memory)
    }

    fn retire(&self, (): &mut ()) {}
}
