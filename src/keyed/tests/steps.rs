//! Random calls of a few keys in tables of one and two sets, compared with an oracle that never
//! evicts a key.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;

use super::exact::{Exact, Held};
use super::{KeyTable, digest, release};
use crate::clock::{CalendarPeriod, Tick};
use crate::keyed::{Counting, HotKeys, KeyLimit, KeySpec, KeyTokens};

const KEYS: u64 = 24;
const MS: u64 = 1_000_000;

/// A step of several keys.
#[derive(Clone, Debug)]
enum Step {
    /// Advances the clock, in ns.
    Wait(u64),
    /// Takes `n` tokens of `key`.
    Take { key: u64, n: u32 },
    /// Refunds one of the calls so far.
    GiveBack(Index),
    /// Ends one of the calls so far.
    End(Index),
}

/// A step of a single key.
#[derive(Clone, Debug)]
enum KeyStep {
    /// A call with a clock reading that is `late_ns` old.
    Take {
        late_ns: u64,
        n: u32,
    },
    GiveBack(Index),
}

fn key_step() -> impl Strategy<Value = KeyStep> {
    let late_ns = prop_oneof![3 => Just(0), 1 => 0..500 * MS];
    prop_oneof![
        2 => (late_ns, 1..9_u32).prop_map(|(late_ns, n)| KeyStep::Take { late_ns, n }),
        1 => any::<Index>().prop_map(KeyStep::GiveBack),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        0..5_u64,
        0..30 * MS,
        Just(50 * MS),
        Just(100 * MS),
        0..2_000 * MS
    ];
    let step = prop_oneof![
        2 => wait.prop_map(Step::Wait),
        9 => (0..KEYS, 0..4_u32).prop_map(|(key, n)| Step::Take { key, n }),
        1 => any::<Index>().prop_map(Step::GiveBack),
        1 => any::<Index>().prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..150)
}

fn counts() -> impl Strategy<Value = Counting> {
    prop_oneof![
        Just(Counting::Refill),
        Just(Counting::Window),
        Just(Counting::Running),
        (0..300 * MS).prop_map(|ns| Counting::Queue(Duration::from_nanos(ns))),
    ]
}

/// A table and its oracle.
struct Pair {
    keys: HotKeys,
    count: Counting,
    interval: Duration,
    /// The threshold and the burst of each limit.
    limits: [(u32, u32); 2],
    /// The limits, prepared for the table.
    ready: [KeyLimit; 2],
    /// The number of sets of the table.
    sets: usize,
    /// The oracle of a new key.
    new: Exact,
    /// The oracle of each key.
    exact: HashMap<u64, Exact>,
    /// The time at which each key was last counted in a slot.
    touched: HashMap<u64, u64>,
    /// The oracle of the shared word.
    overflow: Exact,
    /// The calls that have passed: the key, whether it used the shared word, and what the table and
    /// the oracle returned.
    held: Vec<(u64, bool, KeyTokens, Held)>,
}

impl Pair {
    fn new(count: Counting, interval: Duration, limits: [(u32, u32); 2], sets: usize) -> Self {
        let max_keys = 1;
        let spec = KeySpec {
            count,
            interval,
            max_keys,
        };
        let keys = HotKeys::of_table(KeyTable::of_sets(sets), spec, Tick::ZERO);
        Self::of(keys, (count, interval), limits, sets)
    }

    fn of(
        keys: HotKeys,
        (count, interval): (Counting, Duration),
        limits: [(u32, u32); 2],
        sets: usize,
    ) -> Self {
        // Prepares the limits twice, because the second limit may have such cheap tokens that the
        // first one must be prepared without a rate number.
        let [_, ready] =
            [(); 2].map(|()| limits.map(|(threshold, burst)| keys.limit(threshold.into(), burst)));
        // Returns whether a token costs less than 16 µs. Then words have no rate numbers.
        let is_short = |&(threshold, _): &(u32, u32)| {
            let cost = (interval.as_nanos() * 16).checked_div(threshold.into());
            cost.is_some_and(|cost| cost < (1 << 18) - 1)
        };
        let new = Exact::new(limits.iter().any(is_short));
        Self {
            keys,
            count,
            interval,
            limits,
            ready,
            sets,
            exact: HashMap::new(),
            touched: HashMap::new(),
            overflow: new.clone(),
            new,
            held: Vec::new(),
        }
    }

