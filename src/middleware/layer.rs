//! `SentinelLayer`: the layer, and the methods by which users configure it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tower_layer::Layer;

use super::classify::Classify;
use super::completion::Completion;
use super::costs::CostSettings;
use super::mode::{AsError, Respond};
use super::reported::ReportedOnce;
use super::service::SentinelService;
use super::settings::{MOST_PARAMS, Naming, Settings};
use crate::call::{Cohort, Criticality, Direction};
use crate::hook::OnFinding;
use crate::hook::finding::Finding;
use crate::key::{Head, KeyExtractor};
use crate::middleware::rejection::{RateLimitFields, Rejection};
use crate::rule::{InvalidRules, Rule, Rules};
use crate::sentinel::Sentinel;

/// Applies rules to every request to a service.
///
/// All clones of the layer, all services that it makes, and their clones share one
/// engine. So the limits hold for all of them together, although axum calls
/// [`layer`](Layer::layer) for every route and connection.
///
/// The service must be [`Clone`], as the services of axum, tonic and hyper are: a call
/// that waits keeps a clone, and after a refusal the service is replaced by a clone that
/// holds no permit. Put tower's `Buffer` around a service that is not `Clone`, or whose clones
/// wrongly consider themselves ready, as those of tower's `Steer` do.
///
/// The response bodies of the service must yield [`Bytes`](bytes::Bytes); each becomes a
/// [`ResponseBody`](super::ResponseBody), which holds the call until it has ended. So tower's
/// `option_layer` does not take this layer, as both of its services must have the same type of
/// response. A program in which the layer is optional should always have the layer, and give it no
/// rules when it is off: then its types are the same in both cases. A layer that ends calls at
/// their [head](Self::at_head) leaves the bodies as they are, whatever data they yield.
///
/// The service and its requests must be `'static`, unless refusals are
/// [errors](Self::refusals_as_errors): a service that borrows, as in a test, can borrow through an
/// [`Arc`].
///
/// Terms such as resource, origin, context and parameter are explained in the
/// [glossary](crate::guide::words).
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use axum::body::Body;
/// use axum::http::{Request, StatusCode};
/// use axum::routing::get;
/// use tower::ServiceExt;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let app = Router::new()
///     .route("/users/{id}", get(|| async { "hello" }))
///     .layer(SentinelLayer::new(FlowRule::per_second("/users/{id}", 1)));
///
/// let request = |path| Request::builder().uri(path).body(Body::empty()).unwrap();
/// let first = app.clone().oneshot(request("/users/1")).await.unwrap();
/// assert_eq!(first.status(), StatusCode::OK);
/// let second = app.oneshot(request("/users/2")).await.unwrap();
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second.headers()["retry-after"], "1");
/// # });
/// ```
pub struct SentinelLayer<M = Respond> {
    pub(super) settings: Arc<Settings>,
    mode: PhantomData<M>,
}

impl SentinelLayer<Respond> {
    /// Creates a layer with a new engine, which has `rules` and otherwise the defaults. `rules` is
    /// a single rule, a tuple of rules, an array or a `Vec`, or [`Rules`].
    ///
    /// # Panics
    ///
    /// Panics with the error of [`try_new`](Self::try_new) if a rule is invalid, or is
    /// [shared](crate::FlowRule::shared), as the engine has no store.
    #[must_use]
    #[track_caller]
    pub fn new(rules: impl Into<Rules>) -> Self {
        Self::with(Sentinel::new(rules))
    }

    /// Creates a layer like [`new`](Self::new), but returns invalid rules as an error, for rules
    /// from a configuration.
    ///
    /// ```
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// let from_settings = vec![FlowRule::per_second("/search", -1)];
    /// let error = SentinelLayer::try_new(from_settings).unwrap_err();
    /// assert_eq!(error.problems()[0].field(), "threshold");
    /// ```
    ///
    /// # Errors
    ///
    /// Returns all problems of all rules.
    pub fn try_new<R: Into<Rule>>(
        rules: impl IntoIterator<Item = R>,
    ) -> Result<Self, InvalidRules> {
        Ok(Self::with(Sentinel::try_new(rules)?))
    }

