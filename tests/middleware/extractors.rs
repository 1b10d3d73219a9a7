//! Keys from queries, cookies, paths and tokens: what each request has, what a
//! client gains by spelling (nothing), and who gets to see a secret (nobody).

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::RawPathParams;
use axum::http::{HeaderValue, Request, StatusCode, Uri};
use axum::routing::any;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_sentinel::hook::{BlockEvent, ExitEvent, PassEvent};
use tower_sentinel::key::{
    Bearer, ClientAddr, Cookie, Head, Header, KeyExtractor, PathParam, PeerIp, Query, ResourceName,
    Secret, from_fn,
};
use tower_sentinel::{
    AuthorityRule, Blocked, FlowRule, Hook, Key, KeyedRule, ManualClock, MissingKey, Rules,
    Sentinel, SentinelLayer,
};

use crate::support::caller::{Probe, answer, per_caller, status};
use crate::support::get;

fn with_lines(name: &'static str, lines: &[&[u8]]) -> Request<Body> {
    let mut request = get("/x");
    for line in lines {
        let value = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

// === with a layer ===

#[test]
fn each_thing_that_a_layer_asks_for_works_alone() {
    type Ask = fn(SentinelLayer) -> SentinelLayer;
    let cases: [(Rules, Ask); 5] = [
        (AuthorityRule::deny("/x", ["bad"]).into(), |layer| {
            layer.origin(from_fn(|_| Some("bad".into())))
        }),
        (
            FlowRule::per_second("/x", 0).in_context("bad").into(),
            |layer| layer.context(from_fn(|_| Some("bad".into()))),
        ),
        (FlowRule::per_second("/x", 2).into(), |layer| {
            layer.weight(|_| 2)
        }),
        (
            KeyedRule::per_second("/x", 9).except("bad", 0).into(),
            |layer| layer.param(from_fn(|_| Some("bad".into()))),
        ),
        (
            KeyedRule::per_second("/x", 9)
                .param("who")
                .except("bad", 0)
                .into(),
            |layer| layer.param_named("who", from_fn(|_| Some("bad".into()))),
        ),
    ];
    for (index, (rules, ask)) in cases.into_iter().enumerate() {
        let sentinel = Sentinel::builder().rules(rules).clock(ManualClock::new());
        let layer = SentinelLayer::with(sentinel.build());
        let statuses = [layer.clone(), ask(layer)].map(|layer| answer(&layer, get("/x")).status());
        assert!(statuses[0].is_success(), "{index}");
        assert!(statuses[1].is_client_error(), "{index}");
    }

    let clock = ManualClock::new();
    let limit = Sentinel::builder().rules(FlowRule::per_second("/x", 1));
    let sentinel = limit.clock(clock.clone()).build();
    let layer = SentinelLayer::with(sentinel.clone()).prioritize(|_| true);
    assert!(answer(&layer, get("/x")).status().is_success());
    let mut service = layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, std::convert::Infallible>(axum::http::Response::new(Body::empty()))
    }));
    clock.advance(Duration::from_millis(600));
    let waits = service.call(get("/x"));
    assert_eq!(sentinel.node("/x").unwrap().waiting(), 1);
    drop(waits);
}

// === without a layer ===

#[test]
fn a_header_field_is_a_key_if_it_has_one_value() {
    let cases: [(&[&[u8]], Option<&str>); 9] = [
        (&[b"ann"], Some("ann")),
        (&[b"ann", b"ann"], Some("ann")),
        // Servers leave such blanks over HTTP/2.
        (&[b" ann\t"], Some("ann")),
        (&[b"ann", b" ann"], Some("ann")),
        (&[b"ann b"], Some("ann b")),
        (&[b"ann", b"bob"], None),
        (&[b""], None),
        (&[b"\xff"], None),
        (&[], None),
    ];
    for (lines, expected) in cases {
        let request = with_lines("x-user", lines);
        let header = Header::from_static("x-user");
        let found = header.key(Head::of(&request)).map(|key| key.to_string());
        assert_eq!(found.as_deref(), expected, "{lines:?}");
    }
}

