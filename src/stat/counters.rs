//! The counters of one node that its ring does not keep: calls that ended, were refused or wait.
//!
//! A request costs one addition at its end: one `fetch_add` to `done` adds the call and its
//! response time, `[ rt in µs:40 | calls:24 ]`. The carry from the calls into the times is
//! subtracted on reading, and the full number of calls is a [wide total](super::wide). The difference
//! of two checkpoints decodes exactly under two bounds. In one bucket, response times add up to less
//! than 12.7 days. In one second, they add up to less than 12.3 days. Rare events (refusals, errors,
//! weights other than 1) have separate words, which the common path does not touch.
//!
//! The seconds of the last minute are checkpoints of the same words, so they cost the request
//! nothing. A node that keeps seconds creates the ring of these checkpoints at its first event
//! after the second of its creation. So a resource that is called only once never pays for the
//! ring. A node can also [begin](super::minute) to keep seconds later.
//!
//! The checkpoints of response times and of completions are two words, which can be taken at two
//! moments. So a call that ends in the first instant of a bucket can have its response time counted
//! one bucket away from its completion. Sums over both buckets are right.

use std::sync::{Arc as StdArc, OnceLock};
use std::time::Duration;

use super::checkpoints::{Checkpoints, StepHead};
use super::crowd::{Crowd, is_look_due};
use super::ends::Ends;
use super::event::Outcome;
use super::extremes::Extremes;
use super::histogram::Times;
use super::leap_array::LeapArray;
use super::minute::{Minute, ThisSecond};
use super::rare::RareCounters;
use super::shape::Shape;
use super::slots::{Line, Slots};
use super::wide::CALLS_PER_NOTE;
use crate::base::spread::{Stripes, own_stripe};
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Bug, Lock, Ordering, fence, planted};
use crate::blocked::BlockKind;
use crate::clock::{Tick, nanos};

/// The longest response time that counts in full: 1 minute. A longer one counts as 1 minute, so
/// that some thousand long streams that end at once do not overflow a bucket.
pub(crate) const MAX_RT: Duration = Duration::from_secs(60);
const MAX_RT_NS: u64 = MAX_RT.as_nanos() as u64;

/// The bits of the number of calls in `done`.
pub(super) const CALL_BITS: u32 = 24;
pub(super) const CALL_MASK: u64 = (1 << CALL_BITS) - 1;
/// The bits of the response times in `done`, in µs.
pub(super) const RT_BITS: u32 = 64 - CALL_BITS;

// The indices of the counters in a checkpoint: first those that buckets and seconds have.
pub(super) const CALLS: u32 = 0;
pub(super) const RT: u32 = 1;
pub(super) const BLOCK: u32 = 2;
pub(super) const ERROR: u32 = 3;
pub(super) const EXTRA: u32 = 4;
// Only in checkpoints of buckets.
pub(super) const CANCELLED: u32 = 5;
/// The number of counters in a checkpoint of a bucket.
const BUCKET_WORDS: usize = 6;
// Only in checkpoints of seconds.
pub(super) const PASS: u32 = 5;
pub(super) const OCCUPIED: u32 = 6;
/// The number of counters in a checkpoint of a second.
pub(super) const SECOND_WORDS: usize = 7;
/// The number of seconds in the ring: 60 including the current second, one that is being opened,
/// and a spare one.
const MINUTE_SLOTS: u32 = if cfg!(all(test, sentinel_loom)) {
    4
} else {
    62
};