    /// Creates a layer for an existing engine.
    ///
    /// A request that passes two layers of one engine is judged once under each name: if both
    /// layers give it the same name, the inner layer does not judge it. The layers recognise each
    /// other by the extensions of the request, so a service between them must pass the extensions
    /// on.
    #[must_use]
    pub fn with(sentinel: Sentinel) -> Self {
        Self {
            settings: Arc::new(Settings {
                sentinel,
                skip: Vec::new(),
                naming: Naming::Default,
                origin: None,
                context: None,
                params: Vec::new(),
                tier: None,
                prioritize: None,
                weight: None,
                rank: None,
                costs: CostSettings::default(),
                group: None,
                propagates: false,
                has_classes: false,
                rejection: None,
                classify: None,
                completion: Completion::Body,
                fields: RateLimitFields::None,
                direction: Direction::Inbound,
                judge_first: false,
                keeps_blocked: false,
                asks_more: false,
                is_plain: true,
                reported: ReportedOnce::default(),
            }),
            mode: PhantomData,
        }
    }

    /// Makes refusals errors instead of responses, for clients: then every response comes
    /// from the upstream, and a request that fails with a [`Blocked`](crate::Blocked) was
    /// never sent.
    ///
    /// This applies to all refusals of the layer. To mark a single call as failed, use
    /// [`Entry::fail`](crate::Entry::fail).
    ///
    /// The error type of the service becomes [`BoxError`](super::BoxError). So a router of axum,
    /// whose services never fail, does not take a layer whose refusals are errors.
    ///
    /// If the error of the service already is a `BoxError`, and the service is a closure that is
    /// created within a task, the compiler may complain that an implementation of `From` is not
    /// general enough, as with tower's `Timeout`: it does not see that the error in the box is
    /// `'static`. Use a named function instead, `service_fn(send)` with `async fn send(…) ->
    /// Result<…, BoxError>`.
    ///
    /// Do not use this
    /// with tonic clients: they turn a refusal that is a response into a status with the
    /// right code, but an error that they do not know into the code `UNKNOWN`.
    #[must_use]
    pub fn refusals_as_errors(self) -> SentinelLayer<AsError> {
        self.into_mode()
    }
}

impl<M> SentinelLayer<M> {
    /// Returns this layer in another mode.
    pub(super) fn into_mode<N>(self) -> SentinelLayer<N> {
        SentinelLayer {
            settings: self.settings,
            mode: PhantomData,
        }
    }

    /// Changes the settings, and updates the flags that depend on them.
    pub(super) fn set(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        set(settings);
        settings.reported = ReportedOnce::default();
        settings.has_classes =
            settings.rank.is_some() || settings.group.is_some() || settings.propagates;
        settings.asks_more = settings.origin.is_some()
            || settings.context.is_some()
            || settings.tier.is_some()
            || settings.weight.is_some()
            || settings.prioritize.is_some()
            || settings.has_classes
            || settings.costs.has_reserves()
            || !settings.params.is_empty();
        settings.is_plain = settings.classify.is_none()
            && settings.completion == Completion::Body
            && !settings.costs.reads_responses()
            && settings.fields == RateLimitFields::None;
        self
    }

    /// Returns the engine.
    #[must_use]
    pub fn sentinel(&self) -> &Sentinel {
        &self.settings.sentinel
    }

    /// Calls `tell` once with each [finding](Sentinel::findings) of the engine, which is a likely
    /// mistake in the set-up. Most findings come with the first calls. Default: findings are not
    /// reported.
    ///
    /// ```
    /// use tower_sentinel::{KeyedRule, SentinelLayer};
    ///
    /// let layer = SentinelLayer::new(KeyedRule::per_second("/search", 5))
    ///     .on_finding(|finding| eprintln!("tower-sentinel: {finding}"));
    /// # let service = tower::Layer::layer(&layer, ());
    /// // Where the layer is applied, callers are not told apart.
    /// assert_eq!(
    ///     layer.sentinel().findings()[0].to_string(),
    ///     "rule \"keyed-0\" for \"/search\" looks at a key that no call has: no layer has \
    ///      `.param(…)`; all callers share one quota",
    /// );
    /// ```
    ///
    /// It is a [hook](crate::Hook) of the name `findings`; see
    /// [`Builder::on_finding`](crate::Builder::on_finding).
    #[must_use]
    pub fn on_finding(self, tell: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        let hook = Arc::new(OnFinding(tell));
        self.settings.sentinel.hooks().register("findings", hook);
        self
    }

