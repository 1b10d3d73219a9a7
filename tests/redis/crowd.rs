//! Four engines under twice their limits, and what they admit together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower_sentinel::store::{QuotaStore, StoreHandle, StoreSettings, StoreState, StoreStatus};
use tower_sentinel::{Call, FlowRule, KeyedRule, Rule, Sentinel};

use crate::{SKEW, wall_us};

/// The limit of a second of each rule that counts all callers together.
pub(crate) const LIMIT: u32 = 400;
/// Their resources, with the buckets of a second.
pub(crate) const SINGLE: [(&str, u32); 3] = [("/1", 1), ("/2", 2), ("/10", 10)];
/// The limit of a second of each user.
pub(crate) const LIMIT_OF_USER: u32 = 20;
const USERS: u32 = 12;
const USER_BUCKETS: u32 = 2;

/// Longer than a busy machine stops a thread: an answer that is late without a fault would be
/// an outage of one engine alone, which has another bound.
pub(crate) const STORE_WAIT: Duration = Duration::from_millis(300);

/// Calls that were asked for and admitted in one bucket, by resource, user and bucket.
type Tally = BTreeMap<(&'static str, u32, u64), u32>;

/// Ends when it is dropped.
pub(crate) struct Crowd {
    engines: Vec<(Sentinel, StoreHandle)>,
    loads: Vec<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    tally: Tally,
    longest: Duration,
    stall: Duration,
}

/// What a crowd was admitted at the most.
#[derive(Debug)]
pub(crate) struct Worst {
    /// The fullest window of the rules of `SINGLE`.
    pub(crate) single: [u32; 3],
    /// The fullest window of any user.
    pub(crate) by_key: u32,
    /// The longest that a call waited for its verdict.
    pub(crate) longest: Duration,
    /// The longest that the machine let a task stand that was to run every 4 ms.
    pub(crate) stall: Duration,
}

fn rules() -> Vec<Rule> {
    let by_user = KeyedRule::per_second("/user", LIMIT_OF_USER);
    let mut all: Vec<Rule> = vec![by_user.window().shared().into()];
    for (resource, buckets) in SINGLE {
        let rule = FlowRule::per_second(resource, LIMIT).buckets(buckets);
        all.push(rule.shared().into());
    }
    all
}

impl Crowd {
    /// Starts four engines, each on one of `stores`, and their calls.
    pub(crate) fn start(stores: [impl QuotaStore; 4], store_wait: Duration) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (mut engines, mut loads) = (Vec::new(), Vec::new());
        for (store, percent) in stores.into_iter().zip(SKEW) {
            let settings = StoreSettings::new().nodes(4).store_wait(store_wait);
            let builder = Sentinel::builder().rules(rules()).store(store);
            let sentinel = builder.store_settings(settings).build();
            engines.push((sentinel.clone(), sentinel.start_store().unwrap()));
            loads.push(tokio::spawn(load(sentinel, percent, seen.clone())));
        }
        Self {
            engines,
            loads,
            seen,
        }
    }

    pub(crate) fn statuses(&self) -> impl Iterator<Item = StoreStatus> {
        self.engines.iter().map(|(it, _)| it.store().unwrap())
    }

    /// How long it takes until all engines ask the store again.
    pub(crate) async fn until_live(&self) -> Duration {
        let since = Instant::now();
        while !self.statuses().all(|it| it.state() == StoreState::Live) {
            assert!(since.elapsed().as_secs() < 60, "it never came back");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        since.elapsed()
    }

    /// Ends the calls. Returns what was admitted.
    pub(crate) async fn end(self) -> Worst {
        self.loads.iter().for_each(JoinHandle::abort);
        for (_, handle) in self.engines {
            handle.shutdown().await;
        }
        let seen = self.seen.lock().await;
        let single = SINGLE.map(|(name, buckets)| fullest(&seen.tally, name, 0, buckets));
        let users = (0..USERS).map(|user| fullest(&seen.tally, "/user", user, USER_BUCKETS));
        Worst {
            single,
            by_key: users.max().unwrap(),
            longest: seen.longest,
            stall: seen.stall,
        }
    }
}

/// The fullest window of so many buckets.
fn fullest(tally: &Tally, name: &'static str, user: u32, buckets: u32) -> u32 {
    let own = tally.range((name, user, 0)..=(name, user, u64::MAX));
    let windows = own.map(|(&(.., last), _)| {
        let first = (last + 1).saturating_sub(buckets.into());
        let window = tally.range((name, user, first)..=(name, user, last));
        window.map(|(_, count)| count).sum()
    });
    windows.max().unwrap_or(0)
}

/// Makes twice as many calls as the limits allow, so many percent of them.
async fn load(sentinel: Sentinel, percent: u32, seen: Arc<Mutex<Seen>>) {
    let part = f64::from(2 * percent) / 100.0;
    let of_users = f64::from(LIMIT_OF_USER * USERS) * part;
    let mut due = [0.0; SINGLE.len() + 1];
    let mut ticks = tokio::time::interval(Duration::from_millis(4));
    let (mut last, mut user) = (wall_us(), 0);
    loop {
        ticks.tick().await;
        let now = wall_us();
        // A machine that stood still makes no crowd of calls afterwards.
        let passed = (now - last).min(50_000) as f64 / 1e6;
        let stall = Duration::from_micros(now - last);
        if stall > Duration::from_millis(8) {
            let mut seen = seen.lock().await;
            seen.stall = seen.stall.max(stall);
        }
        last = now;
        for (index, due) in due.iter_mut().enumerate() {
            let single = SINGLE.get(index);
            *due += passed * single.map_or(of_users, |_| f64::from(LIMIT) * part);
            while *due >= 1.0 {
                *due -= 1.0;
                user = (user + 1) % USERS;
                let (name, buckets) = *single.unwrap_or(&("/user", USER_BUCKETS));
                let of = single.map_or(Some(user), |_| None);
                tokio::spawn(call(sentinel.clone(), name, of, buckets, seen.clone()));
            }
        }
    }
}

async fn call(
    sentinel: Sentinel,
    name: &'static str,
    user: Option<u32>,
    buckets: u32,
    seen: Arc<Mutex<Seen>>,
) {
    let bucket_us = u64::from(1_000_000 / buckets);
    let call = Call::new(name);
    let call = match user {
        Some(user) => call.param(u64::from(user)),
        None => call,
    };
    let (bucket, since) = (wall_us() / bucket_us, Instant::now());
    let has_passed = sentinel.enter(call).await.is_ok();
    let mut seen = seen.lock().await;
    seen.longest = seen.longest.max(since.elapsed());
    // Others may have been admitted in the bucket before or after.
    if has_passed && wall_us() / bucket_us == bucket {
        let place = (name, user.unwrap_or(0), bucket);
        *seen.tally.entry(place).or_default() += 1;
    }
}
