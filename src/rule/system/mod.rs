//! System rules: limits on all inbound calls together, and on the load of the machine.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;

use std::time::Duration;

use super::problem::{Inspector, brief};
use crate::base::number::{Number, WholeNumber};
use crate::stat::MAX_TOKENS;
use crate::system::{Capacity, Limits, RuleLimit};

/// The name that system rules have in place of a resource.
const INBOUND: &str = "__inbound__";

/// Limits all inbound calls to all resources together.
///
/// Other rules protect one resource and need a threshold each. This rule protects the
/// process: it looks at the sum of all calls that this process serves, and at the machine.
/// Outbound calls are neither counted nor refused.
///
/// A rule sets one or more of five limits; a figure without a limit is not limited. If there are
/// several rules, the tightest limit of each kind applies.
///
/// | limit | refuses a call | looks at |
/// |---|---|---|
/// | [`qps`](Self::qps) | that would exceed it | weight that passed in the window, per second |
/// | [`concurrency`](Self::concurrency) | that would exceed it | calls in flight |
/// | [`rt`](Self::rt) | once it is reached | average response time of the window |
/// | [`load`](Self::load) | once it is reached, beyond the [capacity](Self::capacity) | load of the machine |
/// | [`cpu`](Self::cpu) | once it is reached | share of the CPU in use |
///
/// The limits are checked in this order. The window is that of
/// [`Builder::window`](crate::Builder::window), the last second unless set otherwise. Calls
/// are counted from when the engine first has a system rule: calls that are already running
/// then, or have passed, do not count. An unknown figure refuses no call: the response time
/// while no call has ended, and the load and the CPU while no
/// [`Probe`](crate::system::Probe) reports them.
/// [`Blocked::system_reason`](crate::Blocked::system_reason) returns the limit that refused
/// a call.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{BlockKind, Call, Sentinel, SystemRule, Verdict};
///
/// let rule = SystemRule::new()
///     .qps(20_000)
///     .concurrency(500)
///     .rt(Duration::from_millis(400))
///     .cpu(0.85);
/// assert_eq!(rule.resource(), "__inbound__");
///
/// let rule = SystemRule::new().concurrency(1);
/// let sentinel = Sentinel::new(rule);
/// let Verdict::Pass(_running) = sentinel.try_enter(Call::new("a")) else {
///     panic!("one may run");
/// };
/// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("b")) else {
///     panic!("and no other, whatever it calls");
/// };
/// assert_eq!(blocked.kind(), BlockKind::System);
/// ```
///
/// # Accuracy
///
/// Rate and concurrency are checked first and counted afterwards: calls that arrive at the
/// same instant may pass together, at most one more for each thread that judges calls. For
/// an exact limit use a [`FlowRule`](super::FlowRule) or an
/// [`IsolationRule`](super::IsolationRule). Load and CPU are up to a second old, or as old
/// as the period of a [spawned](crate::system::Sampler::spawn) sampler.
///
/// # Source
///
/// `SystemRule` of Sentinel. There the last rule of a set decides whether any applies, the
/// concurrency may exceed its limit by one, and response time, load and CPU must exceed
/// their limits instead of reaching them.
#[doc(alias("load_shedding", "LoadShed", "overload"))]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemRule {
    load: Option<f64>,
    cpu: Option<f64>,
    qps: Option<f64>,
    rt: Option<Duration>,
    concurrency: Option<WholeNumber>,
    capacity: Capacity,
    pub(super) id: Option<String>,
}

impl SystemRule {
    /// Creates a rule without limits. At least one must be set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses calls while the load of the machine has reached `load` *and* more calls are
    /// in flight than the service can hold, by the [capacity](Self::capacity); two calls
    /// may always run. `load` is 0 or more; at 0 the capacity alone decides, wherever the
    /// load is known.
    ///
    /// The load is the number of threads of the whole machine that run or are ready to run,
    /// averaged over a minute. It reacts slowly, and in a container it is that of the host:
    /// prefer [`cpu`](Self::cpu) there. This is the only limit that looks at the capacity,
    /// as in Sentinel for Java.
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

    /// Allows at most `qps` inbound calls per second, by weight: 0, or between 1 and 2³¹ − 1.
    /// 0 refuses all calls except those of [weight](crate::Call::batch) 0.
    ///
    /// A call is refused if the rate of the window and its whole weight together exceed
    /// `qps`. So a `qps` between 0 and 1 would refuse what 0 refuses, and is invalid. With a
    /// [window](crate::Builder::window) of a second, this limits what the window holds.
    /// With a longer window, the last calls under the limit are already refused; with a
    /// shorter one, a light call passes an empty window, although one such call per window
    /// may exceed `qps`.
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
    /// So do not count calls here that are long by nature, such as long polls, or an
    /// [`Entry`](crate::Entry) that is kept while a connection lives: one that ends after a
    /// minute or more, among a hundred quick calls, makes an average of over half a second.
    /// Count them in another engine.
    #[must_use]
    pub fn rt(mut self, rt: Duration) -> Self {
        self.rt = Some(rt);
        self
    }