#[test]
fn a_head_by_hand_says_what_the_request_does_and_has_no_templates() {
    let mut request = with_lines("x-user", &[b"ann"]);
    *request.uri_mut() = Uri::from_static("/users/7?page=2");
    let head = Head::of(&request);
    assert_eq!(
        (head.method(), head.uri()),
        (request.method(), request.uri())
    );
    assert_eq!(
        (head.route(), head.resource()),
        ("/users/7", "/users/7".into())
    );
    let of = |extractor: &dyn KeyExtractor| extractor.key(head).map(|key| key.to_string());
    assert_eq!(of(&Header::from_static("x-user")).as_deref(), Some("ann"));
    assert_eq!(of(&Query::new("page")).as_deref(), Some("2"));
    assert_eq!(of(&PathParam::new("id")), None);
    request.extensions_mut().insert(ResourceName::new("users"));
    assert_eq!(Head::of(&request).resource(), "users".into());
}

#[tokio::test]
async fn a_head_by_hand_knows_the_route_that_axum_has_matched() {
    let told = |request: Request<Body>| async move {
        let head = Head::of(&request);
        let id = PathParam::new("id").key(head);
        format!("{} {}", head.route(), id.unwrap())
    };
    let app = Router::new().route("/users/{id}", any(told));
    let response = app.oneshot(get("/users/%37")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "/users/{id} 7");
}

// === queries ===

#[test]
fn a_parameter_of_the_query_is_what_it_says() {
    let long = "v".repeat(60 * 1024);
    let long_query = format!("k={long}");
    let long_spelled = format!("k=%76{}", &long[1..]);
    let many = vec!["k=%61"; 5_000].join("&");
    let cases = [
        ("k=ann", Some("ann")),
        ("a=1&k=ann&b=2", Some("ann")),
        ("k=a%62", Some("ab")),
        ("k=a+b", Some("a b")),
        ("k=a%2Bb", Some("a+b")),
        ("k=caf%C3%A9", Some("caf\u{e9}")),
        ("k=%FF", Some("\u{fffd}")),
        ("k=%0D%0A%00", Some("\r\n\0")),
        ("k=%", Some("%")),
        ("k=a=b", Some("a=b")),
        ("%6B=ann", Some("ann")),
        // A name that only looks like it.
        ("K=ann", None),
        ("kk=ann", None),
        ("a=k=ann", None),
        ("", None),
        ("k", None),
        ("k=", None),
        ("&&&=&", None),
        // Twice.
        ("k=ann&k=ann", Some("ann")),
        ("k=ann&k=%61nn", Some("ann")),
        ("k=ann&k=bob", None),
        ("k=ann&%6b=bob", None),
        ("k=&k=ann", None),
        ("k=ann&k", None),
        (&many, Some("a")),
        (&long_query, Some(long.as_str())),
        (&long_spelled, Some(long.as_str())),
    ];
    let probe = Probe::new(Query::new("k"));
    for (query, expected) in cases {
        let key = probe.key(get(&format!("/x?{query}")));
        assert!(
            key.as_deref() == expected,
            "{:.60}: {:.60}",
            query,
            key.as_deref().unwrap_or("none")
        );
    }
    assert_eq!(probe.key(get("/x")), None);
}

#[test]
fn no_spelling_brings_a_fresh_quota() {
    let rule = FlowRule::per_second("/x", 3)
        .by_origin()
        .missing(MissingKey::Refuse);
    let layer = SentinelLayer::with(crate::support::engine(rule).0).origin(Query::new("k"));
    let long = "n".repeat(300);
    for name in ["ann", "a n", &long] {
        // Each byte as it is or in hexadecimal, in either case.
        let spellings = (0..64_u32).map(|bits| {
            let bytes = name.bytes().enumerate().map(|(index, byte)| {
                if byte == b' ' && bits & 1 == 0 {
                    return "+".to_owned();
                }
                match bits >> (2 * (index % 3)) & 3 {
                    0 if byte != b' ' => char::from(byte).to_string(),
                    0 | 1 => format!("%{byte:02x}"),
                    _ => format!("%{byte:02X}"),
                }
            });
            bytes.collect::<String>()
        });
        let passed = spellings
            .filter(|spelled| status(&layer, get(&format!("/x?k={spelled}"))) == StatusCode::OK)
            .count();
        assert_eq!(passed, 3, "{name:.10}");
        // Nor does hiding behind another value.
        let hidden = format!("/x?k={}&k=other", name.replace(' ', "+"));
        assert_eq!(status(&layer, get(&hidden)), StatusCode::FORBIDDEN);
    }
}

