//! Tests on the simulated service of what classes guarantee: a spike of the least important calls,
//! or another disturbance, costs the important calls nothing. Without a disturbance, no call is
//! refused.
//!
//! *Calm* is a load of 0.8 of the capacity: 0.04 critical, 0.36 normal (`SheddablePlus`), 0.40
//! sheddable calls. It lasts for 10 s. Then the trouble (a spike, a slowdown, or a loss of slots)
//! lasts for 15 s, and another 15 s of calm follow. Figures whose doc does not say otherwise cover
//! the time from 2 s after the start of the trouble until its end.

use std::time::Duration;

use super::simulation::{
    Arrivals, CRITICAL, Model, NORMAL, Policy, SHEDDABLE, Serving, Trouble, Work,
};
use super::{Limiter, LimiterSettings};
use crate::clock::Tick;

/// Creates a duration of this many milliseconds.
pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the trouble begins.
const BEGIN: Duration = ms(10_000);
/// When the trouble ends.
pub(super) const END: Duration = ms(25_000);
/// When the run ends.
const OVER: Duration = ms(40_000);

/// Returns the load of each class, as a multiple of the capacity.
pub(super) const fn loads(critical: f64, normal: f64, sheddable: f64) -> [f64; 4] {
    [0.0, critical, normal, sheddable]
}

/// The loads of calm, by class.
const CALM: [f64; 4] = loads(0.04, 0.36, 0.40);

/// A service, its trouble, and the patience of its clients.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) model: Model,
    /// The time after which clients no longer wait for an answer.
    deadline: Duration,
    /// When the trouble begins.
    pub(super) begin: Duration,
}

/// The results of a run of a scene.
#[derive(Clone, Copy, Debug)]
pub(super) struct SceneFigures {
    /// The fraction of the critical calls that were served in time, during the whole trouble.
    pub(super) critical: f64,
    /// The same fraction for the normal calls.
    pub(super) normal: f64,
    /// The fraction of the critical calls that were served in time, from 2 s after the start of the
    /// trouble.
    pub(super) critical_later: f64,
    /// The same fraction for the normal calls.
    pub(super) normal_later: f64,
    /// The same fraction for the sheddable calls.
    sheddable_later: f64,
    /// The work of the calls that ended in time, as a fraction of what the slots can do.
    pub(super) goodput: f64,
    pub(super) p99: Duration,
    /// The time until calls were served well again, as defined by
    /// [`Trace::settled`](super::trace::Trace::settled); `None` if they were not.
    pub(super) settled: Option<Duration>,
    /// The time from the end of the trouble to the last refusal.
    pub(super) last: Duration,
    shed_count: usize,
}

impl Scene {
    /// Creates a scene of calm, then the `trouble`, then calm again. The service has `slots` slots,
    /// and calls take `mean` on average.
    pub(super) fn new(slots: u32, mean: Duration, work: Work, trouble: Trouble) -> Self {
        let model = Model {
            slots,
            mean,
            work,
            arrivals: Arrivals::Random,
            loads: CALM,
            ..Model::new(0)
        };
        let back = match trouble {
            Trouble::Slots(_) => Trouble::Slots(slots),
            Trouble::Slowdown(_) => Trouble::Slowdown(1.0),
            Trouble::Loads(_) => Trouble::Loads(CALM),
        };
        Self {
            model: model.then(BEGIN, trouble).then(END, back),
            deadline: ms(1_000),
            begin: BEGIN,
        }
    }

    /// Changes the model of the scene.
    fn with(mut self, change: impl FnOnce(&mut Model)) -> Self {
        change(&mut self.model);
        self
    }

    /// Sets the time after which clients no longer wait.
    const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Makes the trouble start at the beginning of the run.
    fn cold(mut self) -> Self {
        let trouble = self.model.changes.remove(0).1;
        if let Trouble::Loads(loads) = trouble {
            self.model.loads = loads;
        }
        self.begin = Duration::ZERO;
        self
    }

    /// Runs the scene with a new limiter.
    fn run(&self, seed: u64) -> SceneFigures {
        self.run_by(&limiter(20, ms(500)), seed)
    }

