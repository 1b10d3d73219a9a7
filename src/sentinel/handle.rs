//! The handle of an engine.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use pin_project_lite::pin_project;

use super::Builder;
use crate::blocked::Blocked;
use crate::call::{Call, Direction, Key};
use crate::engine::Core;
use crate::engine::call::entry::{Entry, end_on_panic};
use crate::engine::call::verdict::Verdict;
use crate::engine::registry::Routes;
use crate::hook::Hooks;
use crate::hook::finding::{Finding, Provided};
use crate::read::{BreakerView, InboundView, NodeView, ShadowView, Snapshot, view};
use crate::rule::{InvalidRules, Rule, Rules};
use crate::stat::Outcome;
#[cfg(feature = "shared")]
use crate::store::StoreHandle;
use crate::store::StoreStatus;

/// An engine: the rules, and the counts of all calls that they judge.
///
/// A clone is a handle of the same engine, and cloning costs one reference count. Engines
/// are independent of each other, and there is no background thread. Terms such as
/// resource, origin and entry are explained in the
/// [glossary](crate::guide::words).
///
/// An engine takes about 42 KiB before its first call, and more on a machine that runs 32
/// threads or more concurrently. Each rule in [shadow mode](crate::Rule::shadow) takes as
/// much. Each thread that makes calls takes 1.5 KiB, for all engines together, as a cache of
/// the resources that it has called lately; the cache keeps no engine alive. To distinguish
/// thousands of tenants, give them names in one engine, as resources, origins or parameters,
/// instead of an engine each.
///
/// A call may end, and an engine may be dropped, in the destructor of a thread-local
/// value. Do not make calls, read statistics or reload rules there: the per-thread data of
/// the tables may be gone by then, so that may panic, which aborts the process.
///
/// # Examples
///
/// Without tower and, as long as no call waits, without a runtime:
///
/// ```
/// use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("job", 2));
/// let mut passed = 0;
/// for _ in 0..5 {
///     match sentinel.try_enter(Call::new("job")) {
///         Verdict::Pass(entry) => {
///             passed += 1;
///             drop(entry); // the call ends here
///         }
///         Verdict::Wait(_) => unreachable!("the call is not prioritized"),
///         Verdict::Block(blocked) => assert!(blocked.retry_after().is_some()),
///         _ => unreachable!(),
///     }
/// }
/// assert_eq!(passed, 2);
/// ```
#[derive(Clone)]
pub struct Sentinel {
    pub(super) core: Arc<Core>,
}

pin_project! {
    /// The future of [`Sentinel::run_with`]. Written by hand, because an `async fn` would reserve
    /// space for `work` three times. If it is dropped, `work` is dropped before the call ends.
    struct Run<W, N, C> {
        #[pin]
        work: W,
        // `Some` while the call runs.
        entry: Option<Entry>,
        // `Some` until the call starts or is refused.
        #[pin]
        enter: Option<N>,
        // `Some` until the work is done.
        classify: Option<C>,
    }
}

pin_project! {
    /// The future of [`Sentinel::run`]: a refusal becomes an error of the work.
    struct RunOrFail<F> {
        #[pin]
        run: F,
    }
}

impl Sentinel {
    /// Creates an engine with `rules` and the defaults of [`Builder`].
    ///
    /// # Panics
    ///
    /// Panics with the error of [`try_new`](Self::try_new) if a rule is invalid, or is
    /// [shared](crate::FlowRule::shared), as the engine has no store.
    #[must_use]
    #[track_caller]
    pub fn new(rules: impl Into<Rules>) -> Self {
        Self::builder().rules(rules).build()
    }

    /// Creates an engine like [`new`](Self::new), but returns invalid rules as an error, for rules
    /// from a configuration.
    ///
    /// ```
    /// use tower_sentinel::{FlowRule, Sentinel};
    ///
    /// let from_settings = vec![FlowRule::per_second("/search", -1)];
    /// let error = Sentinel::try_new(from_settings).unwrap_err();
    /// assert_eq!(error.problems()[0].field(), "threshold");
    /// ```
    ///
    /// # Errors
    ///
    /// Returns all problems of all rules.
    pub fn try_new<R: Into<Rule>>(
        rules: impl IntoIterator<Item = R>,
    ) -> Result<Self, InvalidRules> {
        let rules = Rules::build(rules)?;
        rules.check_without_store()?;
        Ok(Self::new(rules))
    }

