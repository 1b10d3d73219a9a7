//! Tests of the adaptive limit on a simulated service with 20 slots and 50 ms of work per call, at
//! three times its capacity.

use std::time::Duration;

use super::simulation::{Model, Policy, Trouble, Work};
use super::trace::Trace;
use super::{CallEnd, Limiter, LimiterSettings};
use crate::call::{Criticality, Importance};
use crate::clock::Tick;
use crate::stat::{Ends, Outcome};

/// Returns the importance of a call of the class at this index, without a cohort.
pub(super) fn of_class(index: usize) -> Importance {
    Importance::of(Criticality::ALL[index])
}

impl Policy for Limiter {
    fn limit(&self) -> u32 {
        self.estimate() as u32
    }

    fn admits(&self, class: usize, in_flight: u32) -> bool {
        let is_free = in_flight < self.bound(of_class(class));
        if !is_free {
            self.refused(of_class(class), || in_flight);
        }
        is_free
    }

    fn ended(&self, now: Tick, rt: Duration, in_flight: u32, ended: u64) {
        let call = CallEnd {
            now,
            rt,
            outcome: Some(Outcome::Success),
        };
        Limiter::ended(self, call, || in_flight, || Ends::of(ended + 1));
    }
}

/// The seeds with which each model is run.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

/// Creates a duration of this many seconds.
const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Creates a limiter with this floor and first limit.
fn limiter(floor: u32, start: u32) -> Limiter {
    let settings = LimiterSettings {
        floor,
        ceiling: 200,
        start,
        burst: Duration::ZERO,
    };
    Limiter::new(settings, Tick::ZERO)
}

/// Asserts that the limit is within `limits` for at least 95 % of the time between `from` and `to`.
/// Probes may lower it for the rest of the time.
#[track_caller]
fn assert_stays(trace: &Trace, limits: (u32, u32), from: Duration, to: Duration, what: &str) {
    let share = trace.share_within(limits, from, to);
    assert!(share >= 0.95, "{what}: {share} within {limits:?}");
}

/// Returns the range of good limits for a service with this many slots. Within it, hardly a worker
/// is idle, and calls take at most 1.65 × as long as without a queue.
const fn around(slots: u32) -> (u32, u32) {
    (slots * 9 / 10, slots * 33 / 20)
}

/// Returns a model for each kind of work and each seed, with its description.
fn models() -> impl Iterator<Item = (String, Model)> {
    [Work::Fixed, Work::Even].into_iter().flat_map(|work| {
        SEEDS.map(move |seed| {
            let model = Model::new(seed).with_work(work);
            (format!("{work:?} work, seed {seed}"), model)
        })
    })
}

#[test]
fn the_limit_finds_the_slots_of_an_unknown_service() {
    for (what, model) in models() {
        for start in [1, 20, 100, 200] {
            let limiter = limiter(1, start);
            let trace = model.run(&limiter, s(60));
            let what = format!("{what}, from {start}");
            assert_stays(&trace, around(20), s(30), s(60), &what);
            let p99 = trace.quantile(0.99, s(30), s(60));
            assert!(p99 <= Duration::from_millis(100), "{what}: {p99:?}");
            // The capacity of the service is 400 calls per second.
            let throughput = trace.throughput(s(30), s(60));
            assert!(throughput > 0.97 * 400.0, "{what}: {throughput}");
            let shed = trace.shed_count() as f64 / trace.arrived() as f64;
            assert!((0.6..0.72).contains(&shed), "{what}: {shed}");
        }
    }
}

#[test]
fn the_limit_follows_within_5_s_when_half_of_the_slots_are_gone() {
    for work in [Work::Fixed, Work::Even] {
        for seed in SEEDS {
            let model = Model::new(seed).with_work(work);
            let model = model.then(s(30), Trouble::Slots(10));
            let trace = model.run(&limiter(1, 20), s(60));
            let what = format!("{work:?} work, seed {seed}");
            let share = trace.share_within(around(10), s(35), s(60));
            assert!(share >= 0.75, "{what}: {share}");
        }
    }
}

#[test]
fn the_limit_follows_when_slots_are_added() {
    for (what, model) in models() {
        let model = model.then(s(30), Trouble::Slots(40));
        let trace = model.run(&limiter(1, 20), s(60));
        assert_stays(&trace, around(40), s(40), s(60), &what);
    }
}

#[test]
fn the_limit_is_back_10_s_after_a_spike_and_never_below_the_floor() {
    let spikes = [
        ("stall", Trouble::Slots(0), Trouble::Slots(20)),
        ("× 10", Trouble::Slowdown(10.0), Trouble::Slowdown(1.0)),
        ("× 40", Trouble::Slowdown(40.0), Trouble::Slowdown(1.0)),
    ];
    for (what, model) in models() {
        for (spike, begin, end) in spikes {
            let model = model.clone().then(s(30), begin).then(s(32), end);
            for floor in [1, 8] {
                let trace = model.run(&limiter(floor, 20), s(60));
                let what = format!("{what}, {spike}, floor {floor}");
                let (lowest, _) = trace.limits_between(s(0), s(60));
                assert!(lowest >= floor, "{what}: {lowest}");
                // At a limit of 80, calls take four times as long as without a queue.
                let (least, most) = trace.limits_between(s(42), s(60));
                assert!(
                    (18..=80).contains(&least) && most <= 80,
                    "{what}: {least} {most}"
                );
            }
        }
    }
}

#[test]
fn work_that_becomes_slower_for_good_costs_no_slots() {
    for (what, model) in models() {
        let model = model.then(s(30), Trouble::Slowdown(4.0));
        let trace = model.run(&limiter(1, 20), s(90));
        assert_stays(&trace, around(20), s(60), s(90), &what);
    }
}

#[test]
fn the_limit_does_not_change_at_low_load() {
    for (what, model) in models() {
        let limiter = limiter(1, 20);
        let model = model.then(s(30), Trouble::Loads(Model::alone(0.3)));
        let trace = model.run(&limiter, s(60));
        // Checked from 31 s on, when the last window under load has closed, and a probe has ended.
        let (lowest, highest) = trace.limits_between(s(31), s(60));
        assert_eq!(lowest, highest, "{what}");
    }
}

#[test]
fn widely_spread_work_moves_the_limit_but_wastes_no_capacity() {
    for seed in SEEDS {
        let model = Model::new(seed).with_work(Work::Exponential);
        let trace = model.run(&limiter(1, 20), s(60));
        let throughput = trace.throughput(s(30), s(60));
        assert!(throughput > 0.9 * 400.0, "seed {seed}: {throughput}");
        assert_stays(&trace, (15, 90), s(30), s(60), &format!("seed {seed}"));
    }
}
