//! The layers of other crates.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum_governor::Quota as AxumQuota;
use governor::middleware::NoOpMiddleware;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::{Request, Response, StatusCode};
use sentinel_core::flow;
use sentinel_tower::ServiceRole;
use tokio::runtime::Runtime;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::{
    GlobalKeyExtractor, KeyExtractor, PeerIpKeyExtractor, SmartIpKeyExtractor,
};
use tower_resilience_circuitbreaker::CircuitBreakerLayer;
use tower_resilience_ratelimiter::{RateLimiterLayer, WindowType};

use crate::calls::{Handler, Operation, Req, handler};
use crate::{BARE, GOVERNOR_IP, SENTINEL_TOWER};

const HOUR: Duration = Duration::from_secs(3_600);
/// More than a run uses up.
const PLENTY: usize = 1 << 40;

/// A limit, as far as these benches care.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Plenty,
    /// One call, which is gone before it is measured.
    One,
}

pub(crate) fn admitted() -> Vec<Operation> {
    let limit = Limit::Plenty;
    // These rules are global to the process.
    let rules = [("few", 0.0), ("many", 1e12)];
    flow::load_rules(
        rules
            .map(|(name, threshold)| sentinel_rule(name, threshold))
            .to_vec(),
    );
    vec![
        Operation::admitted(BARE, handler()),
        Operation::admitted("governor, bare check before the service", check(limit)),
        Operation::admitted(
            "tower ConcurrencyLimit",
            ConcurrencyLimit::new(handler(), 8),
        ),
        Operation::admitted(
            "tower_governor, global",
            tower_governor(limit, GlobalKeyExtractor).layer(handler()),
        ),
        Operation::admitted(
            "tower_governor, path",
            tower_governor(limit, PathKey).layer(handler()),
        ),
        Operation::admitted(
            GOVERNOR_IP,
            tower_governor(limit, PeerIpKeyExtractor).layer(handler()),
        ),
        Operation::admitted(
            "tower_governor, smart address",
            tower_governor(limit, SmartIpKeyExtractor).layer(handler()),
        ),
        Operation::admitted(
            "axum-governor, global",
            axum_governor(limit, axum_governor::Global).layer(handler()),
        ),
        Operation::admitted(
            "axum-governor, peer address",
            axum_governor(limit, axum_governor::PeerIp::default()).layer(handler()),
        ),
        Operation::admitted(
            "tower-resilience rate limiter, fixed",
            resilience(limit, WindowType::Fixed).layer(handler()),
        ),
        Operation::admitted(
            "tower-resilience rate limiter, sliding counter",
            resilience(limit, WindowType::SlidingCounter).layer(handler()),
        ),
        Operation::admitted(
            "tower-resilience circuit breaker",
            CircuitBreakerLayer::builder()
                .build()
                .expect("its defaults")
                .layer(handler()),
        ),
        Operation::admitted("sentinel-tower, no rule", sentinel_tower(|_| "free".into())),
        Operation::admitted(SENTINEL_TOWER, sentinel_tower(|_| "many".into())),
    ]
}

pub(crate) fn refused(runtime: &Runtime) -> Vec<Operation> {
    let limit = Limit::One;
    let (breaker, handle) = CircuitBreakerLayer::builder()
        .wait_duration_in_open(HOUR)
        .build_with_handle()
        .expect("a breaker");
    runtime.block_on(handle.force_open());
    vec![
        Operation::refused("governor, bare check, an empty 429", check(limit)),
        Operation::refused(
            "tower_governor, global",
            tower_governor(limit, GlobalKeyExtractor).layer(handler()),
        ),
        Operation::refused(
            GOVERNOR_IP,
            tower_governor(limit, PeerIpKeyExtractor).layer(handler()),
        ),
        Operation::refused(
            "axum-governor, peer address",
            axum_governor(limit, axum_governor::PeerIp::default()).layer(handler()),
        ),
        Operation::refused(
            "tower-resilience rate limiter, fixed, an error",
            resilience(limit, WindowType::Fixed).layer(handler()),
        ),
        Operation::refused(
            "tower-resilience rate limiter, sliding counter, an error",
            resilience(limit, WindowType::SlidingCounter).layer(handler()),
        ),
        Operation::refused(
            "tower-resilience circuit breaker, open, an error",
            breaker.layer(handler()),
        ),
        Operation::refused(
            "sentinel-tower, one flow rule, an error",
            sentinel_tower(|_| "few".into()),
        ),
        Operation::refused(
            "sentinel-tower, one flow rule, an empty 429",
            sentinel_tower(|_| "few".into()).with_fallback(|_, _| Ok(too_many())),
        ),
    ]
}

