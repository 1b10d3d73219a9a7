//! Four processes on one Redis server: what a standstill of the server does to calls that have a key
//! each, and what such a call costs, beside a script per call; and what they admit while the server
//! loses its data, or some of it.
//!
//! `ci/fleet/run` says what is asserted. A child is this program, told so by its arguments.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod child;
mod figures;
mod limiter;
mod server;
mod snapshot;

use std::time::Duration;

use figures::{Child, Figures, cpu_of};
use server::Server;

/// Processes, and how long they run before anything is looked at.
const PROCESSES: u64 = 4;
const WARM_UP: Duration = Duration::from_secs(2);

/// The bars.
const LIVE_WITHIN: Duration = Duration::from_secs(1);
const MOST_DRAWS: f64 = 1.3;
const MOST_LATENCY: f64 = 2.0;

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["child", url, kind, per_second, secs, number] => {
            let number = number.parse().unwrap();
            child::run(
                url,
                kind,
                per_second.parse().unwrap(),
                secs.parse().unwrap(),
                number,
            );
        }
        ["window", url, buckets, number] => {
            snapshot::child(url, buckets.parse().unwrap(), number.parse().unwrap());
        }
        ["snapshot", runs] => snapshot::check(runs.parse().unwrap()),
        ["standstill", kind, runs] => standstill(kind, runs.parse().unwrap()),
        ["steady", kind, per_second, secs] => {
            steady(kind, per_second.parse().unwrap(), secs.parse().unwrap());
        }
        ["beside", per_second, secs] => beside(per_second.parse().unwrap(), secs.parse().unwrap()),
        _ => panic!(
            "snapshot RUNS | standstill KIND RUNS | steady KIND PER_SECOND SECS | \
             beside PER_SECOND SECS"
        ),
    }
}

/// Starts the processes, does `at` to the server, and returns what they have said.
fn run(kind: &str, per_second: u32, secs: u64, at: impl FnOnce(&Server)) -> Figures {
    let server = Server::start();
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| Child::start(&server, kind, per_second, secs, number))
        .collect();
    std::thread::sleep(WARM_UP);
    at(&server);
    let all: Vec<_> = children.into_iter().map(Child::end).collect();
    let cpu = cpu_of(server.id());
    Figures::of(&all, cpu)
}

/// The server stands still for 0.3 s.
fn standstill(kind: &str, runs: u32) {
    let mut wrong = 0;
    for number in 1..=runs {
        let figures = run(kind, 3_000, 13, |server| {
            server.signal("STOP");
            std::thread::sleep(Duration::from_millis(300));
            server.signal("CONT");
        });
        let (live, draws) = (
            figures.live_after(WARM_UP),
            figures.draws_per_call_after(2_300),
        );
        let is_good = live.is_some_and(|it| it <= LIVE_WITHIN + Duration::from_millis(300))
            && draws <= MOST_DRAWS;
        wrong += u32::from(!is_good);
        println!(
            "standstill, {kind}, run {number}: live {live:?} after it began, {draws:.3} draws a \
             call in the ten seconds after, {figures}"
        );
    }
    assert_eq!(wrong, 0, "{wrong} of {runs} runs are not as they must be");
}

fn steady(kind: &str, per_second: u32, secs: u64) -> Figures {
    let figures = run(kind, per_second, secs, |_| {});
    println!("steady, {kind}, 4 x {per_second}/s: {figures}");
    figures
}

/// The same load by this crate and by a script per call.
fn beside(per_second: u32, secs: u64) {
    let script = steady("script", per_second, secs);
    let ours = steady("ours", per_second, secs);
    assert_eq!(ours.not_live(), 0, "it has left the store");
    let ratio = ours.latency(50) / script.latency(50);
    println!(
        "p50 {ratio:.2}, cpu of processes {:.2}, of the server {:.2} times that of a script",
        ours.cpu_per_call() / script.cpu_per_call(),
        ours.server_per_call() / script.server_per_call(),
    );
    assert!(ratio <= MOST_LATENCY, "{ratio}");
}
