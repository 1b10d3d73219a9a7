//! Views of a keyed rule of a resource, and of its values.

use std::fmt;
use std::sync::Arc as StdArc;

use super::NodeView;
use crate::base::sync::Arc;
use crate::call::Key;
use crate::engine::resource::Resource;
use crate::rule::{CostRules, KeyedRules};

/// One keyed rule of a resource, and its values. Values are known only by a keyed
/// hash, so they cannot be listed, but a given value can be looked up.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(KeyedRule::per_second("search", 5))
///     .clock(ManualClock::new())
///     .build();
/// drop(sentinel.try_enter(Call::new("search").param("ann").batch(3)));
/// let params = sentinel.node("search").expect("it has been called").keyed_rules();
/// assert_eq!((params[0].left("ann"), params[0].left("bob")), (2, 5));
/// assert_eq!((params[0].values(), params[0].overflows()), (1, 0));
/// ```
#[derive(Clone)]
pub struct KeyedView {
    resource: Arc<Resource>,
    rule: StdArc<str>,
    place: usize,
    /// Whether the rule limits costs. Keyed rules on costs are stored separately.
    is_on_costs: bool,
}

impl NodeView {
    /// Returns the keyed rules of the resource that count in this process, in their order. The
    /// keyed rules that count in a store are [`shared_keyed_rules`](Self::shared_keyed_rules).
    #[must_use]
    pub fn keyed_rules(&self) -> Vec<KeyedView> {
        let resource = &self.resource;
        let mut views = Vec::new();
        resource.each_keyed_rule(&mut |rules, place, rule| {
            let of_calls = resource.params();
            views.push(KeyedView {
                resource: resource.clone(),
                rule: resource.rules().id(rule),
                place,
                is_on_costs: !of_calls.is_some_and(|calls| std::ptr::eq(calls, rules)),
            });
        });
        views
    }
}

impl KeyedView {
    fn params(&self) -> &KeyedRules {
        let params = if self.is_on_costs {
            self.resource.costs().and_then(CostRules::by_key)
        } else {
            self.resource.params()
        };
        params.expect("the view is of one of them")
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns how many tokens `value` could take now, one by one, in the default tier. For a
    /// queue, this includes tokens that would wait; for a rule on [costs](crate::KeyedRule::cost),
    /// it excludes what running calls have reserved. It is zero while calls wait for a
    /// [place of their value](crate::KeyedRule::queue), and `u32::MAX` for a value
    /// [without a limit](Self::is_unlimited).
    #[must_use]
    pub fn left<'a>(&self, value: impl Into<Key<'a>>) -> u32 {
        self.rest(&value.into()).unwrap_or(u32::MAX)
    }

