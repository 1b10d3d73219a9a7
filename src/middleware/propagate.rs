//! Propagates the importance class of a call: from the layer into the service, and to the calls
//! that the service makes.

use http::header::Entry as Field;
use http::{HeaderValue, Request};

use super::layer::SentinelLayer;
use super::settings::Settings;
use crate::call::{Cohort, Criticality, Direction, Importance};
use crate::key::{CriticalityHeader, Head};

impl<M> SentinelLayer<M> {
    /// Propagates the class of each call to the service. Default: no, at no cost.
    ///
    /// In a server the class, as [`criticality`](Self::criticality) names it, is put into the
    /// extensions of the request, and is [`Criticality::current`] while the service and its body
    /// are polled. If `criticality` returns no class, a class that is already in the extensions
    /// stays, and without one the call is [`Critical`](Criticality::Critical). A task that the
    /// service spawns has no class by itself: set its class by [`Criticality::scope`]. Bodies of a
    /// layer that ends calls [at their head](SentinelLayer::at_head) have no class either.
    ///
    /// In an [outbound](Self::outbound) layer the class is written into the header `x-criticality`,
    /// which the layer of the next server reads by a [`CriticalityHeader`]. The class is the result
    /// of `criticality`, else the class in the extensions of the request, else the current class; a
    /// request without a class is sent without the header. A header that is already there stays. So
    /// a proxy in front of untrusted clients has to remove it: its own peers would take a client's
    /// header for the proxy's.
    ///
    /// A [cohort](Self::cohort) is propagated with the class, in the same header after the class:
    /// `sheddable;cohort=37`.
    ///
    /// The cost is an allocation for each call, and a load and two stores for each poll.
    ///
    /// # Examples
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::{Criticality, Rules, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// // The client of another service, and a handler that calls it. To show the header, the
    /// // other service answers with it.
    /// let other = service_fn(|request: Request<String>| async move {
    ///     let class = request.headers()["x-criticality"].to_str().unwrap().to_owned();
    ///     Ok::<_, std::convert::Infallible>(Response::new(class))
    /// });
    /// let client = SentinelLayer::new(Rules::new()).outbound().propagate_criticality().layer(other);
    /// let handler = service_fn(move |_: Request<String>| {
    ///     let request = Request::get("http://other.example/").body(String::new()).unwrap();
    ///     client.clone().oneshot(request)
    /// });
    ///
    /// let server = SentinelLayer::new(Rules::new())
    ///     .criticality(|head| (head.route() == "/suggestions").then_some(Criticality::Sheddable))
    ///     .propagate_criticality()
    ///     .layer(handler);
    /// # let answer = async |path: &str| {
    /// #     let request = Request::get(path).body(String::new()).unwrap();
    /// #     let response = server.clone().oneshot(request).await.unwrap();
    /// #     let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    /// #     String::from_utf8(body.to_bytes().to_vec()).unwrap()
    /// # };
    /// assert_eq!(answer("/suggestions").await, "sheddable");
    /// assert_eq!(answer("/pay").await, "critical");
    /// # });
    /// ```
    #[must_use]
    pub fn propagate_criticality(self) -> Self {
        self.set(|settings| settings.propagates = true)
    }
}

impl Settings {
    /// Puts the class and the cohort of `request` into its extensions or header, if the layer
    /// propagates them. Returns them if they must be current while the service is polled.
    #[inline]
    pub(super) fn propagate<B>(&self, request: &mut Request<B>) -> Option<Importance> {
        if !self.propagates {
            return None;
        }
        let (class, cohort) = {
            let routes = self.sentinel.routes();
            let head = Head::new(request, &routes, self.direction);
            (self.find_class(head), self.find_cohort(head))
        };
        if let Some(cohort) = cohort {
            request.extensions_mut().insert(cohort);
        }
        if self.direction == Direction::Inbound {
            let criticality = class.unwrap_or_default();
            request.extensions_mut().insert(criticality);
            return Some(Importance::of(criticality).with_cohort(cohort));
        }
        let class = class?;
        request.extensions_mut().insert(class);
        // A request with more fields than fit is sent without this field.
        let field = request.headers_mut().try_entry(CriticalityHeader::NAME);
        if let Ok(Field::Vacant(vacant)) = field {
            let _ = vacant.try_insert(field_value(class, cohort));
        }
        None
    }

    /// The class of the call, and its cohort if the layer names cohorts. Only called for layers
    /// that name classes or cohorts, or propagate them.
    #[inline(never)]
    pub(super) fn importance(&self, head: Head<'_>) -> Importance {
        let cohort = || self.find_cohort(head).unwrap_or(Cohort::MIDDLE);
        let class = self.find_class(head).unwrap_or_default();
        Importance::of(class).with_cohort(self.group.is_some().then(cohort))
    }

    /// The class that the layer names. If there is none and the layer propagates classes, the class
    /// in the request or, for an outbound call, the current class.
    fn find_class(&self, head: Head<'_>) -> Option<Criticality> {
        let named = self.rank.as_ref().and_then(|rank| rank(head));
        if named.is_some() || !self.propagates {
            return named;
        }
        let given = head.extensions().get().copied();
        match self.direction {
            Direction::Inbound => given,
            Direction::Outbound => given.or_else(Criticality::current),
        }
    }

    /// The cohort of the call, found as [`find_class`](Self::find_class) finds the class.
    fn find_cohort(&self, head: Head<'_>) -> Option<Cohort> {
        let named = self.group.as_ref().and_then(|group| group(head));
        if named.is_some() || !self.propagates {
            return named;
        }
        let given = head.extensions().get().copied();
        match self.direction {
            Direction::Inbound => given,
            Direction::Outbound => given.or_else(Cohort::current),
        }
    }
}

/// The value of the header, such as `sheddable;cohort=37`.
fn field_value(class: Criticality, cohort: Option<Cohort>) -> HeaderValue {
    let plain = HeaderValue::from_static(class.as_str());
    match cohort {
        None => plain,
        // Never falls back to `plain`: the text consists of visible ASCII.
        Some(cohort) => {
            HeaderValue::try_from(format!("{class};{}={cohort}", Cohort::NAME)).unwrap_or(plain)
        }
    }
}