    /// Returns a [`Builder`], to configure an engine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Judges `call`, and starts it if it passes at once.
    ///
    /// For a known resource this takes no lock and reads the clock once. It does not allocate,
    /// unless the call has to wait or a rule in shadow mode looks at it, or once for a call that
    /// passes under a rule on [costs](crate::FlowRule::cost). A call that one rule refuses returns
    /// the tokens and places that it has taken under other rules.
    #[doc(alias("try_acquire", "check"))]
    #[inline]
    pub fn try_enter(&self, call: Call<'_>) -> Verdict {
        self.core.try_enter(&call)
    }

    /// Starts `call`. If the call borrows tokens, or has to wait for its turn in a queue, the
    /// future first waits for its start time. The call ends when the [`Entry`] is dropped, as a
    /// success unless [`Entry::fail`] or the like was called.
    ///
    /// # Errors
    ///
    /// Returns [`Blocked`] if the call is refused, or if it would have to wait but there is no
    /// timer: waiting needs a tokio runtime with its timer. In plain threads use
    /// [`enter_blocking`](Self::enter_blocking). On another runtime use
    /// [`try_enter`](Self::try_enter), sleep for the [`delay`](crate::Waiting::delay) of
    /// [`Verdict::Wait`], and then [`admit`](crate::Waiting::admit) the call.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while it waits, the call leaves the queue.
    #[doc(alias("acquire", "until_ready"))]
    pub async fn enter(&self, call: Call<'_>) -> Result<Entry, Blocked> {
        match self.try_enter(call) {
            Verdict::Pass(entry) => Ok(entry),
            Verdict::Block(blocked) => Err(blocked),
            Verdict::Wait(waiting) => waiting.ready().await,
        }
    }

    /// Starts `call` like [`enter`](Self::enter), for code that is not async. If the call has to
    /// wait, the thread is blocked until its turn comes. This method needs no tokio runtime. Do not
    /// call it on a thread of a runtime: it would block other tasks.
    ///
    /// The turn comes by the clock of the engine, but the thread sleeps by the clock of the
    /// operating system. If the engine's clock does not advance, as with a
    /// [`ManualClock`](crate::ManualClock), the call starts anyway after less than twice its delay,
    /// as in [`enter`](Self::enter).
    ///
    /// # Errors
    ///
    /// Returns [`Blocked`] if the call is refused, at once or after its wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::thread;
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// // One every 2 ms, and a call waits for at most a second.
    /// let queue = FlowRule::per_second("job", 500).throttle(Duration::from_secs(1));
    /// let sentinel = Sentinel::new(queue);
    /// thread::scope(|scope| {
    ///     for _ in 0..3 {
    ///         scope.spawn(|| {
    ///             let mut running = sentinel.enter_blocking(Call::new("job")).expect("a turn");
    ///             // The work. If it fails:
    ///             running.fail();
    ///         });
    ///     }
    /// });
    /// let totals = sentinel.node("job").expect("it has been called").totals();
    /// assert_eq!((totals.complete(), totals.error()), (3, 3));
    /// ```
    #[doc(alias("blocking_enter", "blocking", "thread"))]
    pub fn enter_blocking(&self, call: Call<'_>) -> Result<Entry, Blocked> {
        match self.try_enter(call) {
            Verdict::Pass(entry) => Ok(entry),
            Verdict::Block(blocked) => Err(blocked),
            Verdict::Wait(waiting) => waiting.ready_blocking(),
        }
    }

