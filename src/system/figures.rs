//! Decides whether an inbound call may pass, based on the figures of all inbound calls and of the
//! machine.
//!
//! The module has only plain data and a pure function: the engine reads the figures and calls the
//! function. The limits are checked in the order of Alibaba Sentinel: rate, concurrency, response
//! time, load, CPU. The first limit that is reached refuses the call.

use std::time::Duration;

use super::capacity::Estimate;
use super::limits::{Limits, reaches};
use super::probe::Readings;
use crate::blocked::SystemReason;
use crate::clock::Tick;
use crate::stat::{Event, Node};

/// The figures of all inbound calls together, without the call that is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InboundFigures {
    /// The weight that passed in the window, per second.
    pub(crate) pass_qps: f64,
    /// The number of calls in flight, without the call that is judged.
    pub(crate) concurrency: u32,
    /// The average response time; `None` if no call ended in the window.
    pub(crate) average_rt: Option<Duration>,
    /// The estimated number of concurrent calls that the service can handle without a queue.
    pub(crate) capacity: Estimate,
}

/// Checks whether a call of `weight` may pass.
///
/// With this call, the limits on the rate and on the concurrency may be reached but not exceeded.
/// All other limits refuse calls once they are reached. The limit on the load refuses a call only
/// if the number of calls in flight is above the capacity and above one, because a service with few
/// calls does not cause the load.
pub(crate) fn judge(
    limits: &Limits,
    figures: &InboundFigures,
    readings: Readings,
    weight: u32,
) -> Result<(), SystemReason> {
    let qps = figures.pass_qps + f64::from(weight);
    if limits.qps.is_some_and(|limit| qps > limit.value) {
        return Err(SystemReason::Qps);
    }
    let concurrency = figures.concurrency;
    if limits.concurrency.is_some_and(|it| concurrency >= it.value) {
        return Err(SystemReason::Concurrency);
    }
    if reaches(figures.average_rt, limits.rt) {
        return Err(SystemReason::Rt);
    }
    if limits.is_load_reached(readings) && figures.is_over_capacity() {
        return Err(SystemReason::Load);
    }
    if reaches(readings.cpu(), limits.cpu) {
        return Err(SystemReason::Cpu);
    }
    Ok(())
}

// === impl InboundFigures ===

impl InboundFigures {
    /// Reads from `node` the figures that `limits` need. To save time, all other figures are not
    /// read, and get values that refuse nothing.
    pub(crate) fn of(node: &Node, now: Tick, limits: &Limits, readings: Readings) -> Self {
        let is_load_reached = limits.is_load_reached(readings);
        let asks_concurrency = limits.concurrency.is_some() || is_load_reached;
        Self {
            pass_qps: limits.qps.map_or(0.0, |_| node.qps(now, Event::Pass)),
            concurrency: if asks_concurrency {
                node.concurrency(now)
            } else {
                0
            },
            average_rt: limits.rt.and_then(|_| node.average_rt(now)),
            capacity: if is_load_reached {
                limits.capacity.estimate(node, now)
            } else {
                Estimate::INITIAL
            },
        }
    }

