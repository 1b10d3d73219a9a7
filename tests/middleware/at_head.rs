//! Layers that end calls at the head of the response, and leave bodies alone.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future;
use std::io::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get as on_get;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use tower::util::option_layer;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_sentinel::middleware::SentinelService;
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::middleware::{AsError, AtHead};
use tower_sentinel::{Blocked, CircuitBreakerRule, FlowRule, IsolationRule, Rules, SentinelLayer};

use crate::support::{assert_at_rest, engine, get, ms, poll_now, ready};

const ROUTE: &str = "/x";

type Answer<B> = Result<Response<B>, Infallible>;

async fn hello(_: Request<Body>) -> Answer<Full<Bytes>> {
    Ok(Response::new(Full::from("hello")))
}

fn closed() -> FlowRule {
    FlowRule::per_second(ROUTE, 0)
}

// === types ===

/// Compiles if the layer's responses are the service's own.
const fn assert_own_type<S, ReqB, M>()
where
    S: Service<Request<ReqB>>,
    SentinelService<S, M>: Service<Request<ReqB>, Response = S::Response>,
{
}

#[test]
fn responses_are_of_the_services_own_type() {
    type Server<B> = tower::util::BoxCloneService<Request<Incoming>, Response<B>, Infallible>;
    type Client<B> = tower::util::BoxCloneService<Request<Body>, Response<B>, BoxError>;
    type Bytewise = http_body_util::combinators::BoxBody<VecDeque<u8>, Infallible>;
    assert_own_type::<Server<Body>, Incoming, AtHead>();
    assert_own_type::<Server<Full<Bytes>>, Incoming, AtHead>();
    assert_own_type::<Client<Incoming>, Body, AtHead<AsError>>();
    // Whatever its data are.
    assert_own_type::<Client<Bytewise>, Body, AtHead<AsError>>();
}

#[tokio::test]
async fn a_layer_that_leaves_bodies_alone_is_optional() {
    for is_limited in [true, false] {
        let layer = is_limited.then(|| SentinelLayer::new(closed()).at_head());
        let service = option_layer(layer).layer(service_fn(hello));
        let status = service.oneshot(get(ROUTE)).await.unwrap().status();
        assert_eq!(status == StatusCode::OK, !is_limited);
    }
}

#[tokio::test]
async fn axum_takes_it_for_a_route_and_for_a_router() {
    let layer = SentinelLayer::new(FlowRule::per_second(ROUTE, 2)).at_head();
    let route = Router::new().route(ROUTE, on_get(|| async { "hello" }).layer(layer.clone()));
    let app = route.layer(SentinelLayer::new(FlowRule::per_second(ROUTE, 1)).at_head());
    let status = async || app.clone().oneshot(get(ROUTE)).await.unwrap().status();
    assert_eq!(status().await, StatusCode::OK);
    assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(layer.sentinel().node(ROUTE).unwrap().totals().pass(), 1);
}

#[tokio::test]
async fn a_tonic_server_takes_it_and_its_refusals_have_their_status() {
    let layer = SentinelLayer::new(FlowRule::per_second("/pkg.Shop/Buy", 0)).at_head();
    let mut server = tonic::transport::Server::builder().layer(layer.clone());
    let served = server.add_routes(tonic::service::Routes::default());
    let nowhere = tokio_stream::empty::<Result<tokio::io::DuplexStream, std::io::Error>>();
    served.serve_with_incoming(nowhere).await.unwrap();

    let inner =
        |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(tonic::body::Body::empty())) };
    let service = layer.layer(service_fn(inner));
    let ask = async |kind: &str| {
        let request = Request::post("/pkg.Shop/Buy").header("content-type", kind);
        let request = request.body(Body::empty()).unwrap();
        let response: Response<tonic::body::Body> = service.clone().oneshot(request).await.unwrap();
        let status = response.headers().get("grpc-status").cloned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status.map(|it| it.to_str().unwrap().to_owned()), body)
    };
    let (status, body) = ask("application/grpc").await;
    assert_eq!((status.as_deref(), body.len()), (Some("8"), 0));
    // One that is not gRPC is told why in the body.
    let (status, body) = ask("application/json").await;
    assert_eq!((status, body.is_empty()), (None, false));
}

// === calls ===

#[test]
fn a_call_ends_at_the_head_of_its_response() {
    let (sentinel, clock) = engine(IsolationRule::new(ROUTE, 1));
    let time = clock.clone();
    let service = SentinelLayer::with(sentinel.clone())
        .at_head()
        .layer(service_fn(move |request: Request<Body>| {
            time.advance(ms(20));
            hello(request)
        }));
    let sent: Vec<_> = (0..3)
        .map(|_| ready(service.clone().oneshot(get(ROUTE))).unwrap())
        .collect();
    clock.advance(ms(500));
    assert!(
        sent.iter()
            .all(|response| response.status() == StatusCode::OK)
    );
    // While the bodies are still there.
    let totals = assert_at_rest(&sentinel, ROUTE);
    assert_eq!((totals.complete(), totals.rt()), (3, ms(60)));
    for response in sent {
        let body = ready(response.into_body().collect()).unwrap();
        assert_eq!(body.to_bytes(), "hello");
    }
    assert_eq!(assert_at_rest(&sentinel, ROUTE).complete(), 3);
}

