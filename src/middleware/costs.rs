//! What calls cost, as a layer reads it from the request, the head of the response, and its body.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::{Request, Response};

use super::classify::ResponseHead;
use super::layer::SentinelLayer;
use super::settings::Settings;
use crate::call::Direction;
use crate::engine::call::meter::Meter;
use crate::engine::call::rare::BodyUnits;
use crate::key::Head;

/// The maximum number of units in which one layer reserves: the estimates of a call are collected
/// in an array of this length.
pub(super) const MOST_UNITS: usize = 8;

/// Returns what a request may cost in one unit.
type UnitEstimate = dyn Fn(Head<'_>) -> u32 + Send + Sync;
/// Returns the cost that the head of a response shows, if it shows any.
type HeadCost = dyn Fn(ResponseHead<'_>) -> Option<u32> + Send + Sync;

/// See the [module](self).
#[derive(Clone)]
pub(super) struct CostSettings {
    reserves: Vec<(Arc<str>, Arc<UnitEstimate>)>,
    heads: Vec<(Arc<str>, Arc<HeadCost>)>,
    bodies: BodyUnits,
}

impl<M> SentinelLayer<M> {
    /// Reserves the maximum cost of a request in `unit`, as [`Call::reserve`](crate::Call::reserve)
    /// does, for rules on [costs](crate::FlowRule::cost). `estimate` finds this amount in the head
    /// of the request, or in what an earlier layer has put into the extensions. Default: 0, so that
    /// a call passes while anything is left.
    ///
    /// A call that passes is charged by its [`Meter`], which the service finds in the extensions of
    /// the request, by [`cost`](Self::cost) and by [`cost_of_body`](Self::cost_of_body). An
    /// [outbound](Self::outbound) layer also puts a meter into the extensions of the response, for
    /// a client to take out before it reads the body. There is a meter only where a rule limits
    /// costs. With the feature `axum`, a meter is also an extractor that never fails: without a
    /// rule on costs, it extracts a meter that counts nothing.
    ///
    /// The reservation of a call is released when the call has ended and its last meter is dropped,
    /// so a client that keeps the extensions of a response keeps its reservation as well. If two
    /// layers of the same direction are nested, the meter of the inner layer also reports to the
    /// meter of the outer layer.
    ///
    /// If the method is called twice for one unit, the last call counts. `estimate` is called for
    /// each request, also where no rule limits costs. It should cap values that clients write into
    /// a field: a reservation above the limit of a rule can never pass.
    ///
    /// # Panics
    ///
    /// Panics if the layer already reserves in eight other units.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Router;
    /// use axum::body::Body;
    /// use axum::http::{Request, StatusCode};
    /// use axum::routing::post;
    /// use tower::ServiceExt;
    /// use tower_sentinel::{FlowRule, Meter, SentinelLayer};
    ///
    /// async fn chat(meter: Meter) -> &'static str {
    ///     // The answer cost less than was reserved.
    ///     meter.settle("tokens", 500);
    ///     "hello"
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let rule = FlowRule::per_minute("/chat", 10_000).cost("tokens");
    /// let layer = SentinelLayer::new(rule).reserve("tokens", |head| {
    ///     let most = head.headers().get("x-max-tokens").and_then(|most| most.to_str().ok());
    ///     most.and_then(|most| most.parse().ok()).unwrap_or(4_096).min(8_192)
    /// });
    /// let sentinel = layer.sentinel().clone();
    /// let app = Router::new().route("/chat", post(chat)).layer(layer);
    ///
    /// let status = async |most: &str| {
    ///     let request = Request::post("/chat").header("x-max-tokens", most);
    ///     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
    /// };
    /// assert_eq!(status("6000").await, StatusCode::OK);
    /// let budgets = sentinel.node("/chat").expect("it has been called").budgets();
    /// assert_eq!((budgets[0].used(), budgets[0].reserved()), (500, 0));
    /// for _ in 1..5 {
    ///     assert_eq!(status("6000").await, StatusCode::OK);
    /// }
    /// // 2500 are used, so 8000 more are too many.
    /// assert_eq!(status("8000").await, StatusCode::TOO_MANY_REQUESTS);
    /// # });
    /// ```
    #[doc(alias("tokens", "budget"))]
    #[must_use]
    #[track_caller]
    pub fn reserve(
        self,
        unit: impl Into<Arc<str>>,
        estimate: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static,
    ) -> Self {
        let (unit, estimate) = (unit.into(), Arc::new(estimate));
        self.set(|settings| {
            let reserves = &mut settings.costs.reserves;
            reserves.retain(|(own, _)| *own != unit);
            let has_room = reserves.len() < MOST_UNITS;
            assert!(has_room, "a layer reserves of at most {MOST_UNITS} units");
            reserves.push((unit, estimate));
        })
    }

    /// Settles the cost of a call in `unit`, as [`Meter::settle`] does, from the head of its
    /// response: from a field of an upstream, or an extension that a handler has left. `read`
    /// returns `None` if a head shows no cost. Default: no cost is read from heads.
    ///
    /// `read` is called only where a rule limits costs, before the call ends. If there are several
    /// functions, all are called; of several totals for one unit, including the totals that meters
    /// report, the largest counts.
    ///
    /// # Examples
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// // The upstream says how many rows a query has read.
    /// let layer = SentinelLayer::new(FlowRule::per_minute("/query", 100).cost("rows"))
    ///     .cost("rows", |head| head.headers().get("x-rows")?.to_str().ok()?.parse().ok());
    /// let service = layer.layer(service_fn(|_: Request<()>| async {
    ///     Response::builder().header("x-rows", "60").body(String::new())
    /// }));
    /// let status = async || {
    ///     let request = Request::get("/query").body(()).unwrap();
    ///     service.clone().oneshot(request).await.unwrap().status()
    /// };
    /// assert_eq!(status().await, StatusCode::OK);
    /// assert_eq!(status().await, StatusCode::OK);
    /// assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
    /// # });
    /// ```
    #[must_use]
    pub fn cost(
        self,
        unit: impl Into<Arc<str>>,
        read: impl Fn(ResponseHead<'_>) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.costs.heads.push((unit.into(), Arc::new(read))))
    }

    /// Charges a cost of 1 in `unit` for every `bytes` bytes of a response body as they are sent; a
    /// remainder at the end also costs 1. Default: bodies cost nothing by themselves.
    ///
    /// What counts is the data that leaves the layer, before any layer around it compresses it,
    /// without the head. A body that ends is settled. A body that is dropped or fails is charged
    /// what has been sent; if nothing has been sent, the call counts as a call that reported no
    /// cost. Trailers cost nothing. If calls end at their [head](Self::completion), and after an
    /// upgrade of the connection, the layer does not see the bytes, so the setting has no effect.
    /// The body is never cut off: to end it when the budget is spent, charge a [`Meter`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use http_body_util::BodyExt;
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::{FlowRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kib = NonZeroU32::new(1_024).expect("it is not 0");
    /// let layer = SentinelLayer::new(FlowRule::per_minute("/file", 100).cost("KiB"))
    ///     .cost_of_body("KiB", kib);
    /// # let sentinel = layer.sentinel().clone();
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new("x".repeat(60_000)))
    /// # }));
    /// # let get = async || {
    /// #     let request = Request::get("/file").body(()).unwrap();
    /// #     service.clone().oneshot(request).await.unwrap()
    /// # };
    /// // A file of 60 000 bytes.
    /// get().await.into_body().collect().await.unwrap();
    /// let budgets = sentinel.node("/file").expect("it has been called").budgets();
    /// assert_eq!(budgets[0].used(), 59);
    /// get().await.into_body().collect().await.unwrap();
    /// assert_eq!(get().await.status(), StatusCode::TOO_MANY_REQUESTS);
    /// # });
    /// ```
    #[doc(alias("bandwidth", "bytes"))]
    #[must_use]
    pub fn cost_of_body(self, unit: impl Into<Arc<str>>, bytes: NonZeroU32) -> Self {
        let unit = unit.into();
        self.set(|settings| {
            let bodies = settings.costs.bodies.iter().cloned();
            let others = bodies.filter(|(own, _)| *own != unit);
            settings.costs.bodies = others.chain([(unit.clone(), bytes)]).collect();
        })
    }
}

// === impl CostSettings ===

impl CostSettings {
    /// Returns whether the layer reserves costs from requests.
    pub(super) fn has_reserves(&self) -> bool {
        !self.reserves.is_empty()
    }

    /// Returns whether costs are read from responses.
    pub(super) fn reads_responses(&self) -> bool {
        !self.heads.is_empty() || !self.bodies.is_empty()
    }

    /// Returns what a request with this `head` may cost, written to the start of `room`.
    #[inline(never)]
    pub(super) fn estimate<'a>(
        &'a self,
        head: Head<'_>,
        room: &'a mut [(&'a str, u32); MOST_UNITS],
    ) -> &'a [(&'a str, u32)] {
        for (place, (unit, estimate)) in room.iter_mut().zip(&self.reserves) {
            *place = (unit, estimate(head));
        }
        &room[..self.reserves.len()]
    }
}

