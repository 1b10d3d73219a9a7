//! Configures an engine and builds it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Sentinel;
use crate::base::invalid::InvalidSetting;
use crate::base::sync::{AtomicU32, AtomicU64};
use crate::breaker::KeptBreakers;
use crate::clock::timekeeper::{Timekeeper, never_panicking};
use crate::clock::{Clock, MonotonicClock};
use crate::engine::Core;
use crate::engine::context::{Config, EngineContext, KeepsMinute};
use crate::hook::finding::{Finding, Provided, ReportedFindings};
use crate::hook::{Hook, Hooks, OnFinding};
use crate::rule::{RuleSelection, Rules};
use crate::stat::{Edges, LinedUp, Shape};
#[cfg(feature = "shared")]
use crate::store::{Hub, QuotaStore, StoreSettings};
use crate::system::Sampler;

/// Configures an engine.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{FlowRule, ManualClock, Sentinel};
///
/// let clock = ManualClock::new();
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("/search", 100))
///     .clock(clock.clone())
///     .max_resources(1_000)
///     .occupy_timeout(Duration::from_millis(200))
///     .build();
/// assert_eq!(sentinel.rules().len(), 1);
/// ```
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct Builder {
    rules: Rules,
    clock: Box<dyn Clock>,
    hooks: Hooks,
    config: Config,
    /// The edges of the histograms; `None` for no histograms.
    edges: Option<Edges>,
    #[cfg(feature = "shared")]
    store: Option<Arc<dyn QuotaStore>>,
    #[cfg(feature = "shared")]
    store_settings: StoreSettings,
    /// Whether all rules are in shadow mode.
    shadow: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            rules: Rules::new(),
            clock: Box::new(MonotonicClock::new()),
            hooks: Hooks::default(),
            config: Config::default(),
            edges: None,
            #[cfg(feature = "shared")]
            store: None,
            #[cfg(feature = "shared")]
            store_settings: StoreSettings::new(),
            shadow: false,
        }
    }
}

impl Builder {
    /// Sets the rules to start with. Default: none.
    ///
    /// # Panics
    ///
    /// Panics if a rule is invalid. A [`Rules`] value has been checked already, and never panics.
    #[track_caller]
    pub fn rules(mut self, rules: impl Into<Rules>) -> Self {
        self.rules = rules.into();
        self
    }

