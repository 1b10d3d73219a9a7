//! Tests of processes that have started at different times and have never reached their store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::base::sync::{AtomicU64, Ordering};
use crate::clock::{Tick, aligned};

/// The limit of all processes. Each process wants twice the limit in a window.
const LIMIT: u32 = 40;
/// The number of steps of a window. At each step, every process makes its calls.
const STEPS: u64 = 40;
/// The number of windows that are simulated.
const WINDOWS: u64 = 6;
/// The start of the simulation by the wall clock. No window begins at this time.
const BEGIN: Duration = Duration::new(1_790_000_011, 123_456_789);

/// The clock of a process that was started at some time after [`BEGIN`].
#[derive(Debug)]
struct ProcessClock {
    /// The time since [`BEGIN`], in ns.
    time: StdArc<AtomicU64>,
    /// When the process was started, in ns since [`BEGIN`].
    at_ns: u64,
    /// The reading of the clock when the process was started.
    first: Tick,
}

impl Clock for ProcessClock {
    fn now(&self) -> Tick {
        let time = self.time.load(Ordering::Relaxed);
        self.first + Duration::from_nanos(time.saturating_sub(self.at_ns))
    }
}

/// For each process: the time of its start, in thousandths of a window, and the uptime of its
/// machine, in hours.
type StartTimes = [(u64, u64); 4];

/// Returns the maximum number of calls that were admitted in any window by the wall clock. If
/// `goes_by_wall`, the clocks of the processes are aligned to the wall clock; otherwise they count
/// from the start of their machines.
async fn worst(window: Duration, buckets: u32, begins: StartTimes, goes_by_wall: bool) -> u32 {
    let time = StdArc::new(AtomicU64::new(0));
    let setup = Setup {
        buckets,
        bucket: window / buckets,
        limit: LIMIT,
        ..Setup::default()
    };
    let window_ns = window.as_nanos() as u64;
    let processes = begins.map(|(part, hours)| {
        let at_ns = window_ns / 1_000 * part;
        let own = Tick::ZERO + Duration::from_secs(3_600 * hours) + Duration::from_nanos(at_ns);
        let wall: SystemTime = UNIX_EPOCH + BEGIN + Duration::from_nanos(at_ns);
        let clock = ProcessClock {
            time: time.clone(),
            at_ns,
            first: if goes_by_wall {
                aligned(own, wall)
            } else {
                own
            },
        };
        (at_ns, Process::idle(setup, &MemoryStore::new(), clock))
    });
    let mut log = Log::default();
    for step in 0..WINDOWS * STEPS {
        let now_ns = window_ns / STEPS * step;
        time.store(now_ns, Ordering::Relaxed);
        let wall = (BEGIN + Duration::from_nanos(now_ns)).as_nanos();
        let bucket = (wall / setup.bucket.as_nanos()) as u64;
        for (at_ns, process) in &processes {
            for _ in 0..2 * u64::from(LIMIT) / STEPS {
                if now_ns >= *at_ns && process.call().await {
                    *log.admitted.entry(bucket).or_default() += 1;
                }
            }
        }
    }
    log.worst(buckets)
}

#[tokio::test]
async fn before_the_first_answer_no_window_has_more_than_the_limit() {
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    for (window, buckets) in [
        (second, 1),
        (second, 2),
        (second, 10),
        (second * 7, 1),
        (second * 60, 1),
        (second * 60, 2),
        (second * 3_600, 1),
        (day, 1),
        (day, 2),
        (day * 7, 1),
    ] {
        for begins in [
            [(0, 0), (0, 0), (0, 0), (0, 0)],
            [(0, 1), (137, 2), (411, 0), (993, 900)],
            [(0, 0), (250, 10_000), (500, 11_000), (750, 100)],
            [(0, 5), (1_400, 5), (2_600, 7), (3_999, 0)],
        ] {
            let worst = worst(window, buckets, begins, true).await;
            // The limit is used up, and not exceeded.
            assert_eq!(worst, LIMIT, "{window:?} of {buckets} buckets, {begins:?}");
        }
    }
}

/// If the windows of each process begin when it starts, more calls are admitted.
#[tokio::test]
async fn unaligned_clocks_admit_more_than_the_limit() {
    let begins = [(0, 0), (250, 0), (500, 0), (750, 0)];
    let minute = Duration::from_secs(60);
    let worst = worst(minute, 1, begins, false).await;
    assert!(worst > LIMIT, "{worst} of {LIMIT}");
}
