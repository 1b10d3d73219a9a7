//! Histograms of durations.
//!
//! Counting a duration costs one relaxed addition. The bit length of the duration gives the first
//! edge that can be the right edge; a few comparisons find the right edge from there:
//!
//! ```text
//! edges, in µs   500   1 000   2 500   5 000        the last cell has no edge
//! cells        [     |       |       |       |     ]
//! 1 700 µs has 11 bits: 2¹⁰ = 1 024 or more, so the search begins at 2 500, and ends there
//! ```

use std::fmt;
use std::sync::{Arc as StdArc, OnceLock};
use std::time::Duration;

use super::counters::MAX_RT;
use crate::base::invalid::InvalidSetting;
use crate::base::sync::{AtomicU64, Ordering, words};

/// The maximum number of edges of a histogram. Each resource has up to two counters for each edge.
const MOST_EDGES: usize = 32;
/// The number of bit lengths that a time in µs can have, up to the longest edge: 0 to 26.
const LENGTHS: usize = 27;
const _: () = assert!(MAX_RT.as_micros() < 1 << (LENGTHS - 1));

/// The upper bounds of the ranges of a histogram.
///
/// A time belongs to the first edge that is not shorter than it. Times longer than the last edge
/// have a separate range.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Edges {
    /// In µs, ascending.
    us: Box<[u32]>,
    /// Indexed by the bit length of a time in µs: the index of the first edge that is not shorter
    /// than the shortest time of this bit length.
    first: [u8; LENGTHS],
}

/// A histogram of durations: the number of durations in each range.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let ms = Duration::from_millis;
/// let clock = ManualClock::new();
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 9))
///     .histograms_with(&[ms(10), ms(100)])?
///     .clock(clock.clone())
///     .build();
/// for took in [3, 10, 11, 500] {
///     let running = sentinel.try_enter(Call::new("job"));
///     clock.advance(ms(took));
///     drop(running);
/// }
/// let node = sentinel.node("job").expect("it has been called");
/// let times = node.rt_histogram().expect("it is on");
/// let buckets: Vec<_> = times.buckets().collect();
/// assert_eq!(buckets, [(Some(ms(10)), 2), (Some(ms(100)), 3), (None, 4)]);
/// assert_eq!(times.count(), 4);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    edges: StdArc<Edges>,
    /// The number of durations in each range, not cumulative. The last range has no edge.
    counts: Box<[u64]>,
}

/// The cells in which the response times and waiting times of one resource are counted.
#[derive(Debug)]
pub(super) struct Times {
    edges: StdArc<Edges>,
    /// The response times.
    rt: Cells,
    /// The waiting times, created by the first call that waits.
    waits: OnceLock<Cells>,
}

/// A counter for each edge, and one for all longer times.
type Cells = Box<[AtomicU64]>;

// === impl Edges ===

impl Edges {
    /// Creates up to 32 edges, which must ascend and be whole microseconds between 1 µs and 60 s.
    /// The error names the first edge that is not allowed.
    pub(crate) fn new(edges: impl IntoIterator<Item = Duration>) -> Result<Self, InvalidSetting> {
        // One more than is allowed is enough to detect that there are too many.
        let edges: Vec<_> = edges.into_iter().take(MOST_EDGES + 1).collect();
        if edges.is_empty() || edges.len() > MOST_EDGES {
            let count = match edges.len() {
                0 => "0".to_owned(),
                _ => format!("more than {MOST_EDGES}"),
            };
            let message = format!("there are {count} edges, must be between 1 and {MOST_EDGES}");
            return Err(InvalidSetting::because(message));
        }
        let mut us = Vec::with_capacity(edges.len());
        for (place, edge) in edges.iter().enumerate() {
            let is_whole = edge.subsec_nanos() % 1_000 == 0;
            if !is_whole || edge.is_zero() || *edge > MAX_RT {
                let allowed = "whole microseconds between 1 µs and 60 s";
                let message = format!("edge {place} is {edge:?}, must be {allowed}");
                return Err(InvalidSetting::because(message));
            }
            if let Some(before) = place.checked_sub(1).map(|before| edges[before]) {
                if *edge <= before {
                    let allowed = format!("longer than the one before, {before:?}");
                    let message = format!("edge {place} is {edge:?}, must be {allowed}");
                    return Err(InvalidSetting::because(message));
                }
            }
            us.push(edge.as_micros() as u32);
        }
        Ok(Self::of(us.into()))
    }

