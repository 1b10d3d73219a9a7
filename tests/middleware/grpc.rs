//! One limit over a tonic server, and how its calls are refused and judged.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::LayerExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::key::{Head, Header, PeerIp};
use tower_sentinel::middleware::rejection::{Grpc, Rejection, is_refusal};
use tower_sentinel::middleware::{Classify, Completion, Judgement, ResponseHead};
use tower_sentinel::read::NodeSnapshot;
use tower_sentinel::stat::Outcome;
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, MissingKey, Rules,
    Sentinel, SentinelLayer, SystemRule, Verdict,
};

use crate::support::{Server, assert_at_rest, engine, eventually, ms, ready};

const SAY: &str = "/test.Echo/Say";
const REPEAT: &str = "/test.Echo/Repeat";
const HANG: &str = "/test.Echo/Hang";

/// What to do: the code to end with, or to go on for ever.
#[derive(Clone, PartialEq, prost::Message)]
struct Order {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(bool, tag = "2")]
    is_endless: bool,
}

impl Order {
    fn end_with(code: Code) -> Self {
        Self {
            code: code.into(),
            is_endless: false,
        }
    }

    fn result(&self) -> Result<Order, Status> {
        match Code::from(self.code) {
            Code::Ok => Ok(self.clone()),
            code => Err(Status::new(code, "as ordered")),
        }
    }
}

// === the server ===

/// `Say` answers, or fails before there is any message. `Repeat` sends one
/// message and then ends, fails, or goes on for ever. `Hang` says nothing at all.
#[derive(Clone, Debug)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        async {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                SAY => grpc.unary(service_fn(say), request).await,
                REPEAT => grpc.server_streaming(service_fn(repeat), request).await,
                HANG => std::future::pending().await,
                path => Status::unimplemented(path).into_http(),
            })
        }
        .boxed()
    }
}

async fn say(request: tonic::Request<Order>) -> Result<tonic::Response<Order>, Status> {
    request.get_ref().result().map(tonic::Response::new)
}

type Repeated = BoxStream<'static, Result<Order, Status>>;

async fn repeat(request: tonic::Request<Order>) -> Result<tonic::Response<Repeated>, Status> {
    let order = request.into_inner();
    let first = stream::iter([Ok(order.clone())]);
    let end = order.result().err().map(Err);
    Ok(tonic::Response::new(if order.is_endless {
        first.chain(stream::pending()).boxed()
    } else {
        first.chain(stream::iter(end)).boxed()
    }))
}

async fn serve(layer: SentinelLayer) -> Server {
    Server::start(|listener| async {
        let incoming = TcpListenerStream::new(listener);
        let mut server = tonic::transport::Server::builder().layer(layer);
        let served = server.add_service(Echo).serve_with_incoming(incoming);
        served.await.unwrap();
    })
    .await
}

// === the client ===

async fn connect(server: &Server) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.addr));
    endpoint.unwrap().connect().await.unwrap()
}

async fn call_say(channel: &Channel, code: Code) -> Result<(), Status> {
    call_unary(channel, SAY, code).await
}

async fn call_unary(channel: &Channel, path: &'static str, code: Code) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let request = tonic::Request::new(Order::end_with(code));
    let path = PathAndQuery::from_static(path);
    let response = grpc.unary(request, path, ProstCodec::default()).await?;
    let _: Order = response.into_inner();
    Ok(())
}

async fn call_repeat(channel: &Channel, order: Order) -> Result<Streaming<Order>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let request = tonic::Request::new(order);
    let path = PathAndQuery::from_static(REPEAT);
    let response = grpc
        .server_streaming(request, path, ProstCodec::default())
        .await?;
    Ok(response.into_inner())
}

/// What comes of `bytes` where `Say` expects a message.
async fn say_raw(server: &Server, bytes: &'static [u8]) -> Response<Incoming> {
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}{SAY}", server.addr))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(bytes)))
        .unwrap();
    sender.send_request(request).await.unwrap()
}

fn endless() -> Order {
    Order {
        is_endless: true,
        ..Order::end_with(Code::Ok)
    }
}

/// Waits until nothing runs any more: a body is dropped by the server's task.
async fn at_rest(sentinel: &Sentinel, resource: &str) -> tower_sentinel::stat::Totals {
    let node = sentinel.node(resource).unwrap();
    eventually("all calls end", || node.concurrency() == 0).await;
    assert_at_rest(sentinel, resource)
}