    /// Returns whether `value` has [no limit](crate::KeyedRule::except_unlimited) in the default
    /// tier.
    ///
    /// ```
    /// use tower_sentinel::{Call, KeyedRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(KeyedRule::per_second("search", 5).except_unlimited("batch"));
    /// drop(sentinel.try_enter(Call::new("search").param("batch")));
    /// let params = sentinel.node("search").expect("it has been called").keyed_rules();
    /// assert_eq!(["ann", "batch"].map(|value| params[0].is_unlimited(value)), [false, true]);
    /// ```
    #[must_use]
    pub fn is_unlimited<'a>(&self, value: impl Into<Key<'a>>) -> bool {
        self.rest(&value.into()).is_none()
    }

    /// Returns the tokens that `value` has left; `None` without a limit.
    pub(crate) fn rest(&self, value: &Key<'_>) -> Option<u32> {
        let now = self.resource.now();
        self.params().left(self.place, value, now)
    }

    /// Returns whether `value` has spent some of its quota, or has calls running.
    #[cfg(all(feature = "page", feature = "serde"))]
    pub(crate) fn is_in_use(&self, value: &Key<'_>) -> bool {
        let now = self.resource.now();
        self.params().is_in_use(self.place, value, now)
    }

    /// Gives `value` its whole quota back, and returns whether it had spent any. A queue forgets
    /// the last turn of the value; calls that wait keep their turns. A
    /// [block](crate::KeyedRule::block_for) of the value ends.
    ///
    /// Calls that run under a [concurrency](crate::KeyedRule::concurrency) limit keep their places.
    /// A value without a place in the [table] is not reset, because it shares its quota with other
    /// values. In both cases, this method returns `false`. Under a limit on
    /// [costs](crate::KeyedRule::cost), what running calls have reserved stays reserved. If a call
    /// took tokens before the reset and then does not run after all, it is refunded as usual, so
    /// the value has those tokens twice. Only this engine's count is reset; for a
    /// [shared](crate::KeyedRule::shared) rule use
    /// [`SharedKeyedView::reset`](crate::read::SharedKeyedView::reset).
    ///
    /// [table]: crate::KeyedRule::max_keys
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// let rule = KeyedRule::per_minute("login", 2);
    /// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
    /// let passes = || matches!(sentinel.try_enter(Call::new("login").param("ann")), Verdict::Pass(_));
    /// assert!(passes() && passes() && !passes());
    ///
    /// let params = sentinel.node("login").expect("it has been called").keyed_rules();
    /// assert!(params[0].reset("ann"));
    /// assert_eq!((params[0].left("ann"), params[0].resets()), (2, 1));
    /// assert!(passes());
    /// ```
    #[doc(alias("unblock", "clear", "forget"))]
    pub fn reset<'a>(&self, value: impl Into<Key<'a>>) -> bool {
        let time = || self.resource.now();
        self.params().reset(self.place, &value.into(), &time)
    }

    /// Returns how many values were [reset](Self::reset).
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.params().resets(self.place)
    }

    /// Returns how often values were [blocked](crate::KeyedRule::block_for).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.params().blocks(self.place)
    }

    /// Returns how many values have used some of their quota. It reads the whole table.
    #[must_use]
    pub fn values(&self) -> usize {
        self.params().values(self.place, self.resource.now())
    }

    /// Returns how many calls were judged on the quota that all values without a place share. If it
    /// grows, [`max_keys`] is too small, or a client makes up values.
    ///
    /// [`max_keys`]: crate::KeyedRule::max_keys
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.params().overflows(self.place)
    }

    /// Returns how many calls wait in the [queues](crate::KeyedRule::queue) of all values.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, KeyedRule, Sentinel};
    ///
    /// let rule = KeyedRule::concurrency("report", 1).queue(Duration::from_secs(5));
    /// let sentinel = Sentinel::new(rule);
    /// let [_running, _waiting] = [0, 1].map(|_| sentinel.try_enter(Call::new("report").param("ann")));
    /// let params = sentinel.node("report").expect("it has been called").keyed_rules();
    /// assert_eq!((params[0].waiting(), params[0].left("ann")), (1, 0));
    /// ```
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.params().waiting(self.place)
    }

    /// Returns how many calls reached the rule without a value for it: without the parameter, or
    /// without an origin for a rule by origin. These calls are counted for every value of
    /// [`missing`](crate::KeyedRule::missing). Calls that are refused before the rule are not
    /// counted. If the number grows with every call, no call has the parameter that the rule names,
    /// and the rule does not distinguish between callers.
    ///
    /// This count costs nothing for calls that have a value.
    ///
    /// ```
    /// use tower_sentinel::{Call, KeyedRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(KeyedRule::per_second("search", 5).param("user"));
    /// // The call has a parameter, but none with the name `user`.
    /// drop(sentinel.try_enter(Call::new("search").param("ann")));
    /// let params = sentinel.node("search").expect("it has been called").keyed_rules();
    /// assert_eq!(params[0].missing(), 1);
    /// ```
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.params().missing(self.place)
    }

    /// Returns the size of the table of values, in bytes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.params().table_footprint(self.place)
    }
}

impl fmt::Debug for KeyedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedView")
            .field("rule", &self.rule)
            .field("values", &self.values())
            .field("missing", &self.missing())
            .finish_non_exhaustive()
    }
}
