//! One counter of the store, as calls of this process see it.
//!
//! A call takes permits from the [cell](super::cell). Where that has none, it asks: then it
//! waits with a [ticket](super::ticket) for the refiller, or is served at once from the share
//! of this process if the store is away.

use std::time::Duration;

use super::StoreKey;
use super::cell::{BucketEnd, Cell, Found};
use super::draw::Draw;
use super::figures::RuleFigures;
use super::hub::Hub;
use super::ledger::{Ledger, Nodes, Report, Seen, Terms, Window};
use super::settings::WhenDown;
use super::ticket::{Answer, Slot, Ticket};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Lock, Ordering};
use crate::clock::Tick;

/// A counter that the store has not answered about is served without it for so long.
const CELL_DOWN: Duration = Duration::from_millis(200);
/// Without the store, calls are refused for no longer at a time: it may be back.
const MOST_LOCAL_REFUSAL: Duration = Duration::from_millis(100);
/// A hot counter that is exhausted is asked about again after that: others may give back.
const HOT_RETRY: Duration = Duration::from_millis(20);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SharedQuota {
    key: StoreKey,
    window: Window,
    cell: Cell,
    ledger: Lock<Ledger>,
    /// When there will be room again, as the store has said, in ns.
    room_at: AtomicU64,
    /// Whether the refiller has been told to look at it.
    pub(super) is_listed: AtomicBool,
    figures: Arc<RuleFigures>,
    hub: Arc<Hub>,
}

/// What a call is told that finds no permits in the cell.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It must wait for the store.
    Waits(Ticket),
    Told(Answer),
}

/// What the refiller goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) now: Tick,
    pub(super) nodes: Nodes,
    pub(super) horizon: Duration,
    /// How long a trip takes.
    pub(super) trip: Duration,
    /// Whether no more than the share may be drawn.
    pub(super) is_recovering: bool,
}

/// A draw that is on its way: what it was for.
#[derive(Debug)]
pub(super) struct OnTheWay {
    pub(super) quota: Arc<SharedQuota>,
    tickets: usize,
    firm: u32,
    report: Report,
}

/// What became of a draw, for the refiller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// Calls wait for the next trip.
    AskAgain,
    /// The store has lost its data.
    Lost,
}

/// What a granted draw says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) permits: u32,
    pub(super) free: u32,
    pub(super) rest: Duration,
    pub(super) bucket: u64,
    pub(super) epoch: super::Epoch,
    pub(super) wait: Duration,
    pub(super) sent: Tick,
    pub(super) received: Tick,
}

impl SharedQuota {
    pub(crate) fn new(
        key: StoreKey,
        window: Window,
        terms: Terms,
        figures: Arc<RuleFigures>,
        hub: &Arc<Hub>,
    ) -> Arc<Self> {
        let quota = Arc::new(Self {
            key,
            window,
            cell: Cell::default(),
            ledger: Lock::new(Ledger::new(terms, window)),
            room_at: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            figures,
            hub: hub.clone(),
        });
        hub.register(&quota);
        quota
    }

    pub(crate) const fn key(&self) -> &StoreKey {
        &self.key
    }

    pub(crate) const fn window(&self) -> Window {
        self.window
    }

    pub(crate) const fn figures(&self) -> &Arc<RuleFigures> {
        &self.figures
    }

    pub(crate) fn terms(&self) -> Terms {
        self.ledger.lock().terms
    }

    /// Goes on by other terms, with what was counted.
    pub(crate) fn set_terms(&self, terms: Terms) {
        let mut ledger = self.ledger.lock();
        if ledger.terms != terms {
            ledger.terms = terms;
            self.cell.reopen();
        }
    }

    // --- calls ---

    /// Takes `n` permits that are in hand.
    #[inline]
    pub(crate) fn take(&self, now: Tick, n: u32) -> Found {
        self.cell.take(now, n)
    }

