//! What calls cost, as a layer knows it: by the request, by the head of the response, by its body.

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

/// Most units of which a layer reserves.
pub(super) const MOST_UNITS: usize = 8;

type UnitEstimate = dyn Fn(Head<'_>) -> u32 + Send + Sync;
type HeadCost = dyn Fn(ResponseHead<'_>) -> Option<u32> + Send + Sync;

/// See the [module](self).
#[derive(Clone)]
pub(super) struct CostSettings {
    reserves: Vec<(Arc<str>, Arc<UnitEstimate>)>,
    heads: Vec<(Arc<str>, Arc<HeadCost>)>,
    bodies: BodyUnits,
}

impl<M> SentinelLayer<M> {
    /// Reserves what a request may cost at most of `unit`, as [`Call::reserve`](crate::Call::reserve)
    /// does, for rules on [costs](crate::FlowRule::cost): by its head, or by what an earlier layer has
    /// put into its extensions. Default: 0, so that a call passes while anything is left.
    ///
    /// A call that passes is charged by its [`Meter`], which the service finds in the extensions of
    /// the request, by [`cost`](Self::cost) and by [`cost_of_body`](Self::cost_of_body). An
    /// [outbound](Self::outbound) layer puts a meter into the extensions of the response as well, so
    /// that a client can take it out before it reads the body. There is a meter only where a rule
    /// limits costs. With the feature `axum` a meter is an extractor, which is never missing: it
    /// counts nothing where there is no such rule.
    ///
    /// What a call has reserved is released when it has ended and its last meter is gone: a client
    /// that keeps the extensions of a response keeps its reservation as well. Where two layers of one
    /// direction lie within each other, the meter of the inner one tells the outer one too.
    ///
    /// Of one unit, the last call of this method counts. `estimate` is called for each request, also
    /// where no rule limits costs. A limit on what clients write into a field belongs into
    /// `estimate`: a reservation above the limit of a rule is refused for ever.
    ///
    /// # Panics
    ///
    /// If the layer reserves of eight other units already.
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

    /// Settles what a call cost of `unit`, as [`Meter::settle`] does, by the head of its response:
    /// by a field of an upstream, or by an extension that a handler has left. `None` says nothing.
    /// Default: heads tell no cost.
    ///
    /// `read` is called only where a rule limits costs, before the call ends. Several of them, also of
    /// one unit, are all asked: the largest total counts, also beside what meters tell.
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

    /// Charges one of `unit` for each `bytes` of a response body as they go by; what is left of a
    /// unit at the end counts as one. Default: bodies cost nothing by themselves.
    ///
    /// It counts the data that leaves the layer, before any layer around it compresses it, and not
    /// the head. A body that ends is settled, and a body that is dropped or fails is charged what has
    /// gone by; if that is nothing, the call has told no cost. Trailers cost nothing. Where calls end
    /// at their [head](Self::completion), and after an upgrade of the connection, nobody follows the
    /// bytes: there it has no effect. The body is never cut off: charge a [`Meter`] to end it where
    /// nothing is left.
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
    pub(super) fn has_reserves(&self) -> bool {
        !self.reserves.is_empty()
    }

    /// Returns whether it looks at responses.
    pub(super) fn reads_responses(&self) -> bool {
        !self.heads.is_empty() || !self.bodies.is_empty()
    }

    /// What a request with this `head` may cost, in the first places of `room`.
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
    /// Tells the costs that the head of the response to the call `entry` says, and hands the meter of
    /// an outbound call on with it.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_costs<B>(&self, meter: Meter, response: &mut Response<B>) {
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

    /// What the bytes of a body cost.
    pub(super) fn body_units(&self) -> Option<&BodyUnits> {
        Some(&self.costs.bodies).filter(|units| !units.is_empty())
    }
}

/// Hands the meter of a call that starts on to the service. It tells that of a layer around this one
/// as well.
#[cold]
#[inline(never)]
pub(super) fn hand_on<B>(meter: Meter, request: &mut Request<B>) {
    let extensions = request.extensions_mut();
    if let Some(outer) = extensions.remove::<Meter>() {
        meter.within(outer);
    }
    extensions.insert(meter);
}

/// The meter that a layer has put into the request. Where no rule limits costs, one that counts
/// nothing.
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
