//! What a client that makes values up does to the speed of rules for each value.
//!
//! ```text
//! cargo bench --bench attack
//! ```
//!
//! In peace a few known values call in turn, or nearly as many as the table is
//! for. Under attack every call has a value that nobody has seen, and comes to a
//! table in which all slots are taken: first by values that are not at rest, so
//! that it is refused by the quota that all others share; then by values that come
//! to rest while the attack goes on, so that it takes a slot over. Below each table
//! stands the throughput of the attack, and of calls of which every other one is
//! the attacker's, each as a part of that of few known values, and of many.

mod support;

use std::time::Duration;

use support::Bench;
use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel};

/// Known values: few, and nearly as many as the table is for.
const FEW: u64 = 1_000;
const MANY: u64 = 50_000;
/// Keys of the table under attack, and calls that fill it.
const TABLE: u32 = 65_536;
const FILL: u64 = 4 * TABLE as u64;
/// More than a run uses up.
const PLENTY: u32 = (1 << 31) - 1;

fn main() {
    let hour = Duration::from_secs(3_600);
    let rule = KeyedRule::per("r", 1, hour).tier("known", PLENTY);
    compare("no slot is to be had: refused", &rule, Duration::ZERO);
    // Of values that come one each microsecond, 50 000 are not at rest.
    let rule = KeyedRule::per("r", 1, Duration::from_millis(50)).burst(PLENTY);
    compare("slots change hands", &rule, Duration::from_micros(1));
}

/// Measures calls of known values against made-up ones, where a call comes each
/// `step`.
fn compare(title: &'static str, rule: &KeyedRule, step: Duration) {
    let mut bench = Bench::against(title, "in peace: few known values", {
        let mut engine = Engine::new(rule, step, FEW);
        move || engine.known()
    });
    bench.add("in peace: many known values", {
        let mut engine = Engine::new(rule, step, MANY);
        move || engine.known()
    });
    bench.add("attack: values that nobody has seen", {
        let mut engine = Engine::flooded(rule, step);
        move || engine.made_up()
    });
    bench.add("attack, and a known value", {
        let mut engine = Engine::flooded(rule, step);
        move || {
            engine.made_up();
            engine.known();
        }
    });
    let times = bench.print();
    let [few, many, attack, both] = times.as_slice() else {
        unreachable!("four operations");
    };
    println!(
        "\nthroughput of the attack: {:.2} of few, {:.2} of many; every other call: {:.2}, {:.2}",
        few / attack,
        many / attack,
        2.0 * few / both,
        2.0 * many / both,
    );
}

struct Engine {
    sentinel: Sentinel,
    clock: ManualClock,
    step: Duration,
    keys: u64,
    known: u64,
    made_up: u64,
}

impl Engine {
    fn new(rule: &KeyedRule, step: Duration, keys: u64) -> Self {
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder()
            .rules(rule.clone().max_keys(TABLE))
            .clock(clock.clone())
            .build();
        let mut engine = Self {
            sentinel,
            clock,
            step,
            keys,
            known: 0,
            made_up: keys,
        };
        (0..keys).for_each(|_| engine.known());
        engine
    }

    fn flooded(rule: &KeyedRule, step: Duration) -> Self {
        let mut engine = Self::new(rule, step, FEW);
        (0..FILL).for_each(|_| engine.made_up());
        engine
    }

    fn known(&mut self) {
        self.known = (self.known + 1) % self.keys;
        self.call(self.known, "known");
    }

    fn made_up(&mut self) {
        self.made_up += 1;
        self.call(self.made_up, "other");
    }

    fn call(&self, value: u64, tier: &str) {
        self.clock.advance(self.step);
        let call = Call::new("r").param(value).tier(tier);
        drop(self.sentinel.try_enter(call));
    }
}
