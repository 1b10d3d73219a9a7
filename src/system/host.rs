//! A probe that reads load, CPU use and memory from Linux.
//!
//! CPU time is a counter, so CPU use is the difference of two readings, divided by the time between
//! them:
//!
//! ```text
//! own share  = CPU time of the process / (time · cores that it may use)
//! host share = busy time of all cores / time of all cores
//! ```
//!
//! The number of cores that a process may use is its quota, or the number of cores that it may run
//! on if that is less. With a quota, its own share counts: a process beyond its quota is paused
//! even on an idle machine, and other processes of the machine do not matter. Without a quota, all
//! processes share the machine, and the larger of the two shares counts.
//!
//! The share of one second fluctuates, so readings are smoothed exponentially: after the time t the
//! old value weighs e^(−t/τ), with τ = 2 s. The smoothed value follows a jump by 39 % after one
//! second, 78 % after three, and 92 % after five.
//!
//! Memory in use is the resident set of the process. The figure of a control group is not used,
//! because it includes the page cache, which the kernel frees under pressure. The limit is the
//! smallest limit of the control groups and the machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::cgroup::Groups;
use super::probe::{Memory, Probe};
use super::proc::{self, HostTime};
use crate::base::sync::Lock;
use crate::clock::{Clock, MonotonicClock, Tick};

/// The time constant of smoothing. With it, a burst of one second hardly refuses calls, and an
/// overload of five seconds does.
const SMOOTHING: Duration = Duration::from_secs(2);
/// The shortest time between two readings that are compared, because CPU time has steps of 10 ms.
const SHORTEST: Duration = Duration::from_millis(100);
/// The maximum time between two readings that are treated as simultaneous: a step of CPU time.
const TOGETHER: Duration = Duration::from_millis(10);
/// The maximum number of attempts to read the clock and the CPU time of the process together.
const TRIES: u32 = 3;

/// Reads load, CPU use and memory of this process and its machine, from `/proc` and the
/// control groups of Linux.
///
/// The CPU use is the process's share of its quota; without a quota, the larger of its share of the
/// cores that it may run on and the busy share of all cores. It is smoothed over about two seconds.
/// Control groups of version 1 and 2 are supported, including the quotas of visible parent groups;
/// the tightest quota counts. The groups are located once, and the quota is read each time.
///
/// The load is that of the whole machine, even inside a container. In a container, prefer the CPU
/// use.
///
/// A figure that cannot be read is unknown, and refuses nothing. On systems other than Linux, all
/// figures are unknown. One reading opens about seven small files. Feature `system`.
///
/// # Examples
///
/// ```
/// use tower_sentinel::system::{Probe, Sampler, SystemProbe};
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::ManualClock;
///
/// let sampler = Sampler::new(SystemProbe::new());
/// if cfg!(target_os = "linux") {
///     assert!(sampler.sample(Tick::ZERO).load().is_some());
/// }
///
/// // A share needs two readings, the first of which has just been taken.
/// let probe = SystemProbe::with("/", ManualClock::new());
/// assert_eq!(probe.cpu(), None);
/// ```
///
/// # Accuracy
///
/// CPU time is counted in steps of 10 ms, that is 1 % of a core over a second. A process can exceed
/// its quota for a moment; its share then reads as 1.
#[derive(Debug)]
pub struct SystemProbe {
    root: PathBuf,
    clock: Arc<dyn Clock>,
    /// The groups with CPU quotas; `None` if they could not be located.
    groups: Option<Groups>,
    /// The groups with memory limits; `None` if they could not be located.
    memory_groups: Option<Groups>,
    cpu: Lock<Cpu>,
}

/// The state of the measurement of CPU use.
#[derive(Debug)]
struct Cpu {
    last: CounterReading,
    /// The smoothed share of the CPU time, between 0 and 1.
    smoothed: Option<f64>,
}

/// One reading of the counters.
#[derive(Clone, Copy, Debug)]
struct CounterReading {
    at: Tick,
    /// The CPU time of the process.
    process: Option<Duration>,
    /// The CPU time of the machine.
    host: Option<HostTime>,
}

/// The CPU time that the process may use.
#[derive(Clone, Copy, Debug)]
struct CpuRoom {
    /// The CPU time as a number of cores; `None` if unknown.
    cores: Option<f64>,
    /// Whether a quota sets this limit, and not the number of cores.
    is_quota: bool,
}

// === impl SystemProbe ===

impl SystemProbe {
    /// Creates a probe of this machine. Takes the first reading.
    #[must_use]
    pub fn new() -> Self {
        Self::with("/", MonotonicClock::new())
    }

