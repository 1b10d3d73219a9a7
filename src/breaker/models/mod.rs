//! Models for loom: every interleaving of a few threads over breakers.
//!
//! Each model has a twin with a planted bug that must fail: a model that cannot fail proves
//! nothing. `stat::models` documents how to run them. Each thread collects the reports of breakers
//! in a plain vector, which does not synchronize threads.

mod late;
mod orders;
mod pushback;

use std::time::Duration;

use loom::thread;

use super::BreakerState::{Closed, HalfOpen, Open};
use super::circuit::{Breaker, End, StateChanges};
use super::counts::Ended;
use super::window::CountWindow;
use super::*;
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;
use crate::stat::Refusal;

/// Returns the settings of a breaker that opens at the `count`th error, for 10 ms.
fn spec(count: u32) -> BreakerSpec {
    BreakerSpec {
        strategy: Strategy::Error,
        limit: BadLimit::Count(count),
        exceeds: false,
        min_calls: 1,
        open_for: Duration::from_millis(10),
        open_up_to: None,
        last_calls: None,
        interval: Duration::from_millis(1_000),
        buckets: 1,
        probes: 1,
        cancelled_as_slow: true,
        id: None,
    }
}

/// Creates breakers without calls.
fn breakers(specs: impl IntoIterator<Item = BreakerSpec>) -> Arc<Breakers> {
    Arc::new(Breakers::new(specs, Tick::ZERO, None))
}

/// A thread that uses the breakers, with the changes reported to it.
#[derive(Clone)]
struct Caller {
    breakers: Arc<Breakers>,
    /// The reported changes: the old and the new state of each.
    told: Vec<(BreakerState, BreakerState)>,
}

impl Caller {
    fn new(breakers: &Arc<Breakers>) -> Self {
        Self {
            breakers: breakers.clone(),
            told: Vec::new(),
        }
    }

    fn enter(&mut self, now: u64) -> Result<Admission, Refusal> {
        let now = Tick::from_millis(now);
        self.breakers.admit(now, &mut noting(&mut self.told))
    }

    /// Enters breakers that are not all closed. Skips the check for closed breakers, which would
    /// only add reads to the model.
    fn enter_as_probe(&mut self, now: u64) -> Result<Admission, Refusal> {
        let (now, tell) = (Tick::from_millis(now), &mut noting(&mut self.told));
        self.breakers.admit_as_probe(now, tell)
    }

    fn end(&mut self, now: u64, admission: Admission, is_error: bool) {
        let (now, tell) = (Tick::from_millis(now), &mut noting(&mut self.told));
        self.breakers
            .complete(now, admission, Duration::ZERO, is_error, tell);
    }

    /// Makes a call that fails at once.
    fn fail(&mut self, now: u64) {
        let admission = self.enter(now).expect("it passes");
        self.end(now, admission, true);
    }

    /// Begins a new generation of the first breaker, by opening and closing it.
    fn renew(&mut self) {
        let tell = &mut noting(&mut self.told);
        self.breakers.force_open(0, tell);
        self.breakers.force_close(0, tell);
    }
}

/// Returns a listener that appends reported changes to `told`.
fn noting(told: &mut Vec<(BreakerState, BreakerState)>) -> impl FnMut(Change) {
    |change| told.push((change.from, change.to))
}

/// Ends a call of an older generation concurrently with the beginning of a new one, in a breaker
/// that opens at two errors.
fn old_call_and_a_new_generation(at_two: BreakerSpec) {
    let breakers = breakers([at_two]);
    let mut first = Caller::new(&breakers);
    let old = first.enter(0).unwrap();
    let mut other = first.clone();
    let thread = thread::spawn(move || other.end(0, old, true));
    first.renew();
    first.fail(0);
    thread.join().unwrap();
    assert_eq!(breakers.state(0), Closed, "one error in this generation");
    first.fail(0);
    assert_eq!(breakers.state(0), Open, "and two");
}

