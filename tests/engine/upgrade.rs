//! Connections that become something else: what flows in them, and when the call
//! that made them ends.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderValue, Request, Response, StatusCode, Uri};
use axum::routing::any;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_sentinel::key::Authority;
use tower_sentinel::middleware::{AsError, SentinelService};
use tower_sentinel::read::NodeView;
use tower_sentinel::{CircuitBreakerRule, FlowRule, IsolationRule, Rules, Sentinel, SentinelLayer};

use crate::support::{Server, engine, ms};

/// Sends back what comes, one word after the other.
async fn echo(upgrade: OnUpgrade) {
    let mut io = TokioIo::new(upgrade.await.unwrap());
    let mut word = [0; 5];
    while io.read_exact(&mut word).await.is_ok() {
        io.write_all(&word).await.unwrap();
    }
}

async fn assert_echoes(io: &mut TokioIo<Upgraded>) {
    let mut word = [0; 5];
    io.write_all(b"hello").await.unwrap();
    io.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
}

/// Says that the connection becomes an echo.
fn switched() -> Response<Body> {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "echo")
        .body(Body::empty())
        .unwrap()
}

/// As many calls have been answered, and none runs.
fn assert_answered(node: Option<NodeView>, count: u64) {
    let node = node.expect("it has been called");
    assert_eq!((node.totals().complete(), node.concurrency()), (count, 0));
}

// === upgrades ===

type Upstream = (Uri, SentinelService<Client<HttpConnector, Body>, AsError>);

/// Passes an upgrade on, and then all bytes.
async fn pass_on(
    State((uri, client)): State<Upstream>,
    mut request: Request<Body>,
) -> Response<Body> {
    let ours = hyper::upgrade::on(&mut request);
    *request.uri_mut() = uri;
    let mut response = client.oneshot(request).await.unwrap();
    let theirs = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let ends = (ours.await.unwrap(), theirs.await.unwrap());
        let (mut ours, mut theirs) = (TokioIo::new(ends.0), TokioIo::new(ends.1));
        let _ = copy_bidirectional(&mut ours, &mut theirs).await;
    });
    response.map(Body::new)
}

#[tokio::test]
async fn upgrades_go_through_a_proxy_with_layers_on_both_sides_and_end_with_their_heads() {
    let rules = || Rules::new().with(IsolationRule::new("/echo", 1));
    let (served, _) = engine(rules().with(FlowRule::per_second("/echo", 2)));
    let on_echo = any(async |mut request: Request<Body>| {
        tokio::spawn(echo(hyper::upgrade::on(&mut request)));
        switched()
    });
    let app = Router::new().route("/echo", on_echo);
    let server = Server::axum(app.layer(SentinelLayer::with(served.clone()))).await;

    let slow = CircuitBreakerRule::slow_ratio("127.0.0.1", ms(1), 0.5).min_calls(1);
    let ((came, _), (went, _)) = (engine(rules()), engine(slow));
    let client = SentinelLayer::with(went.clone())
        .resource(Authority)
        .outbound()
        .refusals_as_errors()
        .layer(Client::builder(TokioExecutor::new()).build_http());
    let uri = format!("http://{}/echo", server.addr).parse().unwrap();
    let app = Router::new()
        .route("/echo", any(pass_on))
        .with_state((uri, client));
    let proxy = Server::axum(app.layer(SentinelLayer::with(came.clone()))).await;

    let mut open = Vec::new();
    for expected in [101, 101, 429] {
        let stream = TcpStream::connect(proxy.addr).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = crate::support::get("/echo");
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("echo"));
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected);
        if expected == 101 {
            open.push(TokioIo::new(hyper::upgrade::on(response).await.unwrap()));
        }
    }
    for io in &mut open {
        assert_echoes(io).await;
    }
    // All are open, and no call runs.
    assert_answered(came.node("/echo"), 3);
    assert_answered(went.outbound_node("127.0.0.1"), 3);
    assert_answered(served.node("/echo"), 2);
}

// === tunnels ===

async fn tunnel(mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    tokio::spawn(echo(hyper::upgrade::on(&mut request)));
    Ok(Response::new(Body::empty()))
}

/// A server of tunnels over HTTP/1 and HTTP/2.
async fn tunnels(sentinel: &Sentinel) -> Server {
    let service = ServiceBuilder::new()
        .layer(SentinelLayer::with(sentinel.clone()).resource(Authority))
        .service(service_fn(tunnel));
    Server::start(|listener: TcpListener| async move {
        while let Ok((io, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let server = Builder::new(TokioExecutor::new());
                let _ = server
                    .serve_connection_with_upgrades(TokioIo::new(io), service)
                    .await;
            });
        }
    })
    .await
}

#[tokio::test]
async fn tunnels_are_named_by_their_targets_and_end_with_their_heads() {
    let target = "target.example";
    let rules = Rules::new()
        .with(IsolationRule::new(target, 1))
        .with(FlowRule::per_second(target, 2));
    let (sentinel, _) = engine(rules);
    let server = tunnels(&sentinel).await;

    let mut open = Vec::new();
    for (is_http2, expected) in [(false, 200), (true, 200), (false, 429), (true, 429)] {
        let io = TokioIo::new(TcpStream::connect(server.addr).await.unwrap());
        let request = Request::connect("target.example:443")
            .body(Body::empty())
            .unwrap();
        let response = if is_http2 {
            let handshake = http2::handshake(TokioExecutor::new(), io).await;
            let (mut sender, connection) = handshake.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection.with_upgrades());
            sender.send_request(request).await.unwrap()
        };
        assert_eq!(response.status(), expected, "HTTP/2: {is_http2}");
        if expected == 200 {
            open.push(TokioIo::new(hyper::upgrade::on(response).await.unwrap()));
        }
    }
    for io in &mut open {
        assert_echoes(io).await;
    }
    assert_answered(sentinel.node(target), 2);
}