// === limits ===

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_a_second_pass_over_twenty_connections() {
    let (sentinel, clock) = engine(FlowRule::per_second(SAY, 5));
    let server = serve(SentinelLayer::with(sentinel.clone())).await;
    let channels = join_all((0..20).map(|_| connect(&server))).await;
    for window in 1..=4 {
        // Half a window later nothing has left it yet.
        for expected in [5, 0] {
            let calls = channels.iter().map(|channel| call_say(channel, Code::Ok));
            let (passed, refused): (Vec<_>, Vec<_>) =
                join_all(calls).await.into_iter().partition(Result::is_ok);
            assert_eq!(passed.len(), expected, "window {window}");
            for result in refused {
                assert_eq!(result.unwrap_err().code(), Code::ResourceExhausted);
            }
            clock.advance(ms(500));
        }
    }
    let totals = at_rest(&sentinel, SAY).await;
    assert_eq!((totals.complete(), totals.block()), (4 * 5, 4 * (15 + 20)));
}

#[tokio::test]
async fn a_layer_that_judges_first_refuses_before_a_busy_server() {
    let rules = Rules::new()
        .with(IsolationRule::new(HANG, 2))
        .with(FlowRule::per_second(SAY, 0))
        .with(CircuitBreakerRule::error_ratio(REPEAT, 0.5));
    let (sentinel, _clock) = engine(rules);
    drop(sentinel.try_enter(Call::new(REPEAT)));
    sentinel.node(REPEAT).unwrap().breakers()[0].force_open();
    let layer = SentinelLayer::with(sentinel.clone()).judge_first();
    let server = Server::start(|listener| async {
        let incoming = TcpListenerStream::new(listener);
        let mut server = tonic::transport::Server::builder()
            .layer(layer)
            .layer(GlobalConcurrencyLimitLayer::new(1));
        let served = server.add_service(Echo).serve_with_incoming(incoming);
        served.await.unwrap();
    })
    .await;
    let channel = connect(&server).await;

    // One hangs in the server, and one waits for it.
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let channel = channel.clone();
        calls.spawn(async move { call_unary(&channel, HANG, Code::Ok).await });
    }
    for _ in 0..198 {
        let refused = calls.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }
    assert_eq!(sentinel.node(HANG).unwrap().concurrency(), 2);
    let refused = call_say(&channel, Code::Ok).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let order = Order::end_with(Code::Ok);
    let refused = call_repeat(&channel, order).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    calls.shutdown().await;
    assert_eq!(at_rest(&sentinel, HANG).await.cancelled(), 2);
}

/// Answers when two calls run at once; each counts.
#[derive(Clone, Debug)]
struct Pairs {
    both: Arc<Barrier>,
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl NamedService for Pairs {
    const NAME: &'static str = Echo::NAME;
}

impl Service<Request<Body>> for Pairs {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let own = self.clone();
        async move {
            let running = own.running.fetch_add(1, Ordering::SeqCst) + 1;
            own.most.fetch_max(running, Ordering::SeqCst);
            own.both.wait().await;
            own.running.fetch_sub(1, Ordering::SeqCst);
            Echo.call(request).await
        }
        .boxed()
    }
}

#[tokio::test]
async fn two_hundred_calls_that_may_wait_pass_two_at_a_time() {
    let rule = IsolationRule::new(SAY, 2).queue(Duration::from_secs(3_600));
    pass_two_at_a_time(rule.into()).await;
}

#[tokio::test]
async fn two_hundred_calls_of_a_value_that_may_wait_pass_two_at_a_time() {
    let rule = KeyedRule::concurrency(SAY, 2).queue(Duration::from_secs(3_600));
    pass_two_at_a_time(rule.into()).await;
}