    /// Returns whether `key` is at rest, according to its oracle.
    fn rests(&self, key: u64, now: u64) -> bool {
        let touched = self.touched.get(&key).copied();
        self.exact[&key].rests(self.count, self.interval, now, touched)
    }

    /// Makes a call of `n` tokens, and compares the answer with the oracle.
    fn take(&mut self, now: u64, key: u64, n: u32) {
        // Every key has only one limit, and in a queue only one weight: with several, an eviction
        // could make a difference (see `queue`).
        let which = key as usize % 2;
        let n = if matches!(self.count, Counting::Queue(_)) {
            n.min(1)
        } else {
            n
        };
        let others = self
            .exact
            .keys()
            .filter(|&&other| other != key && !self.rests(other, now));
        let busy = others.count();
        let before = self.keys.overflows();
        let found = self
            .keys
            .take(Tick::from_nanos(now), digest(key), &self.ready[which], n);
        let is_overflow = self.keys.overflows() > before;
        if self.sets == 1 && !matches!(self.count, Counting::Queue(_)) && n > 0 {
            // A key gets a slot unless eight other keys are not at rest.
            let (threshold, burst) = self.limits[which];
            let burst = if self.count == Counting::Refill {
                burst
            } else {
                0
            };
            let can_pass = threshold > 0 && n <= threshold + burst;
            assert_eq!(is_overflow, busy == 8, "{busy} others, {can_pass}");
        }
        let exact = if is_overflow {
            &mut self.overflow
        } else {
            self.exact.entry(key).or_insert_with(|| self.new.clone())
        };
        let expected = exact.take(self.count, self.interval, self.limits[which], now, n);
        let start = found.map(|taken| i128::from(taken.start().as_nanos()));
        assert_eq!(
            start.ok(),
            expected.map(|(start, _)| start),
            "key {key} at {now}"
        );
        match (found, expected) {
            (Ok(taken), Some((_, held))) => {
                if n > 0 && !is_overflow {
                    self.touched.insert(key, now);
                }
                self.held.push((key, is_overflow, taken, held));
            }
            (Err(full), _) => self.check_room(now, key, n, full.available_at(), is_overflow),
            (Ok(_), None) => unreachable!("both passed"),
        }
    }

    /// Checks that the call would pass at the time that a refusal names, and not before.
    fn check_room(
        &self,
        now: u64,
        key: u64,
        n: u32,
        available_at: Option<Tick>,
        is_overflow: bool,
    ) {
        let Some(available_at) = available_at else {
            return;
        };
        if self.count == Counting::Running {
            assert_eq!(available_at.as_nanos(), now);
            return;
        }
        let exact = if is_overflow {
            &self.overflow
        } else {
            &self.exact[&key]
        };
        let (count, interval) = (self.count, self.interval);
        let limit = self.limits[key as usize % 2];
        let available_at = available_at.as_nanos();
        assert!(available_at > now);
        assert!(
            exact
                .clone()
                .take(count, interval, limit, available_at, n)
                .is_some()
        );
        assert!(
            exact
                .clone()
                .take(count, interval, limit, available_at - 1, n)
                .is_none()
        );
    }

    /// Refunds one of the calls, in the table and in the oracle.
    fn refund(&mut self, now: u64, index: Index) {
        let (key, is_overflow, taken, held) = self.held.swap_remove(index.index(self.held.len()));
        assert!(held.taken_at() <= now.into());
        self.keys.refund(|| Tick::from_nanos(now), &taken);
        self.exact_of(key, is_overflow).refund(now, held);
    }

    /// Ends one of the calls, in the table and in the oracle.
    fn end(&mut self, index: Index) {
        let (key, is_overflow, taken, held) = self.held.swap_remove(index.index(self.held.len()));
        release(&self.keys, &taken);
        if self.count == Counting::Running {
            self.exact_of(key, is_overflow).end(held);
        }
    }

