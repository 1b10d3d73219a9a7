//! A call that runs: what it holds, and gives back when it ends.

use std::fmt;
use std::time::Duration;

use crate::adaptive::End;
use crate::breaker::Admission;
use crate::call::{Call, Direction};
use crate::call_nodes::{CallNodes, Claims, QuotaLeft};
use crate::clock::Tick;
use crate::resource::Resource;
use crate::rule::Running;
use crate::stat::Outcome;

/// A call that runs. Dropping it ends the call and books it, once: its weight,
/// its response time, how it ended, and one call less in flight.
///
/// If it is dropped while its thread panics, the call counts as failed, whatever it is
/// that panics: who holds it runs the call. One that is never dropped, as in a cycle of
/// references, never ends: it keeps its slot until the process ends.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, Rules, Sentinel};
/// use tower_sentinel::stat::Event;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(Rules::new());
/// let mut entry = sentinel.enter(Call::new("job")).await?;
/// entry.fail();
/// drop(entry);
/// let node = sentinel.node("job").expect("it has been called");
/// assert_eq!(node.totals().error(), 1);
/// # Ok::<(), tower_sentinel::Blocked>(())
/// # }).unwrap();
/// ```
#[must_use = "dropping the entry ends the call"]
pub struct Entry {
    nodes: CallNodes,
    start: Tick,
    /// When the response was there; until then [`RUNNING`].
    end: Tick,
    n: u32,
    /// Whether the call holds a concurrency slot.
    has_slot: bool,
    /// Whether a layer runs the call, and [tells](Self::panicked) if it panics: any
    /// other panic of the thread is none of the call's.
    is_guarded: bool,
    /// Whether nobody has waited for anything since the response was there.
    is_at_once: bool,
    /// How it will be booked; `None`: as cancelled.
    outcome: Option<Outcome>,
    /// What the call was given on its way, if anything.
    kept: Option<Kept>,
    aside: Option<Box<Aside>>,
}

/// What hardly any call has.
#[derive(Default)]
struct Aside {
    /// The same call as rules in shadow mode see it: they end with this one.
    watching: Vec<Entry>,
    /// What its parameters had left when it started, or began to wait.
    quota: Option<QuotaLeft>,
}

/// What a call was given on its way, to be given back at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// By circuit breakers.
    admission: Option<Admission>,
    /// By rules on its parameters.
    running: Running,
}

/// No clock comes that far.
const RUNNING: Tick = Tick::from_nanos(u64::MAX);

// === impl Kept ===

impl Kept {
    /// What a call on `resource` was given; `None` for nothing.
    #[inline]
    pub(crate) fn new(
        resource: &Resource,
        admission: Option<Admission>,
        claims: &Claims,
    ) -> Option<Self> {
        let params = resource.params();
        let running = params.map_or(Running::NONE, |params| params.keep(&claims.shares));
        let has_any = admission.is_some() || running != Running::NONE;
        has_any.then_some(Self { admission, running })
    }
}

impl From<Admission> for Kept {
    fn from(admission: Admission) -> Self {
        Self {
            admission: Some(admission),
            running: Running::NONE,
        }
    }
}

// === impl Entry ===

impl Entry {
    /// A call starts: its tokens are taken and counted.
    #[inline]
    pub(crate) const fn new(
        nodes: CallNodes,
        start: Tick,
        n: u32,
        has_slot: bool,
        kept: Option<Kept>,
    ) -> Self {
        Self {
            nodes,
            start,
            end: RUNNING,
            n,
            has_slot,
            is_guarded: false,
            is_at_once: false,
            outcome: Some(Outcome::Success),
            kept,
            aside: None,
        }
    }

    /// Ends `watching`, the same call as others see it, as this one ends.
    pub(crate) fn watch(&mut self, watching: Vec<Self>) {
        if !watching.is_empty() {
            self.aside.get_or_insert_default().watching = watching;
        }
    }

    /// Notes what the parameters of `call` have left, for who is told.
    #[cold]
    pub(crate) fn note_quota(&mut self, call: &Call<'_>) {
        if let Some(quota) = self.nodes.params_left(call, self.start) {
            self.tell_quota(quota);
        }
    }