model! {
    an_old_call_and_a_new_generation at 3
        fails with an_old_call_that_counts_in_any: CountInAnyGeneration;
    || old_call_and_a_new_generation(spec(2))
}

model! {
    an_end_during_a_renewal at 3;
    || {
        // The generation began 2^30 epochs ago, so the next call renews it.
        let breaker = Arc::new(Breaker::new(spec(1), 0, Tick::ZERO, 0, None));
        let other = breaker.clone();
        let thread = thread::spawn(move || other.renew(other.word(), 1 << 30));
        let end = End { now: Tick::ZERO, epoch: (1 << 30) - 1, is_bad: true };
        let mut changes = StateChanges::default();
        breaker.count(end, &mut changes);
        thread.join().unwrap();
        assert_eq!(breaker.word().state(), Open, "the end was lost");
    }
}

/// Counts a bad call in `bucket`. Returns the number of calls in the window afterwards.
fn count(window: &CountWindow, bucket: u64) -> u64 {
    let ended = Ended {
        version: 0,
        is_bad: true,
        keeps_ratio: true,
    };
    let counted = window.count(Tick::from_nanos(bucket), ended, || false);
    counted.unwrap().total
}

model! {
    counts_during_a_roll at 3 fails with a_count_behind_the_head: CountBehindHead;
    || {
        // One clock is a whole ring behind the other, so both buckets share a cell.
        let window = Arc::new(CountWindow::new(1, 2, Tick::from_nanos(10)));
        let other = window.clone();
        let thread = thread::spawn(move || count(&other, 10));
        let newer = count(&window, 12);
        thread.join().unwrap();
        let all = count(&window, 12);
        assert!(all > newer && all <= 3, "{newer}, then {all}: a count was lost");
    }
}

model! {
    counts_during_a_bucket_skip at 3 fails with a_roll_that_empties_a_newer_bucket: SkipBehindHead;
    || {
        // The thread that opens 12 empties the cell that 11 and 13 share.
        let window = Arc::new(CountWindow::new(1, 2, Tick::from_nanos(10)));
        let other = window.clone();
        let thread = thread::spawn(move || count(&other, 12));
        count(&window, 13);
        thread.join().unwrap();
        assert_eq!(count(&window, 13), 3, "a count was lost");
    }
}

model! {
    a_good_call_that_reaches_the_minimum at 3
        fails with a_bad_call_that_is_noted_late: NoteBadAfter;
    || {
        // The breaker opens at one error, but only once two calls have ended.
        let breakers = breakers([BreakerSpec { min_calls: 2, ..spec(1) }]);
        let mut first = Caller::new(&breakers);
        let good = first.enter(0).unwrap();
        let mut other = first.clone();
        let thread = thread::spawn(move || other.fail(0));
        first.end(0, good, false);
        thread.join().unwrap();
        assert_eq!(breakers.state(0), Open, "the second of the two saw both");
    }
}

/// Returns the settings of a breaker that opens at the `count`th error in a row.
fn in_a_row(count: u32) -> BreakerSpec {
    BreakerSpec {
        limit: BadLimit::Consecutive(count),
        ..spec(count)
    }
}

/// Asserts that three bad calls, two of which end concurrently, open the breaker `at_three`.
fn two_bad_calls_after_one(at_three: BreakerSpec) {
    let breakers = breakers([at_three]);
    let mut first = Caller::new(&breakers);
    first.fail(0);
    let mut other = first.clone();
    let thread = thread::spawn(move || other.fail(0));
    let call = first.enter(0).unwrap();
    first.end(0, call, true);
    thread.join().unwrap();
    assert_eq!(breakers.state(0), Open, "none is lost");
}

model! {
    two_bad_calls_in_a_row at 3 fails with a_row_that_is_written_blindly: BlindStamped;
    || two_bad_calls_after_one(in_a_row(3))
}

