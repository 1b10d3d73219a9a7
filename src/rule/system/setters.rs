//! The constructor and setters of a system rule.

use std::time::Duration;

use super::super::problem::{Inspector, brief};
use super::{INBOUND, SystemRule};
use crate::base::number::{Number, WholeNumber};
use crate::stat::MAX_TOKENS;
use crate::system::{Capacity, Limits, RuleLimit};

impl SystemRule {
    /// Creates a rule without limits. At least one must be set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses calls while the load of the machine has reached `load` *and* more calls are in
    /// flight than the service can hold, by the [capacity](Self::capacity); two calls can always
    /// run. `load` is 0 or more; at 0 the capacity alone decides, as long as the load is known.
    ///
    /// The load is the number of threads of the whole machine that run or are ready to run,
    /// averaged over a minute. It reacts slowly, and in a container it is the load of the host:
    /// prefer [`cpu`](Self::cpu) there. This is the only limit that considers the capacity, as in
    /// Sentinel for Java.
    #[must_use]
    pub fn load(mut self, load: impl Into<Number>) -> Self {
        self.load = Some(load.into().get());
        self
    }

    /// Refuses calls while the share of the CPU that is in use has reached `share`, above 0
    /// and at most 1. The capacity is not considered.
    #[must_use]
    pub fn cpu(mut self, share: impl Into<Number>) -> Self {
        self.cpu = Some(share.into().get());
        self
    }

    /// Allows at most `qps` inbound calls per second, by weight: 0, or between 1 and 2³¹ − 1. 0
    /// refuses all calls except calls of [weight](crate::Call::batch) 0.
    ///
    /// A call is refused if the rate of the window plus the call's whole weight exceeds `qps`. So a
    /// `qps` between 0 and 1 would refuse the same calls as 0, and is invalid. With a
    /// [window](crate::Builder::window) of a second, this limits the weight in the window. With a
    /// longer window, the last calls under the limit are already refused; with a shorter window, a
    /// light call passes an empty window, although one such call per window can exceed `qps`.
    #[must_use]
    pub fn qps(mut self, qps: impl Into<Number>) -> Self {
        self.qps = Some(qps.into().get());
        self
    }

    /// Refuses calls while the average response time has reached `rt`, which is above 0.
    /// The average is over the calls that ended in the window, so when no calls end any
    /// more, calls pass again. A call that took longer than a minute counts as a minute, so
    /// a limit above that is never reached.
    ///
    /// So calls that are long by nature should not count here, such as long polls, or an
    /// [`Entry`](crate::Entry) that is kept while a connection lives: one call that ends after a
    /// minute or more, among a hundred quick calls, makes an average of over half a second. Count
    /// them in another engine.
    #[must_use]
    pub fn rt(mut self, rt: Duration) -> Self {
        self.rt = Some(rt);
        self
    }

    /// Allows at most `concurrency` inbound calls at once: between 0 and 2³¹ − 1. 0 refuses all
    /// calls.
    #[must_use]
    pub fn concurrency(mut self, concurrency: impl Into<WholeNumber>) -> Self {
        self.concurrency = Some(concurrency.into());
        self
    }

    /// Sets how the limit on the [load](Self::load) estimates what the service can hold. If there
    /// are several rules, the setting of the rule with the tightest load applies. Default:
    /// [`Capacity::Robust`].
    #[must_use]
    pub fn capacity(mut self, capacity: Capacity) -> Self {
        self.capacity = capacity;
        self
    }

    /// Sets the name of the rule in refusals. Default: its kind and its place in the set,
    /// such as `system-2`.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns `__inbound__`: the rule is for all inbound calls, not for a resource.
    #[must_use]
    pub fn resource(&self) -> &str {
        INBOUND
    }

    /// Makes `limits` at least as tight as this rule, which is at `index`.
    pub(crate) fn tighten(&self, limits: &mut Limits, index: u32) {
        let load = RuleLimit::tighter(limits.load, self.load, index);
        if load != limits.load {
            limits.capacity = self.capacity;
        }
        *limits = Limits {
            qps: RuleLimit::tighter(limits.qps, self.qps, index),
            concurrency: RuleLimit::tighter(
                limits.concurrency,
                self.concurrency.map(WholeNumber::get),
                index,
            ),
            rt: RuleLimit::tighter(limits.rt, self.rt, index),
            load,
            cpu: RuleLimit::tighter(limits.cpu, self.cpu, index),
            capacity: limits.capacity,
        };
    }

    pub(super) fn inspect(&self, inspector: &mut Inspector) {
        let mut own = Limits::default();
        self.tighten(&mut own, 0);
        if own.is_empty() {
            let allowed = "at least one of load, cpu, qps, rt and concurrency";
            inspector.refuse("limits", "none", allowed);
        }
        if let Some(load) = self.load.filter(|load| !(0.0..=f64::MAX).contains(load)) {
            inspector.refuse("load", brief(load), "0 or more, and finite");
        }
        if let Some(cpu) = self.cpu {
            inspector.fraction("cpu", cpu);
        }
        if let Some(qps) = self.qps {
            inspector.number("qps", qps, 0..=MAX_TOKENS);
            let cure = "give each resource a `FlowRule` with `throttle`";
            inspector.whole_call("qps", qps, Duration::from_secs(1), cure);
        }
        if self.rt.is_some_and(|rt| rt.is_zero()) {
            inspector.refuse("rt", "0ns", "above 0");
        }
        if let Some(concurrency) = self.concurrency {
            inspector.number("concurrency", concurrency, 0..=MAX_TOKENS);
        }
    }
}