/// Two hundred calls at once, of one client.
async fn pass_two_at_a_time(rule: Rules) {
    let (sentinel, _clock) = engine(rule);
    let layer = SentinelLayer::with(sentinel.clone()).param(Header::from_static("user-agent"));
    let pairs = Pairs {
        both: Arc::new(Barrier::new(2)),
        running: Arc::default(),
        most: Arc::default(),
    };
    let service = pairs.clone();
    let server = Server::start(|listener| async {
        let incoming = TcpListenerStream::new(listener);
        let mut server = tonic::transport::Server::builder().layer(layer);
        let served = server.add_service(service).serve_with_incoming(incoming);
        served.await.unwrap();
    })
    .await;
    let channel = connect(&server).await;
    for result in join_all((0..200).map(|_| call_say(&channel, Code::Ok))).await {
        result.unwrap();
    }
    assert_eq!(pairs.most.load(Ordering::SeqCst), 2);
    let totals = at_rest(&sentinel, SAY).await;
    assert_eq!((totals.complete(), totals.block()), (200, 0));
}

async fn one_call_of_say_passes_and_any_of_repeat(server: &Server) {
    let channel = connect(server).await;
    call_say(&channel, Code::Ok).await.unwrap();
    let refused = call_say(&channel, Code::Ok).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let order = Order::end_with(Code::Ok);
    call_repeat(&channel, order).await.unwrap();
}

#[tokio::test]
async fn a_rule_for_a_method_holds_in_an_axum_router_too() {
    let (sentinel, _clock) = engine(FlowRule::per_second(SAY, 1));
    let http = axum::Router::new().route("/", axum::routing::get(|| async {}));
    let grpc = tonic::service::Routes::new(Echo).into_axum_router();
    let server = Server::axum(
        http.merge(grpc)
            .layer(SentinelLayer::with(sentinel.clone())),
    )
    .await;
    one_call_of_say_passes_and_any_of_repeat(&server).await;
    // A method without a rule is one of the route that axum has matched.
    assert!(sentinel.node(REPEAT).is_none());
    assert!(sentinel.node("/test.Echo/{*rest}").is_some());
}

/// tonic's own router is one of axum.
#[tokio::test]
async fn around_one_service_of_a_server_methods_without_a_rule_are_one_resource() {
    let rules = Rules::new()
        .with(FlowRule::per_second(SAY, 1))
        .with(IsolationRule::new("*", 9));
    let (sentinel, _clock) = engine(rules);
    let echo = SentinelLayer::with(sentinel.clone()).named_layer(Echo);
    let server = Server::start(|listener| async {
        let incoming = TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder().add_service(echo);
        server.serve_with_incoming(incoming).await.unwrap();
    })
    .await;
    one_call_of_say_passes_and_any_of_repeat(&server).await;
    let snapshot = sentinel.snapshot();
    let names: Vec<_> = snapshot
        .nodes()
        .iter()
        .map(NodeSnapshot::resource)
        .collect();
    assert_eq!(names, [SAY, "/test.Echo/{*rest}"]);
}

#[tokio::test]
async fn a_stream_holds_its_slot_until_it_ends_or_is_dropped() {
    let (sentinel, _clock) = engine(IsolationRule::new(REPEAT, 1));
    let server = serve(SentinelLayer::with(sentinel.clone())).await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let node = || sentinel.node(REPEAT).unwrap();

    let mut running = call_repeat(&one, endless()).await.unwrap();
    assert!(running.message().await.unwrap().is_some());
    let refused = call_repeat(&other, endless()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!((node().concurrency(), node().slots_in_use()), (1, 1));
    drop(running);
    eventually("the slot is free", || node().slots_in_use() == 0).await;

    let mut running = call_repeat(&other, Order::end_with(Code::Ok))
        .await
        .unwrap();
    assert!(running.message().await.unwrap().is_some());
    assert!(running.message().await.unwrap().is_none());
    eventually("the slot is free", || node().slots_in_use() == 0).await;

    let totals = assert_at_rest(&sentinel, REPEAT);
    assert_eq!((totals.complete(), totals.cancelled()), (2, 0));
    assert_eq!((totals.error(), totals.block()), (0, 1));
}

#[tokio::test]
async fn a_tonic_server_tells_the_peers_of_its_connections() {
    let rule = FlowRule::per_second(SAY, 1)
        .by_origin()
        .missing(MissingKey::Refuse);
    let (sentinel, _clock) = engine(rule);
    let server = serve(SentinelLayer::with(sentinel.clone()).origin(PeerIp)).await;
    let channel = connect(&server).await;
    call_say(&channel, Code::Ok).await.unwrap();
    let refused = call_say(&channel, Code::Ok).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let callers = sentinel.node(SAY).unwrap().keyed_rules();
    let left = |address: [u8; 4]| callers[0].left(IpAddr::from(address));
    assert_eq!((left([127, 0, 0, 1]), left([127, 0, 0, 2])), (0, 1));
}

// === refusals ===

#[tokio::test]
async fn a_refusal_tells_the_client_when_to_retry_or_not_to() {
    let rules = Rules::new()
        .with(FlowRule::per_second(SAY, 1))
        .with(FlowRule::per_second(REPEAT, 0));
    let (sentinel, clock) = engine(rules);
    let server = serve(SentinelLayer::with(sentinel)).await;
    let channel = connect(&server).await;
    call_say(&channel, Code::Ok).await.unwrap();
    clock.advance(ms(300));

    let pushback = |status: &Status| {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "refused by flow");
        let value = status.metadata().get("grpc-retry-pushback-ms").unwrap();
        value.to_str().unwrap().to_owned()
    };
    let delay = |status: &Status| status.get_details_retry_info()?.retry_delay;
    let refused = call_say(&channel, Code::Ok).await.unwrap_err();
    assert_eq!(pushback(&refused), "700");
    assert_eq!(delay(&refused), Some(ms(700)));
    let refused = call_repeat(&channel, endless()).await.unwrap_err();
    assert_eq!(pushback(&refused), "-1");
    assert_eq!(delay(&refused), None);
    assert!(refused.details().is_empty());
}

