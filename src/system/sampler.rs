//! The sampler, which reads a probe once a second, during an admission or in a thread.
//!
//! One word holds the time at which the next reading is due. A thread that finds it due claims the
//! reading by a compare-and-swap to `BUSY`, reads the probe, stores the readings, and then stores
//! the next due time. All other threads use the stored readings. So no thread waits, and even a
//! slow probe is never read by two threads at the same time.
//!
//! ```text
//! due  [ 4.2 s ] → [ BUSY ] → … probe … → [ 5.2 s ]
//!        claim by CAS                       release of the readings
//! ```
//!
//! The store of the next due time is a release, and every load of it an acquire: a thread that sees
//! that no reading is due also sees the latest readings. The readings are two words. They are
//! compared with separate limits, so they need not be consistent.
//!
//! Memory fills faster than load grows. So memory has a separate due time, and is read more often
//! by the same protocol, but only if a rule needs it.

use std::io;
use std::sync::Arc as StdArc;
use std::time::Duration;

use super::probe::{Memory, Probe, Readings};
use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU32, AtomicU64, Bug, Ordering, planted};
use crate::base::thread::{PeriodicThread, ThreadHandle};
use crate::clock::{SLACK, Tick, nanos};

/// The time for which a reading is valid, as in Alibaba Sentinel.
const PERIOD: Duration = Duration::from_secs(1);
/// The shortest time between two readings of memory: short compared to the seconds in which memory
/// fills.
const MEMORY_PERIOD: Duration = Duration::from_millis(150);

/// The value of the due time while a thread reads the probe.
pub(super) const BUSY: u64 = u64::MAX;
/// The due time of a reading that is always due.
pub(super) const AT_ONCE: u64 = 0;

/// Keeps the newest readings of a [`Probe`].
///
/// The probe is read on the path of an admission, at most once a second, or by a thread if
/// one is [spawned](Self::spawn). Clones share the readings.
///
/// The caller passes the time. So engines that share a sampler must use the same clock. Otherwise
/// the probe can be read each time that another engine samples. All
/// [`MonotonicClock`](crate::clock::MonotonicClock)s count as one clock, and so do all
/// `QuantaClock`s. With any other clock, give each engine a clone of the same clock.
///
/// # Examples
///
/// ```
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::system::{ManualProbe, Sampler};
///
/// let probe = ManualProbe::new();
/// let sampler = Sampler::new(probe.clone());
/// probe.set_cpu(0.25);
/// assert_eq!(sampler.sample(Tick::from_millis(0)).cpu(), Some(0.25));
/// // A reading is valid for a second.
/// probe.set_cpu(0.75);
/// assert_eq!(sampler.sample(Tick::from_millis(999)).cpu(), Some(0.25));
/// assert_eq!(sampler.sample(Tick::from_millis(1_000)).cpu(), Some(0.75));
/// ```
#[derive(Clone, Debug)]
pub struct Sampler(pub(super) StdArc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    probe: Box<dyn Probe>,
    /// The time at which the next reading is due, in ns.
    pub(super) due: AtomicU64,
    /// The load, as the bits of an `f64`; NaN means unknown.
    load: AtomicU64,
    /// The share of the CPU in use, as the bits of an `f64`; NaN means unknown.
    cpu: AtomicU64,
    /// The time at which the next reading of memory is due, in ns.
    memory_due: AtomicU64,
    /// Used memory, in bytes.
    used: AtomicU64,
    /// The limit of memory, in bytes; 0 means that the memory is unknown.
    limit: AtomicU64,
    /// The number of spawned threads. While there is one, admissions do not read load and CPU use.
    threads: AtomicU32,
}

// === impl Sampler ===

impl Sampler {
    /// Creates a sampler of `probe`. Nothing is read before the first
    /// [`sample`](Self::sample).
    #[must_use]
    pub fn new(probe: impl Probe) -> Self {
        let unknown = f64::NAN.to_bits();
        Self(StdArc::new(Shared {
            probe: Box::new(probe),
            due: AtomicU64::new(AT_ONCE),
            load: AtomicU64::new(unknown),
            cpu: AtomicU64::new(unknown),
            memory_due: AtomicU64::new(AT_ONCE),
            used: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            threads: AtomicU32::new(0),
        }))
    }

