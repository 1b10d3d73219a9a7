//! Lines of calls that wait because their key has reached its limit of running calls. Each key has
//! one line, first come, first served.
//!
//! While calls of a key wait, its word is [marked](super::running). A marked word is larger than
//! every limit, so new calls do not overtake the line, and it is not at rest, so the key keeps its
//! slot of the table. A call that releases a place sees the mark in the word that it changes, and
//! passes the place to the first call of the line. No other call reads the lines.
//!
//! A line belongs to a slot of the table. The calls of all keys without a slot wait in one line,
//! because they share one word.
//!
//! Lines are protected by locks, each of which covers some slots. A mark is removed only under the
//! lock of its slot, if the line is empty. A call that lines up marks the word to learn its slot,
//! and marks it again under the lock. In between, another call can have removed the mark, and the
//! slot can even belong to another key. After the second mark the call looks for a place for the
//! last time. Mark and count are in the same word, so either the call finds a place that is
//! released concurrently, or the releasing call finds the mark.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc as StdArc;
use std::task::Waker;

use foldhash::fast::FixedState;

use super::keys::{HotKeys, KeyTokens};
use super::running::{self, AheadOfLine, Mark};
use super::table::{KeyTable, WordPlace};
use super::{Counting, Digest};
use crate::base::numbered::Numbered;
use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU32, AtomicU64, Bug, Lock, Ordering, planted};
use crate::call::{Key, OwnedKey};
use crate::clock::Tick;

/// The number of locks, a power of two: enough that calls of different keys seldom wait for the
/// same lock.
#[cfg(not(all(test, sentinel_loom)))]
const LOCKS: usize = 16;
#[cfg(all(test, sentinel_loom))]
const LOCKS: usize = 1;

/// The lines of a table: see the [module](self).
pub(super) struct Lines {
    /// The lines, split by slot into parts with a lock each.
    parts: Box<[Lock<Part>]>,
    /// The number of the next ticket.
    next: AtomicU64,
    /// The number of calls in all lines.
    waiting: AtomicU32,
}

/// The lines of some slots, behind one lock.
struct Part {
    /// Returns how many calls of a key may run.
    limit: KeyLimitNow,
    /// The lines by place; none is empty. A call that is no longer in its line, and has not
    /// cancelled, has got a place. The hash of this map needs no random seed: places depend on
    /// secret hash keys, so no caller can make them collide.
    lines: HashMap<WordPlace, Waiters, FixedState>,
}

/// The calls of one line, by the numbers of their tickets.
type Waiters = Numbered<Waiter>;

/// A waiting call.
struct Waiter {
    key: Digest,
    tier: Option<OwnedKey>,
    /// The waker of the call, once it has been polled.
    waker: Option<Waker>,
}

/// A function that returns how many calls of a key may run at once now, for a call in a tier.
pub(crate) type KeyLimitNow = StdArc<dyn Fn(Digest, Option<&Key<'_>>) -> u32 + Send + Sync>;

/// The position of a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTicket {
    /// The place of the key's word, which selects the line.
    place: WordPlace,
    /// The number of the ticket. It increases over all calls that wait in this table.
    pub(crate) number: u64,
}

/// The maximum numbers of waiting calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// The maximum number of waiting calls of one key.
    pub(crate) of_key: u32,
    /// The maximum number of waiting calls of all keys together.
    pub(crate) of_all: u32,
}

/// Why a call could not be put in line.
enum NoLine {
    /// As many calls wait as the limits allow.
    Full,
    /// The key has another place in the table by now.
    Moved,
}

/// The wakers to call after the lock is released.
type Wakers = Vec<Waker>;

// === impl HotKeys ===

impl HotKeys {
    /// Puts a call in `tier` in line for a place of `key`. A new call goes to the end; a call with
    /// the `number` of an earlier ticket gets its old position. Returns `None` if as many calls
    /// wait as `limits` allow.
    pub(crate) fn line_up(
        &self,
        key: Digest,
        tier: Option<&Key<'_>>,
        limits: WaitLimits,
        number: Option<u64>,
    ) -> Option<LineTicket> {
        debug_assert_eq!(self.count, Counting::Running);
        let lines = self.lines_or_create();
        loop {
            let place = self.table.change_word(key.0, &Mark, false).ok()?.place;
            let call = Waiter {
                key,
                tier: tier.map(|tier| OwnedKey::from(*tier)),
                waker: None,
            };
            match lines.join(&self.table, place, call, limits, number) {
                Ok(ticket) => return Some(ticket),
                Err(NoLine::Full) => return None,
                Err(NoLine::Moved) => {}
            }
        }
    }