/// The details are another form of the same status.
#[tokio::test]
async fn the_details_of_a_refusal_are_a_status_with_the_time_to_retry() {
    let never = FlowRule::per_second("never", 0);
    let later = FlowRule::per("later", 0.5, ms(1_000)).throttle(ms(0));
    let rules = Rules::new()
        .with(never)
        .with(later)
        .with(IsolationRule::new("busy", 1))
        .with(CircuitBreakerRule::consecutive_errors("down", 1).open_for(ms(1_500)))
        .with(SystemRule::new().concurrency(9));
    let (sentinel, _clock) = engine(rules);
    let mut running = Vec::new();
    let mut refusal = |name: &'static str| loop {
        match sentinel.try_enter(Call::new(name)) {
            Verdict::Block(blocked) => return blocked,
            Verdict::Pass(mut entry) if name == "down" => entry.fail(),
            Verdict::Pass(entry) => running.push(entry),
            verdict => panic!("{name}: {verdict:?}"),
        }
    };
    let cases = [
        ("never", None),
        ("later", Some(ms(2_000))),
        ("busy", Some(ms(1_000))),
        ("down", Some(ms(1_500))),
    ];
    for (name, expected) in cases {
        let blocked = refusal(name);
        let request = Request::post("/").body(()).unwrap();
        let response = Grpc::new().reject(Head::of(&request), &blocked);
        let answered = Status::from_header_map(response.headers()).unwrap();
        for status in [answered, Status::from(blocked)] {
            let info = status.get_details_retry_info();
            assert_eq!(
                info.map(|info| info.retry_delay),
                expected.map(Some),
                "{name}"
            );
            if expected.is_some() {
                let details = tonic_types::pb::Status::decode(status.details()).unwrap();
                assert_eq!(details.code, i32::from(status.code()), "{name}");
                assert_eq!(details.message, status.message(), "{name}");
            }
        }
        let field = response.headers().get("grpc-status-details-bin");
        assert!(field.is_none_or(|field| !field.as_bytes().contains(&b'=')));
    }
}

