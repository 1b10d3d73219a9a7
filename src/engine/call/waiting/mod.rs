//! Calls that wait: for a slot, a share, the store, a turn or a bucket.
//!
//! ```text
//!              ┌── in line for a slot ◀─────────┐ no slot is free
//! judged ──────┤   or a share                   │
//!     ▲        │        │ has received it      │
//!              │        ▼                      │
//!              │   judged again                │
//!              ▼        ▼                      │
//!         promised a turn or a bucket ──▶ its turn ──▶ runs
//! ```
//!
//! A call in line that has not been judged by all rules only keeps a copy of its properties, by
//! which it is judged again. A call that has been promised its tokens keeps them. A call that
//! leaves the line learns whether it has received a slot. It uses the slot, or passes it to the
//! next call.

mod line;
mod start;
mod store;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use crate::base::sync::{Arc, StopSignal};
use crate::base::timer::{self, NoTimer, Timer};
use crate::blocked::{BlockKind, Blocked};
use crate::call::{Call, Importance, OwnedCall};
use crate::clock::Tick;
use crate::engine::call::arrival::{Arrival, LineShares, PlaceInLine};
use crate::engine::call::entry::Entry;
use crate::engine::call::lease::WaitLeases;
use crate::engine::call::nodes::{CallNodes, Claims};
use crate::engine::call::ring::Held;
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Resource;
use crate::stat::Node;

pub(crate) use line::InLine;
use line::Received;

/// The operations of an engine that a waiting call needs to be judged again.
pub(crate) trait JudgeAgain: fmt::Debug + Send + Sync {
    /// Judges a call that has waited for a slot of `node`, for a share or for the store, from the
    /// first check on and by the current rules. Releases the slot or share in `arrived` if the call
    /// does not use it.
    fn judge_again(&self, call: &Call<'_>, node: &Node, arrived: &mut Arrival) -> Verdict;

    /// Creates the refusal of a call that has waited for a share of `rule` until its time in line
    /// was over.
    fn blocked_by_share(&self, nodes: &CallNodes, call: &Call<'_>, now: Tick, rule: u32)
    -> Blocked;

    /// Renews `resource` if it was made by older rules: see
    /// [`Registry::catch_up`](crate::engine::registry::Registry::catch_up).
    fn catch_up(&self, resource: &Resource, now: Tick);
}

const TAKEN_LAST: &str = "only consuming methods take it out";

/// A call that must wait. It has been promised a place in a future bucket or a turn in a
/// [queue](crate::FlowRule::throttle), or it waits for a [concurrency
/// slot](crate::IsolationRule::queue) or a [place of its value](crate::KeyedRule::queue).
///
/// The tokens of a promised place are held on every node that counts the call. They are taken when
/// the bucket begins in which the call starts. Until the call starts, it holds no concurrency slot,
/// and its response time is not measured.
///
/// A call that waits for a slot or a place of its value is judged when it has received it. The call
/// can then be refused, or have to wait again.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, FlowRule, ManualClock, NotAdmitted, Sentinel, Verdict};
///
/// let clock = ManualClock::new();
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 1))
///     .clock(clock.clone())
///     .build();
/// let call = Call::new("job").prioritized(true);
/// drop(sentinel.try_enter(call));
/// clock.advance(Duration::from_millis(600));
/// let Verdict::Wait(waiting) = sentinel.try_enter(call) else {
///     panic!("the window has room in 400 ms");
/// };
/// assert_eq!(waiting.delay(), Duration::from_millis(400));
/// let Err(NotAdmitted::TooEarly(waiting)) = waiting.admit() else {
///     panic!("it has not waited");
/// };
/// clock.advance(Duration::from_millis(400));
/// assert!(waiting.admit().is_ok());
/// ```
///
/// # Cancel safety
///
/// Dropping a `Waiting` leaves the line. The tokens are refunded if their bucket has not begun or
/// is the newest one; later they stay spent. A slot or place that the call has received goes to the
/// next waiting call.
#[must_use = "dropping it gives the place up"]
pub struct Waiting {
    inner: Option<Box<WaitingInner>>,
}

/// The state of a waiting call, boxed to keep [`Waiting`] small.
struct WaitingInner {
    /// The engine that judges the call again, by the rules that are then in force.
    again: StdArc<dyn JudgeAgain>,
    nodes: CallNodes,
    weight: u32,
    /// When the call arrived.
    since: Tick,
    /// When this wait began.
    asked: Tick,
    /// When this wait ends: at the call's turn, or when its time in line is over.
    until: Tick,
    /// The length of the latest sleep; `None` before the first one.
    sleep: Option<Duration>,
    /// The line in which the call waits; `None` if it waits for its turn or its tokens.
    line: Option<InLine>,
    /// The call's place in the line for a slot, if it has or had one.
    place: Option<PlaceInLine>,
    /// The call's places in lines for shares, if it has or had any. The last place is the current
    /// one.
    shares: Option<Box<LineShares>>,
    /// The permits of shared rules, if the call needs any.
    leases: Option<Box<WaitLeases>>,
    /// The step after the wait.
    rest: Rest,
}

