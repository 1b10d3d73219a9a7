//! The layers among those of tower and tower-http that most programs have: that the types fit,
//! also in a task.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use axum::routing::get as on_get;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tonic::service::Routes;
use tonic::transport::{Channel, Server};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::util::{BoxCloneService, option_layer};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer as HttpTimeoutLayer;
use tower_http::trace::TraceLayer;
use tower_sentinel::clock::TokioClock;
use tower_sentinel::middleware::{CallLayer, Respond, SentinelService};
use tower_sentinel::{Call, FlowRule, IsolationRule, ManualClock, Rules, Sentinel, SentinelLayer};

use crate::support::get;

const SECOND: Duration = Duration::from_secs(1);

fn layer() -> SentinelLayer {
    SentinelLayer::new(FlowRule::per_second("/x", 100))
}

/// What a program does with a service: it clones it and moves it into a task.
async fn in_a_task<F>(future: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(future).await.unwrap()
}

async fn hello(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}

// === servers ===

#[tokio::test]
async fn axum_with_layers_of_tower_http() {
    let app = Router::new()
        .route("/x", on_get(|| async { "hello" }))
        .layer(CompressionLayer::new())
        .layer(HttpTimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            SECOND,
        ))
        .layer(layer())
        .layer(CatchPanicLayer::new())
        .layer(CorsLayer::permissive())
        .layer(TraceLayer::new_for_http())
        .layer(RequestBodyLimitLayer::new(1_000));
    let response = in_a_task(app.oneshot(get("/x"))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn axum_with_a_service_builder_and_layers_that_fail() {
    let fallible = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_: BoxError| async {
            StatusCode::SERVICE_UNAVAILABLE
        }))
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(10))
        .layer(TimeoutLayer::new(SECOND))
        .layer(layer().judge_first());
    let app = Router::new()
        .route("/x", on_get(|| async { "hello" }))
        .layer(fallible);
    let app = NormalizePathLayer::trim_trailing_slash().layer(app);
    let response = in_a_task(app.oneshot(get("/x/"))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_service_builder_with_layers_that_make_responses_of_their_own() {
    let service = ServiceBuilder::new()
        .layer(SetSensitiveRequestHeadersLayer::new([
            header::AUTHORIZATION,
        ]))
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(TraceLayer::new_for_http())
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetResponseHeaderLayer::overriding(
            HeaderName::from_static("x-hello"),
            HeaderValue::from_static("1"),
        ))
        .layer(CorsLayer::permissive())
        .layer(HttpTimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            SECOND,
        ))
        .layer(CompressionLayer::new())
        .layer(layer())
        .layer(CatchPanicLayer::new())
        .service_fn(hello);
    let response = in_a_task(service.oneshot(get("/x"))).await.unwrap();
    assert_eq!(response.headers()["x-hello"], "1");
}

#[tokio::test]
async fn hyper_in_a_task_for_each_connection() {
    async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, BoxError> {
        Ok(Response::new(Full::new(Bytes::from("hello"))))
    }
    let connection = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = connection.local_addr().unwrap();
    let layer = layer();
    let server = tokio::spawn(async move {
        let (io, _) = connection.accept().await.unwrap();
        let service = ServiceBuilder::new()
            .layer(TraceLayer::new_for_http())
            .layer(layer)
            .service_fn(hello);
        let service = TowerToHyperService::new(service);
        let http = hyper::server::conn::http1::Builder::new();
        http.serve_connection(TokioIo::new(io), service)
            .await
            .unwrap();
    });
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let response = client
        .get(format!("http://{addr}/x").parse().unwrap())
        .await;
    let body = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "hello");
    drop(client);
    server.await.unwrap();
}

#[tokio::test]
async fn a_tonic_server_with_layers_of_both() {
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_grpc())
        .layer(layer())
        .layer(ConcurrencyLimitLayer::new(10));
    let mut server = Server::builder().timeout(SECOND).layer(stack);
    let served = server.add_routes(Routes::default());
    let nowhere = tokio_stream::empty::<Result<tokio::io::DuplexStream, std::io::Error>>();
    in_a_task(served.serve_with_incoming(nowhere))
        .await
        .unwrap();
}

// === clients ===

#[tokio::test]
async fn a_hyper_client_with_a_timeout_inside() {
    let client = ServiceBuilder::new()
        .layer(layer().outbound().refusals_as_errors())
        .layer(TimeoutLayer::new(SECOND))
        .service(Client::builder(TokioExecutor::new()).build_http::<Body>());
    let nowhere = Request::get("http://127.0.0.1:1/")
        .body(Body::empty())
        .unwrap();
    assert!(in_a_task(client.oneshot(nowhere)).await.is_err());
}

#[tokio::test]
async fn a_tonic_client_over_a_channel() {
    let channel = Channel::from_static("http://127.0.0.1:1").connect_lazy();
    let channel = ServiceBuilder::new()
        .layer(layer().outbound())
        .service(channel);
    let mut client = tonic::client::Grpc::new(channel);
    let ready = in_a_task(async move { client.ready().await.is_ok() });
    assert!(ready.await);
}

