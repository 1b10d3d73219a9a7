//! The status, the fields and the body of the response to a refused call.

use super::*;
use crate::blocked::Retry;
use crate::call::Criticality;

fn refused(rejection: &Http, accept: Option<&str>, blocked: &Blocked) -> Response<Bytes> {
    let mut request = http::Request::new(());
    if let Some(accept) = accept {
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
    }
    rejection.reject(Head::of(&request), blocked)
}

fn flow(retry_after: Option<Duration>) -> Blocked {
    Blocked::new(BlockKind::Flow, "/x".into(), "r\"\u{1f980}\\".into())
        .with_retry_after(retry_after)
        .with_limit(5, Duration::from_millis(1_500))
}

#[test]
fn every_kind_has_its_status_and_its_retry_after() {
    let of = |kind| Blocked::new(kind, "/x".into(), "r".into());
    let half = Some(Duration::from_millis(500));
    let in_3_s = Some(Duration::from_secs(3));
    let shed = || {
        let none = of(BlockKind::Isolation).with_limit(0, Duration::ZERO);
        none.with_criticality(Criticality::Sheddable)
    };
    let cases = [
        (flow(half), 429, Some("1")),
        (flow(Some(Duration::from_millis(1_001))), 429, Some("2")),
        (flow(Some(Duration::from_secs(7))), 429, Some("7")),
        (flow(None), 429, None),
        (
            of(BlockKind::Isolation).with_limit(3, Duration::ZERO),
            429,
            Some("1"),
        ),
        (
            of(BlockKind::Isolation).with_limit(0, Duration::ZERO),
            429,
            None,
        ),
        // An adaptive rule that admits none of this class at the moment, with and without a time.
        (shed().with_retry_after(in_3_s), 429, Some("3")),
        (shed(), 429, Some("1")),
        (of(BlockKind::NoTimer), 503, Some("1")),
        (of(BlockKind::System), 503, Some("1")),
        (of(BlockKind::MissingKey), 403, None),
        (of(BlockKind::Authority), 403, None),
    ];
    for (blocked, status, retry) in cases {
        let response = refused(&Http::new(), None, &blocked);
        assert_eq!(response.status().as_u16(), status, "{blocked:?}");
        let found = response
            .headers()
            .get(RETRY_AFTER)
            .map(|value| value.to_str().unwrap());
        assert_eq!(found, retry, "{blocked:?}");
        assert_eq!(response.headers()[CONTENT_TYPE], mark::text());
        assert!(!response.body().is_empty());
        let default = plain_text(&blocked);
        assert_eq!(default.status(), response.status(), "{blocked:?}");
        assert_eq!(default.headers(), response.headers(), "{blocked:?}");
        assert_eq!(default.body(), response.body(), "{blocked:?}");
    }
}

#[test]
fn a_client_that_asks_for_nothing_else_gets_a_text() {
    let cases = [
        (None, true),
        (Some((ACCEPT, "*/*")), true),
        (Some((ACCEPT, "application/json")), false),
        (Some((CONTENT_TYPE, "application/json")), true),
        (Some((CONTENT_TYPE, "application/grpc")), false),
    ];
    for (field, is_text) in cases {
        let fields = field.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let headers = HeaderMap::from_iter(fields);
        assert_eq!(wants_text(&headers), is_text, "{headers:?}");
    }
}

