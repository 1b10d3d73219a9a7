//! The operations of calls on a shared quota: taking, refunding and asking for permits.

use super::{Asked, MOST_LOCAL_REFUSAL, SharedQuota};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Bug, Lock, Ordering, planted};
use crate::clock::Tick;
use crate::stat::TablePlace;
use crate::store::StoreKey;
use crate::store::books::Books;
use crate::store::cell::{BucketEnd, Cell, LeaseFound, PutRest};
use crate::store::digest::CounterDigest;
use crate::store::ledger::{Ledger, Uncounted};
use crate::store::settings::WhenDown;
use crate::store::terms::{QuotaRule, Terms, Window};
use crate::store::ticket::{Answer, Asker, Slot, Ticket, Validity};

impl SharedQuota {
    pub(crate) fn new(digest: CounterDigest, terms: Terms, rule: &Arc<QuotaRule>) -> Arc<Self> {
        let quota = Arc::new(Self {
            digest,
            rule: rule.clone(),
            cell: Cell::default(),
            books: Lock::new(Books::AtRest(rule.share(terms))),
            available_at: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            place: TablePlace::default(),
            used: AtomicU32::new(0),
        });
        rule.hub.register(&quota);
        quota
    }

    pub(crate) fn rule(&self) -> &QuotaRule {
        &self.rule
    }

    pub(in crate::store) fn window(&self) -> Window {
        *self.rule.window
    }

    /// Returns the counter's name in the store.
    pub(crate) fn store_key(&self) -> StoreKey {
        self.rule.hub.key(self.digest)
    }

    /// Returns the key of the counter in a draw made in the bucket `number`. The key depends on the
    /// bucket only for calendar windows, which have a counter per day or month.
    pub(in crate::store) fn store_key_in(&self, number: u64) -> StoreKey {
        self.rule.hub.key_in(self.digest, *self.rule.window, number)
    }