    /// Returns the readings at `now`. Reads the probe if the last readings are a second old and no
    /// other thread is reading it. While there is a spawned thread, returns the latest readings of
    /// that thread.
    #[inline]
    pub fn sample(&self, now: Tick) -> Readings {
        let shared = &*self.0;
        let has_thread = shared.threads.load(Ordering::Relaxed) > 0;
        if !has_thread && claim_due(&shared.due, now, PERIOD) {
            shared.read(next_due(now, PERIOD));
        }
        self.readings()
    }

    /// Returns the memory at `now`. Reads it if the last reading is 150 ms old and no other thread
    /// is reading. Spawned threads do not read memory.
    #[inline]
    pub fn sample_memory(&self, now: Tick) -> Option<Memory> {
        let shared = &*self.0;
        if claim_due(&shared.memory_due, now, MEMORY_PERIOD) {
            shared.read_memory(next_due(now, MEMORY_PERIOD));
        }
        let (used, limit) = (&shared.used, &shared.limit);
        Memory::new(used.load(Ordering::Relaxed), limit.load(Ordering::Relaxed))
    }

    /// Reads the probe at `now`, even if no reading is due, unless another thread is reading.
    /// Returns the newest readings.
    pub fn refresh(&self, now: Tick) -> Readings {
        let shared = &*self.0;
        // Acquire, as in `claim_due`.
        if claim(&shared.due, shared.due.load(Ordering::Acquire)) {
            shared.read(next_due(now, PERIOD));
        }
        self.readings()
    }

    /// Returns the newest readings, even if they are outdated. Never reads the probe.
    #[must_use]
    pub fn readings(&self) -> Readings {
        let load = |word: &AtomicU64| Some(f64::from_bits(word.load(Ordering::Relaxed)));
        Readings::new(load(&self.0.load), load(&self.0.cpu))
    }

    /// Starts a thread that reads at once and then again after each period of `every` (at least 10
    /// ms), until the handle is dropped. Admissions then read neither load nor CPU use, but they
    /// still read the memory if a rule needs it: see [`sample_memory`](Self::sample_memory). When
    /// the thread has stopped, admissions read all figures again.
    ///
    /// The thread does not exist in a process that is forked from this one, such as a daemon: spawn
    /// it there.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot start a thread.
    pub fn spawn(self, every: Duration) -> io::Result<ThreadHandle> {
        let shared = self.0;
        let theirs = shared.clone();
        let thread = PeriodicThread::spawn("sentinel-sampler", every, move || {
            // Acquire, as in `claim_due`.
            if claim(&theirs.due, theirs.due.load(Ordering::Acquire)) {
                theirs.read(AT_ONCE);
            }
        })?;
        shared.threads.fetch_add(1, Ordering::Relaxed);
        // Admissions read again once the thread has ended.
        Ok(ThreadHandle::new(thread).then(move || {
            shared.threads.fetch_sub(1, Ordering::Relaxed);
        }))
    }
}

/// Claims the next reading for the caller if it is due. It is also due if the clock has stepped
/// back, so that the due time is ahead by more than `period` and the slack of the clock.
#[inline]
fn claim_due(word: &AtomicU64, now: Tick, period: Duration) -> bool {
    // Acquire: pairs with the release in `finish`.
    let due = word.load(Ordering::Acquire);
    let now_ns = now.as_nanos();
    let is_due = now_ns >= due || due - now_ns > nanos(period + SLACK);
    due != BUSY && is_due && claim(word, due)
}

/// Returns the time at which the next reading is due after one at `now`; never the value of `BUSY`.
fn next_due(now: Tick, period: Duration) -> u64 {
    (now + period).as_nanos().min(BUSY - 1)
}