#[tokio::test]
async fn a_retry_around_a_client_that_is_buffered() {
    async fn send(_: u32) -> Result<u32, BoxError> {
        Ok(200)
    }
    let calls = CallLayer::new(Rules::new(), |_: &u32| Call::new("job").outbound());
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(Never))
        .layer(calls.judge_first())
        .layer(BufferLayer::<u32>::new(10))
        .layer(TimeoutLayer::new(SECOND))
        .service_fn(send);
    assert_eq!(in_a_task(client.oneshot(7)).await.unwrap(), 200);
}

#[derive(Clone)]
struct Never;

impl<Req: Clone, Res, E> tower::retry::Policy<Req, Res, E> for Never {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Req, _: &mut Result<Res, E>) -> Option<Self::Future> {
        None
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

// === types ===

#[tokio::test]
async fn a_closure_whose_error_is_a_box_fits_into_a_task() {
    let response = in_a_task(async {
        let service = layer().layer(service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }));
        service.oneshot(get("/x")).await.unwrap()
    });
    assert_eq!(response.await.status(), StatusCode::OK);
}

/// Where errors become boxes, a closure does not: the compiler finds that an implementation of
/// `From` is not general enough.
#[tokio::test]
async fn a_function_whose_error_is_a_box_fits_into_a_task_with_any_layer() {
    async fn hello(_: Request<Body>) -> Result<Response<Body>, BoxError> {
        Ok(Response::new(Body::empty()))
    }
    let statuses = in_a_task(async {
        let fails = layer().refusals_as_errors().layer(service_fn(hello));
        let calls = CallLayer::new(Rules::new(), |_: &Request<Body>| Call::new("/x"));
        let calls = calls.layer(service_fn(hello));
        let first = fails.oneshot(get("/x")).await.unwrap().status();
        [first, calls.oneshot(get("/x")).await.unwrap().status()]
    });
    assert_eq!(statuses.await, [StatusCode::OK; 2]);
}

/// An error that is no box may also borrow.
#[test]
fn a_layer_that_fails_takes_a_service_whose_error_is_not_static() {
    #[derive(Debug)]
    struct Lent<'a>(&'a str);
    impl From<Lent<'_>> for BoxError {
        fn from(error: Lent<'_>) -> Self {
            error.0.into()
        }
    }
    let text = "down".to_owned();
    let service = layer()
        .refusals_as_errors()
        .layer(service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, _>(Lent(&text))
        }));
    let error = crate::support::ready(service.oneshot(get("/x"))).unwrap_err();
    assert_eq!(error.to_string(), "down");
}