fn too_many() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response
}

// === governor ===

/// A check of governor's and the service, with nothing between them.
struct Checked {
    limiter: DefaultDirectRateLimiter,
    inner: Handler,
}

fn check(limit: Limit) -> Checked {
    let quota = match limit {
        Limit::Plenty => Quota::per_second(axum_governor::nz!(1_000_000_000_u32)),
        Limit::One => Quota::with_period(HOUR).expect("above 0"),
    };
    Checked {
        limiter: RateLimiter::direct(quota),
        inner: handler(),
    }
}

impl Service<Req> for Checked {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<crate::calls::Answer>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        if self.limiter.check().is_err() {
            return std::future::ready(Ok(too_many()));
        }
        self.inner.call(request)
    }
}

/// The path as a key, which that crate leaves to its users.
#[derive(Clone, Copy)]
struct PathKey;

impl KeyExtractor for PathKey {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        Ok(request.uri().path().to_owned())
    }
}

fn tower_governor<K: KeyExtractor>(
    limit: Limit,
    key: K,
) -> GovernorLayer<K, NoOpMiddleware<governor::clock::QuantaInstant>, Body> {
    let (period, burst) = match limit {
        Limit::Plenty => (Duration::from_nanos(1), 1_000_000_000),
        Limit::One => (HOUR, 1),
    };
    let config = GovernorConfigBuilder::default()
        .period(period)
        .burst_size(burst)
        .key_extractor(key)
        .finish()
        .expect("above 0");
    GovernorLayer::new(Arc::new(config))
}

fn axum_governor<E: axum_governor::KeyExtractor>(
    limit: Limit,
    extractor: E,
) -> axum_governor::GovernorLayer<E::Key> {
    let quota = match limit {
        Limit::Plenty => AxumQuota::requests_per_second(axum_governor::nz!(1_000_000_000_u32)),
        Limit::One => AxumQuota::requests_per_hour(axum_governor::nz!(1_u32)),
    };
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(extractor)
        .expect_connect_info()
        .quota_default(quota)
        .gc_disable()
        .finish()
        .expect("a quota and an extractor");
    axum_governor::GovernorLayer::new(config)
}

// === tower-resilience ===

fn resilience(limit: Limit, window: WindowType) -> RateLimiterLayer {
    let (limit, period) = match limit {
        Limit::Plenty => (PLENTY, Duration::from_secs(1)),
        Limit::One => (1, HOUR),
    };
    RateLimiterLayer::builder()
        .limit_for_period(limit)
        .refresh_period(period)
        .timeout_duration(Duration::ZERO)
        .window_type(window)
        .build()
        .expect("a limit")
}

// === sentinel-tower ===

fn sentinel_rule(name: &str, threshold: f64) -> Arc<flow::Rule> {
    Arc::new(flow::Rule {
        resource: name.into(),
        threshold,
        ..flow::Rule::default()
    })
}

fn sentinel_tower(name: fn(&Req) -> String) -> sentinel_tower::SentinelService<Handler, Req> {
    sentinel_tower::SentinelService::new(handler(), ServiceRole::Server).with_extractor(name)
}
