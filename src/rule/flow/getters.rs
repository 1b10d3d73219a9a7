//! Reading the settings of a flow rule.

use std::ops::Range;
use std::time::Duration;

use super::{Basis, FlowRule, MissingKey, Who};
use crate::rule::shaping::Marks;

impl FlowRule {
    /// Returns the number of [buckets](Self::buckets) in the window.
    #[must_use]
    pub const fn get_buckets(&self) -> u32 {
        self.buckets.get()
    }

    /// Returns whether the rule is [strict](Self::strict).
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns whether the rule counts each origin [separately](Self::by_origin).
    #[must_use]
    pub const fn is_by_origin(&self) -> bool {
        matches!(self.who, Who::Each)
    }

    /// Returns the origin that the rule is [for](Self::for_origin), or `other`; `None` if it is for
    /// calls of any origin, or of none.
    #[must_use]
    pub fn get_for_origin(&self) -> Option<&str> {
        self.who.origin()
    }

    /// Returns the other resource whose calls [fill the window](Self::when), if there is one.
    #[must_use]
    pub fn get_when(&self) -> Option<&str> {
        self.related()
    }

    /// Returns the [context](Self::in_context) that the rule is for; `None` if it is for calls in
    /// any context, or in none.
    #[must_use]
    pub fn get_in_context(&self) -> Option<&str> {
        match &self.basis {
            Basis::Context(context) => Some(context),
            Basis::Own | Basis::Related(_) => None,
        }
    }

    /// Returns the unit of the [costs](Self::cost) that the rule counts; `None` if it counts calls.
    #[must_use]
    pub fn get_cost(&self) -> Option<&str> {
        self.cost.as_deref()
    }

    /// Returns what happens to calls [without an origin](Self::missing), if that was set.
    #[must_use]
    pub const fn get_missing(&self) -> Option<MissingKey> {
        self.missing
    }

    /// Returns the longest wait in the [queue](Self::throttle); `None` if the rule counts in a
    /// window.
    #[must_use]
    pub const fn get_throttle(&self) -> Option<Duration> {
        self.shaping.max_wait
    }

    /// Returns how long the [warm-up](Self::warm_up) takes, if there is one.
    #[must_use]
    pub const fn get_warm_up(&self) -> Option<Duration> {
        self.shaping.warm_up
    }

    /// Returns the [cold factor](Self::cold_factor), if that was set.
    #[must_use]
    pub const fn get_cold_factor(&self) -> Option<f64> {
        self.shaping.cold_factor
    }

    /// Returns the shares of [memory](Self::memory) in use between which the threshold falls, and
    /// the threshold that it falls to; `None` if no shares were set.
    #[must_use]
    pub fn get_memory(&self) -> Option<(Range<f64>, f64)> {
        let falling = self.shaping.memory?;
        match falling.marks {
            Marks::Shares(from, to) => Some((from..to, falling.threshold)),
            Marks::Bytes(..) => None,
        }
    }

    /// Returns the [bytes of memory](Self::memory_bytes) in use between which the threshold falls,
    /// and the threshold that it falls to; `None` if no bytes were set.
    #[must_use]
    pub fn get_memory_bytes(&self) -> Option<(Range<u64>, f64)> {
        let falling = self.shaping.memory?;
        match falling.marks {
            Marks::Bytes(from, to) => Some((from..to, falling.threshold)),
            Marks::Shares(..) => None,
        }
    }

    /// Returns whether prioritized calls [may borrow](Self::lend), if that was set.
    #[must_use]
    pub const fn get_lend(&self) -> Option<bool> {
        self.lend
    }

    /// Returns the [largest fraction](Self::max_occupy_ratio) that may be lent.
    #[must_use]
    pub const fn get_max_occupy_ratio(&self) -> f64 {
        self.max_occupy_ratio
    }

    /// Returns how many calls [may wait](Self::max_waiting) at once.
    #[must_use]
    pub const fn get_max_waiting(&self) -> u32 {
        self.max_waiting.get()
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
