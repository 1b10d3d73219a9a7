//! A running call: the slot, probes and places that it holds, which are released when it ends.

use std::fmt;
use std::mem;
use std::time::Duration;

use crate::adaptive::CallEnd;
use crate::base::small_vec::SmallVec;
use crate::base::sync::Arc;
use crate::breaker::Admission;
use crate::call::Direction;
use crate::clock::Tick;
use crate::engine::call::meter::{Meter, Metered};
use crate::engine::call::nodes::{CallNodes, Claims, QuotasLeft};
use crate::engine::call::rare::{BodyUnits, RareState};
use crate::engine::resource::Resource;
use crate::hook::Interest;
use crate::rule::{Accounts, LeaseAccount, RunningPlaces};
use crate::stat::{Outcome, SlotHold};

/// A running call. Dropping it ends the call and records, once, its weight, its response
/// time and how it ended; the call is then no longer in flight.
///
/// **The call counts as a success unless [`fail`](Self::fail), [`ignore`](Self::ignore) or
/// [`cancel`](Self::cancel) is called**, even if a `?` returns an error and drops the entry, or if
/// the future that holds the entry is dropped by a timeout or with its task. A circuit breaker then
/// counts a good call, and a probe closes the breaker. So call `fail` for each error.
/// [`Sentinel::run`](crate::Sentinel::run) and layers do so themselves.
///
/// If the entry is dropped while its thread panics, the call counts as failed, no matter where the
/// panic occurred, because the holder of the entry is assumed to run the call. An entry that is
/// never dropped, as in a cycle of references, keeps its slot until the process ends.
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
#[doc(alias("guard", "permit"))]
#[must_use = "dropping the entry ends the call"]
pub struct Entry {
    nodes: CallNodes,
    start: Tick,
    /// When the head of the response arrived; until then [`RUNNING`].
    responded_at: Tick,
    weight: u32,
    /// Whether the call holds a concurrency slot.
    has_slot: bool,
    /// Whether a layer runs the call and [reports](Self::panicked) its panic. If so, the entry
    /// ignores other panics of its thread.
    has_panic_guard: bool,
    /// Whether the whole response arrived with its head, as far as is known: no reader has waited
    /// for more of the body.
    body_was_ready: bool,
    /// The outcome that is recorded at the end; `None` for a cancelled call.
    outcome: Option<Outcome>,
    /// The permits, other than the slot, that the call releases when it ends.
    permits: Option<Permits>,
    /// State that few calls need, such as their cost.
    rare: Option<Arc<RareState>>,
}

/// The permits of rules that must be notified when the call ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permits {
    /// The admission by circuit breakers.
    admission: Option<Admission>,
    /// The places that the call occupies under the concurrency limits of its parameters' values.
    running: RunningPlaces,
}

/// Marks a response that has not arrived. No clock reaches this time.
const RUNNING: Tick = Tick::from_nanos(u64::MAX);

// === impl Permits ===

impl Permits {
    /// Creates the permits of a call to `resource`; `None` if it has none.
    #[inline]
    pub(crate) fn new(
        resource: &Resource,
        admission: Option<Admission>,
        claims: &Claims,
    ) -> Option<Self> {
        let params = resource.params();
        let running = params.map_or(RunningPlaces::NONE, |params| params.keep(&claims.shares));
        let has_any = admission.is_some() || running != RunningPlaces::NONE;
        has_any.then_some(Self { admission, running })
    }
}

