//! `Metrics`: the figures of engines for Prometheus, as text and as a service.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tower_service::Service;

use super::body::{Body, TextParts};
use super::collect::{Collector, LastReading, SeriesBounds};
use super::family::Family;
use super::host::Hosts;
use super::negotiate::negotiate;
use super::rounds::{Rounds, SteppedWork};
use super::text::TextFormat;
use crate::base::invalid::InvalidSetting;
use crate::base::pace::{StepPace, at_once};
use crate::base::sync::Lock;
use crate::clock::{Clock, MonotonicClock};
use crate::sentinel::Sentinel;
use crate::source::{Watch, WatchStatus};

/// The default maximum number of resources with series.
const MAX_RESOURCES: usize = 200;
/// The default maximum number of rules with series.
const MAX_RULES: usize = 500;
/// The work between two pauses, in resources read. It bounds how long a poll holds a worker.
const PORTION: usize = 16;

/// The figures of one engine, or of several, for Prometheus: the service behind `/metrics`.
///
/// Everything is read on request, from counters that the engines keep anyway, so it adds no work to
/// calls. Clones are handles of the same service.
///
/// # What is exported
///
/// A resource has series if [callers cannot make up its
/// name](crate::read::NodeSnapshot::is_listed). At most [`max_resources`](Self::max_resources)
/// resources have series: first resources that a rule names, then resources with a circuit breaker.
/// Within a group, resources that had series before come first, then older resources.
/// `sentinel_resources_left_out` is the number of resources that are left without series. The
/// series `sentinel_engine_…` count all calls, also those to resources without series. No label
/// holds an origin, a context, a parameter or a key. Ids of at most [`max_rules`](Self::max_rules)
/// rules are labels.
///
/// No counter is the difference of other counters, so no counter falls unless its resource is
/// evicted. Successes are `rate(sentinel_completed_total[5m]) - rate(sentinel_failed_total[5m])`.
/// If [`Builder::histograms`](crate::Builder::histograms) is off, durations are summaries: sums and
/// numbers without ranges.
///
/// # Manners
///
/// GET and HEAD get the classic text, or OpenMetrics if the header `Accept` has it; other methods
/// get 405. A text is served for a quarter of a second, and 0.1 ms longer for each resource with
/// series. If it is requested often in that time, some requests wait for the next text, so a flood
/// of requests costs little. A text is made by the tasks that wait for it, in small steps between
/// which other tasks run.
///
/// Anyone who can reach the service can read the names of all resources and rules. So do not route
/// it on a public address without authentication in front. With [`host`](Self::host), no web site
/// can read it in the browser of a visitor with access.
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
///     // Routes that are added after the layer are not limited.
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
/// let refused =
///     "sentinel_blocked_total{resource=\"/search\",direction=\"inbound\",reason=\"flow\"} 1";
/// assert!(text.contains(refused));
/// ```
#[doc(alias("prometheus", "exporter", "openmetrics"))]
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<MetricsInner>,
}

/// The settings of [`Metrics`].
#[derive(Clone)]
struct MetricsSettings {
    engines: Vec<(Option<Arc<str>>, Sentinel)>,
    bounds: SeriesBounds,
    watches: Vec<(Arc<str>, WatchStatus)>,
    /// The host names under which requests are answered; `None` for any name.
    hosts: Option<Hosts>,
}

struct MetricsInner {
    source: Arc<MetricsSource>,
    /// The texts that are served, classic and OpenMetrics.
    texts: [Rounds<TextParts>; 2],
}

/// The engines and settings that texts are made from.
struct MetricsSource {
    settings: MetricsSettings,
    /// The memory of the last reading of each engine, in the order of `engines`.
    memory: Lock<Vec<LastReading>>,
}

