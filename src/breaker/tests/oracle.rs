//! Random calls, judged by the breakers and by a plain list of what happened.

use super::stage::{Rng, ms, seed, spec};
use crate::breaker::*;
use crate::clock::Tick;

/// One breaker as the specification tells it, in milliseconds.
struct Naive {
    spec: Spec,
    ratio: Option<f64>,
    state: State,
    /// Bad probes since it was closed.
    failed: u32,
    /// Generations so far.
    generation: u32,
    /// How often places have been given on.
    given_on: u32,
    /// How often the end of a probe without a place has closed it, and opened it.
    late: [u32; 2],
    /// The newest bucket that a call has ended in.
    head: u64,
    /// Generation, bucket, whether bad.
    ended: Vec<(u32, u64, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Closed,
    /// Until then; `None`: until an operator closes it.
    Open(Option<u64>),
    HalfOpen {
        running: u32,
        good: u32,
        lease_end: u64,
        /// Whether a place has been given on.
        is_outlived: bool,
    },
}

/// What a call remembers of one breaker.
#[derive(Clone, Copy)]
struct Part {
    generation: u32,
    given_on: u32,
    is_probe: bool,
}

impl Naive {
    fn new(spec: Spec, ratio: Option<f64>, now: u64) -> Self {
        let head = now / Self::bucket_ms(&spec);
        Self {
            spec,
            ratio,
            state: State::Closed,
            failed: 0,
            generation: 0,
            given_on: 0,
            late: [0; 2],
            head,
            ended: Vec::new(),
        }
    }

    fn bucket_ms(spec: &Spec) -> u64 {
        spec.interval.as_millis() as u64 / u64::from(spec.buckets)
    }

    fn open_ms(&self) -> u64 {
        self.spec.open_for.as_millis() as u64
    }

    /// How long it is open now that so many probes were bad.
    fn grown_ms(&self) -> u64 {
        self.grown(self.open_ms()).min(self.longest_ms())
    }

    fn longest_ms(&self) -> u64 {
        let longest = self.spec.open_up_to.unwrap_or(self.spec.open_for);
        longest.as_millis() as u64
    }

    /// Twice `ms` for each probe that was bad, up to seven.
    fn grown(&self, ms: u64) -> u64 {
        (0..self.failed.min(7)).fold(ms, |ms, _| 2 * ms)
    }

    fn lease_ms(&self) -> u64 {
        match self.spec.strategy {
            Strategy::Slow(max) => self.open_ms().max(max.as_millis() as u64),
            Strategy::Error => self.open_ms(),
        }
    }

    fn set(&mut self, state: State) {
        if state == State::Closed {
            self.failed = 0;
        }
        self.state = state;
        self.generation += 1;
    }

