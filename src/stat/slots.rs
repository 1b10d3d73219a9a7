//! Concurrency slots: how many calls of a node run at once, and which wait for a slot.
//!
//! ```text
//! bit 63      62      61        32 31         0
//!   [ waits ][ older ][ entering ][  in use  ]
//! ```
//!
//! All that a call needs to know is in one word, so taking a slot is one compare-and-swap.
//! While nothing but the number in use is set, which is nearly always, the word is that
//! number. Anything above makes it larger than every limit, so that the call looks again.
//!
//! # Calls without a slot
//!
//! A call that began while no rule gave out slots holds none. When a rule comes, the node is
//! marked `older`. Until all resources that older rules have made are gone, such calls count
//! among those that hold a slot:
//!
//! ```text
//! without a slot  =  calls in flight  −  calls that hold a slot and have their tokens
//! ```
//!
//! A call takes its slot before its tokens, and is in flight only with these. In between it is
//! `entering`, and not subtracted. The word is read (acquire) before the calls in flight, and the
//! swap shows that it has not changed since: so a call that starts or ends in between makes the
//! difference too large at most, and no call passes that should not.
//!
//! # The line
//!
//! Calls that wait stand in a line behind a lock. The mark `waits` is set before a call looks for a
//! slot a last time. A call that releases its slot sees the mark in the word that it changes, and
//! passes the slot to the first call of the line; so does a call without a slot that ends (it
//! changes the count of ended calls, and then reads the word: see
//! [`Node::end_without_slot`](super::Node::end_without_slot)). A new call finds no room in a marked
//! word, so none overtakes the line.

use std::fmt;
use std::task::Waker;

use super::counters::Counters;
use crate::base::numbered::Numbered;
use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU64, Bug, Lock, Ordering, planted};

const IN_USE: u64 = u32::MAX as u64;
const ENTERING: u64 = 1 << 32;
/// Each is a call in memory, so there are always fewer.
const MOST_ENTERING: u64 = (1 << 30) - 1;
const OLDER: u64 = 1 << 62;
const WAITS: u64 = 1 << 63;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Slots(AtomicU64);

/// A slot that a call holds, until it releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct SlotHold {
    /// Whether the call is still counted as one without its tokens.
    is_entering: bool,
}

/// The calls that wait for a slot, by their tickets.
pub(super) struct Line(Lock<LineState>);

/// How many calls may run at once, as it is now.
pub(crate) type LimitNow = Box<dyn Fn() -> u32 + Send + Sync>;

struct LineState {
    /// The number of the next ticket.
    next: u64,
    /// The waker of each call, once it has been polled. A call that is gone from here has a slot.
    calls: Numbered<Option<Waker>>,
    limit: LimitNow,
}

/// The wakers to call after the lock is released.
type Woken = Vec<Waker>;

// === impl SlotHold ===

impl SlotHold {
    /// The slot of a call that has its tokens.
    pub(crate) const RUNNING: Self = Self { is_entering: false };
    /// The slot of a call that has got it in the line.
    pub(crate) const FROM_LINE: Self = Self { is_entering: true };

    const fn in_word(self) -> u64 {
        if self.is_entering { 1 + ENTERING } else { 1 }
    }
}

// === impl Slots ===