model! {
    a_good_call_during_the_end_of_a_row at 3
        fails with a_row_that_is_ended_blindly: BlindStamped;
    || {
        let breakers = breakers([in_a_row(3)]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let calls = [first.enter(0).unwrap(), first.enter(0).unwrap()];
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || other.end(0, calls[0], false));
        first.end(0, calls[1], true);
        thread.join().unwrap();
        // The good call ended either last, or between the two bad calls.
        first.fail(0);
        assert_eq!(breakers.state(0), Closed, "two in a row at most");
        first.fail(0);
        if breakers.state(0) == Closed {
            first.fail(0);
        }
        assert_eq!(breakers.state(0), Open, "three in a row at least");
    }
}

model! {
    an_old_call_and_a_new_row at 3
        fails with an_old_call_that_counts_in_any_row: CountInAnyGeneration;
    || old_call_and_a_new_generation(in_a_row(2))
}

/// Returns the settings of a breaker that opens when `count` of the last four calls were bad.
fn of_the_last(count: u32) -> BreakerSpec {
    BreakerSpec {
        limit: BadLimit::Count(count),
        last_calls: Some(4),
        ..spec(count)
    }
}

model! {
    two_bad_calls_among_the_last at 3
        fails with a_last_call_that_is_written_blindly: BlindStamped;
    || two_bad_calls_after_one(of_the_last(3))
}

model! {
    an_old_call_and_new_last_calls at 3
        fails with an_old_call_that_counts_among_any_last_calls: CountInAnyGeneration;
    || old_call_and_a_new_generation(of_the_last(2))
}

