//! Random histories of calls with costs, against a naive list of what was charged and of the calls
//! that run.
//!
//! `SENTINEL_SEED` sets the seed of the first history, `SENTINEL_HISTORIES` how many there are.

use std::env;
use std::time::Duration;

use tower_sentinel::{Call, Entry, FlowRule, ManualClock, Meter, Sentinel};

use crate::support::{Rng, engine, enter};

const STEPS: usize = 60;

/// A history of a rule of `buckets` buckets of a second each.
struct History {
    rng: Rng,
    sentinel: Sentinel,
    clock: ManualClock,
    naive: Naive,
    running: Vec<Running>,
    buckets: u64,
    is_strict: bool,
    /// Whether rules are reloaded. Else each window is compared with the promise.
    has_reloads: bool,
    /// Whether a provider tells what it has left.
    has_provider: bool,
    log: Vec<String>,
}

/// A call in both engines: its entry until it has ended, and the meters that are left.
struct Running {
    entry: Option<Entry>,
    meters: Vec<Meter>,
    account: Account,
}

/// What a naive engine knows of a call.
#[derive(Clone, Copy, Default)]
struct Account {
    reserved: u32,
    rest: u32,
    charged: u32,
    is_told: bool,
    has_failed: bool,
}

/// Everything that was charged: when, and how much.
#[derive(Default)]
struct Naive {
    limit: u32,
    now_ms: u64,
    /// The buckets of a window.
    counted: u64,
    charges: Vec<(u64, u32)>,
    reserved: u32,
    /// What calls have cost beyond their reservations.
    excess: u32,
    untold: u64,
    /// What a provider has told.
    told: Option<Told>,
}

/// What a provider has left, until its reset.
#[derive(Clone, Copy)]
struct Told {
    /// What may have been charged in all, and until when.
    ceiling: u32,
    until_ms: u64,
    /// The most that may be charged and reserved but for what calls cost beyond that, and what they
    /// had by then.
    promised: u32,
    excess: u32,
}

impl Naive {
    fn bucket(&self) -> u64 {
        self.now_ms / 1_000
    }

    /// What the window holds that ends with `bucket`.
    fn used_in(&self, bucket: u64) -> u32 {
        let is_counted = |at: u64| at <= bucket && at + self.counted > bucket;
        let counted = self.charges.iter().filter(|&&(at, _)| is_counted(at));
        counted.map(|&(_, units)| units).sum()
    }

    fn left_of_window(&self) -> u32 {
        let left = self.limit.saturating_sub(self.used_in(self.bucket()));
        match self.told() {
            Some(told) => left.min(told.ceiling.saturating_sub(self.charged())),
            None => left,
        }
    }

    /// What was charged in all.
    fn charged(&self) -> u32 {
        self.charges.iter().map(|&(_, units)| units).sum()
    }

    /// What a provider has told, if its reset is to come.
    fn told(&self) -> Option<Told> {
        self.told.filter(|told| self.now_ms < told.until_ms)
    }

    fn tell(&mut self, left: u32, reset_ms: u64) {
        let ceiling = self.charged() + left;
        let mut until_ms = self.now_ms + reset_ms;
        match self.told() {
            Some(told) if told.ceiling < ceiling => return,
            Some(told) => until_ms = until_ms.max(told.until_ms),
            None => {}
        }
        self.told = Some(Told {
            ceiling,
            until_ms,
            promised: ceiling.max(self.charged() + self.reserved),
            excess: self.excess,
        });
    }

    fn left(&self) -> u32 {
        self.left_of_window().saturating_sub(self.reserved)
    }

    /// Charges `account`, out of its reservation first.
    fn charge(&mut self, account: &mut Account, units: u32) {
        let own = units.min(account.rest);
        self.charges.push((self.bucket(), units));
        account.charged += units;
        account.rest -= own;
        self.reserved -= own;
        self.excess += units - own;
        account.is_told = true;
    }

    fn settle(&mut self, account: &mut Account, total: u32) {
        self.charge(account, total.saturating_sub(account.charged));
        self.reserved -= account.rest;
        account.rest = 0;
    }

    /// When the window alone has room for `wanted`.
    fn retry_after(&self, wanted: u32) -> Option<Duration> {
        let wanted = wanted.max(1);
        if wanted > self.limit {
            return None;
        }
        if wanted <= self.left_of_window() {
            return Some(Duration::from_secs(1));
        }
        let has_room = |bucket: &u64| self.limit - wanted >= self.used_in(*bucket);
        let bucket = (self.bucket()..).find(has_room).expect("all leave");
        let at_ms = match self.told() {
            Some(told) if told.ceiling < self.charged() + wanted => told.until_ms,
            _ => self.now_ms,
        };
        let at_ms = at_ms.max(bucket * 1_000);
        Some(Duration::from_millis(at_ms - self.now_ms))
    }
}

