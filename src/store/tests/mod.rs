//! Tests of several processes on one store in virtual time: how many calls they admit together.

mod before_contact;
mod refiller;
mod went_back;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc as StdArc;
use std::task::Poll;
use std::time::Duration;

use super::cell::BucketEnd;
use super::{
    Answer, Asked, Fault, Hub, LeaseFound, MemoryStore, QuotaRule, RuleCounts, RuleFigures,
    SharedQuota, StoreErrorKind, StoreHandle, StoreSettings, Terms, Validity, WhenDown, Window,
};
use crate::base::sync::{Arc, Lock, downgrade};
use crate::clock::timekeeper::Timekeeper;
use crate::clock::{Clock, TokioClock};

/// The time that a call waits for the store.
const STORE_WAIT: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Setup {
    /// The number of buckets of the window.
    buckets: u32,
    /// The length of a bucket.
    bucket: Duration,
    /// The limit of all processes together in a window.
    limit: u32,
    /// Whether nothing is drawn ahead of calls.
    exact: bool,
    when_down: WhenDown,
    /// The duration of a trip to the store.
    trip: Duration,
    /// The calls per second of each process.
    loads: [u32; 4],
    /// The duration of the run, in windows.
    windows: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            buckets: 1,
            bucket: Duration::from_millis(500),
            limit: 500,
            exact: false,
            when_down: WhenDown::LocalShare,
            trip: Duration::from_micros(500),
            loads: [600, 250, 100, 50],
            windows: 6,
        }
    }
}

/// One process of a run: the hub of an engine, its only counter, and its store handle.
struct Process {
    hub: Arc<Hub>,
    quota: Arc<SharedQuota>,
    handle: Option<StoreHandle>,
}

/// The results of a run.
#[derive(Default)]
struct Log {
    /// The admitted calls by bucket.
    admitted: BTreeMap<u64, u32>,
    /// The number of calls, admitted or not.
    calls: u64,
    /// The longest wait of any call.
    waited: Duration,
}

impl Log {
    /// Returns the maximum number of calls that were admitted in any window of `k` buckets.
    fn worst(&self, k: u32) -> u32 {
        let buckets = self.admitted.keys();
        let windows = buckets.map(|&last| {
            let first = (last + 1).saturating_sub(k.into());
            self.admitted.range(first..=last).map(|(_, n)| n).sum()
        });
        windows.max().unwrap_or(0)
    }

    fn total(&self) -> u32 {
        self.admitted.values().sum()
    }
}

impl Process {
    fn new(setup: Setup, store: &MemoryStore, clock: TokioClock) -> Self {
        let idle = Self::idle(setup, store, clock);
        Self {
            handle: Some(StoreHandle::start(Some(&idle.hub)).unwrap()),
            ..idle
        }
    }

    /// Creates a process whose store is not started.
    fn idle(setup: Setup, store: &MemoryStore, clock: impl Clock) -> Self {
        let settings = StoreSettings::new().nodes(4).store_wait(STORE_WAIT);
        let time = Timekeeper::new(Box::new(clock));
        let hub = Arc::new(Hub::new(Some(StdArc::new(store.clone())), settings, time));
        let terms = Terms {
            limit: setup.limit,
            per_node: false,
            exact: setup.exact,
            when_down: setup.when_down,
            local_limit: None,
            ahead: 0,
            by_key: false,
            by_cost: false,
            wait_us: STORE_WAIT.as_micros() as u32,
        };
        let window = Window::new(setup.bucket, setup.buckets);
        let figures = Arc::new(RuleFigures::new(&Arc::new(RuleCounts::default())));
        let quota = SharedQuota::new([0, 1], terms, &QuotaRule::new(window, figures, &hub));
        Self {
            handle: None,
            hub,
            quota,
        }
    }

    /// Makes one call like the engine does. Returns whether it was admitted.
    async fn call(&self) -> bool {
        let now = self.hub.now();
        let asked = match self.quota.take(now, 1) {
            LeaseFound::Taken(_) => return true,
            LeaseFound::Exhausted(_) => return false,
            LeaseFound::Nothing => SharedQuota::ask(&self.quota, now, 1, None),
        };
        let answer = match asked {
            Asked::Answered(answer) => answer,
            Asked::Waits(ticket) => {
                let answered = poll_fn(|cx| match ticket.is_answered(Some(cx.waker())) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                });
                let _ = tokio::time::timeout(STORE_WAIT, answered).await;
                ticket.take(self.hub.now())
            }
        };
        matches!(answer, Answer::Granted(_) | Answer::Open)
    }
}

