//! What a resource, and what a key, takes on the heap.
//!
//! Each subject is made, called once for each of its resources or keys, and
//! kept; the bytes that are then in use more than before, by a counter around
//! the allocator, are divided by how many there are. Names and keys that a crate
//! keeps are in the figure, those of the caller are not.

mod heap;
#[allow(dead_code, reason = "here keys come in no order")]
mod keys;

use std::any::Any;
use std::collections::HashMap;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use sentinel_core::{EntryBuilder, base::TrafficType, flow};
use tower::{Layer, service_fn};
use tower_resilience_circuitbreaker::CircuitBreakerLayer;
use tower_resilience_ratelimiter::{RateLimiterLayer, WindowType};
use tower_sentinel::clock::Tick;
use tower_sentinel::keyed::KeyedLimiter;
use tower_sentinel::{Builder, Call, CircuitBreakerRule, Clock, FlowRule, IsolationRule, KeyedRule, ManualClock, Rule, Rules, Sentinel, Verdict};

use keys::AsKey;

#[global_allocator]
static HEAP: heap::Counted = heap::Counted;

const RESOURCES: usize = 10_000;
const KEYS: u32 = 100_000;
const LIMIT: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// Prints what `make` leaves on the heap, for each of `count`.
fn measure<T: Any>(what: &str, count: usize, make: impl FnOnce() -> T) {
    let before = heap::in_use();
    let made = make();
    let bytes = heap::in_use().saturating_sub(before);
    println!("| {what} | {:.1} |", bytes as f64 / count as f64);
    drop(made);
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::new(LIMIT).expect("above 0"))
}

// === resources ===

/// An engine with `rules` for each of `names`, which have been called in
/// `seconds` different seconds.
fn engine<const N: usize>(
    names: &[String],
    seconds: u32,
    rules: fn(&str) -> [Rule; N],
) -> Sentinel {
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let rules = Rules::build(names.iter().flat_map(|name| rules(name))).expect("good rules");
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .build();
    for _ in 0..seconds {
        for name in names {
            assert!(matches!(
                sentinel.try_enter(Call::new(name)),
                Verdict::Pass(_)
            ));
        }
        clock.advance(SECOND);
    }
    sentinel
}

fn sentinel_core(names: &[String]) {
    let rule = |name: &String| {
        Arc::new(flow::Rule {
            resource: name.clone(),
            threshold: f64::from(LIMIT),
            ..flow::Rule::default()
        })
    };
    flow::load_rules(names.iter().map(rule).collect());
    for name in names {
        let entry = EntryBuilder::new(name.clone()).with_traffic_type(TrafficType::Inbound);
        entry.build().expect("it passes").exit();
    }
}

/// Something for each name, as a program would keep it.
fn by_name<T>(names: &[String], make: impl Fn() -> T) -> HashMap<String, T> {
    names.iter().map(|name| (name.clone(), make())).collect()
}

fn resources() {
    let names: Vec<_> = (0..RESOURCES).map(|n| format!("/resources/{n}")).collect();
    let flow = |name: &str| [FlowRule::per_second(name, LIMIT).into()];
    let three = |name: &str| -> [Rule; 3] {
        [
            FlowRule::per_second(name, LIMIT).into(),
            IsolationRule::new(name, LIMIT).into(),
            CircuitBreakerRule::error_ratio(name, 0.5).into(),
        ]
    };
    println!("\n| one of {RESOURCES} resources | bytes |\n|---|---:|");
    measure("ours, no rule, called in one second", RESOURCES, || {
        engine(&names, 1, |_| [])
    });
    measure(
        "ours, one flow rule, called in one second",
        RESOURCES,
        || engine(&names, 1, flow),
    );
    measure(
        "ours, one flow rule, called in several seconds",
        RESOURCES,
        || engine(&names, 3, flow),
    );
    measure(
        "ours, flow, isolation and breaker, in one second",
        RESOURCES,
        || engine(&names, 1, three),
    );
    measure("sentinel-core, one flow rule", RESOURCES, || {
        sentinel_core(&names)
    });
    measure("governor, a limiter in a map", RESOURCES, || {
        let limiters = by_name(&names, || RateLimiter::direct(quota()));
        assert!(limiters.values().all(|limiter| limiter.check().is_ok()));
        limiters
    });
    let inner = || service_fn(|()| std::future::ready(Ok::<(), Infallible>(())));
    for (what, window) in [
        ("fixed", WindowType::Fixed),
        ("sliding log", WindowType::SlidingLog),
        ("sliding counter", WindowType::SlidingCounter),
    ] {
        let make = || {
            let layer = RateLimiterLayer::builder()
                .limit_for_period(LIMIT as usize)
                .refresh_period(SECOND)
                .timeout_duration(Duration::ZERO)
                .window_type(window.clone())
                .build();
            layer.expect("a limit").layer(inner())
        };
        let what = format!("tower-resilience, a rate limiter in a map, {what}, not called");
        measure(&what, RESOURCES, || by_name(&names, make));
    }
    measure(
        "tower-resilience, a circuit breaker in a map, not called",
        RESOURCES,
        || {
            by_name(&names, || {
                CircuitBreakerLayer::builder()
                    .build()
                    .expect("its defaults")
                    .layer(inner())
            })
        },
    );
}

// === keys ===

/// An engine that was called by or for each of `keys`.
fn called<K: AsKey>(keys: &[K], rule: Rule, configure: fn(Builder) -> Builder) -> Sentinel {
    let builder = Sentinel::builder().rules(rule).clock(ManualClock::new());
    let sentinel = configure(builder).build();
    for key in keys {
        let call = Call::new("/").origin(key.as_key()).param(key.as_key());
        assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
    }
    sentinel
}

fn keys<K: AsKey>(what: &str, keys: &[K]) {
    let count = keys.len();
    let open = || FlowRule::per_second("/", 2 * KEYS).into();
    println!("\n| one of {KEYS} keys, {what} | bytes |\n|---|---:|");
    measure("ours, `KeyedLimiter`", count, || {
        let now = ManualClock::new().now();
        let limiter = KeyedLimiter::per_second(LIMIT).max_keys(KEYS).build(now);
        let limiter = limiter.expect("a limit");
        assert!(
            keys.iter()
                .all(|key| limiter.try_acquire(now, key.as_key(), 1).is_ok())
        );
        limiter
    });
    measure("ours, a hot parameter of an engine", count, || {
        let rule = KeyedRule::per_second("/", LIMIT).max_keys(KEYS);
        called(keys, rule.into(), |builder| builder)
    });
    measure("ours, a plain limit by origin", count, || {
        let rule = FlowRule::per_second("/", LIMIT).by_origin();
        called(keys, rule.into(), |builder| {
            builder.max_origins(KEYS as usize)
        })
    });
    measure("ours, statistics of each origin", count, || {
        called(keys, open(), |builder| {
            builder.origins(true).max_origins(KEYS as usize)
        })
    });
    measure("governor, keyed", count, || {
        let limiter = RateLimiter::dashmap(quota());
        assert!(keys.iter().all(|key| limiter.check_key(key).is_ok()));
        limiter
    });
}

fn main() {
    resources();
    keys("addresses", &keys::addresses(KEYS));
    keys("texts of 16 to 21 bytes", &keys::texts(KEYS));
}