    fn of(us: Box<[u32]>) -> Self {
        let mut first = [0; LENGTHS];
        for (bits, first) in first.iter_mut().enumerate() {
            let shortest = if bits == 0 { 0 } else { 1 << (bits - 1) };
            *first = us.partition_point(|&edge| edge < shortest) as u8;
        }
        Self { us, first }
    }

    /// The edges, from the shortest on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        let edges = self.us.iter();
        edges.map(|&us| Duration::from_micros(us.into()))
    }

    fn cells(&self) -> Cells {
        words(self.us.len() + 1, &mut |_| 0)
    }

    /// The index of the cell of a time of `us` µs.
    #[inline]
    fn place(&self, us: u64) -> usize {
        let length = (u64::BITS - us.leading_zeros()) as usize;
        let Some(&first) = self.first.get(length) else {
            return self.us.len();
        };
        let mut place = usize::from(first);
        while self.us.get(place).is_some_and(|&edge| u64::from(edge) < us) {
            place += 1;
        }
        place
    }
}

impl Default for Edges {
    fn default() -> Self {
        const MS: [u32; 17] = [
            0, 1, 2, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000,
        ];
        let mut us = MS.map(|ms| ms * 1_000);
        us[0] = 500;
        us[2] = 2_500;
        Self::of(us.into())
    }
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

// === impl Histogram ===

impl Histogram {
    /// Iterates over the edges, each with the number of durations that are at most as long. The
    /// last item is `None` with the number of all durations.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let edges = self.edges.iter().map(Some).chain([None]);
        edges.zip(self.counts.iter().scan(0_u64, |sum, count| {
            *sum = sum.wrapping_add(*count);
            Some(*sum)
        }))
    }

    /// Adds the counts of another histogram, which has the same edges.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        for (mine, others) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.wrapping_add(*others);
        }
        self
    }

    /// Returns the number of durations in all ranges.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut sum = 0_u64;
        for count in &self.counts {
            sum = sum.wrapping_add(*count);
        }
        sum
    }
}

// === impl Times ===

impl Times {
    pub(super) fn new(edges: StdArc<Edges>) -> Self {
        Self {
            rt: edges.cells(),
            waits: OnceLock::new(),
            edges,
        }
    }

    /// Counts a call that took `us` µs.
    #[inline]
    pub(super) fn note_rt(&self, us: u64) {
        self.rt[self.edges.place(us)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that waited for `us` µs.
    pub(super) fn note_wait(&self, us: u64) {
        let waits = self.waits.get_or_init(|| self.edges.cells());
        waits[self.edges.place(us)].fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the histograms of response times and of waiting times. Each cell is read once.
    pub(super) fn read(&self) -> [Histogram; 2] {
        let waits = self.waits.get().map_or(&[][..], |waits| waits);
        [self.read_cells(&self.rt), self.read_cells(waits)]
    }

    /// The histogram of `cells`; all its counts are zero if `cells` is empty.
    fn read_cells(&self, cells: &[AtomicU64]) -> Histogram {
        let mut counts = vec![0; self.rt.len()];
        for (count, cell) in counts.iter_mut().zip(cells) {
            *count = cell.load(Ordering::Relaxed);
        }
        Histogram {
            edges: self.edges.clone(),
            counts: counts.into(),
        }
    }

    /// Bytes that the histograms occupy, without the edges, which all resources share.
    pub(super) fn footprint(&self) -> usize {
        let waits = self.waits.get().map_or(0, |waits| size_of_val(&**waits));
        size_of::<Self>() + size_of_val(&*self.rt) + waits
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_time_counts_at_the_first_edge_that_is_not_shorter() {
        let sets = [
            Edges::default(),
            Edges::new([Duration::from_micros(1)]).unwrap(),
            Edges::new([MAX_RT]).unwrap(),
            Edges::new((1..=32).map(|n| Duration::from_micros(n * n))).unwrap(),
            Edges::new((0..26).map(|n| Duration::from_micros(1 << n))).unwrap(),
        ];
        for edges in sets {
            let around = |us: u64| [us.saturating_sub(1), us, us + 1];
            let powers = (0..64).map(|bits| 1_u64 << bits).filter(|us| *us < 1 << 63);
            let own = edges.us.iter().map(|&us| us.into());
            for us in powers.chain(own).flat_map(around).chain(0..3_000) {
                let by_hand = edges.us.iter().take_while(|&&edge| u64::from(edge) < us);
                assert_eq!(edges.place(us), by_hand.count(), "{us} of {edges:?}");
            }
        }
    }
}