    /// Runs the scene with this policy.
    pub(super) fn run_by(&self, policy: &dyn Policy, seed: u64) -> SceneFigures {
        let model = Model {
            seed,
            ..self.model.clone()
        };
        let trace = model.run(policy, OVER);
        let judged = self.begin + ms(2_000);
        let slots = match model.changes.first() {
            Some(&(_, Trouble::Slots(slots))) => slots,
            _ => model.slots,
        };
        let served = |class, from| trace.served(class, self.deadline, from, END);
        let work = match model.changes.first() {
            Some(&(_, Trouble::Slowdown(factor))) => model.mean.mul_f64(factor),
            _ => model.mean,
        };
        SceneFigures {
            critical: served(CRITICAL, self.begin),
            normal: served(NORMAL, self.begin),
            critical_later: served(CRITICAL, judged),
            normal_later: served(NORMAL, judged),
            sheddable_later: served(SHEDDABLE, judged),
            goodput: trace.goodput(self.deadline, judged, END) / f64::from(slots),
            p99: trace.quantile(0.99, judged, END),
            settled: trace.settled(CRITICAL, work, self.begin, END),
            last: trace.last_shed().saturating_sub(END),
            shed_count: trace.shed_count(),
        }
    }
}

/// Creates a limiter with this first limit and burst, and wide bounds.
pub(super) fn limiter(start: u32, burst: Duration) -> Limiter {
    let settings = LimiterSettings {
        floor: 1,
        ceiling: 100_000,
        start,
        burst,
    };
    Limiter::new(settings, Tick::ZERO)
}

/// A spike: twelve times as many sheddable calls as usual.
const SPIKE: Trouble = Trouble::Loads(loads(0.04, 0.36, 4.8));

/// The worst results that a run of a scene may have: see the fields of [`SceneFigures`]. Fractions
/// are in percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    pub(super) critical: f64,
    pub(super) normal: f64,
    pub(super) goodput: f64,
    pub(super) p99: Duration,
    pub(super) settled: Duration,
    pub(super) last: Duration,
}

/// The value of a bar that every run meets, for figures that a scene does not check.
const ANY: Duration = Duration::MAX;

/// Creates a bar from the fractions of critical calls, of normal calls and of goodput, and from
/// times.
const fn bar(parts: [f64; 3], p99: u64, settled: Duration, last: Duration) -> Bar {
    let [critical, normal, goodput] = parts;
    Bar {
        critical,
        normal,
        goodput,
        p99: ms(p99),
        settled,
        last,
    }
}

/// Returns the scenes with their names and bars.
pub(super) fn scenes() -> Vec<(&'static str, Scene, Bar)> {
    use Work::{Bimodal, Even, Exponential, Fixed};
    let spike = |slots, mean, work| Scene::new(slots, ms(mean), work, SPIKE);
    let common = |trouble| Scene::new(20, ms(50), Exponential, trouble);
    let all = 99.9;
    vec![
        (
            "spike, fixed",
            spike(20, 50, Fixed),
            bar([all, all, 95.0], 110, ms(1_000), ms(1_500)),
        ),
        (
            "spike, ±20 %",
            spike(20, 50, Even),
            bar([all, all, 95.0], 110, ms(1_000), ms(1_500)),
        ),
        (
            "spike, exponential",
            spike(20, 50, Exponential),
            bar([all, all, 95.0], 345, ms(1_000), ms(1_500)),
        ),
        (
            "spike, 5 000/s",
            spike(100, 20, Exponential),
            bar([all, all, 96.0], 120, ms(500), ms(1_500)),
        ),
        // The limit starts at 20, and must grow to 500. With one seed of twenty, the service
        // settles late.
        (
            "spike, 50 000/s",
            spike(500, 10, Exponential),
            bar([all, all, 93.0], 60, ms(6_000), ms(1_500)),
        ),
        (
            "spike, bimodal",
            spike(20, 50, Bimodal),
            bar([all, all, 89.0], 1_100, ms(2_000), ms(2_500)),
        ),
        (
            "spike, shared processors",
            spike(20, 50, Exponential).with(|model| model.service = Serving::Shared),
            bar([all, all, 89.0], 506, ms(2_500), ms(2_500)),
        ),
        (
            "spike, 2 slots",
            spike(2, 50, Exponential),
            bar([99.0, 99.0, 88.0], 1_000, ANY, ANY),
        ),
        (
            "spike, 1 slot",
            spike(1, 100, Even).deadline(ms(3_000)),
            bar([99.0, 70.0, 88.0], 3_000, ANY, ANY),
        ),
        (
            "all × 5",
            common(Trouble::Loads(loads(0.25, 2.25, 2.5))),
            bar([all, 0.0, 92.0], 300, ms(2_500), ms(2_500)),
        ),
        (
            "clients retry",
            common(Trouble::Loads(loads(0.04, 0.36, 3.0))).with(|model| model.retries = 4),
            bar([all, all, 92.0], 320, ms(1_000), ms(5_000)),
        ),
        (
            "39 × as many sheddable calls",
            common(Trouble::Loads(loads(0.05, 0.45, 19.5))),
            bar([all, all, 94.0], 300, ms(1_250), ms(2_500)),
        ),
        (
            "hardly any room beside the others",
            common(Trouble::Loads(loads(0.09, 0.81, 5.0))),
            bar([all, all, 92.0], 575, ANY, ms(2_500)),
        ),
        (
            "half of the slots gone",
            common(Trouble::Slots(10)),
            bar([all, all, 95.0], 750, ms(11_000), ms(5_000)),
        ),
        (
            "work five times as long",
            common(Trouble::Slowdown(5.0)).deadline(ms(2_000)),
            bar([80.0, 0.0, 45.0], 2_000, ms(6_000), ms(5_000)),
        ),
        (
            "cold start",
            common(Trouble::Loads(loads(0.06, 0.54, 11.4))).cold(),
            bar([98.0, 98.0, 92.0], 350, ms(5_000), ms(2_500)),
        ),
        (
            "1.2 of the capacity",
            common(Trouble::Loads(loads(0.06, 0.54, 0.6))),
            bar([all, all, 90.0], 600, ms(5_000), ms(2_500)),
        ),
    ]
}