#[tokio::test]
async fn only_the_refusal_of_an_outbound_call_names_its_rule() {
    let rule = || FlowRule::per_second(SAY, 0).id("a 100 % secret");
    let (served, _clock) = engine(rule());
    let server = serve(SentinelLayer::with(served)).await;
    let channel = connect(&server).await;
    let refused = call_say(&channel, Code::Ok).await.unwrap_err();
    assert_eq!(refused.message(), "refused by flow");
    assert!(!format!("{refused:?}").contains("secret"));

    let (sent, _clock) = engine(rule());
    let client = SentinelLayer::with(sent.clone()).outbound().layer(channel);
    let mut grpc = tonic::client::Grpc::new(client);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(SAY);
    let codec = ProstCodec::<Order, Order>::default();
    let request = tonic::Request::new(Order::default());
    let refused = grpc.unary(request, path, codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let expected = "call to \"/test.Echo/Say\" refused by flow rule \"a 100 % secret\"";
    assert_eq!(refused.message(), expected);

    // What a method returns goes to its client, whatever it has asked for.
    let Verdict::Block(blocked) = sent.try_enter(Call::new(SAY).outbound()) else {
        panic!("nobody passes");
    };
    let returned = Status::from(blocked);
    assert_eq!(returned.message(), "refused by flow");
    assert!(!String::from_utf8_lossy(returned.details()).contains("secret"));
}

#[tokio::test]
async fn a_method_that_asks_itself_refuses_as_the_layer_does() {
    let rules = || {
        let fast = FlowRule::per(SAY, 0, ms(1_000));
        let never = FlowRule::per_second(REPEAT, 0);
        let unknown = FlowRule::per_second("/", 1).by_origin();
        Rules::new()
            .with(fast)
            .with(never)
            .with(unknown.missing(MissingKey::Refuse))
    };
    let (layered, _clock) = engine(rules());
    let (asked, _clock) = engine(rules());
    let service = SentinelLayer::with(layered).layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    for method in [SAY, REPEAT, "/"] {
        let request = Request::post(method).header("content-type", "application/grpc");
        let request = request.body(Body::empty()).unwrap();
        let Ok(expected) = service.clone().oneshot(request).await;
        let blocked = asked.enter(Call::new(method)).await.unwrap_err();
        let refused = Status::from(blocked.clone());
        assert_ne!(refused.code(), Code::Ok);
        let cause = refused.source().and_then(|cause| cause.downcast_ref());
        assert_eq!(cause, Some(&blocked));
        // What a client reads of both.
        let seen = |headers: &HeaderMap| {
            let status = Status::from_header_map(headers).unwrap();
            let pushback = headers["grpc-retry-pushback-ms"].clone();
            let details = headers.get("grpc-status-details-bin").cloned();
            (
                status.code(),
                status.message().to_owned(),
                pushback,
                details,
            )
        };
        let refused = refused.into_http::<Body>();
        assert_eq!(seen(refused.headers()), seen(expected.headers()));
    }
}

#[tokio::test]
async fn a_refusal_is_one_frame_of_headers_on_the_wire() {
    let (sentinel, _clock) = engine(FlowRule::per_second(SAY, 0));
    let server = serve(SentinelLayer::with(sentinel)).await;
    let response = say_raw(&server, b"").await;
    assert_eq!(response.status(), 200);
    let field = |name| response.headers()[name].to_str().unwrap();
    assert_eq!(field("content-type"), "application/grpc");
    assert_eq!(field("grpc-status"), "8");
    // Percent-encoded, in which a space stands for itself.
    assert_eq!(field("grpc-message"), "refused by flow");
    assert_eq!(field("grpc-retry-pushback-ms"), "-1");
    assert!(!response.headers().contains_key("retry-after"));
    assert!(
        response.body().is_end_stream(),
        "nothing follows the headers"
    );
    let body = response.into_body().collect().await.unwrap();
    assert!(body.trailers().is_none());
    assert!(body.to_bytes().is_empty());
}

// === verdicts ===

#[tokio::test]
async fn a_status_counts_as_an_error_by_its_code_wherever_it_is() {
    let codes = [
        (Code::Ok, 0),
        (Code::NotFound, 0),
        (Code::ResourceExhausted, 0),
        (Code::Internal, 1),
        (Code::Unavailable, 1),
        (Code::DataLoss, 1),
    ];
    for (code, errors) in codes {
        let (sentinel, _clock) = engine(Rules::new());
        let server = serve(SentinelLayer::with(sentinel.clone())).await;
        let channel = connect(&server).await;

        // With the headers: the call fails before there is any message.
        let result = call_say(&channel, code).await;
        assert_eq!(result.err().map_or(Code::Ok, |status| status.code()), code);
        let totals = at_rest(&sentinel, SAY).await;
        assert_eq!(totals.complete(), 1, "{code:?}");
        assert_eq!(totals.error(), errors, "{code:?} with the headers");

        // In the trailers, after a message.
        let mut messages = call_repeat(&channel, Order::end_with(code)).await.unwrap();
        assert!(messages.message().await.unwrap().is_some());
        let end = messages.message().await;
        assert_eq!(end.err().map_or(Code::Ok, |status| status.code()), code);
        let totals = at_rest(&sentinel, REPEAT).await;
        assert_eq!(totals.complete(), 1, "{code:?}");
        assert_eq!(totals.error(), errors, "{code:?} in the trailers");
    }
}

#[tokio::test]
async fn what_tonic_cannot_read_of_a_client_counts_as_a_failure_of_the_method() {
    let garbage = b"\0\0\0\0\x03\xff\xff\xff";
    let half = &garbage[..6];
    let rule = CircuitBreakerRule::consecutive_errors(SAY, 3);
    let (sentinel, _clock) = engine(rule);
    let server = serve(SentinelLayer::with(sentinel.clone())).await;
    for bytes in [garbage, half, b""] {
        let response = say_raw(&server, bytes).await;
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::Internal, "{bytes:?}");
    }
    let refused = call_say(&connect(&server).await, Code::Ok)
        .await
        .unwrap_err();
    assert_eq!(refused.message(), "refused by circuit-breaker");
    let totals = at_rest(&sentinel, SAY).await;
    assert_eq!((totals.complete(), totals.error()), (3, 3));
}