#[tokio::test]
async fn a_service_with_limits_has_a_type_that_can_be_written() {
    type Inner = BoxCloneService<Request<Body>, Response<Body>, Infallible>;
    struct App {
        limited: SentinelService<Inner, Respond>,
    }
    let mut app = App {
        limited: layer().layer(BoxCloneService::new(service_fn(hello))),
    };
    let limited = app.limited.ready().await.unwrap();
    assert_eq!(
        limited.call(get("/x")).await.unwrap().status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn without_rules_a_layer_stays_in_place_and_types_stay_the_same() {
    for is_limited in [true, false] {
        let rules = if is_limited {
            IsolationRule::new("/x", 0).into()
        } else {
            Rules::new()
        };
        let service = SentinelLayer::new(rules).layer(service_fn(hello));
        let status = service.oneshot(get("/x")).await.unwrap().status();
        assert_eq!(status == StatusCode::OK, !is_limited);
    }
}

#[tokio::test]
async fn an_optional_layer_fits_where_types_are_equalized() {
    async fn count(_: u32) -> Result<u32, BoxError> {
        Ok(7)
    }
    for is_limited in [true, false] {
        // The bodies of both become the same.
        let limits = is_limited.then(|| {
            let to_body =
                tower::util::MapResponseLayer::new(|response: Response<_>| response.map(Body::new));
            (to_body, layer())
        });
        let service = option_layer(limits).layer(service_fn(hello));
        let status = service.oneshot(get("/x")).await.unwrap().status();
        assert_eq!(status, StatusCode::OK);
        // A `CallLayer` fits as it is around a service whose error is a box.
        let calls = is_limited.then(|| CallLayer::new(Rules::new(), |_: &u32| Call::new("job")));
        let service = option_layer(calls).layer(service_fn(count));
        assert_eq!(service.oneshot(7).await.unwrap(), 7);
    }
}

// === the layer twice ===

/// The statuses of `count` requests to `path`, one after the other.
async fn statuses(app: &Router, path: &str, count: usize) -> Vec<u16> {
    let mut all = Vec::new();
    for _ in 0..count {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        all.push(response.status().as_u16());
        // To its end, where the call ends.
        response.into_body().collect().await.unwrap();
    }
    all
}

#[tokio::test]
async fn a_layer_around_itself_judges_each_call_once() {
    let rules = (
        IsolationRule::new("/one", 1),
        FlowRule::per_minute("/three", 3),
        // The queue makes calls wait, on the way that is not the fast one.
        FlowRule::per_second("/paced", 1000).throttle(10 * SECOND),
        tower_sentinel::CircuitBreakerRule::consecutive_errors("/bad", 2),
        FlowRule::per_minute("*", 3),
    );
    let sentinel = Sentinel::builder().rules(rules);
    let sentinel = sentinel.clock(ManualClock::new()).build();
    let layer = SentinelLayer::with(sentinel.clone());
    let app = Router::new()
        .route("/one", on_get(|| async { "hello" }))
        .route("/three", on_get(|| async { "hello" }))
        .route("/paced", on_get(|| async { "hello" }))
        .route(
            "/bad",
            on_get(|| async { StatusCode::INTERNAL_SERVER_ERROR }),
        )
        .route("/any", on_get(|| async { "hello" }))
        .layer(layer.clone())
        .layer(layer.clone())
        .layer(layer);
    assert_eq!(statuses(&app, "/one", 3).await, [200; 3]);
    assert_eq!(statuses(&app, "/three", 4).await, [200, 200, 200, 429]);
    assert_eq!(statuses(&app, "/any", 4).await, [200, 200, 200, 429]);
    assert_eq!(statuses(&app, "/bad", 3).await, [500, 500, 503]);
    for (name, calls) in [("/one", 3), ("/three", 3), ("/any", 3), ("/bad", 2)] {
        assert_eq!(
            sentinel.node(name).unwrap().totals().pass(),
            calls,
            "{name}"
        );
    }
    // A reload makes the resources anew, and they learn it anew.
    sentinel.reload(IsolationRule::new("/one", 1).into());
    assert_eq!(statuses(&app, "/one", 3).await, [200; 3]);
    assert_eq!(sentinel.node("/one").unwrap().totals().pass(), 6);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_are_judged_once_by_a_layer_around_itself() {
    let rule = FlowRule::per_second("/paced", 1).throttle(60 * SECOND);
    let sentinel = Sentinel::builder()
        .rules(rule)
        .clock(TokioClock::new())
        .build();
    let layer = SentinelLayer::with(sentinel.clone());
    let app = Router::new()
        .route("/paced", on_get(|| async { "hello" }))
        .layer(layer.clone())
        .layer(layer);
    let begin = tokio::time::Instant::now();
    assert_eq!(statuses(&app, "/paced", 3).await, [200; 3]);
    assert_eq!(begin.elapsed().as_secs(), 2);
}

/// The first call to a route may end between the layers: it has no login, say.
#[tokio::test]
async fn a_layer_around_itself_is_found_out_by_a_later_call() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder().rules(FlowRule::per_hour("/x", 9));
    let sentinel = sentinel.clock(clock.clone()).build();
    let layer = SentinelLayer::with(sentinel.clone());
    let login = |request: Request<Body>| {
        let is_known = request.headers().contains_key("login");
        async move { is_known.then_some(request).ok_or(StatusCode::UNAUTHORIZED) }
    };
    let app = Router::new()
        .route("/x", on_get(|| async { "hello" }))
        .layer(layer.clone())
        .layer(axum::middleware::from_fn(
            move |request: Request<Body>, next: axum::middleware::Next| {
                let login = login(request);
                async move { Ok::<_, StatusCode>(next.run(login.await?).await) }
            },
        ))
        .layer(layer);
    assert_eq!(statuses(&app, "/x", 1).await, [401]);
    let known = || {
        let request = Request::get("/x").header("login", "ann");
        app.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    let passed = || sentinel.node("/x").unwrap().totals().pass();
    // One start in 1,024 picks a call, at nanoseconds that no clock by hand has otherwise.
    clock.advance(Duration::from_nanos(777));
    for calls in 2..8 {
        assert_eq!(known().await.unwrap().status(), StatusCode::OK);
        assert_eq!(passed(), calls);
        clock.advance(Duration::from_nanos(1));
    }
}

#[tokio::test]
async fn layers_of_two_names_or_two_engines_each_judge_a_call() {
    let sentinels =
        [1, 2].map(|_| Sentinel::new((FlowRule::per_hour("/x", 9), FlowRule::per_hour("all", 9))));
    let [one, other] = sentinels
        .each_ref()
        .map(|it| SentinelLayer::with(it.clone()));
    let app = Router::new()
        .route("/x", on_get(|| async { "hello" }))
        .layer(one.clone())
        .layer(other.clone())
        .layer(one.clone().named("all"))
        // The marks of two engines stand beside each other.
        .layer(other)
        .layer(one);
    assert_eq!(statuses(&app, "/x", 4).await, [200; 4]);
    for (sentinel, name, calls) in [(0, "/x", 4), (0, "all", 4), (1, "/x", 4)] {
        let totals = sentinels[sentinel].node(name).unwrap().totals();
        assert_eq!(totals.pass(), calls, "{sentinel} {name}");
    }
}