    /// Returns whether the call with this ticket has got a place. If not, `waker` is woken once it
    /// has.
    pub(crate) fn has_place(&self, ticket: LineTicket, waker: Option<&Waker>) -> bool {
        let lines = self.lines.get();
        lines.is_some_and(|lines| lines.has_place(ticket, waker))
    }

    /// Removes a call of `key` from the line. Returns its place if it has already got one.
    pub(crate) fn cancel_wait(
        &self,
        now: Tick,
        key: Digest,
        ticket: LineTicket,
    ) -> Option<KeyTokens> {
        let has_place = self.lines.get()?.cancel(&self.table, ticket);
        has_place.then(|| KeyTokens::at_once(now, key, ticket.place))
    }

    /// Takes a place of `key` for a call that overtakes the line. Returns `None` if `limit` calls
    /// run.
    pub(crate) fn take_past_line(&self, now: Tick, key: Digest, limit: u32) -> Option<KeyTokens> {
        let change = self.decide(now, key, AheadOfLine(limit)).ok()?;
        Some(KeyTokens::at_once(now, key, change.place))
    }

    /// Sets the function that returns how many calls of a key may run.
    pub(crate) fn set_limit(&self, limit: &KeyLimitNow) {
        for part in &self.lines_or_create().parts {
            part.lock().limit = limit.clone();
        }
    }

    /// Gives free places to the calls that wait at `place`.
    #[cold]
    #[inline(never)]
    pub(super) fn let_in(&self, place: Option<WordPlace>) {
        if let (Some(lines), Some(place)) = (self.lines.get(), place) {
            lines.let_in(&self.table, place);
        }
    }

    /// Gives free places to all calls that wait.
    pub(crate) fn let_all_in(&self) {
        if let Some(lines) = self.lines.get() {
            lines.let_all_in(&self.table);
        }
    }

    /// Returns whether lines have been created, so that a call may wait.
    pub(crate) fn has_lines(&self) -> bool {
        self.lines.get().is_some()
    }

    /// Returns whether a call waits. If not, a call that lines up later sees everything that was
    /// written before this function was called.
    pub(crate) fn is_waited_for(&self) -> bool {
        let Some(lines) = self.lines.get() else {
            return false;
        };
        for part in &lines.parts {
            if !part.lock().lines.is_empty() {
                return true;
            }
        }
        false
    }

    /// The number of waiting calls.
    pub(crate) fn waiting(&self) -> u32 {
        let lines = self.lines.get();
        lines.map_or(0, |lines| lines.waiting.load(Ordering::Relaxed))
    }

    /// Returns the lines. Creates them if there are none yet.
    fn lines_or_create(&self) -> &Lines {
        self.lines.get_or_init(|| Box::new(Lines::new()))
    }
}

// === impl Lines ===