#[test]
fn rules_name_an_encoded_key_by_what_it_says() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/x", 0).for_origin("a b"))
        .with(KeyedRule::per_second("/x", 100).except("caf\u{e9}", 0));
    let layer = SentinelLayer::with(crate::support::engine(rules).0)
        .origin(Query::new("user"))
        .param(Query::new("q"));
    let cases = [
        ("/x?user=a+b", 429),
        ("/x?user=a%20b", 429),
        ("/x?user=a%2Bb", 200),
        ("/x?q=caf%c3%a9", 429),
        ("/x?q=cafe", 200),
    ];
    for (target, expected) in cases {
        assert_eq!(status(&layer, get(target)).as_u16(), expected, "{target}");
    }
}

#[test]
fn an_encoded_name_is_the_resource_that_it_says() {
    let rules = Rules::new().with(FlowRule::per_second("a b", 1));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .max_resources(1)
        .build();
    let layer = SentinelLayer::with(sentinel.clone()).resource(Query::new("name"));
    // The only place is taken, but what has a rule has one.
    assert_eq!(status(&layer, get("/?name=other")), StatusCode::OK);
    let statuses = ["a+b", "a%20b", "%61+b"].map(|name| {
        let target = format!("/?name={name}");
        status(&layer, get(&target)).as_u16()
    });
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(sentinel.node("a b").unwrap().totals().block(), 2);
}

// === cookies ===

#[test]
fn a_cookie_is_looked_for_on_all_lines() {
    let long = [b"k=".as_slice(), &[b'v'; 64 * 1024]].concat();
    let long_value = "v".repeat(64 * 1024);
    let cases: &[(&[&[u8]], Option<&str>)] = &[
        (&[b"k=7f3a"], Some("7f3a")),
        (&[b"a=1; k=7f3a; b=2"], Some("7f3a")),
        (&[b"a=1;k=7f3a"], Some("7f3a")),
        (&[b"a=1", b"b=2; k=7f3a"], Some("7f3a")),
        (&[b"k=\"7f3a\""], Some("7f3a")),
        (&[b" k = 7f3a "], Some("7f3a")),
        (&[b"k=%37f3a"], Some("7f3a")),
        (&[b"%6b=7f3a"], Some("7f3a")),
        (&[b"k=a+b"], Some("a+b")),
        (&[b"k=a=b"], Some("a=b")),
        (&[&long], Some(&long_value)),
        (&[], None),
        (&[b""], None),
        (&[b";;=;k"], None),
        (&[b"k="], None),
        (&[b"k=\"\""], None),
        (&[b"k=\""], Some("\"")),
        (&[b"K=7f3a"], None),
        (&[b"kk=7f3a"], None),
        (&[b"a=k=7f3a"], None),
        (&[b"k=\xff"], None),
        (&[b"k=\xc3\xa9"], None),
        // A line that is no text, and a cookie that is.
        (&[b"a=\xff; k=7f3a"], Some("7f3a")),
        // Twice.
        (&[b"k=7f3a; k=7f3a"], Some("7f3a")),
        (&[b"k=7f3a", b"k=\"%37f3a\""], Some("7f3a")),
        (&[b"k=7f3a; k=99ab"], None),
        (&[b"k=7f3a", b"k=99ab"], None),
        (&[b"k=7f3a; k="], None),
        (&[b"k=\xff; k=7f3a"], None),
    ];
    let probe = Probe::new(Cookie::new("k"));
    for (lines, expected) in cases {
        let key = probe.key(with_lines("cookie", lines));
        let line = lines
            .first()
            .map_or(&b""[..], |line| &line[..line.len().min(30)]);
        assert!(key.as_deref() == *expected, "{}", line.escape_ascii());
    }
}

// === paths ===

