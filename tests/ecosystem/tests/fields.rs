//! The fields of the IETF for quotas, read by a parser of structured fields.

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::any;
use sfv::{Item, List, ListEntry, Parser};
use tower::ServiceExt;
use tower_sentinel::middleware::rejection::{Auto, Http, RateLimitFields};
use tower_sentinel::{FlowRule, Rules, SentinelLayer};

use crate::support::bench::Bench;
use crate::support::{get, ms};

/// The one member of a list field: its name and its parameters.
fn member(headers: &HeaderMap, name: &str) -> (String, Vec<(String, i64)>) {
    let list: List = Parser::new(headers[name].as_bytes()).parse().unwrap();
    let [ListEntry::Item(Item { bare_item, params })] = &list[..] else {
        panic!("{list:?}");
    };
    let params = params.iter().map(|(key, value)| {
        let number = value.as_integer().expect("an integer");
        (key.as_str().to_owned(), i64::from(number))
    });
    let name = bare_item.as_string().expect("a string").as_str().to_owned();
    (name, params.collect())
}

#[tokio::test]
async fn the_ietf_fields_tell_every_client_what_is_left() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/x", 3).id("a \"quoted\" name"))
        .with(FlowRule::per("/x", 1_000, ms(60_000)));
    let fields = RateLimitFields::Ietf;
    let Bench { sentinel, clock } = Bench::new(rules);
    let http = Http::new().fields(fields);
    let layer = SentinelLayer::with(sentinel).fields(fields);
    let app = Router::new()
        .route("/x", any(|| async { "hello" }))
        .layer(layer.reject(Auto::new().http(http)));
    clock.advance(ms(700)); // 10.7 s
    for (remaining, reset) in [(2, 1), (1, 1), (0, 1), (0, 1)] {
        let response = app.clone().oneshot(get("/x")).await.unwrap();
        let (policy, quota) = member(response.headers(), "ratelimit-policy");
        assert_eq!(policy, "a \"quoted\" name");
        assert_eq!(quota, [("q".to_owned(), 3), ("w".to_owned(), 1)]);
        let (limit, left) = member(response.headers(), "ratelimit");
        assert_eq!(limit, "a \"quoted\" name");
        assert_eq!(left, [("r".to_owned(), remaining), ("t".to_owned(), reset)]);
    }
    let refused = app.oneshot(get("/x")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
}
