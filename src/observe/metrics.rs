//! `Metrics`: the figures of engines for Prometheus, as text and as a service.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tower_service::Service;

use super::body::Body;
use super::collect::{Collector, LastReading};
use super::family::Family;
use super::negotiate::negotiate;
use super::text::TextFormat;
use crate::base::sync::Lock;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::sentinel::Sentinel;
use crate::source::{Watch, WatchStatus};

/// How many resources have series of their own, unless it is set.
const MAX_RESOURCES: usize = 200;
/// So long a text is served to others that ask for it.
const KEPT: Duration = Duration::from_millis(250);

/// The figures of one engine, or of several, for Prometheus: the service behind `/metrics`.
///
/// Everything is read from counters that the engines keep anyway, when somebody asks, so calls
/// pay nothing for it. A clone is the same service.
///
/// # What is told
///
/// A resource has series of its own if [callers cannot make up its
/// name](crate::NodeSnapshot::is_listed), for at most [`max_resources`](Self::max_resources) of
/// them, in the order in which they were first seen here; it keeps them while it has its place in
/// the engine. All calls, also those to any other name, count in the series `sentinel_engine_…`.
/// Origins, contexts, parameters and keys are in no label; ids of rules are.
///
/// No counter is a difference of others, so none falls while its resource has its place.
/// Successes are `rate(sentinel_completed_total[5m]) - rate(sentinel_failed_total[5m])`.
/// Where [`Builder::histograms`](crate::Builder::histograms) is off, durations are summaries: sums
/// and numbers without ranges.
///
/// # Manners
///
/// GET and HEAD get the classic text, or OpenMetrics if the header `Accept` has it; other methods
/// 405. A text serves all requests within a quarter of a second: a flood of requests costs little.
/// Making one takes a millisecond for 200 resources, on the thread that asks. Whoever can reach
/// the service can read all names of resources and rules: do not route it where the world comes
/// in, or put authentication in front.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use tower_sentinel::observe::Metrics;
/// use tower_sentinel::{FlowRule, Sentinel, SentinelLayer};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("/users/{id}", 100));
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async { "a user" }))
///     .layer(SentinelLayer::with(sentinel.clone()))
///     // What is routed below the layer is not limited.
///     .route_service("/metrics", Metrics::new(&sentinel));
/// # let _ = app;
/// ```
///
/// Without a server:
///
/// ```
/// use tower_sentinel::observe::{Metrics, TextFormat};
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("/search", 0));
/// drop(sentinel.try_enter(Call::new("/search")));
/// let text = Metrics::new(&sentinel).render(TextFormat::Classic);
/// let refused = "sentinel_blocked_total{resource=\"/search\",direction=\"inbound\",reason=\"flow\"} 1";
/// assert!(text.contains(refused));
/// ```
#[doc(alias("prometheus", "exporter", "openmetrics"))]
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<MetricsInner>,
}

/// The settings.
#[derive(Clone)]
struct MetricsSettings {
    engines: Vec<(Option<Arc<str>>, Sentinel)>,
    max_resources: usize,
    watches: Vec<(Arc<str>, WatchStatus)>,
}

struct MetricsInner {
    settings: MetricsSettings,
    /// Of each engine, at its place.
    memory: Lock<Vec<LastReading>>,
    /// The last text of each format that was served, and when.
    kept: Lock<[Option<(Tick, Bytes)>; 2]>,
    clock: Box<dyn Clock>,
}

impl Metrics {
    /// Creates the service of `sentinel`. Its series have no label for the engine.
    #[must_use]
    pub fn new(sentinel: &Sentinel) -> Self {
        Self::of(MetricsSettings {
            engines: vec![(None, sentinel.clone())],
            max_resources: MAX_RESOURCES,
            watches: Vec::new(),
        })
    }

