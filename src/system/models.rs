//! Models for loom: every interleaving of admissions when a reading is due.

use std::sync::Arc as StdArc;

use loom::thread;

use super::sampler::{AT_ONCE, BUSY};
use super::{Probe, Sampler};
use crate::base::sync::fault::{check, plant};
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Bug, Ordering};
use crate::clock::Tick;

/// A probe that reports the number of its readings as the load, or 1 000 if two threads read it at
/// the same time.
#[derive(Debug)]
struct Single {
    /// The number of threads that read the probe now.
    asking: AtomicU32,
    /// The number of readings of the probe.
    asked: Arc<AtomicU64>,
}

impl Probe for Single {
    fn load(&self) -> Option<f64> {
        // Concurrent readings are reported by a value and not by a panic, because the sampler would
        // catch a panic.
        let alone = self.asking.fetch_add(1, Ordering::Relaxed) == 0;
        let times = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.asking.fetch_sub(1, Ordering::Relaxed);
        Some(if alone { times as f64 } else { 1_000.0 })
    }

    fn cpu(&self) -> Option<f64> {
        None
    }
}

/// Creates a sampler of a [`Single`] probe, and returns it with the counter of readings.
fn sampler() -> (StdArc<Sampler>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let probe = Single {
        asking: AtomicU32::new(0),
        asked: asked.clone(),
    };
    (StdArc::new(Sampler::new(probe)), asked)
}

/// Runs three admissions at the same time.
fn one_instant() {
    let (sampler, asked) = sampler();
    let now = Tick::from_nanos(5);
    let others = [0, 1].map(|_| {
        let sampler = sampler.clone();
        thread::spawn(move || sampler.sample(now).load())
    });
    let ours = sampler.sample(now).load();
    let theirs = others.map(|other| other.join().unwrap());
    // Some calls can find no reading yet, but the call that reads the probe has one.
    let loads: Vec<_> = theirs.into_iter().chain([ours]).flatten().collect();
    assert!(
        !loads.is_empty() && loads.iter().all(|&load| load == 1.0),
        "{loads:?}"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1, "more than one winner");
}

/// Runs two admissions in different seconds. The reading of the first can still be in progress when
/// the second comes.
fn two_seconds() {
    let (sampler, asked) = sampler();
    let other = sampler.clone();
    let thread = thread::spawn(move || other.sample(Tick::from_nanos(5)).load());
    let ours = sampler.sample(Tick::from_millis(1_500)).load();
    let theirs = thread.join().unwrap();
    let times = asked.load(Ordering::Relaxed);
    assert!([1, 2].contains(&times), "asked {times} times");
    // The probe is never read concurrently, and the newest reading is kept.
    assert!([ours, theirs].iter().flatten().all(|&load| load <= 2.0));
    assert_eq!(sampler.readings().load(), Some(times as f64));
}

/// Runs an admission that finds no reading due. It must see the latest reading.
fn no_longer_due() {
    let (sampler, asked) = sampler();
    let other = sampler.clone();
    let reader = thread::spawn(move || {
        // Relaxed: the load in `sample`, whose ordering is under test, then sees this value or a
        // newer one.
        let due = other.0.due.load(Ordering::Relaxed);
        (![AT_ONCE, BUSY].contains(&due)).then(|| other.sample(Tick::from_nanos(5)).load())
    });
    assert_eq!(sampler.sample(Tick::from_nanos(5)).load(), Some(1.0));
    if let Some(seen) = reader.join().unwrap() {
        assert_eq!(seen, Some(1.0));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn concurrent_admissions_read_the_probe_once() {
    check(2, one_instant);
}

#[test]
#[should_panic]
fn admissions_that_do_not_claim_read_the_probe_twice() {
    plant(Bug::SampleWithoutClaim);
    check(2, one_instant);
}

#[test]
fn a_slow_reading_is_not_overtaken() {
    check(3, two_seconds);
}

#[test]
#[should_panic]
fn a_reading_that_is_not_claimed_is_overtaken() {
    plant(Bug::SampleWithoutClaim);
    check(3, two_seconds);
}

#[test]
fn a_call_that_finds_nothing_due_sees_the_readings() {
    check(3, no_longer_due);
}

#[test]
#[should_panic]
fn a_due_time_published_too_early_shows_old_readings() {
    plant(Bug::DueBeforeReadings);
    check(3, no_longer_due);
}
