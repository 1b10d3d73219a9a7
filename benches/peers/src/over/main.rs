//! How much passes a limit of 100 calls per second, in real time, when threads
//! call as fast as they can and are preempted while they do.
//!
//! A call counts where it certainly was: from the reading of the clock before it
//! to the one after it. One that spans the edge of an interval counts neither
//! here nor there, so every count is a lower bound.

mod count;
mod limiters;

use std::sync::Barrier;
use std::time::Duration;

use count::Span;
use limiters::Limiter;
use tower_sentinel::clock::MonotonicClock;
use tower_sentinel::Clock;

const LIMIT: u32 = 100;
const SECOND_NS: u64 = 1_000_000_000;

fn main() {
    sentinel_core::init_default().expect("its defaults");
    println!(
        "| limiter | threads | admitted | per second | aligned windows above {LIMIT} | most in one | most in any second |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for threads in [2, 4, 16] {
        for limiter in limiters::all(threads) {
            let spans = run(&limiter, threads);
            let (above, most) = count::aligned(&spans, limiter.grid);
            println!(
                "| {} | {threads} | {} | {:.1} | {above} | {most} | {} |",
                limiter.name,
                spans.len(),
                spans.len() as f64 / limiter.length.as_secs_f64(),
                count::most_in_any_second(&spans),
            );
        }
    }
}

/// Calls from `threads` threads, beside one that only burns for each core, and
/// returns the calls that passed.
fn run(limiter: &Limiter, threads: usize) -> Vec<Span> {
    let clock = MonotonicClock::new();
    // Ours begin on their grid, so that a run is a whole number of their turns.
    let bucket_ns = limiter.grid.bucket_ns;
    let edge = (clock.now().as_nanos() / bucket_ns + 2) * bucket_ns;
    let end = edge + limiter.length.as_nanos() as u64;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let start = Barrier::new(threads + cores);
    let now = || clock.now().as_nanos();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                start.wait();
                while now() < end {}
            });
        }
        let callers: Vec<_> = (0..threads)
            .map(|_| {
                let mut passes = (limiter.caller)();
                let start = &start;
                scope.spawn(move || {
                    let mut spans = Vec::new();
                    start.wait();
                    while now() < edge {}
                    loop {
                        let from = now();
                        if from >= end {
                            return spans;
                        }
                        if passes() {
                            spans.push(Span { from, to: now() });
                        }
                    }
                })
            })
            .collect();
        let spans = callers.into_iter();
        spans
            .flat_map(|caller| caller.join().expect("callers do not panic"))
            .collect()
    })
}

/// The length of a run: a whole number of turns, as a limiter that is exhausted
/// all the time admits in lumps.
const fn turns(turn: Duration, count: u32) -> Duration {
    turn.saturating_mul(count)
}