    /// Exempts the requests that `choose` selects: they go straight to the service, are
    /// judged by no rule, and are counted nowhere. Default: no requests. After several
    /// calls of this method, a request is skipped if any of the predicates selects it.
    ///
    /// For ready-made predicates see [`skip`](super::skip). Decide by something that clients cannot
    /// forge, or by the path or method of resources that all may use without limits; otherwise any
    /// client can bypass every limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response, StatusCode};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::middleware::skip;
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = SentinelLayer::new(FlowRule::per_second("/orders", 0))
    ///     .skip(skip::paths(["/healthz", "/static/{*rest}"]))
    ///     .skip(skip::options());
    /// let service = layer.layer(service_fn(|_: Request<()>| async {
    ///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// }));
    ///
    /// let status = async |method: &str, target: &str| {
    ///     let request = Request::builder().method(method).uri(target).body(()).unwrap();
    ///     service.clone().oneshot(request).await.unwrap().status()
    /// };
    /// assert_eq!(status("GET", "/orders").await, StatusCode::TOO_MANY_REQUESTS);
    /// assert_eq!(status("OPTIONS", "/orders").await, StatusCode::OK);
    /// assert_eq!(status("GET", "/healthz").await, StatusCode::OK);
    /// # });
    /// ```
    #[doc(alias("exempt", "bypass"))]
    #[must_use]
    pub fn skip(self, choose: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.skip.push(Arc::new(choose)))
    }

    /// Sets how the resource is named. For the default see
    /// [`key`](crate::key#the-default-resource), also for how the feature `axum` changes it.
    /// A request for which `extractor` finds no name is counted under `-`.
    #[must_use]
    pub fn resource(self, extractor: impl KeyExtractor) -> Self {
        self.set(|settings| settings.naming = Naming::By(Arc::new(extractor)))
    }

    /// Gives all calls of the layer one name: they are one resource, on any route. So a rule for
    /// this name limits all routes together, or each caller over all routes. Like a name in a rule,
    /// it always has a place in the engine's table, also when the
    /// [table](crate::Builder::max_resources) is full for other names. Of this method and
    /// [`resource`](Self::resource) the last call counts.
    ///
    /// Rules for single routes do not apply to the calls of this layer, except for rules for
    /// `*`, which apply to this name unless it has a rule of that kind. To limit single routes
    /// as well, add a second layer for the same engine ([`with`](Self::with)) without a name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = SentinelLayer::new(FlowRule::per_second("api", 2)).named("api");
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// # }));
    /// # let status = async |path: &str| {
    /// #     let request = Request::get(path).body(()).unwrap();
    /// #     service.clone().oneshot(request).await.unwrap().status()
    /// # };
    /// assert_eq!(status("/orders").await, StatusCode::OK);
    /// assert_eq!(status("/users/7").await, StatusCode::OK);
    /// assert_eq!(status("/orders").await, StatusCode::TOO_MANY_REQUESTS);
    /// # });
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<Arc<str>>) -> Self {
        self.set(|settings| settings.naming = Naming::One(name.into()))
    }

    /// Sets how the origin, the caller, is found. Default: calls have no origin.
    ///
    /// Rules [by origin](crate::FlowRule::by_origin) count all requests for which `extractor` finds
    /// no key together, as one caller `-`, unless [`MissingKey`](crate::MissingKey) says otherwise.
    #[must_use]
    pub fn origin(self, extractor: impl KeyExtractor) -> Self {
        self.set(|settings| settings.origin = Some(Arc::new(extractor)))
    }

    /// Sets how the context is found: the entrance by which a call came in, such as `web`
    /// or `batch`, for rules [in a context](crate::FlowRule::in_context). Default: calls
    /// have no context.
    #[must_use]
    pub fn context(self, extractor: impl KeyExtractor) -> Self {
        self.set(|settings| settings.context = Some(Arc::new(extractor)))
    }

    /// Adds a parameter to each call, for [keyed rules](crate::KeyedRule) and
    /// hooks. Default: calls have no parameters.
    ///
    /// A rule counts all requests for which `extractor` finds no key together, as one caller `-`,
    /// unless its [`missing`](crate::KeyedRule::missing) says otherwise.
    ///
    /// # Panics
    ///
    /// Panics if the layer has eight parameters already.
    #[must_use]
    #[track_caller]
    pub fn param(self, extractor: impl KeyExtractor) -> Self {
        self.param_named("", extractor)
    }

    /// Adds a parameter with a name, so that rules can refer to it by the name instead of
    /// its position.
    ///
    /// ```
    /// use tower_sentinel::key::{Header, PeerIp};
    /// use tower_sentinel::{KeyedRule, Rules, SentinelLayer};
    ///
    /// let rules = Rules::new()
    ///     .with(KeyedRule::per_second("/search", 50).param("address"))
    ///     .with(KeyedRule::per_second("/search", 5).param("user"));
    /// let layer = SentinelLayer::new(rules)
    ///     .param_named("address", PeerIp)
    ///     .param_named("user", Header::from_static("x-user"));
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the layer has eight parameters already.
    #[must_use]
    #[track_caller]
    pub fn param_named(self, name: impl Into<Arc<str>>, extractor: impl KeyExtractor) -> Self {
        let has_room = self.settings.params.len() < MOST_PARAMS;
        assert!(has_room, "a layer has at most {MOST_PARAMS} parameters");
        self.set(|settings| settings.params.push((name.into(), Arc::new(extractor))))
    }

    /// Sets how the tier is found: the class of the caller, such as a paid plan; see
    /// [`KeyedRule::tier`](crate::KeyedRule::tier). Default: none.
    #[must_use]
    pub fn tier(self, extractor: impl KeyExtractor) -> Self {
        self.set(|settings| settings.tier = Some(Arc::new(extractor)))
    }

    /// Sets which calls are prioritized. Default: none. Decide by something that clients
    /// cannot forge; otherwise every client can prioritize its calls.
    ///
    /// The wait of a call is capped by its `grpc-timeout`. If the call is not prioritized,
    /// this header is read only over HTTP/2.
    #[must_use]
    pub fn prioritize(self, choose: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.prioritize = Some(Arc::new(choose)))
    }

    /// Sets the weight of each call: the number of tokens that it takes, like
    /// [`Call::batch`](crate::Call::batch). Default: 1. Do not take it from anything that clients
    /// can write as they like.
    #[doc(alias("batch", "cost"))]
    #[must_use]
    pub fn weight(self, weigh: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.weight = Some(Arc::new(weigh)))
    }

    /// Sets how important each call is under overload, for an
    /// [`AdaptiveRule`](crate::AdaptiveRule): see [`Criticality`]. A call for which `rank` returns
    /// `None` is [`Critical`](Criticality::Critical), and so is every call by default.
    ///
    /// Only calls of one resource are compared. So if some routes are to yield to others, let one
    /// rule judge them together: [`named("api")`](Self::named).
    ///
    /// A layer that also [propagates](Self::propagate_criticality) classes calls `rank` twice for a
    /// request.
    ///
    /// Decide by the route, or by something that clients cannot forge. A header may lower the class
    /// of a call; a [`CriticalityHeader`](crate::key::CriticalityHeader) lets only trusted peers
    /// raise it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::key::CriticalityHeader;
    /// use tower_sentinel::{AdaptiveRule, Criticality, SentinelLayer};
    ///
    /// let header = CriticalityHeader::new();
    /// let layer = SentinelLayer::new(AdaptiveRule::new("api")).named("api").criticality(
    ///     move |head| match head.route() {
    ///         "/pay" => Some(Criticality::CriticalPlus),
    ///         "/suggestions" => Some(Criticality::Sheddable),
    ///         // Everything else is as important as its client says: critical, or less.
    ///         _ => header.read(head),
    ///     },
    /// );
    /// # let _ = layer;
    /// ```
    #[doc(alias("priority", "load_shed"))]
    #[must_use]
    pub fn criticality(
        self,
        rank: impl Fn(Head<'_>) -> Option<Criticality> + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.rank = Some(Arc::new(rank)))
    }

    /// Sets which calls of a class are refused together: see [`Cohort`]. By default calls have no
    /// cohort. A call for which `group` returns `None` is in the middle cohort, 64.
    ///
    /// Calls of one page or one user should be in one cohort, by [`Cohort::of_key`]: then, where a
    /// class is refused in part, most calls of a cohort pass, or none of them. A layer that
    /// [propagates](Self::propagate_criticality) classes propagates cohorts as well, and calls
    /// `group` twice for a request.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::call::Cohort;
    /// use tower_sentinel::key::CriticalityHeader;
    /// use tower_sentinel::{AdaptiveRule, SentinelLayer};
    ///
    /// let header = CriticalityHeader::new().trust(["10.0.0.0/8".parse().unwrap()]);
    /// let layer = SentinelLayer::new(AdaptiveRule::new("api"))
    ///     .named("api")
    ///     .criticality({ let header = header.clone(); move |head| header.read(head) })
    ///     .cohort(move |head| {
    ///         let user = || head.headers().get("x-user")?.to_str().ok();
    ///         header.read_cohort(head).or_else(|| user().map(Cohort::of_key))
    ///     });
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn cohort(
        self,
        group: impl Fn(Head<'_>) -> Option<Cohort> + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.group = Some(Arc::new(group)))
    }

    /// Sets how refusals are answered. Default: [`Auto`](super::rejection::Auto). Not used if
    /// refusals are
    /// [errors](SentinelLayer::refusals_as_errors).
    #[doc(alias("error_handler", "fallback"))]
    #[must_use]
    pub fn reject(self, rejection: impl Rejection) -> Self {
        self.set(|settings| settings.rejection = Some(Arc::new(rejection)))
    }

    /// Puts the [`Blocked`](crate::Blocked) of each refusal into the extensions of its response, so
    /// that an outer layer, such as a layer that logs responses, can read which rule has refused
    /// the call. Default: only where [`is_refusal`](crate::middleware::rejection::is_refusal) could
    /// not recognise the refusal otherwise, as for gRPC and for custom responses.
    ///
    /// It costs three allocations for each refusal; without it a refusal takes two.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::{Blocked, FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let rule = FlowRule::per_second("/search", 0).id("closed");
    /// let service = SentinelLayer::new(rule).blocked_in_extensions().layer(
    ///     service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(())) })
    /// # .map_response(|response: Response<()>| response.map(|()| String::new())),
    /// );
    /// let refused = service.oneshot(Request::get("/search").body(()).unwrap()).await.unwrap();
    /// let blocked = refused.extensions().get::<Blocked>().expect("it was refused");
    /// assert_eq!(blocked.rule(), "closed");
    /// # });
    /// ```
    #[doc(alias("extensions"))]
    #[must_use]
    pub fn blocked_in_extensions(self) -> Self {
        self.set(|settings| settings.keeps_blocked = true)
    }

    /// Sets which responses and errors count as failures. Default:
    /// [`ByStatus`](super::ByStatus).
    #[must_use]
    pub fn classify(self, classify: impl Classify) -> Self {
        self.set(|settings| settings.classify = Some(Arc::new(classify)))
    }

    /// Sets when a call ends. Default: with the body of its response. No effect after
    /// [`at_head`](SentinelLayer::at_head).
    #[must_use]
    pub fn completion(self, completion: Completion) -> Self {
        self.set(|settings| settings.completion = completion)
    }

    /// Judges calls also while the inner service is not ready. Default: no, a caller waits
    /// until the inner service is ready, and only then the call is judged.
    ///
    /// By default a service inside that makes its callers wait in
    /// [`poll_ready`](tower_service::Service::poll_ready), such as tower's `ConcurrencyLimit`,
    /// `RateLimit`, `Buffer` or a load balancer, makes them wait for refusals as well: behind an
    /// open circuit breaker or a spent quota they are refused only once it is ready. And calls that
    /// wait there are not counted yet, so an [`IsolationRule`](crate::IsolationRule) does not limit
    /// their number. In front of a service that is always ready, such as an axum router, the
    /// setting makes no difference.
    ///
    /// With this setting the layer is always ready. If the inner service is not, a call is judged
    /// nevertheless. If it passes, it waits for the inner service within its future: it counts as
    /// running and holds its slot, the wait is part of its response time, and an error that ends
    /// the wait counts as an error of the service, also for circuit breakers. A call that waits for
    /// its turn in a queue waits for that first. An error that
    /// [`poll_ready`](tower_service::Service::poll_ready) returns at once is still returned by the
    /// layer, and belongs to no call.
    ///
    /// Then only the rules hold callers back. Without a rule that limits how many calls
    /// run, any number of them wait for the inner service. To refuse these calls instead, put
    /// tower's `LoadShed` around the inner service.
    ///
    /// It costs nothing while the inner service is ready. A call that waits for it takes one
    /// allocation and one clone of it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// use tower::limit::ConcurrencyLimitLayer;
    /// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
    /// use tower_sentinel::{IsolationRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = SentinelLayer::new(IsolationRule::new("/report", 2)).judge_first();
    /// let mut service = ServiceBuilder::new()
    ///     .layer(layer)
    ///     .layer(ConcurrencyLimitLayer::new(1))
    ///     .service(service_fn(|_: Request<()>| async {
    ///         Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    ///     }));
    /// let request = || Request::get("/report").body(()).unwrap();
    ///
    /// let runs = service.ready().await?.call(request());
    /// let waits = service.ready().await?.call(request()); // for the other to end
    /// let refused = service.ready().await?.call(request()).await?;
    /// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    /// assert_eq!(runs.await?.status(), StatusCode::OK);
    /// assert_eq!(waits.await?.status(), StatusCode::OK);
    /// # Ok::<(), std::convert::Infallible>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped while it waits for the inner service releases its slot and counts as
    /// cancelled, and its reservation of the inner service is dropped as well.
    #[doc(alias("load_shed", "backpressure"))]
    #[must_use]
    pub fn judge_first(self) -> Self {
        self.set(|settings| settings.judge_first = true)
    }

    /// Adds header fields to every response to a call that passed: what is left of the tightest
    /// quota of a flow rule or keyed rule. Default: no fields. To add them to refusals as well,
    /// see [`Http::fields`](crate::middleware::rejection::Http::fields).
    #[doc(alias("use_headers"))]
    #[must_use]
    pub fn fields(self, fields: RateLimitFields) -> Self {
        self.set(|settings| settings.fields = fields)
    }

    /// Makes the calls of this layer outbound: they are served elsewhere. They are counted apart
    /// from inbound calls, even under the same name. The rules of the engine apply to both
    /// directions.
    ///
    /// Unless [`resource`](Self::resource) says otherwise, an outbound call is named by the
    /// template among the rules' resources that matches its path, or else by its path; the host is
    /// not part of the name. So the same path at two hosts is one resource. And if paths contain an
    /// id and no template matches them, each id is a separate resource: a breaker for `*` then
    /// counts a call or two on each of them, and never opens. Name the calls by
    /// [`key::Authority`](crate::key::Authority), or by a name for the service that you call.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::key::Authority;
    /// use tower_sentinel::{CircuitBreakerRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let breaker = || CircuitBreakerRule::error_ratio("*", 0.5);
    /// # async fn refused(layer: SentinelLayer) -> usize {
    /// #     let down = service_fn(|_: Request<()>| async {
    /// #         Err::<Response<String>, _>(std::io::Error::other("nobody is there"))
    /// #     });
    /// #     let client = layer.layer(down);
    /// #     let mut refused = 0;
    /// #     for id in 0..8 {
    /// #         let request = Request::get(format!("http://shop.example/users/{id}"));
    /// #         let answer = client.clone().oneshot(request.body(()).unwrap()).await;
    /// #         refused += usize::from(answer.is_ok());
    /// #     }
    /// #     refused
    /// # }
    /// // How many of the calls to /users/0, … /users/7 at a host that is down are refused:
    /// let by_path = SentinelLayer::new(breaker()).outbound();
    /// assert_eq!(refused(by_path).await, 0);
    /// let by_host = SentinelLayer::new(breaker()).outbound().resource(Authority);
    /// assert_eq!(refused(by_host).await, 3);
    /// # });
    /// ```
    #[must_use]
    pub fn outbound(self) -> Self {
        self.set(|settings| settings.direction = Direction::Outbound)
    }
}

impl<M> Clone for SentinelLayer<M> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            mode: PhantomData,
        }
    }
}

impl<M> fmt::Debug for SentinelLayer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelLayer")
            .field("sentinel", &self.settings.sentinel)
            .field("direction", &self.settings.direction)
            .field("completion", &self.settings.completion)
            .finish_non_exhaustive()
    }
}

impl<S, M> Layer<S> for SentinelLayer<M> {
    type Service = SentinelService<S, M>;

    fn layer(&self, inner: S) -> Self::Service {
        self.settings.note_layer();
        SentinelService::new(inner, self.settings.clone())
    }
}