    fn public(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open(_) => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Until when a call at `now` is refused.
    fn refuses(&self, now: u64) -> Option<Option<u64>> {
        let end = match self.state {
            State::Closed => return None,
            State::HalfOpen { running, .. } if running < self.spec.probes => return None,
            State::Open(None) => return Some(None),
            State::Open(Some(end)) => end,
            State::HalfOpen { lease_end, .. } => lease_end,
        };
        // Further ahead by more than a second: the clock has stepped back.
        let longest = match self.state {
            // A reader takes the longer of both for the first time.
            State::Open(_) => self.grown(self.lease_ms()).min(self.longest_ms()),
            _ => self.lease_ms(),
        };
        let is_ahead = end > now && end - now <= longest + 1_000;
        is_ahead.then_some(Some(end))
    }

    fn admit(&mut self, now: u64) -> Part {
        let is_probe = self.state != State::Closed;
        if is_probe {
            let lease_end = now + self.lease_ms();
            match &mut self.state {
                State::HalfOpen {
                    running,
                    lease_end: end,
                    ..
                } if *running < self.spec.probes => {
                    *running += 1;
                    *end = lease_end;
                }
                State::HalfOpen {
                    running,
                    lease_end: end,
                    is_outlived,
                    ..
                } => {
                    (*running, *end, *is_outlived) = (1, lease_end, true);
                    self.given_on += 1;
                }
                _ => self.set(State::HalfOpen {
                    running: 1,
                    good: 0,
                    lease_end,
                    is_outlived: false,
                }),
            }
        }
        Part {
            generation: self.generation,
            given_on: self.given_on,
            is_probe,
        }
    }

    fn leave(&mut self, part: Part) {
        if part.generation != self.generation || !part.is_probe {
            return;
        }
        if let State::HalfOpen {
            running,
            good,
            is_outlived,
            ..
        } = &mut self.state
        {
            if part.given_on != self.given_on {
                return;
            }
            *running -= 1;
            if *running == 0 && *good == 0 && !*is_outlived {
                self.set(State::Open(Some(0)));
            }
        }
    }

    fn end(&mut self, now: u64, part: Part, is_bad: bool) {
        if part.generation != self.generation {
            return;
        }
        if is_bad && matches!(self.state, State::HalfOpen { .. }) {
            self.failed += 1;
        }
        let next_open = State::Open(Some(now + self.grown_ms()));
        match &mut self.state {
            State::HalfOpen { .. } if is_bad => {
                self.late[1] += u32::from(part.given_on != self.given_on);
                self.set(next_open);
            }
            State::HalfOpen { running, good, .. } => {
                let has_place = part.given_on == self.given_on;
                *running -= u32::from(has_place);
                *good += 1;
                if *good >= self.spec.probes {
                    self.late[0] += u32::from(!has_place);
                    self.set(State::Closed);
                }
            }
            State::Closed => {
                self.head = self.head.max(now / Self::bucket_ms(&self.spec));
                self.ended.push((self.generation, self.head, is_bad));
                if self.is_met() {
                    self.set(next_open);
                }
            }
            State::Open(_) => {}
        }
    }

    /// How many calls ended, and how many of them were bad, as far as they count.
    fn counted(&self) -> (usize, usize) {
        if let Limit::Consecutive(_) = self.spec.limit {
            let all = self.ended.iter().rev();
            let row = all.take_while(|call| call.0 == self.generation && call.2);
            let row = row.count();
            return (row, row);
        }
        if let Some(most) = self.spec.last_calls {
            let all = self.ended.iter().rev();
            let last = all.take_while(|call| call.0 == self.generation);
            let last: Vec<_> = last.take(most as usize).collect();
            let bad = last.iter().filter(|call| call.2);
            return (last.len(), bad.count());
        }
        let counted = |&&(generation, bucket, _): &&(u32, u64, bool)| {
            generation == self.generation && bucket + u64::from(self.spec.buckets) > self.head
        };
        let counted: Vec<_> = self.ended.iter().filter(counted).collect();
        let bad = counted.iter().filter(|call| call.2);
        (counted.len(), bad.count())
    }

    fn is_met(&self) -> bool {
        let (total, bad) = self.counted();
        if total < self.spec.min_calls as usize {
            return false;
        }
        let (value, limit) = match (self.ratio, self.spec.limit) {
            (Some(ratio), _) => (bad as f64 / total as f64, ratio),
            (None, Limit::Count(limit) | Limit::Consecutive(limit)) => {
                (bad as f64, f64::from(limit))
            }
            (None, Limit::Ratio(_)) => unreachable!("a ratio is given twice"),
        };
        if self.spec.exceeds {
            value > limit
        } else {
            value >= limit
        }
    }
}

fn random_spec(rng: &mut Rng) -> (Spec, Option<f64>) {
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
        0 => Limit::Count(count),
        _ => Limit::Consecutive(count),
    };
    let buckets = [1, 2, 4, 5, 10][rng.below(5) as usize];
    // Often shorter than calls.
    let most = [50, 500][rng.below(2) as usize];
    let open_for = 1 + rng.below(most);
    let open_up_to = (rng.below(2) == 0).then(|| ms(open_for + rng.below(3_000)));
    let last_calls = (rng.below(3) == 0).then(|| 1 + rng.below(8) as u32);
    let spec = Spec {
        last_calls,
        strategy,
        limit: ratio.map_or(limit, Limit::ratio),
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

struct Call {
    start: u64,
    admission: Admission,
    parts: Vec<Part>,
}

/// Both, side by side.
struct Pair {
    breakers: Breakers,
    naive: Vec<Naive>,
    calls: Vec<Call>,
}

impl Pair {
    fn enter(&mut self, now: u64, told: &mut dyn FnMut(Change)) {
        let tick = Tick::from_millis(now);
        let refusals: Vec<_> = self.naive.iter().map(|naive| naive.refuses(now)).collect();
        let refusal = refusals.iter().position(Option::is_some).map(|index| {
            // All that refuse it must let it pass.
            let times: Option<Vec<_>> = refusals.iter().flatten().copied().collect();
            let latest = times.and_then(|times| times.into_iter().max());
            let retry_at = latest.map(Tick::from_millis);
            Refusal { index, retry_at }
        });
        assert_eq!(self.breakers.check(tick).err(), refusal, "check at {now}");
        match self.breakers.admit(tick, told) {
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

    fn end(&mut self, now: u64, rng: &mut Rng, told: &mut dyn FnMut(Change)) {
        let index = rng.below(self.calls.len() as u64) as usize;
        let call = self.calls.swap_remove(index);
        let (tick, rt) = (Tick::from_millis(now), ms(now.saturating_sub(call.start)));
        let each = self.naive.iter_mut().zip(call.parts);
        match rng.below(8) {
            0 => {
                self.breakers.give_back(call.admission, told);
                each.for_each(|(naive, part)| naive.leave(part));
            }
            1 | 2 => {
                self.breakers.cancel(tick, call.admission, rt, told);
                for (naive, part) in each {
                    let is_slow = matches!(naive.spec.strategy, Strategy::Slow(max) if rt > max);
                    if naive.spec.cancelled_as_slow && is_slow {
                        naive.end(now, part, true);
                    } else {
                        naive.leave(part);
                    }
                }
            }
            end => {
                let is_error = end < 5;
                self.breakers
                    .complete(tick, call.admission, rt, is_error, told);
                for (naive, part) in each {
                    let is_bad = match naive.spec.strategy {
                        Strategy::Slow(max) => rt > max,
                        Strategy::Error => is_error,
                    };
                    naive.end(now, part, is_bad);
                }
            }
        }
    }

    fn force(&mut self, rng: &mut Rng, told: &mut dyn FnMut(Change)) {
        let index = rng.below(self.naive.len() as u64) as usize;
        let naive = &mut self.naive[index];
        if rng.below(3) == 0 {
            self.breakers.force_open(index, told);
            if naive.state != State::Open(None) {
                naive.set(State::Open(None));
            }
        } else {
            self.breakers.force_close(index, told);
            naive.set(State::Closed);
        }
    }
}

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
fn random_calls_are_judged_as_by_a_plain_list() {
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
            let mut told = |change: Change| changes[change.to as usize] += 1;
            match rng.below(100) {
                0 => pair.force(&mut rng, &mut told),
                1..50 if !pair.calls.is_empty() => pair.end(now, &mut rng, &mut told),
                _ => pair.enter(now, &mut told),
            }
            for (index, naive) in pair.naive.iter().enumerate() {
                let state = pair.breakers.state(index);
                assert_eq!(state, naive.public(), "case {case}, step {step}, {index}");
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
