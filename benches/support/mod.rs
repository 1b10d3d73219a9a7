//! Measures operations in turns within one run, and prints ratios.
//!
//! Machines differ and are noisy, so a time alone says little. Here every round
//! runs each operation for a moment, one after the other. What is printed is the
//! time of the fastest tenth of the rounds, which noise does not make faster,
//! and its ratio to the first operation's; beside it the median of the ratios
//! within a round, in which the noise of the machine shows.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::{Duration, Instant};

/// Rounds that count; some before them warm up.
const ROUNDS: usize = 101;
const WARM_UP: usize = 5;
/// How long one operation runs in one round, roughly.
const TURN: Duration = Duration::from_micros(500);

/// A set of operations that are measured against the first one.
pub(crate) struct Bench {
    title: &'static str,
    operations: Vec<Operation>,
}

struct Operation {
    name: &'static str,
    /// Runs the operation so many times.
    run: Box<dyn FnMut(u64)>,
    /// Runs per turn.
    times: u64,
    /// Nanoseconds of one run, per round.
    rounds: Vec<f64>,
}

impl Bench {
    /// `name` is the operation that the others are compared with.
    pub(crate) fn against<T>(
        title: &'static str,
        name: &'static str,
        run: impl FnMut() -> T + 'static,
    ) -> Self {
        let mut bench = Self {
            title,
            operations: Vec::new(),
        };
        bench.add(name, run);
        bench
    }

    /// One more operation.
    pub(crate) fn add<T>(&mut self, name: &'static str, mut run: impl FnMut() -> T + 'static) {
        self.operations.push(Operation {
            name,
            run: Box::new(move |times| {
                for _ in 0..times {
                    std::hint::black_box(run());
                }
            }),
            times: 1,
            rounds: Vec::with_capacity(ROUNDS),
        });
    }

    /// Runs everything, prints a table, and tells the nanoseconds of each.
    pub(crate) fn print(mut self) -> Vec<f64> {
        for operation in &mut self.operations {
            operation.calibrate();
        }
        for round in 0..WARM_UP + ROUNDS {
            for operation in &mut self.operations {
                let ns = operation.measure();
                if round >= WARM_UP {
                    operation.rounds.push(ns);
                }
            }
        }
        println!("\n{}", self.title);
        println!(
            "{:<44} {:>8} {:>7} {:>13}",
            "", "ns", "ratio", "median ratio"
        );
        let base = &self.operations[0].rounds;
        let fastest = quantile(base, 0.1);
        for operation in &self.operations {
            let ns = quantile(&operation.rounds, 0.1);
            let ratios = operation
                .rounds
                .iter()
                .zip(base)
                .map(|(ns, base)| ns / base);
            let median = quantile(&ratios.collect::<Vec<_>>(), 0.5);
            let ratio = ns / fastest;
            println!(
                "{:<44} {ns:>8.1} {ratio:>7.2} {median:>13.2}",
                operation.name
            );
        }
        let times = self.operations.iter();
        times.map(|each| quantile(&each.rounds, 0.1)).collect()
    }
}

impl Operation {
    fn calibrate(&mut self) {
        loop {
            let start = Instant::now();
            (self.run)(self.times);
            if start.elapsed() >= TURN {
                return;
            }
            self.times *= 2;
        }
    }

    /// Nanoseconds of one run.
    fn measure(&mut self) -> f64 {
        let start = Instant::now();
        (self.run)(self.times);
        start.elapsed().as_nanos() as f64 / self.times as f64
    }
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}