/// The counters of one node: see the [module](self).
#[derive(Debug)]
pub(super) struct Counters {
    /// The newest step.
    pub(super) head: StepHead,
    /// The end, in ns, of the newest step in which an event was counted. The head can be further,
    /// because readers move it too.
    used_until: AtomicU64,
    /// The calls that delivered a response or an error, with their response times: see the
    /// [module](self).
    pub(super) done: AtomicU64,
    /// The tokens in the ring's count that belong to no call in flight and no call in `done`: one
    /// for each cancelled call, all spent tokens, and the weight of each started call minus one.
    pub(super) settled: AtomicU64,
    /// The weight of the failed calls.
    pub(super) error: AtomicU64,
    /// The weight of the cancelled calls, and the spent tokens.
    pub(super) cancelled: AtomicU64,
    /// The weight of the calls in `done`, minus one for each of these calls.
    pub(super) extra: AtomicU64,
    /// The borrowed tokens of calls that have started.
    pub(super) occupied: AtomicU64,
    /// The number of calls that ended in a panic.
    pub(super) panicked: AtomicU64,
    /// The 64-bit total of passed tokens, as of the newest second. The narrow counter in the ring
    /// adds the tokens passed since.
    pub(super) passed_before: AtomicU64,
    /// The 64-bit total of the calls in `done`, as of the newest second or of a later call.
    pub(super) calls_before: AtomicU64,
    /// The 64-bit total of the response times in `done`, in µs, as of the same moment.
    pub(super) rt_before: AtomicU64,
    /// The number of calls that waited and then started.
    pub(super) waits: AtomicU64,
    /// The sum of their waits, in µs.
    pub(super) waited_us: AtomicU64,
    /// The number of calls that were dropped while they waited.
    pub(super) waiting_dropped: AtomicU64,
    /// The number of calls that wait for a bucket in which they hold tokens, or for their turn in a
    /// queue.
    pub(super) waiting: AtomicU32,
    /// The number of calls that wait for a slot.
    pub(super) in_line: AtomicU32,
    /// Whether many threads refuse calls at once.
    crowd: Crowd,
    pub(super) slots: Slots,
    /// The checkpoints of the last buckets.
    pub(super) bucket_cuts: Checkpoints<BUCKET_WORDS>,
    pub(super) extremes: Extremes,
    /// The histograms of durations, if they are kept.
    pub(super) times: Option<Box<Times>>,
    /// Counters that most nodes do not need.
    pub(super) later: OnceLock<Box<LazyCounters>>,
    pub(super) shape: StdArc<Shape>,
    /// Whether the last minute is kept second by second, and since when.
    pub(super) minute: Minute,
}

/// Counters that are created on first use.
#[derive(Debug, Default)]
pub(super) struct LazyCounters {
    /// The weight of the refused calls, indexed by kind.
    pub(super) refused: [AtomicU64; BlockKind::ALL.len()],
    second_cuts: OnceLock<SecondCuts>,
    /// The borrowed tokens of the newest second, for nodes that do not keep the last minute.
    lent: ThisSecond,
    /// The line for slots and the stripes for a crowd.
    rare: OnceLock<Box<RareCounters>>,
    /// The ring that replaced the first ring in a reload. Only a call that finds its ring replaced
    /// reads this.
    successor: Lock<Option<Arc<LeapArray>>>,
}

/// The checkpoints of seconds.
#[derive(Debug)]
pub(super) struct SecondCuts {
    /// The first second that the checkpoints cover.
    pub(super) first: u64,
    pub(super) cuts: Checkpoints<SECOND_WORDS>,
}

// === impl Counters ===

impl Counters {
    /// Creates counters at `now`. With `keeps_minute` they keep the seconds of the last minute from
    /// the start.
    pub(super) fn new(shape: StdArc<Shape>, keeps_minute: bool, now: Tick) -> Self {
        let head = now.as_nanos() / shape.step_ns;
        let zero = || AtomicU64::new(0);
        // The buckets of the window, including the current one, and the bucket that is being
        // opened.
        let slots = shape.buckets + 1;
        let bucket = shape.bucket(head);
        Self {
            head: StepHead::new(head),
            used_until: AtomicU64::new(shape.end_of(head)),
            done: zero(),
            settled: zero(),
            error: zero(),
            cancelled: zero(),
            extra: zero(),
            occupied: zero(),
            panicked: zero(),
            passed_before: zero(),
            calls_before: zero(),
            rt_before: zero(),
            waits: zero(),
            waited_us: zero(),
            waiting_dropped: zero(),
            waiting: AtomicU32::new(0),
            in_line: AtomicU32::new(0),
            crowd: Crowd::default(),
            slots: Slots::new(),
            bucket_cuts: Checkpoints::new(slots, bucket),
            extremes: Extremes::new(slots, bucket),
            times: shape.edges.clone().map(|edges| Box::new(Times::new(edges))),
            later: OnceLock::new(),
            minute: Minute::new(keeps_minute, shape.second(head)),
            shape,
        }
    }