    /// Asks for `n` permits that are not in hand.
    pub(crate) fn ask(self: &Arc<Self>, now: Tick, n: u32) -> Asked {
        let mut ledger = self.ledger.lock();
        let nodes = self.hub.nodes();
        if n > limit_of(&ledger.terms, nodes) {
            return Asked::Told(Answer::Refused(None));
        }
        // Another call may have brought some.
        match self.cell.take(now, n) {
            Found::Taken(end) => return Asked::Told(Answer::Granted(end)),
            Found::Exhausted(at) => return Asked::Told(Answer::Refused(Some(at))),
            Found::Nothing => {}
        }
        let is_down = ledger.down_until.is_some_and(|until| now < until);
        if is_down || !self.hub.is_up() {
            return Asked::Told(self.serve(&mut ledger, now, n));
        }
        let slot = Arc::new(Slot::default());
        ledger.tickets.push_back((n, slot.clone()));
        drop(ledger);
        self.figures.waited.add(1);
        self.hub.look_at(self);
        if !self.hub.is_up() {
            // It went down meanwhile, and may have answered all others before.
            self.answer_without_store(now);
        }
        Asked::Waits(Ticket::new(self.clone(), slot, n))
    }

    /// What the rule does with a call of weight `n` that has no answer of the store.
    pub(crate) fn without_store(&self, now: Tick, n: u32) -> Answer {
        self.serve(&mut self.ledger.lock(), now, n)
    }

    fn serve(&self, ledger: &mut Ledger, now: Tick, n: u32) -> Answer {
        match ledger.terms.when_down {
            WhenDown::Open => {
                self.figures.local.add(n.into());
                Answer::Open
            }
            WhenDown::Closed => Answer::Closed,
            WhenDown::LocalShare => self.serve_share(ledger, now, n),
        }
    }

    /// Serves a call from the share of this process. What is left of it goes into the cell.
    fn serve_share(&self, ledger: &mut Ledger, now: Tick, n: u32) -> Answer {
        let nodes = self.hub.nodes();
        self.close(ledger, now);
        let here = ledger.here(now);
        if now >= here.end {
            return Answer::Refused(Some(here.next));
        }
        let left = ledger.share_left(here.number, nodes);
        if left < n {
            let at = ledger.local_room_at(now, nodes);
            if self.cell.in_hand(now).is_none() {
                self.cell.exhaust(at.min(now + MOST_LOCAL_REFUSAL));
            }
            self.room_at.store(at.as_nanos(), Ordering::Relaxed);
            return Answer::Refused(Some(at));
        }
        let end = BucketEnd::at(here.end);
        ledger.book_local(here.number, left);
        let out = self.cell.put(end, left - n, self.window.bucket);
        ledger.unbook(here.number, out.new);
        ledger.last_held = 0;
        self.figures.local.add(n.into());
        Answer::Granted(end)
    }

    /// Refunds `n` permits of the bucket that ends at `end`: they were not used.
    pub(crate) fn refund(self: &Arc<Self>, end: BucketEnd, n: u32, now: Tick) {
        if !self.cell.refund(end, n, now, self.window.bucket) {
            let mut ledger = self.ledger.lock();
            let bucket = ledger.bucket_of(end);
            let lost = ledger.return_later(bucket, n);
            drop(ledger);
            self.figures.lost.add(lost.into());
            self.hub.look_at(self);
        }
    }

    pub(super) fn refund_now(self: &Arc<Self>, end: BucketEnd, n: u32) {
        self.refund(end, n, self.hub.now());
    }

    /// When there will be room again, for a call that was refused until `at`.
    pub(crate) fn room_at(&self, at: Tick) -> Tick {
        at.max(Tick::from_nanos(self.room_at.load(Ordering::Relaxed)))
    }

    /// How many permits the process has in hand.
    pub(crate) fn in_hand(&self, now: Tick) -> u32 {
        self.cell.in_hand(now).map_or(0, |(_, permits)| permits)
    }

    // --- the refiller ---

    /// Takes what is left of a lease that is over to where it came from.
    fn close(&self, ledger: &mut Ledger, now: Tick) {
        if let Some((end, left)) = self.cell.close(now) {
            let bucket = ledger.bucket_of(end);
            let lost = ledger.return_later(bucket, left);
            self.figures.lost.add(lost.into());
            ledger.demand.add(ledger.last_held.saturating_sub(left));
            ledger.last_held = 0;
        }
    }

