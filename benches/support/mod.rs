//! Measures operations in turns within one run, and prints ratios.
//!
//! Machines differ and are noisy, so a time alone says little. Here every round
//! runs each operation for a moment, one after the other, and compares it with
//! the first one of the same round; the median over all rounds is printed, with
//! the middle half of them.

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

/// A median, and the middle half of the values.
struct Spread {
    low: f64,
    median: f64,
    high: f64,
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

    /// Runs everything and prints a table.
    pub(crate) fn print(mut self) {
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
        println!("{:<52} {:>9} {:>8}   middle half", "", "ns", "ratio");
        let base = &self.operations[0].rounds;
        for operation in &self.operations {
            let ratios = operation
                .rounds
                .iter()
                .zip(base)
                .map(|(ns, base)| ns / base);
            let ratio = Spread::of(ratios.collect());
            let ns = Spread::of(operation.rounds.clone()).median;
            println!(
                "{:<52} {ns:>9.1} {:>8.2}   {:.2} to {:.2}",
                operation.name, ratio.median, ratio.low, ratio.high
            );
        }
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

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
        Self {
            low: at(0.25),
            median: at(0.5),
            high: at(0.75),
        }
    }
}
