//! Our layer, with the rules that are compared.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use tower::util::service_fn;
use tower::{Layer, Service};
use tower_sentinel::clock::QuantaClock;
use tower_sentinel::key::PeerIp;
use tower_sentinel::clock::MonotonicClock;
use tower_sentinel::{CircuitBreakerRule, Clock, FlowRule, IsolationRule, KeyedRule, Rules, Sentinel, SentinelLayer};

use crate::calls::{Operation, Req, handler};
use crate::floor::{Floor, HeldFloor};
use crate::{FLOOR, HELD_FLOOR, ONE_INSTANT, ONE_QUANTA, ORIGIN_INSTANT, ORIGIN_QUANTA, THREE};

const HOUR: Duration = Duration::from_secs(3_600);
/// More than a run uses up in a second.
const PLENTY: u32 = (1 << 31) - 1;

pub(crate) fn admitted() -> Vec<Operation> {
    let one = || FlowRule::per_second("/known", PLENTY);
    // A threshold that one table holds, and that is more than a run uses up.
    let tabled = || FlowRule::per("/known", (1 << 20) - 1, Duration::from_millis(100)).by_origin();
    let hot = KeyedRule::per_second("/known", 1_000_000_000_u32);
    let three = (1..=3).fold(Rules::new(), |rules, seconds| {
        rules.with(FlowRule::per(
            "/known",
            PLENTY,
            Duration::from_secs(seconds),
        ))
    });
    vec![
        Operation::admitted(FLOOR, Floor::new()),
        Operation::admitted(HELD_FLOOR, HeldFloor::new()),
        Operation::admitted(
            "ours, no rule, quanta",
            quanta(Rules::new()).layer(handler()),
        ),
        Operation::admitted(
            "ours, no rule, Instant",
            instant(Rules::new()).layer(handler()),
        ),
        Operation::admitted(ONE_QUANTA, quanta(one()).layer(handler())),
        Operation::admitted(ONE_INSTANT, instant(one()).layer(handler())),
        Operation::admitted(
            ORIGIN_QUANTA,
            quanta(tabled()).origin(PeerIp).layer(handler()),
        ),
        Operation::admitted(
            ORIGIN_INSTANT,
            instant(tabled()).origin(PeerIp).layer(handler()),
        ),
        Operation::admitted(
            "ours, flow rule by address that lends, quanta",
            quanta(one().for_origin("other"))
                .origin(PeerIp)
                .layer(handler()),
        ),
        Operation::admitted(
            "ours, hot parameter by address, quanta",
            quanta(hot).param(PeerIp).layer(handler()),
        ),
        Operation::admitted(
            "ours, isolation, quanta",
            quanta(IsolationRule::new("/known", 8)).layer(handler()),
        ),
        Operation::admitted(
            "ours, circuit breaker, quanta",
            quanta(CircuitBreakerRule::error_ratio("/known", 0.5)).layer(handler()),
        ),
        Operation::admitted(THREE, quanta(three).layer(handler())),
    ]
}

pub(crate) fn refused() -> Vec<Operation> {
    let never = || FlowRule::per_second("/known", 0);
    let by_origin = FlowRule::per("/known", 1, HOUR).by_origin();
    let hot = KeyedRule::per("/known", 1, HOUR);
    vec![
        Operation::refused(ONE_QUANTA, quanta(never()).layer(handler())),
        Operation::refused(ONE_INSTANT, instant(never()).layer(handler())),
        Operation::refused(
            ORIGIN_QUANTA,
            quanta(by_origin).origin(PeerIp).layer(handler()),
        ),
        Operation::refused(
            "ours, hot parameter by address, quanta",
            quanta(hot).param(PeerIp).layer(handler()),
        ),
        Operation::refused(
            "ours, isolation, quanta",
            quanta(IsolationRule::new("/known", 0)).layer(handler()),
        ),
        Operation::refused("ours, circuit breaker, open, quanta", open()),
        Operation::refused(
            "ours, one flow rule, quanta, an error",
            quanta(never()).refusals_as_errors().layer(handler()),
        ),
    ]
}

fn quanta(rules: impl Into<Rules>) -> SentinelLayer {
    layer(rules, QuantaClock::new())
}

fn instant(rules: impl Into<Rules>) -> SentinelLayer {
    layer(rules, MonotonicClock::new())
}

fn layer(rules: impl Into<Rules>, clock: impl Clock) -> SentinelLayer {
    SentinelLayer::with(Sentinel::builder().rules(rules).clock(clock).build())
}

/// A breaker that has opened on answers of another service.
fn open() -> impl Service<Req, Response = Response<impl Sized>> {
    let rule = CircuitBreakerRule::error_ratio("/known", 0.5).open_for(HOUR);
    let layer = quanta(rule);
    let failing = service_fn(|_: Req| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut failing = layer.layer(failing);
    for _ in 0..100 {
        crate::calls::send(&mut failing);
    }
    layer.layer(handler())
}
