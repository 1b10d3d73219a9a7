//! One of the processes: it makes calls at a steady rate, and says every 50 ms what it has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::figures::{BUCKETS, bucket_of};
use crate::limiter::Limiter;

struct Seen {
    done: AtomicU64,
    passed: AtomicU64,
    latency: Vec<AtomicU32>,
}

pub(crate) fn run(url: &str, kind: &str, per_second: u32, secs: u64, number: u64) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    // Its own task, not that which the runtime runs on this thread.
    let main = load(url.to_owned(), kind.to_owned(), per_second, secs, number);
    runtime.block_on(async { tokio::spawn(main).await.unwrap() });
}

async fn load(url: String, kind: String, per_second: u32, secs: u64, number: u64) {
    let (limiter, handle) = Limiter::new(&kind, &url).await;
    let seen = Arc::new(Seen {
        done: AtomicU64::new(0),
        passed: AtomicU64::new(0),
        latency: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
    });
    let begin = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let (mut made, mut said) = (0_u64, 0_u64);
    while begin.elapsed().as_secs() < secs {
        ticks.tick().await;
        let due = (begin.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
        for call in made..due {
            let (mut limiter, seen) = (limiter.clone(), seen.clone());
            tokio::spawn(async move {
                let since = Instant::now();
                let passes = limiter.decide(number << 40 | call).await;
                let place = bucket_of(since.elapsed());
                seen.latency[place].fetch_add(1, Ordering::Relaxed);
                seen.done.fetch_add(1, Ordering::Relaxed);
                seen.passed.fetch_add(passes.into(), Ordering::Relaxed);
            });
        }
        made = due;
        let ms = begin.elapsed().as_millis() as u64;
        if ms >= said + 50 {
            said = ms;
            let (is_live, draws, trips) = limiter.state();
            let done = seen.done.load(Ordering::Relaxed);
            println!(
                "at {ms} {} {made} {done} {draws} {trips}",
                u8::from(is_live)
            );
        }
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let latency: Vec<_> = seen
        .latency
        .iter()
        .map(|it| it.load(Ordering::Relaxed).to_string())
        .collect();
    println!("latency {}", latency.join(" "));
    println!("passed {}", seen.passed.load(Ordering::Relaxed));
    println!("cpu {}", crate::figures::cpu_of(std::process::id()));
    if std::env::var_os("FLEET_SAYS").is_some() {
        eprintln!("{number}: {}", limiter.error());
    }
    drop(handle);
}
