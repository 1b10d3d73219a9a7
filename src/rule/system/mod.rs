//! System rules: limits on all inbound calls together, and on the load of the machine.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;
mod setters;

use std::time::Duration;

use crate::base::number::WholeNumber;
use crate::system::Capacity;

/// The name that system rules have in place of a resource.
const INBOUND: &str = "__inbound__";

/// Limits all inbound calls to all resources together.
///
/// Other rules protect one resource and need a threshold each. This rule protects the process: it
/// judges by the sum of all calls that this process serves, and by figures of the machine. Outbound
/// calls are neither counted nor refused.
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
/// The limits are checked in this order. The window is set by
/// [`Builder::window`](crate::Builder::window); it is the last second by default. Calls are counted
/// from when the engine first has a system rule: calls that are already running then, or have
/// passed, do not count. An unknown figure refuses no call: the response time while no call has
/// ended, and the load and the CPU while no [`Probe`](crate::system::Probe) reports them.
/// [`Blocked::system_reason`](crate::Blocked::system_reason) returns the limit that refused a call.
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
/// `SystemRule` of Alibaba Sentinel. There the last rule of a set decides whether any rule applies,
/// the concurrency may exceed its limit by one, and response time, load and CPU must exceed their
/// limits instead of reaching them.
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

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::rule::problem::problems;
    use crate::stat::MAX_TOKENS;
    use crate::system::{Limits, SystemReason};

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
            // A looser limit leaves the tighter one in force.
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