/// The state with which every wait begins.
pub(crate) struct WaitBegun {
    /// The engine that judges the call again, by the rules that are then in force.
    pub(crate) again: StdArc<dyn JudgeAgain>,
    pub(crate) nodes: CallNodes,
    pub(crate) weight: u32,
    /// When the call arrived.
    pub(crate) since: Tick,
    /// When this wait begins.
    pub(crate) asked: Tick,
}

/// The step after the wait.
#[expect(clippy::large_enum_variant, reason = "it is in a box, whichever it is")]
enum Rest {
    /// The call is judged again, by all checks.
    Judged(OwnedCall),
    /// The call starts, with the tokens that it holds.
    Promised(Promised),
}

/// The tokens and places of a call that has been judged.
pub(crate) struct Promised {
    /// The tokens that the call holds, in the order of its rings.
    pub(crate) held: Vec<Held>,
    pub(crate) claims: Claims,
    /// When the call may start.
    pub(crate) start: Tick,
    /// The maximum wait that the call itself has set.
    pub(crate) patience: Option<Duration>,
    pub(crate) importance: Importance,
    /// A copy of the call, if it reserves costs when it starts.
    pub(crate) for_costs: Option<Box<OwnedCall>>,
}

/// Why a waiting call cannot start.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{BlockKind, Call, FlowRule, IsolationRule, ManualClock};
/// use tower_sentinel::{NotAdmitted, Rules, Sentinel, Verdict};
///
/// let clock = ManualClock::new();
/// let rules = Rules::new()
///     .with(FlowRule::per_second("job", 2))
///     .with(IsolationRule::new("job", 1));
/// let sentinel = Sentinel::builder().rules(rules).clock(clock.clone()).build();
/// let call = Call::new("job");
/// for _ in 0..2 {
///     drop(sentinel.try_enter(call));
/// }
/// clock.advance(Duration::from_millis(600));
/// let Verdict::Wait(waiting) = sentinel.try_enter(call.prioritized(true)) else {
///     panic!("two leave the window in 400 ms");
/// };
/// let Err(NotAdmitted::TooEarly(waiting)) = waiting.admit() else {
///     panic!("its bucket has not begun");
/// };
/// clock.advance(Duration::from_millis(400));
/// // It has its place in the window, but another call is running by now.
/// let Verdict::Pass(_running) = sentinel.try_enter(call) else {
///     panic!("one more may pass");
/// };
/// let Err(NotAdmitted::Blocked(blocked)) = waiting.admit() else {
///     panic!("one at once");
/// };
/// assert_eq!(blocked.kind(), BlockKind::Isolation);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum NotAdmitted {
    /// Its bucket has not begun, its turn has not come, or no slot or place of its value is free.
    /// Contains the waiting call, to be admitted later.
    TooEarly(Waiting),
    /// The call is refused after its wait, because another rule has no room for it now. Its tokens
    /// were refunded.
    Blocked(Blocked),
}

// === impl Waiting ===

impl Waiting {
    /// Creates the wait of a call that is promised its tokens. `place` is its place in line, if it
    /// waited there before.
    pub(crate) fn promised(
        begun: WaitBegun,
        promised: Promised,
        place: Option<PlaceInLine>,
    ) -> Self {
        let mut inner = WaitingInner::new(begun, promised.start, Rest::Promised(promised));
        inner.place = place;
        Self::of(inner)
    }

    /// Creates the wait of a call in `line`, for at most `left`, the rest of its time in this line.
    /// `own` contains the call's places.
    pub(crate) fn in_line(
        begun: WaitBegun,
        call: OwnedCall,
        line: InLine,
        left: Duration,
        own: Arrival,
    ) -> Self {
        let until = begun.asked + left;
        Self::of(WaitingInner {
            line: Some(line),
            place: own.place,
            shares: own.shares,
            ..WaitingInner::new(begun, until, Rest::Judged(call))
        })
    }

    fn of(inner: WaitingInner) -> Self {
        Self {
            inner: Some(Box::new(inner)),
        }
    }

    fn inner(&self) -> &WaitingInner {
        self.inner.as_deref().expect(TAKEN_LAST)
    }

    fn take(&mut self) -> Box<WaitingInner> {
        self.inner.take().expect(TAKEN_LAST)
    }

    /// Returns whether the call waits in a line: for a slot, a share, the store or a bucket.
    pub(crate) fn is_in_line(&self) -> bool {
        self.inner().line.is_some()
    }

