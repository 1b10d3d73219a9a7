//! The counters of one rule that counts each key apart.

use super::StoreKey;
use super::digest::{Digester, RuleDigest};
use super::figures::RuleFigures;
use super::hub::Hub;
use super::ledger::{Terms, Window};
use super::quota::SharedQuota;
use super::settings::WhenDown;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::call::Key;
use crate::clock::{Tick, nanos};
use crate::stat::{Resident, Table, TablePlace};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeyedQuotas {
    table: Table<Keyed>,
    rule: RuleDigest,
    window: Window,
    figures: Arc<RuleFigures>,
    hub: Arc<Hub>,
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
    pub(crate) fn new(
        rule: RuleDigest,
        window: Window,
        terms: Terms,
        most: u32,
        figures: Arc<RuleFigures>,
        hub: &Arc<Hub>,
    ) -> Self {
        // A name that no key has.
        let others = hub.digester().counter(rule, None);
        let others = SharedQuota::new(hub.key(others), window, terms, figures.clone(), hub);
        Self {
            table: Table::new(most as usize),
            rule,
            window,
            figures,
            hub: hub.clone(),
            others,
        }
    }

    /// The counter of `key` by these `terms`.
    pub(crate) fn of(&self, key: &Key<'_>, terms: Terms, now: Tick) -> Arc<SharedQuota> {
        let digest = self.digester().counter(self.rule, Some(key));
        let found = |keyed: &Arc<Keyed>| {
            keyed.touch(now);
            keyed.quota.clone()
        };
        let quota = self.table.find(&digest, found);
        let quota = quota.unwrap_or_else(|| self.make(digest, terms, now));
        quota.set_terms(terms);
        quota
    }

    pub(crate) const fn figures(&self) -> &Arc<RuleFigures> {
        &self.figures
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

    fn digester(&self) -> &Digester {
        self.hub.digester()
    }

    #[cold]
    fn make(&self, digest: u128, terms: Terms, now: Tick) -> Arc<SharedQuota> {
        let new = |terms| {
            let key: StoreKey = self.hub.key(digest);
            SharedQuota::new(key, self.window, terms, self.figures.clone(), &self.hub)
        };
        let made = self.table.find_or_make(&digest, now, || Keyed {
            quota: new(terms),
            place: TablePlace::default(),
            used: AtomicU64::new(now.as_nanos()),
        });
        match made {
            Some(keyed) => keyed.quota.clone(),
            None if !self.hub.is_up() => self.others.clone(),
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
    type Key = u128;
    type Sum = ();

    fn key(&self) -> &u128 {
        self.quota.key().digest_ref()
    }

    fn place(&self) -> &TablePlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        let used = Tick::from_nanos(self.used.load(Ordering::Relaxed));
        let is_held = Arc::strong_count(&self.quota) > 1;
        let window = self.quota.window();
        // After that it knows nothing that matters.
        let memory = window.bucket * (window.buckets + 2);
        !is_held && now.nanos_since(used) > nanos(memory)
    }

    fn retire(&self, (): &mut ()) {}
}
