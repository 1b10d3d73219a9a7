//! Refusals of many threads on one resource, and of one thread before and after them.
//!
//! ```text
//! cargo bench --bench crowd
//! ```
//!
//! Every thread refuses as fast as it can. Each row has its turn in each round; figures are
//! millions of refusals in a second by all threads together, medians over the rounds, and a ratio
//! is the median of the ratios of each round to one thread that never met another one.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tower_sentinel::clock::QuantaClock;
use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};

const ROUNDS: usize = 15;
const WARM_UP: usize = 2;
/// Refusals of each thread in one turn.
const CALLS: u32 = 300_000;
const CROWDS: [usize; 2] = [2, 4];
const DAY: u64 = 86_400;
const WINDOWS: [(&str, u64); 5] = [
    ("a second", 1),
    ("a minute", 60),
    ("an hour", 3_600),
    ("a day", DAY),
    ("366 days", 366 * DAY),
];

/// One window, with the rates of its rows in each round.
struct Window {
    name: &'static str,
    /// Only ever called by one thread at a time.
    lone: Sentinel,
    crowded: Sentinel,
    rows: [(&'static str, Vec<f64>); 5],
}

fn main() {
    let mut windows = WINDOWS.map(|(name, seconds)| Window::new(name, seconds));
    for round in 0..WARM_UP + ROUNDS {
        for window in &mut windows {
            let rates = window.rates();
            if round >= WARM_UP {
                for ((_, row), rate) in window.rows.iter_mut().zip(rates) {
                    row.push(rate);
                }
            }
        }
    }
    println!(
        "{:<10} {:<32} {:>8} {:>6}",
        "window", "refused by", "M/s", "ratio"
    );
    for Window { name, rows, .. } in &windows {
        for (row, rates) in rows {
            let ratios = rates.iter().zip(&rows[0].1).map(|(rate, one)| rate / one);
            let (rate, ratio) = (median(rates.clone()), median(ratios.collect()));
            println!("{name:<10} {row:<32} {rate:>8.1} {ratio:>6.2}");
        }
    }
}

// === impl Window ===

impl Window {
    fn new(name: &'static str, seconds: u64) -> Self {
        let engine = || {
            let rule = FlowRule::per("r", 0, Duration::from_secs(seconds));
            Sentinel::builder()
                .rules(rule)
                .clock(QuantaClock::new())
                .build()
        };
        let rows = [
            "one thread, never a crowd",
            "2 threads",
            "4 threads",
            "one thread at once after them",
            "the same thread later",
        ];
        Self {
            name,
            lone: engine(),
            crowded: engine(),
            rows: rows.map(|row| (row, Vec::new())),
        }
    }

    /// The rate of each row in one round.
    fn rates(&self) -> [f64; 5] {
        let [lone, _] = rates_of_one(&self.lone);
        let [two, four] = CROWDS.map(|threads| rate_of(&self.crowded, threads));
        let [at_once, later] = rates_of_one(&self.crowded);
        [lone, two, four, at_once, later]
    }
}

/// The rates of one new thread that refuses twice as much as each thread of a crowd: in its first
/// half and in its second.
fn rates_of_one(sentinel: &Sentinel) -> [f64; 2] {
    thread::scope(|scope| {
        let one = scope.spawn(|| [rate(sentinel), rate(sentinel)]);
        one.join().expect("it only calls")
    })
}

/// The rate of new `threads` that refuse at once. Each counts its own time: one that waits for the
/// others would be late where cores are busy.
fn rate_of(sentinel: &Sentinel, threads: usize) -> f64 {
    let start = &Barrier::new(threads);
    let refuse = || {
        start.wait();
        rate(sentinel)
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(refuse)).collect();
        let rates = all
            .into_iter()
            .map(|one| one.join().expect("it only calls"));
        rates.sum()
    })
}

/// Millions of refusals in a second by the calling thread.
fn rate(sentinel: &Sentinel) -> f64 {
    let began = Instant::now();
    for _ in 0..CALLS {
        assert!(matches!(
            sentinel.try_enter(Call::new("r")),
            Verdict::Block(_)
        ));
    }
    f64::from(CALLS) / began.elapsed().as_secs_f64() / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