impl Running {
    /// Whom to tell: the entry, or a meter.
    fn charge(&mut self, units: u32) -> bool {
        match (&mut self.entry, self.meters.last()) {
            (Some(entry), None) => entry.charge("tokens", units),
            (_, Some(meter)) => meter.charge("tokens", units),
            (None, None) => unreachable!("it has been closed"),
        }
    }

    fn settle(&mut self, total: u32) {
        match (&mut self.entry, self.meters.last()) {
            (Some(entry), _) => entry.settle("tokens", total),
            (None, Some(meter)) => meter.settle("tokens", total),
            (None, None) => unreachable!("it has been closed"),
        }
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::of(seed);
        let buckets = 1 + rng.below(4) as u64;
        let is_strict = rng.one_in(3);
        let limit = [0, 1, 10, 100][rng.below(4)];
        let has_reloads = rng.one_in(2);
        let has_provider = rng.one_in(2);
        let rule = rule(limit, buckets, is_strict, 0);
        let (sentinel, clock) = engine(rule);
        // A clock that still shows 0 may stand still: then nothing is told to come within a second.
        let now_ms = 1_000;
        clock.set(tower_sentinel::clock::Tick::from_millis(now_ms));
        Self {
            naive: Naive {
                now_ms,
                limit,
                counted: buckets + u64::from(is_strict),
                ..Naive::default()
            },
            rng,
            sentinel,
            clock,
            running: Vec::new(),
            buckets,
            is_strict,
            has_reloads,
            has_provider,
            log: vec![format!("{limit} in {buckets} buckets, strict: {is_strict}")],
        }
    }

    /// A number that is often about as large as the limit, or as what is left.
    fn number(&mut self) -> u32 {
        let (limit, left) = (self.naive.limit, self.naive.left());
        match self.rng.below(6) {
            0 => 0,
            1 => 1,
            2 => left,
            3 => left + 1,
            4 => self.rng.below(limit as usize + 2) as u32,
            _ => self.rng.below(limit as usize / 4 + 2) as u32,
        }
    }

    fn step(&mut self) {
        match self.rng.below(if self.has_provider { 11 } else { 10 }) {
            10 => self.tell(),
            0..=2 => self.begin(),
            3 => self.advance(),
            4 | 5 => self.charge(),
            6 => self.settle(),
            7 | 8 => self.end(),
            _ if self.has_reloads => self.reload(),
            _ => self.keep_meter(),
        }
        self.compare();
    }

    fn begin(&mut self) {
        let wanted = self.number();
        self.log.push(format!("begin {wanted}"));
        let passes = wanted.max(1) <= self.naive.left();
        match enter(&self.sentinel, Call::new("r").reserve("tokens", wanted)) {
            Ok(entry) => {
                assert!(passes, "passed");
                self.naive.reserved += wanted;
                let account = Account {
                    reserved: wanted,
                    rest: wanted,
                    ..Account::default()
                };
                self.running.push(Running {
                    entry: Some(entry),
                    meters: Vec::new(),
                    account,
                });
            }
            Err(blocked) => {
                assert!(!passes, "refused");
                assert_eq!(blocked.retry_after(), self.naive.retry_after(wanted));
            }
        }
    }

    fn one(&mut self) -> Option<usize> {
        (!self.running.is_empty()).then(|| self.rng.below(self.running.len()))
    }

    fn charge(&mut self) {
        let Some(one) = self.one() else { return };
        let units = self.number();
        self.log.push(format!("charge {one}: {units}"));
        let goes_on = self.running[one].charge(units);
        let account = &mut self.running[one].account;
        if units > 0 {
            self.naive.charge(account, units);
        }
        assert_eq!(
            goes_on,
            account.rest > 0 || self.naive.left() > 0,
            "goes on"
        );
    }

    fn settle(&mut self) {
        let Some(one) = self.one() else { return };
        let total = self.number();
        self.log.push(format!("settle {one}: {total}"));
        self.running[one].settle(total);
        self.naive.settle(&mut self.running[one].account, total);
    }

    fn tell(&mut self) {
        let Some(one) = self.one() else { return };
        let left = self.number();
        let reset_ms = [0, 1, 1_500, 10_000][self.rng.below(4)];
        self.log.push(format!("tell {one}: {left} for {reset_ms}"));
        let running = &self.running[one];
        let meter = running.entry.as_ref().map(Entry::meter);
        let meter = meter.or_else(|| running.meters.last().cloned());
        let meter = meter.expect("it has one of them");
        // A number that is not known.
        meter.left("tokens", -1, Duration::from_secs(5));
        meter.left("tokens", left.into(), Duration::from_millis(reset_ms));
        if reset_ms > 0 {
            self.naive.tell(left, reset_ms);
        }
    }