impl From<Admission> for Permits {
    fn from(admission: Admission) -> Self {
        Self {
            admission: Some(admission),
            running: RunningPlaces::NONE,
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Creates the entry of a call that starts. The caller has already taken and counted its
    /// tokens.
    #[inline]
    pub(crate) const fn new(
        nodes: CallNodes,
        start: Tick,
        weight: u32,
        has_slot: bool,
        permits: Option<Permits>,
    ) -> Self {
        Self {
            nodes,
            start,
            responded_at: RUNNING,
            weight,
            has_slot,
            has_panic_guard: false,
            body_was_ready: false,
            outcome: Some(Outcome::Success),
            permits,
            rare: None,
        }
    }

    /// Attaches the call's entries in shadow mode, which end as this call does.
    pub(crate) fn attach_shadows(&mut self, shadows: Vec<Self>) {
        if !shadows.is_empty() {
            let resource = self.nodes.resource().clone();
            self.set_rare(|rare| rare.attach(&resource, shadows));
        }
    }

    /// Attaches the accounts of the call's cost.
    #[cold]
    pub(crate) fn set_accounts(&mut self, accounts: Accounts) {
        let resource = self.nodes.resource();
        if let Some(costs) = resource.costs() {
            costs.start(&accounts);
        }
        let metered = Metered::new(resource, accounts);
        if self.rare.is_none() {
            self.rare = Some(Arc::new(RareState::of_cost(metered)));
        } else {
            self.set_rare(|rare| rare.metered = Some(metered));
        }
    }

    /// Attaches the accounts in which shared rules book the call's cost. The other accounts must be
    /// attached first.
    #[inline]
    pub(crate) fn set_leased(&mut self, leased: SmallVec<LeaseAccount, 1>) {
        if leased.iter().next().is_some() {
            self.set_rare(|rare| {
                let metered = rare.metered.as_mut();
                metered.expect("it has accounts").set_leased(leased);
            });
        }
    }

    /// Stores the remaining quotas of the call's parameters, for the response.
    #[cold]
    pub(crate) fn note_param_quotas(&mut self, quotas: QuotasLeft) {
        self.set_rare(|rare| rare.quotas.note_all(quotas));
    }

    /// Changes the rare state, and creates it if necessary. Must be called before a meter shares
    /// the state.
    fn set_rare(&mut self, set: impl FnOnce(&mut RareState)) {
        let rare = self.rare.get_or_insert_default();
        set(Arc::get_mut(rare).expect("no meter was handed out so far"));
    }

    /// Returns the resource that was called.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.nodes.resource().text()
    }

    /// Returns the resource, if a layer must [mark](Resource::wants_mark) the request.
    pub(crate) fn to_mark(&self) -> Option<&Arc<Resource>> {
        Some(self.nodes.resource()).filter(|it| it.wants_mark(self.start))
    }

    /// Returns the direction of the call.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.nodes.resource().direction()
    }

    /// Marks the call as failed: it counts as an error. The call does not end yet. If `fail` and
    /// [`ignore`](Self::ignore) are both called, the last one counts.
    pub fn fail(&mut self) {
        self.outcome = Some(Outcome::Failure);
    }

    /// Marks the call as irrelevant for the health of the called service: it counts as completed,
    /// but as neither a success nor an error.
    pub fn ignore(&mut self) {
        self.outcome = Some(Outcome::Ignore);
    }