#[test]
fn a_parameter_of_the_path_is_what_the_matched_template_says() {
    let rules = || {
        Rules::new()
            .with(FlowRule::per_second("/users/{id}", 100))
            .with(FlowRule::per_second("/users/me", 100))
            .with(FlowRule::per_second("GET /shops/{shop}/items/{id}", 100))
            .with(FlowRule::per_second("/files/{*rest}", 100))
            .with(FlowRule::per_second("/teams/{id}/of/{id}", 100))
    };
    let cases = [
        ("/users/7", "id", Some("7")),
        ("/users/7?id=8", "id", Some("7")),
        ("/users/%37", "id", Some("7")),
        ("/users/a+b", "id", Some("a+b")),
        ("/users/%2F", "id", Some("/")),
        ("/users/me", "id", None),
        ("/users/", "id", None),
        ("/users/7/more", "id", None),
        ("/shops/5/items/6", "id", Some("6")),
        ("/shops/5/items/6", "shop", Some("5")),
        ("/shops/5/items/6", "other", None),
        ("/files/a/b%20c/", "rest", Some("a/b c/")),
        ("/files/", "rest", None),
        ("/teams/5/of/6", "id", Some("5")),
        ("/teams//of/6", "id", None),
        ("/else", "id", None),
        ("*", "id", None),
        ("http://host/users/7", "id", Some("7")),
    ];
    for (target, name, expected) in cases {
        let key = Probe::with(rules(), PathParam::new(name)).key(get(target));
        assert_eq!(key.as_deref(), expected, "{target} {name}");
    }
    // Without a rule there is no template.
    assert_eq!(Probe::new(PathParam::new("id")).key(get("/users/7")), None);
}

#[tokio::test]
async fn axum_tells_the_parameters_of_its_routes_also_inside_of_others() {
    let layer = per_caller(PathParam::new("id"));
    let layer = layer.resource(from_fn(|_| Some(Key::Str("/x"))));
    let inner = Router::new()
        .route("/{shop}/{id}", any(|| async {}))
        .layer(layer.clone());
    let app = Router::new()
        .route("/users/{id}", any(|| async {}).layer(layer))
        .nest("/shops/{owner}", inner);
    // One call for each: the second with a value is refused.
    let cases = [
        ("/users/1", 200),
        ("/users/2", 200),
        ("/users/%31", 429),
        ("/shops/a/b/1", 429),
        ("/shops/1/3/4", 200),
        ("/shops/users/9/4", 429),
    ];
    for (target, expected) in cases {
        let response = app.clone().oneshot(get(target)).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{target}");
    }
}

#[tokio::test]
async fn a_rule_below_a_route_for_the_rest_tells_its_parameters() {
    let keys = async |name: &str, paths: [&str; 3]| {
        let rule = KeyedRule::per_second("/files/{user}/{*rest}", 1);
        let rule = rule.missing(MissingKey::Refuse);
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder().rules(rule).clock(clock).build();
        let layer = SentinelLayer::with(sentinel).param(PathParam::new(name));
        let app = Router::new()
            .route("/files/{*rest}", any(|| async {}))
            .layer(layer);
        let mut statuses = Vec::new();
        for path in paths {
            let response = app.clone().oneshot(get(path)).await.unwrap();
            statuses.push(response.status().as_u16());
        }
        statuses
    };
    let paths = ["/files/ann/x", "/files/%61nn/y", "/files/bob/x"];
    assert_eq!(keys("user", paths).await, [200, 429, 200]);
    // What is named alike is the router's, as the handler reads it.
    assert_eq!(keys("rest", paths).await, [200, 200, 200]);
    assert_eq!(keys("other", paths).await, [403, 403, 403]);
}

/// axum takes the prefix of a nested service off with second slashes as well.
#[tokio::test]
async fn no_slash_brings_a_fresh_quota_of_a_path_parameter() {
    let layer = per_caller(PathParam::new("id"));
    let layer = layer.resource(from_fn(|_| Some(Key::Str("/x"))));
    let users = Router::new()
        .route("/", any(|| async {}))
        .route("/users/{id}", any(|| async {}))
        .route("/files/{*id}", any(|| async {}))
        .layer(layer);
    let shops = Router::new().nest_service("/{id}", users.clone());
    let app = Router::new()
        .nest_service("/api", users.clone())
        .nest_service("/slash/", users)
        .nest_service("/shops", shops);
    // One call for each value.
    let cases = [
        ("/api/users/1", 200),
        ("/api//users/1", 429),
        ("/api//users/2", 200),
        ("/slash/users/2", 429),
        ("/slash///users/2", 429),
        ("/api/files/a/b", 200),
        ("/api//files/a/b", 429),
        ("/shops/3", 200),
        ("/shops//3", 429),
        ("/shops//3/", 429),
        ("/shops//3//users/4", 429),
    ];
    for (target, expected) in cases {
        let response = app.clone().oneshot(get(target)).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{target}");
    }
}

