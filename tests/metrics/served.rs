//! How the texts are served.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
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
