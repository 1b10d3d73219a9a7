//! The statistics of one resource, or of the calls of one origin to it.
//!
//! A node consists of a ring, which admits calls and counts passes, and of counters for everything
//! else. Before an event is counted, both are advanced to its time: first the ring, then the
//! checkpoints of the counters.
//!
//! A reload can put another ring under the same counters. A call from before the reload ends on the
//! node on which it began. If its end opens a step (a new bucket or second), the checkpoints of
//! passes are taken from the new ring, because the old ring counts no passes after the reload.

#[cfg(test)]
mod by_hand;
mod slots;

use std::borrow::Cow;
use std::sync::Arc as StdArc;
use std::time::Duration;

use super::counters::Counters;
use super::event::{Event, Outcome};
use super::histogram::Histogram;
use super::leap_array::{Denied, Grid, LeapArray, Taken};
use super::occupy::{Loan, Wish};
use super::packed::divide;
use super::quota::Quota;
use super::shape::Shape;
use super::totals::{NodeBucket, Totals, average_rt};
use crate::base::sync::{Arc, Bug, Ordering, fence, planted};
use crate::blocked::BlockKind;
use crate::clock::Tick;

/// The statistics of a resource: calls that passed, were refused, completed, failed and are
/// in flight; per second, for the last minute and in total.
///
/// A clone is the same node. Every method takes the current time, which must always come from the
/// same clock.
///
/// # Accuracy
///
/// Nothing is lost or counted twice, under any interleaving. An event counts in the bucket of its
/// time or, if that bucket has already closed, in the newest bucket. Response times are truncated
/// to whole microseconds. Figures that are read while other threads count are correct for some
/// moment during the read. This holds while
///
/// * the weights that pass add up to less than 2³¹ in the window and in each second,
/// * the weights that are refused add up to less than 2⁴⁰ in one bucket and in one second,
/// * fewer than 2²² calls end while a thread is held up right at the end of a call, and
/// * the response times of one bucket, and of one second, add up to less than 12 days: in a
///   bucket of an hour, that is 300 concurrent calls.
///
/// # Memory
///
/// A node with two buckets takes 528 bytes on a 64-bit machine:
///
/// | part | bytes |
/// |---|---|
/// | the ring's words: head, its number, two loans, four checkpoints | 64 |
/// | the ring's shape: bucket length and count, masks, pointer to a longer ring | 40 |
/// | counters: calls and their time, settled, failed, cancelled, weights, borrowed, panicked, a crowd | 64 |
/// | the wide totals of passes, calls and times | 24 |
/// | waits, their time, waiting calls that were dropped | 24 |
/// | calls that wait, for tokens and for a slot; slots in use | 16 |
/// | the newest step, the last one used | 16 |
/// | pointers to the rings of checkpoints and of extremes | 32 |
/// | pointers to histograms, to counters created on first use, and to the shape | 40 |
/// | checkpoints of six counters at three buckets | 144 |
/// | smallest times and largest concurrency of four buckets | 32 |
/// | reference counts | 32 |
///
/// Once the node is used after the second of its creation, the last minute takes 3.5 KiB more. Of
/// this memory, 136 bytes count the refusals of each kind of rule; they are allocated earlier if a
/// call is refused or borrows tokens.
///
/// A node takes 2 KiB more once several threads have refused over a thousand calls within a
/// millisecond at a full window. In these 2 KiB each thread counts in a separate stripe, until only
/// one thread refuses calls. A resource of an engine takes more than its node; see
/// [`Builder::max_resources`](crate::Builder::max_resources).
///
/// # Source
///
/// `StatisticNode` of Sentinel.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    ring: Arc<LeapArray>,
    counters: Arc<Counters>,
    /// The number of ring buckets in one step of the counters.
    per_step: u32,
}

impl Node {
    /// Creates a node whose ring has the shape `grid`. The ring's buckets must divide a step of
    /// `shape`. With `keeps_minute` the node keeps the seconds of the last minute.
    pub(crate) fn with_grid(
        grid: Grid,
        shape: StdArc<Shape>,
        keeps_minute: bool,
        now: Tick,
    ) -> Self {
        Self::of(
            Arc::new(LeapArray::with_grid(grid, now)),
            Arc::new(Counters::new(shape, keeps_minute, now)),
        )
    }