impl Default for CostSettings {
    fn default() -> Self {
        Self {
            reserves: Vec::new(),
            heads: Vec::new(),
            bodies: Arc::new([]),
        }
    }
}

// === impl Settings ===

impl Settings {
    /// Reports to `meter` the costs that the head of `response` shows and, for an outbound call,
    /// adds the meter to the response.
    #[cold]
    #[inline(never)]
    pub(super) fn report_costs<B>(&self, meter: Meter, response: &mut Response<B>) {
        for (unit, read) in &self.costs.heads {
            if let Some(total) = read(ResponseHead::of(response)) {
                meter.settle(unit, total);
            }
        }
        if self.direction == Direction::Outbound {
            let extensions = response.extensions_mut();
            match extensions.get::<Meter>() {
                Some(inner) => inner.within(meter),
                None => {
                    extensions.insert(meter);
                }
            }
        }
    }

    /// What the bytes of bodies cost; `None` if they cost nothing.
    pub(super) fn body_units(&self) -> Option<&BodyUnits> {
        Some(&self.costs.bodies).filter(|units| !units.is_empty())
    }
}

/// Adds the meter of a starting call to the request, for the service. The meter also reports to the
/// meter of a layer around this one.
#[cold]
#[inline(never)]
pub(super) fn add_meter<B>(meter: Meter, request: &mut Request<B>) {
    let extensions = request.extensions_mut();
    if let Some(outer) = extensions.remove::<Meter>() {
        meter.within(outer);
    }
    extensions.insert(meter);
}

/// The meter that a layer has put into the request; a meter that counts nothing if no rule limits
/// costs.
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> axum::extract::FromRequestParts<S> for Meter {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