/// Runs four processes, and calls `at` in each millisecond. `at` can change the store and the
/// processes.
async fn run(
    setup: Setup,
    mut at: impl FnMut(u64, &MemoryStore, &mut [Arc<Lock<Process>>]),
) -> Log {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    store.set_fault(Some(Fault::SlowRequest(setup.trip)));
    let mut processes: Vec<_> = (0..4)
        .map(|_| Arc::new(Lock::new(Process::new(setup, &store, clock))))
        .collect();
    let log = Arc::new(Lock::new(Log::default()));
    // After this time, all processes have sent a beat.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let start = tokio::time::Instant::now();
    let length = setup.bucket * setup.buckets;
    let ms = (length.as_millis() as u64) * setup.windows;
    let mut due = [0.0; 4];
    for step in 0..ms {
        at(step, &store, &mut processes);
        for (index, process) in processes.iter().enumerate() {
            due[index] += f64::from(setup.loads[index]) / 1_000.0;
            while due[index] >= 1.0 {
                due[index] -= 1.0;
                let (quota, hub) = {
                    let process = process.lock();
                    (process.quota.clone(), process.hub.clone())
                };
                let log = log.clone();
                tokio::spawn(async move {
                    let caller = Process {
                        hub,
                        quota,
                        handle: None,
                    };
                    let before = clock.now();
                    let passed = caller.call().await;
                    let now = clock.now();
                    let mut log = log.lock();
                    log.calls += 1;
                    log.waited = log.waited.max(now - before);
                    if passed {
                        let bucket = now.as_nanos() / setup.bucket.as_nanos() as u64;
                        *log.admitted.entry(bucket).or_default() += 1;
                    }
                });
            }
        }
        let next = start + Duration::from_millis(step + 1);
        tokio::time::sleep_until(next).await;
    }
    tokio::time::sleep(STORE_WAIT * 2).await;
    std::mem::take(&mut *log.lock())
}

/// Returns the loads of the processes, which add up to `percent` of the limit.
fn scaled(percent: u32) -> [u32; 4] {
    // A limit of 500 in half a second is 1 000 per second.
    [600, 250, 100, 50].map(|load| load * percent / 100)
}