/// Answers with what axum tells of the parameters, and what is found of them.
async fn compare(params: RawPathParams, request: Request<Body>) -> String {
    let names = ["a", "b", "c", "rest"];
    let read = names.map(|name| {
        let (_, value) = params.iter().find(|(param, _)| *param == name)?;
        (!value.is_empty()).then(|| value.to_owned())
    });
    let key = |name| PathParam::new(name).key(Head::of(&request));
    let found = names.map(|name| key(name).map(|key| key.to_string()));
    assert_eq!(found, read);
    format!("{found:?}")
}

/// It depends on how routers are inside of each other whether a second slash is left out, or
/// a parameter is empty.
#[tokio::test]
async fn behind_second_slashes_a_path_parameter_is_what_the_handler_reads() {
    let leaf = || {
        Router::new()
            .route("/{c}/{*rest}", any(compare))
            .route("/{c}", any(compare))
            .route("/v{c}/of/", any(compare))
            .route("/", any(compare))
    };
    let inside: fn(&str, Router) -> Router = |path, router| Router::new().nest(path, router);
    let apart: fn(&str, Router) -> Router = |path, router| Router::new().nest_service(path, router);
    let mut statuses = Vec::new();
    for (one, other) in [
        (inside, inside),
        (inside, apart),
        (apart, inside),
        (apart, apart),
    ] {
        for prefix in ["/{b}", "/api", "/api/"] {
            let app = one("/{a}", other(prefix, leaf()));
            for path in [
                "/x/api/ann/y",
                "/x//api/ann/y",
                "/x/api//ann/y%2F/%79",
                "//x/api/ann",
                "//x//api///ann/y",
                "/x//api//v7/of/",
                "/x//api//%76%37",
                "/x//api/",
                "//api",
                "//api//",
            ] {
                let response = app.clone().oneshot(get(path)).await.unwrap();
                statuses.push(response.status().as_u16());
            }
        }
    }
    let answered = statuses.iter().filter(|status| **status == 200).count();
    assert!(answered > statuses.len() / 2, "{statuses:?}");
}

/// A client chose the key: its second part, where the handler read the first.
#[tokio::test]
async fn a_slash_before_a_path_chooses_no_other_part_for_a_key() {
    let layer = per_caller(PathParam::new("id"));
    let layer = layer.resource(from_fn(|_| Some(Key::Str("/x"))));
    let inner = Router::new()
        .route("/{id}/{*rest}", any(|| async {}))
        .layer(layer);
    let app = Router::new().nest("/{tenant}", inner);
    for (path, expected) in [("/acme/7/x", 200), ("//7/y", 429), ("//7/z", 429)] {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{path}");
    }
}

