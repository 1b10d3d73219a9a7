//! Reading the settings of a keyed rule.

use std::time::Duration;

use super::{Burst, Counting, KeyedRule, MOST_WAITING_OF_VALUE, MissingKey, ParamOf};

impl KeyedRule {
    /// Returns whether the rule limits calls [at once](Self::concurrency) instead of a rate.
    #[must_use]
    pub const fn is_concurrency(&self) -> bool {
        matches!(self.count, Counting::Running)
    }

    /// Returns the [name](Self::param) of the parameter, if the parameter has a name.
    #[must_use]
    pub fn get_param(&self) -> Option<&str> {
        match &self.of {
            ParamOf::Named(name) => Some(name),
            ParamOf::Index(_) | ParamOf::Origin | ParamOf::Anyone => None,
        }
    }

    /// Returns the [index](Self::param_at) of the parameter, 0 unless set; `None` if the value is
    /// found by name, or is the origin.
    #[must_use]
    pub const fn get_param_at(&self) -> Option<i32> {
        match self.of {
            ParamOf::Index(index) => Some(index),
            ParamOf::Named(_) | ParamOf::Origin | ParamOf::Anyone => None,
        }
    }

    /// Returns whether the value is the [origin](Self::by_origin).
    #[must_use]
    pub const fn is_by_origin(&self) -> bool {
        matches!(self.of, ParamOf::Origin)
    }

    /// Returns how many calls beyond the threshold a value can make [at once](Self::burst), also if
    /// its [capacity](Self::capacity) was set instead.
    #[must_use]
    pub fn get_burst(&self) -> u32 {
        self.extra_calls()
    }

    /// Returns how many calls [in all](Self::capacity) a value can make at once, if that was set.
    #[must_use]
    pub const fn get_capacity(&self) -> Option<u32> {
        match self.burst {
            Burst::Capacity(capacity) => Some(capacity.get()),
            Burst::AboveThreshold(_) => None,
        }
    }

    /// Returns whether the rule counts in a [window](Self::window).
    #[must_use]
    pub const fn is_window(&self) -> bool {
        matches!(self.count, Counting::Window)
    }

    /// Returns the unit of the [costs](Self::cost) that the rule counts; `None` if it counts calls.
    #[must_use]
    pub fn get_cost(&self) -> Option<&str> {
        self.cost.as_deref()
    }

    /// Returns the longest wait for a [turn](Self::throttle); `None` if calls are not queued one
    /// after the other.
    #[must_use]
    pub const fn get_throttle(&self) -> Option<Duration> {
        match self.count {
            Counting::Queue(max_wait) => Some(max_wait),
            _ => None,
        }
    }

    /// Returns the longest wait in the [queue](Self::queue) for a place; `None` if there is no
    /// queue.
    #[must_use]
    pub const fn get_queue(&self) -> Option<Duration> {
        self.queue
    }

    /// Returns how many calls of one value [may wait](Self::max_waiting) for a place at once.
    #[must_use]
    pub const fn get_max_waiting(&self) -> u32 {
        match self.max_waiting {
            Some(most) => most.get(),
            None => MOST_WAITING_OF_VALUE,
        }
    }

    /// Returns how long a value that exceeds its limit is [blocked](Self::block_for); `None` if
    /// values are not blocked.
    #[must_use]
    pub const fn get_block_for(&self) -> Option<Duration> {
        self.block_for
    }

    /// Returns the values with a threshold [of their own](Self::except), each with that
    /// threshold.
    #[must_use]
    pub fn get_except(&self) -> &[(String, f64)] {
        &self.exceptions
    }

    /// Returns the [tiers](Self::tier), each with its threshold.
    #[must_use]
    pub fn get_tier(&self) -> &[(String, f64)] {
        &self.tiers
    }

    /// Returns the values [without a limit](Self::except_unlimited).
    #[must_use]
    pub fn get_except_unlimited(&self) -> &[String] {
        &self.unlimited_values
    }

    /// Returns the tiers [without a limit](Self::tier_unlimited).
    #[must_use]
    pub fn get_tier_unlimited(&self) -> &[String] {
        &self.unlimited_tiers
    }

    /// Returns how many values not at rest the table [holds at least](Self::max_keys).
    #[must_use]
    pub const fn get_max_keys(&self) -> u32 {
        self.max_keys.get()
    }

    /// Returns what happens to calls [without a value](Self::missing).
    #[must_use]
    pub const fn get_missing(&self) -> MissingKey {
        self.missing
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