    /// Creates a probe that reads `proc` and `sys` in the folder `root`, for example where a
    /// container has mounted those of its host, and measures time with `clock`. Takes the first
    /// reading.
    ///
    /// In a container with a separate cgroup namespace, a probe cannot find its group on the host,
    /// and so finds no quota. Use [`new`](Self::new) there.
    #[must_use]
    pub fn with(root: impl Into<PathBuf>, clock: impl Clock) -> Self {
        let root = root.into();
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let last = CounterReading::read(&root, &*clock);
        Self {
            groups: Groups::find(&root, "cpu").ok(),
            memory_groups: Groups::find(&root, "memory").ok(),
            root,
            clock,
            cpu: Lock::new(Cpu {
                last,
                smoothed: None,
            }),
        }
    }

    /// Returns the CPU time that the process may use now; `None` if its quota is not known.
    fn room(&self) -> Option<CpuRoom> {
        let quota = self.groups.as_ref()?.quota().ok()?;
        let cores = self.cores();
        // A quota above the number of cores that the process may run on has no effect.
        let quota = quota.filter(|quota| cores.is_none_or(|cores| *quota < cores));
        Some(CpuRoom {
            cores: quota.or(cores),
            is_quota: quota.is_some(),
        })
    }

    /// Returns the number of cores that the process may run on.
    fn cores(&self) -> Option<f64> {
        let status = proc::text(&self.root.join("proc/self/status")).ok()?;
        let online = proc::text(&self.root.join("sys/devices/system/cpu/online")).ok();
        proc::allowed_cores(&status, online.as_deref()).map(|cores| cores as f64)
    }
}

impl Default for SystemProbe {
    fn default() -> Self {
        Self::new()
    }
}

impl Probe for SystemProbe {
    fn load(&self) -> Option<f64> {
        proc::load(&proc::text(&self.root.join("proc/loadavg")).ok()?)
    }

    fn cpu(&self) -> Option<f64> {
        let mut cpu = self.cpu.lock();
        let now = self.clock.now();
        if now < cpu.last.at {
            // The clock has stepped back, so the time since the last reading is unknown. Start a
            // new measurement.
            cpu.last = CounterReading::read(&self.root, &*self.clock);
            return cpu.smoothed;
        }
        if now - cpu.last.at < SHORTEST {
            return cpu.smoothed;
        }
        let sample = CounterReading::read(&self.root, &*self.clock);
        let elapsed = sample.at - cpu.last.at;
        if elapsed < SHORTEST {
            // The clock has stepped back during the reading.
            cpu.last = sample;
            return cpu.smoothed;
        }
        let share = self.room().and_then(|room| share(&cpu.last, &sample, room));
        // After a reading without a share, smoothing starts again.
        cpu.smoothed = share.map(|share| match cpu.smoothed {
            Some(old) => share + (old - share) * (-elapsed.div_duration_f64(SMOOTHING)).exp(),
            None => share,
        });
        cpu.last = sample;
        cpu.smoothed
    }

    fn memory(&self) -> Option<Memory> {
        let bytes =
            |path: &str, name: &str| proc::bytes(&proc::text(&self.root.join(path)).ok()?, name);
        let used = bytes("proc/self/status", "VmRSS:")?;
        let group = self.memory_groups.as_ref()?.memory().ok()?;
        let machine = bytes("proc/meminfo", "MemTotal:");
        Memory::new(used, group.into_iter().chain(machine).min()?)
    }
}

// === impl CounterReading ===

impl CounterReading {
    /// Reads the counters and the clock. If the thread slept between reading the CPU time of the
    /// process and the clock, reads both again, because a share is computed from both.
    fn read(root: &Path, clock: &dyn Clock) -> Self {
        let text = |path: &str| proc::text(&root.join(path)).ok();
        let mut at = clock.now();
        let mut process = None;
        for _ in 0..TRIES {
            let before = at;
            process = text("proc/self/stat");
            at = clock.now();
            if at - before <= TOGETHER {
                break;
            }
        }
        Self {
            at,
            process: process.and_then(|text| proc::process_time(&text)),
            host: text("proc/stat").and_then(|text| proc::host_time(&text)),
        }
    }
}

/// Returns the share of the CPU time that was used from `before` to `after`, between 0 and 1.
fn share(before: &CounterReading, after: &CounterReading, room: CpuRoom) -> Option<f64> {
    let own = || {
        let used = after.process?.checked_sub(before.process?)?;
        Some(used.div_duration_f64(after.at - before.at) / room.cores?)
    };
    let host = || {
        let total = after.host?.total.checked_sub(before.host?.total)?;
        let busy = after.host?.busy.checked_sub(before.host?.busy)?;
        (total > 0).then(|| busy as f64 / total as f64)
    };
    let share = match (own(), room.is_quota) {
        (own, true) => own,
        (Some(own), false) => Some(host().map_or(own, |host| own.max(host))),
        (None, false) => host(),
    };
    share.map(|share| share.min(1.0))
}