/// What becomes of a call that hangs, by a channel with a layer around it.
async fn call_hang(sentinel: &Sentinel, channel: &Channel) -> Code {
    call_hang_until(sentinel, channel, None).await
}

/// The same, where the request itself says when it is too late.
async fn call_hang_until(
    sentinel: &Sentinel,
    channel: &Channel,
    deadline: Option<Duration>,
) -> Code {
    let layer = SentinelLayer::with(sentinel.clone()).outbound();
    let mut grpc = tonic::client::Grpc::new(layer.layer(channel.clone()));
    grpc.ready().await.unwrap();
    let mut request = tonic::Request::new(Order::default());
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    let path = PathAndQuery::from_static(HANG);
    let codec = ProstCodec::<Order, Order>::default();
    grpc.unary(request, path, codec).await.unwrap_err().code()
}

/// tonic's own timeout stands outside of the layers of a server, and inside of one
/// around a client's channel.
#[tokio::test]
async fn a_deadline_is_a_failure_to_who_calls_by_its_own_and_to_nobody_else() {
    let breaker = || CircuitBreakerRule::error_count(HANG, 3).min_calls(3);
    let now = Duration::from_nanos(1);
    let (served, _clock) = engine(breaker());
    let layer = SentinelLayer::with(served.clone());
    let server = Server::start(move |listener| async move {
        let server = tonic::transport::Server::builder().timeout(now);
        let incoming = TcpListenerStream::new(listener);
        let served = server.layer(layer).add_service(Echo);
        served.serve_with_incoming(incoming).await.unwrap();
    })
    .await;
    let channel = connect(&server).await;
    let (called, _clock) = engine(breaker());
    for _ in 0..4 {
        assert_eq!(call_hang(&called, &channel).await, Code::Cancelled);
    }
    let totals = at_rest(&served, HANG).await;
    assert_eq!((totals.cancelled(), totals.error()), (4, 0));
    // The answer of that server is a status which is no failure.
    let totals = called.outbound_node(HANG).unwrap().totals();
    assert_eq!((totals.complete(), totals.error()), (4, 0));

    let server = serve(SentinelLayer::new(Rules::new())).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.addr)).unwrap();
    let channel = endpoint.timeout(now).connect().await.unwrap();
    let (called, _clock) = engine(breaker());
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(call_hang(&called, &channel).await);
    }
    let late = Code::Cancelled;
    assert_eq!(codes, [late, late, late, Code::Unavailable]);

    // The channel applies the deadline of a request just as its own. This server does not.
    let echo = tonic::service::Routes::new(Echo).into_axum_router();
    let server = Server::axum(echo).await;
    let channel = connect(&server).await;
    let (called, _clock) = engine(breaker());
    codes.clear();
    for _ in 0..4 {
        codes.push(call_hang_until(&called, &channel, Some(now)).await);
    }
    assert_eq!(codes, [late, late, late, Code::Unavailable]);
}