impl Slots {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Slots in use, without the calls that hold none.
    #[cfg(all(test, sentinel_loom))]
    pub(super) fn in_use(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) & IN_USE) as u32
    }

    /// The slots in use, plus the calls without a slot if there may be any.
    pub(super) fn in_use_or_older(&self, in_flight: impl Fn() -> u32) -> u32 {
        in_use(self.0.load(Ordering::Acquire), in_flight)
    }

    /// Returns whether fewer than `limit` slots are in use. Never in a marked word.
    #[inline]
    pub(super) fn has_room(&self, limit: u32) -> bool {
        self.0.load(Ordering::Relaxed) < u64::from(limit)
    }

    /// Returns whether there is more to look at than the number in use.
    #[inline]
    pub(super) fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed) > IN_USE
    }

    /// Returns whether a call waits for a slot.
    #[inline]
    pub(super) fn somebody_waits(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= WAITS
    }

    /// Returns whether calls without a slot count.
    pub(super) fn has_older(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OLDER != 0
    }

    /// Calls without a slot count from here on.
    pub(super) fn mark_older(&self, line: &Line) {
        let _one_at_a_time = line.0.lock();
        self.0.fetch_or(OLDER, Ordering::Relaxed);
    }

    /// They count no more, if `are_gone`. Under the lock of the line, so that a mark that is
    /// set meanwhile stays.
    pub(super) fn forget_older(&self, line: &Line, are_gone: impl Fn() -> bool) {
        let _one_at_a_time = line.0.lock();
        if are_gone() {
            self.0.fetch_and(!OLDER, Ordering::Relaxed);
        }
    }

    /// One more slot, unless `limit` are in use. None in a marked word.
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
            // Acquire: pairs with the release of the call that freed it.
            let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
            match self.0.compare_exchange_weak(found, found + 1, won, lost) {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }

    /// Returns whether fewer than `limit` slots are in use, and no call waits for one.
    pub(super) fn has_room_if_marked(&self, limit: u32, in_flight: impl Fn() -> u32) -> bool {
        let found = self.0.load(Ordering::Acquire);
        found & WAITS == 0 && in_use(found, in_flight) < limit
    }

    /// One more slot, unless `limit` are in use or a call waits for one.
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

    /// One more slot in the word that was `found`.
    fn enter(&self, found: u64) -> Result<(), u64> {
        let step = if planted(Bug::EnterAsStarted) {
            1
        } else {
            1 + ENTERING
        };
        // Acquire as in `take`; and the value read after a failure is judged next.
        let order = Ordering::Acquire;
        let swapped = self.0.compare_exchange(found, found + step, order, order);
        swapped.map(drop)
    }

    /// The call of `hold` has its tokens.
    #[inline]
    pub(super) fn started(&self, hold: SlotHold) {
        if hold.is_entering && !planted(Bug::EnterAsStarted) {
            self.note_started();
        }
    }

    #[cold]
    fn note_started(&self) {
        // Release: a thread that reads this word also sees the call in flight.
        self.0.fetch_sub(ENTERING, Ordering::Release);
    }

    /// Releases a slot. Returns whether a call waits for it: then the caller continues with
    /// [`let_in`](Self::let_in).
    #[inline]
    pub(super) fn release(&self, hold: SlotHold) -> bool {
        // The next holder of the slot sees everything that was done with it.
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
        // The lock is held: no call joins meanwhile.
        self.0.fetch_and(!WAITS, Ordering::Relaxed);
    }

    /// Stands in the line, behind all that came before: with a new ticket, or with a returned one.
    /// `None` if `most` calls stand there. `marked` runs once others can see that a call waits.
    pub(super) fn line_up(
        &self,
        line: &Line,
        most: u32,
        ticket: Option<u64>,
        marked: impl Fn(),
        in_flight: impl Fn() -> u32,
    ) -> Option<u64> {
        let mut woken = Woken::new();
        let ticket = {
            let mut line = line.0.lock();
            if line.calls.len() >= most as usize {
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

    /// Leaves the line. Returns whether the call has got a slot before, which it then holds.
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

/// Slots of a node. Each function takes the number of calls in flight, which the ring knows.
impl Counters {
    /// Gives free slots to the calls that wait.
    #[cold]
    pub(super) fn let_in(&self, in_flight: impl Fn() -> u32) {
        if let Some(line) = self.line() {
            self.slots.let_in(line, in_flight);
        }
    }

    /// Stands in line for a slot; see [`Slots::line_up`].
    pub(super) fn line_up(
        &self,
        most: u32,
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
        let line = self.line_made();
        self.slots.line_up(line, most, ticket, marked, in_flight)
    }
}

/// Slots in use by `word`, with the calls that hold none.
fn in_use(word: u64, in_flight: impl Fn() -> u32) -> u32 {
    let held = (word & IN_USE) as u32;
    if word & OLDER == 0 {
        return held;
    }
    let entering = ((word / ENTERING) & MOST_ENTERING) as u32;
    let started = held.saturating_sub(entering);
    held.saturating_add(in_flight().saturating_sub(started))
}

fn wake(woken: Woken) {
    for waker in woken {
        // The waker is foreign code, and may panic: the other calls are woken all the same.
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

    /// Returns whether no call waits, said under the lock that each one takes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().calls.is_empty()
    }

    /// From here on `limit` says how many may run.
    pub(super) fn set_limit(&self, limit: LimitNow) {
        self.0.lock().limit = limit;
    }

    /// Returns whether the call with this ticket has got a slot. If not, `waker` is woken when it
    /// has.
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
        // A waker may own a call in line: it is dropped without the lock.
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