#[test]
fn a_refusal_is_the_same_as_without() {
    let followed = SentinelLayer::new(closed()).layer(service_fn(hello));
    let at_head = SentinelLayer::new(closed())
        .at_head()
        .layer(service_fn(hello));
    for method in ["GET", "HEAD"] {
        let request = || {
            let request = Request::builder().uri(ROUTE).method(method);
            request.body(Body::empty()).unwrap()
        };
        let (head, body) = ready(followed.clone().oneshot(request()))
            .unwrap()
            .into_parts();
        let (own_head, own_body) = ready(at_head.clone().oneshot(request()))
            .unwrap()
            .into_parts();
        assert_eq!(own_head.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            (own_head.status, own_head.headers),
            (head.status, head.headers)
        );
        let text = ready(body.collect()).unwrap().to_bytes();
        assert_eq!(ready(own_body.collect()).unwrap().to_bytes(), text);
        assert_eq!(text.is_empty(), method == "HEAD");
    }
    let client = SentinelLayer::new(closed()).refusals_as_errors().at_head();
    let error = ready(client.layer(service_fn(hello)).oneshot(get(ROUTE))).unwrap_err();
    assert!(error.is::<Blocked>());
}

#[test]
fn a_call_that_is_dropped_before_its_head_releases_its_slot() {
    let (sentinel, _clock) = engine(IsolationRule::new(ROUTE, 1));
    let never = service_fn(|_: Request<Body>| future::pending::<Answer<Full<Bytes>>>());
    let mut service = SentinelLayer::with(sentinel.clone()).at_head().layer(never);
    for _ in 0..2 {
        let mut running = Box::pin(service.call(get(ROUTE)));
        assert!(poll_now(running.as_mut()).is_pending());
        let refused = ready(service.call(get(ROUTE))).unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        drop(running);
    }
    let totals = assert_at_rest(&sentinel, ROUTE);
    assert_eq!(
        (totals.pass(), totals.cancelled(), totals.block()),
        (2, 2, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_passes_is_refused_or_is_dropped() {
    let rule = IsolationRule::new(ROUTE, 1).queue(ms(50));
    let sentinel = tower_sentinel::Sentinel::builder()
        .rules(rule)
        .clock(tower_sentinel::clock::TokioClock::new())
        .build();
    let slow = service_fn(|request: Request<Body>| async {
        tokio::time::sleep(ms(40)).await;
        hello(request).await
    });
    let service = SentinelLayer::with(sentinel.clone()).at_head().layer(slow);
    let call = || service.clone().oneshot(get(ROUTE));
    // The third would have its turn after 80 ms.
    let (first, second, third) = tokio::join!(call(), call(), call());
    let statuses = [first, second, third].map(|answer| answer.unwrap().status());
    let (ok, full) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(statuses, [ok, ok, full]);
    {
        let mut running = pin!(call());
        let mut waiting = pin!(call());
        assert!(poll_now(running.as_mut()).is_pending());
        assert!(poll_now(waiting.as_mut()).is_pending());
        assert_eq!(sentinel.node(ROUTE).unwrap().waiting(), 1);
    }
    assert_eq!(assert_at_rest(&sentinel, ROUTE).complete(), 2);
}

#[test]
fn failures_are_those_of_the_head() {
    let rules = || CircuitBreakerRule::error_count(ROUTE, 2).min_calls(2);
    let calls = Arc::new(AtomicU32::new(0));
    let answer = service_fn(move |_: Request<Body>| {
        let nth = calls.fetch_add(1, Ordering::Relaxed);
        future::ready(match nth {
            0 => Err(Error::other("it is down")),
            _ => {
                let response = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
                Ok(response.body(Empty::<Bytes>::new()).unwrap())
            }
        })
    });
    let (sentinel, _clock) = engine(rules());
    let client = SentinelLayer::with(sentinel.clone())
        .refusals_as_errors()
        .at_head();
    let service = client.layer(answer);
    let call = || ready(service.clone().oneshot(get(ROUTE)));
    assert!(call().unwrap_err().is::<Error>());
    assert_eq!(call().unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(call().unwrap_err().is::<Blocked>(), "the breaker is open");
    assert_eq!(assert_at_rest(&sentinel, ROUTE).error(), 2);
}

#[test]
fn settings_of_responses_hold_at_the_head() {
    let rules = Rules::new().with(FlowRule::per_second(ROUTE, 5));
    let service = SentinelLayer::new(rules)
        .fields(RateLimitFields::Ietf)
        .at_head()
        .layer(service_fn(hello));
    let response = ready(service.oneshot(get(ROUTE))).unwrap();
    assert_eq!(response.headers()["ratelimit"], "\"flow-0\";r=4;t=1");
}
