//! One limit over a whole axum server: over routes, connections, clones and
//! threads; and the wire, which the layer leaves alone.

use std::convert::Infallible;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use axum::body::Body;
use axum::extract::MatchedPath;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::routing::{MethodRouter, get as on_get, post};
use axum::{Extension, Router, middleware};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt, stream};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_sentinel::key::{Header, ResourceName, from_fn};
use tower_sentinel::{
    FlowRule, IsolationRule, Key, KeyedRule, ManualClock, Rules, Sentinel, SentinelLayer,
};

use crate::support::{Server, assert_at_rest, engine, eventually, fetch, get, ms, ready, send};

fn hello() -> MethodRouter {
    on_get(|| async { "hello" })
}

// === exact figures ===

/// Twenty connections and twenty clones of the router ask at once, window after
/// window, over both routes: five pass.
async fn assert_five_pass_in_each_window(app: Router, clock: ManualClock, sentinel: Sentinel) {
    let server = Server::axum(app.clone()).await;
    let mut connections = join_all((0..20).map(|_| server.connect())).await;
    for window in 1..=4 {
        // Half a window later nothing has left it yet.
        for expected in [5, 0] {
            let over_wire = connections.iter_mut().zip(["/a", "/b"].into_iter().cycle());
            let over_wire = over_wire
                .map(|(connection, path)| async { fetch(connection, get(path)).await.status() });
            let clones = ["/a", "/b"].into_iter().cycle().take(20).map(|path| {
                let app = app.clone();
                async { app.oneshot(get(path)).await.unwrap().status() }
            });
            let clones = join_all(clones.map(tokio::spawn));
            let (over_wire, clones) = tokio::join!(join_all(over_wire), clones);

            let clones = clones.into_iter().map(Result::unwrap);
            let (passed, refused): (Vec<_>, Vec<_>) = over_wire
                .into_iter()
                .chain(clones)
                .partition(|status| *status == StatusCode::OK);
            assert_eq!(passed.len(), expected, "window {window}");
            assert!(refused.iter().all(|s| *s == StatusCode::TOO_MANY_REQUESTS));
            clock.advance(ms(500));
        }
    }
    // The last bodies are dropped by the server's tasks.
    let node = sentinel.node("shared").unwrap();
    eventually("all calls end", || node.concurrency() == 0).await;
    let totals = assert_at_rest(&sentinel, "shared");
    assert_eq!((totals.complete(), totals.block()), (4 * 5, 4 * (35 + 40)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_a_second_pass_where_an_extension_names_both_routes() {
    let (sentinel, clock) = engine(FlowRule::per_second("shared", 5));
    let app = Router::new()
        .route("/a", hello())
        .route("/b", hello())
        .layer(SentinelLayer::with(sentinel.clone()))
        .layer(Extension(ResourceName::new("shared")));
    assert_five_pass_in_each_window(app, clock, sentinel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_a_second_pass_where_an_extractor_names_both_routes() {
    let (sentinel, clock) = engine(FlowRule::per_second("shared", 5));
    let layer =
        SentinelLayer::with(sentinel.clone()).resource(from_fn(|_| Some(Key::Str("shared"))));
    let app = Router::new()
        .route("/a", hello())
        .route("/b", hello())
        .layer(layer);
    assert_five_pass_in_each_window(app, clock, sentinel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_a_second_pass_where_the_layer_has_one_name() {
    let (sentinel, clock) = engine(FlowRule::per_second("shared", 5));
    let app = Router::new()
        .route("/a", hello())
        .route("/b", hello())
        .layer(SentinelLayer::with(sentinel.clone()).named("shared"));
    assert_five_pass_in_each_window(app, clock, sentinel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_a_second_pass_where_each_route_has_a_layer_over_the_one_engine() {
    let (sentinel, clock) = engine(FlowRule::per_second("shared", 5));
    let layer = || SentinelLayer::with(sentinel.clone()).named("shared");
    let app = Router::new()
        .route("/a", hello().layer(layer()))
        .route("/b", hello().layer(layer()));
    assert_five_pass_in_each_window(app, clock, sentinel.clone()).await;
}

#[test]
fn a_thousand_clones_on_eight_threads_get_exactly_the_limit() {
    const THREADS: usize = 8;
    const WINDOWS: u32 = 5;
    let (sentinel, clock) = engine(FlowRule::per_second("/x", 100));
    let app = Router::new()
        .route("/x", hello())
        .layer(SentinelLayer::with(sentinel.clone()));
    let passed = AtomicU32::new(0);
    let barrier = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let clones = vec![app.clone(); 1_000 / THREADS];
                for _ in 0..WINDOWS {
                    barrier.wait();
                    for clone in clones.clone() {
                        let response = ready(clone.oneshot(get("/x"))).unwrap();
                        let has_passed = response.status() == StatusCode::OK;
                        passed.fetch_add(u32::from(has_passed), Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            });
        }
        for window in 1..=WINDOWS {
            barrier.wait();
            barrier.wait();
            // The threads are at the next barrier, so nobody counts just now.
            assert_eq!(passed.load(Ordering::Relaxed), 100 * window);
            clock.advance(ms(1_000));
        }
    });
    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!((totals.complete(), totals.block()), (500, 4_500));
}

#[test]
fn all_services_of_a_layer_share_one_limit() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 5));
    let layer = SentinelLayer::with(sentinel);
    let upstream =
        service_fn(|_| async { Ok::<_, Infallible>(axum::http::Response::new(Body::empty())) });
    let passed = (0..50)
        .map(|_| ready(layer.clone().layer(upstream).oneshot(get("/x"))).unwrap())
        .filter(|response| response.status() == StatusCode::OK)
        .count();
    assert_eq!(passed, 5);
}

#[test]
fn made_up_paths_take_no_place_of_a_matched_route() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("*", 2))
        .max_resources(3)
        .clock(clock.clone())
        .build();
    let app = Router::new()
        .route("/a/{id}", hello())
        .route("/b", hello())
        .layer(SentinelLayer::with(sentinel.clone()));
    let status = |path: &str| ready(app.clone().oneshot(get(path))).unwrap().status();
    let not_found = (0..20).filter(|number| status(&format!("/{number}")) == StatusCode::NOT_FOUND);
    assert_eq!(
        not_found.count(),
        5,
        "three have a place, the others share one"
    );
    for path in ["/a/1", "/b", "/a/2", "/b"] {
        assert_eq!(status(path), StatusCode::OK, "{path}");
    }
    for path in ["/a/3", "/b"] {
        assert_eq!(status(path), StatusCode::TOO_MANY_REQUESTS, "{path}");
    }
    assert_eq!(sentinel.snapshot().overflowed(), 17);
    assert_eq!(sentinel.node("/a/{id}").unwrap().totals().pass(), 2);
    // Callers cannot make its name up, so it keeps its minute as well.
    let keeps_minute = |name: &str| sentinel.node(name).unwrap().seconds().is_some();
    assert_eq!(["/a/{id}", "/0"].map(keeps_minute), [true, false]);
}

// === the wire ===

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let first = stream::iter([Ok(Event::default().data("first"))]);
    Sse::new(first.chain(stream::pending()))
}

#[tokio::test]
async fn a_stream_of_events_holds_its_slot_until_its_client_goes_away() {
    let (sentinel, _clock) = engine(IsolationRule::new("/events", 1));
    let app = Router::new()
        .route("/events", on_get(events))
        .layer(SentinelLayer::with(sentinel.clone()));
    let server = Server::axum(app).await;

    let mut listening = server.connect().await;
    let mut response = send(&mut listening, get("/events")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let first = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "data: first\n\n");

    let mut other = server.connect().await;
    let refused = fetch(&mut other, get("/events")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let node = sentinel.node("/events").unwrap();
    assert_eq!((node.concurrency(), node.slots_in_use()), (1, 1));

    drop((response, listening));
    eventually("the slot is free", || node.slots_in_use() == 0).await;
    let totals = assert_at_rest(&sentinel, "/events");
    assert_eq!((totals.complete(), totals.cancelled()), (1, 0));
    assert_eq!(
        send(&mut other, get("/events")).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn who_asks_before_it_sends_a_body_need_not_send_what_is_refused() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/upload", 1));
    let upload = post(|body: Bytes| async move { body.len().to_string() });
    let app = Router::new()
        .route("/upload", upload)
        .layer(SentinelLayer::with(sentinel));
    let server = Server::axum(app).await;
    for answer in ["HTTP/1.1 100 ", "HTTP/1.1 429 "] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        let head = "POST /upload HTTP/1.1\r\nhost: test\r\n\
            content-length: 9\r\nexpect: 100-continue\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut start = vec![0; answer.len()];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(start, answer.as_bytes());
    }
}

/// Over HTTP/2 a server leaves blanks around the value of a field.
#[tokio::test]
async fn blanks_around_a_value_bring_no_fresh_quota() {
    let (sentinel, _clock) = engine(KeyedRule::per_second("/a", 1));
    let layer = SentinelLayer::with(sentinel).param(Header::from_static("x-user"));
    let app = Router::new().route("/a", hello()).layer(layer);
    let server = Server::axum(app).await;
    let io = TokioIo::new(TcpStream::connect(server.addr).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut connection, driver) = handshake.await.unwrap();
    tokio::spawn(driver);
    for (user, expected) in [("ann", 200), (" ann", 429), ("ann\t", 429), ("bob", 200)] {
        let request = Request::get(format!("http://{}/a", server.addr)).header("x-user", user);
        let request = request.body(Body::empty()).unwrap();
        let response = connection.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected, "{user:?}");
    }
}

/// One route for every way in which a body may end.
fn replies() -> Router {
    let chunks = || async {
        let parts = ["one", "two"].map(|part| Ok::<_, Infallible>(Bytes::from(part)));
        Body::from_stream(stream::iter(parts))
    };
    Router::new()
        .route("/plain", hello())
        .route("/empty", on_get(|| async {}))
        .route("/chunks", on_get(chunks))
        .route("/nothing", on_get(|| async { StatusCode::NO_CONTENT }))
        .route("/unchanged", on_get(|| async { StatusCode::NOT_MODIFIED }))
        .route("/broken", on_get(|| async { StatusCode::BAD_GATEWAY }))
}

#[tokio::test]
async fn what_clients_get_is_the_same_with_and_without_the_layer() {
    let (sentinel, _clock) = engine(Rules::new());
    let layer = SentinelLayer::with(sentinel.clone()).named("all");
    let bare = Server::axum(replies()).await;
    let guarded = Server::axum(replies().layer(layer)).await;
    let (mut bare, mut guarded) = (bare.connect().await, guarded.connect().await);

    // What a body's length is told by, so that the test sees what it compares.
    let cases = [
        (Method::GET, "/plain", Some("5"), None),
        (Method::HEAD, "/plain", Some("5"), None),
        (Method::GET, "/empty", Some("0"), None),
        (Method::GET, "/chunks", None, Some("chunked")),
        (Method::GET, "/nothing", None, None),
        (Method::GET, "/unchanged", None, None),
        (Method::GET, "/broken", Some("0"), None),
        (Method::GET, "/unknown", Some("0"), None),
        (Method::POST, "/plain", Some("0"), None),
    ];
    let without_date = |headers: &HeaderMap| {
        let mut headers = headers.clone();
        headers.remove("date");
        headers
    };
    for (method, path, length, coding) in &cases {
        let request = || {
            let request = Request::builder().method(method).uri(*path);
            request.body(Body::empty()).unwrap()
        };
        let expected = fetch(&mut bare, request()).await;
        let found = fetch(&mut guarded, request()).await;
        assert_eq!(found.status(), expected.status(), "{method} {path}");
        assert_eq!(found.body(), expected.body(), "{method} {path}");
        assert_eq!(
            without_date(found.headers()),
            without_date(expected.headers()),
            "{method} {path}"
        );
        let field = |name| {
            found
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap())
        };
        assert_eq!(field("content-length"), *length, "{method} {path}");
        assert_eq!(field("transfer-encoding"), *coding, "{method} {path}");
    }
    // A body that nobody polls ends its call as well.
    let node = sentinel.node("all").unwrap();
    eventually("all calls end", || node.concurrency() == 0).await;
    let totals = assert_at_rest(&sentinel, "all");
    assert_eq!(totals.complete(), cases.len() as u64);
    assert_eq!((totals.error(), totals.cancelled()), (1, 0));
}

