//! The state of a counter that exists only while something is pending: waiting calls, permits to
//! return, or an outage of this counter alone. Most counters belong to keys with nothing pending,
//! so this state is in a box to save memory.

use std::time::Duration;

use super::Ledger;
use super::out::Out;
use crate::clock::Tick;
use crate::store::ahead::Ahead;
use crate::store::draw::Booking;
use crate::store::ticket::Asker;

/// The time for which a counter is served without the store after a draw of this counter alone has
/// failed.
const CELL_DOWN: Duration = Duration::from_millis(200);
/// The time after [`CELL_DOWN`] in which the counter draws no more than its share. Meanwhile, the
/// other processes report to the store the permits that they took without it.
const CELL_RECOVERS: Duration = Duration::from_millis(500);

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::store) struct Pending {
    /// The calls that wait for permits of the present bucket, in the order of their arrival.
    pub(in crate::store) tickets: Vec<Asker>,
    /// The calls that ask for permits of the next bucket; `None` unless a call has asked.
    pub(in crate::store) ahead: Option<Box<Ahead>>,
    /// Permits to return to the store. Each draw returns the permits of one bucket.
    pub(super) back: Vec<Booking>,
    /// The time until which this counter alone is served without the store.
    down_until: Option<Tick>,
    pub(super) out: Out,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.tickets.is_empty()
            && self.ahead.is_none()
            && self.back.is_empty()
            && self.down_until.is_none()
            && self.out.is_empty()
    }
}

impl Ledger {
    pub(in crate::store) fn pending_mut(&mut self) -> &mut Pending {
        self.pending.get_or_insert_default()
    }

    /// Drops the parts of the pending state that are no longer needed.
    pub(in crate::store) fn tidy(&mut self, now: Tick) {
        let here = self.here(now).number;
        let Some(pending) = &mut self.pending else {
            return;
        };
        let was_down = |until: &mut Tick| now < *until + CELL_RECOVERS;
        pending.down_until.take_if(|until| !was_down(until));
        let is_over = |ahead: &mut Box<Ahead>| {
            let is_of_here = ahead.asked_in == here || ahead.short_in == Some(here);
            ahead.tickets.is_empty() && !is_of_here
        };
        pending.ahead.take_if(is_over);
        if pending.is_empty() {
            self.pending = None;
        }
    }

    // --- calls that wait ---

    /// Returns the calls that wait for permits of the present bucket.
    pub(in crate::store) fn tickets(&self) -> &[Asker] {
        let pending = self.pending.as_ref();
        pending.map_or(&[], |pending| &pending.tickets)
    }

    /// Removes the first `most` calls that wait for the present bucket. The caller answers them.
    pub(in crate::store) fn take_tickets(&mut self, most: usize) -> Vec<Asker> {
        let Some(pending) = &mut self.pending else {
            return Vec::new();
        };
        let others = pending.tickets.split_off(most.min(pending.tickets.len()));
        std::mem::replace(&mut pending.tickets, others)
    }

    /// Puts calls whose draw granted nothing back at the front of their queue. They wait for the
    /// bucket after `ahead_of`, or for the present bucket if `ahead_of` is `None`.
    pub(in crate::store) fn ask_again(&mut self, mut askers: Vec<Asker>, ahead_of: Option<u64>) {
        if askers.is_empty() {
            return;
        }
        let tickets = if let Some(number) = ahead_of {
            let ahead = self.ahead_or_new();
            ahead.asked_in = number;
            &mut ahead.tickets
        } else {
            &mut self.pending_mut().tickets
        };
        askers.append(tickets);
        *tickets = askers;
    }

    /// Passes each call that waits for the present bucket to `answer`, in order, and keeps the
    /// calls for which `answer` returns false.
    pub(in crate::store) fn answer_tickets(
        &mut self,
        mut answer: impl FnMut(&mut Self, &Asker) -> bool,
    ) {
        let mut tickets = self.take_tickets(usize::MAX);
        tickets.retain(|asker| !answer(self, asker));
        if !tickets.is_empty() {
            self.pending_mut().tickets = tickets;
        }
    }

    /// Returns the calls that ask for permits of the next bucket.
    pub(in crate::store) fn ahead(&self) -> Option<&Ahead> {
        self.pending.as_ref()?.ahead.as_deref()
    }

    pub(in crate::store) fn ahead_or_new(&mut self) -> &mut Ahead {
        self.pending_mut().ahead.get_or_insert_default()
    }

    /// Removes and returns all calls that ask for permits of the next bucket.
    pub(in crate::store) fn take_ahead(&mut self) -> Vec<Asker> {
        let ahead = self.pending.as_mut().and_then(|it| it.ahead.take());
        ahead.map_or_else(Vec::new, |ahead| ahead.tickets)
    }

    /// Makes a call wait for permits of the bucket after the one at `now`.
    pub(in crate::store) fn ask_ahead(&mut self, asker: Asker, now: Tick) {
        self.arrive(now);
        let number = self.here(now).number;
        let ahead = self.ahead_or_new();
        ahead.asked_in = number;
        ahead.tickets.push(asker);
    }

    /// Moves calls that have asked ahead to the queue for the present bucket, once the bucket for
    /// which they asked has begun.
    pub(in crate::store) fn arrive(&mut self, now: Tick) {
        let number = self.here(now).number;
        let Some(pending) = &mut self.pending else {
            return;
        };
        if let Some(ahead) = pending.ahead.as_mut().filter(|it| it.asked_in != number) {
            pending.tickets.append(&mut ahead.tickets);
        }
    }

    /// Returns whether a call waits for permits of the next bucket.
    pub(in crate::store) fn asks_ahead(&self) -> bool {
        self.ahead().is_some_and(|ahead| !ahead.tickets.is_empty())
    }

    // --- an outage of this counter alone ---

    /// Notes that the store has answered other draws, but not the draw of this counter.
    pub(in crate::store) fn note_down(&mut self, now: Tick) {
        self.pending_mut().down_until = Some(now + CELL_DOWN);
    }

    /// Returns whether this counter alone is served without the store.
    pub(in crate::store) fn is_down(&self, now: Tick) -> bool {
        self.down_until().is_some_and(|until| now < until)
    }

    /// Returns whether this counter alone is served without the store, or was until less than
    /// [`CELL_RECOVERS`] ago.
    pub(in crate::store) fn was_down(&self, now: Tick) -> bool {
        let recovers = self.down_until().map(|until| until + CELL_RECOVERS);
        recovers.is_some_and(|until| now < until)
    }

    fn down_until(&self) -> Option<Tick> {
        self.pending.as_ref()?.down_until
    }
}