/// Claims the next reading for the caller, unless another thread has claimed it since `due` was
/// loaded.
#[cold]
fn claim(word: &AtomicU64, due: u64) -> bool {
    if planted(Bug::SampleWithoutClaim) {
        word.store(BUSY, Ordering::Relaxed);
        return true;
    }
    // Acquire: pairs with the release in `finish`, so that the probe sees one reading after the
    // other.
    due != BUSY
        && word
            .compare_exchange(due, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

/// Ends a claimed reading. Release: pairs with the acquires of `claim_due`, `claim`, `refresh` and
/// `spawn`.
fn finish(word: &AtomicU64, next_due: u64) {
    word.store(next_due, Ordering::Release);
}

// === impl Shared ===

impl Shared {
    /// Reads the probe. Only for the thread that has claimed the reading.
    #[cold]
    fn read(&self, next_due: u64) {
        if planted(Bug::DueBeforeReadings) {
            finish(&self.due, next_due);
        }
        let load = self.ask(Probe::load).unwrap_or(f64::NAN);
        let cpu = self.ask(Probe::cpu).unwrap_or(f64::NAN);
        self.load.store(load.to_bits(), Ordering::Relaxed);
        self.cpu.store(cpu.to_bits(), Ordering::Relaxed);
        finish(&self.due, next_due);
    }

    /// Reads memory. Only for the thread that has claimed the reading.
    #[cold]
    fn read_memory(&self, next_due: u64) {
        let memory = self.ask(Probe::memory);
        let used = memory.map_or(0, Memory::used);
        let limit = memory.map_or(0, Memory::limit);
        self.used.store(used, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        finish(&self.memory_due, next_due);
    }

    /// Reads a figure of the probe; it is unknown if the probe panics.
    fn ask<T>(&self, what: fn(&dyn Probe) -> Option<T>) -> Option<T> {
        catch_panic(|| what(&*self.probe)).flatten()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::system::ManualProbe;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    /// Asserts the load that is sampled at each time. The load is the index of the sample at which
    /// the probe was read.
    fn assert_loads(samples: &[(Tick, f64)]) {
        let probe = ManualProbe::new();
        let sampler = Sampler::new(probe.clone());
        for (index, &(now, expected)) in samples.iter().enumerate() {
            probe.set_load(index as f64);
            assert_eq!(sampler.sample(now).load(), Some(expected), "{now:?}");
        }
    }

    #[test]
    fn a_reading_is_valid_for_a_second() {
        assert_loads(&[
            (at(5_000), 0.0),
            (at(5_000), 0.0),
            (at(5_999), 0.0),
            (at(6_000), 3.0),
            (at(6_999), 3.0),
            (at(3_600_000), 5.0),
        ]);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_stop_readings() {
        assert_loads(&[(at(9_000), 0.0), (at(7_999), 1.0), (at(8_998), 1.0)]);
        assert_loads(&[(at(9_000), 0.0), (at(0), 1.0), (at(1_000), 2.0)]);
    }

    #[test]
    fn a_slightly_older_time_triggers_no_reading() {
        let older = Tick::from_nanos(at(9_000).as_nanos() - 1);
        assert_loads(&[(at(9_000), 0.0), (older, 0.0), (at(8_000), 0.0)]);
        let probe = ManualProbe::new();
        let sampler = Sampler::new(probe.clone());
        for used in [1, 2] {
            probe.set_memory(Memory::new(used, 100));
            let now = if used == 1 { at(9_000) } else { older };
            let found = sampler.sample_memory(now).unwrap();
            assert_eq!(found.used(), 1, "at {now:?}");
        }
    }

    #[test]
    fn the_last_tick_is_not_mistaken_for_busy() {
        let end = Tick::from_nanos(u64::MAX);
        assert_loads(&[(end, 0.0), (end, 1.0), (end, 2.0)]);
    }

    #[test]
    fn a_reading_of_memory_is_valid_for_150_ms() {
        let probe = ManualProbe::new();
        let sampler = Sampler::new(probe.clone());
        let mut used = 0;
        for (ms, expected) in [
            (1_000, 1),
            (1_149, 1),
            (1_150, 3),
            (1_299, 3),
            (1_300, 5),
            (0, 6),
        ] {
            used += 1;
            probe.set_memory(Memory::new(used, 100));
            let found = sampler.sample_memory(at(ms)).unwrap();
            assert_eq!(found.used(), expected, "{ms}");
        }
        probe.set_memory(None);
        assert_eq!(sampler.sample_memory(at(9_000)), None, "not the old figure");
    }

    #[test]
    fn nothing_is_read_before_the_first_sample() {
        let probe = ManualProbe::new();
        probe.set_cpu(0.5);
        let sampler = Sampler::new(probe);
        assert_eq!(sampler.readings(), Readings::UNKNOWN);
        assert_eq!(sampler.clone().sample(at(0)).cpu(), Some(0.5));
        assert_eq!(sampler.readings().cpu(), Some(0.5));
    }

    #[test]
    fn a_probe_that_panics_reports_nothing_and_is_read_again() {
        #[derive(Debug, Default)]
        struct Fragile(ManualProbe);
        impl Probe for Fragile {
            fn load(&self) -> Option<f64> {
                Some(self.0.load().expect("a load"))
            }

            fn cpu(&self) -> Option<f64> {
                Some(0.5)
            }
        }
        let probe = ManualProbe::new();
        let sampler = Sampler::new(Fragile(probe.clone()));
        assert_eq!(sampler.sample(at(0)), Readings::new(None, Some(0.5)));
        probe.set_load(1.0);
        assert_eq!(
            sampler.sample(at(1_000)),
            Readings::new(Some(1.0), Some(0.5))
        );
    }

    /// A probe that counts its readings. It reports the number as the load, and sends it to the
    /// test.
    #[derive(Debug)]
    struct ReportingProbe {
        asked: AtomicU64,
        sender: mpsc::Sender<u64>,
    }

    impl Probe for ReportingProbe {
        fn load(&self) -> Option<f64> {
            let times = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            // The receiver is gone at the end of a test.
            let _ = self.sender.send(times);
            Some(times as f64)
        }

        fn cpu(&self) -> Option<f64> {
            None
        }
    }

    fn reporting_sampler() -> (Sampler, mpsc::Receiver<u64>) {
        let (sender, reports) = mpsc::channel();
        let asked = AtomicU64::new(0);
        (Sampler::new(ReportingProbe { asked, sender }), reports)
    }

    #[test]
    fn a_spawned_thread_reads_until_it_is_dropped() {
        let (sampler, reports) = reporting_sampler();
        let handle = sampler.clone().spawn(Duration::ZERO).unwrap();
        assert_eq!([reports.recv(), reports.recv()], [Ok(1), Ok(2)]);
        // Admissions do not read the probe, because the thread does.
        let read = sampler.sample(at(0)).load();
        assert!(read.is_some());
        drop(handle);
        drop(sampler);
        // The channel ends only if the probe is dropped, that is, if the thread has ended.
        assert!(reports.iter().all(|times| times > 2));
    }

    #[test]
    fn stopping_does_not_wait_for_the_next_reading() {
        let (sampler, reports) = reporting_sampler();
        let handle = sampler.clone().spawn(SECOND * 3_600).unwrap();
        assert_eq!(reports.recv(), Ok(1));
        handle.stop();
        assert_eq!(sampler.readings().load(), Some(1.0));
        // Admissions read the probe again, and the first reading is due at once.
        assert_eq!(sampler.sample(at(0)).load(), Some(2.0));
        assert_eq!(sampler.sample(at(999)).load(), Some(2.0));
        assert_eq!(sampler.sample(at(1_000)).load(), Some(3.0));
    }

    #[test]
    fn no_thread_exists_unless_spawned() {
        let (sampler, reports) = reporting_sampler();
        assert_eq!(sampler.sample(at(0)).load(), Some(1.0));
        drop(sampler);
        assert_eq!(reports.iter().count(), 1);
    }
}