#[tokio::test(start_paused = true)]
async fn a_healthy_store_admits_the_limit_and_never_more() {
    for (buckets, bucket_ms) in [(1, 500), (2, 250), (10, 50)] {
        for (percent, exact) in [
            (70, false),
            (100, false),
            (200, false),
            (500, false),
            (200, true),
        ] {
            let setup = Setup {
                buckets,
                bucket: Duration::from_millis(bucket_ms),
                loads: scaled(percent),
                exact,
                ..Setup::default()
            };
            let log = run(setup, |_, _, _| {}).await;
            let name = format!("{buckets} buckets, {percent} %, exact: {exact}");
            assert!(
                log.worst(buckets) <= setup.limit,
                "{name}: {}",
                log.worst(buckets)
            );
            let possible = (setup.limit * 6).min(log.calls as u32);
            // The first and the last window of the run are not full.
            let least = possible - possible / 4;
            assert!(
                log.total() >= least,
                "{name}: {} of {possible}",
                log.total()
            );
            assert!(log.waited <= STORE_WAIT, "{name}: {:?}", log.waited);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_absent_store_admits_the_limit_by_shares() {
    for (buckets, bucket_ms) in [(1, 500), (2, 250), (10, 50)] {
        let setup = Setup {
            buckets,
            bucket: Duration::from_millis(bucket_ms),
            loads: [500; 4],
            windows: 10,
            ..Setup::default()
        };
        let log = run(setup, |ms, store, _| match ms {
            1_200 => store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable))),
            3_300 => store.set_fault(Some(Fault::SlowRequest(setup.trip))),
            _ => {}
        })
        .await;
        assert!(
            log.worst(buckets) <= setup.limit * 105 / 100,
            "{buckets}: {}",
            log.worst(buckets)
        );
        assert!(log.waited <= STORE_WAIT, "{:?}", log.waited);
    }
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_granted_twice_when_the_store_loses_its_data() {
    for (buckets, bucket_ms) in [(1, 500), (2, 250), (10, 50)] {
        let setup = Setup {
            buckets,
            bucket: Duration::from_millis(bucket_ms),
            loads: scaled(200),
            windows: 10,
            ..Setup::default()
        };
        let log = run(setup, |ms, store, _| {
            if ms == 1_900 {
                store.flush();
            }
        })
        .await;
        let worst = log.worst(buckets);
        assert!(worst <= setup.limit * 113 / 100, "{buckets}: {worst}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_closed_rule_admits_nothing_and_an_open_rule_all() {
    for (when_down, admits) in [(WhenDown::Closed, false), (WhenDown::Open, true)] {
        let setup = Setup {
            when_down,
            limit: 10,
            ..Setup::default()
        };
        let log = run(setup, |ms, store, _| {
            if ms == 0 {
                store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
            }
        })
        .await;
        // The first calls still ask the store, which has just become unreachable.
        let (least, most) = if admits { (2_900, 3_000) } else { (0, 10) };
        assert!(
            (least..=most).contains(&log.total()),
            "{when_down}: {}",
            log.total()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unused_permits_are_returned_at_shutdown() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let setup = Setup {
        bucket: Duration::from_secs(10),
        ..Setup::default()
    };
    let [mut one, two] = [(); 2].map(|()| Process::new(setup, &store, clock));
    tokio::time::sleep(Duration::from_millis(600)).await;
    for _ in 0..100 {
        assert!(one.call().await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(one.quota.in_hand(one.hub.now()) > 0, "it has some ahead");
    one.handle.take().unwrap().shutdown().await;
    assert_eq!(one.quota.in_hand(one.hub.now()), 0);
    let mut passed = 100;
    for _ in 0..500 {
        passed += u32::from(two.call().await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(passed, setup.limit);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_before_the_answer_takes_no_permit() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let setup = Setup {
        bucket: Duration::from_secs(10),
        limit: 1,
        exact: true,
        ..Setup::default()
    };
    let process = Process::new(setup, &store, clock);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let now = process.hub.now();
    let Asked::Waits(ticket) = SharedQuota::ask(&process.quota, now, 1, None) else {
        panic!("the store is there");
    };
    drop(ticket);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let Asked::Answered(Answer::Granted(_)) =
        SharedQuota::ask(&process.quota, process.hub.now(), 1, None)
    else {
        panic!("its permit is in the cell");
    };
    assert!(!process.call().await);
}

#[tokio::test(start_paused = true)]
async fn late_refunds_and_tickets_keep_no_engine_alive() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    for stops_first in [true, false] {
        let mut process = Process::new(Setup::default(), &store, clock);
        let hub = downgrade(&process.hub);
        tokio::time::sleep(Duration::from_millis(600)).await;
        let now = process.hub.now();
        let asked = SharedQuota::ask(&process.quota, now, 1, None);
        if stops_first {
            process.handle.take().unwrap().shutdown().await;
        }
        // The bucket of the permit is over, so the permit is scheduled for return to the store.
        SharedQuota::refund(&process.quota, Validity::until(BucketEnd::at(now)), 1, now);
        drop((asked, process));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(hub.strong_count(), 0, "stopped first: {stops_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_at_shutdown_is_counted_once() {
    for is_young in [false, true] {
        let clock = TokioClock::new();
        let store = MemoryStore::with_clock(clock);
        let setup = Setup {
            bucket: Duration::from_secs(100),
            limit: 8,
            exact: true,
            ..Setup::default()
        };
        let two = Process::new(setup, &store, clock);
        tokio::time::sleep(Duration::from_millis(600)).await;
        store.set_fault(Some(Fault::SlowAnswer(Duration::from_millis(5))));
        let mut one = Process::new(setup, &store, clock);
        // A young process has not yet received the answer to its first beat.
        let mut passed = 0;
        tokio::time::sleep(Duration::from_millis(1)).await;
        if !is_young {
            passed += u32::from(one.call().await);
        }
        let handle = one.handle.take().unwrap();
        let stop = async {
            // The call's draw has arrived, and the answer is in flight.
            tokio::time::sleep(Duration::from_millis(2)).await;
            handle.shutdown().await;
        };
        let (passes, ()) = tokio::join!(one.call(), stop);
        assert!(passes);
        passed += 1;
        for _ in 0..10 {
            passed += u32::from(two.call().await);
        }
        assert_eq!(passed, setup.limit, "young: {is_young}");
    }
}
