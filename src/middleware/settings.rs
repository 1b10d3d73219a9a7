//! `Settings`: how a layer turns a request into a call, and its verdict into a response.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, Version};

use super::classify::Classify;
use super::completion::Completion;
use super::costs::{CostSettings, MOST_UNITS};
use super::grpc_timeout::grpc_timeout;
use super::judged::{is_judged, is_marked};
use super::reported::ReportedOnce;
use crate::blocked::Blocked;
use crate::call::{Call, Cohort, Criticality, Direction, Key, Param, Params};
use crate::engine::call::entry::Entry;
use crate::engine::call::verdict::{FastPass, Open, SlowVerdict};
use crate::hook::finding::LayerFacts;
use crate::key::{Head, KeyExtractor};
use crate::middleware::rejection::{
    Auto, RateLimitFields, Rejection, is_marked_refusal, plain_text, strip_body, wants_text,
};
use crate::sentinel::Sentinel;

/// The maximum number of parameters that a layer can extract from a request.
pub(super) const MOST_PARAMS: usize = 8;

/// Returns whether a request is selected.
pub(super) type Choose = dyn Fn(Head<'_>) -> bool + Send + Sync;
/// Returns the weight of a request.
pub(super) type Weigh = dyn Fn(Head<'_>) -> u32 + Send + Sync;
/// Returns the importance class of a request, if the request has one.
pub(super) type Rank = dyn Fn(Head<'_>) -> Option<Criticality> + Send + Sync;
/// Returns the cohort of a request, if the request has one.
pub(super) type AskCohort = dyn Fn(Head<'_>) -> Option<Cohort> + Send + Sync;

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) sentinel: Sentinel,
    pub(super) skip: Vec<Arc<Choose>>,
    pub(super) naming: Naming,
    pub(super) origin: Option<Arc<dyn KeyExtractor>>,
    pub(super) context: Option<Arc<dyn KeyExtractor>>,
    pub(super) params: Vec<(Arc<str>, Arc<dyn KeyExtractor>)>,
    pub(super) tier: Option<Arc<dyn KeyExtractor>>,
    pub(super) prioritize: Option<Arc<Choose>>,
    pub(super) weight: Option<Arc<Weigh>>,
    /// Returns the importance class of a request, if the request has one.
    pub(super) rank: Option<Arc<Rank>>,
    pub(super) costs: CostSettings,
    /// Returns the cohort of a request, if the request has one.
    pub(super) group: Option<Arc<AskCohort>>,
    /// Whether the layer propagates the class of a call.
    pub(super) propagates: bool,
    /// Whether calls can have another class than the default, or a cohort.
    pub(super) has_classes: bool,
    /// Creates the responses of refusals; `None`: [`Auto`] with its defaults.
    pub(super) rejection: Option<Arc<dyn Rejection>>,
    /// Decides which responses are failures; `None`: `ByStatus`.
    pub(super) classify: Option<Arc<dyn Classify>>,
    pub(super) completion: Completion,
    pub(super) fields: RateLimitFields,
    pub(super) direction: Direction,
    /// Whether every refusal keeps its `Blocked` in its extensions.
    pub(super) keeps_blocked: bool,
    /// Whether calls are judged before the inner service is ready.
    pub(super) judge_first: bool,
    /// Whether anything besides the resource is extracted from requests.
    pub(super) asks_more: bool,
    /// Whether responses need only the defaults, so that their futures need no copy of the
    /// settings.
    pub(super) is_plain: bool,
    pub(super) reported: ReportedOnce,
}

/// How a layer names the resource of a request.
#[derive(Clone)]
pub(super) enum Naming {
    /// By an explicit `ResourceName`, or else by the route.
    Default,
    /// By the same name for all requests.
    One(Arc<str>),
    By(Arc<dyn KeyExtractor>),
}

/// Storage for the parameters and reservations that a call borrows, if it has several.
#[derive(Default)]
struct CallRoom<'a> {
    params: Option<[Param<'a>; MOST_PARAMS]>,
    reserves: Option<[(&'a str, u32); MOST_UNITS]>,
}

// === impl Settings ===

impl Settings {
    /// Reports to the engine what the layer extracts from requests. axum applies a layer to a route
    /// for each request, so this runs whenever that happens, but reports only once.
    #[inline]
    pub(super) fn note_layer(&self) {
        self.reported.once(|| {
            self.sentinel.provided().note_layer(&LayerFacts {
                has_origin: self.origin.is_some(),
                has_context: self.context.is_some(),
                has_tier: self.tier.is_some(),
                has_criticality: self.rank.is_some(),
                only_name: match &self.naming {
                    Naming::One(name) => Some(name),
                    Naming::Default | Naming::By(_) => None,
                },
                params: &self.params,
            });
        });
    }

    /// Returns whether the layer distinguishes callers by the address of the peer.
    pub(super) fn reads_peer(&self) -> bool {
        let params = self.params.iter().map(|(_, extractor)| extractor);
        let one = [&self.origin, &self.context, &self.tier];
        let mut all = one.into_iter().flatten().chain(params);
        self.direction == Direction::Inbound && all.any(KeyExtractor::reads_peer)
    }

    /// The settings that a response future needs; `None` if the defaults are enough.
    #[inline]
    pub(super) fn for_response(self: &Arc<Self>) -> Option<Arc<Self>> {
        (!self.is_plain).then(|| self.clone())
    }

    /// Handles the head of the response to the call `entry`: reports the costs that it shows and,
    /// if the layer writes rate limit fields, adds what is left of each quota to its header.
    #[inline(never)]
    pub(super) fn note_head<B>(&self, entry: &Entry, response: &mut Response<B>) {
        if let Some(meter) = entry.own_meter() {
            self.report_costs(meter, response);
        }
        if self.fields != RateLimitFields::None {
            self.fields.write_into(&entry.quotas_left(), response);
        }
    }

    /// The response to a call that was refused.
    #[cold]
    pub(super) fn reject<B>(&self, request: &Request<B>, blocked: Blocked) -> Response<Bytes> {
        let is_default = self.rejection.is_none() && !self.keeps_blocked;
        if is_default && request.method() != Method::HEAD && wants_text(request.headers()) {
            return plain_text(&blocked);
        }
        self.reject_by_setting(request, blocked)
    }

    /// Creates the response of a refusal for which the default plain text does not suffice.
    #[inline(never)]
    fn reject_by_setting<B>(&self, request: &Request<B>, blocked: Blocked) -> Response<Bytes> {
        let routes = self.sentinel.routes();
        let head = Head::new(request, &routes, self.direction);
        let mut response = match &self.rejection {
            Some(rejection) => rejection.reject(head, &blocked),
            None => Auto::new().reject(head, &blocked),
        };
        if request.method() == Method::HEAD {
            strip_body(&mut response);
        }
        if self.keeps_blocked || !is_marked_refusal(response.headers()) {
            response.extensions_mut().insert(blocked);
        }
        response
    }

    /// Describes `request` as a [`Call`] and lets the engine judge it, or skips it. See
    /// [`SlowVerdict`] for the meaning of the results.
    #[inline]
    pub(super) fn judge<B>(
        &self,
        request: &Request<B>,
        slow: &mut SlowVerdict,
    ) -> Option<FastPass> {
        if is_marked(self, request) && is_judged(self, request) {
            return None;
        }
        let judged = self.describe(request, |call, named_by| {
            self.sentinel.core().judge(call, Some(named_by), slow)
        });
        let pass = judged.flatten();
        if pass.is_none() && slow.open() == Open::Renamed {
            self.judge_renamed(request, slow);
        }
        pass
    }

    /// Judges `request` again, as other rules came into force after it was named: under their
    /// templates it can have another name, or be exempt.
    #[cold]
    fn judge_renamed<B>(&self, request: &Request<B>, slow: &mut SlowVerdict) {
        while slow.open() == Open::Renamed {
            *slow = SlowVerdict::empty();
            self.describe(request, |call, named_by| {
                let core = self.sentinel.core();
                core.judge_slowly(call, Some(named_by), slow);
            });
        }
    }

    /// Describes `request` as a [`Call`] and passes it to `judge`, with the version of the rules
    /// that have named it. Returns `None` if the request is skipped.
    #[inline(always)]
    pub(super) fn describe<B, T>(
        &self,
        request: &Request<B>,
        judge: impl FnOnce(&Call<'_>, u64) -> T,
    ) -> Option<T> {
        let routes = self.sentinel.routes();
        let head = Head::new(request, &routes, self.direction);
        if !self.skip.is_empty() && self.skips(head) {
            return None;
        }
        let (resource, is_matched) = match &self.naming {
            Naming::Default => head.resource_and_match(),
            // A caller cannot make this name up, just as with a matched route.
            Naming::One(name) => (Key::Str(name), true),
            Naming::By(extractor) => (extractor.key(head).unwrap_or(Key::MISSING), false),
        };
        let mut call = Call::new(resource);
        call.flags = (call.flags)
            .with_is_matched(is_matched)
            .with_direction(self.direction)
            .with_wants_quota(self.fields != RateLimitFields::None);
        let mut room = CallRoom::default();
        if self.asks_more {
            self.describe_further(head, &mut call, &mut room);
        }
        // gRPC runs over HTTP/2 only, so the header is not looked up in requests of other versions.
        // The timeout bounds the wait of every call, as calls without priority can wait in a queue.
        if request.version() == Version::HTTP_2 {
            call.patience = grpc_timeout(request.headers());
        }
        Some(judge(&call, routes.version()))
    }

    /// Returns whether the layer skips the request. `head` has the routes by which the request is
    /// named afterwards, so that skipping and naming use the same version of the rules.
    #[inline(never)]
    fn skips(&self, head: Head<'_>) -> bool {
        self.skip.iter().any(|choose| choose(head))
    }

    /// Adds to `call` all that the extractors find besides its resource.
    #[inline]
    fn describe_further<'a>(
        &'a self,
        head: Head<'a>,
        call: &mut Call<'a>,
        room: &'a mut CallRoom<'a>,
    ) {
        if let Some(extractor) = &self.origin {
            call.origin = extractor.key(head);
        }
        if let Some(extractor) = &self.context {
            call.context = extractor.key(head);
        }
        if let Some(extractor) = &self.tier {
            call.tier = extractor.key(head);
        }
        if let Some(weigh) = &self.weight {
            *call = call.batch(weigh(head));
        }
        if let Some(choose) = &self.prioritize {
            call.flags = call.flags.with_prioritized(choose(head));
            if call.flags.prioritized() {
                call.patience = grpc_timeout(head.headers());
            }
        }
        if self.has_classes {
            call.flags = call.flags.with_importance(self.importance(head));
        }
        if self.costs.has_reserves() {
            let room = room.reserves.insert([("", 0); MOST_UNITS]);
            *call = call.reserves(self.costs.estimate(head, room));
        }
        match &*self.params {
            [] => {}
            [(name, extractor)] if name.is_empty() => {
                if let Some(value) = extractor.key(head) {
                    call.params = Params::One(value);
                }
            }
            params => {
                let many = room.params.insert(all_params(params, head));
                call.params = Params::Many(&many[..params.len()]);
            }
        }
    }
}

/// The parameters that `extractors` find; the rest of the array is filled with missing parameters.
#[inline(never)]
fn all_params<'a>(
    extractors: &'a [(Arc<str>, Arc<dyn KeyExtractor>)],
    head: Head<'a>,
) -> [Param<'a>; MOST_PARAMS] {
    let mut params = [Param::missing(""); MOST_PARAMS];
    for (param, (name, extractor)) in params.iter_mut().zip(extractors) {
        let value = extractor.key(head);
        *param = Param { name, value };
    }
    params
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::middleware::SentinelLayer;
    use crate::rule::Rules;

    #[test]
    fn a_call_has_the_class_that_the_layer_names() {
        let class_of = |layer: &SentinelLayer, path: &str| {
            let request = Request::get(path).body(()).unwrap();
            let class = |call: &Call<'_>, _| call.flags.importance().criticality();
            layer.settings.describe(&request, class).unwrap()
        };
        let plain = SentinelLayer::new(Rules::new());
        assert_eq!(class_of(&plain, "/a"), Criticality::Critical);
        let ranked = plain.criticality(|head| match head.route() {
            "/a" => Some(Criticality::Sheddable),
            "/b" => Some(Criticality::CriticalPlus),
            _ => None,
        });
        assert_eq!(class_of(&ranked, "/a"), Criticality::Sheddable);
        assert_eq!(class_of(&ranked, "/b"), Criticality::CriticalPlus);
        assert_eq!(class_of(&ranked, "/c"), Criticality::Critical);
    }

    #[test]
    fn a_call_has_a_cohort_if_the_layer_asks_for_one() {
        let cohort_of = |layer: &SentinelLayer, path: &str| {
            let request = Request::get(path).body(()).unwrap();
            let cohort = |call: &Call<'_>, _| call.flags.importance().cohort();
            let cohort = layer.settings.describe(&request, cohort).unwrap();
            cohort.map(Cohort::number)
        };
        let plain = SentinelLayer::new(Rules::new()).criticality(|_| None);
        assert_eq!(cohort_of(&plain, "/7"), None);
        let grouped = plain.cohort(|head| {
            let number = head.uri().path().trim_start_matches('/');
            number.parse().ok().and_then(Cohort::new)
        });
        assert_eq!(cohort_of(&grouped, "/7"), Some(7));
        assert_eq!(cohort_of(&grouped, "/list"), Some(64));
    }
}
