//! Reading the counters of a node: sums, buckets and seconds from their checkpoints.

use std::ops::RangeInclusive;

use super::checkpoints::difference;
use super::counters::{
    BLOCK, CALLS, CANCELLED, Counters, ERROR, EXTRA, OCCUPIED, PASS, RT, SECOND_WORDS, SecondCuts,
};
use super::event::Event;
use super::extremes::Extreme;
use super::histogram::Histogram;
use super::leap_array::LeapArray;
use super::totals::{NodeBucket, Totals};
use super::wide::narrow_rt;
use crate::base::spread::Stripes;
use crate::base::sync::{AtomicU64, Ordering};
use crate::blocked::BlockKind;
use crate::clock::Tick;

/// The words of a checkpoint of seconds.
type SecondCut = [u64; SECOND_WORDS];

// === impl Counters ===

impl Counters {
    /// The current value of counter `word`.
    pub(super) fn value(&self, word: u32) -> u64 {
        let counter = match word {
            CALLS | RT => {
                let (done, calls) = self.done_and_calls();
                let is_rt = word == RT;
                return if is_rt { narrow_rt(done, calls) } else { calls };
            }
            BLOCK => return self.blocked(),
            ERROR => &self.error,
            EXTRA => &self.extra,
            _ => &self.cancelled,
        };
        counter.load(Ordering::Relaxed)
    }

    /// The refused calls, indexed by kind.
    pub(super) fn refused(&self) -> [u64; BlockKind::ALL.len()] {
        let Some(later) = self.later.get() else {
            return Default::default();
        };
        let words = later.refused.each_ref();
        let mut counts = words.map(|it| it.load(Ordering::Relaxed));
        // Only refusals by windows are counted in stripes.
        let by_crowd = self.by_crowd().map_or(0, Stripes::sum);
        let flow = &mut counts[BlockKind::Flow as usize];
        *flow = flow.wrapping_add(by_crowd);
        counts
    }

