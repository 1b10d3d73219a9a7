//! Overload protection of a whole process by CPU use, and how busy this machine is.
//!
//! ```text
//! cargo run --example system
//! ```

use std::time::Duration;

use tower_sentinel::system::{ManualProbe, Probe, Sampler, SystemProbe};
use tower_sentinel::{Call, ManualClock, Sentinel, SystemRule, Verdict};

fn main() {
    // A server would use `Builder::sampler(Sampler::new(SystemProbe::new()))`.
    let probe = SystemProbe::new();
    let told = |share: Option<f64>| share.map_or("unknown".to_owned(), |it| format!("{it:.2}"));
    println!("load of this machine: {}", told(probe.load()));
    let _first = probe.cpu();
    let mut sum = 0_u64;
    for number in 0..200_000_000_u64 {
        sum = std::hint::black_box(sum.wrapping_add(number));
    }
    println!(
        "its CPU use while one core is busy: {}\n",
        told(probe.cpu())
    );

    // A rule, with a probe and a clock that are set by hand.
    let (clock, probe) = (ManualClock::new(), ManualProbe::new());
    let sentinel = Sentinel::builder()
        .rules(SystemRule::new().cpu(0.9).concurrency(100))
        .clock(clock.clone())
        .sampler(Sampler::new(probe.clone()))
        .build();
    println!("From 90 % CPU use on, inbound calls are refused; outbound calls never are:\n");
    for (second, cpu) in [0.2, 0.5, 0.89, 0.9, 0.97, 0.4].into_iter().enumerate() {
        clock.advance(Duration::from_secs(1));
        probe.set_cpu(cpu);
        let verdict = |call| match sentinel.try_enter(call) {
            Verdict::Pass(_) => "passes".to_owned(),
            Verdict::Block(blocked) => blocked.to_string(),
            _ => unreachable!("nothing waits here"),
        };
        let inbound = verdict(Call::new("/search"));
        let outbound = verdict(Call::new("db").outbound());
        println!(
            "second {second}, {:>3.0} % busy: {inbound}; outbound {outbound}",
            cpu * 100.0
        );
    }
}
