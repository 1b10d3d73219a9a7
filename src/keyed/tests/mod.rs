//! Tests of keys, many of them against naive oracles, or in tables so small that keys compete for
//! slots.

mod blocks;
mod calendar;
mod costs;
mod costs_stress;
mod exact;
mod limiter;
mod naive_costs;
mod plans;
mod rates;
mod steps;
mod table;
mod turns;
mod wide;
mod words;

use std::time::Duration;

use super::table::KeyTable;
use super::{Counting, Digest, HotKeys, KeyLimit, KeySpec, KeyTokens};
use crate::call::Key;
use crate::clock::Tick;

const SECOND: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn spec(count: Counting, interval: Duration) -> KeySpec {
    let max_keys = 1_000;
    KeySpec {
        count,
        interval,
        max_keys,
    }
}

fn keys(count: Counting, interval: Duration) -> HotKeys {
    HotKeys::new(spec(count, interval), Tick::ZERO)
}

/// Creates keys in a table of one set, that is, of eight slots.
fn crowded(count: Counting) -> HotKeys {
    HotKeys::of_table(KeyTable::of_sets(1), spec(count, SECOND), Tick::ZERO)
}

/// Makes calls of one token at `now` until one is refused, at most `most`. Returns how many pass.
fn passes(keys: &HotKeys, now: u64, key: Digest, limit: &KeyLimit, most: u32) -> u32 {
    let pass = |_: &u32| keys.take(at(now), key, limit, 1).is_ok();
    (0..most).take_while(pass).count() as u32
}

/// Ends the call of `taken`.
fn release(keys: &HotKeys, taken: &KeyTokens) {
    keys.release(taken.pinned(), taken.paid as u32);
}

/// Makes a call that must be refused. Returns the time at which it could pass.
fn refused(keys: &HotKeys, now: Tick, key: Digest, limit: &KeyLimit, n: u32) -> Option<Tick> {
    keys.take(now, key, limit, n).unwrap_err().available_at()
}

/// A digest for `number`. Digests are spread by a multiplication that is a permutation.
fn digest(number: u64) -> Digest {
    Digest((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