    fn keep_meter(&mut self) {
        let Some(one) = self.one() else { return };
        if let Some(entry) = &self.running[one].entry {
            self.log.push(format!("keep a meter of {one}"));
            let meter = entry.meter();
            self.running[one].meters.push(meter);
        }
    }

    /// Drops an entry or a meter of a call; after the last one it is closed.
    fn end(&mut self) {
        let Some(one) = self.one() else { return };
        let how = self.rng.below(4);
        self.log.push(format!("end {one}: {how}"));
        let running = &mut self.running[one];
        match running.entry.take() {
            None => drop(running.meters.pop()),
            Some(mut entry) => match how {
                0 => {
                    entry.fail();
                    running.account.has_failed = true;
                }
                1 => entry.cancel(),
                2 => entry.ignore(),
                _ => drop(entry),
            },
        }
        if running.meters.is_empty() {
            let mut account = self.running.swap_remove(one).account;
            if !account.is_told && !account.has_failed {
                self.naive.untold += 1;
                let reserved = account.reserved;
                self.naive.charge(&mut account, reserved);
            }
            let total = account.charged;
            self.naive.settle(&mut account, total);
        }
    }

    fn advance(&mut self) {
        let most = [1, 400, 1_000, 10_000][self.rng.below(4)];
        let mut left = 1 + self.rng.below(most) as u64;
        self.log.push(format!("advance {left}"));
        while left > 0 {
            let to_end = 1_000 - self.naive.now_ms % 1_000;
            let step = left.min(to_end);
            if step == to_end {
                self.check_promise();
            }
            self.naive.now_ms += step;
            left -= step;
        }
        self.clock
            .set(tower_sentinel::clock::Tick::from_millis(self.naive.now_ms));
    }

    /// At the end of a bucket.
    fn check_promise(&self) {
        if self.has_reloads {
            return;
        }
        let in_window = self.naive.used_in(self.naive.bucket()) + self.naive.reserved;
        let most = self.naive.limit + self.naive.excess;
        assert!(in_window <= most, "{in_window} in a window, at most {most}");
    }

    fn reload(&mut self) {
        self.naive.limit = [0, 1, 10, 50, 100][self.rng.below(5)];
        self.log.push(format!("reload: {}", self.naive.limit));
        let id = self.rng.below(3);
        let rule = rule(self.naive.limit, self.buckets, self.is_strict, id);
        self.sentinel.reload(rule.into());
    }

    fn compare(&self) {
        let Some(node) = self.sentinel.node("r") else {
            return;
        };
        let budgets = node.budgets();
        let budget = &budgets[0];
        let naive = &self.naive;
        let used = naive.used_in(naive.bucket());
        assert_eq!((budget.used(), budget.reserved()), (used, naive.reserved));
        assert_eq!(budget.untold_total(), naive.untold);
        assert_eq!(budget.charged_total(), u64::from(naive.charged()));
        assert_eq!(budget.left(), naive.left());
        if let Some(told) = naive.told() {
            let taken = naive.charged() + naive.reserved;
            let excess = naive.excess - told.excess;
            assert!(taken <= told.promised + excess, "more than was left");
        }
    }
}

fn rule(limit: u32, buckets: u64, is_strict: bool, id: usize) -> FlowRule {
    let rule = FlowRule::per("r", limit, Duration::from_secs(buckets))
        .buckets(buckets)
        .cost("tokens")
        .id(["a", "b", "c"][id]);
    if is_strict { rule.strict() } else { rule }
}

#[test]
fn budgets_answer_as_a_naive_list_does() {
    let number = |name: &str, default: u64| {
        env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let first = number("SENTINEL_SEED", 20_261_129);
    let histories = number("SENTINEL_HISTORIES", 5_000);
    println!("SENTINEL_SEED={first} SENTINEL_HISTORIES={histories}");
    for seed in first..first + histories {
        let mut history = History::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..STEPS).for_each(|_| history.step());
            while !history.running.is_empty() {
                history.end();
                history.compare();
            }
            assert_eq!(history.naive.reserved, 0);
        }));
        if let Err(panic) = outcome {
            println!("SENTINEL_SEED={seed} SENTINEL_HISTORIES=1");
            println!("{}", history.log.join("\n"));
            std::panic::resume_unwind(panic);
        }
    }
}
