//! What one decision costs, in multiples of one atomic addition.
//!
//! ```text
//! cargo bench --bench hot_path
//! ```

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::Bench;
use tower_sentinel::clock::{MonotonicClock, QuantaClock, Tick};
use tower_sentinel::stat::{LeapArray, SlidingWindow};
use tower_sentinel::{Call, Clock, FlowRule, ManualClock, Rules, Sentinel};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Tick = Tick::from_millis(1_200);
/// More than a run uses up.
const PLENTY: u32 = (1 << 31) - 1;
/// Decisions after which the clock moves on by a bucket, so that no window fills
/// up and opening buckets is paid for as well.
const PER_BUCKET: u64 = 1 << 20;

fn main() {
    core();
    engine();
}

/// The structures alone: no clock, no lookup.
fn core() {
    let word = AtomicU64::new(0);
    let mut bench = Bench::against("window, time given", "fetch_add", move || {
        word.fetch_add(1, Ordering::Relaxed)
    });

    let word = AtomicU64::new(0);
    bench.add("load + compare_exchange", move || increment(&word));
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    bench.add("load + compare_exchange, and fetch_add", move || {
        increment(&words[0]);
        words[1].fetch_add(1, Ordering::Relaxed)
    });

    let array = array();
    let mut time = Time::new();
    bench.add("LeapArray::add", move || array.add(time.now(), 1));

    for (name, rules) in [
        ("try_acquire, one rule", 1),
        ("try_acquire, three rules", 3),
    ] {
        let array = self::array();
        let quotas: Vec<_> = (1..=rules)
            .map(|seconds| array.quota(SECOND * seconds, PLENTY).expect("on the grid"))
            .collect();
        let mut time = Time::new();
        bench.add(name, move || {
            array.try_acquire(time.now(), 1, &quotas).is_ok()
        });
    }

    let array = LeapArray::new(SECOND, 2).expect("two buckets");
    let quota = [array.quota(SECOND, PLENTY).expect("the whole window")];
    let mut time = Time::new();
    bench.add("try_acquire, one rule, two buckets", move || {
        array.try_acquire(time.now(), 1, &quota).is_ok()
    });

    let array = self::array();
    let full = [array.quota(SECOND, 10).expect("on the grid")];
    array.try_acquire(NOW, 10, &full).expect("it is empty");
    let granted = array.granted();
    bench.add("try_acquire, refused", move || {
        assert!(array.try_acquire(NOW, 1, &full).is_err());
        assert_eq!(array.granted(), granted, "a refusal writes nothing");
    });

    let window = SlidingWindow::new(SECOND, 2).expect("two slices");
    let mut time = Time::new();
    bench.add("SlidingWindow::try_add", move || {
        window.try_add(time.now(), 1, PLENTY)
    });

    bench.print();
}

/// The engine: clock, lookup, decision, and the end of the call.
fn engine() {
    let word = AtomicU64::new(0);
    let mut bench = Bench::against("engine, a known resource", "fetch_add", move || {
        word.fetch_add(1, Ordering::Relaxed)
    });
    let clock = MonotonicClock::new();
    bench.add("two readings of MonotonicClock", move || {
        (clock.now(), clock.now())
    });
    let clock = QuantaClock::new();
    bench.add("two readings of QuantaClock", move || {
        (clock.now(), clock.now())
    });

    let enter = |sentinel: Sentinel, call: Call<'static>| move || sentinel.try_enter(call);
    let one = || FlowRule::per_second("/known", PLENTY);
    let call = Call::new("/known");
    bench.add(
        "admit + complete, ManualClock",
        enter(build(one(), ManualClock::new()), call),
    );
    bench.add(
        "admit + complete, QuantaClock",
        enter(build(one(), QuantaClock::new()), call),
    );
    bench.add(
        "admit + complete, MonotonicClock",
        enter(build(one(), MonotonicClock::new()), call),
    );
    let three = (1..=3).fold(Rules::new(), |rules, seconds| {
        rules.with(FlowRule::per("/known", PLENTY, SECOND * seconds))
    });
    bench.add(
        "admit + complete, QuantaClock, three rules",
        enter(build(three, QuantaClock::new()), call),
    );
    bench.add(
        "admit + complete, QuantaClock, by origin",
        enter(
            build(one().by_origin(), QuantaClock::new()),
            call.origin("caller"),
        ),
    );
    for (row, names) in [
        ("QuantaClock, 16 names at random", 16),
        ("QuantaClock, 64 names at random", 64),
        ("QuantaClock, 1,000 names at random", 1_000),
    ] {
        let sentinel = build(Rules::new(), QuantaClock::new());
        let names: Vec<_> = (0..names).map(|name| format!("/known/{name}")).collect();
        let mut random = 1_u32;
        bench.add(row, move || {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            sentinel.try_enter(Call::new(&names[random as usize % names.len()]))
        });
    }
    bench.add(
        "refused, QuantaClock",
        enter(
            build(FlowRule::per_second("/known", 0), QuantaClock::new()),
            call,
        ),
    );
    bench.print();
}

fn build(rules: impl Into<Rules>, clock: impl Clock) -> Sentinel {
    Sentinel::builder().rules(rules).clock(clock).build()
}

fn array() -> LeapArray {
    LeapArray::new(SECOND * 3, 6).expect("six buckets of half a second")
}

/// The least that a decision and its record in one word can cost.
fn increment(word: &AtomicU64) -> bool {
    let found = word.load(Ordering::Acquire);
    word.compare_exchange(found, found + 1, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// A clock that moves on now and then.
struct Time {
    now: Tick,
    left: u64,
}

impl Time {
    fn new() -> Self {
        Self {
            now: NOW,
            left: PER_BUCKET,
        }
    }

    fn now(&mut self) -> Tick {
        self.left -= 1;
        if self.left == 0 {
            self.left = PER_BUCKET;
            self.now = self.now + Duration::from_millis(500);
        }
        self.now
    }
}