    /// Runs `work` as `call`: waits for its turn if need be, polls `work` only if the call may
    /// start, and records how it ended. `Ok` counts as a success and `Err` as a failure.
    ///
    /// This is for code that is not a service, such as a query to a database. To judge results
    /// differently, or if a [`Blocked`] does not convert into the error of the work, use
    /// [`run_with`](Self::run_with). If the work is itself a call that another rule refuses,
    /// this refusal is an error like any other.
    ///
    /// # Errors
    ///
    /// Returns the error of `work`, or [`Blocked`], converted, if the call is refused, as by
    /// [`enter`](Self::enter). With an error type such as [`BoxError`](crate::BoxError) the two can
    /// be distinguished.
    ///
    /// # Panics
    ///
    /// Panics if `work` panics. The call then counts as failed, and ends at once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while it waits, the call leaves the queue. If it is dropped while
    /// `work` runs, for instance by a timeout around it, the call counts as cancelled: that is no
    /// failure, and only a circuit breaker by [slow calls](crate::CircuitBreakerRule::slow_ratio)
    /// may count it. So a timeout that is to count as a failure belongs inside `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::{Blocked, BoxError, Call, CircuitBreakerRule, Sentinel};
    ///
    /// async fn query(is_up: bool) -> Result<u32, BoxError> {
    ///     if is_up { Ok(7) } else { Err("the database is down".into()) }
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sentinel = Sentinel::new(CircuitBreakerRule::consecutive_errors("db", 2));
    /// let db = Call::new("db").outbound();
    /// assert_eq!(sentinel.run(db, query(true)).await?, 7);
    /// for _ in 0..2 {
    ///     let failed = sentinel.run(db, query(false)).await.unwrap_err();
    ///     assert!(!failed.is::<Blocked>());
    /// }
    /// // The breaker is open, so the database is not asked.
    /// let refused = sentinel.run(db, query(true)).await.unwrap_err();
    /// assert!(refused.is::<Blocked>());
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias("guard", "wrap", "execute"))]
    pub fn run<T, E>(
        &self,
        call: Call<'_>,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, E>>
    where
        E: From<Blocked>,
    {
        let classify = |result: &Result<T, E>| match result {
            Ok(_) => Outcome::Success,
            Err(_) => Outcome::Failure,
        };
        let run = self.run_with(call, work, classify);
        RunOrFail { run }
    }

    /// Runs `work` as `call`, like [`run`](Self::run), and lets `classify` judge the result, which
    /// can have any type. A refusal is returned separately from the result, so the error of the
    /// work need not be able to hold it.
    ///
    /// # Errors
    ///
    /// Returns [`Blocked`] if the call is refused, as by [`enter`](Self::enter); `work` is not
    /// polled then.
    ///
    /// # Panics
    ///
    /// Panics if `work` or `classify` panics. The call then counts as failed, and ends at once.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use tower_sentinel::stat::Outcome;
    /// use tower_sentinel::{Blocked, Call, CircuitBreakerRule, Sentinel};
    ///
    /// /// A third-party client: it returns a status, and its error cannot hold a `Blocked`.
    /// async fn send(status: u16) -> io::Result<u16> {
    ///     if status == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(status) }
    /// }
    ///
    /// let classify = |answer: &io::Result<u16>| match answer {
    ///     Ok(400..500) => Outcome::Ignore, // our mistake, not theirs
    ///     Ok(status) if *status < 400 => Outcome::Success,
    ///     Ok(_) | Err(_) => Outcome::Failure,
    /// };
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sentinel = Sentinel::new(CircuitBreakerRule::consecutive_errors("shop", 2));
    /// let shop = Call::new("shop").outbound();
    /// assert_eq!(sentinel.run_with(shop, send(500), classify).await?.ok(), Some(500));
    /// assert_eq!(sentinel.run_with(shop, send(404), classify).await?.ok(), Some(404));
    /// assert!(sentinel.run_with(shop, send(0), classify).await?.is_err());
    /// // Two calls have failed, so the breaker is open.
    /// assert!(sentinel.run_with(shop, send(200), classify).await.is_err());
    /// # Ok::<(), Blocked>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias("guard", "wrap", "execute"))]
    pub fn run_with<T>(
        &self,
        call: Call<'_>,
        work: impl Future<Output = T>,
        classify: impl FnOnce(&T) -> Outcome,
    ) -> impl Future<Output = Result<T, Blocked>> {
        Run {
            work,
            entry: None,
            enter: Some(self.enter(call)),
            classify: Some(classify),
        }
    }

    /// Replaces all rules at once: a call is judged by the old rules or by the new rules, never by
    /// some of each. A layer names a call, or [skips](crate::SentinelLayer::skip) it, with the same
    /// version of the rules that then judges it. Once a caller has seen a new rule in force, it
    /// never meets an old one again. Returns false, and does nothing, if the rules are the same.
    ///
    /// `rules` are all rules from now on: to add or change a rule, start with the [rules in
    /// force](Self::rules).
    ///
    /// ```
    /// use tower_sentinel::{FlowRule, IsolationRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
    /// assert!(sentinel.reload(sentinel.rules().with(IsolationRule::new("/report", 2))));
    /// assert_eq!(sentinel.rules().len(), 2);
    /// ```
    ///
    /// Counts are kept. If a rule keeps the length and the buckets of its window, the window keeps
    /// its counts exactly. A window of another shape takes over the counts as far as they are
    /// known, and refuses too much rather than too little. A keyed rule keeps what its values
    /// have spent, unless its interval, offset from UTC, parameter, `max_keys` or way to count is
    /// changed, or new limits need another kind of table; see
    /// [`max_keys`](crate::KeyedRule::max_keys). For breakers see [their
    /// rule](crate::CircuitBreakerRule#reloads).
    ///
    /// Calls in flight end by the rules that admitted them. Waiting calls keep their
    /// places, and when they start they are judged by the rules that gave them these
    /// places. If the reload has changed the buckets of the resource, a call that is dropped
    /// while it waits gives no tokens back to windows, and counts as cancelled. A call that
    /// comes during the reload may wait for a lock, for as long as it takes to rebuild one
    /// resource.
    ///
    /// A resource takes over the new rules when it is next called or looked at. It does so
    /// at once if no rule names it any more, or if resources still use more than eight
    /// older sets of rules, so that the memory of old sets is bounded. Of several reloads
    /// in between, a resource sees only the last.
    ///
    /// A rule that is [shared](crate::FlowRule::shared) is put in force also if the engine has no
    /// [store](Builder::store). Then it limits this process alone, by what its
    /// [`when_down`](crate::FlowRule::when_down) says, and there is a
    /// [finding](crate::hook::FindingKind::NoStore). Use [`try_reload`](Self::try_reload) to refuse
    /// such a rule.
    pub fn reload(&self, rules: Rules) -> bool {
        self.core.reload(rules)
    }

    /// Checks `rules` and puts them in force; returns the same as [`reload`](Self::reload).
    ///
    /// # Errors
    ///
    /// Returns all problems of all rules, such as that a rule is shared and the engine has no
    /// store; the old rules then stay in force.
    pub fn try_reload<R: Into<crate::rule::Rule>>(
        &self,
        rules: impl IntoIterator<Item = R>,
    ) -> Result<bool, InvalidRules> {
        let rules = Rules::build(rules)?;
        self.check_store(&rules)?;
        Ok(self.reload(rules))
    }

    /// Begins a change that is derived from the rules in force. Other changes that begin in this
    /// way wait until the returned lock is dropped.
    #[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
    pub(crate) fn begin_change(&self) -> impl Sized {
        self.core.begin_change()
    }

    /// Returns an error if `rules` need a store and the engine has none.
    pub(crate) fn check_store(&self, rules: &Rules) -> Result<(), InvalidRules> {
        match self.core.registry().shared().has_store() {
            true => Ok(()),
            false => rules.check_without_store(),
        }
    }

    /// Starts the task that asks the [store](Builder::store), in the present tokio runtime. Before
    /// that, and after the handle is dropped, shared rules decide [without the
    /// store](crate::store::WhenDown).
    ///
    /// Call it after the last fork: a forked process has no such task, and cannot start it again
    /// for the same engine. In the forked process, each call that finds no permits waits for
    /// [`store_wait`](crate::store::StoreSettings::store_wait), and is then judged without the
    /// store. Permits that were held before the fork can be used in both processes. An engine that
    /// is built before the fork and used only after it can be started in each process.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine has no store, if the store has no
    /// [prefix](crate::store::QuotaStore::prefix), if the thread is in no tokio runtime with a
    /// timer, or if the task was started before and has not been stopped. A store that cannot be
    /// reached is no error, as it may become available. Its
    /// [state](crate::store::StoreStatus::state) shows that, and so does a
    /// [finding](crate::hook::FindingKind::StoreUnreachable).
    ///
    /// ```
    /// use tower_sentinel::Sentinel;
    /// use tower_sentinel::store::MemoryStore;
    ///
    /// let none = Sentinel::builder().build();
    /// assert_eq!(none.start_store().unwrap_err().to_string(), "the engine has no store");
    /// let sentinel = Sentinel::builder().store(MemoryStore::new()).build();
    /// let error = sentinel.start_store().unwrap_err();
    /// assert_eq!(error.to_string(), "there is no tokio runtime with a timer");
    /// ```
    #[cfg(feature = "shared")]
    #[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
    pub fn start_store(&self) -> std::io::Result<StoreHandle> {
        self.core.start_store()
    }

    /// Returns the state of the [store](Builder::store), and the counts of its requests; `None` if
    /// the engine has none.
    #[must_use]
    pub fn store(&self) -> Option<StoreStatus> {
        self.core.registry().shared().store_status()
    }

    /// Returns a copy of the rules in force.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.core.registry().rules().rules().clone()
    }

    /// Returns how often the rules have been replaced by others since the engine was built: the
    /// version of the rules in force. Equal numbers mean equal rules.
    ///
    /// ```
    /// use tower_sentinel::{FlowRule, Rules, Sentinel};
    ///
    /// let sentinel = Sentinel::new(Rules::new());
    /// assert_eq!(sentinel.rules_version(), 0);
    /// sentinel.reload(FlowRule::per_second("job", 1).into());
    /// sentinel.reload(FlowRule::per_second("job", 1).into()); // they are in force
    /// assert_eq!(sentinel.rules_version(), 1);
    /// assert!(sentinel.rules_since() <= std::time::SystemTime::now());
    /// ```
    #[doc(alias("reloads"))]
    #[must_use]
    pub fn rules_version(&self) -> u64 {
        self.core.registry().rules().version()
    }

    /// Returns when the rules in force came into force, by the clock of the operating system.
    #[must_use]
    pub fn rules_since(&self) -> SystemTime {
        self.core.registry().rules().made_at()
    }

    /// Returns the hooks, to register and remove some.
    #[must_use]
    pub fn hooks(&self) -> &Hooks {
        &self.core.registry().shared().hooks
    }

    /// Returns likely mistakes in the set-up; empty if there are none. Examples are:
    ///
    /// * rules that no call has met although calls came, with the name that was probably meant,
    /// * keys that no layer extracts from requests, or that every call lacked,
    /// * limits on figures of the machine without a sampler that measures them.
    ///
    /// Each finding is only a suspicion: a rule whose route has not been called yet is reported,
    /// too. So look at the findings when every route has been called, as at the end of a test:
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_second("search", 5));
    /// drop(sentinel.try_enter(Call::new("search")));
    /// assert_eq!(sentinel.findings(), []);
    /// ```
    ///
    /// [Hooks](crate::Hook::on_finding) receive each finding once; most findings are reported even
    /// if this method is never called; see also [`Builder::on_finding`].
    ///
    /// The method looks at every resource and every rule, and at the whole table of a keyed rule
    /// that has only met calls without a value. It returns at most 1,000 findings. Calls pay
    /// nothing for it.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.core.findings()
    }

    /// Returns the statistics of inbound calls to `resource`, if there have been any.
    #[must_use]
    pub fn node<'a>(&self, resource: impl Into<Key<'a>>) -> Option<NodeView> {
        view::find(self.core.registry(), resource.into(), Direction::Inbound)
    }

    /// Returns the statistics of outbound calls to `resource`, if there have been any.
    #[must_use]
    pub fn outbound_node<'a>(&self, resource: impl Into<Key<'a>>) -> Option<NodeView> {
        view::find(self.core.registry(), resource.into(), Direction::Outbound)
    }

    /// Returns the circuit breakers of `resource`, in the order of their rules, to read and to
    /// operate them. If a rule names the resource, they exist before its first call, so that a
    /// breaker can be [forced open](BreakerView::force_open) ahead of it. Any other resource has no
    /// breakers until it has been called.
    ///
    /// ```
    /// use tower_sentinel::call::Direction;
    /// use tower_sentinel::{Call, CircuitBreakerRule, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(CircuitBreakerRule::error_ratio("pay", 0.5));
    /// assert!(sentinel.breakers(Direction::Inbound, "pay")[0].force_open());
    /// assert!(matches!(sentinel.try_enter(Call::new("pay")), Verdict::Block(_)));
    /// assert!(sentinel.breakers(Direction::Inbound, "search").is_empty());
    /// ```
    #[must_use]
    pub fn breakers<'a>(
        &self,
        direction: Direction,
        resource: impl Into<Key<'a>>,
    ) -> Vec<BreakerView> {
        let registry = self.core.registry();
        let now = registry.shared().time.read();
        let found = registry.named(direction, resource, now);
        found.map_or_else(Vec::new, |found| NodeView::new(found).breakers())
    }

    /// Returns the rules in [shadow mode](crate::Rule::shadow), in their order.
    #[must_use]
    pub fn shadows(&self) -> Vec<ShadowView> {
        let mut views = Vec::new();
        for shadow in self.core.shadows().list() {
            views.push(ShadowView::new(shadow));
        }
        views
    }

    /// Returns the statistics of all inbound calls together. They cost calls nothing: each
    /// figure is summed up when it is read.
    #[must_use]
    pub fn inbound(&self) -> InboundView<'_> {
        InboundView::new(self.core.registry(), None)
    }

    /// Returns the statistics of all inbound calls that came in through `context`; see
    /// [`Builder::contexts`].
    #[must_use]
    pub fn entrance<'a>(&'a self, context: impl Into<Key<'a>>) -> InboundView<'a> {
        InboundView::new(self.core.registry(), Some(context.into()))
    }

    /// Returns a copy of all statistics, and of the state of single rules: the states of breakers,
    /// adaptive limits, and the counts of keyed rules and rules in shadow mode.
    ///
    /// It looks at every resource, so resources that have not been called since a
    /// [reload](Self::reload) take over the rules in force. It does not walk the tables of values.
    #[doc(alias("metrics", "Prometheus"))]
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.core)
    }

    /// Returns the core of the engine. Layers use it directly, which saves copies of the call and
    /// the verdict.
    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn registry(&self) -> &crate::engine::registry::Registry {
        self.core.registry()
    }

    pub(crate) fn routes(&self) -> Routes<'_> {
        self.core.registry().routes()
    }

    /// Returns what the layers of this engine extract from requests.
    pub(crate) fn provided(&self) -> &Provided {
        &self.core.registry().shared().provided
    }
}

impl<T, W, N, C> Future for Run<W, N, C>
where
    W: Future<Output = T>,
    N: Future<Output = Result<Entry, Blocked>>,
    C: FnOnce(&T) -> Outcome,
{
    type Output = Result<T, Blocked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(enter) = this.enter.as_mut().as_pin_mut() {
            let entered = ready!(enter.poll(cx));
            this.enter.set(None);
            *this.entry = Some(entered?.expecting_response());
        }
        assert!(this.entry.is_some(), "polled after the call has ended");
        end_on_panic(this.entry, |entry| {
            let result = ready!(this.work.poll(cx));
            let classify = this.classify.take().expect("the work is done once");
            let outcome = classify(&result);
            if let Some(entry) = entry.take() {
                entry.end(outcome);
            }
            Poll::Ready(Ok(result))
        })
    }
}

impl<T, E, F> Future for RunOrFail<F>
where
    E: From<Blocked>,
    F: Future<Output = Result<Result<T, E>, Blocked>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.project().run.poll(cx));
        Poll::Ready(result.unwrap_or_else(|blocked| Err(blocked.into())))
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinel")
            .field("rules", &self.rules())
            .finish_non_exhaustive()
    }
}