    /// Who is told what is left is told of `quota` as well.
    pub(crate) fn tell_quota(&mut self, quota: QuotaLeft) {
        self.aside.get_or_insert_default().quota = Some(quota);
    }

    /// The resource that was called.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.nodes.resource().text()
    }

    /// Which way the call goes.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.nodes.resource().direction()
    }

    /// The call failed: it counts as an error.
    pub fn fail(&mut self) {
        self.outcome = Some(Outcome::Failure);
    }

    /// The call says nothing about the health of what was called: it counts as
    /// completed, and neither as a success nor as an error.
    pub fn ignore(&mut self) {
        self.outcome = Some(Outcome::Ignore);
    }

    /// Ends the call as one that was cancelled: it delivered nothing, and has no
    /// response time.
    pub fn cancel(mut self) {
        self.outcome = None;
    }

    /// From now on, dropping means that the call was cancelled, whatever the reason.
    pub(crate) fn expect_response(&mut self) {
        self.outcome = None;
        self.is_guarded = true;
    }

    /// Ends the call, which panics just now.
    pub(crate) fn panicked(mut self) {
        self.is_guarded = false;
        self.is_at_once = false;
    }

    /// The call ends now, with its response.
    #[inline]
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// The response is there: its time is measured now. Unless more is to be
    /// known, circuit breakers learn of it. The call goes on as what
    /// [`responded`](Self::responded) makes of it.
    #[inline]
    pub(crate) fn respond(&mut self, outcome: Outcome, is_final: bool) -> Tick {
        let now = self.nodes.resource().now();
        if self.kept.is_some() || self.aside.is_some() {
            self.tell_response(now, outcome, is_final);
        }
        now
    }

    /// The call whose response was there at `end`. By value, so that both are written
    /// where it moves to: what was written just before is dear to move.
    #[inline]
    pub(crate) fn responded(mut self, end: Tick, outcome: Outcome) -> Self {
        self.end = end;
        self.is_at_once = true;
        self.outcome = Some(outcome);
        self
    }

    /// The response goes on: the call ends some time after its head was there.
    #[inline]
    pub(crate) const fn go_on(&mut self) {
        self.is_at_once = false;
    }

    /// Who looks at responses learns of this one.
    #[inline(never)]
    fn tell_response(&mut self, now: Tick, outcome: Outcome, is_final: bool) {
        if is_final {
            self.tell_breakers(now, Some(outcome), now - self.start);
        }
        for watching in self.watching() {
            watching.end = watching.respond(outcome, is_final);
            watching.outcome = Some(outcome);
        }
    }

    /// Tells circuit breakers, once, how the call ended.
    #[cold]
    fn tell_breakers(&mut self, now: Tick, outcome: Option<Outcome>, rt: Duration) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        // A call that has nothing else to give back ends as most calls do.
        if kept.running != Running::NONE {
            self.kept = Some(Kept {
                admission: None,
                ..kept
            });
        }
        let Some(admission) = kept.admission else {
            return;
        };
        let resource = self.nodes.resource();
        resource.with_breakers(|breakers, told| match outcome {
            Some(Outcome::Success) => breakers.complete(now, admission, rt, false, told),
            Some(Outcome::Failure) => breakers.complete(now, admission, rt, true, told),
            // It says nothing about what was called, but for how long it took.
            Some(Outcome::Ignore) | None => breakers.cancel(now, admission, rt, told),
        });
    }

    /// The call's slot is free, and an adaptive limit learns of it.
    fn leave_slot(&self, now: Tick, rt: Duration, outcome: Option<Outcome>) {
        let resource = self.nodes.resource();
        if let Some((_, limiter)) = resource.limiter() {
            let end = match outcome {
                Some(Outcome::Success) => End::Delivered,
                Some(Outcome::Failure) => End::Failed,
                Some(Outcome::Ignore) | None => End::Cancelled,
            };
            limiter.ended(now, rt, || resource.node().slots_in_use(), end);
        }
        resource.node().free_slots(1);
    }

    /// The call runs no more for the rules on its parameters.
    #[cold]
    fn leave_params(&self) {
        let params = self.nodes.resource().params();
        if let (Some(params), Some(kept)) = (params, self.kept) {
            params.free(kept.running);
        }
    }

    /// What is left of the tightest quota.
    pub(crate) fn quota_left(&self) -> Option<QuotaLeft> {
        let now = self.nodes.resource().now();
        let noted = self.aside.as_ref().and_then(|aside| aside.quota.clone());
        QuotaLeft::tightest(self.nodes.quota_left(now).into_iter().chain(noted))
    }

    /// The call ends as this one does for those who watch.
    #[cold]
    fn end_watching(&mut self) {
        let (outcome, is_guarded) = (self.outcome, self.is_guarded);
        let is_at_once = self.is_at_once;
        for watching in self.watching() {
            watching.outcome = outcome;
            watching.is_guarded = is_guarded;
            watching.is_at_once = is_at_once;
        }
    }

    fn watching(&mut self) -> &mut [Self] {
        let aside = self.aside.as_deref_mut();
        aside.map_or(&mut [], |aside| &mut aside.watching)
    }

    /// The response, whose time has been measured, ended in another way than it
    /// began.
    pub(crate) fn revise(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Whether the time of the response is also that of the call's end: it came in one
    /// piece, and nobody wants to know when all of it was gone: a circuit breaker that waits
    /// for trailers, a count of running values, or an adaptive limit.
    #[inline]
    fn is_timed(&self) -> bool {
        let limiter = || self.nodes.resource().limiter();
        self.is_at_once && self.kept.is_none() && !(self.has_slot && limiter().is_some())
    }

    /// The call ends for everyone who counts it or wants to know.
    #[inline(never)]
    fn end_everywhere(&mut self, now: Tick, end: Tick, has_panicked: bool) {
        let outcome = if has_panicked {
            Some(Outcome::Failure)
        } else {
            self.outcome
        };
        if self.kept.is_some() {
            self.tell_breakers(now, outcome, end - self.start);
        }
        // If more was kept than breakers had to know.
        if self.kept.is_some() {
            self.leave_params();
        }
        let resource = self.nodes.resource();
        self.nodes.each(|node| {
            node.leave(now, self.n, end.nanos_since(self.start), outcome);
            if has_panicked {
                node.panicked();
            }
        });
        if self.has_slot {
            self.leave_slot(now, end - self.start, outcome);
        }
        if !resource.shared().hooks.is_empty() {
            resource.notify_ended(self.n, outcome, end - self.start);
        }
        if self.aside.is_some() {
            self.end_watching();
        }
    }
}

