//! The table of all limiters on one server.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::LocalSet;
use tower_sentinel::{AuthorityRule, Call, FlowRule, Rules, Sentinel, Verdict};

use crate::limiters::{Kind, Process, wall};
use crate::server::Server;

const LIMIT: u32 = 1_000;
/// The parts of the load that each process has, in percent.
const SKEW: [u32; 4] = [60, 25, 10, 5];
/// Whole seconds that are looked at.
const SECONDS: u64 = 3;
/// Callers at a time, for those that ask the server for each call.
const AT_ONCE: usize = 64;
const RUNS: Duration = Duration::from_secs(1);
/// How often rules that are not shared are measured, each time beside the shared one.
const ROUNDS: u32 = 5;

/// What a load has led to.
struct Outcome {
    /// By second.
    admitted: BTreeMap<u64, u32>,
    trips: u64,
}

pub(crate) fn run() {
    let Some(server) = Server::start() else {
        println!("\nSKIPPED, no redis-server: how others do on it is not measured");
        return;
    };
    println!(
        "\nfour processes on one server, {LIMIT} a second, load {SKEW:?} %; over and under in \
         percent of the limit"
    );
    println!(
        "{:30} {:>12} {:>7} {:>7} {:>8} {:>8} {:>10} {:>10}",
        "", "decisions/s", "ratio", "over", "over", "under", "trips per", "admitted"
    );
    println!(
        "{:30} {:>12} {:>7} {:>7} {:>8} {:>8} {:>10} {:>10}",
        "offered", "", "", "100 %", "500 %", "100 %", "at 100 %", "at 500 %"
    );
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let mut first = None;
    for kind in Kind::ALL {
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let speed = speed(kind, &server.url()).await;
            let first = *first.get_or_insert(speed);
            let just = load(kind, &server.url(), 100).await;
            let five = load(kind, &server.url(), 500).await;
            println!(
                "{:30} {speed:12.0} {:7.1} {:5.1} % {:6.1} % {:6.1} % {:10.3} {:10.3}",
                kind.name(),
                speed / first,
                just.over(),
                five.over(),
                just.under(),
                just.trips_per_admitted(),
                five.trips_per_admitted(),
            );
        });
    }
    println!("\none thread; the same rule, not shared, alone and beside a list of callers");
    println!(
        "{:>12} {:>12} {:>12} {:>14} {:>14}",
        "leased ns", "alone ns", "listed ns", "leased / alone", "leased / listed"
    );
    for round in 0..ROUNDS {
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let leased = 1e9 / speed(Kind::Leased, &server.url()).await;
            let alone = 1e9 / local_speed(local_rule()).await;
            let list = AuthorityRule::deny("local", ["eve"]);
            let listed = 1e9 / local_speed(Rules::new().with(local_rule()).with(list)).await;
            println!(
                "{leased:12.1} {alone:12.1} {listed:12.1} {:14.2} {:14.2}   round {round}",
                leased / alone,
                leased / listed,
            );
        });
    }
}

fn local_rule() -> FlowRule {
    FlowRule::per_second("local", 100_000_000).buckets(1)
}

/// Decisions a second of one thread by rules that are not shared, in the steps of [`speed`].
async fn local_speed(rules: impl Into<Rules>) -> f64 {
    let sentinel = Sentinel::new(rules);
    let begin = Instant::now();
    let mut decisions = 0_u64;
    while begin.elapsed() < RUNS {
        for _ in 0..101 {
            let verdict = sentinel.try_enter(Call::new("local"));
            assert!(matches!(verdict, Verdict::Pass(_)));
        }
        decisions += 101;
        tokio::task::yield_now().await;
    }
    decisions as f64 / begin.elapsed().as_secs_f64()
}

/// Decisions a second of one thread, where the limit is far away.
async fn speed(kind: Kind, url: &str) -> f64 {
    let name = format!("speed-{kind:?}");
    let process = Process::new(kind, url, &name, 100_000_000, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begin = Instant::now();
    let mut decisions = 0_u64;
    while begin.elapsed() < RUNS {
        match process.decide_here(&name) {
            Some(_) => {
                for _ in 0..100 {
                    let _ = process.decide_here(&name);
                }
                decisions += 101;
                // The refiller runs in this thread as well.
                tokio::task::yield_now().await;
            }
            None => {
                let callers = (0..AT_ONCE).map(|_| process.decide(&name));
                decisions += join_all(callers).await.len() as u64;
            }
        }
    }
    decisions as f64 / begin.elapsed().as_secs_f64()
}

/// Four processes, and so many calls in percent of the limit.
async fn load(kind: Kind, url: &str, percent: u32) -> Outcome {
    let name: Rc<str> = format!("load-{kind:?}-{percent}").into();
    let mut processes = Vec::new();
    for _ in SKEW {
        let process = Process::new(kind, url, &name, LIMIT, SKEW.len() as u32).await;
        processes.push(Rc::new(process));
    }
    // All have said that they are there.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let admitted = Rc::new(RefCell::new(BTreeMap::<u64, u32>::new()));
    let first = wall().as_secs() + 1;
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let begin = Instant::now();
    let mut made = [0_u64; SKEW.len()];
    // From before the first whole second to after the last.
    while wall().as_secs() < first + SECONDS || wall().subsec_millis() < 20 {
        ticks.tick().await;
        for (index, process) in processes.iter().enumerate() {
            let per_second = f64::from(LIMIT * percent * SKEW[index]) / 10_000.0;
            let due = (begin.elapsed().as_secs_f64() * per_second) as u64;
            for _ in made[index]..due {
                let (process, name) = (process.clone(), name.clone());
                let admitted = admitted.clone();
                tokio::task::spawn_local(async move {
                    if process.decide(&name).await {
                        *admitted.borrow_mut().entry(wall().as_secs()).or_default() += 1;
                    }
                });
            }
            made[index] = due;
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let trips = processes.iter().map(|process| process.trips()).sum();
    let admitted = admitted.take();
    Outcome { admitted, trips }
}

impl Outcome {
    fn whole(&self) -> Vec<u32> {
        // The first second has only begun when the load did, and the last one has not ended.
        let all: Vec<_> = self.admitted.values().copied().collect();
        all[1..=SECONDS as usize].to_vec()
    }

    fn over(&self) -> f64 {
        let most = self.whole().into_iter().max().unwrap_or(0);
        percent_of_limit(most.saturating_sub(LIMIT))
    }

    fn under(&self) -> f64 {
        let mean = self.whole().iter().sum::<u32>() / SECONDS as u32;
        percent_of_limit(LIMIT.saturating_sub(mean))
    }

    fn trips_per_admitted(&self) -> f64 {
        self.trips as f64 / f64::from(self.admitted.values().sum::<u32>())
    }
}

fn percent_of_limit(count: u32) -> f64 {
    100.0 * f64::from(count) / f64::from(LIMIT)
}
