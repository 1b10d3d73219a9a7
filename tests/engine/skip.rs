//! Requests that no rule sees: they are served whatever is exhausted, and
//! counted nowhere.

use std::convert::Infallible;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Request, Response, StatusCode};
use axum::routing::any;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::hook::{BlockEvent, ExitEvent, PassEvent};
use tower_sentinel::key::{ClientAddr, ForwardedIp, PeerIp};
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::middleware::{CallLayer, skip};
use tower_sentinel::{
    Blocked, Call, FlowRule, Hook, IsolationRule, ManualClock, Rules, Sentinel, SentinelLayer,
    SystemRule,
};

use crate::support::caller::{answer, status};
use crate::support::{Server, engine, fetch, get, ready, send};

fn options(target: &str) -> Request<Body> {
    let request = Request::options(target).header("origin", "https://a.example");
    let request = request.header("access-control-request-method", "POST");
    request.body(Body::empty()).unwrap()
}

/// Counts what it is told.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Hook for Counter {
    fn on_pass(&self, _: &PassEvent<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn on_block(&self, _: &BlockEvent<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn on_exit(&self, _: &ExitEvent<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// === nothing is counted ===

#[tokio::test]
async fn what_is_skipped_is_counted_nowhere_while_it_runs_and_after() {
    let told = Arc::new(Counter::default());
    let rules = Rules::new()
        .with(FlowRule::per_second("/x", 0))
        .with(IsolationRule::new("/x", 0))
        .with(SystemRule::new().concurrency(0).qps(0));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .origins(true)
        .hook("counter", told.clone())
        .build();
    let layer = SentinelLayer::with(sentinel.clone())
        .origin(PeerIp)
        .fields(RateLimitFields::Ietf)
        .skip(skip::paths(["/x", "/healthz"]));
    let app = Router::new()
        .fallback(any(|| async { "hello" }))
        .layer(layer);
    let server = Server::axum(app).await;
    let mut connection = server.connect().await;
    for target in ["/x", "/healthz", "/x?a=b"] {
        let response = send(&mut connection, get(target)).await;
        assert_eq!(response.status(), StatusCode::OK);
        // While the body runs.
        assert_eq!(sentinel.snapshot().nodes().len(), 0);
        assert_eq!(sentinel.inbound().concurrency(), 0);
        let response = crate::support::collect(response).await;
        assert_eq!(response.body(), "hello");
        assert!(response.headers().iter().all(|(name, _)| {
            let name = name.as_str();
            !name.contains("ratelimit") && name != "retry-after"
        }));
    }
    assert_eq!(sentinel.snapshot().resources(), 0);
    let totals = sentinel.inbound().totals();
    assert_eq!(
        (totals.pass(), totals.block(), totals.complete()),
        (0, 0, 0)
    );
    assert_eq!(told.0.load(Ordering::Relaxed), 0);
    // The others are judged.
    let refused = fetch(&mut connection, get("/y")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(told.0.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_preflight_passes_while_the_quota_is_exhausted() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 1));
    let layer = SentinelLayer::with(sentinel.clone()).skip(skip::options());
    for _ in 0..3 {
        assert_eq!(status(&layer, options("/x")), StatusCode::OK);
    }
    assert!(sentinel.node("/x").is_none());
    assert_eq!(status(&layer, get("/x")), StatusCode::OK);
    assert_eq!(status(&layer, get("/x")), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&layer, options("/x")), StatusCode::OK);
    let totals = sentinel.node("/x").unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (1, 1));
}

#[test]
fn predicates_add_up_and_none_skips_nothing() {
    let layer = || SentinelLayer::with(engine(FlowRule::per_second("/x", 0)).0);
    let both = layer()
        .skip(skip::options())
        .skip(|head| head.headers().contains_key("x-probe"));
    let probe = || {
        Request::get("/x")
            .header("x-probe", "1")
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(status(&both, options("/x")), StatusCode::OK);
    assert_eq!(status(&both, probe()), StatusCode::OK);
    assert_eq!(status(&both, get("/x")), StatusCode::TOO_MANY_REQUESTS);
    for request in [options("/x"), probe()] {
        assert_eq!(status(&layer(), request), StatusCode::TOO_MANY_REQUESTS);
        let nothing = layer().skip(skip::paths::<&str>([]));
        let nothing = nothing.skip(skip::nets(PeerIp, []));
        assert_eq!(status(&nothing, get("/x")), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[test]
fn a_client_skips_too_and_errors_stay_what_they_are() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 0));
    let layer = SentinelLayer::with(sentinel.clone())
        .skip(skip::options())
        .refusals_as_errors();
    let service = layer.layer(service_fn(|request: Request<Body>| async move {
        if request.headers().contains_key("x-bad") {
            Err("a bad request")
        } else {
            Ok(Response::new(Body::empty()))
        }
    }));
    let passed = ready(service.clone().oneshot(options("/x"))).unwrap();
    assert_eq!(passed.status(), StatusCode::OK);
    let mut bad = options("/x");
    bad.headers_mut().insert("x-bad", "1".parse().unwrap());
    let error = ready(service.clone().oneshot(bad)).unwrap_err();
    assert_eq!(error.to_string(), "a bad request");
    let refused = ready(service.oneshot(get("/x"))).unwrap_err();
    assert!(refused.is::<Blocked>());
    assert_eq!(sentinel.node("/x").unwrap().totals().complete(), 0);
}

#[test]
fn the_rules_that_skip_a_request_by_its_name_are_those_that_would_judge_it() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 1));
    let changing = sentinel.clone();
    let layer = SentinelLayer::with(sentinel).skip(move |head| {
        let is_probe = head.route() == "/probes/{id}";
        // Just now other rules come into force, which name the path and refuse it.
        changing.reload(FlowRule::per_second("/probes/{id}", 0).into());
        is_probe
    });
    // By the old rules it passes, and by the new ones it is skipped.
    assert_eq!(status(&layer, get("/probes/1")), StatusCode::OK);
    let snapshot = layer.sentinel().snapshot();
    let totals = snapshot.totals();
    assert_eq!((totals.pass(), totals.block()), (0, 0));
}