#[tokio::test]
async fn a_path_that_is_rewritten_between_two_routers_keeps_its_parameters() {
    let layer = per_caller(PathParam::new("id"));
    let layer = layer.resource(from_fn(|_| Some(Key::Str("/x"))));
    let inner = Router::new()
        .route("/users/{id}", any(|| async {}))
        .route("/{tenant}/{id}/orders", any(|| async {}))
        .layer(layer);
    let without_version = |mut request: Request<Body>| {
        let path = request.uri().path().strip_prefix("/v1").unwrap();
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let inner = ServiceBuilder::new()
        .map_request(without_version)
        .service(inner);
    let app = Router::new().fallback_service(inner);
    let cases = [
        ("/v1/users/7", 200),
        ("/v1/users/7", 429),
        ("/v1/users/8", 200),
        ("/v1/acme/8/orders", 429),
        ("/v1/acme/9/orders", 200),
    ];
    for (target, expected) in cases {
        let response = app.clone().oneshot(get(target)).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{target}");
    }
}

/// The handler reads the parameter from the path that its router sees.
#[tokio::test]
async fn a_path_that_is_rewritten_brings_no_fresh_quota_of_a_path_parameter() {
    type Rewrite = fn(&str) -> String;
    let cases: [(_, Rewrite, _); 3] = [
        (
            "/users/{id}",
            |path| path.replace("/me", "/7"),
            ["/users/7", "/users/me"],
        ),
        ("/{*id}", |path| path.replace("/v1", ""), ["/a", "/v1/a"]),
        // As if another router had taken the first part off.
        (
            "/{id}/{*rest}",
            |path| path.replace("/v1", ""),
            ["/a/x", "/v1/a/x"],
        ),
    ];
    for (route, rewrite, paths) in cases {
        let layer = per_caller(PathParam::new("id"));
        let layer = layer.resource(from_fn(|_| Some(Key::Str("/x"))));
        let inner = Router::new().route(route, any(|| async {})).layer(layer);
        let rewritten = move |mut request: Request<Body>| {
            *request.uri_mut() = rewrite(request.uri().path()).parse().unwrap();
            request
        };
        let inner = ServiceBuilder::new().map_request(rewritten).service(inner);
        let app = Router::new().fallback_service(inner);
        for (path, expected) in paths.into_iter().zip([200, 429]) {
            let response = app.clone().oneshot(get(path)).await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{path}");
        }
    }
}

/// Where a prefix is dropped, before a router or behind it, only axum knows of which path its
/// parameters are.
#[tokio::test]
async fn behind_a_prefix_that_is_dropped_a_path_parameter_is_what_the_handler_reads() {
    let without_version = |mut request: Request<Body>| {
        let path = request.uri().path().replace("/v1", "");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let dropping = ServiceBuilder::new().map_request(without_version);
    let leaf = || {
        Router::new()
            .route("/{a}/{b}/{*rest}", any(compare))
            .route("/{a}/{b}", any(compare))
            .route("/{a}", any(compare))
    };
    let before = dropping.clone().service(leaf());
    let mut statuses = Vec::new();
    for app in [
        Router::new().fallback_service(before.clone()),
        Router::new().nest_service("/api", before.clone()),
        Router::new().nest_service("/{c}", before),
        Router::new().nest("/api", leaf().layer(dropping.clone())),
        leaf().layer(dropping),
    ] {
        for path in [
            "/api/v1/x/y",
            "/api/v1/x/y/z",
            "/api/v1/x/y/z/%7a",
            "/api//v1/x/y/z",
            "/api/v1//x/y/z",
            "/api/x/v1/y",
            "/v1/api/x",
        ] {
            let response = app.clone().oneshot(get(path)).await.unwrap();
            statuses.push(response.status().as_u16());
        }
    }
    let answered = statuses.iter().filter(|status| **status == 200).count();
    assert!(answered > statuses.len() / 2, "{statuses:?}");
}

// === tokens ===

#[test]
fn a_bearer_token_is_one_key_however_it_is_sent() {
    let probe = Probe::new(Bearer::new());
    let key = |lines: &[&[u8]]| probe.key(with_lines("authorization", lines));
    let same = key(&[b"Bearer abc.def"]).unwrap();
    let spellings: &[&[&[u8]]] = &[
        &[b"bearer abc.def"],
        &[b"BEARER   abc.def"],
        &[b"Bearer\tabc.def"],
        &[b" Bearer abc.def "],
        &[b"Bearer abc.def", b"Bearer abc.def"],
    ];
    for lines in spellings {
        assert_eq!(key(lines).as_ref(), Some(&same));
    }
    for line in ["Bearer abc.deF", "Bearer abc.def x", "Bearer abc"] {
        let other = key(&[line.as_bytes()]);
        assert!(other.is_some_and(|other| other != same), "{line}");
    }
    let long = [b"Bearer ".as_slice(), &[b'v'; 64 * 1024]].concat();
    assert_eq!(key(&[&long]).map(|key| key.len()), Some(same.len()));
    let none: &[&[&[u8]]] = &[
        &[],
        &[b""],
        &[b"Bearer"],
        &[b"Bearer "],
        &[b"Basic dTpw"],
        &[b"Bearerabc"],
        &[b"Bearer \xff"],
        &[b"Bearer abc.def", b"Bearer other"],
        &[b"Bearer abc.def", b"Basic dTpw"],
        &[b"Basic dTpw", b"Bearer abc.def"],
    ];
    for lines in none {
        assert_eq!(key(lines), None, "{lines:?}");
    }
}

#[test]
fn a_secret_is_the_same_in_all_clones_and_in_nothing_else() {
    let secret = Secret::new(Header::from_static("x-key"));
    let (one, clone) = (Probe::new(secret.clone()), Probe::new(secret));
    let other = Probe::new(Secret::new(Header::from_static("x-key")));
    let request = |value: &[u8]| with_lines("x-key", &[value]);
    let key = one.key(request(b"abc"));
    assert!(key.as_ref().is_some_and(|key| key.len() == 1 + 32));
    assert_eq!(clone.key(request(b"abc")), key);
    assert_ne!(one.key(request(b"abd")), key);
    assert_ne!(other.key(request(b"abc")), key);
    assert_eq!(one.key(request(b"")), None);
    // What says the same is the same secret.
    let query = Probe::new(Secret::new(Query::new("k")));
    assert_eq!(query.key(get("/x?k=ab")), query.key(get("/x?k=%61b")));
}

/// Tells everything that it is told.
#[derive(Debug)]
struct Teller(Sender<String>);

impl Teller {
    fn tell(&self, event: impl fmt::Debug, keys: [Option<Key<'_>>; 2]) {
        let keys = keys.map(|key| key.map(|key| key.to_string()));
        self.0.send(format!("{event:?} {keys:?}")).unwrap();
    }
}

impl Hook for Teller {
    fn on_pass(&self, event: &PassEvent<'_>) {
        self.tell(event, [event.origin(), event.param()]);
    }

    fn on_block(&self, event: &BlockEvent<'_>) {
        self.tell(event, [event.origin(), event.param()]);
    }

    fn on_exit(&self, event: &ExitEvent<'_>) {
        self.tell(event, [None, None]);
    }
}

/// All that can be read of an engine whose callers are known by `extractor`, and
/// of what it answers to those with `token`.
fn all_that_is_told(extractor: &(impl KeyExtractor + Clone + fmt::Debug), token: &str) -> String {
    let rules = Rules::new()
        .with(FlowRule::per_second("/x", 2).by_origin())
        .with(KeyedRule::per_second("/x", 1))
        .with(AuthorityRule::deny("/x", ["nobody"]));
    let (told, events) = channel();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .origins(true)
        .contexts(true)
        .hook("teller", Arc::new(Teller(told)))
        .build();
    let layer = SentinelLayer::with(sentinel.clone())
        .blocked_in_extensions()
        .origin(extractor.clone())
        .context(extractor.clone())
        .tier(extractor.clone())
        .param(extractor.clone());
    let mut text = format!("{extractor:?}");
    for expected in [200, 429, 429] {
        let value = format!("Bearer {token}");
        let response = answer(&layer, with_lines("authorization", &[value.as_bytes()]));
        assert_eq!(response.status().as_u16(), expected);
        if let Some(blocked) = response.extensions().get::<Blocked>() {
            text += &format!("{blocked} {blocked:?} {blocked:#?}");
        }
        text += &format!("{response:?}");
    }
    let answer = |_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(axum::http::Response::new(Body::empty()))
    };
    let mut service = layer.layer(service_fn(answer));
    let value = format!("Bearer {token}");
    let call = service.call(with_lines("authorization", &[value.as_bytes()]));
    text += &format!("{call:?} {layer:?} {sentinel:?} {sentinel:#?}");
    let snapshot = sentinel.snapshot();
    text += &format!("{snapshot:?} {}", snapshot.to_json());
    let node = sentinel.node("/x").unwrap();
    text += &format!("{node:?} {:?}", node.keyed_rules());
    drop(call);
    text.extend(events.try_iter());
    text
}

#[test]
fn no_byte_of_a_secret_is_told() {
    // No six bytes of it in a row could be a part of a hash.
    let token = "Zx9Qw7Lm2Kp4VbRtYuJhGs";
    let pieces = || {
        token
            .as_bytes()
            .windows(6)
            .map(|piece| std::str::from_utf8(piece).unwrap())
    };
    let open = all_that_is_told(&Header::from_static("authorization"), token);
    assert!(
        pieces().all(|piece| open.contains(piece)),
        "the test finds nothing"
    );
    assert!(open.matches(token).count() > 5);

    let hidden = all_that_is_told(&Bearer::new(), token)
        + &all_that_is_told(&Secret::new(Header::from_static("authorization")), token);
    for piece in pieces() {
        assert!(!hidden.contains(piece), "{piece} is told");
    }
    // The callers are counted nevertheless.
    assert!(hidden.contains("\"#"), "{hidden}");
}

// === names in rules ===

#[test]
fn an_address_as_logs_write_it_is_the_one_that_an_extractor_tells() {
    let rule = AuthorityRule::deny("/x", ["::ffff:192.0.2.7"]);
    let layer = SentinelLayer::new(rule).origin(PeerIp);
    // A socket for both versions tells callers of the older one like the first.
    for (peer, status) in [
        ("[::ffff:192.0.2.7]:1", 403),
        ("192.0.2.7:1", 403),
        ("192.0.2.8:1", 200),
    ] {
        let mut request = with_lines("x-none", &[]);
        let peer = ClientAddr(peer.parse().unwrap());
        request.extensions_mut().insert(peer);
        assert_eq!(
            answer(&layer, request).status().as_u16(),
            status,
            "{peer:?}"
        );
    }
}

// === either ===

#[test]
fn the_first_key_that_is_there_counts() {
    let user = Header::from_static("x-user").or(Query::new("user"));
    // As one of several that are chosen while the program runs.
    let either: Arc<dyn KeyExtractor> = Arc::new(user.or(PeerIp));
    let probe = Probe::new(either);
    let request = |target: &str, user: &[u8]| {
        let mut request = get(target);
        let value = HeaderValue::from_bytes(user).unwrap();
        request.headers_mut().insert("x-user", value);
        let peer = ClientAddr("192.0.2.7:1".parse().unwrap());
        request.extensions_mut().insert(peer);
        request
    };
    let cases: [(&str, &[u8], &str); 5] = [
        ("/x?user=bob", b"ann", "ann"),
        ("/x?user=bob", b"", "bob"),
        ("/x?user=bob", b"\xff", "bob"),
        ("/x?user=", b"", "192.0.2.7"),
        ("/x", b"", "192.0.2.7"),
    ];
    for (target, user, expected) in cases {
        let key = probe.key(request(target, user));
        assert_eq!(key.as_deref(), Some(expected), "{target}");
    }
    assert_eq!(probe.key(get("/x")), None);
    // A name that reads like an address is not that address.
    let layer = per_caller(Header::from_static("x-user").or(PeerIp));
    assert_eq!(status(&layer, request("/x", b"192.0.2.7")), StatusCode::OK);
    assert_eq!(status(&layer, request("/x", b"")), StatusCode::OK);
}

// === anything ===

/// The only value of `k`, as axum reads the query.
fn read_by_axum(uri: &Uri) -> Option<String> {
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).unwrap();
    let mut values = pairs.0.into_iter().filter(|pair| pair.0 == "k");
    let (_, first) = values.next()?;
    (!first.is_empty() && values.all(|(_, value)| value == first)).then_some(first)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_query_says_to_the_layer_what_it_says_to_axum(
        query in "([k&=+%]|k=|&k=|%6[bB]|%[0-9A-Fa-f]{2}|[a-c]){0,12}",
    ) {
        let request = get(&format!("/x?{query}"));
        let expected = read_by_axum(request.uri());
        prop_assert_eq!(Probe::new(Query::new("k")).key(request), expected, "{}", query);
    }

    #[test]
    fn no_request_fails_an_extractor(
        target in "/users/[!-~&&[^#]]{0,40}",
        lines in prop::collection::vec(prop::collection::vec(any_byte(), 0..40), 0..4),
        name in "[ -~]{0,3}",
    ) {
        let Ok(uri) = target.parse::<Uri>() else { return Ok(()) };
        let rules = || FlowRule::per_second("/users/{id}", 100);
        let extractors: [Arc<dyn KeyExtractor>; 5] = [
            Arc::new(Query::new(name.as_str())),
            Arc::new(Cookie::new(name.as_str())),
            Arc::new(PathParam::new("id")),
            Arc::new(Bearer::new()),
            Arc::new(Secret::new(Cookie::new(name.as_str()))),
        ];
        for extractor in extractors {
            let mut request = get("/");
            *request.uri_mut() = uri.clone();
            for line in &lines {
                let Ok(value) = HeaderValue::from_bytes(line) else { continue };
                request.headers_mut().append("cookie", value.clone());
                let mut bearer = b"Bearer ".to_vec();
                bearer.extend(line);
                let bearer = HeaderValue::from_bytes(&bearer).unwrap();
                request.headers_mut().append("authorization", bearer);
            }
            let key = Probe::with(rules(), extractor).key(request);
            prop_assert_ne!(key.as_deref(), Some(""));
        }
    }
}

fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        Just(b';'),
        Just(b'='),
        Just(b'%'),
        Just(b'"'),
        prop::num::u8::ANY
    ]
}
