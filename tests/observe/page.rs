//! The live page: who may look, and what is shown.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tower::ServiceExt;
use tower_sentinel::clock::Tick;
use tower_sentinel::key::{ClientAddr, Header};
use tower_sentinel::observe::Body;
use tower_sentinel::observe::page::Page;
use tower_sentinel::source::InMemory;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Clock, Criticality, FlowRule,
    IsolationRule, KeyedRule, ManualClock, Rules, Sentinel, SentinelLayer, Verdict,
};

const LOCAL: &str = "127.0.0.1:4000";
const ELSEWHERE: &str = "192.0.2.7:4000";
const TOKEN: &str = "correct-horse-battery";
/// More than the pause between two readings of few resources.
const PAUSE: Duration = Duration::from_millis(260);

fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    let clock = ManualClock::new();
    // Well after the beginning, so that there is a minute to look back.
    clock.advance(Duration::from_secs(600));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .build();
    (sentinel, clock)
}

fn page() -> Page {
    Page::new(&engine(FlowRule::per_second("/search", 5)).0)
}

/// A request as a browser on this machine sends it.
fn local(target: &str) -> http::request::Builder {
    Request::get(target)
        .header("host", "localhost:3000")
        .extension(ClientAddr(LOCAL.parse().unwrap()))
}

async fn ask(page: &Page, request: http::request::Builder) -> Response<Body> {
    page.clone()
        .oneshot(request.body(()).unwrap())
        .await
        .unwrap()
}

async fn status(page: &Page, request: http::request::Builder) -> u16 {
    ask(page, request).await.status().as_u16()
}