    /// Takes what calls have used into the demand.
    fn observe(&self, ledger: &mut Ledger, now: Tick) -> u32 {
        self.close(ledger, now);
        let held = self.in_hand(now);
        let used = ledger.last_held.saturating_sub(held);
        ledger.demand.add(used);
        self.figures.granted.add(used.into());
        ledger.last_held = held;
        ledger.demand.observe(now);
        held
    }

    /// The next draw, if one is due.
    pub(super) fn prepare(self: &Arc<Self>, by: &Conditions) -> Option<(Draw, OnTheWay)> {
        let mut ledger = self.ledger.lock();
        let ledger = &mut *ledger;
        if ledger.in_flight {
            return None;
        }
        let now = by.now;
        let held = self.observe(ledger, now);
        let limit = limit_of(&ledger.terms, by.nodes);
        let here = ledger.here(now);
        let firm = ledger
            .tickets
            .iter()
            .fold(0, |sum: u32, (n, _)| sum.saturating_add(*n));
        let target = self.target(ledger, by, here.end - now).min(limit);
        let is_due = firm > 0 || held < target.div_ceil(2);
        let soft = if is_due {
            target.saturating_sub(held)
        } else {
            0
        };
        if held > target.saturating_mul(4).max(4) && ledger.is_hot {
            self.withdraw(ledger, held - target);
        }
        let (mut firm_now, mut soft) = (firm, soft);
        if by.is_recovering {
            let left = ledger.share_left(here.number, by.nodes);
            firm_now = firm.min(left);
            soft = soft.min(left - firm_now);
        }
        let add = ledger.to_report(now);
        let back = ledger.back.take();
        if firm_now == 0 && soft == 0 && add.is_empty() && back.is_none() {
            if firm > 0 {
                self.refuse_all(ledger, here.next);
            }
            return None;
        }
        ledger.in_flight = true;
        let draw = Draw {
            key: self.key.clone(),
            bucket: self.window.bucket,
            buckets: self.window.buckets,
            limit,
            firm: firm_now,
            soft,
            divisor: by.nodes.count,
            next: false,
            back,
            known: ledger.known_epoch(now),
            add,
        };
        let sent = OnTheWay {
            quota: self.clone(),
            tickets: ledger.tickets.len(),
            firm: firm_now,
            report: ledger.report,
        };
        Some((draw, sent))
    }

    fn target(&self, ledger: &Ledger, by: &Conditions, left: Duration) -> u32 {
        if ledger.terms.exact {
            return 0;
        }
        let horizon = by.horizon.min(self.window.bucket / 10);
        if ledger.demand.within(horizon) == 0 {
            return 0;
        }
        ledger.demand.within((horizon + by.trip).min(left))
    }

    fn withdraw(&self, ledger: &mut Ledger, n: u32) {
        if let Some((end, out)) = self.cell.withdraw(n) {
            let bucket = ledger.bucket_of(end);
            let lost = ledger.return_later(bucket, out);
            self.figures.lost.add(lost.into());
            ledger.last_held = ledger.last_held.saturating_sub(out);
        }
    }

    fn refuse_all(&self, ledger: &mut Ledger, at: Tick) {
        for (_, slot) in ledger.tickets.drain(..) {
            slot.answer(Answer::Refused(Some(at)));
        }
    }

    /// Whether it must be looked at often, and whether it is so from now on.
    pub(super) fn is_newly_hot(&self) -> bool {
        let mut ledger = self.ledger.lock();
        let is_hot = ledger.last_held > 0 || ledger.demand.within(self.window.bucket / 10) > 0;
        let was_hot = ledger.is_hot;
        ledger.is_hot = is_hot && !ledger.terms.exact;
        ledger.is_hot && !was_hot
    }

    /// Whether it still must be looked at often.
    pub(super) fn is_still_hot(&self) -> bool {
        let mut ledger = self.ledger.lock();
        ledger.is_hot = ledger.last_held > 0 || ledger.demand.within(self.window.bucket / 10) > 0;
        ledger.is_hot
    }

