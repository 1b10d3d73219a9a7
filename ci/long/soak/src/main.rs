//! Drives the layer in real time with all that a server meets, and watches what
//! the process keeps.
//!
//! Eight tasks call, mostly with keys that nobody has seen: calls that pass, are
//! refused, wait, fail, panic, and are dropped at any moment; the rules change
//! three times a second. Every second the bytes on the heap and the resident
//! memory are noted. Over the last two thirds of the run, when all tables are
//! full, neither may rise: the slopes of their regression lines are printed, and
//! the run fails if one is above its bound (1 MiB of heap and 8 MiB of resident
//! memory in all that time), or if at its end anything is in flight or a book
//! does not balance.
//!
//! ```text
//! SENTINEL_SOAK_SECS=1800 SENTINEL_SOAK_PACE=50 soak
//! ```
//!
//! `SENTINEL_SOAK_SECS` is the length of the run, 60 unless it is set, and at
//! least 30. `SENTINEL_SOAK_PACE` is how many calls a task makes before it rests
//! for 10 ms, 50 unless it is set.

#[path = "../../../../benches/peers/src/heap.rs"]
mod heap;
mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use load::Load;

#[global_allocator]
static HEAP: heap::Counted = heap::Counted;

/// What one second saw.
struct Sample {
    minute: f64,
    heap: f64,
    resident: f64,
}

fn number(name: &str, unset: u64) -> u64 {
    std::env::var(name).map_or(unset, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

/// Bytes of this process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(0.0, |kib| (kib << 10) as f64)
}

/// The lowest point of each of ten parts of `points`.
fn floors(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let parts = points.chunks(points.len().div_ceil(10));
    let lowest = |part: &[(f64, f64)]| part.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    parts.filter_map(lowest).collect()
}

/// The slope of the line through `points` with the smallest squares: by least
/// squares, in units of y for each unit of x.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (sum_x, sum_y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let (mut over, mut under) = (0.0, 0.0);
    for (x, y) in points {
        over += (x - mean_x) * (y - mean_y);
        under += (x - mean_x).powi(2);
    }
    over / under
}

fn main() -> ExitCode {
    let seconds = number("SENTINEL_SOAK_SECS", 60).max(30);
    let pace = number("SENTINEL_SOAK_PACE", 50);
    // Panics are a part of the load.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let load = Load::new();
    let begin = Instant::now();
    let mut samples = Vec::with_capacity(seconds as usize);
    runtime.block_on(async {
        let tasks = load.start(pace);
        for second in 1..=seconds {
            tokio::time::sleep(Duration::from_secs(second).saturating_sub(begin.elapsed())).await;
            samples.push(Sample {
                minute: begin.elapsed().as_secs_f64() / 60.0,
                heap: heap::in_use() as f64,
                resident: resident(),
            });
            let part = (seconds / 12).max(1) as usize;
            if samples.len() % part == 0 {
                let part = &samples[samples.len() - part..];
                let mean = |of: fn(&Sample) -> f64| {
                    part.iter().map(of).sum::<f64>() / part.len() as f64 / 1_024.0
                };
                println!(
                    "{second:>5} s: {:>9} calls, heap {:>8.0} KiB, resident {:>8.0} KiB",
                    load.calls(),
                    mean(|sample| sample.heap),
                    mean(|sample| sample.resident),
                );
            }
        }
        load.stop(tasks).await;
    });
    drop(runtime);

    let mut ok = load.report();
    let steady = &samples[samples.len() / 3..];
    let heap: Vec<_> = steady.iter().map(|s| (s.minute, s.heap)).collect();
    let resident: Vec<_> = steady.iter().map(|s| (s.minute, s.resident)).collect();
    // What is allowed is a number of bytes in all, over the time that is looked
    // at, so a longer run must have a smaller slope. What is in flight, and which
    // rules are in force, moves the heap up and down by more than that, so there
    // it is the floor that counts. The resident memory also has what the
    // allocator keeps for later.
    let minutes = steady.last().expect("seconds").minute - steady[0].minute;
    for (what, points, mib) in [
        ("the floor of the heap", floors(&heap), 1),
        ("resident memory", resident, 8),
    ] {
        let slope = slope(&points) / 1_024.0;
        let bound = f64::from(mib << 10) / minutes;
        println!("{what}: {slope:+.1} KiB a minute, at most {bound:.1}");
        ok &= slope <= bound;
    }
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
