//! The adaptive limits of tower-resilience, in the model in which this crate's finds the slots of its
//! service.

use std::time::Duration;

use tower_resilience_adaptive::{Aimd, ConcurrencyAlgorithm, Gradient2, Vegas};

use crate::clock::Tick;

#[path = "../../../src/adaptive/simulation.rs"]
#[allow(dead_code, reason = "the crate's own tests use the rest of it")]
mod simulation;
#[path = "../../../src/adaptive/trace.rs"]
#[allow(dead_code, reason = "the crate's own tests use the rest of it")]
mod trace;

use simulation::{Model, Policy, Trouble, Work};

/// The limiter of the tower-resilience project, which is driven by response times as well. Its
/// clock is only read by its service, not by the part that decides.
struct Peer<A>(A);

impl<A: ConcurrencyAlgorithm> Policy for Peer<A> {
    fn limit(&self) -> u32 {
        self.0.limit() as u32
    }

    fn ended(&self, _: Tick, rt: Duration, in_flight: u32, _: u64) {
        self.0.record_success_with_load(rt, in_flight as usize);
    }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// As they come, with the ceiling that this crate's limit has in `src/adaptive/claims.rs`.
/// `--nocapture` shows the table.
#[test]
fn an_average_of_everything_climbs_to_its_ceiling() {
    let model = |change: Option<Trouble>| {
        let model = Model::new(1).with_work(Work::Even);
        match change {
            Some(Trouble::Slots(slots)) => model.then(s(30), Trouble::Slots(slots)),
            Some(spike) => model.then(s(30), spike).then(s(32), Trouble::Slowdown(1.0)),
            None => model,
        }
    };
    let scenes = [
        ("20 slots", None),
        ("10 slots from 30 s on", Some(Trouble::Slots(10))),
        ("40 × slower for 2 s", Some(Trouble::Slowdown(40.0))),
    ];
    for (scene, change) in scenes {
        let model = model(change);
        let show = |name: &str, policy: &dyn Policy| {
            let trace = model.run(policy, s(60));
            let limits = [10, 20, 30, 35, 42, 50, 60].map(|at| trace.limit_at(s(at)));
            let p99 = trace.quantile(0.99, s(42), s(60));
            let throughput = trace.throughput(s(42), s(60));
            println!("{scene:22} {name:22} {limits:3?} p99 {p99:4.0?} {throughput:3.0}/s");
            trace
        };
        show(
            "Vegas",
            &Peer(Vegas::builder().max_limit(200).build().unwrap()),
        );
        show(
            "AIMD",
            &Peer(Aimd::builder().max_limit(200).build().unwrap()),
        );
        // Gradient2 with the published constants.
        let plain = show("Gradient2", &Peer(Gradient2::builder().build().unwrap()));
        assert_eq!(plain.limit_at(s(30)), 200, "{scene}");
        assert_eq!(plain.limit_at(s(60)), 200, "{scene}");
    }
}