    /// Bytes that the counters occupy, heap included.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>()
            + self.bucket_cuts.footprint()
            + self.extremes.footprint()
            + self.times.as_ref().map_or(0, |times| times.footprint())
            + self.later.get().map_or(0, |_| size_of::<LazyCounters>())
            + self.rare().map_or(0, RareCounters::footprint)
            + self.second_cuts().map_or(0, |it| it.cuts.footprint())
    }

    /// Notes `ring` as the replacement of all earlier rings of this node.
    pub(super) fn note_successor(&self, ring: &Arc<LeapArray>) {
        *self.later().successor.lock() = Some(ring.clone());
    }

    /// Returns the newest ring of this node, if the first ring has been replaced.
    pub(super) fn successor(&self) -> Option<Arc<LeapArray>> {
        self.later.get()?.successor.lock().clone()
    }

    /// Returns the counters that are created on first use. Creates them if there are none yet.
    fn later(&self) -> &LazyCounters {
        self.later.get_or_init(Box::default)
    }

    /// The rare counters, if they have been created.
    fn rare(&self) -> Option<&RareCounters> {
        Some(self.later.get()?.rare.get()?)
    }

    /// Returns the rare counters. Creates them if there are none yet: with stripes for a crowd if
    /// `is_crowded`.
    fn rare_or_create(&self, is_crowded: bool) -> &RareCounters {
        let make = || Box::new(RareCounters::new(is_crowded));
        self.later().rare.get_or_init(make)
    }

    /// The striped counter of refusals in a crowd, if it has been created.
    pub(super) fn by_crowd(&self) -> Option<&Stripes> {
        self.rare()?.by_crowd.as_ref()
    }

    /// Returns whether many threads refuse calls at once, or did so a moment ago.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowd.is_here()
    }

    /// The checkpoints of the last minute's seconds, if there are any.
    pub(super) fn second_cuts(&self) -> Option<&SecondCuts> {
        self.later.get()?.second_cuts.get()
    }

    /// Keeps the seconds of the last minute from now on.
    pub(super) fn keep_minute(&self) {
        self.minute.begin(|| self.shape.second(self.head()));
    }

    /// Returns the borrowed tokens of the newest second, for nodes that do not keep the last
    /// minute.
    pub(super) fn lent_now(&self) -> u64 {
        let later = self.later.get();
        later.map_or(0, |later| later.lent.of(self.shape.second(self.head())))
    }

    /// The newest step.
    pub(super) fn head(&self) -> u64 {
        self.head.step()
    }

    /// The newest step in which an event was counted.
    pub(super) fn used(&self) -> u64 {
        let until = self.used_until.load(Ordering::Relaxed);
        (until / self.shape.step_ns).saturating_sub(1)
    }

    /// Returns whether no event has been noted yet in the step of `now` or in a later step. If it
    /// returns false, the head is in that step or beyond. Acquire: pairs with the release in
    /// `note_use`.
    #[inline]
    pub(super) fn is_first(&self, now: Tick) -> bool {
        now.as_nanos() >= self.used_until.load(Ordering::Acquire)
    }

    /// Returns whether `now` lies in the newest step that has had an event. Relaxed: callers only
    /// compare times, and access no data of that step.
    #[inline]
    pub(super) fn is_in_step(&self, now: Tick) -> bool {
        let until = self.used_until.load(Ordering::Relaxed);
        // If `until` is past, the difference wraps to a value longer than any step.
        let left = until.wrapping_sub(now.as_nanos());
        left.wrapping_sub(1) < self.shape.step_ns
    }

    /// Notes an event in `step`. The head is in that step or beyond.
    pub(super) fn note_use(&self, step: u64) {
        self.used_until
            .fetch_max(self.shape.end_of(step), Ordering::Release);
    }

    // --- counting; the head is at the event's step or beyond ---

    /// Counts a call of `weight` that delivered a response or an error, `rt_ns` after it started.
    #[inline]
    pub(super) fn complete(&self, weight: u32, rt_ns: u64, outcome: Outcome) {
        let rt_us = rt_ns.min(MAX_RT_NS) / 1_000;
        if weight != 1 {
            self.extra
                .fetch_add(u64::from(weight).wrapping_sub(1), Ordering::Relaxed);
            // Pairs with the acquire in `totals`: a reader that counts a call of weight 0 in `done`
            // also sees the −1 in `extra` that cancels it.
            fence(Ordering::Release);
        }
        // Acquire: see `Node::end_without_slot`.
        let before = self
            .done
            .fetch_add(rt_us << CALL_BITS | 1, Ordering::Acquire);
        if before % CALLS_PER_NOTE == 0 {
            self.note_ended();
        }
        self.extremes.note_rt(self.bucket(), rt_us as u32);
        if let Some(times) = &self.times {
            times.note_rt(if rt_ns > MAX_RT_NS { u64::MAX } else { rt_us });
        }
        if outcome == Outcome::Failure {
            self.error.fetch_add(u64::from(weight), Ordering::Relaxed);
        }
    }

    /// Counts a call that a rule of this `kind` refused. If a look for a crowd is due, takes it;
    /// returns whether it found a crowd.
    pub(super) fn block(&self, weight: u32, kind: BlockKind, now: Tick) -> bool {
        let weight = u64::from(weight);
        let before = self.later().refused[kind as usize].fetch_add(weight, Ordering::Relaxed);
        is_look_due(before, weight) && kind == BlockKind::Flow && self.look_for_crowd(now)
    }

    /// Takes a [look](super::crowd) and returns whether there is a crowd.
    #[cold]
    fn look_for_crowd(&self, now: Tick) -> bool {
        let may_come = || self.rare_or_create(true).by_crowd.is_some();
        self.crowd.look(now, own_stripe(), &may_come)
    }

    /// Counts a call that a full window refuses in a [crowd](Self::is_crowded). The crowd is
    /// forgotten after enough consecutive looks that find no crowd.
    pub(super) fn block_in_crowd(&self, weight: u32, now: Tick) {
        let weight = u64::from(weight);
        let before = match self.by_crowd() {
            Some(stripes) => stripes.add(weight),
            None => {
                let refused = &self.later().refused[BlockKind::Flow as usize];
                refused.fetch_add(weight, Ordering::Relaxed)
            }
        };
        if is_look_due(before, weight) {
            self.look_for_crowd(now);
        }
    }

    /// Counts a call that ended without delivering anything.
    pub(super) fn cancel(&self, weight: u32) {
        self.cancelled.fetch_add(weight.into(), Ordering::Relaxed);
        // Acquire: see `Node::end_without_slot`.
        self.settled.fetch_add(1, Ordering::Acquire);
    }

    /// Counts `weight` tokens that the ring has granted and no call uses.
    pub(super) fn spend(&self, weight: u32) {
        if weight > 0 {
            self.cancelled.fetch_add(weight.into(), Ordering::Relaxed);
            self.settled.fetch_add(u64::from(weight), Ordering::Relaxed);
        }
    }

    /// Counts a call that a panic ended.
    pub(super) fn panicked(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the start of a call of `weight`. `taken` is the ring's count of tokens at that time.
    #[inline]
    pub(super) fn started(&self, weight: u32, taken: u32) {
        if weight != 1 {
            self.settled
                .fetch_add(u64::from(weight).wrapping_sub(1), Ordering::Relaxed);
        }
        self.extremes
            .note_concurrency(self.bucket(), self.in_flight(taken));
    }

    /// Counts a call that started after `wait` with `occupied` borrowed tokens.
    pub(super) fn waited(&self, occupied: u32, wait: Duration) {
        self.occupied
            .fetch_add(u64::from(occupied), Ordering::Relaxed);
        if occupied > 0 {
            let second = self.shape.second(self.head());
            self.later().lent.add(second, occupied);
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let us = nanos(wait) / 1_000;
        self.waited_us.fetch_add(us, Ordering::Relaxed);
        if let Some(times) = &self.times {
            times.note_wait(us);
        }
    }

    /// Counts a call that was dropped while it waited.
    pub(super) fn dropped_waiting(&self) {
        self.waiting_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest bucket.
    #[inline]
    fn bucket(&self) -> u64 {
        self.shape.bucket(self.head())
    }

    // --- gauges ---

    /// The calls in flight, given that the ring has counted `taken` tokens.
    pub(super) fn in_flight(&self, taken: u32) -> u32 {
        let calls = self.done.load(Ordering::Relaxed);
        let settled = self.settled.load(Ordering::Relaxed);
        let flying = u64::from(taken).wrapping_sub(calls).wrapping_sub(settled) & CALL_MASK;
        // The difference is negative for a moment if a call starts and ends after `taken` was read.
        if flying > CALL_MASK / 2 {
            0
        } else {
            flying as u32
        }
    }

    /// The number of ended calls, as a counter that wraps.
    pub(super) fn ends(&self) -> Ends {
        let completed = self.done.load(Ordering::Relaxed);
        let cancelled = self.cancelled.load(Ordering::Relaxed);
        Ends::of(completed.wrapping_add(cancelled))
    }

    /// Returns the number of waiting calls.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds a waiting call and returns true, or returns false if `max` calls wait already.
    pub(super) fn start_waiting(&self, max: u32) -> bool {
        add_below(&self.waiting, max)
    }

    /// Removes a waiting call.
    pub(super) fn stop_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Calls that wait for a slot.
    pub(super) fn in_line(&self) -> u32 {
        self.in_line.load(Ordering::Relaxed)
    }

    /// The line in which calls wait for a slot, if it has been created.
    pub(super) fn line(&self) -> Option<&Line> {
        Some(&self.rare()?.line)
    }

    /// Returns the line in which calls wait for a slot. Creates it if there is none yet.
    pub(super) fn line_or_create(&self) -> &Line {
        &self.rare_or_create(false).line
    }

    // --- time ---

    /// Takes the checkpoints of every step up to `to`. The ring must have been moved there before.
    #[cold]
    pub(super) fn roll(&self, ring: &LeapArray, to: u64) {
        let stride = u64::from(self.shape.stride);
        let per_second = u64::from(self.shape.per_second);
        let mut reach = self.bucket_cuts.slots() * stride;
        if self.minute.is_kept() {
            reach = reach.max(u64::from(MINUTE_SLOTS) * per_second);
        }
        if self.shape.second(self.head()) < self.shape.second(to) {
            self.note_totals(ring);
        }
        loop {
            let head = self.head();
            if head >= to {
                return;
            }
            if to - head > reach && self.is_whole(head) {
                // The node was idle for longer than its rings reach back. Jump to a step from which
                // the remaining ordinary steps rewrite every checkpoint.
                self.head.jump(head, self.shape.landing(head, to - reach));
                continue;
            }
            self.head.advance(head, |next, stands| {
                (next % stride != 0 || self.cut_bucket(next / stride, stands))
                    && (next % per_second != 0 || self.cut_second(ring, next / per_second, stands))
            });
        }
    }

    /// Returns whether all checkpoints have been rewritten since the last jump.
    fn is_whole(&self, head: u64) -> bool {
        self.bucket_cuts.is_whole(self.shape.bucket(head))
            && self
                .second_cuts()
                .is_none_or(|it| it.cuts.is_whole(self.shape.second(head)))
    }

    /// Takes the checkpoints of `bucket`. Returns false if `stands` reports that the head has moved
    /// on.
    fn cut_bucket(&self, bucket: u64, stands: &dyn Fn() -> bool) -> bool {
        self.extremes.open(bucket, stands)
            && (0..BUCKET_WORDS as u32).all(|word| {
                self.bucket_cuts
                    .publish(bucket, word, self.value(word), stands)
            })
    }

    /// Takes the checkpoints of `second`, if seconds are kept. Returns false if `stands` reports
    /// that the head has moved on.
    fn cut_second(&self, ring: &LeapArray, second: u64, stands: &dyn Fn() -> bool) -> bool {
        if !self.minute.needs_cut() {
            return true;
        }
        let cuts = &self.second_cuts_before(ring, second).cuts;
        let passed = self.passed_before_second(ring, second);
        (0..SECOND_WORDS as u32).all(|word| {
            let value = self.second_value(word, || passed);
            cuts.publish(second, word, value, stands)
        })
    }

    /// Returns the checkpoints of seconds. If there are none, creates them with the second before
    /// `second` as the newest.
    fn second_cuts_before(&self, ring: &LeapArray, second: u64) -> &SecondCuts {
        let made = &self.later().second_cuts;
        if made.get().is_none() {
            // If seconds are kept from the start, all events so far happened in the second in which
            // the node was created: an event in a later second would have created the checkpoints.
            let (first, born) = match self.minute.born() {
                Some(born) => (0, born.min(second - 1)),
                None => (second, second - 1),
            };
            let cuts = Checkpoints::new(MINUTE_SLOTS, second - 1);
            let idle = (second - 1 - born).min(u64::from(MINUTE_SLOTS) - 1);
            for missed in (second - idle)..second {
                let passed = self.passed_before_second(ring, missed);
                cuts.replace(missed, |word| self.second_value(word, || passed));
            }
            // If another thread was faster, its checkpoints are equal to these.
            let _ = made.set(SecondCuts { first, cuts });
        }
        made.get().expect("they have been made")
    }

    /// The tokens that the ring had granted when `second` began.
    pub(super) fn passed_before_second(&self, ring: &LeapArray, second: u64) -> u32 {
        let steps = second * u64::from(self.shape.per_second);
        let bucket = steps * (self.shape.step_ns / ring.grid().bucket_ns);
        ring.taken_before(bucket)
    }
}

/// Adds 1 to `gauge` and returns true, or returns false if the gauge is at `max` or above.
fn add_below(gauge: &AtomicU32, max: u32) -> bool {
    if planted(Bug::ClaimThenCheck) {
        let fits = gauge.fetch_add(1, Ordering::Acquire) < max;
        if !fits {
            gauge.fetch_sub(1, Ordering::Release);
        }
        return fits;
    }
    let mut found = gauge.load(Ordering::Relaxed);
    while found < max {
        if planted(Bug::CheckThenClaim) {
            gauge.fetch_add(1, Ordering::Acquire);
            return true;
        }
        // Acquire is stricter than needed: the gauge guards no data.
        let next = found + 1;
        match gauge.compare_exchange_weak(found, next, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}