    /// Returns a handle to report the cost of the call, for rules on
    /// [costs](crate::FlowRule::cost).
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.rare.as_ref().map_or_else(Meter::default, Meter::of)
    }

    /// Returns the call's meter, if a rule counts its cost.
    pub(crate) fn own_meter(&self) -> Option<Meter> {
        Some(Meter::of(self.rare.as_ref()?)).filter(|meter| !meter.is_idle())
    }

    /// Sets the `units` that are charged for the length of the response's body, if a rule counts
    /// the call's cost.
    pub(crate) fn count_body(&self, units: &BodyUnits) {
        if let Some(rare) = &self.rare {
            rare.count_body(units);
        }
    }

    /// Charges `more` bytes of the response's body.
    #[inline]
    pub(crate) fn charge_body(&self, more: usize) {
        if let Some(rare) = &self.rare {
            rare.charge_body(more);
        }
    }

    /// Notes that the whole body has been sent.
    #[inline]
    pub(crate) fn settle_body(&self) {
        if let Some(rare) = &self.rare {
            rare.end_body(true);
        }
    }

    /// Notes that the service has failed. If the call reports no cost, it is then charged nothing.
    pub(crate) fn has_no_answer(&self) {
        if let Some(metered) = self.metered() {
            metered.fail();
        }
    }

    fn metered(&self) -> Option<&Metered> {
        self.rare.as_ref()?.metered.as_ref()
    }

    /// Notes that the call has cost `n` more of `unit`, as [`Meter::charge`] does.
    ///
    /// Returns false once the reservation is used up and a rule has nothing left.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sentinel = Sentinel::new(FlowRule::per_minute("query", 100).cost("rows"));
    /// let mut entry = sentinel.enter(Call::new("query")).await?;
    /// assert!(entry.charge("rows", 99));
    /// assert!(!entry.charge("rows", 1));
    /// # Ok::<(), tower_sentinel::Blocked>(())
    /// # }).unwrap();
    /// ```
    pub fn charge(&mut self, unit: &str, n: u32) -> bool {
        let metered = self.metered();
        metered.is_none_or(|metered| metered.charge(unit, n))
    }

    /// Notes that the call costs `total` of `unit` in all, as [`Meter::settle`] does. The call does
    /// not end yet.
    pub fn settle(&mut self, unit: &str, total: u32) {
        if let Some(metered) = self.metered() {
            metered.settle(unit, total);
        }
    }

    /// Notes that the callee has asked not to be called for `after`. From now on, breakers that
    /// open at a [pushback](crate::CircuitBreakerRule::pushback) are open for this time. Zero has
    /// no effect. The call does not end yet.
    ///
    /// A layer for HTTP reads the time from responses. For other protocols, call this method.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, CircuitBreakerRule, ManualClock, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(CircuitBreakerRule::pushback("mail"))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("mail")) else {
    ///     panic!("it is closed");
    /// };
    /// // The mail server has answered: 450, try again in five seconds.
    /// entry.push_back(Duration::from_secs(5));
    /// drop(entry);
    /// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("mail")) else {
    ///     panic!("it is open");
    /// };
    /// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(5)));
    /// ```
    #[cold]
    pub fn push_back(&mut self, after: Duration) {
        if after.is_zero() {
            return;
        }
        let resource = self.nodes.resource();
        let now = resource.now();
        resource.with_breakers(|breakers, notify| breakers.push_back(now, after, notify));
        if let Some(rare) = &self.rare {
            rare.each_shadow(&mut |shadow| shadow.push_back(after));
        }
    }

    /// Ends the call as cancelled: it delivered nothing, and has no response time.
    pub fn cancel(mut self) {
        self.outcome = None;
    }

    /// Prepares the entry of a call that a layer or [`Sentinel::run`](crate::Sentinel::run) polls
    /// with [`end_on_panic`]. If the entry is dropped before
    /// [`with_response_at`](Self::with_response_at) or [`end`](Self::end), the call counts as
    /// cancelled.
    #[inline]
    pub(crate) fn expecting_response(mut self) -> Self {
        self.outcome = None;
        self.has_panic_guard = true;
        self
    }

    /// Ends the call as a failure, because it panics.
    pub(crate) fn panicked(mut self) {
        self.has_panic_guard = false;
        self.body_was_ready = false;
    }

    /// Ends the call now, with its response.
    #[inline]
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Notes that the head of the response has arrived, and returns the time for
    /// [`with_response_at`](Self::with_response_at). If the outcome `is_final`, it is reported to
    /// circuit breakers now, not at the end of the call.
    #[inline]
    pub(crate) fn note_response(&mut self, outcome: Outcome, is_final: bool) -> Tick {
        let now = self.nodes.resource().now();
        if self.permits.is_some() || self.rare.is_some() {
            self.report_response(now, outcome, is_final);
        }
        now
    }

    /// Sets the time and outcome of the response. It takes the entry by value, separately from
    /// [`note_response`](Self::note_response), so that the fields are written at the destination of
    /// the move: a field written just before a move slows it down.
    #[inline]
    pub(crate) fn with_response_at(mut self, at: Tick, outcome: Outcome) -> Self {
        self.responded_at = at;
        self.body_was_ready = true;
        self.outcome = Some(outcome);
        self
    }

    /// Notes that more of the body comes after the head: the call ends later than its response
    /// time.
    #[inline]
    pub(crate) const fn body_continues(&mut self) {
        self.body_was_ready = false;
    }

    /// Reports the response to breakers and to rules in shadow mode.
    #[inline(never)]
    fn report_response(&mut self, now: Tick, outcome: Outcome, is_final: bool) {
        if is_final {
            self.report_to_breakers(now, Some(outcome), now - self.start);
        }
        if let Some(rare) = &self.rare {
            rare.each_shadow(&mut |shadow| {
                shadow.responded_at = shadow.note_response(outcome, is_final);
            });
        }
    }

    /// Reports the end of the call to circuit breakers, once.
    #[cold]
    fn report_to_breakers(&mut self, now: Tick, outcome: Option<Outcome>, rt: Duration) {
        let Some(permits) = &mut self.permits else {
            return;
        };
        let admission = permits.admission.take();
        // Without permits, the call takes the fast path when it ends.
        if permits.running == RunningPlaces::NONE {
            self.permits = None;
        }
        let Some(admission) = admission else {
            return;
        };
        let resource = self.nodes.resource();
        resource.with_breakers(|breakers, notify| match outcome {
            Some(Outcome::Success) => breakers.complete(now, admission, rt, false, notify),
            Some(Outcome::Failure) => breakers.complete(now, admission, rt, true, notify),
            // The breakers learn only the response time, as the outcome says nothing about the
            // service.
            Some(Outcome::Ignore) | None => breakers.cancel(now, admission, rt, notify),
        });
    }

    /// Releases the call's slot, and reports its end to an adaptive limit.
    fn release_slot(&self, now: Tick, rt: Duration, outcome: Option<Outcome>) {
        let resource = self.nodes.resource();
        if let Some((_, limiter)) = resource.limiter() {
            let node = resource.node();
            let ended = CallEnd { now, rt, outcome };
            limiter.ended(ended, || node.slots_in_use(), || node.ends());
        }
        resource.node().release_slot(SlotHold::RUNNING);
    }

    /// Returns the tightest remaining quota of each unit.
    pub(crate) fn quotas_left(&self) -> QuotasLeft {
        let mut quotas = QuotasLeft::default();
        let now = self.nodes.resource().now();
        self.nodes.note_quotas(now, &mut quotas);
        if let Some(rare) = &self.rare {
            for noted in rare.quotas.iter() {
                quotas.note(noted.clone());
            }
        }
        quotas
    }

    /// Reports the end of the call to rules in shadow mode, and to rules on costs.
    #[cold]
    fn end_rare(&self, rare: &RareState, outcome: Option<Outcome>) {
        rare.end_body(false);
        if outcome == Some(Outcome::Failure) {
            self.has_no_answer();
        }
        rare.end_shadows(&mut |shadow| {
            shadow.outcome = self.outcome;
            shadow.has_panic_guard = self.has_panic_guard;
            shadow.body_was_ready = self.body_was_ready;
        });
    }

    /// Replaces the outcome, for a response that ended differently than its head indicated.
    pub(crate) fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Returns whether the call counts as ended at its response time. It does if the response
    /// arrived in one piece, and no rule needs the time at which its body ended. Three kinds of
    /// rules need this time: a circuit breaker that waits for trailers, a concurrency limit per
    /// parameter value, and an adaptive limit.
    #[inline]
    fn ends_with_response(&self) -> bool {
        let limiter = || self.nodes.resource().limiter();
        self.body_was_ready && self.permits.is_none() && !(self.has_slot && limiter().is_some())
    }

    /// Returns the current time, and the time at which the response time of the call stopped.
    ///
    /// A call whose response arrived in one piece is counted at the time of its head, which is
    /// already known. Reading the clock again would be a tenth of a layer's overhead.
    #[inline]
    fn end_times(&self) -> (Tick, Tick) {
        let now = if self.ends_with_response() {
            self.responded_at
        } else {
            self.nodes.resource().now()
        };
        let has_responded = self.responded_at != RUNNING;
        let end = if has_responded {
            self.responded_at
        } else {
            now
        };
        (now, end)
    }

    /// Reports the end of the call to every node, to every rule that needs to know of it, and to
    /// hooks.
    #[inline(never)]
    fn end_everywhere(&mut self, has_panicked: bool) {
        let (now, end) = self.end_times();
        let outcome = if has_panicked {
            Some(Outcome::Failure)
        } else {
            self.outcome
        };
        if self.permits.is_some() {
            self.report_to_breakers(now, outcome, end - self.start);
        }
        let resource = self.nodes.resource();
        // Releases the places under the concurrency limits of parameter values.
        if let (Some(params), Some(permits)) = (resource.params(), self.permits) {
            params.release(permits.running);
        }
        self.nodes.each(|node| {
            node.end(now, self.weight, end.nanos_since(self.start), outcome);
            if has_panicked {
                node.panicked();
            }
        });
        if self.has_slot {
            self.release_slot(now, end - self.start, outcome);
        } else {
            resource.node().end_without_slot();
        }
        self.nodes.end_origin_slot();
        if resource.shared().hooks.want(Interest::EXIT) {
            resource.notify_ended(self.weight, outcome, end - self.start);
        }
        if let Some(rare) = &self.rare {
            self.end_rare(rare, outcome);
        }
    }
}