    /// Allows at most `concurrency` inbound calls at once: between 0 and 2³¹ − 1. 0 refuses
    /// all.
    #[must_use]
    pub fn concurrency(mut self, concurrency: impl Into<WholeNumber>) -> Self {
        self.concurrency = Some(concurrency.into());
        self
    }

    /// Sets how the limit on the [load](Self::load) estimates what the service can hold. If
    /// there are several rules, that of the rule with the tightest load applies. Default:
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

    /// Makes `limits` as tight as this rule, which is the one at `index`.
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

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::rule::problem::problems;
    use crate::system::SystemReason;

    fn limits(rules: &[SystemRule]) -> Limits {
        let mut limits = Limits::default();
        for (index, rule) in (0..).zip(rules) {
            rule.tighten(&mut limits, index);
        }
        limits
    }

    #[test]
    fn a_bad_value_is_named_with_its_field_and_range() {
        let rule = SystemRule::new;
        let table = [
            (
                rule(),
                "limits is none, must be at least one of load, cpu, qps, rt and concurrency",
            ),
            (
                rule().load(-0.5),
                "load is -0.5, must be 0 or more, and finite",
            ),
            (
                rule().load(f64::NAN),
                "load is NaN, must be 0 or more, and finite",
            ),
            (
                rule().load(f64::INFINITY),
                "load is inf, must be 0 or more, and finite",
            ),
            (rule().cpu(0), "cpu is 0, must be above 0 and at most 1"),
            (rule().cpu(85), "cpu is 85, must be above 0 and at most 1"),
            (
                rule().cpu(f64::NAN),
                "cpu is NaN, must be above 0 and at most 1",
            ),
            (
                rule().qps(-1),
                "qps is -1, must be between 0 and 2147483647",
            ),
            (
                rule().qps(f64::NAN),
                "qps is NaN, must be between 0 and 2147483647",
            ),
            (
                rule().qps(2_147_483_648_u32),
                "qps is 2147483648, must be between 0 and 2147483647",
            ),
            (rule().rt(Duration::ZERO), "rt is 0ns, must be above 0"),
            (
                rule().concurrency(u32::MAX),
                "concurrency is 4294967295, must be between 0 and 2147483647",
            ),
        ];
        for (rule, expected) in table {
            assert_eq!(problems(rule.clone()), [expected], "{rule:?}");
        }
        let worst = rule()
            .load(-1)
            .cpu(2)
            .qps(-1)
            .rt(Duration::ZERO)
            .concurrency(u32::MAX);
        assert_eq!(problems(worst).len(), 5);
    }

    #[test]
    fn the_ends_of_the_ranges_are_allowed() {
        let lowest = SystemRule::new()
            .load(0)
            .cpu(f64::MIN_POSITIVE)
            .qps(0)
            .rt(Duration::from_nanos(1))
            .concurrency(0);
        let highest = SystemRule::new()
            .load(f64::MAX)
            .cpu(1)
            .qps(MAX_TOKENS)
            .rt(Duration::MAX)
            .concurrency(MAX_TOKENS);
        for rule in [lowest, highest] {
            assert_eq!(problems(rule), [""; 0]);
        }
    }

    #[test]
    fn the_tightest_of_each_kind_applies_in_any_order() {
        let rules = [
            SystemRule::new()
                .qps(8)
                .load(2)
                .capacity(Capacity::Sentinel),
            SystemRule::new().qps(3).concurrency(10),
            SystemRule::new().concurrency(2).load(5),
            // A rule that adds nothing takes nothing away.
            SystemRule::new().cpu(1),
        ];
        let tightest = limits(&rules);
        assert_eq!(tightest.qps.map(|it| (it.value, it.rule)), Some((3.0, 1)));
        assert_eq!(
            tightest.concurrency.map(|it| (it.value, it.rule)),
            Some((2, 2))
        );
        assert_eq!(tightest.load.map(|it| (it.value, it.rule)), Some((2.0, 0)));
        assert_eq!(tightest.rt, None);
        assert_eq!(tightest.capacity, Capacity::Sentinel);
        assert_eq!(tightest.rule(SystemReason::Qps), Some(1));
        assert_eq!(tightest.rule(SystemReason::Rt), None);

        let mut reversed = rules;
        reversed.reverse();
        let reversed = limits(&reversed);
        assert_eq!(reversed.qps.map(|it| it.value), Some(3.0));
        assert_eq!(reversed.capacity, Capacity::Sentinel);
    }

    #[test]
    fn of_equal_limits_the_first_is_named() {
        let rules = [
            SystemRule::new().load(2),
            SystemRule::new().load(2).capacity(Capacity::Sentinel),
        ];
        let limits = limits(&rules);
        assert_eq!(limits.rule(SystemReason::Load), Some(0));
        assert_eq!(limits.capacity, Capacity::Robust);
    }
}
