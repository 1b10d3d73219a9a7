//! Random histories of several engines over one store, in virtual time: what they admit
//! together stays within the promised bounds, whatever happens between them and the store.
//!
//! Each history has a seed of its own, which chooses everything except for the moments at which
//! an engine probes a store that is away. `SENTINEL_HISTORIES` sets how many are played;
//! `SENTINEL_SEED` sets the seed of the first one, and is printed with a history that fails.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "a history keeps a log")]

mod draws;
mod history;
mod log;
mod network;
mod plan;
#[path = "../support/mod.rs"]
mod support;

use std::thread;

use history::play;
use log::Tally;
use plan::Plan;
use support::Rng;

const THREADS: u64 = 2;

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Plays the histories of these seeds.
fn play_all(seeds: impl Iterator<Item = u64>) -> Tally {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let mut tally = Tally::default();
    for seed in seeds {
        let mut rng = Rng::of(seed);
        let plan = Plan::new(&mut rng);
        // One of its own: whatever is still under way ends with it.
        let log = runtime().block_on(play(&plan, &mut rng));
        if let Err(wrong) = log.check(&plan, &mut tally) {
            let how = format!("SENTINEL_SEED={seed} SENTINEL_HISTORIES=1 {plan:?}");
            tally.wrong.push(format!("{wrong}: {how}"));
        }
    }
    tally
}

#[test]
fn no_history_goes_over_what_it_may() {
    let default = if cfg!(debug_assertions) { 300 } else { 10_000 };
    let histories = number("SENTINEL_HISTORIES", default);
    let first = number("SENTINEL_SEED", 20_261_126);
    println!("SENTINEL_SEED={first} SENTINEL_HISTORIES={histories}");
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let seeds = (first + thread..first + histories).step_by(THREADS as usize);
            thread::spawn(move || play_all(seeds))
        })
        .collect();
    let tallies: Vec<Tally> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>();
    let (calm, full) = (sum(|tally| tally.calm), sum(|tally| tally.full));
    println!(
        "{} histories, {} admitted, {} of it borrowed; by key {} draws for {} calls; windows: {calm} \
         calm, of them {full} full, {} troubled, {} without the store",
        sum(|tally| tally.histories),
        sum(|tally| tally.admitted),
        sum(|tally| tally.borrowed),
        sum(|tally| tally.draws),
        sum(|tally| tally.calls),
        sum(|tally| tally.troubled),
        sum(|tally| tally.away),
    );
    tallies
        .iter()
        .for_each(|tally| println!("worst: {:?}", tally.worst));
    let wrong: Vec<_> = tallies.iter().flat_map(|tally| &tally.wrong).collect();
    wrong.iter().take(9).for_each(|wrong| println!("{wrong}"));
    assert!(wrong.is_empty(), "{} histories go wrong", wrong.len());
    if histories >= default {
        assert!(
            calm > histories && full > calm / 10,
            "they are worth a look"
        );
        assert!(sum(|tally| tally.troubled) > histories);
        assert!(sum(|tally| tally.borrowed) > histories);
        assert!(sum(|tally| tally.draws) > histories);
        assert!(sum(|tally| tally.away) > histories / 50);
    }
}