#[test]
fn calls_that_are_no_requests_are_not_concerned() {
    let (sentinel, _clock) = engine(FlowRule::per_second("job", 1));
    let layer = CallLayer::with(sentinel, |_: &u32| Call::new("job"));
    let service = layer.layer(service_fn(|n: u32| async move { Ok::<_, Infallible>(n) }));
    assert_eq!(ready(service.clone().oneshot(1)).unwrap(), 1);
    assert!(ready(service.oneshot(2)).unwrap_err().is::<Blocked>());
}

// === paths ===

#[test]
fn paths_are_skipped_by_template_unless_they_climb() {
    let rules = || engine(FlowRule::per_second("__overflow__", 0)).0;
    let layer = || {
        let sentinel = rules();
        // Whatever is judged is seen.
        let layer = SentinelLayer::with(sentinel.clone());
        let templates = ["/healthz", "/static/{*rest}", "/users/{id}/avatar"];
        (sentinel, layer.skip(skip::paths(templates)))
    };
    let cases = [
        ("/healthz", true),
        ("/healthz?full", true),
        ("http://host/healthz", true),
        ("/healthz/", false),
        ("/Healthz", false),
        ("/healthz%2e", false),
        ("/static/a.css", true),
        ("/static/a/b.css", true),
        ("/static/.well-known/a", true),
        ("/static/..a", true),
        ("/static/", false),
        ("/static", false),
        ("/users/7/avatar", true),
        ("/users/7", false),
        ("/x?a=/healthz", false),
        ("*", false),
        // Elsewhere, for a service that cleans paths up.
        ("/static/../x", false),
        ("/static/./x", false),
        ("/static/..", false),
        ("/static/%2e%2e/x", false),
        ("/static/.%2E/x", false),
        ("/static/a%2f..%2f..%2fx", false),
        ("/static/..%5cx", false),
        ("/static/..;a=b/x", false),
        ("/users/../avatar", false),
    ];
    for (target, is_skipped) in cases {
        let (sentinel, layer) = layer();
        assert_eq!(status(&layer, get(target)), StatusCode::OK);
        let seen = sentinel.snapshot().resources();
        assert_eq!(seen == 0, is_skipped, "{target}");
    }
    // The method does not matter.
    let (sentinel, layer) = layer();
    let mut request = get("/healthz");
    *request.method_mut() = Method::POST;
    assert_eq!(status(&layer, request), StatusCode::OK);
    assert_eq!(sentinel.snapshot().resources(), 0);
}