// === nested routers ===

/// How many of three requests for different users pass at `/api`.
async fn passes_at_api(app: Router) -> usize {
    let paths = ["/api/users/1", "/api/users/2", "/api/users/3"];
    let statuses = join_all(paths.map(|path| app.clone().oneshot(get(path)))).await;
    let statuses = statuses
        .into_iter()
        .map(|response| response.unwrap().status());
    statuses.filter(|status| *status == StatusCode::OK).count()
}

fn limited(resource: &str) -> SentinelLayer {
    SentinelLayer::with(engine(FlowRule::per_second(resource, 1)).0)
}

fn users() -> Router {
    Router::new().route("/users/{id}", hello())
}

#[tokio::test]
async fn with_the_matched_path_a_nested_rule_is_named_by_the_whole_route() {
    for (resource, passes) in [("/api/users/{id}", 1), ("/users/{id}", 3)] {
        let inside = Router::new().nest("/api", users().layer(limited(resource)));
        assert_eq!(passes_at_api(inside).await, passes, "{resource}");
        let outside = Router::new().nest("/api", users()).layer(limited(resource));
        assert_eq!(passes_at_api(outside).await, passes, "{resource}");
        let service = Router::new().nest_service("/api", users().layer(limited(resource)));
        assert_eq!(passes_at_api(service).await, passes, "{resource}");
    }
}

