//! Views of the shared rules of a resource that count each key separately.

use std::fmt;
use std::sync::Arc as StdArc;

use super::NodeView;
use crate::base::sync::Arc;
use crate::call::Key;
use crate::engine::resource::Resource;
use crate::store::StoreError;

/// One [shared](crate::KeyedRule::shared) rule of a resource that counts each key separately, over
/// all processes of a store. A handler can use it to answer a user "17 of 100 left".
///
/// # Accuracy
///
/// The figures are what this process knows: the last answer of the store for the key, less what
/// this process has taken since. If this process has had no call of the key in the present bucket,
/// the figures do not include calls in other processes. In a window of two buckets, what other
/// processes took in the previous bucket is known from the first answer of the store in the present
/// bucket on. With [`exact`](crate::KeyedRule::exact), the figure after an admitted call covers all
/// processes, as of the time of the call. While the store is down, the figure is the share of this
/// process.
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
    /// separately, in their order: keyed rules, and flow rules [by
    /// origin](crate::FlowRule::by_origin). [`keyed_rules`](Self::keyed_rules) has the rules that
    /// count in this process.
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

    /// Returns how many calls of `key` can still pass now, one by one, as far as this process
    /// [knows](Self#accuracy): the [limit](Self::limit) less what was taken. It sends nothing to
    /// the store. `None` while nothing limits the key: it has [no
    /// limit](crate::KeyedRule::except_unlimited), or the store is down and the rule is then
    /// [open](crate::store::WhenDown::Open).
    #[must_use]
    pub fn left<'a>(&self, key: impl Into<Key<'a>>) -> Option<u32> {
        self.figures(&key.into()).map(|(_, left)| left)
    }

    /// Returns the limit of `key`: the limit of the tier of its last call in this process, or of
    /// the default tier. `None` while nothing limits the key, as for [`left`](Self::left).
    #[must_use]
    pub fn limit<'a>(&self, key: impl Into<Key<'a>>) -> Option<u32> {
        self.figures(&key.into()).map(|(limit, _)| limit)
    }

    /// Gives `key` its whole quota back, in all processes, and returns whether it had taken any. If
    /// so, it counts as one of the [resets](crate::read::SharedSnapshot::resets) of this process.
    ///
    /// This process lets calls of the key pass at once. Other processes follow within 250 ms and
    /// two requests to the store, or later, once they can reach the store again. In another
    /// process, [`left`](Self::left) includes the reset from the next call of the key on.
    ///
    /// Permits that other processes held for the key, and what running calls have reserved of a
    /// limit on [costs](crate::KeyedRule::cost), no longer count: the key can have that much more
    /// in its window. The unused rest of a reservation can be refunded to the new count. If the
    /// store loses its data before the window ends, the other processes report to it what they had
    /// drawn, including what they drew before the reset.
    ///
    /// # Errors
    ///
    /// If the store has not answered. Nothing is reset while the store is down, or before it was
    /// [started](crate::Sentinel::start_store). After another error, the key can be reset, possibly
    /// without the knowledge of the other processes: reset it again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the key is reset, as after an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::store::MemoryStore;
    /// use tower_sentinel::{Call, KeyedRule, Sentinel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// # let clock = tower_sentinel::clock::TokioClock::new();
    /// # let store = MemoryStore::with_clock(clock);
    /// let replica = || {
    ///     let rule = KeyedRule::per_hour("/login", 2).window().shared().exact();
    ///     let builder = Sentinel::builder().rules(rule).store(store.clone());
    /// #   let builder = builder.clock(clock);
    ///     builder.build()
    /// };
    /// let [one, two] = [replica(), replica()];
    /// let handles = [one.start_store(), two.start_store()];
    /// tokio::time::sleep(Duration::from_millis(100)).await;
    ///
    /// let login = Call::new("/login").param("ann");
    /// assert!(one.enter(login).await.is_ok() && two.enter(login).await.is_ok());
    /// assert!(one.enter(login).await.is_err() && two.enter(login).await.is_err());
    ///
    /// let rules = one.node("/login").expect("it has been called").shared_keyed_rules();
    /// assert!(rules[0].reset("ann").await?);
    /// assert!(one.enter(login).await.is_ok());
    /// tokio::time::sleep(Duration::from_millis(300)).await;
    /// assert!(two.enter(login).await.is_ok());
    /// # drop(handles);
    /// # Ok::<(), tower_sentinel::store::StoreError>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias("unblock", "clear", "forget"))]
    pub async fn reset<'a>(&self, key: impl Into<Key<'a>>) -> Result<bool, StoreError> {
        let key = key.into();
        match self.resource.leases() {
            Some(leases) => leases.reset(self.index, &key).await,
            None => Ok(false),
        }
    }

    /// Returns the limit of `key`, and what is left of it; `None` if nothing limits the key.
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