#[tokio::test]
async fn a_breaker_learns_of_a_stream_when_it_ends() {
    let rule = CircuitBreakerRule::error_ratio(REPEAT, 0.5).min_calls(3);
    for (completion, is_open) in [(Completion::Body, true), (Completion::Head, false)] {
        let (sentinel, _clock) = engine(rule.clone());
        let layer = SentinelLayer::with(sentinel.clone()).completion(completion);
        let server = serve(layer).await;
        let channel = connect(&server).await;
        let mut streams = Vec::new();
        for _ in 0..10 {
            streams.push(call_repeat(&channel, endless()).await.unwrap());
        }
        for _ in 0..3 {
            let order = Order::end_with(Code::Internal);
            let mut messages = call_repeat(&channel, order).await.unwrap();
            while messages
                .message()
                .await
                .is_ok_and(|message| message.is_some())
            {}
        }
        let node = sentinel.node(REPEAT).unwrap();
        let ended = 13 - streams.len() as u32 * u32::from(completion == Completion::Body);
        eventually("the failures end", || {
            node.totals().complete() == u64::from(ended)
        })
        .await;
        let refused = call_repeat(&channel, Order::end_with(Code::Ok))
            .await
            .is_err();
        assert_eq!(refused, is_open, "{completion:?}");
    }
}

#[test]
fn who_does_not_see_trailers_takes_messages_for_a_success() {
    const WEB: &str = "application/grpc-web+proto";
    let cases = [
        ("application/grpc", Completion::Body),
        ("application/grpc", Completion::Head),
        (WEB, Completion::Body),
        (WEB, Completion::Head),
    ];
    for (content_type, completion) in cases {
        let breaker = CircuitBreakerRule::error_ratio(SAY, 0.5).min_calls(5);
        let (sentinel, _clock) = engine(breaker);
        let layer = SentinelLayer::with(sentinel.clone()).completion(completion);
        let answer = move |request: Request<&'static str>| async move {
            let mut response = Response::builder().header("content-type", content_type);
            let mut trailers = None;
            match request.into_body() {
                // gRPC-Web tells it in the body.
                "0" if content_type == WEB => {}
                "0" => {
                    let status = ("grpc-status".parse().unwrap(), "0".parse().unwrap());
                    trailers = Some(Ok(HeaderMap::from_iter([status])));
                }
                code => response = response.header("grpc-status", code),
            }
            let body = Full::new(Bytes::from("messages")).with_trailers(async { trailers });
            Ok::<_, Infallible>(response.body(body).unwrap())
        };
        let mut service = layer.layer(service_fn(answer));
        let mut is_refused = |code| {
            let response = ready(service.call(Request::post(SAY).body(code).unwrap())).unwrap();
            let is_refused = is_refusal(&response);
            ready(response.into_body().collect()).unwrap();
            is_refused
        };
        // Nine good calls keep it closed until as many have failed.
        for code in [["0"; 9], ["13"; 9]].concat() {
            assert!(!is_refused(code), "{content_type} {completion:?}");
        }
        assert!(is_refused("0"), "{content_type} {completion:?}");
        let totals = assert_at_rest(&sentinel, SAY);
        assert_eq!((totals.complete(), totals.error()), (18, 9));
    }
}

/// Media types are the same in upper and lower case.
#[test]
fn a_call_is_grpcs_however_its_content_type_is_written() {
    let types = [
        "application/grpc",
        "Application/gRPC+proto",
        "APPLICATION/GRPC; charset=utf-8",
        "Application/Grpc-Web+Proto",
    ];
    for content_type in types {
        let (sentinel, _clock) = engine(FlowRule::per_second(SAY, 1));
        let answer = service_fn(move |_: Request<()>| async move {
            let response = Response::builder().header("content-type", content_type);
            let response = response.header("grpc-status", "13").body(Body::empty());
            Ok::<_, Infallible>(response.unwrap())
        });
        let service = SentinelLayer::with(sentinel.clone()).layer(answer);
        let status = |expected| {
            let request = Request::post(SAY).header("content-type", content_type);
            let request = request.body(()).unwrap();
            let response = ready(service.clone().oneshot(request)).unwrap();
            assert_eq!(response.status(), 200, "{content_type}");
            assert_eq!(
                response.headers()["grpc-status"],
                expected,
                "{content_type}"
            );
            assert_eq!(response.headers()["content-type"], content_type);
        };
        status("13");
        status("8"); // refused
        let totals = assert_at_rest(&sentinel, SAY);
        assert_eq!(
            (totals.complete(), totals.error()),
            (1, 1),
            "{content_type}"
        );
    }
}

