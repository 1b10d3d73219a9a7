//! The counters of a rule that counts each key separately.

use super::StoreError;
use super::digest::{CounterDigest, RuleDigest};
use super::quota::SharedQuota;
use super::settings::WhenDown;
use super::terms::{QuotaRule, Terms};
use crate::base::sync::Arc;
use crate::call::Key;
use crate::clock::Tick;
use crate::stat::Table;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeyedQuotas {
    /// The counters of keys that have called recently.
    table: Table<SharedQuota>,
    /// The hash of the rule, from which the names of its counters are derived.
    digest: RuleDigest,
    rule: Arc<QuotaRule>,
    /// The counter that keys share if they have no place in the table while the store is
    /// unavailable.
    others: Arc<SharedQuota>,
}

impl KeyedQuotas {
    /// Creates the counters of the rule with this `digest`. The table holds at most `most` keys.
    pub(crate) fn new(digest: RuleDigest, rule: Arc<QuotaRule>, terms: Terms, most: u32) -> Self {
        // Without a key, the counter gets a name that no key has.
        let others = rule.hub.digester().counter(digest, None);
        let others = SharedQuota::new(others, terms, &rule);
        Self {
            table: Table::new(most as usize),
            digest,
            rule,
            others,
        }
    }

    /// Returns the counter of `key`, and sets its terms to `terms`. Creates the counter if the key
    /// has none.
    pub(crate) fn of(&self, key: &Key<'_>, terms: Terms, now: Tick) -> Arc<SharedQuota> {
        let digest = self.rule.hub.digester().counter(self.digest, Some(key));
        let found = |quota: &Arc<SharedQuota>| {
            quota.touch(now);
            quota.clone()
        };
        let quota = self.table.find(&digest, found);
        let quota = quota.unwrap_or_else(|| self.make(digest, terms, now));
        quota.set_terms(terms);
        quota
    }

    /// Returns the limit of `key`, the estimated number of permits that this process can still get
    /// in the present bucket, and the end of this bucket. If the key has no counter, an unused
    /// counter with these `terms` is assumed.
    pub(crate) fn left(&self, key: &Key<'_>, terms: Terms, now: Tick) -> Option<(u32, u32, Tick)> {
        let digest = self.rule.hub.digester().counter(self.digest, Some(key));
        match self.table.find(&digest, Arc::clone) {
            Some(quota) => quota.left(now),
            None => SharedQuota::new(digest, terms, &self.rule).left(now),
        }
    }

    /// Gives `key` its whole quota back, in all processes. Returns whether the key had taken any
    /// permits.
    pub(crate) async fn reset(&self, key: &Key<'_>) -> Result<bool, StoreError> {
        let hub = &self.rule.hub;
        let digest = hub.digester().counter(self.digest, Some(key));
        let counted = hub.empty(digest, &self.rule).await?;
        hub.note_reset(hub.now());
        let quota = self.table.find(&digest, Arc::clone);
        let has_taken = quota.is_some_and(|quota| quota.start_anew());
        hub.tell_reset().await?;
        let is_reset = counted > 0 || has_taken;
        self.rule.figures.counts().resets.add(is_reset.into());
        Ok(is_reset)
    }

    pub(crate) fn rule(&self) -> &QuotaRule {
        &self.rule
    }

    /// Returns how many keys have a counter, and how many permits their cells hold. Reads the whole
    /// table.
    pub(crate) fn in_hand(&self, now: Tick) -> (usize, u64) {
        let (mut keys, mut permits) = (0, 0);
        self.table.read_all(|quota| {
            keys += 1;
            permits += u64::from(quota.in_hand(now));
        });
        (keys, permits)
    }

    /// Creates the counter of a key that is not in the table.
    #[cold]
    fn make(&self, digest: CounterDigest, terms: Terms, now: Tick) -> Arc<SharedQuota> {
        let new = |terms| SharedQuota::new(digest, terms, &self.rule);
        let made = self.table.find_or_make_shared(&digest, now, || {
            let quota = new(terms);
            quota.touch(now);
            quota
        });
        match made {
            Some(quota) => quota,
            None if !self.rule.hub.is_up() => self.others.clone(),
            // The table is full. The call gets a temporary counter, which is dropped after it. So
            // this counter draws nothing ahead, and serves no local share if the store becomes
            // unavailable.
            None => new(Terms {
                exact: true,
                when_down: WhenDown::Closed,
                // Nothing is borrowed, as the loan would be forgotten together with the counter.
                ahead: 0,
                ..terms
            }),
        }
    }
}
