//! Concurrency slots of a node: they limit how many calls run at once, and calls can wait in line
//! for a slot.
//!
//! ```text
//! bit 63      62      61        32 31         0
//!   [ waits ][ older ][ entering ][  in use  ]
//! ```
//!
//! One word holds all state that a call needs, so taking a slot is one compare-and-swap. Nearly
//! always only the field of the slots in use is set, and the word is that number. Any other field
//! makes the word larger than every limit, so that the call takes the slow path, which looks at all
//! fields. Such a word is called *marked* below.
//!
//! # Calls without a slot
//!
//! A call that began before any rule limited concurrency holds no slot. When a reload brings such a
//! rule, the node is marked `older`. As long as entries that were made under earlier rules exist
//! for the resource, such calls count against the limit as well:
//!
//! ```text
//! without a slot  =  calls in flight  −  calls that hold a slot and have their tokens
//! ```
//!
//! A call takes its slot before its tokens, and counts as in flight only once it has tokens. In
//! between it is `entering`, and is not subtracted. The word is read (acquire) before the calls in
//! flight, and the swap confirms that the word has not changed since. So a call that starts or ends
//! in between can only make the difference too large, and no call passes beyond the limit.
//!
//! # The line
//!
//! Waiting calls stand in a line behind a lock. A call sets the mark `waits` before it looks for a
//! slot for the last time. A call that releases its slot sees the mark in the word that it changes,
//! and passes the slot to the first call of the line. A call without a slot does the same when it
//! ends: it changes the count of ended calls, and then reads the word (see
//! [`Node::end_without_slot`](super::Node::end_without_slot)). A new call finds no room in a marked
//! word, so it cannot overtake the line.

use std::fmt;
use std::task::Waker;

use super::counters::Counters;
use crate::base::numbered::Numbered;
use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU64, Bug, Lock, Ordering, planted};

/// The bits of the number of slots in use.
const IN_USE: u64 = u32::MAX as u64;
/// One entering call.
const ENTERING: u64 = 1 << 32;
/// The largest number of entering calls that the field can hold. It cannot be reached, because each
/// entering call occupies memory.
const MOST_ENTERING: u64 = (1 << 30) - 1;
/// The mark that calls without a slot count against the limit.
const OLDER: u64 = 1 << 62;
/// The mark that calls wait for a slot.
const WAITS: u64 = 1 << 63;

/// The word of a node's slots: see the [module](self).
#[derive(Debug)]
pub(super) struct Slots(AtomicU64);

/// A slot that a call holds, until it releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct SlotHold {
    /// Whether the call counts as entering, because it has no tokens yet.
    is_entering: bool,
}

/// The calls that wait for a slot, by their tickets.
pub(super) struct Line(Lock<LineState>);

/// A function that returns how many calls may run at once now.
pub(crate) type LimitNow = Box<dyn Fn() -> u32 + Send + Sync>;

/// The line, behind its lock.
struct LineState {
    /// The number of the next ticket.
    next: u64,
    /// The waker of each call, once it has been polled. A call that is no longer in this map has a
    /// slot.
    calls: Numbered<Option<Waker>>,
    /// Returns how many slots there are for the calls in line.
    limit: LimitNow,
}

/// The wakers to call after the lock is released.
type Woken = Vec<Waker>;

// === impl SlotHold ===

impl SlotHold {
    /// The slot of a call that has its tokens.
    pub(crate) const RUNNING: Self = Self { is_entering: false };
    /// The slot of a call that has no tokens yet, such as a call that got its slot in the line.
    pub(crate) const FROM_LINE: Self = Self { is_entering: true };

    /// The amount that the slot adds to the word.
    const fn in_word(self) -> u64 {
        if self.is_entering { 1 + ENTERING } else { 1 }
    }
}

// === impl Slots ===

