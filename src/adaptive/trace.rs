//! The record of a simulated run, with the figures that tests check.

use std::time::Duration;

use crate::clock::nanos;

/// A call that was admitted and has ended. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedCall {
    pub(crate) arrived: u64,
    pub(crate) took: u64,
    /// The duration of the work on the call, without its wait.
    pub(crate) work: u64,
    pub(crate) class: usize,
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The limit at the start and after each change, with the time.
    limits: Vec<(Duration, u32)>,
    /// The calls that were admitted and have ended.
    pub(crate) ended: Vec<ServedCall>,
    /// The times at which calls arrived, by class.
    arrivals: [Vec<u64>; 4],
    /// The times at which refused calls were lost: their clients do not retry. By class.
    lost: [Vec<u64>; 4],
    /// The time of the last refusal.
    last_shed: u64,
    /// The number of refusals.
    shed: usize,
}

/// Returns whether `at` is at or after `from`, and before `to`.
fn within(at: u64, from: Duration, to: Duration) -> bool {
    nanos(from) <= at && at < nanos(to)
}

impl Trace {
    /// Records the arrival of a call.
    pub(super) fn arrive(&mut self, now: u64, class: usize) {
        self.arrivals[class].push(now);
    }

    /// Notes a refusal. `for_good` means that the client does not retry.
    pub(super) fn shed(&mut self, now: u64, class: usize, for_good: bool) {
        self.shed += 1;
        self.last_shed = now;
        if for_good {
            self.lost[class].push(now);
        }
    }

    /// Records the limit at the time `now`, if it has changed.
    pub(super) fn note_limit(&mut self, now: Duration, limit: u32) {
        if self.limits.last().is_none_or(|last| last.1 != limit) {
            self.limits.push((now, limit));
        }
    }

    // --- limits ---

    /// Returns the limit at the time `at`.
    pub(crate) fn limit_at(&self, at: Duration) -> u32 {
        let after = self.limits.partition_point(|&(since, _)| since <= at);
        self.limits[after - 1].1
    }

    /// Returns the smallest and the largest limit from `from` to `to`.
    pub(crate) fn limits_between(&self, from: Duration, to: Duration) -> (u32, u32) {
        let within = self
            .limits
            .iter()
            .filter(|&&(since, _)| from < since && since <= to)
            .map(|&(_, limit)| limit);
        let limits = || within.clone().chain([self.limit_at(from)]);
        (limits().min().unwrap(), limits().max().unwrap())
    }

    /// Returns the fraction of the time from `from` to `to` in which the limit was within `limits`,
    /// both included.
    pub(crate) fn share_within(&self, limits: (u32, u32), from: Duration, to: Duration) -> f64 {
        let ends = self.limits.iter().skip(1).map(|&(since, _)| since);
        let spans = self.limits.iter().zip(ends.chain([Duration::MAX]));
        let within: Duration = spans
            .filter(|((_, limit), _)| (limits.0..=limits.1).contains(limit))
            .map(|(&(since, _), end)| end.clamp(from, to) - since.clamp(from, to))
            .sum();
        within.as_secs_f64() / (to - from).as_secs_f64()
    }

    // --- calls ---

    /// Returns the `quantile` of the response times of the admitted calls that arrived from `from`
    /// to `to`.
    pub(crate) fn quantile(&self, quantile: f64, from: Duration, to: Duration) -> Duration {
        let mut times: Vec<_> = self
            .ended
            .iter()
            .filter(|call| within(call.arrived, from, to))
            .map(|call| call.took)
            .collect();
        times.sort_unstable();
        let rank = (quantile * times.len() as f64).ceil() as usize;
        let rank = rank.clamp(1, times.len().max(1)) - 1;
        Duration::from_nanos(times.get(rank).copied().unwrap_or(0))
    }

    /// Returns how many calls ended per second from `from` to `to`.
    pub(crate) fn throughput(&self, from: Duration, to: Duration) -> f64 {
        let ended = self.ended.iter();
        let count = ended.filter(|call| within(call.arrived + call.took, from, to));
        count.count() as f64 / (to - from).as_secs_f64()
    }

    /// Returns the average number of slots, from `from` to `to`, that worked on calls which ended
    /// within the `deadline`.
    pub(crate) fn goodput(&self, deadline: Duration, from: Duration, to: Duration) -> f64 {
        let ended = self.ended.iter();
        let good = ended.filter(|call| {
            within(call.arrived + call.took, from, to) && call.took <= nanos(deadline)
        });
        good.map(|call| call.work).sum::<u64>() as f64 / nanos(to - from) as f64
    }

    /// Returns the fraction of the calls of `class` that ended within the `deadline`, among those
    /// that arrived from `from` to `to`.
    pub(crate) fn served(
        &self,
        class: usize,
        deadline: Duration,
        from: Duration,
        to: Duration,
    ) -> f64 {
        let came = self.arrivals[class].iter();
        let came = came.filter(|&&at| within(at, from, to)).count();
        let ended = self.ended.iter();
        let good = ended.filter(|call| {
            call.class == class && within(call.arrived, from, to) && call.took <= nanos(deadline)
        });
        good.count() as f64 / came.max(1) as f64
    }

    /// Returns the time from `from` to the start of the first good second; `None` if no second
    /// before `to` was good. A second is good if none of its quarters is bad. A quarter is bad if
    /// no call ended in it, if calls took more than 2.2 × the `work` on average, or if at least a
    /// fifth of the calls of `class` was lost.
    pub(crate) fn settled(
        &self,
        class: usize,
        work: Duration,
        from: Duration,
        to: Duration,
    ) -> Option<Duration> {
        let quarter = Duration::from_millis(250);
        let (mut at, mut good) = (from, 0);
        while at + quarter <= to {
            let (mut sum, mut count, mut mine) = (0.0, 0_u32, 0_u32);
            for call in &self.ended {
                if within(call.arrived + call.took, at, at + quarter) {
                    sum += call.took as f64;
                    count += 1;
                    mine += u32::from(call.class == class);
                }
            }
            let lost = self.lost[class].iter();
            let lost = lost.filter(|&&when| within(when, at, at + quarter)).count();
            let is_slow = sum > 2.2 * work.as_nanos() as f64 * f64::from(count);
            let is_bad = count == 0 || is_slow || lost > 0 && lost * 4 >= mine as usize;
            good = if is_bad { 0 } else { good + 1 };
            at += quarter;
            if good == 4 {
                return Some(at - 4 * quarter - from);
            }
        }
        None
    }

    /// Returns the number of refusals.
    pub(crate) const fn shed_count(&self) -> usize {
        self.shed
    }

    /// Returns the time of the last refusal.
    pub(crate) const fn last_shed(&self) -> Duration {
        Duration::from_nanos(self.last_shed)
    }

    /// Returns the number of calls that arrived, of all classes.
    pub(crate) fn arrived(&self) -> usize {
        self.arrivals.iter().map(Vec::len).sum()
    }
}