/// Trailers that do not come are a failure.
struct WantsTrailers;

impl Classify for WantsTrailers {
    fn head(&self, _: ResponseHead<'_>) -> Judgement {
        Judgement::AtTrailers
    }

    fn trailers(&self, trailers: Option<&HeaderMap>) -> Outcome {
        match trailers {
            Some(_) => Outcome::Success,
            None => Outcome::Failure,
        }
    }
}

#[test]
fn a_body_that_is_at_its_end_has_no_trailers_to_come() {
    for completion in [Completion::Body, Completion::Head] {
        let (sentinel, _clock) = engine(Rules::new());
        let layer = SentinelLayer::with(sentinel.clone())
            .completion(completion)
            .classify(WantsTrailers);
        let answer = service_fn(|_: Request<()>| async {
            let response = Response::builder().header("content-type", "application/grpc");
            Ok::<_, Infallible>(response.body(Body::empty()).unwrap())
        });
        let request = Request::post(SAY).body(()).unwrap();
        ready(layer.layer(answer).oneshot(request)).unwrap();
        let totals = assert_at_rest(&sentinel, SAY);
        assert_eq!(
            (totals.complete(), totals.error()),
            (1, 1),
            "{completion:?}"
        );
    }
}

#[test]
fn a_refusal_that_a_method_returns_is_no_failure_of_the_service() {
    let (inside, _clock) = engine(SystemRule::new().qps(0));
    let (around, _clock) = engine(CircuitBreakerRule::error_count(SAY, 1).min_calls(1));
    let method = service_fn(move |_: Request<()>| {
        let Verdict::Block(blocked) = inside.try_enter(Call::new("say")) else {
            panic!("nobody passes");
        };
        let response = Status::from(blocked).into_http::<Body>();
        async { Ok::<_, Infallible>(response) }
    });
    let service = SentinelLayer::with(around.clone()).layer(method);
    for _ in 0..3 {
        let request = Request::post(SAY).body(()).unwrap();
        let response = ready(service.clone().oneshot(request)).unwrap();
        // The breaker would refuse the next one if it took this for a failure.
        assert_eq!(response.headers()["grpc-status"], "14");
    }
    let totals = assert_at_rest(&around, SAY);
    assert_eq!((totals.complete(), totals.error()), (3, 0));
}

/// Of a status in the trailers only its code is left.
#[test]
fn a_refusal_that_a_stream_ends_with_counts_by_its_code() {
    for (kind, errors) in [(BlockKind::Flow, 0), (BlockKind::System, 1)] {
        let rules = match kind {
            BlockKind::Flow => Rules::from(FlowRule::per_second("say", 0)),
            _ => SystemRule::new().qps(0).into(),
        };
        let (inside, _clock) = engine(rules);
        let (around, _clock) = engine(Rules::new());
        let method = service_fn(move |_: tonic::Request<Order>| {
            let Verdict::Block(blocked) = inside.try_enter(Call::new("say")) else {
                panic!("nobody passes");
            };
            let answer = stream::iter([Err::<Order, _>(Status::from(blocked))]);
            async { Ok::<_, Status>(tonic::Response::new(answer)) }
        });
        let service = service_fn(move |request: Request<Full<Bytes>>| {
            let method = method.clone();
            async move {
                let codec = ProstCodec::<Order, Order>::default();
                let mut grpc = tonic::server::Grpc::new(codec);
                Ok::<_, Infallible>(grpc.server_streaming(method, request).await)
            }
        });
        let service = SentinelLayer::with(around.clone()).layer(service);
        // A message without any field.
        let message = Full::new(Bytes::from_static(b"\0\0\0\0\0"));
        let request = Request::post(REPEAT).header("content-type", "application/grpc");
        let response = ready(service.oneshot(request.body(message).unwrap())).unwrap();
        assert!(!response.headers().contains_key("grpc-status"));
        let body = ready(response.into_body().collect()).unwrap();
        assert!(body.trailers().unwrap().contains_key("grpc-status"));
        let totals = assert_at_rest(&around, REPEAT);
        assert_eq!((totals.complete(), totals.error()), (1, errors), "{kind}");
    }
}