    /// Runs `steps` from `begin` on, with waits that are `pace` times as long.
    fn run(&mut self, steps: Vec<Step>, begin: u64, pace: u64) {
        let mut now = begin;
        for step in steps {
            match step {
                Step::Wait(by) => now += by * pace,
                Step::Take { key, n } => self.take(now, key, n),
                Step::GiveBack(index) if !self.held.is_empty() => self.refund(now, index),
                Step::End(index) if !self.held.is_empty() => self.end(index),
                Step::GiveBack(_) | Step::End(_) => {}
            }
        }
    }

    /// The oracle of `key`, or of the shared word.
    fn exact_of(&mut self, key: u64, is_overflow: bool) -> &mut Exact {
        if is_overflow {
            &mut self.overflow
        } else {
            self.exact.entry(key).or_insert_with(|| self.new.clone())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn keys_get_as_much_as_if_none_were_evicted(
        count in counts(),
        sets in 1..3_usize,
        interval_ms in prop_oneof![1..3_u64, Just(100), Just(1_000), 1..5_000_u64],
        limits in [(0..9_u32, 0..4_u32), (1..2_000_u32, 0..3_u32)],
        begin in prop_oneof![Just(0), (1 << 24) - 20..1_u64 << 24],
        steps in steps(),
    ) {
        let mut pair = Pair::new(count, Duration::from_millis(interval_ms), limits, sets);
        // Starts at 0, or a few buckets before bucket numbers wrap.
        pair.run(steps, begin * interval_ms * MS / 2, 1);
    }

    #[test]
    fn keys_get_as_much_in_a_day_or_month_as_if_none_were_evicted(
        period in prop_oneof![Just(CalendarPeriod::Day), Just(CalendarPeriod::Month)],
        epoch_days in 0..9_000_u32,
        utc_offset in prop_oneof![Just(0), -1_439..1_440_i32],
        sets in 1..3_usize,
        limits in [(0..9_u32, 0..1_u32), (1..2_000_u32, 0..1_u32)],
        begin in prop_oneof![Just(0), 0..1_000_u64],
        steps in steps(),
    ) {
        const DAY_NS: u64 = 86_400_000_000_000;
        let (count, max_keys) = (Counting::Calendar(period), 1);
        let spec = KeySpec { count, interval: Duration::ZERO, max_keys };
        let epoch = Duration::from_nanos(DAY_NS) * epoch_days;
        let keys = HotKeys::of_table(KeyTable::of_sets(sets), spec, Tick::ZERO)
            .by_calendar(epoch, utc_offset);
        let ahead = epoch.as_nanos() as i128 + i128::from(utc_offset) * 60_000_000_000;
        let mut pair = Pair::of(keys, (count, Duration::from_secs(1)), limits, sets);
        pair.new = pair.new.clone().ahead(ahead);
        pair.overflow = pair.new.clone();
        // Steps of up to two seconds are stretched to steps of up to two periods.
        let pace = match period {
            CalendarPeriod::Day => 86_400,
            CalendarPeriod::Month => 31 * 86_400,
        };
        pair.run(steps, begin * DAY_NS, pace);
    }

    /// The tables have eight sets, so that every key gets slots in both tables: the oracle does not
    /// know keys with a slot in only one of them.
    #[test]
    fn keys_get_as_much_in_wide_windows_as_if_none_were_evicted(
        interval_s in prop_oneof![Just(1_u64), 1..100_u64],
        limits in [(0..9_u32, 0..1_u32), (1..2_000_u32, 0..1_u32)],
        begin in prop_oneof![Just(0), 0..1_000_u64],
        steps in steps(),
    ) {
        let (count, interval) = (Counting::Window, Duration::from_secs(interval_s));
        let spec = KeySpec { count, interval, max_keys: 1 };
        let [even, odd] = [(); 2].map(|()| KeyTable::of_sets(8));
        let keys = HotKeys::of_table(even, spec, Tick::ZERO).with_odd_buckets(odd);
        let mut pair = Pair::of(keys, (count, interval), limits, 8);
        pair.run(steps, begin * interval_s * 1_000 * MS / 2, interval_s);
        prop_assert_eq!(pair.keys.overflows(), 0);
    }

    /// A late call counts in the newest bucket of its key, whose number is in the word after the
    /// call.
    #[test]
    fn a_wide_window_never_holds_more_than_its_limit(
        threshold in prop_oneof![1..20_u32, 1..2_147_483_648_u32],
        steps in prop::collection::vec((prop_oneof![0..3_u64, 0..2_000 * MS], key_step()), 1..60),
    ) {
        let (count, interval) = (Counting::Window, Duration::from_secs(2));
        let spec = KeySpec { count, interval, max_keys: 1 };
        let keys = HotKeys::new(spec, Tick::ZERO).with_wide_windows(1);
        let limit = keys.limit(threshold.into(), 0);
        let mut now = 0;
        let mut passed: Vec<(u64, u32, KeyTokens)> = Vec::new();
        for (wait, step) in steps {
            now += wait;
            match step {
                KeyStep::Take { late_ns, n } => {
                    let read = now.saturating_sub(late_ns * 4);
                    let weight = n.max(threshold / 8 * (n % 3));
                    let taken = keys.take(Tick::from_nanos(read), digest(1), &limit, weight);
                    if let Ok(taken) = taken {
                        passed.push((taken.after() >> 32, weight, taken));
                    }
                }
                KeyStep::GiveBack(index) if !passed.is_empty() => {
                    let (.., taken) = passed.swap_remove(index.index(passed.len()));
                    keys.refund(|| Tick::from_nanos(now), &taken);
                }
                KeyStep::GiveBack(_) => {}
            }
            for &(first, ..) in &passed {
                let in_window = |it: &&(u64, u32, KeyTokens)| it.0 == first || it.0 == first + 1;
                let sum: u64 = passed.iter().filter(in_window).map(|it| u64::from(it.1)).sum();
                prop_assert!(sum <= threshold.into());
            }
        }
    }

    /// Checks the guarantee of refilled quotas: in any time, the calls that run take at most the
    /// capacity plus the tokens earned in that time. Random other calls are refunded, and random
    /// clock readings are late.
    #[test]
    fn a_refilled_quota_never_gives_more_than_it_has_and_earns(
        threshold in prop_oneof![1..20_u32, 1..2_147_483_648_u32],
        fraction in prop_oneof![Just(0.0), 0.0..1.0_f64],
        burst in 0..5_u32,
        interval_ms in prop_oneof![Just(1_u64), Just(1_000), 1..100_000_u64],
        steps in prop::collection::vec((prop_oneof![0..3_u64, 0..2_000 * MS], key_step()), 1..60),
    ) {
        let interval = Duration::from_millis(interval_ms);
        let max_keys = 1;
        let spec = KeySpec { count: Counting::Refill, interval, max_keys };
        let keys = HotKeys::new(spec, Tick::ZERO);
        let threshold = f64::from(threshold) - fraction;
        let limit = keys.limit(threshold, burst);
        let mut now = 0;
        let mut passed: Vec<(u64, u32, KeyTokens)> = Vec::new();
        for (wait, step) in steps {
            now += wait;
            match step {
                KeyStep::Take { late_ns, n } => {
                    let read = now.saturating_sub(late_ns);
                    let taken = keys.take(Tick::from_nanos(read), digest(1), &limit, n);
                    passed.extend(taken.map(|taken| (read, n, taken)));
                }
                KeyStep::GiveBack(index) if !passed.is_empty() => {
                    let (.., taken) = passed.swap_remove(index.index(passed.len()));
                    keys.refund(|| Tick::from_nanos(now), &taken);
                }
                KeyStep::GiveBack(_) => {}
            }
        }
        passed.sort_unstable_by_key(|&(read, ..)| read);
        for (first, &(from, ..)) in passed.iter().enumerate() {
            let mut sum = 0.0;
            for &(to, n, _) in &passed[first..] {
                sum += f64::from(n);
                let earned = (to - from) as f64 * threshold / interval.as_nanos() as f64;
                let most = threshold + f64::from(burst) + earned;
                prop_assert!(sum <= most * (1.0 + 1e-12), "{} of {}", sum, most);
            }
        }
    }
}