impl Lines {
    fn new() -> Self {
        let limit: KeyLimitNow = StdArc::new(|_, _| u32::MAX);
        let mut parts = Vec::with_capacity(LOCKS);
        for _ in 0..LOCKS {
            parts.push(Lock::new(Part {
                limit: limit.clone(),
                lines: HashMap::default(),
            }));
        }
        Self {
            parts: parts.into(),
            next: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    /// The size of the lines without waiting calls, in bytes.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.parts)
    }

    /// Returns the part with the line of `place`.
    fn part(&self, place: WordPlace) -> &Lock<Part> {
        match place {
            WordPlace::Slot(slot) => &self.parts[slot as usize % LOCKS],
            WordPlace::Overflow => &self.parts[0],
        }
    }

    /// Puts `call` in the line of `place`, after its word was marked.
    fn join(
        &self,
        table: &KeyTable,
        place: WordPlace,
        call: Waiter,
        limits: WaitLimits,
        number: Option<u64>,
    ) -> Result<LineTicket, NoLine> {
        let mut woken = Wakers::new();
        let ticket = {
            let mut part = self.part(place).lock();
            if !planted(Bug::MarkBeforeLock) {
                let mark = |word| Some(running::marked(word));
                table
                    .change(place, call.key.0, &mark)
                    .ok_or(NoLine::Moved)?;
            }
            let length = part.lines.get(&place).map_or(0, Waiters::len);
            if length >= limits.of_key as usize || !self.count_in(limits.of_all) {
                part.unmark_if_empty(table, place);
                return Err(NoLine::Full);
            }
            let number = number.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
            part.lines.entry(place).or_default().insert(number, call);
            if !planted(Bug::WaitWithoutLook) {
                self.pass_on(&mut part, table, place, &mut woken);
            }
            LineTicket { place, number }
        };
        wake(woken);
        Ok(ticket)
    }

    /// Counts one more waiting call and returns true, or returns false if `max` calls wait already.
    fn count_in(&self, max: u32) -> bool {
        let more = |waiting| (waiting < max).then(|| waiting + 1);
        let (won, lost) = (Ordering::Relaxed, Ordering::Relaxed);
        self.waiting.fetch_update(won, lost, more).is_ok()
    }

    /// Gives free places to the calls that wait at `place`.
    fn let_in(&self, table: &KeyTable, place: WordPlace) {
        let mut woken = Wakers::new();
        self.pass_on(&mut self.part(place).lock(), table, place, &mut woken);
        wake(woken);
    }

    /// Gives free places to all calls that wait.
    fn let_all_in(&self, table: &KeyTable) {
        for part in &self.parts {
            let mut woken = Wakers::new();
            {
                let mut part = part.lock();
                let mut places = Vec::with_capacity(part.lines.len());
                for place in part.lines.keys() {
                    places.push(*place);
                }
                for place in places {
                    self.pass_on(&mut part, table, place, &mut woken);
                }
            }
            wake(woken);
        }
    }

    /// Gives free places to the first calls of the line at `place`.
    fn pass_on(&self, part: &mut Part, table: &KeyTable, place: WordPlace, woken: &mut Wakers) {
        let Some(line) = part.lines.get_mut(&place) else {
            // The word is marked although no call waits: the call that set the mark will join the
            // line or remove the mark.
            return;
        };
        while let Some(call) = line.first() {
            let tier = call.tier.as_ref().map(OwnedKey::as_key);
            let limit = (part.limit)(call.key, tier.as_ref());
            let let_in = |word| running::let_in(word, limit);
            if table.change_pinned(place, let_in).is_none() {
                return;
            }
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            woken.extend(line.pop_first().and_then(|call| call.waker));
        }
        part.lines.remove(&place);
        part.unmark_if_empty(table, place);
    }

    /// Removes a call from the line. Returns whether the call had already got a place, which it
    /// then holds.
    fn cancel(&self, table: &KeyTable, ticket: LineTicket) -> bool {
        let mut woken = Wakers::new();
        let gone = {
            let mut part = self.part(ticket.place).lock();
            let line = part.lines.get_mut(&ticket.place);
            let gone = line.and_then(|line| line.remove(ticket.number));
            if gone.is_some() {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                // The next call may be in another tier, and have room.
                self.pass_on(&mut part, table, ticket.place, &mut woken);
            }
            gone
        };
        wake(woken);
        // The waker of `gone` can own a call in a line, whose drop takes the lock. So the waker is
        // dropped after the lock is released.
        gone.is_none() && !planted(Bug::LeaveBlindly)
    }

    /// Returns whether the call with this ticket has got a place. If not, keeps `waker` for it.
    fn has_place(&self, ticket: LineTicket, waker: Option<&Waker>) -> bool {
        let mut part = self.part(ticket.place).lock();
        let line = part.lines.get_mut(&ticket.place);
        let Some(call) = line.and_then(|line| line.get_mut(ticket.number)) else {
            return true;
        };
        let own = &mut call.waker;
        let is_new = |waker: &&Waker| own.as_ref().is_none_or(|own| !own.will_wake(waker));
        let old = match waker.filter(is_new) {
            Some(waker) => own.replace(waker.clone()),
            None => None,
        };
        // The old waker is dropped after the lock is released, as in `cancel`.
        drop(part);
        drop(old);
        false
    }
}

impl Part {
    /// Removes the mark at `place` if no call waits there.
    fn unmark_if_empty(&self, table: &KeyTable, place: WordPlace) {
        if !self.lines.contains_key(&place) {
            table.change_pinned(place, |word| Some(running::unmarked(word)));
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// Wakes the calls that have got a place.
fn wake(woken: Wakers) {
    for waker in woken {
        // A waker is foreign code and can panic. The remaining calls must be woken even then.
        let _ = catch_panic(|| waker.wake());
    }
}