/// In a router that is merged into another, a second slash is a parameter that is empty.
#[tokio::test]
async fn a_path_that_axum_matched_as_another_is_not_skipped() {
    let layer = SentinelLayer::new(SystemRule::new().qps(0)).skip(skip::paths(["/healthz"]));
    let inside = Router::new()
        .route("/healthz", any(|| async { "well" }))
        .route("/{order}/{*rest}", any(|| async { "an order" }))
        .layer(layer);
    let merged = Router::new().nest("/{tenant}", inside.clone());
    let apart = Router::new().nest_service("/{tenant}", inside);
    for (app, path, expected) in [
        (&merged, "/acme/healthz", StatusCode::OK),
        // What the layer sees is `/healthz`, but an order is served.
        (&merged, "/acme//healthz", StatusCode::SERVICE_UNAVAILABLE),
        (&apart, "/acme/healthz", StatusCode::OK),
        (&apart, "/acme//healthz", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        assert_eq!(response.status(), expected, "{path}");
    }
}

#[test]
fn what_is_no_template_is_named() {
    let long = "/{x}".repeat(26);
    let cases: [(&[&str], &str); 6] = [
        (&["/ok", "healthz"], "\"healthz\""),
        (&["GET /healthz"], "\"GET /healthz\""),
        (&[""], "\"\""),
        (&["/a/{"], "\"/a/{\""),
        (&["/a/{x}", "/a/{y}"], "\"/a/{y}\""),
        (&[&long], "must be a template with at most 25 parameters"),
    ];
    for (templates, named) in cases {
        let made = catch_unwind(|| drop(skip::paths(templates)));
        let panic = made.expect_err(named);
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains(named), "{message}");
    }
}

// === networks ===

/// A request from `peer`, with lines of `X-Forwarded-For`.
fn from(peer: Option<&str>, lines: &[&str]) -> Request<Body> {
    let mut request = get("/x");
    if let Some(peer) = peer {
        let peer = ClientAddr(format!("{peer}:1").parse().unwrap());
        request.extensions_mut().insert(peer);
    }
    for line in lines {
        let line = line.parse().unwrap();
        request.headers_mut().append("x-forwarded-for", line);
    }
    request
}

/// A peer, the lines of the header, and whether the request is skipped.
type Case<'a> = (Option<&'a str>, &'a [&'a str], bool);

