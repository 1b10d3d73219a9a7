//! Models for loom: every interleaving of admissions that find a reading due.

use std::sync::Arc as StdArc;

use loom::thread;

use super::sampler::{AT_ONCE, BUSY};
use super::{Probe, Sampler};
use crate::base::sync::fault::{check, plant};
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Bug, Ordering};
use crate::clock::Tick;

/// A probe that reports a load of 1 000 if it is read twice at once, and else the number of
/// readings.
#[derive(Debug)]
struct Single {
    /// How many threads read the probe now.
    asking: AtomicU32,
    /// How often the probe was read.
    asked: Arc<AtomicU64>,
}

impl Probe for Single {
    fn load(&self) -> Option<f64> {
        // Reported by a value and not by a panic, which the sampler would catch.
        let alone = self.asking.fetch_add(1, Ordering::Relaxed) == 0;
        let times = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.asking.fetch_sub(1, Ordering::Relaxed);
        Some(if alone { times as f64 } else { 1_000.0 })
    }

    fn cpu(&self) -> Option<f64> {
        None
    }
}

/// A sampler of a [`Single`] probe, and the number of readings of that probe.
fn sampler() -> (StdArc<Sampler>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let probe = Single {
        asking: AtomicU32::new(0),
        asked: asked.clone(),
    };
    (StdArc::new(Sampler::new(probe)), asked)
}

/// Three admissions in one instant.
fn one_instant() {
    let (sampler, asked) = sampler();
    let now = Tick::from_nanos(5);
    let others = [0, 1].map(|_| {
        let sampler = sampler.clone();
        thread::spawn(move || sampler.sample(now).load())
    });
    let ours = sampler.sample(now).load();
    let theirs = others.map(|other| other.join().unwrap());
    // Some calls can find no reading yet; at least the winner has one.
    let told: Vec<_> = theirs.into_iter().chain([ours]).flatten().collect();
    assert!(
        !told.is_empty() && told.iter().all(|&load| load == 1.0),
        "{told:?}"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1, "more than one winner");
}

/// Two admissions in different seconds; the reading of the first one can still be in progress.
fn two_seconds() {
    let (sampler, asked) = sampler();
    let other = sampler.clone();
    let thread = thread::spawn(move || other.sample(Tick::from_nanos(5)).load());
    let ours = sampler.sample(Tick::from_millis(1_500)).load();
    let theirs = thread.join().unwrap();
    let times = asked.load(Ordering::Relaxed);
    assert!([1, 2].contains(&times), "asked {times} times");
    // The probe never runs twice at once, and the newest reading stays.
    assert!([ours, theirs].iter().flatten().all(|&load| load <= 2.0));
    assert_eq!(sampler.readings().load(), Some(times as f64));
}

/// An admission that finds nothing due sees the latest reading.
fn no_longer_due() {
    let (sampler, asked) = sampler();
    let other = sampler.clone();
    let reader = thread::spawn(move || {
        // Relaxed: the load in `sample`, which is the one under test, sees this value or a newer
        // one.
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
fn admissions_of_one_instant_ask_once() {
    check(2, one_instant);
}

#[test]
#[should_panic]
fn admissions_that_do_not_claim_ask_twice() {
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