    /// Returns how long the call has to wait, counted from the time of the verdict. For a call that
    /// waits for a slot or a place of its value, this is the maximum wait: a slot or place can
    /// become free earlier.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let inner = self.inner();
        inner.until - inner.asked
    }

    /// Waits until the call may [`begin`](Self::begin): its turn has come, it has received what it
    /// waits for in line, or its time in line is over. `sleep` is the timer between polls.
    pub(crate) fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        sleep: &mut Option<Timer>,
    ) -> Poll<Result<(), NoTimer>> {
        if self.inner().has_what_it_waits_for(Some(cx.waker())) {
            *sleep = None;
            return Poll::Ready(Ok(()));
        }
        loop {
            // The timer is created here and not together with the wait, as only a call that sleeps
            // needs a runtime.
            if sleep.is_none() {
                let Some(duration) = self.next_sleep() else {
                    return Poll::Ready(Ok(()));
                };
                *sleep = Some(timer::sleep(duration)?);
            }
            let running = sleep.as_mut().expect("it was just made");
            ready!(Pin::new(running).poll(cx))?;
            *sleep = None;
        }
    }

    /// Returns the duration of the call's next sleep; `None` if the call may start. The first sleep
    /// is never longer than the promised wait, even if the clock has stepped back since.
    ///
    /// The timer uses another clock, so the call can wake before its turn. It then sleeps again,
    /// each time at most half as long as before, so that all sleeps together are shorter than twice
    /// the promised wait. If more than half of the last sleep is left, the clock has stepped back
    /// or stands still, and the call starts.
    fn next_sleep(&mut self) -> Option<Duration> {
        let inner = self.inner.as_deref_mut().expect(TAKEN_LAST);
        let left = inner.until - inner.now();
        let sleep = match inner.sleep {
            None => left.min(inner.until - inner.asked),
            Some(last) if left <= last / 2 => left,
            Some(_) => Duration::ZERO,
        };
        inner.sleep = Some(sleep);
        (!sleep.is_zero()).then_some(sleep)
    }

    /// Returns the time at which the call may start. If the call waits for a slot or a place of its
    /// value, this is the end of its wait, and it may start earlier.
    #[must_use]
    pub fn start(&self) -> Tick {
        self.inner().until
    }

    /// Returns the resource that was called.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.inner().nodes.resource().text()
    }

    /// Returns the resource, if a layer must [mark](Resource::wants_mark) the request.
    pub(crate) fn to_mark(&self) -> Option<&Arc<Resource>> {
        let inner = self.inner();
        Some(inner.nodes.resource()).filter(|it| it.wants_mark(inner.since))
    }

    /// Starts the call.
    ///
    /// # Errors
    ///
    /// [`NotAdmitted`] if it is [too early](NotAdmitted::TooEarly), or if the call is refused: an
    /// isolation or adaptive rule has no free slot and no queue, the call's time in line is over,
    /// or a rule that is checked only now refuses it.
    pub fn admit(self) -> Result<Entry, NotAdmitted> {
        if self.inner().now() < self.start() && !self.inner().has_what_it_waits_for(None) {
            return Err(NotAdmitted::TooEarly(self));
        }
        match self.begin() {
            Verdict::Pass(entry) => Ok(entry),
            Verdict::Wait(waiting) => Err(NotAdmitted::TooEarly(waiting)),
            Verdict::Block(blocked) => Err(NotAdmitted::Blocked(blocked)),
        }
    }

    /// Waits for the call's turn, or in line, and starts the call.
    ///
    /// # Errors
    ///
    /// [`Blocked`] if there is no timer to wait on, or if the call is refused after the wait for a
    /// reason listed at [`admit`](Self::admit).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line.
    pub async fn ready(mut self) -> Result<Entry, Blocked> {
        loop {
            let mut sleep = None;
            let turn = poll_fn(|cx| self.poll_turn(cx, &mut sleep)).await;
            if let Err(NoTimer) = turn {
                return Err(self.refuse_without_timer());
            }
            match self.begin() {
                Verdict::Pass(entry) => return Ok(entry),
                Verdict::Wait(waiting) => self = waiting,
                Verdict::Block(blocked) => return Err(blocked),
            }
        }
    }

    /// Does the work of [`ready`](Self::ready), but blocks the thread and not only a task.
    pub(crate) fn ready_blocking(mut self) -> Result<Entry, Blocked> {
        loop {
            // A call that passes its slot or share on to this call stops this sleep.
            let has_it = StdArc::new(StopSignal::default());
            let waker = Waker::from(has_it.clone());
            while !self.inner().has_what_it_waits_for(Some(&waker)) {
                let Some(duration) = self.next_sleep() else {
                    break;
                };
                has_it.wait(duration);
            }
            match self.begin() {
                Verdict::Pass(entry) => return Ok(entry),
                Verdict::Wait(waiting) => self = waiting,
                Verdict::Block(blocked) => return Err(blocked),
            }
        }
    }

    /// Continues with a call whose sleep is over. The call passes, is refused, or must wait again,
    /// for example for the bucket of borrowed permits.
    pub(crate) fn begin(mut self) -> Verdict {
        let now = self.inner().now();
        let mut inner = self.take();
        let Some(line) = inner.line else {
            return inner.resume(now, None);
        };
        match inner.cancel_wait(now) {
            Some(Received::Leases) if line == InLine::Store && inner.waits_for_bucket(now) => {
                Verdict::Wait(Self { inner: Some(inner) })
            }
            Some(got) => inner.resume(now, Some(got)),
            None => Verdict::Block(inner.refuse_in_line(now, line)),
        }
    }

    /// Continues with the call without waiting, except for the store. The call takes a slot or
    /// share beyond the limit, while fewer calls are beyond the limit than the queue may hold.
    pub(crate) fn begin_at_once(mut self) -> Verdict {
        if self.asks_store() {
            return Verdict::Wait(self);
        }
        let now = self.inner().now();
        let mut inner = self.take();
        let mut got = None;
        if let Some(line) = inner.line {
            got = inner.cancel_wait(now);
            got = got.or_else(|| inner.take_beyond(now, line));
            if got.is_none() {
                return Verdict::Block(inner.refuse_in_line(now, line));
            }
        }
        match inner.resume(now, got) {
            Verdict::Wait(waiting) => waiting.begin_at_once(),
            verdict => verdict,
        }
    }

    /// Leaves the line and refuses the call, because there is no timer to sleep on.
    pub(crate) fn refuse_without_timer(mut self) -> Blocked {
        let now = self.inner().now();
        let mut inner = self.take();
        inner.cancel_line();
        let text = (**inner.nodes.resource().text()).into();
        inner.refuse(now, Blocked::new(BlockKind::NoTimer, text, "".into()))
    }
}