    /// Sets the clock. Default: [`MonotonicClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = never_panicking(clock);
        self
    }

    /// Registers `hook` under `name`; see [`Hooks::register`].
    pub fn hook(self, name: impl Into<Arc<str>>, hook: Arc<dyn Hook>) -> Self {
        self.hooks.register(name, hook);
        self
    }

    /// Calls `tell` with each [finding](Sentinel::findings), once. Default: findings are not
    /// reported.
    ///
    /// A program that prints them learns of a misspelled rule with the first calls:
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let lines = log.clone();
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("/serach", 5))
    ///     .on_finding(move |finding| lines.lock().unwrap().push(finding.to_string()))
    ///     .build();
    /// for _ in 0..3 {
    ///     drop(sentinel.try_enter(Call::new("/search")));
    /// }
    /// assert_eq!(
    ///     *log.lock().unwrap(),
    ///     ["rule \"flow-0\" for \"/serach\" has met no call, although calls came: \"/search\" \
    ///       was called once; is that the name that is meant?"],
    /// );
    /// ```
    ///
    /// The function is a [hook](crate::Hook) named `findings`, called on the thread of the request.
    pub fn on_finding(self, tell: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        self.hook("findings", Arc::new(OnFinding(tell)))
    }

    /// Sets the window of the statistics: `interval` in `buckets` buckets. Rates per second
    /// are averages over it. Default: 1 s in 2 buckets.
    ///
    /// Each node has a record for each bucket, and for each second of a bucket that is longer than
    /// a second: at most 256 KiB in all. Response times are right as long as the response times of
    /// the calls that end in one bucket add up to less than 12 days: with buckets of an hour, that
    /// is 300 concurrent calls. The weights that pass in the window must add up to less than 2³¹.
    /// For these bounds see [`NodeView`](crate::read::NodeView).
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] unless `interval` is at most 1 hour, `buckets` is between 1 and
    /// 3 600, and the resulting bucket is at least 10 ms long and either divides one second evenly
    /// or is a multiple of it.
    pub fn window(mut self, interval: Duration, buckets: u32) -> Result<Self, InvalidSetting> {
        let bucket_ns = InvalidSetting::check_figures(interval, buckets)?;
        self.config.shape = Arc::new(Shape::new(bucket_ns, buckets));
        Ok(self)
    }

    /// Sets how long a prioritized call can wait for borrowed tokens; it waits for less than this.
    /// Default: 500 ms. Zero: nothing is lent.
    ///
    /// A call can borrow at most 512 buckets of its resource ahead. That is 256 s, and less where a
    /// rule or the [window](Self::window) has buckets shorter than half a second.
    pub fn occupy_timeout(mut self, timeout: Duration) -> Self {
        self.config.occupy_timeout = timeout;
        self
    }

    /// Sets how many resources are counted separately, inbound and outbound together: at least one.
    /// Default: 16 384. Calls to any further resource are counted under `__overflow__`, and the
    /// rules for that name apply to them. A resource with a rule always has a place, and so does a
    /// resource that is named by the path that axum has matched. A call that itself has the name
    /// `__overflow__` or `-` is not counted with these calls, but under a hash of its name.
    ///
    /// With the defaults, names that callers make up take at most 20 MiB in all. In this worst
    /// case, each name is 256 bytes long, has been called in several seconds, and was refused by a
    /// system rule or a window for `*`. Each further rule for `*` adds at most 768 bytes for each
    /// name with the default buckets, or 12 MiB for 16 384 names. With an isolation rule and two
    /// breakers in addition to the window, the names take at most 56 MiB. With
    /// [`minute(true)`](Self::minute), each resource takes 3.5 KiB more.
    pub fn max_resources(mut self, max: usize) -> Self {
        self.config.max_resources = max.max(1);
        self
    }

    /// Sets how many origins and contexts have nodes, over all resources; at least 1.
    /// Default: 65 536. The table of a rule [by origin](crate::FlowRule::by_origin)
    /// has places for at least as many origins, up to 2²⁶. On each resource the calls of
    /// all further origins share one quota. An origin that a rule names always has a
    /// place.
    pub fn max_origins(mut self, max: usize) -> Self {
        self.config.max_origins = max.max(1);
        self
    }

    /// Sets how long a resource that no rule names must have been idle before a new resource can
    /// take its place. Default: 1 minute.
    ///
    /// A resource to which a rule for `*` applies also stays until its counts no longer matter, as
    /// origins do. Two kinds of counts are exceptions, as they would matter for ever: the [last
    /// calls](crate::CircuitBreakerRule::last_calls) and the [consecutive
    /// errors](crate::CircuitBreakerRule::consecutive_errors) of a breaker. An open breaker of a
    /// resource that has lost its place is still open when the resource is called again; see
    /// [`CircuitBreakerRule`](crate::CircuitBreakerRule).
    pub fn idle_after(mut self, idle: Duration) -> Self {
        self.config.idle = idle;
        self
    }

    /// Sets whether every origin of every resource has separate statistics. Default: no, only where
    /// a rule by origin needs more than a table; see
    /// [`FlowRule::by_origin`](crate::FlowRule::by_origin).
    pub fn origins(mut self, origins: bool) -> Self {
        self.config.origins = origins;
        self
    }

    /// Sets whether every context of every resource has separate statistics. Default: no.
    pub fn contexts(mut self, contexts: bool) -> Self {
        self.config.contexts = contexts;
        self
    }

    /// Sets whether all resources keep statistics for each second of the last minute, or none. They
    /// take 3.5 KiB for each resource that is called or read in two different seconds. Default:
    /// only resources whose names callers cannot make up keep them. These are the resources that a
    /// rule names (also in shadow mode, for its own statistics), the routes that a router has
    /// matched and the names of layers, when they are first called, and `__overflow__`. All other
    /// resources have the figures of the [window](Self::window) and totals.
    ///
    /// A resource that a rule names only after a [reload](crate::Sentinel::reload) keeps its
    /// seconds from then on. Its first known second is the second one after the reload.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
    ///
    /// let rule = || FlowRule::per_second("named", 5);
    /// let builder = || Sentinel::builder().clock(ManualClock::new()).rules(rule());
    /// let keep_seconds = |sentinel: Sentinel| {
    ///     ["named", "made up"].map(|name| {
    ///         drop(sentinel.try_enter(Call::new(name)));
    ///         sentinel.node(name).is_some_and(|node| node.seconds().is_some())
    ///     })
    /// };
    /// assert_eq!(keep_seconds(builder().build()), [true, false]);
    /// assert_eq!(keep_seconds(builder().minute(true).build()), [true, true]);
    /// ```
    pub fn minute(mut self, minute: bool) -> Self {
        self.config.minute = if minute {
            KeepsMinute::All
        } else {
            KeepsMinute::None
        };
        self
    }

    /// Sets whether origins and contexts also keep statistics for each second of the last minute.
    /// Default: no.
    pub fn minute_of_origins(mut self, minute: bool) -> Self {
        self.config.minute_of_scopes = minute;
        self
    }

    /// Keeps histograms for each resource: of response times, and of the times that calls waited.
    /// Default: no.
    ///
    /// The ranges end at 0.5, 1, 2.5, 5, 10, 25, 50, 75, 100, 250, 500 and 750 ms, and 1, 2.5, 5,
    /// 7.5 and 10 s: the edges of Prometheus's clients, and three shorter ones for answers from
    /// memory. One more range is for longer times. For other edges see
    /// [`histograms_with`](Self::histograms_with).
    ///
    /// Each call costs one more relaxed addition; each resource takes up to 200 bytes more with
    /// these edges, and as much again after its first call that waits. Origins and contexts have no
    /// histograms. Read them with [`NodeView::rt_histogram`](crate::read::NodeView::rt_histogram).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, ManualClock, Sentinel};
    ///
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder()
    ///     .histograms()
    ///     .clock(clock.clone())
    ///     .build();
    /// let running = sentinel.try_enter(Call::new("job"));
    /// clock.advance(Duration::from_millis(30));
    /// drop(running);
    /// let times = sentinel.node("job").expect("it has been called").rt_histogram();
    /// let times = times.expect("it is on");
    /// let (edge, count) = times.buckets().find(|(_, count)| *count > 0).expect("it has ended");
    /// assert_eq!((edge, count), (Some(Duration::from_millis(50)), 1));
    /// ```
    pub fn histograms(mut self) -> Self {
        self.edges = Some(Edges::default());
        self
    }

    /// Keeps histograms like [`histograms`](Self::histograms), with ranges that end at `edges`. A
    /// time belongs to the range of the first edge that is at least as long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::Sentinel;
    ///
    /// let ms = Duration::from_millis;
    /// let builder = Sentinel::builder().histograms_with(&[ms(10), ms(100), ms(1_000)])?;
    /// let error = builder.histograms_with(&[ms(10), ms(5)]).unwrap_err();
    /// assert_eq!(error.to_string(), "edge 1 is 5ms, must be longer than the one before, 10ms");
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] unless there are 1 to 32 edges, ascending, each of whole
    /// microseconds between 1 µs and 60 s.
    pub fn histograms_with(mut self, edges: &[Duration]) -> Result<Self, InvalidSetting> {
        self.edges = Some(Edges::new(edges.iter().copied())?);
        Ok(self)
    }

    /// Sets the source of the load and CPU use for [system rules](crate::SystemRule), and of the
    /// memory use for [flow rules](crate::FlowRule::memory), such as a sampler of
    /// `system::SystemProbe` (feature `system`). Default: no sampler; then limits on load and CPU
    /// refuse no call, and memory lowers no threshold.
    ///
    /// ```
    /// use tower_sentinel::system::{ManualProbe, Sampler};
    /// use tower_sentinel::{BlockKind, Call, Sentinel, SystemRule, Verdict};
    ///
    /// let probe = ManualProbe::new();
    /// let sentinel = Sentinel::builder()
    ///     .rules(SystemRule::new().cpu(0.9))
    ///     .sampler(Sampler::new(probe.clone()))
    ///     .build();
    /// probe.set_cpu(0.95);
    /// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("job")) else {
    ///     panic!("the machine is too busy");
    /// };
    /// assert_eq!(blocked.kind(), BlockKind::System);
    /// ```
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.config.sampler = Some(sampler);
        self
    }

    /// Sets the store by which [shared](crate::FlowRule::shared) rules count over several
    /// processes. Default: no store, so no rule can be shared. The store is not used before
    /// [`Sentinel::start_store`].
    #[cfg(feature = "shared")]
    #[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
    pub fn store(mut self, store: impl QuotaStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Sets how the store is used.
    #[cfg(feature = "shared")]
    #[cfg_attr(docsrs, doc(cfg(feature = "shared")))]
    pub fn store_settings(mut self, settings: StoreSettings) -> Self {
        self.store_settings = settings;
        self
    }

    /// Sets whether all rules are in shadow mode, now and after every reload; see
    /// [`Rule::shadow`](crate::Rule::shadow). Default: no.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Builds the engine.
    ///
    /// # Panics
    ///
    /// Panics if a setting of the store is out of its range, or if a rule is
    /// [shared](crate::FlowRule::shared) and there is no store: the message says which.
    #[must_use]
    #[track_caller]
    pub fn build(mut self) -> Sentinel {
        let time = Timekeeper::new(self.clock);
        let store = OnceLock::new();
        #[cfg(feature = "shared")]
        if let Some(hub) = hub_of(self.store, self.store_settings, &time) {
            let _ = store.set(crate::base::sync::Arc::new(hub));
        }
        if store.get().is_none() {
            if let Err(error) = self.rules.check_without_store() {
                panic!("{error}");
            }
        }
        let mut shape = Shape::clone(&self.config.shape);
        shape.edges = self.edges.map(Arc::new);
        self.config.shape_of_resources = Arc::new(shape);
        let shared = EngineContext {
            config: self.config,
            time,
            hooks: self.hooks,
            provided: Provided::default(),
            told: ReportedFindings::default(),
            inbound: OnceLock::new(),
            hash: std::array::from_fn(|_| foldhash::quality::RandomState::default()),
            kept_breakers: KeptBreakers::default(),
            version: AtomicU64::new(0),
            marked: AtomicU32::new(0),
            lined_up: LinedUp::default(),
            store,
            part: if self.shadow {
                RuleSelection::Nothing
            } else {
                RuleSelection::Enforced
            },
        };
        let core = Core::new(self.rules.into(), shared);
        Sentinel { core }
    }
}

/// Creates the part of an engine that its `store` uses; `None` without a store.
///
/// # Panics
///
/// Panics if a setting is out of its range.
#[cfg(feature = "shared")]
#[track_caller]
fn hub_of(
    store: Option<Arc<dyn QuotaStore>>,
    settings: StoreSettings,
    time: &Timekeeper,
) -> Option<Hub> {
    if let Some(problem) = settings.problem() {
        panic!("store settings: {problem}");
    }
    store.map(|store| Hub::new(Some(store), settings, time.clone()))
}