model! {
    two_calls_for_one_probe at 3 fails with a_probe_taken_blindly: BlindProbe;
    || {
        // The recovery time is over: exactly one of two concurrent calls may probe.
        let breakers = breakers([spec(1)]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let mut other = first.clone();
        let thread = thread::spawn(move || other.enter(10).is_ok());
        let ours = first.enter(10).is_ok();
        assert!(ours != thread.join().unwrap(), "one of the two is the probe");
        assert_eq!(breakers.state(0), HalfOpen);
    }
}

model! {
    three_calls_for_two_probes at 2 fails with probes_taken_blindly: BlindProbe;
    || {
        // There are places for two probes: exactly two of three concurrent calls may probe.
        let breakers = breakers([BreakerSpec { probes: 2, ..spec(1) }]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let threads = [(); 2].map(|()| {
            let mut other = first.clone();
            thread::spawn(move || other.enter_as_probe(10).ok())
        });
        let mut probes: Vec<_> = first.enter_as_probe(10).into_iter().collect();
        probes.extend(threads.into_iter().filter_map(|thread| thread.join().unwrap()));
        assert_eq!(probes.len(), 2, "two of the three are probes");
        for probe in probes {
            first.end(10, probe, false);
        }
        assert_eq!(breakers.state(0), Closed, "both places were theirs");
    }
}

model! {
    two_probes_that_end_together at 3 fails with a_probe_that_tries_once: EndTriesOnce;
    || {
        // Two good probes close the breaker, also if they end at the same time.
        let breakers = breakers([BreakerSpec { probes: 2, ..spec(1) }]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let probes = [first.enter(10).unwrap(), first.enter(10).unwrap()];
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || other.end(10, probes[1], false));
        first.end(10, probes[0], false);
        thread.join().unwrap();
        assert_eq!(breakers.state(0), Closed, "both were good");
    }
}

model! {
    a_probe_of_two_breakers_during_a_change at 3;
    || {
        let breakers = breakers([spec(1), spec(1)]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let other = Caller::new(&breakers);
        let thread = thread::spawn(move || other.breakers.force_open(1, &mut |_| {}));
        let probe = first.enter(10);
        thread.join().unwrap();
        // The call probes both breakers or none.
        let expected = if probe.is_ok() { HalfOpen } else { Open };
        assert_eq!([breakers.state(0), breakers.state(1)], [expected, Open]);
    }
}

model! {
    two_callers_of_two_breakers at 2;
    || {
        // Two callers probe and release, while an operator opens and closes the second breaker.
        let breakers = breakers([spec(1), spec(1)]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let probe = |caller: &mut Caller| {
            if let Ok(probe) = caller.enter_as_probe(10) {
                caller.breakers.release(probe, &mut |_| {});
            }
        };
        let (mut other, operator) = (first.clone(), first.clone());
        let threads = [
            thread::spawn(move || probe(&mut other)),
            thread::spawn(move || {
                operator.breakers.force_open(1, &mut |_| {});
                operator.breakers.force_close(1, &mut |_| {});
            }),
        ];
        probe(&mut first);
        for thread in threads {
            thread.join().unwrap();
        }
        // No probe holds a place, so the breakers must not be stuck.
        let probe = first.enter(10).expect("all places are free");
        first.end(10, probe, false);
        assert_eq!([breakers.state(0), breakers.state(1)], [Closed, Closed]);
    }
}

model! {
    two_calls_that_open_a_breaker at 3 fails with a_change_reported_twice: TellWithoutWinning;
    || {
        // Each of the two bad calls can open the breaker, but the change must be reported once.
        let breakers = breakers([spec(1)]);
        let mut first = Caller::new(&breakers);
        let calls = [first.enter(0).unwrap(), first.enter(0).unwrap()];
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || {
            other.end(0, calls[1], true);
            other.told
        });
        first.end(0, calls[0], true);
        let mut told = first.told;
        told.extend(thread.join().unwrap());
        assert_eq!(told, [(Closed, Open)]);
    }
}

model! {
    a_late_retry_time_and_the_next_one at 3
        fails with a_retry_time_written_blindly: BlindMoment;
    || {
        let breakers = breakers([spec(1)]);
        let mut first = Caller::new(&breakers);
        let call = first.enter(0).unwrap();
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || {
            if other.breakers.state(0) != Open {
                return false;
            }
            // The breaker was opened at 0, and its moment may not be written yet. It is closed, and
            // opened again at 5.
            other.breakers.force_close(0, &mut |_| {});
            other.fail(5);
            true
        });
        first.end(0, call, true);
        let is_second = thread.join().unwrap();
        let refusal = breakers.check(Tick::from_millis(9)).unwrap_err();
        let retry_at = Tick::from_millis(if is_second { 15 } else { 10 });
        assert_eq!(refusal.available_at(), Some(retry_at));
    }
}

model! {
    an_opening_and_a_reader_with_an_old_clock at 3
        fails with a_reader_whose_retry_time_stands: FirstMomentStands;
    || {
        let breakers = breakers([spec(1)]);
        let mut first = Caller::new(&breakers);
        let call = first.enter(0).unwrap();
        let reader = breakers.clone();
        // The reader's clock was read 8 ms before the opening.
        let thread = thread::spawn(move || reader.check(Tick::ZERO).is_ok());
        first.end(8, call, true);
        thread.join().unwrap();
        let refusal = breakers.check(Tick::from_millis(9)).unwrap_err();
        assert_eq!(refusal.available_at(), Some(Tick::from_millis(18)));
    }
}

model! {
    a_call_during_a_new_generation at 3
        fails with a_call_that_outlives_its_generation: CountInAnyGeneration;
    || {
        // A call enters and ends while a generation ends and the next generation begins.
        let breakers = breakers([spec(1)]);
        let mut first = Caller::new(&breakers);
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || {
            if let Ok(call) = other.enter(0) {
                if !call.is_probe(0) {
                    other.end(0, call, true);
                }
            }
            other.told.len()
        });
        first.renew();
        let opened = thread.join().unwrap();
        // The call opened the breaker in the generation in which it was admitted, or not at all.
        assert!(opened <= 1);
        let is_open = breakers.state(0) == Open;
        assert!(opened == 1 || !is_open);
        if !is_open {
            first.fail(0);
            assert_eq!(breakers.state(0), Open);
        }
    }
}