impl WaitingInner {
    fn new(begun: WaitBegun, until: Tick, rest: Rest) -> Self {
        Self {
            again: begun.again,
            nodes: begun.nodes,
            weight: begun.weight,
            since: begun.since,
            asked: begun.asked,
            until,
            sleep: None,
            line: None,
            place: None,
            shares: None,
            leases: None,
            rest,
        }
    }

    /// Returns the present time.
    fn now(&self) -> Tick {
        self.nodes.resource().now()
    }

    fn node(&self) -> &Node {
        self.nodes.resource().node()
    }

    // --- after the wait ---

    /// Judges the call again, or starts it, with the slot or share that it has `got` in line, if
    /// any.
    fn resume(mut self: Box<Self>, now: Tick, got: Option<Received>) -> Verdict {
        let (slot, share) = match got {
            None | Some(Received::Leases) => (None, None),
            Some(Received::Slot(hold)) => (Some(hold), None),
            Some(Received::Share(share)) => (None, Some(share)),
        };
        let mut shares = self.shares.take();
        let leases = self.leases.as_mut();
        match &self.rest {
            Rest::Judged(call) => {
                if let Some(shares) = &mut shares {
                    shares.own = share;
                }
                let mut arrived = Arrival {
                    slot,
                    place: self.place,
                    shares,
                    since: Some(self.since),
                    leases: leases.and_then(|leases| leases.hand_over()),
                    has_borrowed: false,
                };
                call.with(|call| self.again.judge_again(call, self.node(), &mut arrived))
            }
            Rest::Promised(_) => self.start(now, slot),
        }
    }

    /// Ends the wait with the refusal `blocked`, and reports it to all nodes and hooks.
    fn refuse(&self, now: Tick, blocked: Blocked) -> Blocked {
        self.cancel(now);
        self.nodes.each(|node| {
            node.block_by(now, self.weight, blocked.kind());
        });
        let resource = self.nodes.resource();
        match &self.rest {
            Rest::Judged(call) => {
                call.with(|call| resource.note_blocked(self.weight, Some(call), &blocked));
            }
            Rest::Promised(_) => resource.note_blocked(self.weight, None, &blocked),
        }
        blocked
    }

    /// Cancels the tokens and claims of a promised call that is not in line.
    fn cancel(&self, now: Tick) {
        if let Rest::Promised(promised) = &self.rest {
            self.nodes.cancel(now, &promised.held, self.weight);
            self.nodes.release(&promised.claims);
            self.nodes.each(Node::stop_waiting);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(mut inner) = self.inner.take() {
            inner.cancel_line();
            inner.cancel(inner.now());
            inner.nodes.each(Node::dropped_waiting);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("resource", &self.resource())
            .field("delay", &self.delay())
            .finish_non_exhaustive()
    }
}
