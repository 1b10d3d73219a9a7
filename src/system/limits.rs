//! The tightest limits of all system rules, each with its rule.

use std::time::Duration;

use super::capacity::Capacity;
use super::probe::Readings;
use crate::blocked::SystemReason;

/// A limit with the number of its rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RuleLimit<T> {
    pub(crate) value: T,
    /// The number of the rule.
    pub(crate) rule: u32,
}

/// The tightest limits of all system rules, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    pub(crate) qps: Option<RuleLimit<f64>>,
    pub(crate) concurrency: Option<RuleLimit<u32>>,
    pub(crate) rt: Option<RuleLimit<Duration>>,
    pub(crate) load: Option<RuleLimit<f64>>,
    pub(crate) cpu: Option<RuleLimit<f64>>,
    /// The capacity setting of the rule with the tightest limit on the load.
    pub(crate) capacity: Capacity,
}

/// Returns whether `value` is known and at least `limit`.
pub(super) fn reaches<T: PartialOrd>(value: Option<T>, limit: Option<RuleLimit<T>>) -> bool {
    matches!((value, limit), (Some(value), Some(limit)) if value >= limit.value)
}

// === impl Limits ===

impl Limits {
    /// Returns whether no limit is set.
    pub(crate) fn is_empty(&self) -> bool {
        let machine = self.load.is_none() && self.cpu.is_none();
        machine && self.qps.is_none() && self.concurrency.is_none() && self.rt.is_none()
    }

    /// Returns these limits with the numbers of their rules mapped by `number`.
    pub(crate) fn renumbered(self, number: &mut dyn FnMut(u32) -> u32) -> Self {
        let mut limits = self;
        let rules = [
            limits.qps.as_mut().map(|limit| &mut limit.rule),
            limits.concurrency.as_mut().map(|limit| &mut limit.rule),
            limits.rt.as_mut().map(|limit| &mut limit.rule),
            limits.load.as_mut().map(|limit| &mut limit.rule),
            limits.cpu.as_mut().map(|limit| &mut limit.rule),
        ];
        for rule in rules.into_iter().flatten() {
            *rule = number(*rule);
        }
        limits
    }

    /// Returns whether a limit needs the figures of the machine.
    pub(crate) fn asks_machine(&self) -> bool {
        self.load.is_some() || self.cpu.is_some()
    }

    /// Returns whether the limit on the load is reached. Otherwise the capacity is not needed.
    pub(super) fn is_load_reached(&self, readings: Readings) -> bool {
        reaches(readings.load(), self.load)
    }

    /// Returns the number of the rule with the limit that `reason` names.
    pub(crate) fn rule(&self, reason: SystemReason) -> Option<u32> {
        match reason {
            SystemReason::Qps => self.qps.map(|limit| limit.rule),
            SystemReason::Concurrency => self.concurrency.map(|limit| limit.rule),
            SystemReason::Rt => self.rt.map(|limit| limit.rule),
            SystemReason::Load => self.load.map(|limit| limit.rule),
            SystemReason::Cpu => self.cpu.map(|limit| limit.rule),
        }
    }
}

impl<T: Copy + PartialOrd> RuleLimit<T> {
    /// Returns the smaller of `known` and `value`, or `known` if both are equal.
    pub(crate) fn tighter(known: Option<Self>, value: Option<T>, rule: u32) -> Option<Self> {
        match (known, value) {
            (Some(known), Some(value)) if known.value <= value => Some(known),
            (_, Some(value)) => Some(Self { value, rule }),
            (known, None) => known,
        }
    }
}
