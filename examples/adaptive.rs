//! An adaptive concurrency limit in front of a service that loses half of its
//! capacity, and later is slow for a while.
//!
//! ```text
//! cargo run --example adaptive
//! ```
//!
//! Time is virtual: 80 seconds pass in a moment, and the figures are the same in
//! every run.

use std::collections::VecDeque;
use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::{AdaptiveRule, Call, Entry, ManualClock, Sentinel, Verdict};

/// The time that the service needs for a call.
const WORK: Duration = Duration::from_millis(50);
/// Calls that arrive each millisecond: three times what 20 slots can handle.
const ARRIVALS_PER_MS: f64 = 1.2;

/// A service that works on `slots` calls at once and queues the others.
struct Service {
    slots: usize,
    working: Vec<(Tick, Tick, Entry)>,
    queue: VecDeque<(Tick, Entry)>,
}

fn main() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(AdaptiveRule::new("search").floor(2))
        .clock(clock.clone())
        .build();
    let mut service = Service {
        slots: 20,
        working: Vec::new(),
        queue: VecDeque::new(),
    };

    println!("A service with 20 slots needs 50 ms per call, so it can handle 400 calls a second.");
    println!("It gets 1200. Without a limit, its queue would grow for ever.\n");
    println!("second  slots  work   limit  answered  refused  99 % within");
    let mut arrived = 0.0;
    for second in 0..80 {
        let (mut answered, mut refused) = (Vec::new(), 0);
        service.slots = if second < 30 { 20 } else { 10 };
        let work = if (60..62).contains(&second) {
            WORK * 10
        } else {
            WORK
        };
        for _ in 0..1_000 {
            clock.advance(Duration::from_millis(1));
            let now = tower_sentinel::Clock::now(&clock);
            answered.extend(service.work(now, work));
            arrived += ARRIVALS_PER_MS;
            while arrived >= 1.0 {
                arrived -= 1.0;
                match sentinel.try_enter(Call::new("search")) {
                    Verdict::Pass(entry) => service.queue.push_back((now, entry)),
                    _ => refused += 1,
                }
            }
        }
        if second % 5 == 4 || (60..65).contains(&second) {
            answered.sort_unstable();
            let slowest = answered
                .get(answered.len() * 99 / 100)
                .copied()
                .unwrap_or_default();
            let node = sentinel.node("search");
            let limit = node
                .and_then(|node| node.adaptive_limit())
                .unwrap_or_default();
            let bar = "#".repeat(limit as usize);
            println!(
                "{:>6} {:>6} {:>3} ms {limit:>6} {:>9} {refused:>8} {:>9} ms  {bar}",
                second + 1,
                service.slots,
                work.as_millis(),
                answered.len(),
                slowest.as_millis(),
            );
        }
    }
}

impl Service {
    /// Advances to `now`, and returns how long each of the calls took that are answered by then.
    fn work(&mut self, now: Tick, work: Duration) -> Vec<Duration> {
        let (done, working) = std::mem::take(&mut self.working)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, end, _)| *end <= now);
        self.working = working;
        while self.working.len() < self.slots {
            let Some((arrived, entry)) = self.queue.pop_front() else {
                break;
            };
            self.working.push((arrived, now + work, entry));
        }
        // Dropping the entry ends the call.
        done.into_iter()
            .map(|(arrived, _, entry)| {
                drop(entry);
                now - arrived
            })
            .collect()
    }
}
