//! What threads get done that call one and the same resource.
//!
//! All of them call as fast as they can, and either every call passes or every call is refused.
//! Each limiter has its turn in each round, with one thread and with several; figures are millions
//! of calls in a second by all threads together, medians over the rounds, and a ratio is the median
//! of the ratios of each round. A call of governor's is a check; one of ours begins and ends, and
//! is booked. The naive window stands between them: all that it knows is in one word.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
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

const GOVERNOR: &str = "governor";
const NAIVE: &str = "naive window";

/// What becomes of the calls, and a limiter, as something that all threads may call; each says
/// which one it is.
type Limiter = (&'static str, &'static str, Box<dyn Fn(usize) + Sync>);

/// A window of a second, and the calls in flight: `[ second:16 | in flight:16 | passed:32 ]`. It
/// keeps no figures, and a second that begins forgets the one before.
struct Naive {
    clock: QuantaClock,
    limit: u64,
    word: AtomicU64,
}

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
            for (rates, (_, _, call)) in rates.iter_mut().zip(&limiters) {
                let rate = rate(threads, call);
                if round >= WARM_UP {
                    rates.push(rate);
                }
            }
        }
    }
    println!("{cores} cores\n");
    println!(
        "| threads | calls | limiter | million calls a second | beside governor | beside naive \
         | beside one thread |"
    );
    println!("|---:|---|---|---:|---:|---:|---:|");
    for (place, threads) in threads.iter().enumerate() {
        for (which, (fate, name, _)) in limiters.iter().enumerate() {
            let own = &rates[place][which];
            let beside = |peer: &str| {
                let mut all = limiters.iter();
                let peer = all.position(|it| it.0 == *fate && it.1 == peer);
                ratio(
                    own,
                    &rates[place][peer.expect("it has a row for each fate")],
                )
            };
            println!(
                "| {threads} | {fate} | {name} | {:.1} | {:.2} | {:.2} | {:.2} |",
                median(own.clone()),
                beside(GOVERNOR),
                beside(NAIVE),
                ratio(own, &rates[0][which]),
            );
        }
    }
}

// === impl Naive ===

impl Naive {
    fn new(limit: u64) -> Self {
        Self {
            clock: QuantaClock::new(),
            limit,
            word: AtomicU64::new(0),
        }
    }

    /// Whether a call may pass now.
    fn enter(&self) -> bool {
        let second = self.clock.now().as_nanos() / 1_000_000_000;
        let mut found = self.word.load(Ordering::Relaxed);
        loop {
            let (then, running, passed) = (found >> 48, found >> 32 & 0xffff, found & 0xffff_ffff);
            let passed = if then == second { passed } else { 0 };
            if passed >= self.limit {
                return false;
            }
            let next = second << 48 | (running + 1) << 32 | (passed + 1);
            let swapped =
                self.word
                    .compare_exchange_weak(found, next, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
    }

    /// The call ends, and is timed.
    fn exit(&self) {
        std::hint::black_box(self.clock.now());
        self.word.fetch_sub(1 << 32, Ordering::Relaxed);
    }
}

fn limiters() -> Vec<Limiter> {
    let mut all = admitting();
    all.extend(refusing());
    all
}

fn admitting() -> Vec<Limiter> {
    let limiter = |name, call: Box<dyn Fn(usize) + Sync>| ("admitted", name, call);
    let rule = || FlowRule::per_second("r", PLENTY);
    let governor = RateLimiter::direct(Quota::per_second(PLENTY.try_into().expect("not 0")));
    let naive = Naive::new(PLENTY.into());
    let ours = |rules: Rules| {
        let sentinel = sentinel(rules);
        move |_| enter(&sentinel)
    };
    let of_each_thread: Vec<_> = (0..MOST_THREADS).map(|_| sentinel(rule())).collect();
    let slots = IsolationRule::new("r", 1_000);
    let clock = QuantaClock::new();
    vec![
        limiter(
            GOVERNOR,
            Box::new(move |_| assert!(governor.check().is_ok())),
        ),
        limiter(
            NAIVE,
            Box::new(move |_| {
                assert!(naive.enter());
                naive.exit();
            }),
        ),
        limiter("ours, no rule", Box::new(ours(Rules::new()))),
        limiter("ours, one flow rule", Box::new(ours(rule().into()))),
        limiter(
            "ours, one flow rule and slots",
            Box::new(ours(Rules::from(rule()).with(slots))),
        ),
        // What threads would get done that shared nothing at all.
        limiter(
            "ours, one flow rule, an engine for each thread",
            Box::new(move |thread| enter(&of_each_thread[thread])),
        ),
        // What nobody can get beyond who takes the time of each call, and does nothing else.
        limiter(
            "two readings of quanta, nothing shared",
            Box::new(move |_| {
                std::hint::black_box(clock.now());
                std::hint::black_box(clock.now());
            }),
        ),
    ]
}

fn refusing() -> Vec<Limiter> {
    let limiter = |name, call: Box<dyn Fn(usize) + Sync>| ("refused", name, call);
    let hourly = Quota::per_hour(1.try_into().expect("not 0"));
    let governor = RateLimiter::direct(hourly);
    assert!(governor.check().is_ok());
    let naive = Naive::new(0);
    let full = || sentinel(FlowRule::per_second("r", 0));
    let one = full();
    let of_each_thread: Vec<_> = (0..MOST_THREADS).map(|_| full()).collect();
    vec![
        limiter(
            GOVERNOR,
            Box::new(move |_| assert!(governor.check().is_err())),
        ),
        limiter(NAIVE, Box::new(move |_| assert!(!naive.enter()))),
        limiter("ours, one flow rule", Box::new(move |_| refuse(&one))),
        limiter(
            "ours, one flow rule, an engine for each thread",
            Box::new(move |thread| refuse(&of_each_thread[thread])),
        ),
    ]
}

fn sentinel(rules: impl Into<Rules>) -> Sentinel {
    let clock = QuantaClock::new();
    Sentinel::builder().rules(rules).clock(clock).build()
}

fn enter(sentinel: &Sentinel) {
    match sentinel.try_enter(Call::new("r")) {
        Verdict::Pass(entry) => drop(entry),
        other => panic!("{other:?}"),
    }
}

fn refuse(sentinel: &Sentinel) {
    match sentinel.try_enter(Call::new("r")) {
        Verdict::Block(blocked) => drop(blocked),
        other => panic!("{other:?}"),
    }
}

/// Millions of calls in a second by so many threads, from the first one's start to the last one's
/// end. Each takes its own times: the thread that waits for them may come late.
fn rate(threads: usize, call: &(dyn Fn(usize) + Sync)) -> f64 {
    let barrier = Barrier::new(threads);
    let run = |thread| {
        barrier.wait();
        let start = Instant::now();
        (0..CALLS).for_each(|_| call(thread));
        (start, Instant::now())
    };
    let times: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let spawn = |thread| scope.spawn(move || run(thread));
        let all: Vec<_> = (0..threads).map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("it calls");
        all.into_iter().map(join).collect()
    });
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    let taken = end.zip(start).map(|(end, start)| end - start);
    let taken = taken.expect("there are threads").as_secs_f64();
    f64::from(CALLS) * threads as f64 / taken / 1e6
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