    /// Returns whether both quotas are counted under the same name in the store. They can be
    /// different objects: a key that finds no place in its table gets a new quota each time it is
    /// looked up.
    pub(crate) fn counts_as(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Returns whether a call of `weight` can ever pass.
    pub(crate) fn fits(&self, weight: u32) -> bool {
        self.terms().fits(weight, self.rule.hub.nodes())
    }

    pub(crate) fn terms(&self) -> Terms {
        **self.books.lock().terms()
    }

    /// Replaces the terms, and keeps the counts.
    pub(crate) fn set_terms(&self, terms: Terms) {
        let mut books = self.books.lock();
        if **books.terms() != terms {
            *books.terms_mut() = self.rule.share(terms);
            if let Some(ledger) = books.ledger() {
                ledger.has_none = false;
            }
            self.cell.reopen();
        }
    }

    // --- calls ---

    /// Takes `weight` permits out of the cell.
    #[inline]
    pub(crate) fn take(&self, now: Tick, weight: u32) -> LeaseFound {
        self.cell.take(now, weight)
    }

    /// Asks for `weight` permits that the cell does not have. A call with a `latest` time also
    /// accepts permits of the next bucket, if this bucket begins before `latest`.
    pub(crate) fn ask(this: &Arc<Self>, now: Tick, weight: u32, latest: Option<Tick>) -> Asked {
        let mut books = this.books.lock();
        let nodes = this.rule.hub.nodes();
        if !books.terms().fits(weight, nodes) {
            return Asked::Answered(Answer::Refused(None));
        }
        this.rule.note_wanted(weight);
        let mut is_ahead = false;
        // The draw of another call may have brought permits since this call looked at the cell.
        match this.look(books.ledger(), now, weight) {
            LeaseFound::Taken(end) => {
                return Asked::Answered(Answer::Granted(Validity::until(end)));
            }
            LeaseFound::Exhausted(at) => {
                let refused = Answer::Refused(Some(at));
                let lends = |ledger: &mut Ledger| {
                    latest.filter(|&by| this.lends(ledger, now, weight, by).is_some())
                };
                let latest = books.ledger().and_then(lends);
                if latest.is_none() {
                    // Without a ledger, the counter has no draws to pay for.
                    if let Some(ledger) = books.ledger() {
                        ledger.note_call();
                    }
                    return Asked::Answered(refused);
                }
                is_ahead = true;
            }
            LeaseFound::Nothing => {}
        }
        let ledger = books.open(&this.rule);
        ledger.note_call();
        if this.is_down(ledger, now) {
            return Asked::Answered(this.serve(ledger, now, weight));
        }
        let slot = Arc::new(Slot::default());
        let asker = Asker {
            weight,
            latest,
            asked: now,
            slot: slot.clone(),
        };
        if is_ahead {
            ledger.ask_ahead(asker, now);
        } else {
            ledger.pending_mut().tickets.push(asker);
        }
        drop(books);
        this.rule.figures.counts().waited.add(1);
        this.rule.hub.look_at(this);
        if !this.rule.hub.is_up() {
            // The store went down since the check above, and the refiller may have answered the
            // waiting calls before this call joined them.
            this.answer_without_store(now);
        }
        Asked::Waits(Ticket::new(this.clone(), slot, weight))
    }

    /// Answers a call of `weight` that got no answer from the store, as the rule's
    /// [`WhenDown`] setting says.
    pub(crate) fn without_store(this: &Arc<Self>, now: Tick, weight: u32) -> Answer {
        let mut books = this.books.lock();
        let answer = this.serve(books.open(&this.rule), now, weight);
        drop(books);
        if this.rule.hub.is_up() {
            // The store is up, and only this call's answer is late. The next draw reports what the
            // call takes here.
            this.rule.hub.look_at(this);
        }
        answer
    }

    /// Returns whether calls must be decided without the store.
    fn is_down(&self, ledger: &Ledger, now: Tick) -> bool {
        ledger.is_down(now) || !self.rule.hub.is_up()
    }

    /// Answers a call of `weight` without the store, as the rule's [`WhenDown`] setting says.
    pub(super) fn serve(&self, ledger: &mut Ledger, now: Tick, weight: u32) -> Answer {
        // Permits in the cell are valid with and without the store. The cell can also contain the
        // rest of the share, which an earlier call of this function has put there.
        if let LeaseFound::Taken(end) = self.cell.take(now, weight) {
            return Answer::Granted(Validity::until(end));
        }
        match ledger.terms.when_down {
            WhenDown::Open => {
                self.rule.figures.counts().local.add(weight.into());
                Answer::Open
            }
            WhenDown::Closed => Answer::Closed,
            WhenDown::LocalShare => self.serve_share(ledger, now, weight),
        }
    }

    /// Serves a call from the share of this process. While the store is unavailable, the rest of
    /// the share is put into the cell. If only this call's answer is late, the cell gets nothing,
    /// so that the next call asks the store again.
    fn serve_share(&self, ledger: &mut Ledger, now: Tick, weight: u32) -> Answer {
        let nodes = self.rule.hub.nodes();
        self.close(ledger, now);
        let here = ledger.here(now);
        if now >= here.end {
            return Answer::Refused(Some(here.next));
        }
        let left = ledger.share_left(here.number, nodes);
        if left < weight {
            let at = ledger.local_room_at(now, nodes);
            // For a counter of costs, a smaller call may still fit into the rest.
            let is_used_up = left == 0 || !ledger.terms.by_cost;
            if is_used_up && self.cell.in_hand(now).is_none() {
                self.cell.exhaust(at.min(now + MOST_LOCAL_REFUSAL));
            }
            self.available_at.store(at.as_nanos(), Ordering::Relaxed);
            ledger.has_none = false;
            return Answer::Refused(Some(at));
        }
        let end = BucketEnd::at(here.end);
        let more = if self.is_down(ledger, now) {
            left - weight
        } else {
            0
        };
        ledger.book_local(here.number, weight + more);
        let out = self.put(ledger, end, more, true);
        ledger.unbook(here.number, out.new);
        ledger.last_held = 0;
        self.rule.figures.counts().local.add(weight.into());
        Answer::Granted(Validity::until(end))
    }

    // --- counting ---

    /// Adds the permits that calls have taken out of the cell to the statistics.
    pub(crate) fn count_taken(&self) {
        if let Some(ledger) = self.books.lock().ledger() {
            self.count(ledger);
        }
    }

    /// Counts the permits that have left the cell since the last count as taken.
    pub(super) fn count(&self, ledger: &mut Ledger) {
        let left = self.cell.left();
        let taken = ledger.uncounted.permits.saturating_sub(left);
        self.add_taken(ledger, taken);
    }

    /// Adds `weight` permits, which the cell no longer holds, to the statistics.
    fn add_taken(&self, ledger: &mut Ledger, weight: u32) {
        if weight == 0 {
            return;
        }
        ledger.uncounted.permits -= weight;
        let counts = self.rule.figures.counts();
        if ledger.uncounted.are_local {
            counts.local.add(weight.into());
        } else {
            counts.granted.add(weight.into());
        }
    }

    /// Puts `weight` permits into the cell. `are_local` is true for permits from the local share,
    /// and false for a grant of the store.
    pub(super) fn put(
        &self,
        ledger: &mut Ledger,
        end: BucketEnd,
        weight: u32,
        are_local: bool,
    ) -> PutRest {
        self.count(ledger);
        let out = self.cell.put(end, weight, self.rule.window.bucket);
        if out.new == weight {
            return out;
        }
        let before = ledger.uncounted.end;
        if !before.is_bucket_of(end, self.rule.window.bucket) {
            // No permit of the previous bucket is left in the cell: permits that `put` did not
            // remove were taken by calls.
            let taken = ledger.uncounted.permits.saturating_sub(out.old);
            self.add_taken(ledger, taken);
            ledger.uncounted.permits = 0;
        }
        ledger.uncounted = Uncounted {
            end,
            permits: ledger.uncounted.permits + (weight - out.new),
            are_local,
        };
        out
    }

    /// Refunds `weight` permits that were not used. If their bucket has not begun, no other call
    /// may use them yet, so they go back to the store.
    pub(crate) fn refund(this: &Arc<Self>, valid: Validity, weight: u32, now: Tick) {
        if this.rule.is_by_cost() {
            return Self::give_back(this, valid, weight, now);
        }
        let has_begun = now >= valid.from || planted(Bug::RefundBeforeBucket);
        let length = this.rule.window.bucket;
        if !has_begun || !this.cell.refund(valid.end, weight, now, length) {
            let mut books = this.books.lock();
            // The ledger is dropped once the window of the permits is over. They have then expired,
            // so none are returned.
            let lost = books.ledger().map_or(0, |ledger| {
                let bucket = ledger.bucket_of(valid.end);
                ledger.return_later(bucket, weight)
            });
            drop(books);
            this.rule.figures.counts().lost.add(lost.into());
            this.rule.hub.look_at(this);
        }
    }

    /// Refunds `weight` permits that were not used, at the present time. See
    /// [`refund`](Self::refund).
    pub(crate) fn refund_now(this: &Arc<Self>, valid: Validity, weight: u32) {
        Self::refund(this, valid, weight, this.rule.hub.now());
    }

    /// Returns the later of `at`, the time until which a call was refused, and the time at which
    /// the store expects room.
    pub(crate) fn available_at(&self, at: Tick) -> Tick {
        at.max(Tick::from_nanos(self.available_at.load(Ordering::Relaxed)))
    }

    /// Returns the estimated time at which the process can get `weight` permits again; `None` if
    /// never.
    pub(crate) fn room_at(&self, now: Tick, weight: u32) -> Option<Tick> {
        if !self.fits(weight) {
            return None;
        }
        // Taking zero permits shows whether the cell is exhausted.
        Some(match self.cell.take(now, 0) {
            LeaseFound::Exhausted(at) => self.available_at(at),
            LeaseFound::Taken(_) | LeaseFound::Nothing => now,
        })
    }

    /// Returns the limit, the estimated number of permits that this process can still get in the
    /// present bucket, and the end of this bucket. Returns `None` while the store is unavailable
    /// and the rule admits all calls.
    pub(crate) fn left(&self, now: Tick) -> Option<(u32, u32, Tick)> {
        let nodes = self.rule.hub.nodes();
        let mut books = self.books.lock();
        let ledger = books.open(&self.rule);
        let limit = ledger.terms.limit_of(nodes);
        let here = ledger.here(now);
        let free = match (self.rule.hub.is_up(), ledger.terms.when_down) {
            (false, WhenDown::Open) => return None,
            (false, WhenDown::Closed) => 0,
            (false, WhenDown::LocalShare) => ledger.share_left(here.number, nodes),
            (true, _) => ledger.free_at(here.number, limit),
        };
        drop(books);
        let left = match self.cell.take(now, 0) {
            LeaseFound::Exhausted(_) => 0,
            LeaseFound::Taken(_) | LeaseFound::Nothing => self.in_hand(now).saturating_add(free),
        };
        Some((limit, left.min(limit), here.next))
    }

    /// Returns how many permits calls can take out of the cell at `now`.
    pub(crate) fn in_hand(&self, now: Tick) -> u32 {
        self.cell.in_hand(now).map_or(0, |(_, permits)| permits)
    }
}