    /// Keeps the seconds of the last minute from now on. Does nothing if the node keeps them
    /// already.
    pub(crate) fn keep_minute(&self) {
        self.counters.keep_minute();
    }

    fn of(ring: Arc<LeapArray>, counters: Arc<Counters>) -> Self {
        let per_step = (counters.shape.step_ns / ring.grid().bucket_ns) as u32;
        Self {
            ring,
            counters,
            per_step,
        }
    }

    /// Returns a node with these counters over `ring`, which has replaced this node's ring.
    pub(crate) fn over(&self, ring: Arc<LeapArray>) -> Self {
        self.counters.note_successor(&ring);
        Self::of(ring, self.counters.clone())
    }

    /// Returns the node that counts passes now: this node or, if a reload has replaced its ring, a
    /// node over the new ring.
    pub(crate) fn latest(&self) -> Cow<'_, Self> {
        let successor = if self.ring.has_moved() {
            self.counters.successor()
        } else {
            None
        };
        match successor {
            Some(ring) => Cow::Owned(Self::of(ring, self.counters.clone())),
            None => Cow::Borrowed(self),
        }
    }

    /// Returns the ring without advancing it; see [`ring_at`](Self::ring_at).
    pub(crate) fn ring(&self) -> &Arc<LeapArray> {
        &self.ring
    }

    /// Returns the ring after advancing it to `now` together with the counters. A ring that moves
    /// alone can forget passes of which the counters have no checkpoint yet.
    pub(crate) fn ring_at(&self, now: Tick) -> &Arc<LeapArray> {
        // After an earlier event of this step, both are at `now` already.
        if self.counters.is_first(now) {
            self.advance_for_read(now);
        }
        &self.ring
    }

    /// Returns whether another node value shares these counters. If none does, the effects of all
    /// dropped node values are visible.
    pub(crate) fn is_shared(&self) -> bool {
        let holders = Arc::strong_count(&self.counters);
        // Pairs with the release with which the other owners dropped their references.
        fence(Ordering::Acquire);
        holders > 1
    }

    /// The bytes that the node occupies, including the heap.
    pub(crate) fn footprint(&self) -> usize {
        // Each shared part has two reference counts.
        let counts = 4 * size_of::<usize>();
        self.ring.footprint() + self.counters.footprint() + counts
    }

    // --- counting ---

    /// Counts a call of `weight` that passes, without checking any limit.
    pub(crate) fn pass(&self, now: Tick, weight: u32) {
        // The ring of a node without an engine is never replaced.
        if let Ok(taken) = self.acquire(now, weight, &[]) {
            self.start(weight, taken);
        }
    }

    /// Takes `weight` tokens if every quota has room for them.
    #[inline]
    pub(crate) fn acquire(
        &self,
        now: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Result<Taken, Denied> {
        self.advance(now);
        if quotas.is_empty() {
            Ok(self.ring.add_at(self.ring.bucket_number(now), weight)?)
        } else {
            self.ring.acquire(now, weight, quotas)
        }
    }

    /// Makes [one attempt](LeapArray::acquire_at_once) to [`acquire`](Self::acquire). Returns
    /// `None` if it takes no tokens, and always at the first event of a step.
    #[inline(always)]
    pub(crate) fn acquire_at_once(
        &self,
        now: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Option<Taken> {
        if self.counters.is_first(now) {
            return None;
        }
        self.ring.acquire_at_once(now, weight, quotas)?.ok()
    }

    /// Checks whether every quota has room for `weight` tokens now. Takes none.
    #[inline]
    pub(crate) fn check_room(
        &self,
        now: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Result<(), Denied> {
        self.advance(now);
        self.ring.check_room(now, weight, quotas)
    }

    /// Refunds tokens that were taken for a call that does not start.
    pub(crate) fn refund(&self, taken: Taken, weight: u32) {
        if !self.ring.refund_at(taken.bucket, weight) {
            self.counters.spend(weight);
        }
    }

    /// Starts the call for which tokens were taken and returns true, unless other calls wait.
    #[inline(always)]
    pub(crate) fn start_alone(&self, weight: u32, taken: Taken) -> bool {
        let is_alone = self.counters.waiting() == 0;
        if is_alone {
            self.counters.started(weight, taken.granted);
        }
        is_alone
    }

    /// Starts the call for which tokens were taken.
    #[inline]
    pub(crate) fn start(&self, weight: u32, taken: Taken) {
        // If no call waits, no tokens are held, and all granted tokens have been taken.
        let taken = if self.counters.waiting() == 0 {
            taken.granted
        } else {
            self.ring.taken_now()
        };
        self.counters.started(weight, taken);
    }

    /// Holds tokens for a call that will wait.
    pub(crate) fn borrow_for(&self, wish: Wish, quotas: &[Quota]) -> Result<Loan, Denied> {
        self.advance(wish.now);
        let mut spent = 0;
        let loan = self.ring.borrow_for(wish, quotas, &mut spent);
        self.counters.spend(spent);
        loan
    }

    /// Starts a call after `wait`; `occupied` of its tokens were borrowed.
    pub(crate) fn start_waited(&self, now: Tick, weight: u32, occupied: u32, wait: Duration) {
        self.advance(now);
        let ring = &self.latest().ring;
        // A step can have many buckets, and the bucket of the call may not be open yet. Until it
        // is, the call's tokens count as held and not as passed.
        let _ = ring.bring_to(now);
        self.counters.started(weight, ring.taken_now());
        self.counters.waited(occupied, wait);
    }

    /// Cancels the loan of a call that will not start.
    pub(crate) fn cancel_loan(&self, now: Tick, loan: Loan) {
        self.advance(now);
        if !self.ring.cancel(now, loan) {
            self.counters.spend(loan.tokens());
        }
    }

    /// Counts a call of `weight` that a rule of this `kind` refused. One refusal in 1,024 looks for
    /// a [crowd](Self::is_crowded) and returns whether there is one; all other refusals return
    /// false.
    pub(crate) fn block_by(&self, now: Tick, weight: u32, kind: BlockKind) -> bool {
        self.advance(now);
        self.counters.block(weight, kind, now)
    }

    /// Counts a call of `weight` that a full window refused in a [crowd](Self::is_crowded). It
    /// writes to the stripe of this thread, which other threads only read for figures. One refusal
    /// in 1,024 of a stripe checks whether there still is a crowd.
    pub(crate) fn block_in_crowd(&self, now: Tick, weight: u32) {
        self.advance(now);
        self.counters.block_in_crowd(weight, now);
    }

    /// Returns whether many threads refuse calls at once, or did so a moment ago.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.counters.is_crowded()
    }

    /// Counts the end of a call of `weight` that had passed, `rt_ns` after it began. Without an
    /// `outcome` it counts as cancelled.
    #[inline]
    pub(crate) fn end(&self, now: Tick, weight: u32, rt_ns: u64, outcome: Option<Outcome>) {
        self.advance(now);
        match outcome {
            Some(outcome) => self.counters.complete(weight, rt_ns, outcome),
            None => self.counters.cancel(weight),
        }
    }

    /// Counts a call that a panic ended, in addition to [`end`](Self::end).
    pub(crate) fn panicked(&self) {
        self.counters.panicked();
    }

    /// Advances the node to `now`, before an event is counted.
    #[inline]
    fn advance(&self, now: Tick) {
        if self.counters.is_first(now) {
            self.begin_step(now);
        }
    }

    /// Returns whether `now` lies in the newest step that has had an event.
    #[inline]
    pub(crate) fn is_in_step(&self, now: Tick) -> bool {
        self.counters.is_in_step(now)
    }

    /// Advances the node to `now` for an event that may be the first of its step.
    #[cold]
    fn begin_step(&self, now: Tick) {
        let step = self.step(self.ring.bucket_number(now));
        if self.roll(now, step) {
            self.counters.note_use(step);
        }
    }

    /// Advances the node to `now` for a reader.
    fn advance_for_read(&self, now: Tick) {
        let step = self.step(self.ring.bucket_number(now));
        if self.counters.head() < step {
            self.roll(now, step);
        }
    }

    /// The number of ring buckets in one bucket of the window.
    fn stride(&self) -> u32 {
        self.counters.shape.stride * self.per_step
    }

    /// The step in which `bucket`, a bucket of the ring, lies.
    #[inline]
    fn step(&self, bucket: u64) -> u64 {
        if self.per_step == 1 {
            bucket
        } else {
            divide(bucket, self.per_step.into())
        }
    }

    /// Advances the node to `now`, which lies in `step`, and returns true. Returns false while a
    /// reload replaces the ring; then an event counts in the newest open step.
    #[cold]
    fn roll(&self, now: Tick, step: u64) -> bool {
        // The ring moves first, because the counters' checkpoints of passes come from it. A ring
        // that has been replaced does not count later passes, so its successor is used.
        let roll = |ring: &LeapArray| {
            // Held tokens that are due are taken on the way, bucket by bucket: once at `now`, the
            // ring may no longer reach back to all of their buckets.
            let last = ring.bucket_number(now);
            while let Some(due) = ring.next_loan().filter(|due| *due <= last) {
                if ring.bring_to(ring.start_of(due)).is_err() {
                    break;
                }
                // The step is computed from the time, because `self.per_step` does not apply to the
                // buckets of a successor ring.
                let due_ns = ring.start_of(due).as_nanos();
                self.counters
                    .roll(ring, due_ns / self.counters.shape.step_ns);
            }
            let is_there = ring.bring_to(now).is_ok();
            if is_there || planted(Bug::CutFromOldRing) {
                self.counters.roll(ring, step);
            }
            is_there
        };
        roll(&self.ring) || self.counters.successor().is_some_and(|ring| roll(&ring))
    }

    // --- waiting calls ---

    /// Counts a call that begins to wait and returns true, or returns false if `max` calls wait
    /// already.
    pub(crate) fn start_waiting(&self, max: u32) -> bool {
        self.counters.start_waiting(max)
    }

    /// Counts a call that no longer waits.
    pub(crate) fn stop_waiting(&self) {
        self.counters.stop_waiting();
    }

    /// Counts a call that was dropped while it waited.
    pub(crate) fn dropped_waiting(&self) {
        self.counters.dropped_waiting();
    }

    // --- reading ---

    /// The start of the step in which an event was last counted.
    pub(crate) fn last_used(&self) -> Tick {
        self.start_of(self.counters.used())
    }

    /// The start of the newest step to which an event or a reader has advanced the node.
    #[inline]
    pub(crate) fn seen(&self) -> Tick {
        self.start_of(self.counters.head())
    }

    /// The start of `step`.
    fn start_of(&self, step: u64) -> Tick {
        Tick::from_nanos(step.saturating_mul(self.counters.shape.step_ns))
    }

    /// The length of the window over which figures per second are computed.
    pub(crate) fn interval(&self) -> Duration {
        self.counters.shape.interval()
    }

    /// The count of `event` in the window, by weight; for [`Event::Occupied`], in the current
    /// second.
    pub(crate) fn sum(&self, now: Tick, event: Event) -> u64 {
        self.advance_for_read(now);
        match event {
            Event::Pass => {
                let buckets = self.counters.shape.buckets;
                self.ring.window(buckets, self.stride()).sum(now).into()
            }
            Event::Occupied => {
                let second = self.counters.second_ago(&self.ring, 0);
                second.map_or_else(|| self.counters.lent_now(), |second| second.occupied)
            }
            event => self.counters.sum(event),
        }
    }

    /// The count of `event` per second of the window; for [`Event::Occupied`], in the current
    /// second.
    pub(crate) fn qps(&self, now: Tick, event: Event) -> f64 {
        event.per_second(self.sum(now, event), self.interval())
    }

    /// The average response time of the calls that ended in the window; `None` if no call ended in
    /// it.
    pub(crate) fn average_rt(&self, now: Tick) -> Option<Duration> {
        self.advance_for_read(now);
        let (calls, rt_us) = self.counters.calls_and_rt();
        average_rt(calls, rt_us)
    }

    /// The number of calls that ended in the window, and the sum of their response times.
    pub(crate) fn calls_and_rt(&self, now: Tick) -> (u64, Duration) {
        self.advance_for_read(now);
        let (calls, rt_us) = self.counters.calls_and_rt();
        (calls, Duration::from_micros(rt_us))
    }

    /// The smallest response time of the window; `None` if no call ended in it.
    pub(crate) fn min_rt(&self, now: Tick) -> Option<Duration> {
        self.advance_for_read(now);
        self.counters.extreme().min_rt()
    }

    /// The largest concurrency at which a call of the window passed, including that call.
    pub(crate) fn max_concurrency(&self, now: Tick) -> u32 {
        self.advance_for_read(now);
        self.counters.extreme().max_concurrency
    }

    /// The number of calls in flight, which have passed and have not ended. A call
    /// that waits for its bucket is included from the beginning of the bucket on, even if
    /// its timer is late.
    ///
    /// For its accuracy see [`NodeView::concurrency`](crate::read::NodeView::concurrency).
    pub(crate) fn concurrency(&self, now: Tick) -> u32 {
        self.advance_for_read(now);
        self.counters.in_flight(self.ring.taken_now())
    }

    /// The number of calls that wait: for their bucket, for their turn in a queue, or
    /// for a concurrency slot.
    pub(crate) fn waiting(&self) -> u32 {
        let in_line = self.counters.in_line();
        self.counters.waiting().saturating_add(in_line)
    }

    /// The number of tokens held for coming buckets.
    pub(crate) fn held(&self, now: Tick) -> u32 {
        self.advance_for_read(now);
        self.ring.waiting(now)
    }

    /// The number of buckets of the window. Near the start of the clock, fewer buckets exist.
    pub(crate) fn bucket_count(&self) -> u32 {
        self.counters.shape.buckets
    }

    /// The counts of the window's buckets, oldest first.
    pub(crate) fn buckets(&self, now: Tick) -> Vec<NodeBucket> {
        self.advance_for_read(now);
        let stride = u64::from(self.stride());
        self.counters.buckets(|bucket| {
            let start = bucket * stride;
            let passed = self.ring.taken_between(start, start + stride);
            if passed.is_none() {
                // The ring is so far ahead of the counters that it has forgotten the bucket:
                // advance the counters to it.
                let newest = self.ring.newest();
                self.roll(self.ring.start_of(newest), self.step(newest));
            }
            passed.map(u64::from)
        })
    }

    /// The counts of the last minute's seconds, oldest first, up to the current one. Seconds before
    /// the node began to keep them are left out. `None` if the node keeps no seconds.
    pub(crate) fn seconds(&self, now: Tick) -> Option<Vec<NodeBucket>> {
        self.seconds_from(now, Tick::ZERO)
    }

    /// Like [`seconds`](Self::seconds), but leaves out the seconds that began before `from`.
    pub(crate) fn seconds_from(&self, now: Tick, from: Tick) -> Option<Vec<NodeBucket>> {
        self.advance_for_read(now);
        let from = from.as_nanos().div_ceil(1_000_000_000);
        self.counters.seconds(&self.ring, from)
    }

    /// The counts of the second before the current one; `None` if the node did not keep that
    /// second.
    pub(crate) fn previous_second(&self, now: Tick) -> Option<NodeBucket> {
        self.advance_for_read(now);
        self.counters.second_ago(&self.ring, 1)
    }

    /// The counts since the node was created.
    pub(crate) fn totals(&self, now: Tick) -> Totals {
        self.advance_for_read(now);
        self.counters.totals(&self.ring)
    }

    /// Returns the totals without advancing the node, so held tokens that are due are not counted
    /// as passed yet.
    pub(crate) fn totals_so_far(&self) -> Totals {
        self.counters.totals(&self.ring)
    }

    /// The histograms of response times and of waiting times, if they are kept.
    pub(crate) fn histograms(&self) -> Option<[Histogram; 2]> {
        self.counters.histograms()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
