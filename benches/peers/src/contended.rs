//! What threads get done that call one and the same resource.
//!
//! All of them call as fast as they can, and every call passes. Each limiter has
//! its turn in each round, with one thread and with several; figures are millions
//! of calls in a second by all threads together, medians over the rounds, and a
//! ratio is the median of the ratios of each round. A call of governor's is a
//! check; one of ours begins and ends, and is booked.

use std::sync::Barrier;
use std::time::Instant;

use governor::{Quota, RateLimiter};
use tower_sentinel::clock::QuantaClock;
use tower_sentinel::{Call, Clock, FlowRule, IsolationRule, Rules, Sentinel, Verdict};

const ROUNDS: usize = 31;
const WARM_UP: usize = 2;
/// Calls of each thread in one round.
const CALLS: u32 = 200_000;
/// More than a run uses up in a second.
const PLENTY: u32 = (1 << 31) - 1;

/// Most threads that are run.
const MOST_THREADS: usize = 16;

/// A limiter, as something that all threads may call; each says which one it is.
type Limiter = (&'static str, Box<dyn Fn(usize) + Sync>);

fn main() {
    let limiters = limiters();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<usize> = [1, 2, 4, MOST_THREADS]
        .into_iter()
        .filter(|&threads| threads <= cores.max(2))
        .collect();
    // By threads, limiter and round.
    let mut rates = vec![vec![Vec::new(); limiters.len()]; threads.len()];
    for round in 0..WARM_UP + ROUNDS {
        for (rates, &threads) in rates.iter_mut().zip(&threads) {
            for (rates, (_, call)) in rates.iter_mut().zip(&limiters) {
                let rate = rate(threads, call);
                if round >= WARM_UP {
                    rates.push(rate);
                }
            }
        }
    }
    println!("{cores} cores\n");
    println!(
        "| threads | limiter | million calls a second | beside governor | beside one thread |"
    );
    println!("|---:|---|---:|---:|---:|");
    for (place, threads) in threads.iter().enumerate() {
        for (which, (name, _)) in limiters.iter().enumerate() {
            let own = &rates[place][which];
            println!(
                "| {threads} | {name} | {:.1} | {:.2} | {:.2} |",
                median(own.clone()),
                ratio(own, &rates[place][0]),
                ratio(own, &rates[0][which]),
            );
        }
    }
}

fn limiters() -> Vec<Limiter> {
    let rule = || FlowRule::per_second("r", PLENTY);
    let governor = RateLimiter::direct(Quota::per_second(PLENTY.try_into().expect("not 0")));
    let ours = |rules: Rules| {
        let clock = QuantaClock::new();
        let sentinel = Sentinel::builder().rules(rules).clock(clock).build();
        move |_| enter(&sentinel)
    };
    let of_each_thread: Vec<_> = (0..MOST_THREADS)
        .map(|_| {
            let clock = QuantaClock::new();
            Sentinel::builder().rules(rule()).clock(clock).build()
        })
        .collect();
    let slots = IsolationRule::new("r", 1_000);
    let clock = QuantaClock::new();
    vec![
        (
            "governor",
            Box::new(move |_| assert!(governor.check().is_ok())),
        ),
        ("ours, no rule", Box::new(ours(Rules::new()))),
        ("ours, one flow rule", Box::new(ours(rule().into()))),
        (
            "ours, one flow rule and slots",
            Box::new(ours(Rules::from(rule()).with(slots))),
        ),
        // What threads would get done that shared nothing at all.
        (
            "ours, one flow rule, an engine for each thread",
            Box::new(move |thread| enter(&of_each_thread[thread])),
        ),
        // What nobody can get beyond who takes the time of each call, and does nothing else.
        (
            "two readings of quanta, nothing shared",
            Box::new(move |_| {
                std::hint::black_box(clock.now());
                std::hint::black_box(clock.now());
            }),
        ),
    ]
}

fn enter(sentinel: &Sentinel) {
    match sentinel.try_enter(Call::new("r")) {
        Verdict::Pass(entry) => drop(entry),
        other => panic!("{other:?}"),
    }
}

/// Millions of calls in a second by so many threads.
fn rate(threads: usize, call: &(dyn Fn(usize) + Sync)) -> f64 {
    let barrier = Barrier::new(threads + 1);
    let start = std::thread::scope(|scope| {
        for thread in 0..threads {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                (0..CALLS).for_each(|_| call(thread));
            });
        }
        barrier.wait();
        Instant::now()
    });
    f64::from(CALLS) * threads as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn ratio(figures: &[f64], base: &[f64]) -> f64 {
    median(
        figures
            .iter()
            .zip(base)
            .map(|(own, base)| own / base)
            .collect(),
    )
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
