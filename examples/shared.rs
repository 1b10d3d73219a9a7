//! One limit over two servers, and what happens when their store goes away.
//!
//! ```sh
//! cargo run --example shared                              # a store in memory
//! cargo run --example shared -- redis://127.0.0.1:6379    # a Redis or Valkey server
//! ```
//!
//! A store in memory can be made to fail: then a table shows how many calls the two servers have
//! let pass in each second, for each choice of a rule.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::clock::{Clock, MonotonicClock, Tick};
use tower_sentinel::store::{
    Fault, MemoryStore, QuotaStore, RedisStore, StoreErrorKind, StoreHandle, StoreSettings,
    WhenDown,
};
use tower_sentinel::{Call, FlowRule, Rules, Sentinel, SentinelLayer};

/// Calls in a second that both servers let pass together.
const LIMIT: u32 = 100;
/// The seconds of the table, and those of them in which the store fails.
const SECONDS: usize = 6;
const FAILS: std::ops::Range<u64> = 2..4;
/// What a rule may do without the store: each is a resource here.
const CHOICES: [(&str, WhenDown); 3] = [
    ("local-share", WhenDown::LocalShare),
    ("closed", WhenDown::Closed),
    ("open", WhenDown::Open),
];

/// A server of a service that has two.
fn start(store: impl QuotaStore) -> Result<(Sentinel, StoreHandle), Box<dyn Error>> {
    let rules = CHOICES
        .into_iter()
        .fold(Rules::new(), |rules, (resource, choice)| {
            let rule = FlowRule::per_second(resource, LIMIT);
            rules.with(rule.shared().exact().when_down(choice))
        });
    let sentinel = Sentinel::builder()
        .rules(rules)
        .store(store)
        .store_settings(StoreSettings::new().nodes(2))
        .build();
    let handle = sentinel.start_store()?;
    Ok((sentinel, handle))
}

/// How many of 400 requests each server lets pass within one second.
async fn passed(servers: &[Sentinel; 2]) -> [usize; 2] {
    let mut passed = [0; 2];
    for index in 0..400 {
        let layer = SentinelLayer::with(servers[index % 2].clone()).named("local-share");
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }));
        let Ok(response) = service.oneshot(Request::new(Body::empty())).await;
        passed[index % 2] += usize::from(response.status() == 200);
    }
    passed
}

/// What the store does in the seconds in which it fails.
#[derive(Clone, Copy)]
enum Failure {
    Never,
    AsTold(Fault),
    LosesItsData,
}

/// Counts what two servers let pass in each second, for each choice.
async fn count(failure: Failure) -> [[usize; SECONDS]; 3] {
    let clock = MonotonicClock::new();
    // The windows of a store in memory are the seconds of its clock; the first one is left out.
    let started = Duration::from_secs((clock.now() - Tick::ZERO).as_secs());
    let store = MemoryStore::with_clock(clock);
    let servers = [(); 2].map(|()| start(store.clone()).expect("there is a runtime"));
    let counts: Arc<[[AtomicUsize; SECONDS]; 3]> = Arc::default();
    let mut calls = JoinSet::new();
    let mut each_5_ms = tokio::time::interval(Duration::from_millis(5));
    let mut has_lost = false;
    loop {
        each_5_ms.tick().await;
        let now = clock.now() - Tick::ZERO - started;
        let is_failing = FAILS.contains(&now.saturating_sub(Duration::from_millis(300)).as_secs());
        match failure {
            Failure::Never => {}
            Failure::AsTold(fault) => store.set_fault(is_failing.then_some(fault)),
            Failure::LosesItsData if is_failing && !has_lost => {
                store.flush();
                has_lost = true;
            }
            Failure::LosesItsData => {}
        }
        match now.as_secs() as usize {
            0 => continue,
            second if second > SECONDS => break,
            _ => {}
        }
        for (sentinel, _) in &servers {
            for (choice, (resource, _)) in CHOICES.into_iter().enumerate() {
                let (sentinel, counts) = (sentinel.clone(), counts.clone());
                calls.spawn(async move {
                    if sentinel.enter(Call::new(resource)).await.is_ok() {
                        let now = clock.now() - Tick::ZERO - started;
                        let second = now.as_secs() as usize;
                        if let Some(count) = counts[choice].get(second - 1) {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        }
    }
    calls.join_all().await;
    for (_, handle) in servers {
        handle.shutdown().await;
    }
    counts
        .each_ref()
        .map(|row| row.each_ref().map(|count| count.load(Ordering::Relaxed)))
}

/// Shows what a store in memory does to the limit when it fails.
async fn show_failures() {
    let rows = [
        ("is there", Failure::Never),
        (
            "answers after 20 ms",
            Failure::AsTold(Fault::SlowAnswer(Duration::from_millis(20))),
        ),
        (
            "is unreachable",
            Failure::AsTold(Fault::Error(StoreErrorKind::Unreachable)),
        ),
        ("gives no answer", Failure::AsTold(Fault::LostAnswer)),
        ("loses its data", Failure::LosesItsData),
    ];
    let rows = rows.map(|(name, failure)| (name, tokio::spawn(count(failure))));
    println!("\nPassed in each second, under four times as many calls as the limit.");
    println!("The store fails 0.3 s into second 2, for two seconds. In that time it");
    for (name, counts) in rows {
        let counts = counts.await.expect("it does not panic");
        let numbers: String = (1..=SECONDS).map(|second| format!("{second:>5}")).collect();
        println!("{name:<20}{numbers}");
        for ((choice, _), seconds) in CHOICES.iter().zip(counts) {
            let seconds = seconds.map(|count| format!("{count:>5}")).concat();
            println!("  {choice:<18}{seconds}");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let servers = match &url {
        Some(url) => {
            println!("The store is the server that was named.");
            let store = RedisStore::new(url)?.with_prefix("example")?;
            [start(store.clone())?, start(store)?]
        }
        None => {
            println!("The store is in memory: name a server to use that.");
            let store = MemoryStore::new();
            [start(store.clone())?, start(store)?]
        }
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    let [(one, _), (two, _)] = &servers;
    let state = one.store().map_or("none", |store| store.state().as_str());
    let [by_one, by_two] = passed(&[one.clone(), two.clone()]).await;
    println!("The store is {state}: the servers let {by_one} + {by_two} of {LIMIT} pass.");
    for (_, handle) in servers {
        handle.shutdown().await;
    }
    if url.is_none() {
        show_failures().await;
    }
    Ok(())
}
