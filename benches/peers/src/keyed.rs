//! What a check of one key among many costs, and what a key takes on the heap.
//!
//! Every limiter first sees each key once (that is the heap figure), and then
//! reads: rounds of all limiters in turn, so that a slow minute of the machine
//! hits them alike. Figures are medians over the rounds; a ratio is the median
//! of the ratios of each round.
//!
//! Two threads at once are timed as well, on one key and on many.
//!
//! Arguments, if any, are what to run: numbers of keys, `threads`.

mod heap;
mod keys;

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::clock::{DefaultClock, MonotonicClock as StdClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tower_sentinel::clock::{MonotonicClock, QuantaClock};
use tower_sentinel::keyed::KeyedLimiter;
use tower_sentinel::Clock;

use keys::{AsKey, Spread};

#[global_allocator]
static HEAP: heap::Counted = heap::Counted;

const ROUNDS: usize = 11;
const CHECKS: usize = 1 << 20;
/// High enough that every check passes, also those of two threads on one key.
const LIMIT: u32 = 100_000_000;

/// Checks keys in an order, and counts those that pass.
type Check<K> = Box<dyn Fn(&[K], &[u32]) -> u32 + Send + Sync>;

/// A limiter under test.
struct Peer<K> {
    name: &'static str,
    check: Check<K>,
    heap: usize,
}

impl<K: 'static> Peer<K> {
    /// Makes a limiter and shows it every key once.
    fn new<F: Fn(&K) -> bool + Send + Sync + 'static>(
        name: &'static str,
        keys: &[K],
        make: impl FnOnce() -> F,
    ) -> Self {
        let before = heap::in_use();
        let check = make();
        assert!(keys.iter().all(&check), "{name} refuses");
        let heap = heap::in_use() - before;
        // The loop is compiled for each limiter, so that its check is inlined.
        let check = Box::new(move |keys: &[K], order: &[u32]| {
            let passes = order.iter().filter(|&&key| check(&keys[key as usize]));
            passes.count() as u32
        });
        Self { name, check, heap }
    }
}

fn ours<K: AsKey>(count: u32, clock: impl Clock) -> impl Fn(&K) -> bool + Send + Sync {
    let limiter = KeyedLimiter::per_second(LIMIT).max_keys(count);
    let limiter = limiter.build(clock.now()).expect("a valid limit");
    move |key| limiter.try_acquire(clock.now(), key.as_key(), 1).is_ok()
}

fn governor<K: AsKey, C>(clock: C) -> impl Fn(&K) -> bool + Send + Sync
where
    C: governor::clock::Clock<Instant: Send + Sync> + Send + Sync + 'static,
{
    let quota = Quota::per_second(NonZeroU32::new(LIMIT).expect("above 0"));
    let states = DashMapStateStore::<K>::default();
    let limiter: RateLimiter<K, _, C, NoOpMiddleware<C::Instant>> =
        RateLimiter::new(quota, states, clock);
    move |key| limiter.check_key(key).is_ok()
}

fn peers<K: AsKey>(keys: &[K]) -> Vec<Peer<K>> {
    let count = keys.len() as u32;
    let quanta = QuantaClock::new();
    vec![
        Peer::new("governor, quanta", keys, || {
            governor(DefaultClock::default())
        }),
        Peer::new("tower-sentinel, quanta", keys, move || ours(count, quanta)),
        Peer::new("governor, Instant", keys, || governor(StdClock)),
        Peer::new("tower-sentinel, Instant", keys, move || {
            ours(count, MonotonicClock::new())
        }),
        Peer::new("dashmap, add only", keys, || {
            let map: dashmap::DashMap<K, AtomicU64> = dashmap::DashMap::new();
            move |key: &K| {
                if let Some(known) = map.get(key) {
                    return known.fetch_add(1, Ordering::Relaxed) < u64::MAX;
                }
                map.insert(key.clone(), AtomicU64::new(1)).is_none()
            }
        }),
        Peer::new("quick_cache, add only", keys, move || {
            let cache: quick_cache::sync::Cache<K, std::sync::Arc<AtomicU64>> =
                quick_cache::sync::Cache::new(count as usize);
            move |key: &K| {
                if let Some(known) = cache.get(key) {
                    return known.fetch_add(1, Ordering::Relaxed) < u64::MAX;
                }
                cache.insert(key.clone(), AtomicU64::new(1).into());
                true
            }
        }),
    ]
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How long it takes until every order is through, each on a thread of its own.
fn time<K: Sync>(peer: &Peer<K>, keys: &[K], orders: &[Vec<u32>]) -> Duration {
    let check = |order: &Vec<u32>| {
        let passed = black_box((peer.check)(keys, black_box(order)));
        assert_eq!(passed as usize, CHECKS, "{} refuses", peer.name);
    };
    #[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
    let start = Instant::now();
    match orders {
        [order] => check(order),
        orders => std::thread::scope(|scope| {
            for order in orders {
                scope.spawn(|| check(order));
            }
        }),
    }
    start.elapsed()
}

fn compare<K: AsKey>(what: &str, keys: &[K], spread: &str, peers: &[Peer<K>], orders: &[Vec<u32>]) {
    let mut ns = vec![Vec::new(); peers.len()];
    for round in 0..=ROUNDS {
        for (peer, ns) in peers.iter().zip(&mut ns) {
            let took = time(peer, keys, orders);
            // The first round warms up.
            if round > 0 {
                ns.push(took.as_nanos() as f64 / CHECKS as f64);
            }
        }
    }
    for (place, peer) in peers.iter().enumerate() {
        // Each of ours beside governor with the same clock, all others beside
        // governor as it comes.
        let beside = if place == 3 { 2 } else { 0 };
        let ratios = ns[place].iter().zip(&ns[beside]).map(|(a, b)| a / b);
        println!(
            "| {what} | {} | {spread} | {} | {:.1} | {:.2} | {:.1} |",
            keys.len(),
            peer.name,
            median(ns[place].clone()),
            median(ratios.collect()),
            peer.heap as f64 / keys.len() as f64,
        );
    }
}

fn run<K: AsKey>(what: &str, keys: &[K]) {
    let peers = peers(keys);
    for spread in [Spread::Uniform, Spread::Zipf] {
        let order = keys::order(spread, keys.len() as u32, CHECKS);
        compare(what, keys, &format!("{spread:?}"), &peers, &[order]);
    }
}

fn run_threads() {
    let keys = keys::addresses(100_000);
    let peers = peers(&keys);
    let hot = vec![0; CHECKS];
    compare(
        "IpAddr",
        &keys,
        "two threads, one key",
        &peers,
        &[hot.clone(), hot],
    );
    let order = keys::order(Spread::Uniform, keys.len() as u32, CHECKS);
    let mut other = order.clone();
    other.rotate_left(CHECKS / 2);
    compare(
        "IpAddr",
        &keys,
        "two threads, uniform",
        &peers,
        &[order, other],
    );
}

fn main() {
    println!(
        "| key | keys | spread | limiter | ns per check | beside governor | heap bytes per key |"
    );
    println!("|---|---:|---|---|---:|---:|---:|");
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |what: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == what);
    for count in [1_000, 100_000, 1_000_000] {
        if is_wanted(&count.to_string()) {
            run("IpAddr", &keys::addresses(count));
            run("String", &keys::texts(count));
        }
    }
    if is_wanted("threads") {
        run_threads();
    }
}