    /// Returns whether more calls than the capacity, and more than one, are in flight.
    fn is_over_capacity(&self) -> bool {
        self.concurrency > 1 && f64::from(self.concurrency) > self.capacity.calls()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::super::capacity::Capacity;
    use super::super::limits::RuleLimit;
    use super::*;

    const IDLE: InboundFigures = InboundFigures {
        pass_qps: 0.0,
        concurrency: 0,
        average_rt: None,
        capacity: Estimate::INITIAL,
    };

    fn limit<T>(value: T) -> Option<RuleLimit<T>> {
        Some(RuleLimit { value, rule: 0 })
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn load(load: f64) -> Readings {
        Readings::new(Some(load), None)
    }

    fn cpu(cpu: f64) -> Readings {
        Readings::new(None, Some(cpu))
    }

    #[test]
    fn the_rate_includes_the_judged_call() {
        let limits = |qps| Limits {
            qps: limit(qps),
            ..Limits::default()
        };
        // The limit, the passed rate, the weight, and whether the call may pass.
        let table = [
            (10.0, 9.0, 1, true),
            (10.0, 10.0, 1, false),
            (10.0, 8.0, 2, true),
            (10.0, 9.0, 2, false),
            (10.5, 9.0, 1, true),
            (10.5, 10.0, 1, false),
            (0.0, 0.0, 1, false),
            (0.0, 0.0, 0, true),
            (10.0, 0.0, 11, false),
        ];
        for (qps, pass_qps, weight, passes) in table {
            let figures = InboundFigures { pass_qps, ..IDLE };
            let verdict = judge(&limits(qps), &figures, Readings::UNKNOWN, weight);
            let expected = if passes {
                Ok(())
            } else {
                Err(SystemReason::Qps)
            };
            assert_eq!(verdict, expected, "{qps} {pass_qps} {weight}");
        }
    }

    #[test]
    fn no_more_than_the_limit_run_at_once() {
        for (most, running, passes) in [(3, 2, true), (3, 3, false), (3, 4, false), (0, 0, false)] {
            let limits = Limits {
                concurrency: limit(most),
                ..Limits::default()
            };
            let figures = InboundFigures {
                concurrency: running,
                ..IDLE
            };
            let verdict = judge(&limits, &figures, Readings::UNKNOWN, 1);
            assert_eq!(verdict.is_ok(), passes, "{running} of {most}");
        }
    }

    #[test]
    fn an_average_that_reaches_its_limit_refuses() {
        let limits = Limits {
            rt: limit(ms(50)),
            ..Limits::default()
        };
        let nearly = ms(50) - Duration::from_nanos(1);
        let table = [
            (None, true),
            (Some(nearly), true),
            (Some(ms(50)), false),
            (Some(ms(51)), false),
        ];
        for (average_rt, passes) in table {
            let figures = InboundFigures { average_rt, ..IDLE };
            let verdict = judge(&limits, &figures, Readings::UNKNOWN, 1);
            assert_eq!(verdict.is_ok(), passes, "{average_rt:?}");
        }
    }

    /// Returns the next smaller floating-point number than `value`, which must be above 0.
    fn below(value: f64) -> f64 {
        f64::from_bits(value.to_bits() - 1)
    }

    #[test]
    fn the_cpu_refuses_whatever_is_in_flight() {
        let limits = Limits {
            cpu: limit(0.8),
            ..Limits::default()
        };
        let table = [(below(0.8), true), (0.8, false), (1.0, false)];
        for (usage, passes) in table {
            let verdict = judge(&limits, &IDLE, cpu(usage), 1);
            assert_eq!(verdict.is_ok(), passes, "{usage}");
        }
    }

    #[test]
    fn at_a_high_load_a_capacity_of_two_admits_a_third_call_and_no_fourth() {
        // The capacity is 2: 50 completions in the best of two buckets per second, times 20 ms.
        let limits = Limits {
            load: limit(4.0),
            ..Limits::default()
        };
        let table = [
            // The load, the calls in flight, and whether the call may pass.
            (4.0, 2, true),
            (4.0, 3, false),
            (9.0, 2, true),
            (9.0, 3, false),
            (below(4.0), 3, true),
            (0.0, 1_000, true),
        ];
        for (now, concurrency, passes) in table {
            let figures = InboundFigures {
                concurrency,
                capacity: Estimate {
                    max_complete_per_second: 100.0,
                    min_rt: ms(20),
                },
                ..IDLE
            };
            let verdict = judge(&limits, &figures, load(now), 1);
            assert_eq!(verdict.is_ok(), passes, "load {now}, {concurrency}");
        }
    }

    #[test]
    fn the_load_refuses_no_call_while_one_is_in_flight() {
        let limits = Limits {
            load: limit(0.0),
            ..Limits::default()
        };
        for (concurrency, passes) in [(0, true), (1, true), (2, false)] {
            let figures = InboundFigures {
                concurrency,
                capacity: Estimate {
                    max_complete_per_second: 1.0,
                    min_rt: ms(1),
                },
                ..IDLE
            };
            let verdict = judge(&limits, &figures, load(100.0), 1);
            assert_eq!(verdict.is_ok(), passes, "{concurrency}");
        }
    }

    #[test]
    fn without_completions_the_load_admits_an_eleventh_call() {
        let limits = Limits {
            load: limit(1.0),
            ..Limits::default()
        };
        for (concurrency, passes) in [(10, true), (11, false)] {
            let figures = InboundFigures {
                concurrency,
                ..IDLE
            };
            let verdict = judge(&limits, &figures, load(2.0), 1);
            assert_eq!(verdict.is_ok(), passes, "{concurrency}");
        }
    }

    #[test]
    fn unknown_figures_refuse_nothing() {
        let limits = Limits {
            load: limit(0.0),
            cpu: limit(f64::MIN_POSITIVE),
            rt: limit(Duration::from_nanos(1)),
            ..Limits::default()
        };
        let figures = InboundFigures {
            concurrency: 1_000,
            ..IDLE
        };
        let odd = [f64::NAN, -1.0, f64::INFINITY, f64::NEG_INFINITY];
        let unknown = odd.map(|odd| Readings::new(Some(odd), Some(odd)));
        for readings in unknown.into_iter().chain([Readings::UNKNOWN]) {
            assert_eq!(readings, Readings::UNKNOWN);
            assert_eq!(judge(&limits, &figures, readings, 1), Ok(()));
        }
        // A limit that is not set refuses nothing either.
        let worst = InboundFigures {
            pass_qps: 1e9,
            average_rt: Some(ms(60_000)),
            ..figures
        };
        let worst_readings = Readings::new(Some(1e9), Some(1.0));
        assert!(Limits::default().is_empty());
        assert_eq!(judge(&Limits::default(), &worst, worst_readings, 9), Ok(()));
    }

    /// Restates the documentation of `judge`, and returns every broken limit, in order.
    fn oracle(
        limits: &Limits,
        figures: &InboundFigures,
        readings: Readings,
        weight: u32,
    ) -> Vec<SystemReason> {
        let mut broken = Vec::new();
        if let Some(limit) = limits.qps {
            if figures.pass_qps + f64::from(weight) > limit.value {
                broken.push(SystemReason::Qps);
            }
        }
        if let Some(limit) = limits.concurrency {
            if figures.concurrency + 1 > limit.value {
                broken.push(SystemReason::Concurrency);
            }
        }
        if let (Some(limit), Some(rt)) = (limits.rt, figures.average_rt) {
            if rt >= limit.value {
                broken.push(SystemReason::Rt);
            }
        }
        if let (Some(limit), Some(load)) = (limits.load, readings.load()) {
            // Computed in integers: calls per second times milliseconds.
            let Estimate {
                max_complete_per_second,
                min_rt,
            } = figures.capacity;
            let room = max_complete_per_second as u128 * min_rt.as_millis();
            let many = u128::from(figures.concurrency) * 1_000;
            if load >= limit.value && figures.concurrency > 1 && many > room {
                broken.push(SystemReason::Load);
            }
        }
        if let (Some(limit), Some(cpu)) = (limits.cpu, readings.cpu()) {
            if cpu >= limit.value {
                broken.push(SystemReason::Cpu);
            }
        }
        broken
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let quarter = |most: u32| (0..most).prop_map(|n| f64::from(n) / 4.0);
        (
            proptest::option::of(quarter(40)),
            proptest::option::of(0..12_u32),
            proptest::option::of((1..20_u64).prop_map(ms)),
            proptest::option::of(quarter(12)),
            proptest::option::of(quarter(5)),
        )
            .prop_map(|(qps, concurrency, rt, load, cpu)| Limits {
                qps: RuleLimit::tighter(None, qps, 1),
                concurrency: RuleLimit::tighter(None, concurrency, 2),
                rt: RuleLimit::tighter(None, rt, 3),
                load: RuleLimit::tighter(None, load, 4),
                cpu: RuleLimit::tighter(None, cpu, 5),
                capacity: Capacity::default(),
            })
    }

    fn figures() -> impl Strategy<Value = InboundFigures> {
        (
            0..12_u32,
            0..12_u32,
            proptest::option::of((0..25_u64).prop_map(ms)),
            0..400_u32,
            1..30_u64,
        )
            .prop_map(
                |(passed, concurrency, average_rt, most, min_rt)| InboundFigures {
                    pass_qps: passed.into(),
                    concurrency,
                    average_rt,
                    capacity: Estimate {
                        max_complete_per_second: most.into(),
                        min_rt: ms(min_rt),
                    },
                },
            )
    }

    fn readings() -> impl Strategy<Value = Readings> {
        let quarter = |most: i32| (-2..most).prop_map(|n| f64::from(n) / 4.0);
        let load = proptest::option::of(quarter(16));
        let cpu = proptest::option::of(quarter(5));
        (load, cpu).prop_map(|(load, cpu)| Readings::new(load, cpu))
    }

    proptest! {
        #[test]
        fn the_first_broken_limit_is_the_reason(
            limits in limits(),
            figures in figures(),
            readings in readings(),
            weight in 0..4_u32,
        ) {
            let broken = oracle(&limits, &figures, readings, weight);
            let verdict = judge(&limits, &figures, readings, weight);
            prop_assert_eq!(verdict.err(), broken.first().copied());
            if let Err(reason) = verdict {
                prop_assert!(limits.rule(reason).is_some());
            }
            // Figures that no limit needs do not change the verdict.
            if !limits.is_load_reached(readings) {
                let other = InboundFigures { capacity: Estimate { max_complete_per_second: 0.0, ..figures.capacity }, ..figures };
                prop_assert_eq!(judge(&limits, &other, readings, weight), verdict);
            }
            if !limits.asks_machine() {
                prop_assert_eq!(judge(&limits, &figures, Readings::UNKNOWN, weight), verdict);
            }
        }
    }
}