    /// Takes what a draw was granted.
    pub(super) fn granted(&self, sent: &OnTheWay, grant: &Grant) -> After {
        let mut ledger = self.ledger.lock();
        let ledger = &mut *ledger;
        ledger.in_flight = false;
        let now = grant.received;
        let length = self.window.bucket;
        let seen = Seen::new(grant.bucket, grant.rest, grant.sent, now, length);
        ledger.book_drawn(grant.bucket, grant.permits);
        ledger.see(seen, grant.free);
        if sent.report == ledger.report {
            ledger.reported();
        }
        if grant.permits > 0 || sent.report != Report::Nothing {
            ledger.set_epoch(grant.epoch);
        }
        if now >= seen.end && grant.permits > 0 {
            let lost = ledger.return_later(grant.bucket, grant.permits);
            self.figures.lost.add(lost.into());
            return if ledger.tickets.is_empty() {
                After::Nothing
            } else {
                After::AskAgain
            };
        }
        let end = BucketEnd::at(seen.end);
        let room_at = now + grant.wait;
        let is_short = grant.permits < sent.firm;
        let mut left = grant.permits;
        let mut next_at = None;
        if is_short {
            self.room_at.store(room_at.as_nanos(), Ordering::Relaxed);
            next_at = Some(room_at);
        }
        let asked = sent.tickets.min(ledger.tickets.len());
        for (n, slot) in ledger.tickets.drain(..asked) {
            if n <= left {
                if slot.answer(Answer::Granted(end)) {
                    left -= n;
                    ledger.demand.add(n);
                    self.figures.granted.add(n.into());
                }
            } else {
                slot.answer(Answer::Refused(Some(next_at.unwrap_or(seen.next))));
            }
        }
        let out = self.cell.put(end, left, length);
        self.return_now(ledger, grant.bucket, out.new);
        if out.old > 0 {
            let before = grant.bucket.saturating_sub(1);
            self.return_now(ledger, before, out.old);
        }
        ledger.last_held = self.in_hand(now);
        if is_short {
            let until = if ledger.is_hot {
                room_at.min(now + HOT_RETRY)
            } else {
                room_at
            };
            self.cell.exhaust(until);
        }
        if ledger.tickets.is_empty() {
            After::Nothing
        } else {
            After::AskAgain
        }
    }

    fn return_now(&self, ledger: &mut Ledger, bucket: u64, n: u32) {
        if n > 0 {
            let lost = ledger.return_later(bucket, n);
            self.figures.lost.add(lost.into());
        }
    }

    /// A draw was not applied, because the store has lost its data.
    pub(super) fn lost(&self, seen: Seen) -> After {
        let mut ledger = self.ledger.lock();
        ledger.in_flight = false;
        ledger.see_time(seen);
        ledger.report = Report::All;
        After::Lost
    }

    /// A draw has failed. If it alone has, the counter is served without the store for a while.
    pub(super) fn failed(&self, now: Tick, alone: bool) {
        let mut ledger = self.ledger.lock();
        ledger.in_flight = false;
        if alone {
            ledger.down_until = Some(now + CELL_DOWN);
        }
        drop(ledger);
        self.answer_without_store(now);
    }

    /// Answers all calls that wait, without the store.
    pub(super) fn answer_without_store(&self, now: Tick) {
        let mut ledger = self.ledger.lock();
        // What was to go back cannot, and is not remembered.
        ledger.back = None;
        let tickets = std::mem::take(&mut ledger.tickets);
        for (n, slot) in tickets {
            let answer = self.serve(&mut ledger, now, n);
            if !slot.answer(answer) {
                if let Answer::Granted(end) = answer {
                    let bucket = ledger.bucket_of(end);
                    if !self.cell.refund(end, n, now, self.window.bucket) {
                        ledger.unbook(bucket, n);
                    }
                }
            }
        }
    }

    /// The store is there again: whether it must be told of own permits.
    pub(super) fn must_report(&self, report: Report, now: Tick) -> bool {
        self.ledger.lock().must_report(report, now)
    }

    /// Takes out all that is in hand, to be given back.
    pub(super) fn empty(&self, now: Tick) {
        let mut ledger = self.ledger.lock();
        self.close(&mut ledger, now);
        self.withdraw(&mut ledger, u32::MAX);
        ledger.demand = super::demand::Demand::default();
        ledger.is_hot = false;
    }
}

/// The limit of all processes together.
fn limit_of(terms: &Terms, nodes: Nodes) -> u32 {
    if terms.per_node {
        terms.limit.saturating_mul(nodes.count)
    } else {
        terms.limit
    }
}