#[track_caller]
fn assert_skipped(layer: &SentinelLayer, cases: &[Case<'_>]) {
    for (peer, lines, is_skipped) in cases {
        let answer = answer(layer, from(*peer, lines));
        let was_skipped = answer.status() == StatusCode::OK;
        assert_eq!(was_skipped, *is_skipped, "{peer:?} {lines:?}");
    }
}

fn closed() -> SentinelLayer {
    SentinelLayer::with(engine(FlowRule::per_second("/x", 0)).0)
}

#[test]
fn a_network_is_skipped_only_if_the_address_is_sure() {
    let office = || ["198.51.100.0/24", "2001:db8::7/128"].map(|net| net.parse().unwrap());
    let forged: &[&str] = &["198.51.100.7"];

    let by_peer = closed().skip(skip::nets(PeerIp, office()));
    assert_skipped(
        &by_peer,
        &[
            (Some("198.51.100.7"), &[], true),
            (Some("[::ffff:198.51.100.7]"), &[], true),
            (Some("[2001:db8::7]"), &[], true),
            // In the same /64, but not in the net.
            (Some("[2001:db8::8]"), &[], false),
            (Some("203.0.113.9"), forged, false),
            (None, forged, false),
        ],
    );

    let proxies = "10.0.0.0/8".parse().unwrap();
    let trusted = ForwardedIp::behind([proxies]);
    let behind = closed().skip(skip::nets(trusted.clone(), office()));
    assert_skipped(
        &behind,
        &[
            (Some("10.0.0.1"), &["198.51.100.7"], true),
            (Some("10.0.0.1"), &["203.0.113.9, 198.51.100.7"], true),
            (Some("10.0.0.1"), &["198.51.100.7, 10.0.0.2"], true),
            (Some("198.51.100.7"), &[], true),
            // What the client wrote, before what our proxy did.
            (Some("10.0.0.1"), &["198.51.100.7, 203.0.113.9"], false),
            (Some("10.0.0.1"), &["198.51.100.7", "203.0.113.9"], false),
            (Some("203.0.113.9"), forged, false),
            (None, forged, false),
            (Some("10.0.0.1"), &["198.51.100.7, unknown"], false),
        ],
    );

    // The proxies themselves are let through, but not what hides behind them.
    let own = closed().skip(skip::nets(trusted, [proxies]));
    assert_skipped(
        &own,
        &[
            (Some("10.0.0.1"), &[], true),
            (Some("10.0.0.1"), &["10.0.0.9"], true),
            (Some("10.0.0.1"), &["203.0.113.9"], false),
            (Some("10.0.0.1"), &["unknown"], false),
            (Some("10.0.0.1"), &[""], false),
            (Some("10.0.0.1"), &[" ", ",,"], false),
            (Some("10.0.0.1"), &["10.0.0.9,", ""], true),
            (Some("10.0.0.1"), &["203.0.113.9, ,"], false),
            (Some("10.0.0.1"), &["10.0.0.9, unknown"], false),
        ],
    );

    let hops = closed().skip(skip::nets(ForwardedIp::hops(1), office()));
    assert_skipped(
        &hops,
        &[
            (Some("10.0.0.1"), &["198.51.100.7"], true),
            (Some("10.0.0.1"), &["198.51.100.7, 203.0.113.9"], false),
            // Past the proxy: nobody knows who that is.
            (Some("198.51.100.7"), &[], false),
            (Some("198.51.100.7"), &["unknown"], false),
        ],
    );
}

// === gRPC ===

/// Answers every call with nothing.
#[derive(Clone, Debug)]
struct Nothing;

impl NamedService for Nothing {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<Request<tonic::body::Body>> for Nothing {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        async {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<(), ()>::default());
            let nothing = |_: tonic::Request<()>| async { Ok(tonic::Response::new(())) };
            Ok(grpc.unary(service_fn(nothing), request).await)
        }
        .boxed()
    }
}

async fn call(channel: &Channel, method: &'static str) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    let codec = ProstCodec::<(), ()>::default();
    let answer = grpc.unary(tonic::Request::new(()), path, codec).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn health_checks_of_a_grpc_server_are_skipped_by_their_path() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    const OTHER: &str = "/grpc.health.v1.Health/Other";

    let rules = Rules::new()
        .with(FlowRule::per_second(CHECK, 0))
        .with(FlowRule::per_second(OTHER, 0));
    let (sentinel, _clock) = engine(rules);
    let layer = SentinelLayer::with(sentinel.clone()).skip(skip::paths([CHECK]));
    let server = Server::start(|listener| async {
        let incoming = TcpListenerStream::new(listener);
        let mut server = tonic::transport::Server::builder().layer(layer);
        let served = server.add_service(Nothing).serve_with_incoming(incoming);
        served.await.unwrap();
    })
    .await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.addr));
    let channel = endpoint.unwrap().connect().await.unwrap();
    for _ in 0..3 {
        call(&channel, CHECK).await.unwrap();
    }
    let refused = call(&channel, OTHER).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(sentinel.node(CHECK).is_none());
    assert_eq!(sentinel.node(OTHER).unwrap().totals().block(), 1);
}