impl Metrics {
    /// Creates the service of `sentinel`. Its series have no label for the engine.
    #[must_use]
    pub fn new(sentinel: &Sentinel) -> Self {
        let settings = MetricsSettings {
            engines: vec![(None, sentinel.clone())],
            bounds: SeriesBounds {
                resources: MAX_RESOURCES,
                rules: MAX_RULES,
            },
            watches: Vec::new(),
            hosts: None,
        };
        Self::of(settings, MonotonicClock::new())
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

    /// Adds another engine under `name`, and replaces an engine of the same name.
    #[must_use]
    pub fn and(self, name: impl Into<Arc<str>>, sentinel: &Sentinel) -> Self {
        let engine = (Some(name.into()), sentinel.clone());
        self.change(|settings| {
            settings.engines.retain(|(known, _)| *known != engine.0);
            settings.engines.push(engine);
        })
    }

    /// Sets how many resources of each engine can have series. Default: 200. 0: none. A resource
    /// has about 15 lines, and about 35 more with the default histograms.
    #[must_use]
    pub fn max_resources(self, max: usize) -> Self {
        self.change(|settings| settings.bounds.resources = max)
    }

    /// Sets how many rules of each engine can have series: the first ones in their order. Default:
    /// 500. 0: none. A rule has up to seven series. `sentinel_rules_left_out` is the number of
    /// rules without series.
    ///
    /// ```
    /// use tower_sentinel::observe::{Metrics, TextFormat};
    /// use tower_sentinel::{FlowRule, Rules, Sentinel};
    ///
    /// let rules = (0..9).map(|n| FlowRule::per_second(format!("/{n}"), 5));
    /// let metrics = Metrics::new(&Sentinel::new(Rules::build(rules)?)).max_rules(2);
    /// let text = metrics.render(TextFormat::Classic);
    /// assert_eq!(text.matches("\nsentinel_rule_limit{").count(), 2);
    /// assert!(text.contains("sentinel_rules_left_out 7\n"));
    /// # Ok::<(), tower_sentinel::InvalidRules>(())
    /// ```
    #[must_use]
    pub fn max_rules(self, max: usize) -> Self {
        self.change(|settings| settings.bounds.rules = max)
    }

    /// Exports as `sentinel_rule_source_up{source="name"}` whether a [watch](crate::source::Watch)
    /// can read its rules. A watch of the same name is replaced. The watch is not kept alive.
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

    /// Answers only requests for `name`, such as `shop-7.example.com`, for an address, for
    /// `localhost` or for a name below `.localhost`; all others get 403. A second call adds a name.
    /// The port and the case of letters are ignored. Default: requests for any name are answered.
    ///
    /// A web site could otherwise make its own name resolve to this server, and read the figures in
    /// the browser of a visitor with access. Prometheus sends the name that its configuration has.
    ///
    /// # Errors
    ///
    /// If `name` is empty, or has other characters than letters, digits, `-`, `.` and `_`.
    ///
    /// ```
    /// # use http::{Request, StatusCode};
    /// # use tower::ServiceExt;
    /// use tower_sentinel::observe::Metrics;
    /// # use tower_sentinel::{Rules, Sentinel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let sentinel = Sentinel::new(Rules::new());
    /// let metrics = Metrics::new(&sentinel).host("shop-7.example.com")?;
    /// # let status = async |host: &str| {
    /// #     let request = Request::get("/metrics").header("host", host).body(()).unwrap();
    /// #     metrics.clone().oneshot(request).await.unwrap().status()
    /// # };
    /// assert_eq!(status("shop-7.example.com:3000").await, StatusCode::OK);
    /// assert_eq!(status("evil.example:3000").await, StatusCode::FORBIDDEN);
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// # }).unwrap();
    /// ```
    pub fn host(self, name: &str) -> Result<Self, InvalidSetting> {
        let known = self.inner.source.settings.hosts.clone();
        let mut hosts = known.unwrap_or(Hosts::new());
        hosts.add(name)?;
        Ok(self.change(|settings| settings.hosts = Some(hosts)))
    }

    /// Returns the present figures as text.
    #[must_use]
    pub fn render(&self, format: TextFormat) -> String {
        let pace = &mut StepPace::without_pauses();
        let (families, _) = at_once(self.inner.source.families(pace));
        at_once(format.text(families, pace)).joined()
    }

    /// Returns the present figures: all families, also those without samples, always in the same
    /// order. Both text formats are written from these families, and other exporters can use them.
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
        let mut pace = StepPace::without_pauses();
        let (families, _) = at_once(self.inner.source.families(&mut pace));
        families.into_iter().map(Family::into_whole).collect()
    }

    /// Creates the service. `clock` measures the pauses between two texts.
    fn of(settings: MetricsSettings, clock: impl Clock) -> Self {
        let memory = settings.engines.iter().map(|_| LastReading::default());
        let source = Arc::new(MetricsSource {
            memory: Lock::new(memory.collect()),
            settings,
        });
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let texts = [TextFormat::Classic, TextFormat::OpenMetrics].map(|format| {
            let (source, clock) = (source.clone(), clock.clone());
            let make = move |before: Option<TextParts>| -> SteppedWork<_> {
                let source = source.clone();
                Box::pin(async move { source.text(format, before).await })
            };
            Rounds::new(make, move || clock.now())
        });
        Self {
            inner: Arc::new(MetricsInner { source, texts }),
        }
    }