impl Drop for Entry {
    /// Nearly always only the resource's node learns of it, and its slots.
    ///
    /// A call whose response came in one piece is counted at the time of its head, which
    /// has been read: a reading of the clock is a tenth of what a layer adds.
    #[inline]
    fn drop(&mut self) {
        let resource = self.nodes.resource();
        let shared = resource.shared();
        let now = if self.is_timed() {
            self.end
        } else {
            resource.now()
        };
        let end = if self.end == RUNNING { now } else { self.end };
        let has_panicked = !self.is_guarded && std::thread::panicking();
        let more_learn = self.kept.is_some() || self.aside.is_some() || !self.nodes.is_one_node();
        if has_panicked || more_learn || !shared.hooks.is_empty() {
            return self.end_everywhere(now, end, has_panicked);
        }
        let rt_ns = end.nanos_since(self.start);
        resource.node().leave(now, self.n, rt_ns, self.outcome);
        if self.has_slot {
            self.leave_slot(now, end - self.start, self.outcome);
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("resource", &self.resource())
            .field("start", &self.start)
            .field("weight", &self.n)
            .finish_non_exhaustive()
    }
}

/// It travels in every response future and body.
#[cfg(not(sentinel_loom))]
const _: () = assert!(size_of::<Entry>() <= 88);
