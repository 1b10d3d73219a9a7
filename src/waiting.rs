//! A call that waits for its place.

use std::fmt;
use std::time::Duration;

use crate::block_kind::BlockKind;
use crate::blocked::Blocked;
use crate::call_nodes::{CallNodes, Claims};
use crate::clock::Tick;
use crate::entry::{Entry, Permits};
use crate::ruled_ring::Held;
use crate::stat::Node;
use crate::timer::{self, NoTimer};

const TAKEN_LAST: &str = "only consuming methods take it out";

/// A call that has been promised a place in a future bucket, or a turn in a
/// [queue](crate::FlowRule::throttle).
///
/// Its tokens are held on every node that counts it, and are taken when the bucket in
/// which it starts opens. Until it starts it holds no concurrency slot, and its response
/// time does not run.
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
/// Dropping it gives up the place: the tokens are given back if their bucket is still to
/// come or is the newest one; later they stay spent.
#[must_use = "dropping it gives the place up"]
pub struct Waiting {
    inner: Option<Box<Inner>>,
}

struct Inner {
    nodes: CallNodes,
    held: Vec<Held>,
    claims: Claims,
    since: Tick,
    start: Tick,
    n: u32,
    /// How long its latest sleep is or was; `None` before the first one.
    sleep: Option<Duration>,
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
    /// Its bucket has not begun, or its turn has not come. Contains the place, to be
    /// used later.
    TooEarly(Waiting),
    /// Another rule has no room for it by now; its tokens were given back.
    Blocked(Blocked),
}

// === impl Waiting ===

impl Waiting {
    pub(crate) fn new(
        nodes: CallNodes,
        held: Vec<Held>,
        claims: Claims,
        since: Tick,
        start: Tick,
        n: u32,
    ) -> Self {
        Self {
            inner: Some(Box::new(Inner {
                nodes,
                held,
                claims,
                since,
                start,
                n,
                sleep: None,
            })),
        }
    }

    fn inner(&self) -> &Inner {
        self.inner.as_deref().expect(TAKEN_LAST)
    }

    fn take(&mut self) -> Box<Inner> {
        self.inner.take().expect(TAKEN_LAST)
    }

    /// Returns how long the call has to wait, counted from the moment of the verdict.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let inner = self.inner();
        inner.start - inner.since
    }

    /// How long the call has to sleep now; `None` if it may start. At first never longer
    /// than it was told, even if the clock has stepped back since.
    ///
    /// The timer goes by another clock, so the call may wake before its turn. Then it
    /// sleeps again, each time half as long at most: together less than twice as long as
    /// it was told. A clock that is further behind has stepped back or stands still, and
    /// is not waited for.
    pub(crate) fn next_sleep(&mut self) -> Option<Duration> {
        let inner = self.inner.as_deref_mut().expect(TAKEN_LAST);
        let left = inner.start - inner.now();
        let sleep = match inner.sleep {
            None => left.min(inner.start - inner.since),
            Some(last) if left <= last / 2 => left,
            Some(_) => Duration::ZERO,
        };
        inner.sleep = Some(sleep);
        (!sleep.is_zero()).then_some(sleep)
    }

    /// Returns when the call may start.
    #[must_use]
    pub fn start(&self) -> Tick {
        self.inner().start
    }

    /// Returns the resource that was called.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.inner().nodes.resource().text()
    }

    /// Starts the call.
    ///
    /// # Errors
    ///
    /// [`NotAdmitted`] if it is [too early](NotAdmitted::TooEarly), or if an isolation or
    /// adaptive rule has no free slot by then, or a circuit breaker refuses the call.
    pub fn admit(self) -> Result<Entry, NotAdmitted> {
        let now = self.inner().now();
        if now < self.start() {
            return Err(NotAdmitted::TooEarly(self));
        }
        self.begin().map_err(NotAdmitted::Blocked)
    }

    /// Waits for the call's turn and starts it.
    ///
    /// # Errors
    ///
    /// [`Blocked`] if there is no timer to wait on, or if, after the wait, an isolation or
    /// adaptive rule has no free slot, or a circuit breaker refuses the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place.
    pub async fn ready(mut self) -> Result<Entry, Blocked> {
        while let Some(duration) = self.next_sleep() {
            let slept = match timer::sleep(duration) {
                Ok(sleep) => sleep.await,
                none => none.map(drop),
            };
            if let Err(NoTimer) = slept {
                return Err(self.refuse_without_timer());
            }
        }
        self.begin()
    }

    /// The same, with the thread blocked meanwhile instead of a task.
    pub(crate) fn ready_blocking(mut self) -> Result<Entry, Blocked> {
        while let Some(duration) = self.next_sleep() {
            timer::block(duration);
        }
        self.begin()
    }

    /// Starts the call, which need not sleep any more. If its bucket is still to come, it
    /// passes when that opens.
    pub(crate) fn begin(mut self) -> Result<Entry, Blocked> {
        let inner = self.take();
        let resource = inner.nodes.resource();
        let now = inner.now();
        let place = match resource.take_place(now) {
            Ok(place) => place,
            Err(blocked) => return Err(inner.refuse(now, blocked)),
        };
        let waited = now - inner.since;
        // A place in a queue is the call's own; what it waits for beyond its turn
        // is borrowed.
        let turn = inner.claims.last_turn();
        let is_borrowed = turn.is_none_or(|(turn, _)| inner.start > turn);
        let occupied = if is_borrowed { inner.n } else { 0 };
        inner.nodes.take_inbound(now, inner.n);
        inner.nodes.each(|node| {
            node.stop_waiting();
            node.start_waited(now, inner.n, occupied, waited);
        });
        resource.notify_passed(inner.n, None, waited);
        let permits = Permits::new(inner.nodes.resource(), place.admission, &inner.claims);
        let mut entry = Entry::new(inner.nodes, now, inner.n, place.has_slot, permits);
        if let Some(mut quota) = inner.claims.quota {
            quota.reset = quota.reset.saturating_sub(waited);
            entry.set_param_quota(quota);
        }
        Ok(entry)
    }

    /// Gives the place up because there is nothing to sleep on.
    pub(crate) fn refuse_without_timer(mut self) -> Blocked {
        let inner = self.take();
        let text = inner.nodes.resource().text().clone();
        let blocked = Blocked::new(BlockKind::NoTimer, text, "".into());
        inner.refuse(inner.now(), blocked)
    }
}

impl Inner {
    /// The present, read again where it does not fit to what the resource has seen.
    fn now(&self) -> Tick {
        self.nodes.resource().now()
    }

    /// Ends the wait with `blocked`, for everyone who counts it or wants to know.
    fn refuse(&self, now: Tick, blocked: Blocked) -> Blocked {
        self.give_up(now);
        self.nodes
            .each(|node| node.block_by(now, self.n, blocked.kind()));
        let resource = self.nodes.resource();
        resource.notify_blocked(self.n, None, &blocked);
        blocked
    }

    /// Gives the tokens back and stops waiting.
    fn give_up(&self, now: Tick) {
        self.nodes.cancel(now, &self.held, self.n);
        self.nodes.give_up(&self.claims);
        self.nodes.each(Node::stop_waiting);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.give_up(inner.now());
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