    /// Returns the service with changed settings.
    fn change(self, change: impl FnOnce(&mut MetricsSettings)) -> Self {
        let mut settings = self.inner.source.settings.clone();
        change(&mut settings);
        Self::of(settings, MonotonicClock::new())
    }

    /// Returns the text to serve; `None` if making it has panicked.
    async fn served(&self, format: TextFormat) -> Option<TextParts> {
        let place = usize::from(format == TextFormat::OpenMetrics);
        self.inner.texts[place].look().await
    }

    /// Returns the answer to a request with this method.
    async fn answer(&self, method: Method, format: TextFormat) -> Response<Body> {
        let mut response = Response::new(Body::default());
        let is_get = method == Method::GET;
        if !is_get && method != Method::HEAD {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        let Some(text) = self.served(format).await else {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return response;
        };
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(format.content_type());
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CONTENT_LENGTH, text.length().into());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if is_get {
            *response.body_mut() = text.into_body();
        }
        response
    }
}

impl MetricsSource {
    /// Reads the present figures. Returns the figures and the amount of work.
    async fn families(&self, pace: &mut StepPace) -> (Vec<Family>, usize) {
        let (mut collector, mut read) = (Collector::new(), 0);
        collector.add_process(&self.settings.watches);
        for (place, (name, sentinel)) in self.settings.engines.iter().enumerate() {
            // Copied, so that the lock is not held while the engine is read in steps.
            let mut memory = self.memory.lock()[place].clone();
            let bounds = self.settings.bounds;
            let engine = collector.add_engine(name.as_ref(), sentinel, bounds, &mut memory, pace);
            read += engine.await;
            self.memory.lock()[place].update(memory);
        }
        (collector.into_families(), read)
    }

    /// Reads the figures and writes a text. Returns the text and the amount of work. The text of
    /// the previous round, `before`, is freed first.
    async fn text(&self, format: TextFormat, before: Option<TextParts>) -> (TextParts, usize) {
        let pace = &mut StepPace::of(PORTION);
        if let Some(before) = before {
            before.free(pace).await;
        }
        let (families, read) = self.families(pace).await;
        (format.text(families, pace).await, read)
    }
}

impl<B> Service<Request<B>> for Metrics {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let hosts = self.inner.source.settings.hosts.as_ref();
        if hosts.is_some_and(|hosts| !hosts.has_names_of(&request)) {
            return Box::pin(ready(Ok(foreign_name())));
        }
        let format = negotiate(request.headers());
        let (metrics, method) = (self.clone(), request.method().clone());
        Box::pin(async move { Ok(metrics.answer(method, format).await) })
    }
}

/// Returns the answer to a request for a name that is not the service's.
fn foreign_name() -> Response<Body> {
    const WHY: &str = "The figures are not served under this name. If it is a name of this server, \
                       write `.host(\"the.name\")?`; or use the address.\n";
    let mut response = Response::new(Body::from(WHY));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("engines", &self.inner.source.settings.engines)
            .field("bounds", &self.inner.source.settings.bounds)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::Call;
    use crate::clock::ManualClock;
    use crate::rule::FlowRule;

    #[test]
    fn a_text_is_served_for_a_quarter_of_a_second() {
        let sentinel = Sentinel::new(FlowRule::per_second("r", 100));
        let clock = ManualClock::new();
        let settings = Metrics::new(&sentinel).inner.source.settings.clone();
        let metrics = Metrics::of(settings, clock.clone());
        let has = |format, calls: u32| {
            let text = at_once(metrics.served(format)).unwrap();
            text.joined()
                .contains(&format!("sentinel_engine_completed_total {calls}\n"))
        };
        let call = || drop(sentinel.try_enter(Call::new("r")));
        call();
        assert!(has(TextFormat::Classic, 1));
        call();
        clock.advance(Duration::from_micros(250_099));
        assert!(has(TextFormat::Classic, 1), "kept");
        assert!(has(TextFormat::OpenMetrics, 2), "another one");
        assert!(
            metrics
                .render(TextFormat::Classic)
                .contains("_completed_total 2\n")
        );
        clock.advance(Duration::from_micros(1));
        assert!(has(TextFormat::Classic, 2));
    }
}