/// axum takes the prefix of a nested service off with two slashes as well.
#[tokio::test]
async fn no_slash_leads_past_the_layer_of_a_router_that_is_nested() {
    let inside = users().layer(limited("/api/users/{id}"));
    let app = Router::new().nest_service("/api", inside);
    let paths = ["/api/users/1", "/api//users/2", "/api/users//3"];
    let mut passed = 0;
    for path in paths {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        passed += usize::from(response.status() == StatusCode::OK);
    }
    assert_eq!(passed, 1);
}

/// The statuses of requests for `paths`, one after another.
async fn statuses(app: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn no_slash_leads_past_a_rule_below_a_route_for_the_rest() {
    for (route, path) in [("/files/{*rest}", "/files/a"), ("/{*rest}", "/export")] {
        let rules = Rules::new()
            .with(FlowRule::per_second(format!("/outer/api{path}"), 1))
            .with(FlowRule::per_second("/outer/api/{*all}", 9));
        let layer = SentinelLayer::with(engine(rules).0);
        let inside = Router::new().route(route, hello()).layer(layer);
        let between = Router::new().nest_service("/api", inside);
        let app = Router::new().nest_service("/outer", between);
        let paths = ["/outer/api", "/outer/api/", "/outer//api", "/outer//api/"];
        let paths = paths.map(|prefix| format!("{prefix}{path}"));
        let paths: Vec<_> = paths.iter().map(|path| &**path).collect();
        assert_eq!(
            statuses(&app, &paths).await,
            [200, 429, 429, 429],
            "{route}"
        );
    }
}

/// In a router that is merged into another, a second slash is a parameter that is empty.
#[tokio::test]
async fn no_empty_parameter_leads_past_a_rule_below_a_route_for_the_rest() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/{tenant}/export", 1))
        .with(FlowRule::per_second("/{tenant}/{*all}", 9));
    let layer = SentinelLayer::with(engine(rules).0);
    let inside = Router::new().route("/{*rest}", hello()).layer(layer);
    let app = Router::new().nest("/{tenant}", inside);
    let paths = [
        "/acme/export",
        "/acme//export",
        "//export",
        "//other/export",
    ];
    assert_eq!(statuses(&app, &paths).await, [200, 429, 429, 200]);
}

