//! Random calls are judged by breakers and by a naive model, which keeps a list of events.

mod naive;

use super::stage::{Rng, ms, seed, spec};
use crate::breaker::*;
use crate::clock::Tick;
use crate::stat::Refusal;
use naive::{Naive, Part, State};

/// Returns the settings of a random breaker, and its ratio if its limit is a ratio.
fn random_spec(rng: &mut Rng) -> (BreakerSpec, Option<f64>) {
    let strategy = if rng.below(2) == 0 {
        Strategy::Slow(ms(rng.below(400)))
    } else {
        Strategy::Error
    };
    let exceeds = rng.below(3) == 0;
    let ratio = [0.1, 0.25, 1.0 / 3.0, 0.5, 2.0 / 3.0, 0.9, 1.0][rng.below(7) as usize];
    let ratio = (rng.below(3) > 0).then_some(ratio);
    let count = 1 + rng.below(4) as u32;
    let limit = match rng.below(2) {
        0 => BadLimit::Count(count),
        _ => BadLimit::Consecutive(count),
    };
    let buckets = [1, 2, 4, 5, 10][rng.below(5) as usize];
    // The open time is often shorter than the duration of a call.
    let most = [50, 500][rng.below(2) as usize];
    let open_for = 1 + rng.below(most);
    let open_up_to = (rng.below(2) == 0).then(|| ms(open_for + rng.below(3_000)));
    let last_calls = (rng.below(3) == 0).then(|| 1 + rng.below(8) as u32);
    let spec = BreakerSpec {
        last_calls,
        strategy,
        limit: ratio.map_or(limit, BadLimit::ratio),
        exceeds,
        min_calls: 1 + rng.below(6) as u32,
        open_for: ms(open_for),
        open_up_to,
        interval: ms([20, 100, 1_000][rng.below(3) as usize]),
        buckets,
        probes: 1 + rng.below(3) as u32,
        cancelled_as_slow: rng.below(2) == 0,
        ..spec()
    };
    (spec, ratio)
}

/// A running call.
struct Call {
    /// The time of the start, in ms.
    start: u64,
    admission: Admission,
    /// What the naive model of each breaker keeps of the call.
    parts: Vec<Part>,
}

/// Breakers and their naive models.
struct Pair {
    breakers: Breakers,
    naive: Vec<Naive>,
    /// The running calls.
    calls: Vec<Call>,
}

impl Pair {
    /// Makes a call, and compares the answers of breakers and models.
    fn enter(&mut self, now: u64, notify: &mut dyn FnMut(Change)) {
        let tick = Tick::from_millis(now);
        let refusals: Vec<_> = self.naive.iter().map(|naive| naive.refuses(now)).collect();
        let refusal = refusals.iter().position(Option::is_some).map(|index| {
            // The call can pass once no breaker refuses it, at the latest of their times.
            let times: Option<Vec<_>> = refusals.iter().flatten().copied().collect();
            let latest = times.and_then(|times| times.into_iter().max());
            Refusal::new(index as u32, tick, latest.map(Tick::from_millis))
        });
        assert_eq!(self.breakers.check(tick).err(), refusal, "check at {now}");
        match self.breakers.admit(tick, notify) {
            Ok(admission) => {
                assert_eq!(refusal, None, "passed at {now}");
                let parts: Vec<_> = self
                    .naive
                    .iter_mut()
                    .map(|naive| naive.admit(now))
                    .collect();
                for (index, part) in parts.iter().enumerate() {
                    assert_eq!(admission.is_probe(index), part.is_probe);
                }
                self.calls.push(Call {
                    start: now,
                    admission,
                    parts,
                });
            }
            Err(refused) => assert_eq!(Some(refused), refusal, "refused at {now}"),
        }
    }