    /// The refused calls of all kinds together.
    pub(super) fn blocked(&self) -> u64 {
        let Some(later) = self.later.get() else {
            return 0;
        };
        let mut sum = self.by_crowd().map_or(0, Stripes::sum);
        for word in &later.refused {
            sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
        sum
    }

    /// Returns the value of `word` for the checkpoint of a second. `passed` returns the passed
    /// tokens at that second: the ring's own count can include later ones.
    pub(super) fn second_value(&self, word: u32, passed: impl FnOnce() -> u32) -> u64 {
        match word {
            PASS => u64::from(passed()),
            OCCUPIED => self.occupied.load(Ordering::Relaxed),
            word => self.value(word),
        }
    }

    /// The count of `word` in `bucket` of the window, with the head at `head`.
    fn in_bucket(&self, word: u32, bucket: u64, head: u64) -> Option<u64> {
        let later = if bucket == self.shape.bucket(head) {
            self.value(word)
        } else {
            self.bucket_cuts.get(bucket + 1, word)?
        };
        Some(difference(later, self.bucket_cuts.get(bucket, word)?))
    }

    /// Repeats `read` until the head does not move meanwhile, at most 8 times. Then returns the
    /// last answer, or the default if `read` gave no answer.
    fn read_stable<T: Default>(&self, read: impl Fn(u64) -> Option<T>) -> T {
        let mut last = T::default();
        for _ in 0..8 {
            let head = self.head();
            if let Some(found) = read(head) {
                last = found;
                if self.head() == head {
                    break;
                }
            }
        }
        last
    }

    /// Returns the count of `event` in the window; 0 for passes, which the ring counts, and for
    /// borrowed tokens, which are counted per second.
    pub(super) fn sum(&self, event: Event) -> u64 {
        let of = |word| {
            self.read_stable(|head| {
                let mut sum = 0;
                for bucket in self.window(head) {
                    sum += self.in_bucket(word, bucket, head)?;
                }
                Some(sum)
            })
        };
        match event {
            Event::Block => of(BLOCK),
            Event::Error => of(ERROR),
            Event::Cancelled => of(CANCELLED),
            Event::Complete => completed(of(CALLS), sign_extend(of(EXTRA))),
            Event::Pass | Event::Occupied => 0,
        }
    }

    /// Returns the number of calls that ended in the window, and the sum of their response times in
    /// µs.
    pub(super) fn calls_and_rt(&self) -> (u64, u64) {
        self.read_stable(|head| {
            let (mut calls, mut rt) = (0, 0);
            for bucket in self.window(head) {
                calls += self.in_bucket(CALLS, bucket, head)?;
                rt += self.in_bucket(RT, bucket, head)?;
            }
            Some((calls, rt))
        })
    }

    /// The extremes of the window.
    pub(super) fn extreme(&self) -> Extreme {
        let mut extreme = Extreme::default();
        for bucket in self.window(self.head()) {
            extreme = extreme.merge(self.extremes.get(bucket));
        }
        extreme
    }

    /// The buckets of the window, oldest first.
    fn window(&self, head: u64) -> RangeInclusive<u64> {
        let newest = self.shape.bucket(head);
        (newest + 1).saturating_sub(u64::from(self.shape.buckets))..=newest
    }

    /// Returns the counts of every bucket of the window, oldest first. `pass` returns the ring's
    /// count of a bucket, if the ring still has that bucket.
    pub(super) fn buckets(&self, pass: impl Fn(u64) -> Option<u64>) -> Vec<NodeBucket> {
        self.read_stable(|head| {
            let mut buckets = Vec::new();
            for bucket in self.window(head) {
                let of = |word| self.in_bucket(word, bucket, head);
                let length = self.shape.step_ns * u64::from(self.shape.stride);
                buckets.push(NodeBucket {
                    start: Tick::from_nanos(bucket * length),
                    pass: pass(bucket)?,
                    cancelled: of(CANCELLED)?,
                    extreme: self.extremes.get(bucket),
                    ..counted(of)?
                });
            }
            Some(buckets)
        })
    }

    /// Returns the counts of the last minute's seconds from `from` on, oldest first; the last item
    /// is the current second. Seconds before the node began to keep them are left out. Returns
    /// `None` if the node keeps no seconds.
    pub(super) fn seconds(&self, ring: &LeapArray, from: u64) -> Option<Vec<NodeBucket>> {
        self.minute.first()?;
        Some(self.read_stable(|head| {
            let newest = self.shape.second(head);
            let first = (newest + 1).saturating_sub(60).max(self.first_known()?);
            self.seconds_between(ring, first.max(from), newest, head)
        }))
    }

    /// The first second whose counts are known; `None` if the node keeps no seconds.
    fn first_known(&self) -> Option<u64> {
        let cut = self.second_cuts().map_or(0, |it| it.first);
        Some(self.minute.first()?.max(cut))
    }

    /// Returns the counts of the second `ago` seconds before the current one; `None` if they are
    /// not known.
    pub(super) fn second_ago(&self, ring: &LeapArray, ago: u64) -> Option<NodeBucket> {
        let asked = self.shape.second(self.head()).saturating_sub(ago);
        if asked < self.first_known()? {
            return None;
        }
        Some(self.read_stable(|head| {
            let second = self.shape.second(head).checked_sub(ago)?;
            let seconds = self.seconds_between(ring, second, second, head)?;
            seconds.first().copied()
        }))
    }

    /// The counts of the seconds from `first` to `last`, with the head at `head`.
    fn seconds_between(
        &self,
        ring: &LeapArray,
        first: u64,
        last: u64,
        head: u64,
    ) -> Option<Vec<NodeBucket>> {
        let mut seconds = Vec::with_capacity(last.saturating_sub(first) as usize + 1);
        let Some(SecondCuts { cuts, .. }) = self.second_cuts() else {
            self.minute.born()?;
            for second in first..=last {
                seconds.push(self.first_second(ring, second, head));
            }
            return Some(seconds);
        };
        let mut earlier = None;
        for second in first..=last {
            let before = match earlier {
                Some(earlier) => earlier,
                None => cuts.get_all(second)?,
            };
            let later = if second == self.shape.second(head) {
                let passed = || self.passed_before_second(ring, second + 1);
                std::array::from_fn(|word| self.second_value(word as u32, passed))
            } else {
                cuts.get_all(second + 1)?
            };
            seconds.push(between(second, &before, &later));
            earlier = Some(later);
        }
        Some(seconds)
    }

    /// Returns the counts of `second` while there is no ring of seconds yet. Then all events of the
    /// node happened in the second of the head, in which it was created, and all other seconds are
    /// empty.
    fn first_second(&self, ring: &LeapArray, second: u64, head: u64) -> NodeBucket {
        let start = Tick::from_millis(second * 1_000);
        if second != self.shape.second(head) {
            return NodeBucket {
                start,
                ..NodeBucket::default()
            };
        }
        let totals = self.totals(ring);
        NodeBucket {
            start,
            pass: self.passed_before_second(ring, second + 1).into(),
            block: totals.block,
            complete: totals.complete,
            error: totals.error,
            occupied: totals.occupied,
            calls: totals.calls,
            rt_us: totals.rt_us,
            ..NodeBucket::default()
        }
    }

    /// The histograms of response times and of waiting times, if they are kept.
    pub(super) fn histograms(&self) -> Option<[Histogram; 2]> {
        Some(self.times.as_ref()?.read())
    }

    /// The counts since the node was created, with the passes of `ring`.
    pub(super) fn totals(&self, ring: &LeapArray) -> Totals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The ended calls are read first, so that for each of weight 0 its −1 in `extra` is read as
        // well. So `complete` never exceeds the weight of the calls that came before this reading
        // ended.
        let (calls, rt_us) = self.ended();
        Totals {
            pass: self.passed_in_all(ring),
            block: self.blocked(),
            complete: completed(calls, load(&self.extra) as i64),
            error: load(&self.error),
            cancelled: load(&self.cancelled),
            occupied: load(&self.occupied),
            calls,
            panicked: load(&self.panicked),
            rt_us,
            waits: load(&self.waits),
            waited_us: load(&self.waited_us),
            waiting_dropped: load(&self.waiting_dropped),
            block_by: self.refused(),
        }
    }
}

