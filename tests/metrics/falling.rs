//! No counter falls, whatever else happens.
//!
//! `SENTINEL_ATTEMPTS` sets how often is looked: a hundredth of it, at most 10 000 times. Calls of
//! weight 0 are watched ten times as often.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_sentinel::observe::{Family, FamilyKind, Metrics, Value};
use tower_sentinel::stat::Histogram;
use tower_sentinel::store::MemoryStore;
use tower_sentinel::{
    Call, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, Rule, Rules, Sentinel, Verdict,
};

use crate::support::{attempts, ms};
use crate::{figures, series};

const THREADS: usize = 4;

/// The sets that reloads change to and fro. Both name the same resources.
fn sets() -> [Rules; 2] {
    let both = || {
        Rules::new()
            .with(FlowRule::per_second("/flow", 1_000).id("flow"))
            .with(
                FlowRule::per_second("/queue", 500)
                    .throttle(ms(1))
                    .id("queue"),
            )
            .with(
                CircuitBreakerRule::error_ratio("/fails", 0.5)
                    .open_for(ms(1))
                    .id("errors"),
            )
            .with(KeyedRule::per_second("/keys", 5).max_keys(16).id("keys"))
            .with(FlowRule::per("/shared", 9, ms(20)).shared().id("shared"))
    };
    let more = both()
        .with(IsolationRule::new("/flow", 2).id("slots"))
        .with(Rule::from(FlowRule::per_second("/flow", 9).id("shadow")).shadow());
    [both(), more]
}

/// One call after the other, of every kind and with every end.
fn call_on(sentinel: &Sentinel, number: usize) {
    let (name, key) = (format!("/made-up/{number}"), number % 50);
    let call = match number % 7 {
        0 => Call::new("/flow").batch(number as u32 % 3),
        1 => Call::new("/queue"),
        2 | 3 => Call::new("/fails"),
        4 => Call::new("/keys").param(key as u64),
        // Nobody has started its store.
        5 => Call::new("/shared"),
        _ => Call::new(&*name),
    };
    match sentinel.try_enter(call) {
        Verdict::Pass(mut entry) => match number % 4 {
            0 => entry.fail(),
            1 => entry.cancel(),
            _ => drop(entry),
        },
        // A wait that is dropped.
        other => drop(other),
    }
}

/// The counters of a reading: of times, their sum, their number and each range.
fn counters(families: &[Family]) -> HashMap<String, f64> {
    let mut counters = HashMap::new();
    for family in families {
        for (labels, value) in series(family) {
            let name = format!("{}{{{labels}}}", family.name());
            match value {
                Value::Times {
                    sum,
                    count,
                    histogram,
                    ..
                } => {
                    counters.insert(format!("{name} sum"), *sum);
                    counters.insert(format!("{name} count"), *count as f64);
                    for (edge, count) in histogram.iter().flat_map(Histogram::buckets) {
                        counters.insert(format!("{name} {edge:?}"), count as f64);
                    }
                }
                value if family.kind() == FamilyKind::Counter => {
                    counters.insert(name, value.as_f64());
                }
                _ => {}
            }
        }
    }
    counters
}

/// Has the threads end, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_series_falls_beside_threads_reloads_and_evictions() {
    let most = if cfg!(debug_assertions) {
        1_000
    } else {
        10_000
    };
    let looks = (attempts() / 100).min(most);
    let [first, second] = sets();
    let sentinel = Sentinel::builder()
        .rules(first.clone())
        .max_resources(50)
        .idle_after(ms(0))
        .histograms()
        .store(MemoryStore::new())
        .build();
    let metrics = Metrics::new(&sentinel);
    let is_over = AtomicBool::new(false);
    let mut series = 0;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (sentinel, is_over) = (&sentinel, &is_over);
            scope.spawn(move || {
                let mut number = thread;
                while !is_over.load(Ordering::Relaxed) {
                    call_on(sentinel, number);
                    number += THREADS;
                }
            });
        }
        let _over = Over(&is_over);
        let mut before = HashMap::new();
        for look in 0..looks {
            if look % 8 == 0 {
                let set = if look % 16 == 0 { &second } else { &first };
                sentinel.reload(set.clone());
            }
            let now = counters(&metrics.families());
            for (name, figure) in &now {
                let known = before.get(name).unwrap_or(&0.0);
                assert!(figure >= known, "{name} fell from {known} to {figure}");
            }
            series = series.max(now.len());
            before = now;
        }
    });
    let snapshot = sentinel.snapshot();
    let (totals, shared) = (snapshot.totals(), &snapshot.shared_rules()[0]);
    assert!(series > 100 && snapshot.evicted() > 0 && sentinel.rules_version() > 0);
    for (what, count) in [
        ("completed", totals.complete()),
        ("failed", totals.error()),
        ("cancelled", totals.cancelled()),
        ("refused", totals.block()),
        ("dropped", totals.waiting_dropped()),
        ("taken of a share", shared.local()),
    ] {
        assert!(count > 0, "nothing was {what}");
    }
    println!("{looks} looks at {series} counters, {totals:?}");
}

#[test]
fn calls_of_no_weight_move_no_counter_while_they_end() {
    const BEFORE: f64 = 1_000.0;
    let sentinel = Sentinel::new(FlowRule::per_second("/flow", 1_000_000));
    for _ in 0..BEFORE as u32 {
        drop(sentinel.try_enter(Call::new("/flow")));
    }
    let metrics = Metrics::new(&sentinel);
    let completed = |name| figures(&metrics, name)[0].1;
    // A first look beside such calls may see fewer, as it reads two counters one after the other.
    for name in ["sentinel_completed", "sentinel_engine_completed"] {
        assert_eq!(completed(name), BEFORE);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(sentinel.try_enter(Call::new("/flow").batch(0)));
                }
            });
        }
        let _over = Over(&is_over);
        for _ in 0..(attempts() / 10).min(100_000) {
            assert_eq!(completed("sentinel_completed"), BEFORE);
            assert_eq!(completed("sentinel_engine_completed"), BEFORE);
        }
    });
    let snapshot = sentinel.snapshot();
    assert!(snapshot.totals().calls() > BEFORE as u64, "there were some");
    assert_eq!(snapshot.totals().complete(), BEFORE as u64);
}