/// The seeds with which each scene is run.
pub(super) const SEEDS: std::ops::Range<u64> = 101..121;

/// With `--nocapture`, shows the worst results of each scene.
#[test]
fn trouble_costs_the_important_calls_nothing() {
    for (name, scene, bar) in scenes() {
        // A run of the largest scene has three million calls.
        let most = if scene.model.slots > 200 { 4 } else { 20 };
        let runs = SEEDS.take(most).map(|seed| (seed, scene.run(seed)));
        let runs: Vec<_> = runs.collect();
        for (seed, run) in &runs {
            let what = format!("{name}, seed {seed}: {run:?}");
            assert!(100.0 * run.critical_later >= bar.critical, "{what}");
            assert!(100.0 * run.normal_later >= bar.normal, "{what}");
            assert!(100.0 * run.goodput >= bar.goodput, "{what}");
            assert!(run.p99 <= bar.p99, "{what}");
            assert!(run.settled.unwrap_or(ANY) <= bar.settled, "{what}");
            assert!(run.last <= bar.last, "{what}");
        }
        let least = |figure: fn(&SceneFigures) -> f64| {
            let figures = runs.iter().map(|(_, run)| 100.0 * figure(run));
            figures.fold(f64::MAX, f64::min)
        };
        let longest = runs.iter().map(|(_, run)| run.p99).max().unwrap();
        println!(
            "{name:34} critical {:6.2} normal {:6.2} goodput {:5.1} p99 {longest:4.0?}",
            least(|run| run.critical_later),
            least(|run| run.normal_later),
            least(|run| run.goodput),
        );
    }
}

#[test]
fn no_critical_or_normal_call_is_lost_when_a_spike_begins() {
    let small = scenes()
        .into_iter()
        .filter(|(_, scene, _)| scene.model.slots < 200);
    for (name, scene, _) in small.take(5) {
        for seed in SEEDS {
            let run = scene.run(seed);
            let least = run.critical.min(run.normal);
            assert!(least >= 0.999, "{name}, seed {seed}: {run:?}");
        }
    }
}

#[test]
fn sheddable_calls_get_nothing_while_normal_ones_are_refused() {
    let scene = Scene::new(
        20,
        ms(50),
        Work::Exponential,
        Trouble::Loads(loads(0.25, 2.25, 2.5)),
    );
    for seed in SEEDS {
        let run = scene.run(seed);
        assert!(run.normal_later < 0.5, "seed {seed}: {run:?}");
        assert!(run.sheddable_later <= 0.01, "seed {seed}: {run:?}");
    }
}