async fn text(answer: Response<Body>) -> String {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn state(page: &Page, query: &str) -> Value {
    let answer = ask(page, local(&format!("/?state{query}"))).await;
    assert_eq!(answer.status(), StatusCode::OK);
    serde_json::from_str(&text(answer).await).unwrap()
}

fn call(sentinel: &Sentinel, name: &str) -> bool {
    matches!(sentinel.try_enter(Call::new(name)), Verdict::Pass(_))
}

fn names(state: &Value) -> Vec<&str> {
    let nodes = state["resources"]["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| node["resource"].as_str().unwrap())
        .collect()
}

// === who may look ===

#[tokio::test]
async fn a_name_that_is_not_the_pages_is_refused_whoever_asks() {
    let open = page().open().host("Ops.Example.com").unwrap();
    let cases = [
        ("localhost", true),
        ("localhost:3000", true),
        ("LOCALHOST.", true),
        ("shop.localhost:80", true),
        ("127.0.0.1:3000", true),
        ("192.0.2.7", true),
        ("[::1]:3000", true),
        ("[2001:db8::1]", true),
        ("ops.example.com:8443", true),
        ("OPS.example.com.", true),
        ("evil.example", false),
        ("evil.example:3000", false),
        ("localhost.evil.example", false),
        ("evillocalhost", false),
        ("127.0.0.1.evil.example", false),
        ("user@127.0.0.1", false),
        ("127.0.0.1:3000:evil", false),
        ("[::1]evil.example", false),
        ("[evil.example]", false),
        ("x.ops.example.com", false),
        ("", false),
    ];
    for (host, is_allowed) in cases {
        let request = || {
            let peer = ClientAddr(LOCAL.parse().unwrap());
            Request::get("/sentinel")
                .header("host", host)
                .extension(peer)
        };
        let expected = if is_allowed { 200 } else { 403 };
        assert_eq!(status(&open, request()).await, expected, "{host:?}");
        let is_given = host.to_lowercase().contains("ops.example");
        // An address of elsewhere is none that a caller on this machine asks for.
        let is_loopback = !host.contains("192.0.2") && !host.contains("2001");
        let is_local = is_allowed && is_loopback && !is_given;
        let expected = if is_local { 200 } else { 403 };
        assert_eq!(
            status(&page(), request()).await,
            expected,
            "{host:?} by default"
        );
    }
    // No name, two of them, and one that is no text.
    let peer = || ClientAddr(LOCAL.parse().unwrap());
    let none = Request::get("/").extension(peer());
    let two = local("/").header("host", "127.0.0.1");
    let bytes = Request::get("/")
        .header("host", &b"\xff"[..])
        .extension(peer());
    for request in [none, two, bytes] {
        assert_eq!(status(&open, request).await, 403);
    }
}

#[tokio::test]
async fn the_authority_of_http2_counts_as_a_name() {
    let peer = || ClientAddr(LOCAL.parse().unwrap());
    let of = |target: &str| {
        Request::get(target)
            .version(http::Version::HTTP_2)
            .extension(peer())
    };
    assert_eq!(
        status(&page(), of("http://localhost:3000/sentinel")).await,
        200
    );
    assert_eq!(
        status(&page(), of("http://evil.example/sentinel")).await,
        403
    );
    // Both are there: neither may be foreign.
    let both = of("http://localhost/").header("host", "evil.example");
    assert_eq!(status(&page(), both).await, 403);
    let both = of("http://evil.example/").header("host", "localhost");
    assert_eq!(status(&page(), both).await, 403);
}

#[tokio::test]
async fn only_this_machine_may_look_by_default() {
    let page = page();
    let from = |peer: &str| {
        let peer = ClientAddr(peer.parse().unwrap());
        Request::get("/")
            .header("host", "localhost")
            .extension(peer)
    };
    for peer in [LOCAL, "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(status(&page, from(peer)).await, 200, "{peer}");
    }
    for peer in [
        ELSEWHERE,
        "10.0.0.1:1",
        "[2001:db8::1]:1",
        "[::ffff:192.0.2.7]:1",
        "0.0.0.0:1",
    ] {
        let answer = ask(&page, from(peer)).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{peer}");
        assert!(text(answer).await.contains(".allow("));
    }
    let unknown = ask(&page, Request::get("/").header("host", "localhost")).await;
    assert_eq!(unknown.status(), StatusCode::FORBIDDEN);
    assert!(
        text(unknown)
            .await
            .contains("into_make_service_with_connect_info::<SocketAddr>()")
    );
}

#[tokio::test]
async fn what_a_local_proxy_forwards_is_not_local() {
    let fields = [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-whatever",
        "x-real-ip",
        "via",
        "x-forward-for",
        "x-original-forwarded-for",
        "x-cluster-client-ip",
        "x-client-ip",
        "client-ip",
        "true-client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "x-azure-clientip",
        "cf-connecting-ip",
        "cf-ray",
        "cdn-loop",
        "x-envoy-external-address",
        "x-amz-cf-id",
        "x-amzn-trace-id",
        "x-appengine-user-ip",
        "x-remote-ip",
        "x-original-url",
    ];
    let named = page().allow(["127.0.0.0/8".parse().unwrap()]);
    let other = page().allow(["10.0.0.0/8".parse().unwrap()]);
    for field in fields {
        let request = || local("/").header(field, "");
        let refused = ask(&page(), request()).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{field}");
        assert!(text(refused).await.contains("proxy"), "{field}");
        // This machine is let in as such, and not as a network that is trusted.
        assert_eq!(status(&other, request()).await, 403, "{field}");
        assert_eq!(status(&named, request()).await, 200, "{field}");
        assert_eq!(status(&page().open(), request()).await, 200, "{field}");
    }
}

#[tokio::test]
async fn what_a_proxy_sends_that_adds_nothing_is_not_local() {
    // As nginx does with no more than `proxy_pass http://127.0.0.1:3000;`.
    let request = |host: &str, version| {
        let peer = ClientAddr(LOCAL.parse().unwrap());
        let request = Request::get("/?state").header("host", host);
        request.version(version).extension(peer)
    };
    let (old, new) = (http::Version::HTTP_10, http::Version::HTTP_11);
    let own = || page().host("ops.example.com").unwrap();
    assert_eq!(status(&own(), request("127.0.0.1:3000", new)).await, 200);
    let cases = [
        ("127.0.0.1:3000", old),
        // The name by which the proxy was asked for.
        ("ops.example.com", new),
        ("192.0.2.1", new),
        ("[2001:db8::1]:80", new),
    ];
    for (host, version) in cases {
        let refused = ask(&own(), request(host, version)).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{host}");
        assert!(text(refused).await.contains(".token("), "{host}");
        // The token is the answer, and so is a page that is open on purpose.
        let with = own().token(TOKEN).unwrap();
        let right = request(host, version).header("authorization", format!("Bearer {TOKEN}"));
        assert_eq!(status(&with, right).await, 200, "{host}");
        assert_eq!(status(&own().open(), request(host, version)).await, 200);
        let proxy = own().allow(["127.0.0.1/32".parse().unwrap()]);
        assert_eq!(status(&proxy, request(host, version)).await, 200);
    }
}

#[tokio::test]
async fn networks_that_are_allowed_may_look() {
    let page = page().allow(["192.0.2.0/24".parse().unwrap(), "fd00::/8".parse().unwrap()]);
    for (peer, expected) in [
        (ELSEWHERE, 200),
        ("[fd00::1]:1", 200),
        (LOCAL, 200),
        ("192.0.3.1:1", 403),
    ] {
        let peer = ClientAddr(peer.parse().unwrap());
        let request = Request::get("/?state")
            .header("host", "127.0.0.1")
            .extension(peer);
        assert_eq!(status(&page, request).await, expected, "{peer:?}");
    }
}

#[tokio::test]
async fn wrong_tokens_never_keep_the_right_one_out() {
    let (sentinel, _) = engine(FlowRule::per_second("/search", 5));
    let page = Page::new(&sentinel).token(TOKEN).unwrap();
    let with = |peer: &str, value: &str| {
        let peer = ClientAddr(peer.parse().unwrap());
        let request = Request::get("/?state")
            .header("host", "192.0.2.1")
            .extension(peer);
        request.header("authorization", value)
    };
    let right = format!("Bearer {TOKEN}");
    // The page comes to everybody, and no data without the token.
    let shell = Request::get("/").header("host", "192.0.2.1");
    assert_eq!(status(&page, shell).await, 200);
    for _ in 0..20 {
        let none = ask(&page, Request::get("/?state").header("host", "192.0.2.1")).await;
        assert_eq!(none.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(none.headers()["www-authenticate"], "Bearer");
    }
    assert_eq!(status(&page, with(ELSEWHERE, &right)).await, 200);
    assert_eq!(
        status(&page, with(ELSEWHERE, &right.replace("Bearer", "bEARER"))).await,
        200
    );
    for n in 0..100 {
        let wrong = format!("Bearer wrong-token-number-{n}");
        assert_eq!(status(&page, with(ELSEWHERE, &wrong)).await, 401, "{n}");
    }
    assert_eq!(status(&page, with(ELSEWHERE, &right)).await, 200);
}

#[tokio::test]
async fn only_the_whole_token_is_the_token() {
    let page = page().open().token(TOKEN).unwrap();
    let wrong = [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        TOKEN.to_owned(),
        format!("Basic {TOKEN}"),
        format!("Bearer {TOKEN}{TOKEN}"),
        format!("Bearer {TOKEN}x"),
        format!("Bearer {}", &TOKEN[1..]),
        format!("Bearer {}", TOKEN.to_uppercase()),
    ];
    for value in wrong {
        let request = local("/?state").header("authorization", &value);
        assert_eq!(status(&page, request).await, 401, "{value:?}");
    }
    let right = format!("Bearer {TOKEN}");
    let two = local("/?state")
        .header("authorization", &right)
        .header("authorization", &right);
    assert_eq!(status(&page, two).await, 401);
    // It is in no query and in no debug output.
    assert_eq!(
        status(&page, local(&format!("/?state&token={TOKEN}"))).await,
        401
    );
    assert!(!format!("{page:?}").contains(TOKEN));
    // With networks, both must be right.
    let both = page.allow(["10.0.0.0/8".parse().unwrap()]);
    let from = |peer: &str| {
        let peer = ClientAddr(peer.parse().unwrap());
        Request::get("/?state")
            .header("host", "10.0.0.1")
            .extension(peer)
    };
    let right_from = |peer: &str| from(peer).header("authorization", &right);
    assert_eq!(status(&both, right_from("10.0.0.2:1")).await, 200);
    assert_eq!(status(&both, right_from(ELSEWHERE)).await, 403);
    assert_eq!(status(&both, from("10.0.0.2:1")).await, 401);
}

#[test]
fn a_token_or_a_name_that_cannot_be_one_is_an_error() {
    let token = |text: &str| page().token(text).err().map(|error| error.to_string());
    assert_eq!(token(&"x".repeat(16)), None);
    assert_eq!(token(&"x".repeat(1_024)), None);
    for (length, bad) in [
        (0, String::new()),
        (15, "x".repeat(15)),
        (1_025, "x".repeat(1_025)),
    ] {
        let told = token(&bad).unwrap();
        let expected = format!("token has {length} characters, must have between 16 and 1024");
        assert_eq!(told, expected);
    }
    for bad in [
        "sixteen letters\u{e4}\u{e4}\u{e4}",
        "sixteen characters",
        "0123456789abcde\n",
    ] {
        let told = token(bad).unwrap();
        assert!(told.starts_with("token has blanks"), "{told}");
        assert!(!told.contains(bad));
    }
    for bad in ["", "a:80", "a/b", "http://a", "a b", "*", "[::1]"] {
        let told = page().host(bad).unwrap_err().to_string();
        assert!(
            told.contains("must be a name without scheme, port and path"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn only_get_and_head_are_answered() {
    for method in [
        "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW",
    ] {
        for target in ["/", "/?state", "/?page.js"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let answer = ask(&page(), local(target).method(&method)).await;
            assert_eq!(
                answer.status(),
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {target}"
            );
            assert_eq!(answer.headers()["allow"], "GET, HEAD");
        }
    }
    // One engine: the moment since which rules are in force is in the state.
    let page = page();
    for target in ["/", "/?state", "/?page.js"] {
        let whole = ask(&page, local(target)).await;
        let head = ask(&page, local(target).method(Method::HEAD)).await;
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(
            head.headers()["content-type"],
            whole.headers()["content-type"]
        );
        let length = whole.into_body().collect().await.unwrap().to_bytes().len();
        assert_eq!(head.headers()["content-length"], length.to_string());
        assert_eq!(text(head).await, "");
    }
}

#[tokio::test]
async fn every_answer_says_what_no_browser_may_do_with_it() {
    let page = page().token(TOKEN).unwrap();
    let requests = [
        local("/"),
        local("/?page.css"),
        local("/?page.js"),
        local("/?uplot.css"),
        local("/?uplot.js"),
        local("/?state"),
        local("/?unknown"),
        local("/").method(Method::POST),
        Request::get("/").header("host", "evil.example"),
    ];
    for request in requests {
        let answer = ask(&page, request).await;
        let field = |name: &str| answer.headers()[name].to_str().unwrap();
        let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
        assert_eq!(field("content-security-policy"), policy);
        assert_eq!(field("x-content-type-options"), "nosniff");
        assert_eq!(field("x-frame-options"), "DENY");
        assert_eq!(field("referrer-policy"), "no-referrer");
        assert_eq!(field("cross-origin-resource-policy"), "same-origin");
        assert!(
            answer
                .headers()
                .get("access-control-allow-origin")
                .is_none()
        );
        assert!(answer.headers().get("set-cookie").is_none());
    }
}

// === the files ===

#[tokio::test]
async fn a_browser_that_has_a_file_need_not_load_it_again() {
    for (target, media) in [
        ("/", "text/html; charset=utf-8"),
        ("/?page.css", "text/css; charset=utf-8"),
        ("/?page.js", "text/javascript; charset=utf-8"),
        ("/?uplot.css", "text/css; charset=utf-8"),
        ("/?uplot.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = ask(&page(), local(target)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{target}");
        assert_eq!(answer.headers()["content-type"], media);
        assert_eq!(answer.headers()["cache-control"], "no-cache");
        let etag = answer.headers()["etag"].clone();
        for known in [
            etag.to_str().unwrap(),
            &format!("\"x\", W/{}", etag.to_str().unwrap()),
        ] {
            let again = ask(&page(), local(target).header("if-none-match", known)).await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(again.headers()["etag"], etag);
            assert_eq!(text(again).await, "");
        }
        let other = ask(&page(), local(target).header("if-none-match", "\"x\"")).await;
        assert_eq!(other.status(), StatusCode::OK);
    }
    let state = ask(&page(), local("/?state")).await;
    assert_eq!(state.headers()["cache-control"], "no-store");
    assert!(state.headers().get("etag").is_none());
    assert_eq!(status(&page(), local("/?page.html")).await, 404);
}

#[tokio::test]
async fn the_page_works_under_any_path_of_a_router() {
    let local: SocketAddr = LOCAL.parse().unwrap();
    let (sentinel, _) = engine(FlowRule::per_second("/limited", 0));
    let routed = Router::new()
        .route("/limited", get(|| async {}))
        .layer(SentinelLayer::with(sentinel.clone()))
        .route_service("/sentinel", Page::new(&sentinel))
        .nest_service("/ops", Page::new(&sentinel))
        .nest(
            "/deep",
            Router::new().route_service("/er/", Page::new(&sentinel)),
        )
        .layer(MockConnectInfo(local));
    let get = async |target: &str| {
        let request = Request::get(target).header("host", "localhost");
        let request = request.body(axum::body::Body::empty()).unwrap();
        routed.clone().oneshot(request).await.unwrap()
    };
    assert_eq!(
        get("/limited").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    for path in ["/sentinel", "/ops", "/ops/", "/deep/er/"] {
        for query in ["", "?page.js", "?state"] {
            let answer = get(&format!("{path}{query}")).await;
            assert_eq!(answer.status(), StatusCode::OK, "{path}{query}");
        }
    }
    let answer = get("/sentinel?state").await;
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let state: Value = serde_json::from_slice(&bytes).unwrap();
    // The page itself is below the layer, and counts nowhere.
    assert_eq!(names(&state), ["/limited"]);
    assert_eq!(
        state["resources"]["nodes"][0]["totals"]["block_by"]["flow"],
        1
    );
}

#[tokio::test]
async fn a_plain_server_of_either_version_of_http_serves_it() {
    let (sentinel, _) = engine(FlowRule::per_second("/search", 5));
    let page = Page::new(&sentinel)
        .token(TOKEN)
        .unwrap()
        .edits(InMemory)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(page.clone());
            tokio::spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    for is_http2 in [false, true] {
        let mut client = Client::builder(TokioExecutor::new());
        let client = client.http2_only(is_http2).build_http::<Body>();
        let send = async |method: &str, target: &str, body: &'static str| {
            let request = Request::builder()
                .method(method)
                .uri(format!("http://{addr}/any/path{target}"))
                .header("authorization", format!("Bearer {TOKEN}"))
                .header("content-type", "application/json");
            let answer = client
                .request(request.body(Body::from(body)).unwrap())
                .await
                .unwrap();
            answer.status().as_u16()
        };
        assert_eq!(send("GET", "", "").await, 200);
        assert_eq!(send("HEAD", "?uplot.js", "").await, 200);
        assert_eq!(send("GET", "?state", "").await, 200);
        assert_eq!(send("POST", "?rules&check", "{\"rules\": []}").await, 200);
        assert_eq!(send("POST", "?rules", "{\"rules\": []}").await, 428);
        let foreign = Request::get(format!("http://{addr}/")).header("host", "evil.example");
        let foreign = foreign.body(Body::default()).unwrap();
        assert_eq!(
            client.request(foreign).await.unwrap().status(),
            StatusCode::FORBIDDEN
        );
    }
}

#[tokio::test]
async fn a_router_of_tonic_serves_it() {
    let (sentinel, _) = engine(FlowRule::per_second("/search", 5));
    let app = tonic::service::Routes::default()
        .into_axum_router()
        .route_service("/sentinel", Page::new(&sentinel));
    let request = local("/sentinel?state")
        .body(axum::body::Body::empty())
        .unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), StatusCode::OK);
}

// === what is shown ===

#[tokio::test]
async fn the_state_has_rates_seconds_and_limits() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 3))
        .with(FlowRule::per_second("*", 9))
        .with(IsolationRule::new("/report", 2));
    let (sentinel, clock) = engine(rules);
    let page = Page::new(&sentinel).title("shop-7");
    for _ in 0..5 {
        call(&sentinel, "/search");
    }
    let running = sentinel.try_enter(Call::new("/report"));
    clock.advance(Duration::from_millis(1_250));
    call(&sentinel, "/search");
    let told = state(&page, "&sort=name").await;
    assert_eq!(told["schema"], 1);
    assert_eq!((&told["title"], &told["up"]), (&"shop-7".into(), &1.into()));
    assert_eq!(told["second_age"], 250);
    assert_eq!(told["now"]["concurrency"], 1);
    let [report, search] = [0, 1].map(|n| &told["resources"]["nodes"][n]);
    assert_eq!(
        (&report["resource"], &search["resource"]),
        (&"/report".into(), &"/search".into())
    );
    assert_eq!(
        (&report["limit_concurrency"], &report["limit_qps"]),
        (&2.into(), &9.into())
    );
    assert_eq!(
        (&search["limit_concurrency"], &search["limit_qps"]),
        (&().into(), &3.into())
    );
    assert_eq!(
        search["totals"]["block_by"],
        serde_json::json!({ "flow": 2 })
    );
    // The present second is not among them: it has not ended.
    for seconds in [&search["seconds"], &told["focus"]["seconds"]] {
        let [pass, block] = ["pass", "block"].map(|it| seconds[it].as_array().unwrap());
        assert_eq!((pass.len(), block.len()), (60, 60));
        assert_eq!(block.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 2);
    }
    assert_eq!(search["seconds"]["pass"][59], 3);
    assert_eq!(told["focus"]["seconds"]["pass"][59], 4);
    let focus = state(&page, "&focus=%2Fsearch").await;
    assert_eq!(focus["focus"]["resource"], "/search");
    assert_eq!(focus["focus"]["seconds"]["pass"][59], 3);
    assert_eq!(
        state(&page, "&focus=nobody").await["focus"]["seconds"],
        Value::Null
    );
    drop(running);
    clock.advance(Duration::from_secs(1));
    let focus = state(&page, "&focus=%2Freport").await;
    assert_eq!(focus["focus"]["seconds"]["average_rt"][59], 1_250);
    assert_eq!(focus["focus"]["seconds"]["average_rt"][58], Value::Null);
}

#[tokio::test]
async fn the_page_shows_which_classes_are_shut() {
    let rule = AdaptiveRule::new("/search").start(3).ceiling(3);
    let (sentinel, clock) = engine(rule.burst(Duration::ZERO));
    let page = Page::new(&sentinel);
    let enter = |class| sentinel.try_enter(Call::new("/search").criticality(class));
    for _ in 0..200 {
        let running = enter(Criticality::Sheddable);
        clock.advance(Duration::from_millis(50));
        drop((running, enter(Criticality::Critical)));
    }
    let running: Vec<_> = (0..3).map(|_| enter(Criticality::Critical)).collect();
    drop(enter(Criticality::Sheddable));
    let told = state(&page, "").await;
    let classes = told["resources"]["nodes"][0]["classes"].as_array().unwrap();
    let states: Vec<_> = classes
        .iter()
        .map(|it| it["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["open", "open", "open", "marginal"]);
    assert_eq!(classes[3]["criticality"], "sheddable");
    assert_eq!(
        (&classes[3]["admitted"], &classes[3]["blocked"]),
        (&200.into(), &1.into())
    );
    assert_eq!(classes[1]["bound"], 3);
    drop(running);
}

#[tokio::test]
async fn rows_are_sorted_filtered_and_cut() {
    let names_of: Vec<String> = (0..30).map(|n| format!("/Route/{n:02}")).collect();
    let rules: Vec<_> = names_of
        .iter()
        .map(|name| FlowRule::per_second(name, 10))
        .collect();
    let (sentinel, clock) = engine(Rules::build(rules).unwrap());
    let page = Page::new(&sentinel);
    for (n, name) in names_of.iter().enumerate() {
        for _ in 0..=n {
            call(&sentinel, name);
        }
    }
    clock.advance(Duration::from_secs(1));
    let all = state(&page, "").await;
    assert_eq!(
        (&all["resources"]["listed"], names(&all).len()),
        (&30.into(), 30)
    );
    assert_eq!(names(&all)[0], "/Route/29");
    let first = &all["resources"]["nodes"][0];
    assert_eq!(
        (&first["pass_qps"], &first["block_qps"]),
        (&10.into(), &20.into())
    );
    let few = state(&page, "&n=2&sort=pass&q=rOUTE%2F0").await;
    assert_eq!(names(&few), ["/Route/09", "/Route/08"]);
    assert_eq!(few["resources"]["matching"], 10);
    assert_eq!(names(&state(&page, "&n=1&sort=name").await), ["/Route/00"]);
    assert_eq!(names(&state(&page, "&q=nothing").await).len(), 0);
}

#[tokio::test]
async fn breakers_and_rules_tell_their_state() {
    let rules = Rules::new()
        .with(CircuitBreakerRule::consecutive_errors("/pay", 1).id("pay-errors"))
        .with(CircuitBreakerRule::consecutive_errors("/other", 1))
        .with(FlowRule::per_second("/pay", 0).id("strict").shadow())
        .with(KeyedRule::per_second("/pay", 5).id("each"));
    let (sentinel, clock) = engine(rules);
    let page = Page::new(&sentinel);
    call(&sentinel, "/other");
    let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("/pay")) else {
        panic!("the breaker is closed");
    };
    entry.fail();
    drop(entry);
    clock.advance(Duration::from_secs(1));
    let told = state(&page, "").await;
    let breaker = &told["breakers"]["list"][0];
    assert_eq!(told["breakers"]["count"], 2);
    assert_eq!(
        (&breaker["rule"], &breaker["state"]),
        (&"pay-errors".into(), &"open".into())
    );
    assert_eq!(
        (&breaker["in_state_for"], &breaker["bad_calls"]),
        (&1_000.into(), &1.into())
    );
    assert_eq!(
        (&breaker["opened"], &told["breakers"]["list"][1]["opened"]),
        (&1.into(), &0.into())
    );
    assert_eq!(told["breakers"]["list"][1]["state"], "closed");
    let pay = names(&told)
        .iter()
        .position(|name| *name == "/pay")
        .unwrap();
    assert_eq!(told["resources"]["nodes"][pay]["breaker"], "open");
    assert!(!call(&sentinel, "/pay"));
    clock.advance(PAUSE);
    let told = state(&page, "").await;
    let rules = told["rules"]["list"].as_array().unwrap();
    assert_eq!(
        (&rules[0]["blocked"], &rules[1]["blocked"]),
        (&1.into(), &0.into())
    );
    assert_eq!(rules[2]["blocked"], Value::Null);
    let shadow = &rules[2];
    assert_eq!(
        (&shadow["id"], &shadow["is_shadow"]),
        (&"strict".into(), &true.into())
    );
    assert_eq!(
        (&shadow["limit"], &shadow["would_block"]),
        (&"0/s".into(), &1.into())
    );
    assert_eq!(
        (&rules[3]["id"], &rules[3]["missing"]),
        (&"each".into(), &1.into())
    );
}

#[tokio::test]
async fn findings_stand_on_top() {
    let (sentinel, _) = engine(FlowRule::per_second("/oders", 5).id("typo"));
    call(&sentinel, "/orders");
    let told = state(&Page::new(&sentinel), "").await;
    let finding = &told["findings"]["list"][0];
    assert_eq!(told["findings"]["count"], 1);
    assert_eq!(
        (&finding["rule"], &finding["kind"]),
        (&"typo".into(), &"rule-not-met".into())
    );
    assert!(
        finding["text"]
            .as_str()
            .unwrap()
            .contains("is that the name that is meant?")
    );
}

#[tokio::test]
async fn names_that_callers_make_up_are_not_shown_unless_wanted() {
    let (sentinel, _) = engine((
        FlowRule::per_second("/search", 5),
        CircuitBreakerRule::consecutive_errors("*", 1),
    ));
    call(&sentinel, "/search");
    let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("/reset/s3cr3t")) else {
        panic!("its breaker is closed");
    };
    entry.fail();
    drop(entry);
    let told = state(&Page::new(&sentinel), "&q=s3cr3t").await;
    assert!(!told.to_string().contains("s3cr3t"));
    assert_eq!(
        (&told["resources"]["listed"], &told["unlisted"]),
        (&1.into(), &1.into())
    );
    assert_eq!(told["breakers"]["unlisted_open"], 1);
    let all = state(&Page::new(&sentinel).all_resources(true), "").await;
    assert_eq!(
        (&all["resources"]["listed"], &all["unlisted"]),
        (&2.into(), &0.into())
    );
    assert_eq!(all["breakers"]["list"][0]["resource"], "/reset/s3cr3t");
}

#[tokio::test]
async fn no_origin_key_or_parameter_is_in_any_answer() {
    const MARKER: &str = "m4rk3r";
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 1).by_origin())
        .with(FlowRule::per_second("/search", 1).for_origin(MARKER))
        .with(FlowRule::per_second("/search", 1).in_context(MARKER))
        .with(
            KeyedRule::per_second("/search", 1)
                .except(MARKER, 1)
                .tier(MARKER, 2),
        )
        .with(KeyedRule::concurrency("/search", 1).by_origin())
        .with(AuthorityRule::deny("/search", [MARKER, "other"]).shadow());
    let sentinel = Sentinel::builder()
        .rules(rules)
        .origins(true)
        .contexts(true)
        .build();
    let layer = SentinelLayer::with(sentinel.clone())
        .origin(Header::from_static("x-user"))
        .param(Header::from_static("x-user"));
    let app = Router::new()
        .route("/search", get(|| async {}))
        .layer(layer);
    for _ in 0..3 {
        let request = Request::get("/search").header("x-user", MARKER);
        let request = request.body(axum::body::Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap();
        let call = Call::new("/search")
            .origin(MARKER)
            .context(MARKER)
            .param(MARKER);
        drop(sentinel.try_enter(call));
    }
    // It was counted, and would be in the whole snapshot.
    assert!(sentinel.snapshot().to_json().contains(MARKER));
    let page = Page::new(&sentinel).all_resources(true);
    for target in [
        "/",
        "/?state",
        "/?state&n=500",
        "/?state&focus=%2Fsearch",
        "/?x",
    ] {
        let request = local(target)
            .header("x-user", MARKER)
            .header("cookie", MARKER);
        let answer = ask(&page, request).await;
        assert!(
            !format!("{:?}", answer.headers()).contains(MARKER),
            "{target}"
        );
        assert!(!text(answer).await.contains(MARKER), "{target}");
    }
}

#[tokio::test]
async fn a_name_with_markup_is_a_text() {
    let name = "</script><b onclick=\"x\">\u{202e}";
    let (sentinel, _) = engine(FlowRule::per_second(name, 5).id("</script>"));
    call(&sentinel, name);
    let page = Page::new(&sentinel).title("</script>");
    let answer = text(ask(&page, local("/?state")).await).await;
    assert!(!answer.contains('<') && !answer.contains('\u{202e}'));
    assert_eq!(names(&serde_json::from_str(&answer).unwrap()), [name]);
}

#[tokio::test]
async fn the_rules_in_force_are_told_after_a_reload() {
    let (sentinel, clock) = engine(FlowRule::per_second("/search", 5));
    let page = Page::new(&sentinel);
    call(&sentinel, "/search");
    assert_eq!(state(&page, "").await["rules"]["list"][0]["limit"], "5/s");
    sentinel.reload(FlowRule::per_second("/search", 7).into());
    clock.advance(PAUSE);
    let told = state(&page, "").await;
    assert_eq!(told["rules"]["list"][0]["limit"], "7/s");
    assert_eq!(told["resources"]["nodes"][0]["limit_qps"], 7);
}

#[tokio::test]
async fn a_rule_on_costs_says_what_has_become_of_its_budget() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/chat", 5))
        .with(
            FlowRule::per_minute("/chat", 1_000)
                .cost("tokens")
                .id("all"),
        )
        .with(
            KeyedRule::per_minute("/chat", 500)
                .cost("tokens")
                .id("each"),
        );
    let (sentinel, clock) = engine(rules);
    let page = Page::new(&sentinel);
    let enter = || match sentinel.try_enter(Call::new("/chat").param("ann").reserve("tokens", 100))
    {
        Verdict::Pass(entry) => entry,
        other => panic!("{other:?}"),
    };
    let mut first = enter();
    first.settle("tokens", 40);
    drop(first);
    let _running = enter();
    drop(enter());
    let told = state(&page, "").await;
    let rules = told["rules"]["list"].as_array().unwrap();
    let limits: Vec<_> = rules
        .iter()
        .map(|rule| rule["limit"].as_str().unwrap())
        .collect();
    assert_eq!(
        limits,
        [
            "5/s",
            "1000 tokens in 1 min: 140 used, 100 reserved",
            "500 tokens in 1 min for each value: 140 charged so far, 100 reserved",
        ]
    );
    let budget = serde_json::json!({"used": 140, "reserved": 100, "charged": 140, "untold": 1});
    assert_eq!(
        (&rules[0]["budget"], &rules[1]["budget"]),
        (&Value::Null, &budget)
    );
    clock.advance(Duration::from_secs(120));
    let told = state(&page, "").await;
    let words = &told["rules"]["list"][1]["limit"];
    assert_eq!(words, "1000 tokens in 1 min: 0 used, 100 reserved");
}

