//! What keys have left by the shared rules of a resource.

use std::fmt;
use std::sync::Arc as StdArc;

use super::NodeView;
use crate::base::sync::Arc;
use crate::call::Key;
use crate::engine::resource::Resource;

/// One [shared](crate::KeyedRule::shared) rule of a resource that counts each key apart, over all
/// processes of a store. It answers a handler that tells a user "17 of 100 left".
///
/// # Accuracy
///
/// The figures are what this process knows: the last answer of the store for the key, less what this
/// process has taken since. A key that has not been called here since its bucket began counts as if
/// nobody else had called it, and in a window of two buckets what others took in the bucket before is
/// known from the first answer of the new one on. With [`exact`](crate::KeyedRule::exact) the figure
/// after a call that was let in is that of all processes at the time of the call. While the store is
/// away, it is the share of this process.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::MemoryStore;
/// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(KeyedRule::per_hour("/v1", 100).window().shared().except_unlimited("batch"))
///     .store(MemoryStore::new())
///     .clock(ManualClock::new())
///     .build();
/// // Nobody has started the store, so each process has its share.
/// drop(sentinel.try_enter(Call::new("/v1").param("ann").batch(3)));
/// let rules = sentinel.node("/v1").expect("it has been called").shared_keyed_rules();
/// let [ann, bob] = ["ann", "bob"].map(|key| rules[0].left(key).expect("it has a limit"));
/// assert_eq!(ann + 3, bob);
/// assert_eq!((rules[0].limit("ann"), rules[0].left("batch")), (Some(100), None));
/// ```
#[derive(Clone)]
pub struct SharedKeyedView {
    resource: Arc<Resource>,
    rule: StdArc<str>,
    index: u32,
}

impl NodeView {
    /// Returns the [shared](crate::KeyedRule::shared) rules of the resource that count each key
    /// apart, in their order: keyed rules, and flow rules [by
    /// origin](crate::FlowRule::by_origin). [`keyed_rules`](Self::keyed_rules) has those that count
    /// in this process.
    #[must_use]
    pub fn shared_keyed_rules(&self) -> Vec<SharedKeyedView> {
        let resource = &self.resource;
        let mut views = Vec::new();
        let Some(leases) = resource.leases() else {
            return views;
        };
        for index in leases.by_key() {
            views.push(SharedKeyedView {
                resource: resource.clone(),
                rule: resource.rules().id(index),
                index,
            });
        }
        views
    }
}

impl SharedKeyedView {
    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns how many calls of `key` this process may still let pass now, one by one, as far as it
    /// [knows](Self#accuracy): those of its whole [limit](Self::limit) that nobody has taken. It asks
    /// the store nothing. `None` while nothing limits the key: it has [no
    /// limit](crate::KeyedRule::except_unlimited), or the store is away and the rule is
    /// [open](crate::store::WhenDown::Open) then.
    #[must_use]
    pub fn left<'a>(&self, key: impl Into<Key<'a>>) -> Option<u32> {
        self.figures(&key.into()).map(|(_, left)| left)
    }

    /// Returns the limit of `key`: that of the tier of its last call here, or of the default tier;
    /// `None` as for [`left`](Self::left).
    #[must_use]
    pub fn limit<'a>(&self, key: impl Into<Key<'a>>) -> Option<u32> {
        self.figures(&key.into()).map(|(limit, _)| limit)
    }

    fn figures(&self, key: &Key<'_>) -> Option<(u32, u32)> {
        let now = self.resource.now();
        self.resource.leases()?.left(self.index, key, now)
    }
}

impl fmt::Debug for SharedKeyedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeyedView")
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}