    /// Creates the service of `sentinel`, whose series have the label `engine="name"`: for several
    /// engines in one process, with [`and`](Self::and).
    ///
    /// ```
    /// use tower_sentinel::observe::{Metrics, TextFormat};
    /// use tower_sentinel::{Rules, Sentinel};
    ///
    /// let [public, internal] = [(); 2].map(|()| Sentinel::new(Rules::new()));
    /// let text = Metrics::named("public", &public)
    ///     .and("internal", &internal)
    ///     .render(TextFormat::Classic);
    /// assert!(text.contains("sentinel_resources{engine=\"public\"} 0\n"));
    /// assert!(text.contains("sentinel_resources{engine=\"internal\"} 0\n"));
    /// ```
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>, sentinel: &Sentinel) -> Self {
        Self::new(sentinel).change(|settings| settings.engines[0].0 = Some(name.into()))
    }

    /// Adds another engine under a `name` of its own. One of that name is replaced.
    #[must_use]
    pub fn and(self, name: impl Into<Arc<str>>, sentinel: &Sentinel) -> Self {
        let engine = (Some(name.into()), sentinel.clone());
        self.change(|settings| {
            settings.engines.retain(|(known, _)| *known != engine.0);
            settings.engines.push(engine);
        })
    }

    /// Sets how many resources of each engine have series of their own. Default: 200. 0: none. Each
    /// has about 15 lines, and about 35 more with the default histograms.
    #[must_use]
    pub fn max_resources(self, max: usize) -> Self {
        self.change(|settings| settings.max_resources = max)
    }

    /// Tells, as `sentinel_rule_source_up{source="name"}`, whether a [watch](crate::source::Watch)
    /// can read its rules. One of that name is replaced. The watch is not kept alive.
    ///
    /// ```
    /// use tower_sentinel::observe::{Metrics, TextFormat};
    /// use tower_sentinel::source::{Watch, from_fn};
    /// use tower_sentinel::{Rules, Sentinel};
    ///
    /// let sentinel = Sentinel::new(Rules::new());
    /// let watch = Watch::new(sentinel.clone(), from_fn(|| Ok(None)));
    /// let metrics = Metrics::new(&sentinel).watch("rules.toml", &watch);
    /// let text = metrics.render(TextFormat::Classic);
    /// assert!(text.contains("sentinel_rule_source_up{source=\"rules.toml\"} 1\n"));
    /// ```
    #[must_use]
    pub fn watch(self, name: impl Into<Arc<str>>, watch: &Watch) -> Self {
        let watch = (name.into(), watch.status.clone());
        self.change(|settings| {
            settings.watches.retain(|(known, _)| *known != watch.0);
            settings.watches.push(watch);
        })
    }

    /// Returns the present figures as text.
    #[must_use]
    pub fn render(&self, format: TextFormat) -> String {
        format.text(&self.families())
    }

    /// Returns the present figures: all families, also those without samples, always in the same
    /// order. This is what both texts are written from, and what other exporters may use.
    ///
    /// ```
    /// use tower_sentinel::observe::{FamilyKind, Metrics};
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
    /// drop(sentinel.try_enter(Call::new("/search")));
    /// let families = Metrics::new(&sentinel).families();
    /// let completed = families.iter().find(|it| it.name() == "sentinel_completed");
    /// let completed = completed.expect("it is always there");
    /// assert_eq!((completed.kind(), completed.unit()), (FamilyKind::Counter, None));
    /// let sample = &completed.samples()[0];
    /// let labels: Vec<_> = sample.labels().collect();
    /// assert_eq!(labels, [("resource", "/search"), ("direction", "inbound")]);
    /// assert_eq!(sample.value().as_f64(), 1.0);
    /// ```
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let MetricsSettings {
            engines,
            max_resources,
            watches,
        } = &self.inner.settings;
        let mut collector = Collector::new();
        collector.add_process(watches);
        let mut memory = self.inner.memory.lock();
        for ((name, sentinel), memory) in engines.iter().zip(memory.iter_mut()) {
            collector.add_engine(name.as_ref(), sentinel, *max_resources, memory);
        }
        collector.into_families()
    }

    fn of(settings: MetricsSettings) -> Self {
        let memory = settings.engines.iter().map(|_| LastReading::default());
        let inner = MetricsInner {
            memory: Lock::new(memory.collect()),
            settings,
            kept: Lock::new([None, None]),
            clock: Box::new(MonotonicClock::new()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The service with other settings.
    fn change(self, change: impl FnOnce(&mut MetricsSettings)) -> Self {
        let mut settings = self.inner.settings.clone();
        change(&mut settings);
        Self::of(settings)
    }

    /// The text that is served: not older than it is kept.
    fn served(&self, format: TextFormat) -> Bytes {
        let now = self.inner.clock.now();
        // Requests that come meanwhile wait, and get the same.
        let mut kept = self.inner.kept.lock();
        let kept = &mut kept[usize::from(format == TextFormat::OpenMetrics)];
        match kept {
            Some((at, text)) if *at <= now && now - *at < KEPT => text.clone(),
            _ => {
                let text = Bytes::from(self.render(format));
                *kept = Some((now, text.clone()));
                text
            }
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let mut response = Response::new(Body::default());
        let is_get = request.method() == Method::GET;
        if !is_get && request.method() != Method::HEAD {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        let format = negotiate(request.headers());
        let text = self.served(format);
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(format.content_type());
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CONTENT_LENGTH, text.len().into());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_get {
            *response.body_mut() = text.into();
        }
        response
    }
}

impl<B> Service<Request<B>> for Metrics {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(&request)))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("engines", &self.inner.settings.engines)
            .field("max_resources", &self.inner.settings.max_resources)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::clock::ManualClock;
    use crate::rule::FlowRule;

    #[test]
    fn a_text_serves_all_who_ask_within_a_quarter_of_a_second() {
        let sentinel = Sentinel::new(FlowRule::per_second("r", 100));
        let clock = ManualClock::new();
        let mut inner = Metrics::new(&sentinel).inner;
        Arc::get_mut(&mut inner).unwrap().clock = Box::new(clock.clone());
        let metrics = Metrics { inner };
        let has = |format, calls: u32| {
            let text = String::from_utf8(metrics.served(format).to_vec()).unwrap();
            text.contains(&format!("sentinel_engine_completed_total {calls}\n"))
        };
        let call = || drop(sentinel.try_enter(Call::new("r")));
        call();
        assert!(has(TextFormat::Classic, 1));
        call();
        clock.advance(Duration::from_millis(249));
        assert!(has(TextFormat::Classic, 1), "kept");
        assert!(has(TextFormat::OpenMetrics, 2), "another one");
        assert!(
            metrics
                .render(TextFormat::Classic)
                .contains("_completed_total 2\n")
        );
        clock.advance(Duration::from_millis(1));
        assert!(has(TextFormat::Classic, 2));
    }
}