#[test]
fn clients_that_accept_problem_documents_get_them() {
    let cases = [
        (None, false),
        (Some("*/*"), false),
        (Some("text/html, application/json;q=0.9"), true),
        (Some("application/problem+json"), true),
        (Some("application/json;q=0"), false),
        (Some("application/json;Q=0.000"), false),
        (Some("APPLICATION/JSON"), true),
        // Separators and weights within quotes do not count.
        (Some(r#"application/json;x="a,b";q=0"#), false),
        (Some(r#"application/json;x="a;q=0""#), true),
        (Some(r#"text/html;x=",application/json,""#), false),
        (Some(r#"text/html;x="\",application/json,""#), false),
        (Some(r#"text/html;x="\\",application/json"#), true),
    ];
    for (accept, is_problem) in cases {
        let response = refused(&Http::new(), accept, &flow(None));
        assert_eq!(
            response.headers()[CONTENT_TYPE] == mark::problem(),
            is_problem,
            "{accept:?}"
        );
    }
    for kind in BlockKind::ALL {
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::IM_A_TEAPOT] {
            let http = Http::new().status(kind, status);
            let blocked = Blocked::new(kind, "/x".into(), "r".into());
            let response = refused(&http, Some("application/json"), &blocked);
            let value: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(value["status"], status.as_u16());
            assert_eq!(response.status(), status);
        }
    }
}

#[test]
fn a_problem_has_its_type_at_its_default_status_only() {
    let registered = |name| format!("https://iana.org/assignments/http-problem-types#{name}");
    let quota = registered("quota-exceeded");
    let capacity = registered("temporary-reduced-capacity");
    let cases = [
        (BlockKind::Flow, &*quota, "Too Many Requests", 429),
        (BlockKind::Keyed, &quota, "Too Many Requests", 429),
        (BlockKind::Isolation, &capacity, "Too Many Requests", 429),
        (BlockKind::NoTimer, &capacity, "Service Unavailable", 503),
        (BlockKind::System, "about:blank", "Service Unavailable", 503),
        (
            BlockKind::CircuitBreaker,
            "about:blank",
            "Service Unavailable",
            503,
        ),
        (BlockKind::Store, "about:blank", "Service Unavailable", 503),
        (BlockKind::Authority, "about:blank", "Forbidden", 403),
        (BlockKind::MissingKey, "about:blank", "Forbidden", 403),
    ];
    for (kind, of_type, title, status) in cases {
        let blocked = Blocked::new(kind, "/x".into(), "r".into());
        let expected = format!(r#"{{"type":"{of_type}","title":"{title}","status":{status}}}"#);
        let response = refused(&Http::new(), Some("application/json"), &blocked);
        assert_eq!(response.body(), expected.as_bytes());
        let own = Http::new().status(kind, StatusCode::IM_A_TEAPOT);
        let response = refused(&own, Some("application/json"), &blocked);
        let expected = br#"{"type":"about:blank","title":"I'm a teapot","status":418}"#;
        assert_eq!(&response.body()[..], expected);
    }
}

#[test]
fn the_documented_table_says_what_is_sent() {
    let codes = [
        ("PERMISSION_DENIED", 7),
        ("RESOURCE_EXHAUSTED", 8),
        ("UNAVAILABLE", 14),
    ];
    let mut said = 0;
    for line in include_str!("../mod.rs").lines() {
        let Some(row) = line.strip_prefix("//! | [") else {
            continue;
        };
        let is_of = |kind: &&BlockKind| row.contains(&format!("BlockKind::{kind:?})"));
        let kind = BlockKind::ALL.iter().find(is_of).expect(row);
        let terms = kind.terms();
        let (name, _) = codes.iter().find(|(_, code)| *code == terms.grpc).unwrap();
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1], terms.status.as_str(), "{kind}");
        assert_eq!(cells[2], format!("`{name}`"), "{kind}");
        assert_eq!(cells[3] == "never", terms.retry == Retry::Never, "{kind}");
        said += 1;
    }
    assert_eq!(said, BlockKind::ALL.len());
}

#[test]
fn no_cache_keeps_a_refusal() {
    let cases = [
        (429, None),
        (503, None),
        (403, None),
        (404, Some("no-store")),
        (410, Some("no-store")),
        (200, Some("no-store")),
    ];
    for (status, expected) in cases {
        let status = StatusCode::from_u16(status).unwrap();
        let http = Http::new().status(BlockKind::Flow, status);
        let response = refused(&http, None, &flow(None));
        let told = response.headers().get(CACHE_CONTROL);
        let told = told.map(|value| value.to_str().unwrap());
        assert_eq!(told, expected, "{status}");
    }
}

#[test]
fn a_status_that_has_no_body_gets_none() {
    for (status, is_empty) in [(100, true), (199, true), (204, true), (200, false)] {
        let status = StatusCode::from_u16(status).unwrap();
        let http = Http::new().status(BlockKind::Flow, status);
        let response = refused(&http, None, &flow(None));
        assert_eq!(response.body().is_empty(), is_empty, "{status}");
        assert_eq!(response.headers().contains_key(CONTENT_TYPE), !is_empty);
    }
}

#[test]
fn legacy_fields_report_the_quota() {
    let http = Http::new().fields(RateLimitFields::Legacy);
    let response = refused(&http, None, &flow(Some(Duration::from_millis(500))));
    let field = |name| response.headers()[name].to_str().unwrap();
    assert_eq!(field("x-ratelimit-limit"), "5");
    assert_eq!(field("x-ratelimit-remaining"), "0");
    assert_eq!(field("x-ratelimit-reset"), "1");

    let http = Http::new().fields(RateLimitFields::LegacyUnixTime);
    let response = refused(&http, None, &flow(None));
    let reset: u64 = response.headers()["x-ratelimit-reset"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(reset > 1_700_000_000);
}

#[test]
fn a_rules_name_never_breaks_a_field() {
    let http = Http::new().fields(RateLimitFields::Ietf);
    let response = refused(&http, None, &flow(None));
    assert_eq!(
        response.headers()["ratelimit-policy"],
        r#""r\"?\\";q=5;w=2"#
    );
    assert_eq!(response.headers()["ratelimit"], r#""r\"?\\";r=0;t=2"#);
}