#[tokio::test]
async fn a_rule_that_blocks_values_says_how_often_it_did() {
    let hour = Duration::from_secs(3_600);
    let rules = Rules::new()
        .with(KeyedRule::per_minute("/login", 1).block_for(hour))
        .with(KeyedRule::per_minute("/search", 1));
    let (sentinel, _clock) = engine(rules);
    let page = Page::new(&sentinel);
    for name in ["/login", "/search"] {
        for user in ["ann", "ann", "ann", "bob", "bob", "eve"] {
            drop(sentinel.try_enter(Call::new(name).param(user)));
        }
    }
    let told = state(&page, "").await;
    let rules = &told["rules"]["list"];
    let words = "1 in 1 min for each value, blocked for 1 h: 2 blocks so far";
    assert_eq!(
        (&rules[0]["limit"], &rules[0]["blocks"]),
        (&words.into(), &2.into())
    );
    let words = "1 in 1 min for each value";
    assert_eq!(
        (&rules[1]["limit"], &rules[1]["blocks"]),
        (&words.into(), &Value::Null)
    );
}

// === what looking costs ===

/// Rules for so many resources, and a call to each.
fn many(count: usize, clock: impl Clock) -> Sentinel {
    let name = |number| format!("/resource/{number}");
    let rules = (0..count).map(|number| FlowRule::per_second(name(number), 5));
    let sentinel = Sentinel::builder()
        .rules(Rules::build(rules).unwrap())
        .clock(clock)
        .build();
    for number in 0..count {
        call(&sentinel, &name(number));
    }
    sentinel
}

