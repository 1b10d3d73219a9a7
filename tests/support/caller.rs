//! Who a request is counted as, told by the quota that it takes from.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, channel};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::KeyExtractor;
use tower_sentinel::read::Scope;
use tower_sentinel::{FlowRule, Rules, Sentinel, SentinelLayer};

use super::{configured, ready};

/// The answer of a service that always succeeds, behind `layer`.
pub(crate) fn answer(layer: &SentinelLayer, request: Request<Body>) -> Response<()> {
    let service = layer.layer(service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    ready(service.oneshot(request)).unwrap().map(drop)
}

pub(crate) fn status(layer: &SentinelLayer, request: Request<Body>) -> StatusCode {
    answer(layer, request).status()
}

/// One call a second for each caller, as `extractor` names them.
pub(crate) fn per_caller(extractor: impl KeyExtractor) -> SentinelLayer {
    let rule = FlowRule::per_second("/x", 1).by_origin();
    let (sentinel, _clock) = configured(rule, |builder| builder.origins(true));
    SentinelLayer::with(sentinel).origin(extractor)
}

/// The callers that have been counted, in no order.
pub(crate) fn callers(layer: &SentinelLayer) -> Vec<Scope> {
    let snapshot = layer.sentinel().snapshot();
    let scopes = snapshot.nodes().iter().map(|node| node.scope().clone());
    scopes.filter(|scope| *scope != Scope::Resource).collect()
}

/// Asserts that `request` is served and counted as `caller` alone, and that the
/// next one like it finds that caller's quota taken.
#[track_caller]
pub(crate) fn assert_caller(
    layer: &SentinelLayer,
    request: impl Fn() -> Request<Body>,
    caller: Option<&str>,
    case: &str,
) {
    let scope = caller.map(|name| Scope::Origin(name.to_owned()));
    assert_eq!(status(layer, request()), StatusCode::OK, "{case}");
    assert_eq!(callers(layer), Vec::from_iter(scope), "{case}");
    let refused = status(layer, request());
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS, "{case}");
}

/// Tells which keys an extractor finds.
#[derive(Debug)]
pub(crate) struct Probe {
    layer: SentinelLayer,
    keys: Receiver<Option<String>>,
}

impl Probe {
    pub(crate) fn new(extractor: impl KeyExtractor) -> Self {
        Self::with(Rules::new(), extractor)
    }

    /// A probe in an engine with `rules`, whose names may be templates.
    pub(crate) fn with(rules: impl Into<Rules>, extractor: impl KeyExtractor) -> Self {
        let (told, keys) = channel();
        let layer = SentinelLayer::with(Sentinel::new(rules)).skip(move |head| {
            let key = extractor.key(head).map(|key| key.to_string());
            told.send(key).is_ok()
        });
        Self { layer, keys }
    }

    pub(crate) fn key(&self, request: Request<Body>) -> Option<String> {
        assert_eq!(status(&self.layer, request), StatusCode::OK);
        self.keys.recv().unwrap()
    }
}