impl Drop for Entry {
    /// Ends the call. On the fast path, only the resource's node and its slots need to know of the
    /// end.
    #[inline]
    fn drop(&mut self) {
        let resource = self.nodes.resource();
        let has_panicked = !self.has_panic_guard && std::thread::panicking();
        let has_more = self.permits.is_some() || self.rare.is_some() || !self.nodes.is_one_node();
        if has_panicked || has_more || resource.shared().hooks.want(Interest::EXIT) {
            return self.end_everywhere(has_panicked);
        }
        let (now, end) = self.end_times();
        let rt_ns = end.nanos_since(self.start);
        resource.node().end(now, self.weight, rt_ns, self.outcome);
        if self.has_slot {
            self.release_slot(now, end - self.start, self.outcome);
        } else {
            resource.node().end_without_slot();
        }
    }
}

/// Runs `poll`. If it panics, ends the entry in `call` at once, as the entry of a call that panics.
///
/// The drop of the entry would be too late: an outer layer may catch the panic and drop the future
/// later, which looks like a cancellation. The drop also cannot tell whether the call itself
/// panicked or other code unwinds.
#[inline]
pub(crate) fn end_on_panic<T: Into<Entry>, R>(
    call: &mut Option<T>,
    poll: impl FnOnce(&mut Option<T>) -> R,
) -> R {
    struct OnUnwind<'a, T: Into<Entry>>(&'a mut Option<T>);

    impl<T: Into<Entry>> Drop for OnUnwind<'_, T> {
        fn drop(&mut self) {
            if let Some(call) = self.0.take() {
                call.into().panicked();
            }
        }
    }

    let on_unwind = OnUnwind(call);
    let result = poll(&mut *on_unwind.0);
    mem::forget(on_unwind);
    result
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("resource", &self.resource())
            .field("start", &self.start)
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}

/// An entry is a part of every response future and body, so its size is kept small.
#[cfg(not(sentinel_loom))]
const _: () = assert!(size_of::<Entry>() <= 88);