fn completed(state: &Value) -> u64 {
    let nodes = state["resources"]["nodes"].as_array().unwrap();
    let totals = nodes.iter().map(|node| &node["totals"]["complete"]);
    totals.map(|count| count.as_u64().unwrap()).sum()
}

#[tokio::test]
async fn a_state_is_read_once_for_all_requests_until_a_pause_is_over() {
    let clock = ManualClock::new();
    let sentinel = many(100, clock.clone());
    let page = Page::new(&sentinel);
    assert_eq!(completed(&state(&page, "&n=500").await), 100);
    call(&sentinel, "/resource/7");
    assert_eq!(completed(&state(&page, "&n=500").await), 100);
    let other = page.clone();
    assert_eq!(completed(&state(&other, "&n=500&sort=name").await), 100);
    // 250 ms and 0.1 ms for each resource.
    clock.advance(Duration::from_millis(259));
    assert_eq!(completed(&state(&page, "&n=500").await), 100);
    clock.advance(Duration::from_millis(1));
    assert_eq!(completed(&state(&page, "&n=500").await), 101);
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_pause_wait_for_the_next_reading() {
    let page = Page::new(&many(100, ManualClock::new()));
    let began = tokio::time::Instant::now();
    // The one that reads, and those that have at once what was read.
    for _ in 0..17 {
        state(&page, "").await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    let four = [(); 4].map(|()| state(&page, ""));
    futures_util::future::join_all(four).await;
    assert_eq!(began.elapsed().as_millis(), 260);
}

/// Counts how often it is read.
#[derive(Clone, Debug, Default)]
struct CountingClock(Arc<AtomicUsize>);

impl Clock for CountingClock {
    fn now(&self) -> Tick {
        self.0.fetch_add(1, Ordering::Relaxed);
        Tick::from_millis(600_000)
    }
}

#[tokio::test]
async fn no_poll_reads_more_than_a_few_resources() {
    const COUNT: usize = 2_000;
    let clock = CountingClock::default();
    let sentinel = many(COUNT, clock.clone());
    let readings = clock.0.load(Ordering::Relaxed);
    for query in ["/?state&n=500", "/?state&sort=name&q=7"] {
        let page = Page::new(&sentinel);
        let mut answer = pin!(page.oneshot(local(query).body(()).unwrap()));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut polls, mut all) = (0, 0);
        let answer = loop {
            let before = clock.0.load(Ordering::Relaxed);
            let polled = answer.as_mut().poll(&mut cx);
            let read = clock.0.load(Ordering::Relaxed) - before;
            assert!(read <= 80, "{read} readings of the clock in one poll");
            (polls, all) = (polls + 1, all + read);
            if let Poll::Ready(answer) = polled {
                break answer.unwrap();
            }
            // Between two polls others may read everything.
            if polls == 10 {
                assert_eq!(sentinel.snapshot().resources(), COUNT);
            }
        };
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(polls >= COUNT / 32, "{polls} polls");
        assert!(
            all >= COUNT,
            "each is read by a reading of the clock: {all}"
        );
    }
    assert!(clock.0.load(Ordering::Relaxed) > readings);
}

#[tokio::test]
async fn who_goes_away_hands_the_reading_on() {
    let page = Page::new(&many(1_000, ManualClock::new()));
    let request = || local("/?state").body(()).unwrap();
    let mut first = Box::pin(page.clone().oneshot(request()));
    let mut second = Box::pin(page.clone().oneshot(request()));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..5 {
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
    }
    drop(first);
    assert_eq!(second.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_query_that_cannot_be_read_is_an_error_that_names_it() {
    let page = page();
    let cases = [
        (
            "n=many",
            "n is \"many\", must be a whole number between 0 and 500.\n",
        ),
        (
            "sort=latency",
            "sort is \"latency\", must be refused, pass, failed, rt, in_flight or name.\n",
        ),
    ];
    for (member, told) in cases {
        let answer = ask(&page, local(&format!("/?state&{member}"))).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        assert_eq!(text(answer).await, told);
    }
}