    /// Ends a random call in a random way.
    fn end(&mut self, now: u64, rng: &mut Rng, notify: &mut dyn FnMut(Change)) {
        let index = rng.below(self.calls.len() as u64) as usize;
        let call = self.calls.swap_remove(index);
        let (tick, rt) = (Tick::from_millis(now), ms(now.saturating_sub(call.start)));
        let each = self.naive.iter_mut().zip(call.parts);
        match rng.below(8) {
            0 => {
                self.breakers.release(call.admission, notify);
                each.for_each(|(naive, part)| naive.release(part));
            }
            1 | 2 => {
                self.breakers.cancel(tick, call.admission, rt, notify);
                for (naive, part) in each {
                    let is_slow = matches!(naive.spec.strategy, Strategy::Slow(max) if rt > max);
                    if naive.spec.cancelled_as_slow && is_slow {
                        naive.end(now, part, true);
                    } else {
                        naive.release(part);
                    }
                }
            }
            end => {
                let is_error = end < 5;
                self.breakers
                    .complete(tick, call.admission, rt, is_error, notify);
                for (naive, part) in each {
                    let is_bad = match naive.spec.strategy {
                        Strategy::Slow(max) => rt > max,
                        Strategy::Error => is_error,
                        Strategy::Pushback => false,
                    };
                    naive.end(now, part, is_bad);
                }
            }
        }
    }

    /// Opens or closes a random breaker by hand.
    fn force(&mut self, rng: &mut Rng, notify: &mut dyn FnMut(Change)) {
        let index = rng.below(self.naive.len() as u64) as usize;
        let naive = &mut self.naive[index];
        if rng.below(3) == 0 {
            self.breakers.force_open(index, notify);
            if naive.state != State::Open(None) {
                naive.set(State::Open(None));
            }
        } else {
            self.breakers.force_close(index, notify);
            naive.set(State::Closed);
        }
    }
}

/// Returns the time of the next step: mostly the same or slightly later, sometimes far ahead or
/// earlier.
fn next_time(now: u64, rng: &mut Rng) -> u64 {
    match rng.below(200) {
        0 => now.saturating_sub(rng.below(3_000)),
        1 => now + rng.below(100_000_000),
        2..20 => now + rng.below(600),
        20..100 => now + rng.below(12),
        _ => now,
    }
}

#[test]
fn random_calls_are_judged_as_by_a_naive_list() {
    let seed = seed();
    let (mut changes, mut late) = ([0; 3], [0; 2]);
    for case in 0..5_000 {
        let mut rng = Rng(seed.wrapping_add(case << 20));
        let mut now = rng.below(5_000);
        let specs: Vec<_> = (0..1 + rng.below(3))
            .map(|_| random_spec(&mut rng))
            .collect();
        let tick = Tick::from_millis(now);
        let mut pair = Pair {
            breakers: Breakers::new(specs.iter().map(|(spec, _)| spec.clone()), tick, None),
            naive: specs
                .into_iter()
                .map(|(spec, ratio)| Naive::new(spec, ratio, now))
                .collect(),
            calls: Vec::new(),
        };
        for step in 0..120 {
            now = next_time(now, &mut rng);
            let mut notify = |change: Change| changes[change.to as usize] += 1;
            match rng.below(100) {
                0 => pair.force(&mut rng, &mut notify),
                1..50 if !pair.calls.is_empty() => pair.end(now, &mut rng, &mut notify),
                _ => pair.enter(now, &mut notify),
            }
            for (index, naive) in pair.naive.iter().enumerate() {
                let state = pair.breakers.state(index);
                assert_eq!(state, naive.public(), "case {case}, step {step}, {index}");
                if state == BreakerState::Closed {
                    let bad = pair.breakers.bad_calls(index, Tick::from_millis(now));
                    assert_eq!(bad, naive.bad_at(now), "case {case}, step {step}, {index}");
                }
            }
        }
        for naive in &pair.naive {
            late[0] += naive.late[0];
            late[1] += naive.late[1];
        }
    }
    assert!(changes.iter().all(|&count| count > 5_000), "{changes:?}");
    assert!(late.iter().all(|&count| count > 200), "{late:?}");
}