#[test]
fn a_large_service_that_gets_slower_refuses_a_quarter_at_most() {
    let trouble = Trouble::Slowdown(4.0);
    let scene = Scene::new(1_000, ms(50), Work::Exponential, trouble).with(|model| {
        model.loads = loads(0.008, 0.072, 0.08);
    });
    for seed in SEEDS {
        let run = scene.run(seed);
        // 3 200 calls a second came for 40 s.
        assert!(run.shed_count <= 32_000, "seed {seed}: {run:?}");
    }
}

/// Creates a service at a steady load. Its runs have millions of calls, so the trace keeps only the
/// refusals.
fn steady(slots: u32, mean: Duration, work: Work, loads: [f64; 4], seed: u64) -> Model {
    Model {
        slots,
        mean,
        work,
        arrivals: Arrivals::Random,
        loads,
        keeps_visits: false,
        ..Model::new(seed)
    }
}

/// Runs `model` for about `calls` calls. Returns how many were refused.
fn refused(model: &Model, calls: f64, start: u32) -> usize {
    let load: f64 = model.loads.iter().sum();
    let length = Duration::from_secs_f64(calls / (model.capacity() * load));
    model.run(&limiter(start, ms(500)), length).shed_count()
}

#[test]
fn no_call_is_refused_at_nine_tenths_of_the_capacity() {
    let loads = loads(0.045, 0.405, 0.45);
    let services = [
        (20, ms(50), Work::Exponential),
        (20, ms(50), Work::Even),
        (100, ms(20), Work::Exponential),
    ];
    for (slots, mean, work) in services {
        for seed in 1..3 {
            let model = steady(slots, mean, work, loads, seed);
            let refused = refused(&model, 1e6, 20);
            assert_eq!(refused, 0, "{slots} slots, {work:?}, seed {seed}");
        }
    }
    // With two slots, a queue is hard to distinguish from noise.
    let loads = self::loads(0.04, 0.36, 0.4);
    let model = steady(2, ms(50), Work::Exponential, loads, 1);
    assert!(refused(&model, 1e6, 20) <= 10_000);
}

/// The simulated program sets no classes, so all calls have the default class.
#[test]
fn a_service_with_one_class_of_calls_meets_its_bars() {
    let one = |load| Trouble::Loads(Model::alone(load));
    let scene = |slots, mean, work, trouble, least: f64| {
        let scene = Scene::new(slots, ms(mean), work, trouble).with(|model| {
            model.loads = Model::alone(0.8);
            if let Some((_, Trouble::Loads(back))) = model.changes.last_mut() {
                *back = model.loads;
            }
        });
        (scene, least)
    };
    use Work::{Exponential, Fixed};
    let scenes = [
        scene(20, 50, Exponential, one(5.2), 94.0),
        scene(20, 50, Fixed, one(5.2), 96.0),
        scene(100, 20, Exponential, one(5.2), 97.0),
        scene(20, 50, Exponential, one(1.2), 91.0),
        scene(20, 50, Exponential, Trouble::Slots(10), 89.0),
        // This scene has the lowest bar, as the limiter must learn a new response time.
        scene(20, 50, Exponential, Trouble::Slowdown(5.0), 85.0),
    ];
    for (number, (scene, least)) in scenes.into_iter().enumerate() {
        let scene = scene.deadline(ms(2_000));
        for seed in SEEDS {
            let run = scene.run(seed);
            let what = format!("scene {number}, seed {seed}: {run:?}");
            assert!(100.0 * run.goodput >= least, "{what}");
        }
    }
    let slower = Scene::new(1_000, ms(50), Exponential, Trouble::Slowdown(4.0))
        .with(|model| model.loads = Model::alone(0.16));
    let services = [
        (20, ms(50), Exponential, 0.9, 2_500),
        (20, ms(50), Work::Even, 0.9, 0),
        (100, ms(20), Exponential, 0.9, 7_500),
        (2, ms(50), Exponential, 0.8, 1_000),
    ];
    for seed in SEEDS {
        let run = slower.run(seed);
        assert!(run.shed_count <= 10_240, "seed {seed}: {run:?}");
    }
    for (slots, mean, work, load, most) in services {
        for seed in 101..103 {
            let model = steady(slots, mean, work, Model::alone(load), seed);
            let refused = refused(&model, 1e6, 20);
            assert!(refused <= most, "{slots} slots, seed {seed}: {refused}");
        }
    }
}