#[tokio::test]
async fn a_path_that_is_rewritten_between_two_routers_keeps_its_rules_below() {
    let inside = Router::new()
        .route("/shop.Orders/{*rest}", hello())
        .layer(limited("/shop.Orders/Create"));
    let without_version = |mut request: Request<Body>| {
        let path = request.uri().path().strip_prefix("/v1").unwrap();
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let inside = ServiceBuilder::new()
        .map_request(without_version)
        .service(inside);
    let app = Router::new().fallback_service(inside);
    let (create, list) = ("/v1/shop.Orders/Create", "/v1/shop.Orders/List");
    let answers = statuses(&app, &[create, list, create, list]).await;
    assert_eq!(answers, [200, 200, 429, 200]);
}

/// The path that the inner router sees names a call, whatever rules match the one that was
/// sent.
#[tokio::test]
async fn a_path_that_is_rewritten_leads_past_no_rule_below() {
    type Rewrite = fn(&str) -> String;
    let cases: [(_, Rewrite, _); 2] = [
        (
            "/shop/{*rest}",
            |path| path.replace("/Old", "/New"),
            "/shop/Old",
        ),
        ("/{*rest}", |path| path.replace("/v1", ""), "/v1/shop/New"),
    ];
    for (route, rewrite, sent) in cases {
        let rules = Rules::new()
            .with(FlowRule::per_second("/{*all}", 9))
            .with(FlowRule::per_second("/shop/Old", 9))
            .with(FlowRule::per_second("/shop/New", 1));
        let layer = SentinelLayer::with(engine(rules).0);
        let inside = Router::new().route(route, hello()).layer(layer);
        let rewritten = move |mut request: Request<Body>| {
            *request.uri_mut() = rewrite(request.uri().path()).parse().unwrap();
            request
        };
        let inside = ServiceBuilder::new().map_request(rewritten).service(inside);
        let app = Router::new().fallback_service(inside);
        let answers = statuses(&app, &["/shop/New", "/shop/New", sent]).await;
        assert_eq!(answers, [200, 429, 429], "{route}");
    }
}

/// As if another router had taken the first part off, or one more part.
#[tokio::test]
async fn a_prefix_that_is_dropped_leads_past_no_rule_below() {
    let without_version = |mut request: Request<Body>| {
        let path = request.uri().path().replace("/v1", "");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let rules = Rules::new()
        .with(FlowRule::per_second("/{shop}/new", 1))
        .with(FlowRule::per_second("/api/{shop}/new", 1));
    let layer = SentinelLayer::with(engine(rules).0);
    let inside = Router::new().route("/{shop}/{*rest}", hello()).layer(layer);
    let inside = ServiceBuilder::new()
        .map_request(without_version)
        .service(inside);
    let app = Router::new()
        .nest_service("/api", inside.clone())
        .fallback_service(inside);
    for (plain, versioned) in [("/a/new", "/v1/a/new"), ("/api/a/new", "/api/v1/a/new")] {
        let answers = statuses(&app, &[plain, versioned]).await;
        assert_eq!(answers, [200, 429], "{versioned}");
    }
}

/// A layer that rewrites the path of a route does not change which route it is.
#[tokio::test]
async fn behind_its_route_a_path_may_be_rewritten_to_any_other() {
    let inwards = |mut request: Request<Body>| {
        *request.uri_mut() = "/inside".parse().unwrap();
        request
    };
    let layer = ServiceBuilder::new()
        .map_request(inwards)
        .layer(limited("/files/a"));
    let app = Router::new().route("/files/{*rest}", hello()).layer(layer);
    let answers = statuses(&app, &["/files/a", "/files/b", "/files/a"]).await;
    assert_eq!(answers, [200, 200, 429]);
}

#[tokio::test]
async fn a_layer_is_around_what_was_there_when_it_was_added() {
    let layer = || SentinelLayer::new(FlowRule::per_second("*", 0));
    let late = Router::new()
        .route("/early", hello())
        .layer(layer())
        .route("/late", hello())
        .merge(users())
        .nest("/nested", users())
        .fallback(|| async { "fallback" });
    let mut refused = Vec::new();
    for path in ["/early", "/late", "/users/1", "/nested/users/1", "/nowhere"] {
        let response = late.clone().oneshot(get(path)).await.unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            refused.push(path);
        }
    }
    assert_eq!(refused, ["/early"]);

    let method = Router::new().route("/early", hello().layer(layer()).delete(|| async {}));
    let mut request = get("/early");
    *request.method_mut() = Method::DELETE;
    let response = method.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn only_outside_of_a_nested_router_its_fallback_has_the_whole_path() {
    let paths = ["/api/users/7", "/users/7"];
    let api = || Router::new().fallback(|| async { "fallback" });
    // Inside, the second request meets the quota that the first one has used up.
    let layer = limited("/users/{id}");
    let inside = users()
        .layer(layer.clone())
        .nest("/api", api().layer(layer));
    assert_eq!(statuses(&inside, &paths).await, [200, 429]);
    let outside = users().nest("/api", api()).layer(limited("/users/{id}"));
    assert_eq!(statuses(&outside, &paths).await, [200, 200]);
}

#[tokio::test]
async fn below_a_route_for_the_rest_of_a_path_rules_may_name_paths() {
    let files = || {
        Router::new()
            .route("/files/{*path}", hello())
            .route("/users/{id}", hello())
    };
    let names = async |rules: &[&str]| {
        let rules = rules.iter().map(|name| FlowRule::per_second(*name, 9));
        let (sentinel, _clock) = engine(Rules::build(rules).unwrap());
        let app = Router::new()
            .nest("/api", files())
            .layer(SentinelLayer::with(sentinel.clone()));
        for path in ["/api/files/app.js", "/api/files/a/b", "/api/users/7"] {
            let response = app.clone().oneshot(get(path)).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
        }
        let snapshot = sentinel.snapshot();
        let mut names: Vec<_> = snapshot
            .nodes()
            .iter()
            .map(|node| node.resource().to_owned())
            .collect();
        names.sort();
        names
    };
    let (rest, user) = ("/api/files/{*path}", "/api/users/{id}");
    assert_eq!(names(&[]).await, [rest, user]);
    // What is above it takes nothing away, and another route is what axum says.
    assert_eq!(names(&["/{*all}", "/api/users/7"]).await, [rest, user]);
    assert_eq!(
        names(&["/api/files/app.js"]).await,
        ["/api/files/app.js", rest, user]
    );
    assert_eq!(
        names(&["/api/files/{name}", "/api/files/a/{*rest}"]).await,
        ["/api/files/a/{*rest}", "/api/files/{name}", user]
    );
    // The rest may have another name.
    assert_eq!(
        names(&["/api/files/{*file}"]).await,
        ["/api/files/{*file}", user]
    );
}

#[tokio::test]
async fn without_the_matched_path_a_nested_rule_is_named_as_the_path_is_seen_there() {
    // As if nobody had matched a path, which is so without the `axum` feature.
    let forget = middleware::from_fn(|mut request: Request<Body>, next: middleware::Next| {
        request.extensions_mut().remove::<MatchedPath>();
        next.run(request)
    });
    for (resource, passes) in [("/users/{id}", 1), ("/api/users/{id}", 3)] {
        let layer = ServiceBuilder::new()
            .layer(forget.clone())
            .layer(limited(resource));
        let inside = Router::new().nest("/api", users().layer(layer));
        assert_eq!(passes_at_api(inside).await, passes, "{resource}");
        // Before a service that is no router nobody has matched the whole path.
        let around = Router::new().nest_service("/api", limited(resource).layer(users()));
        assert_eq!(passes_at_api(around).await, passes, "{resource}");
    }
    for (resource, passes) in [("/api/users/{id}", 1), ("/users/{id}", 3)] {
        let layer = ServiceBuilder::new()
            .layer(forget.clone())
            .layer(limited(resource));
        let outside = Router::new().nest("/api", users()).layer(layer);
        assert_eq!(passes_at_api(outside).await, passes, "{resource}");
    }
}