impl Slots {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The number of slots in use, without the calls that hold no slot.
    #[cfg(all(test, sentinel_loom))]
    pub(super) fn in_use(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) & IN_USE) as u32
    }

    /// The number of slots in use, plus the number of calls without a slot if they count.
    pub(super) fn in_use_or_older(&self, in_flight: impl Fn() -> u32) -> u32 {
        in_use(self.0.load(Ordering::Acquire), in_flight)
    }

    /// Returns whether fewer than `limit` slots are in use. Always false for a marked word.
    #[inline]
    pub(super) fn has_room(&self, limit: u32) -> bool {
        self.0.load(Ordering::Relaxed) < u64::from(limit)
    }

    /// Returns whether any field but the number of slots in use is set.
    #[inline]
    pub(super) fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed) > IN_USE
    }

    /// Returns whether a call waits for a slot.
    #[inline]
    pub(super) fn somebody_waits(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= WAITS
    }

    /// Returns whether calls without a slot count against the limit.
    pub(super) fn has_older(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OLDER != 0
    }

    /// Counts calls without a slot against the limit from now on.
    pub(super) fn mark_older(&self, line: &Line) {
        let _one_at_a_time = line.0.lock();
        self.0.fetch_or(OLDER, Ordering::Relaxed);
    }

    /// Removes the mark `older` if `are_gone` returns true. Holds the lock of the line, so that a
    /// mark that another thread sets meanwhile stays.
    pub(super) fn forget_older(&self, line: &Line, are_gone: impl Fn() -> bool) {
        let _one_at_a_time = line.0.lock();
        if are_gone() {
            self.0.fetch_and(!OLDER, Ordering::Relaxed);
        }
    }

    /// Takes a slot and returns true, or returns false if `limit` slots are in use or the word is
    /// marked.
    #[inline]
    pub(super) fn take(&self, limit: u32) -> bool {
        let limit = u64::from(limit);
        if planted(Bug::ClaimThenCheck) {
            let fits = self.0.fetch_add(1, Ordering::Acquire) < limit;
            if !fits {
                self.0.fetch_sub(1, Ordering::Release);
            }
            return fits;
        }
        let mut found = self.0.load(Ordering::Relaxed);
        while found < limit {
            if planted(Bug::CheckThenClaim) {
                self.0.fetch_add(1, Ordering::Acquire);
                return true;
            }
            // Acquire: pairs with the release by the call that freed the slot.
            let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
            match self.0.compare_exchange_weak(found, found + 1, won, lost) {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }

    /// Returns whether fewer than `limit` slots are in use and no call waits for a slot. The word
    /// may be marked.
    pub(super) fn has_room_if_marked(&self, limit: u32, in_flight: impl Fn() -> u32) -> bool {
        let found = self.0.load(Ordering::Acquire);
        found & WAITS == 0 && in_use(found, in_flight) < limit
    }

    /// Takes a slot even if the word is marked, unless `limit` slots are in use or a call waits for
    /// a slot.
    pub(super) fn take_if_marked(
        &self,
        limit: u32,
        in_flight: impl Fn() -> u32,
    ) -> Option<SlotHold> {
        let mut found = self.0.load(Ordering::Acquire);
        while found & WAITS == 0 && in_use(found, &in_flight) < limit {
            match self.enter(found) {
                Ok(()) => return Some(SlotHold::FROM_LINE),
                Err(now) => found = now,
            }
        }
        None
    }

    /// Takes a slot beyond any limit, for a call that runs in spite of the rules.
    pub(super) fn take_anyway(&self) -> SlotHold {
        self.0.fetch_add(1 + ENTERING, Ordering::Acquire);
        SlotHold::FROM_LINE
    }

    /// Takes a slot if the word is still `found`. Otherwise returns the current word.
    fn enter(&self, found: u64) -> Result<(), u64> {
        let step = if planted(Bug::EnterAsStarted) {
            1
        } else {
            1 + ENTERING
        };
        // Acquire as in `take`. On failure too, because the caller then judges the value that was
        // read.
        let order = Ordering::Acquire;
        let swapped = self.0.compare_exchange(found, found + step, order, order);
        swapped.map(drop)
    }

    /// Notes that the call of `hold` has its tokens.
    #[inline]
    pub(super) fn started(&self, hold: SlotHold) {
        if hold.is_entering && !planted(Bug::EnterAsStarted) {
            self.note_started();
        }
    }

    /// The slow path of [`started`](Self::started), for a call that counts as entering.
    #[cold]
    fn note_started(&self) {
        // Release: a thread that reads this word also sees the call in flight.
        self.0.fetch_sub(ENTERING, Ordering::Release);
    }

    /// Releases a slot. Returns whether a call waits for a slot; if so, the caller must call
    /// [`let_in`](Self::let_in).
    #[inline]
    pub(super) fn release(&self, hold: SlotHold) -> bool {
        // Release: the next holder of the slot sees everything that this holder wrote.
        let order = if planted(Bug::FreeRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.0.fetch_sub(hold.in_word(), order) >= WAITS
    }

    /// Gives free slots to the first calls of the line.
    #[cold]
    pub(super) fn let_in(&self, line: &Line, in_flight: impl Fn() -> u32) {
        let mut woken = Woken::new();
        self.pass_on(&mut line.0.lock(), in_flight, &mut woken);
        wake(woken);
    }

    /// Gives free slots to the first calls of the line, and collects their wakers in `woken`.
    /// Removes the mark `waits` if the line becomes empty.
    fn pass_on(&self, line: &mut LineState, in_flight: impl Fn() -> u32, woken: &mut Woken) {
        while !line.calls.is_empty() {
            let found = self.0.load(Ordering::Acquire);
            if in_use(found, &in_flight) >= (line.limit)() {
                return;
            }
            if self.enter(found).is_ok() {
                woken.extend(line.calls.pop_first().flatten());
            }
        }
        // The lock is held, so no call joins the line meanwhile.
        self.0.fetch_and(!WAITS, Ordering::Relaxed);
    }

    /// Puts a call in line and returns its ticket; `None` if `max` calls wait already. A new call
    /// goes to the end; a call with an earlier `ticket` gets its old place. Runs `marked` once
    /// other threads can see that a call waits.
    pub(super) fn line_up(
        &self,
        line: &Line,
        max: u32,
        ticket: Option<u64>,
        marked: impl Fn(),
        in_flight: impl Fn() -> u32,
    ) -> Option<u64> {
        let mut woken = Woken::new();
        let ticket = {
            let mut line = line.0.lock();
            if line.calls.len() >= max as usize {
                return None;
            }
            let ticket = ticket.unwrap_or_else(|| {
                line.next += 1;
                line.next
            });
            line.calls.insert(ticket, None);
            self.0.fetch_or(WAITS, Ordering::Relaxed);
            marked();
            if !planted(Bug::WaitWithoutLook) {
                self.pass_on(&mut line, in_flight, &mut woken);
            }
            ticket
        };
        wake(woken);
        Some(ticket)
    }

    /// Removes a call from the line. Returns whether the call had already got a slot, which it then
    /// holds.
    pub(super) fn cancel(&self, line: &Line, ticket: u64) -> bool {
        let mut line = line.0.lock();
        let gone = line.calls.remove(ticket);
        if line.calls.is_empty() {
            self.0.fetch_and(!WAITS, Ordering::Relaxed);
        }
        drop(line);
        let has_slot = gone.is_none();
        has_slot && !planted(Bug::LeaveBlindly)
    }
}

/// The slots of a node. `in_flight` returns the number of calls in flight. The counters alone
/// cannot compute it, because the ring counts the passes.
impl Counters {
    /// Gives free slots to the first calls of the line.
    #[cold]
    pub(super) fn let_in(&self, in_flight: impl Fn() -> u32) {
        if let Some(line) = self.line() {
            self.slots.let_in(line, in_flight);
        }
    }

    /// Puts a call in line for a slot; see [`Slots::line_up`].
    pub(super) fn line_up(
        &self,
        max: u32,
        ticket: Option<u64>,
        in_flight: impl Fn() -> u32,
    ) -> Option<u64> {
        let marked = || {
            // See `Node::end_without_slot`.
            if !planted(Bug::WaitUnseen) {
                self.done.fetch_add(0, Ordering::Release);
                self.settled.fetch_add(0, Ordering::Release);
            }
        };
        let line = self.line_or_create();
        self.slots.line_up(line, max, ticket, marked, in_flight)
    }
}

/// Returns the number of slots in use in `word`, plus the number of calls without a slot if they
/// count.
fn in_use(word: u64, in_flight: impl Fn() -> u32) -> u32 {
    let held = (word & IN_USE) as u32;
    if word & OLDER == 0 {
        return held;
    }
    let entering = ((word / ENTERING) & MOST_ENTERING) as u32;
    let started = held.saturating_sub(entering);
    held.saturating_add(in_flight().saturating_sub(started))
}

/// Wakes the calls that have got a slot.
fn wake(woken: Woken) {
    for waker in woken {
        // A waker is foreign code and can panic. The remaining calls must be woken even then.
        let _ = catch_panic(|| waker.wake());
    }
}

// === impl Line ===

impl Line {
    pub(super) fn new() -> Self {
        Self(Lock::new(LineState {
            next: 0,
            calls: Numbered::default(),
            limit: Box::new(|| u32::MAX),
        }))
    }

    /// Returns whether no call waits. Takes the lock, which orders this answer with calls that line
    /// up.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().calls.is_empty()
    }

    /// Sets the function that returns how many calls may run.
    pub(super) fn set_limit(&self, limit: LimitNow) {
        self.0.lock().limit = limit;
    }

    /// Returns whether the call with this ticket has got a slot. If not, `waker` is woken when it
    /// gets one.
    pub(super) fn has_slot(&self, ticket: u64, waker: Option<&Waker>) -> bool {
        let mut line = self.0.lock();
        let Some(own) = line.calls.get_mut(ticket) else {
            return true;
        };
        let is_new = |waker: &&Waker| own.as_ref().is_none_or(|own| !own.will_wake(waker));
        let old = match waker.filter(is_new) {
            Some(waker) => own.replace(waker.clone()),
            None => None,
        };
        // A waker can own a call in this line, whose drop takes the lock. So the old waker is
        // dropped after the lock is released.
        drop(line);
        drop(old);
        false
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}
