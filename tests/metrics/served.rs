//! How the texts are served.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use tower::ServiceExt;
use tower_sentinel::observe::Metrics;
use tower_sentinel::{FlowRule, Rules, Sentinel, SentinelLayer};

use crate::support::{Server, collect, fetch, get as request, send};

fn asked(method: Method, accept: &str) -> Request<Body> {
    let request = Request::builder().uri("/metrics").method(method);
    request.header(ACCEPT, accept).body(Body::empty()).unwrap()
}

async fn answer(metrics: &Metrics, request: Request<Body>) -> Response<Bytes> {
    collect(metrics.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test]
async fn a_scraper_gets_the_text_that_it_accepts() {
    let metrics = Metrics::new(&Sentinel::new(Rules::new()));
    let classic = "text/plain; version=0.0.4; charset=utf-8";
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, content_type) in [
        ("*/*", classic),
        ("text/plain", classic),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            open,
        ),
        ("application/openmetrics-text;q=0", classic),
    ] {
        let answer = answer(&metrics, asked(Method::GET, accept)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[CONTENT_TYPE], content_type);
        let length = answer.headers()[CONTENT_LENGTH].to_str().unwrap();
        assert_eq!(length, answer.body().len().to_string());
        let text = std::str::from_utf8(answer.body()).unwrap();
        assert_eq!(text.ends_with("# EOF\n"), content_type == open);
        assert!(text.contains("sentinel_engine_completed_total 0\n"));
    }
}

#[tokio::test]
async fn a_head_is_that_of_the_text_and_other_methods_are_told_off() {
    let metrics = Metrics::new(&Sentinel::new(Rules::new()));
    let head = answer(&metrics, asked(Method::HEAD, "*/*")).await;
    assert_eq!((head.status(), head.body().len()), (StatusCode::OK, 0));
    let length: usize = head.headers()[CONTENT_LENGTH]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(length > 1_000);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = answer(&metrics, asked(method, "*/*")).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()[ALLOW], "GET, HEAD");
        assert!(answer.body().is_empty());
    }
}

#[tokio::test]
async fn it_is_a_route_of_axum_beside_the_layer_and_nested() {
    let sentinel = Sentinel::new(FlowRule::per_second("/users/{id}", 0));
    let metrics = || Metrics::new(&sentinel);
    let app = Router::new()
        .route("/users/{id}", get(|| async { "a user" }))
        .route("/orders/{id}", get(|| async { "an order" }))
        .layer(SentinelLayer::with(sentinel.clone()))
        .route_service("/metrics", metrics())
        .nest_service("/ops", metrics());
    let server = Server::axum(app).await;
    let mut connection = server.connect().await;
    for path in ["/users/7", "/orders/7", "/no/such/route"] {
        send(&mut connection, request(path)).await;
    }
    for path in ["/metrics", "/ops", "/ops/"] {
        let answer = fetch(&mut connection, request(path)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let text = std::str::from_utf8(answer.body()).unwrap();
        let labels = "resource=\"/users/{id}\",direction=\"inbound\"";
        let refused = format!("sentinel_blocked_total{{{labels},reason=\"flow\"}} 1\n");
        assert!(text.contains(&refused), "{text}");
        // A matched route has series although no rule names it; a path that nothing matches
        // has none.
        assert!(text.contains("sentinel_completed_total{resource=\"/orders/{id}\""));
        assert!(!text.contains("/no/such/route"));
        // What is scraped is not limited, and counts nowhere.
        assert!(!text.contains("resource=\"/metrics\""));
    }
}

#[tokio::test]
async fn a_service_with_a_name_is_asked_for_by_its_names_and_addresses_alone() {
    let all = Metrics::new(&Sentinel::new(Rules::new()));
    let own = all.clone().host("Ops.Example.com").unwrap();
    let own = own.host("shop-7").unwrap();
    let status = async |metrics: &Metrics, host: Option<&str>| {
        let request = Request::get("/metrics");
        let request = match host {
            Some(host) => request.header(HOST, host),
            None => request,
        };
        let answer = answer(metrics, request.body(Body::empty()).unwrap()).await;
        let text = std::str::from_utf8(answer.body()).unwrap();
        assert_eq!(text.contains("sentinel"), answer.status() == StatusCode::OK);
        answer.status()
    };
    for host in [
        "ops.example.com",
        "OPS.example.com.:9090",
        "shop-7:3000",
        "192.0.2.7:3000",
        "[2001:db8::7]",
        "localhost:3000",
        "a.localhost",
    ] {
        assert_eq!(status(&own, Some(host)).await, StatusCode::OK, "{host}");
    }
    for host in [Some("evil.example"), Some("shop-8"), Some("shop-7:x"), None] {
        let told = status(&own, host).await;
        assert_eq!(told, StatusCode::FORBIDDEN, "{host:?}");
        assert_eq!(status(&all, host).await, StatusCode::OK, "{host:?}");
    }
    // HTTP/2 has the name in the target.
    let request = Request::get("http://evil.example/metrics").header(HOST, "shop-7");
    let answer = answer(&own, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    for bad in ["", "a b", "http://a", "a:80", "a/b"] {
        let told = all.clone().host(bad).unwrap_err().to_string();
        let expected = format!("host is {bad:?}, must be a name without scheme, port and path");
        assert_eq!(told, expected);
    }
}