/// The counts of `second`, from the checkpoints at its start and at its end.
fn between(second: u64, earlier: &SecondCut, later: &SecondCut) -> NodeBucket {
    let of = |word: u32| difference(later[word as usize], earlier[word as usize]);
    // The ring counts modulo 2³², and fewer than 2³¹ tokens in a second. A ring that a reload has
    // replaced can be behind the checkpoint; then the difference is negative.
    let pass = (of(PASS) as u32 as i32).max(0) as u64;
    NodeBucket {
        start: Tick::from_millis(second * 1_000),
        pass,
        occupied: of(OCCUPIED),
        ..counted(|word| Some(of(word))).unwrap_or_default()
    }
}

/// Computes the figures that both buckets and seconds have. `of` returns the count of a word.
fn counted(of: impl Fn(u32) -> Option<u64>) -> Option<NodeBucket> {
    let calls = of(CALLS)?;
    Some(NodeBucket {
        block: of(BLOCK)?,
        complete: completed(calls, sign_extend(of(EXTRA)?)),
        error: of(ERROR)?,
        calls,
        rt_us: of(RT)?,
        ..NodeBucket::default()
    })
}

/// The completed weight: 1 for each of `calls`, plus `extra`. If the two were read at different
/// moments, calls of weight 0 can make the sum negative; it saturates at 0.
const fn completed(calls: u64, extra: i64) -> u64 {
    calls.saturating_add_signed(extra)
}

/// Sign-extends a difference of 40 bits, which completions of weight 0 can make negative.
const fn sign_extend(difference: u64) -> i64 {
    (difference << 24) as i64 >> 24
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::leap_array::Grid;
    use super::super::shape::Shape;
    use super::*;

    #[test]
    fn a_second_includes_no_pass_of_the_next_second() {
        let at = Tick::from_millis;
        let grid = Grid {
            bucket_ns: 500_000_000,
            buckets: 2,
            ahead: 1,
        };
        let ring = LeapArray::with_grid(grid, at(0));
        let counters = Counters::new(Arc::new(Shape::new(500_000_000, 2)), true, at(0));
        let passes = || -> Vec<u64> {
            let seconds = counters.seconds(&ring, 0).expect("they are kept");
            seconds.iter().map(NodeBucket::pass).collect()
        };
        ring.add(at(100), 1);
        // The ring moves before the counters, and a reader can come in between.
        ring.add(at(1_100), 2);
        assert_eq!(passes(), [1]);
        counters.roll(&ring, 2);
        assert_eq!(passes(), [1, 2]);
        ring.add(at(2_000), 4);
        assert_eq!(passes(), [1, 2]);
        counters.roll(&ring, 4);
        assert_eq!(passes(), [1, 2, 4]);
    }

    #[test]
    fn a_negative_completed_weight_counts_as_zero() {
        let extra = sign_extend(difference(0_u64.wrapping_sub(3), 0));
        assert_eq!([5, 3, 2].map(|calls| completed(calls, extra)), [2, 0, 0]);
    }
}
