//! Who is counted as what: from the request on the wire to the quota that it
//! takes from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Extensions, Request, StatusCode};
use axum::routing::{any, get as on_get};
use tonic::transport::server::TcpConnectInfo;
use tower::ServiceExt;
use tower_sentinel::key::{
    Authority, ClientAddr, ForwardedIp, Head, Header, KeyExtractor, MethodRoute, Path, PeerIp,
    ResourceName, Route, cut_ip, from_fn,
};
use tower_sentinel::middleware::skip;
use tower_sentinel::read::Scope;
use tower_sentinel::{
    AuthorityRule, BlockKind, Blocked, Call, FlowRule, Key, ManualClock, MissingKey, Rules,
    Sentinel, SentinelLayer, Verdict,
};

use crate::support::caller::{answer, assert_caller, callers as callers_of, per_caller, status};
use crate::support::{Server, engine, fetch, get};

// === resources ===

/// The resource that `request` was counted as by `layer`, whose engine is new.
fn resource(layer: &SentinelLayer, request: Request<Body>) -> String {
    assert_eq!(status(layer, request), StatusCode::OK);
    let snapshot = layer.sentinel().snapshot();
    let [node] = snapshot.nodes() else {
        panic!("{snapshot:?}");
    };
    node.resource().to_owned()
}

fn templates() -> SentinelLayer {
    let rules = Rules::new()
        .with(FlowRule::per_second("/users/{id}", 100))
        .with(FlowRule::per_second("/users/me", 100))
        .with(FlowRule::per_second("/files/{*rest}", 100))
        .with(FlowRule::per_second("GET /orders/{id}", 100));
    SentinelLayer::with(engine(rules).0)
}

#[test]
fn the_default_resource_is_the_best_name_that_the_request_has() {
    let cases = [
        ("/users/7", "/users/{id}"),
        ("/users/7?q=/users/me", "/users/{id}"),
        ("http://host/users/7", "/users/{id}"),
        ("/users/me", "/users/me"),
        ("/files/a/b/c", "/files/{*rest}"),
        ("/orders/9", "/orders/{id}"),
        ("/users/7/more", "/users/7/more"),
        ("/Users/7", "/Users/7"),
        ("/users/%37", "/users/{id}"),
        ("*", "*"),
    ];
    for (target, name) in cases {
        assert_eq!(resource(&templates(), get(target)), name, "{target}");
        // A name that an earlier layer gives comes before any other.
        let mut named = get(target);
        named.extensions_mut().insert(ResourceName::new("by hand"));
        assert_eq!(resource(&templates(), named), "by hand", "{target}");
    }
}

#[tokio::test]
async fn the_route_that_axum_has_matched_comes_before_the_templates_of_rules() {
    let layer = templates();
    let app = Router::new()
        .route("/users/{name}", any(|| async {}))
        .layer(layer.clone());
    let response = app.oneshot(get("/users/7")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(layer.sentinel().node("/users/{name}").is_some());
    assert!(layer.sentinel().node("/users/{id}").is_none());
}

#[test]
fn paths_beyond_the_bound_share_the_overflow_and_its_rules() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/users/{id}", 2))
        .with(FlowRule::per_second("__overflow__", 3));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .max_resources(10)
        .build();
    let layer = SentinelLayer::with(sentinel.clone());
    let passed = (0..1_000)
        .filter(|n| status(&layer, get(&format!("/{n}"))) == StatusCode::OK)
        .count();
    assert_eq!(passed, 10 + 3);
    // What has a rule has a place, and those that have one keep it.
    let statuses = [1, 2, 3].map(|id| status(&layer, get(&format!("/users/{id}"))).as_u16());
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(status(&layer, get("/0")), StatusCode::OK);
    assert_eq!(sentinel.snapshot().resources(), 10 + 2);
}

#[test]
fn a_rule_has_a_place_also_for_an_address_or_a_number() {
    let rules = Rules::new()
        .with(FlowRule::per_second("192.0.2.7", 0))
        .with(FlowRule::per_second("7", 0));
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .max_resources(1)
        .clock(clock.clone())
        .build();
    let passes = |key: Key<'_>| matches!(sentinel.try_enter(Call::new(key)), Verdict::Pass(_));
    assert!(passes(Key::from("takes the place")));
    let addr = std::net::IpAddr::from([192, 0, 2, 7]);
    assert!(!passes(Key::from(addr)) && !passes(Key::from(7)));
    // Without their rules they do not keep places that others want.
    assert!(sentinel.reload(Rules::new()));
    for other in ["a", "b", "c", "d"] {
        clock.advance(Duration::from_secs(3_600));
        assert!(passes(Key::from(other)));
    }
    assert!(sentinel.node(addr).is_none() && sentinel.node(7).is_none());
}

#[test]
fn the_name_of_a_layer_is_that_of_all_its_calls_and_has_a_place() {
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("*", 3))
        .clock(ManualClock::new())
        .max_resources(1)
        .build();
    let layer = SentinelLayer::with(sentinel.clone());
    for path in ["/takes-the-place", "/finds-none"] {
        assert_eq!(status(&layer, get(path)), StatusCode::OK);
    }
    assert!(sentinel.node("/finds-none").is_none());

    let named = layer.resource(Path).named("api");
    let statuses = ["/a", "/b/7", "/users/7", "/a"].map(|path| status(&named, get(path)).as_u16());
    assert_eq!(statuses, [200, 200, 200, 429]);
    let mut by_hand = get("/a");
    by_hand
        .extensions_mut()
        .insert(ResourceName::new("by hand"));
    assert_eq!(status(&named, by_hand), StatusCode::TOO_MANY_REQUESTS);
    let totals = sentinel.node("api").unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (3, 2));

    // Outbound calls have it as well, and the last setting counts.
    assert_eq!(status(&named.clone().outbound(), get("/a")), StatusCode::OK);
    assert!(sentinel.outbound_node("api").is_some());
    let by_header = named.resource(Header::from_static("host"));
    let request = Request::get("/a").header("host", "/takes-the-place");
    let request = request.body(Body::empty()).unwrap();
    assert_eq!(status(&by_header, request), StatusCode::OK);
    assert_eq!(
        sentinel.node("/takes-the-place").unwrap().totals().pass(),
        2
    );
}

#[tokio::test]
async fn a_path_is_the_resource_as_it_is_written() {
    let statuses = async |app: Router, rule: &str| {
        let app = app.layer(SentinelLayer::new(FlowRule::per_second(rule, 0)));
        let ask = async |path| app.clone().oneshot(get(path)).await.unwrap().status();
        [ask("/a").await.as_u16(), ask("/%61").await.as_u16()]
    };
    let routed = Router::new().route("/a", any(|| async {}));
    assert_eq!(statuses(routed, "/a").await, [429, 404]);
    // What answers whatever is written may well answer both as the same.
    let file_server = || Router::new().fallback(|| async {});
    assert_eq!(statuses(file_server(), "/a").await, [429, 200]);
    assert_eq!(statuses(file_server(), "/{*file}").await, [429, 429]);
}

#[test]
fn an_extractor_names_the_resource() {
    fn by(extractor: impl KeyExtractor) -> SentinelLayer {
        templates().resource(extractor)
    }
    let request = |target: &str| {
        let request = Request::post(target).header("host", "shop.example:81");
        let request = request.header("x-tenant", "blue");
        request.body(Body::empty()).unwrap()
    };
    let local = "/users/7?q=1";
    let absolute = "http://api.example:8080/users/7?q=1";
    let query = from_fn(|head| head.uri().query().map(Key::Str));
    let cases = [
        (by(Path), local, "/users/7"),
        (by(Route), local, "/users/{id}"),
        (by(MethodRoute), local, "POST /users/{id}"),
        (by(MethodRoute), "/none", "POST /none"),
        (by(Authority), absolute, "api.example"),
        (by(Authority), local, "shop.example"),
        (by(Header::from_static("x-tenant")), local, "blue"),
        (by(Header::from_static("x-other")), local, "-"),
        (by(query), local, "q=1"),
        (by(query), "/users/7", "-"),
    ];
    for (layer, target, name) in cases {
        assert_eq!(resource(&layer, request(target)), name, "{target}");
    }
}

#[test]
fn two_texts_that_are_joined_are_one_resource_whatever_they_look_like() {
    let rule = FlowRule::per_second("svc list all", 1);
    let (sentinel, _clock) = engine(rule);
    let keys = [
        Key::Joined("svc", "list all"),
        Key::Joined("svc list", "all"),
        Key::from("svc list all"),
    ];
    let passed = keys.map(|key| matches!(sentinel.try_enter(Call::new(key)), Verdict::Pass(_)));
    assert_eq!(passed, [true, false, false]);
    assert_eq!(sentinel.snapshot().resources(), 1);
}

#[test]
fn methods_of_one_route_can_have_limits_of_their_own() {
    let rules = Rules::new()
        .with(FlowRule::per_second("GET /users/{id}", 2))
        .with(FlowRule::per_second("DELETE /users/{id}", 1));
    let layer = SentinelLayer::with(engine(rules).0).resource(MethodRoute);
    let passed = |method: &str| {
        let request = |id: i32| {
            let request = Request::builder().method(method);
            let request = request.uri(format!("/users/{id}"));
            request.body(Body::empty()).unwrap()
        };
        (0..5)
            .filter(|id| status(&layer, request(*id)) == StatusCode::OK)
            .count()
    };
    assert_eq!((passed("GET"), passed("DELETE"), passed("PUT")), (2, 1, 5));
    // Also where the handler of GET answers.
    assert_eq!(passed("HEAD"), 5);
}

// === callers ===

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn the_peer_is_found_wherever_a_server_leaves_it() {
    /// The peer, and how it is left with a request.
    type Source = (&'static str, fn(&mut Extensions));

    let sources: [Source; 4] = [
        ("4.4.4.4", |extensions| {
            extensions.insert(addr("4.4.4.4:4"));
        }),
        ("3.3.3.3", |extensions| {
            extensions.insert(TcpConnectInfo {
                local_addr: None,
                remote_addr: Some(addr("3.3.3.3:3")),
            });
        }),
        ("2.2.2.2", |extensions| {
            extensions.insert(ConnectInfo(addr("2.2.2.2:2")));
        }),
        ("1.1.1.1", |extensions| {
            extensions.insert(ClientAddr(addr("1.1.1.1:1")));
        }),
    ];
    for (index, (name, source)) in sources.iter().enumerate() {
        let alone = || {
            let mut request = get("/x");
            source(request.extensions_mut());
            request
        };
        assert_caller(&per_caller(PeerIp), alone, Some(name), name);
        // Each comes before those above it.
        let all = || {
            let mut request = get("/x");
            for (_, source) in &sources[..=index] {
                source(request.extensions_mut());
            }
            request
        };
        assert_caller(&per_caller(PeerIp), all, Some(name), name);
    }
    let nowhere = || get("/x");
    assert_caller(&per_caller(PeerIp), nowhere, None, "nowhere");
}

#[test]
fn an_address_that_is_cut_by_hand_is_the_key_of_a_layer() {
    for (ip, key) in [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("64:ff9b::192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::a", "2001:db8:1:2::"),
        ("::1", "::"),
    ] {
        let ip: IpAddr = ip.parse().unwrap();
        let mut request = get("/x");
        request
            .extensions_mut()
            .insert(ClientAddr(SocketAddr::new(ip, 1)));
        let head = Head::of(&request);
        assert_eq!(cut_ip(ip, 64).to_string(), key);
        assert_eq!(PeerIp.key(head), Some(Key::Ip(cut_ip(ip, 64))));
        let wide = ForwardedIp::hops(0).ipv6_prefix(48);
        assert_eq!(wide.key(head), Some(Key::Ip(cut_ip(ip, 48))));
    }
}

#[test]
fn a_client_behind_a_translator_is_known_by_its_ipv4_address() {
    type Source = fn(&mut Extensions, SocketAddr);

    let sources: [Source; 4] = [
        |extensions, addr| {
            extensions.insert(addr);
        },
        |extensions, addr| {
            extensions.insert(TcpConnectInfo {
                local_addr: None,
                remote_addr: Some(addr),
            });
        },
        |extensions, addr| {
            extensions.insert(ConnectInfo(addr));
        },
        |extensions, addr| {
            extensions.insert(ClientAddr(addr));
        },
    ];
    let own = "192.0.2.0/24".parse().unwrap();
    for source in sources {
        let from = |peer: &str| {
            let mut request = get("/x");
            source(request.extensions_mut(), addr(&format!("[{peer}]:4000")));
            request
        };
        for extractor in [
            Arc::new(PeerIp) as Arc<dyn KeyExtractor>,
            Arc::new(ForwardedIp::behind([])),
        ] {
            let layer = per_caller(extractor);
            let callers = ["64:ff9b::198.51.100.7", "::ffff:0:198.51.100.8"];
            for (caller, name) in callers.into_iter().zip(["198.51.100.7", "198.51.100.8"]) {
                assert_eq!(status(&layer, from(caller)), StatusCode::OK, "{caller}");
                let known = Scope::Origin(name.to_owned());
                assert!(callers_of(&layer).contains(&known), "{caller}");
            }
            // However the same client comes.
            let again = status(&layer, from("::ffff:198.51.100.7"));
            assert_eq!(again, StatusCode::TOO_MANY_REQUESTS);
        }

        let closed = FlowRule::per_second("/x", 0);
        let layer = SentinelLayer::new(closed).skip(skip::nets(PeerIp, [own]));
        assert_eq!(status(&layer, from("64:ff9b::192.0.2.7")), StatusCode::OK);
        let other = status(&layer, from("64:ff9b::198.51.100.7"));
        assert_eq!(other, StatusCode::TOO_MANY_REQUESTS);

        // A rule may name the client as the server sees it.
        let list = AuthorityRule::deny("/x", ["64:ff9b::c633:6407"]);
        let layer = SentinelLayer::new(list).origin(PeerIp);
        for (peer, expected) in [("64:ff9b::198.51.100.7", 403), ("64:ff9b::1.2.3.4", 200)] {
            assert_eq!(status(&layer, from(peer)).as_u16(), expected, "{peer}");
        }
    }
}

#[tokio::test]
async fn a_forwarded_address_counts_only_behind_a_trusted_peer() {
    let app = |extractor: ForwardedIp| {
        Router::new()
            .route("/x", on_get(|| async {}))
            .layer(per_caller(extractor))
    };
    let spoofed = |n: u8| {
        let request = Request::get("/x").header("x-forwarded-for", format!("6.6.6.{n}"));
        request.body(Body::empty()).unwrap()
    };
    let ours = "127.0.0.0/8".parse().unwrap();
    let others = "10.0.0.0/8".parse().unwrap();
    for (trusted, expected) in [(ours, [200, 200, 200]), (others, [200, 429, 429])] {
        let server = Server::axum(app(ForwardedIp::behind([trusted]))).await;
        let mut connection = server.connect().await;
        for (n, status) in (0..).zip(expected) {
            let response = fetch(&mut connection, spoofed(n)).await;
            assert_eq!(response.status().as_u16(), status, "{trusted}");
        }
    }
}

#[test]
fn calls_without_a_key_share_a_quota_or_are_let_go_or_refused() {
    let layer = |missing| {
        let rule = FlowRule::per_second("/x", 1).by_origin().missing(missing);
        SentinelLayer::with(engine(rule).0)
            .origin(Header::from_static("x-key"))
            .blocked_in_extensions()
    };
    let with_key = |key: &str| {
        let request = Request::get("/x").header("x-key", key);
        request.body(Body::empty()).unwrap()
    };
    let cases = [
        (MissingKey::Share, [200, 429, 429]),
        (MissingKey::Skip, [200, 200, 200]),
        (MissingKey::Refuse, [403, 403, 403]),
    ];
    for (missing, expected) in cases {
        let layer = layer(missing);
        let statuses = [(); 3].map(|()| status(&layer, get("/x")).as_u16());
        assert_eq!(statuses, expected, "{missing:?}");
        // Whoever has a key is not concerned.
        for key in ["one", "two"] {
            assert_eq!(status(&layer, with_key(key)), StatusCode::OK, "{missing:?}");
        }
    }
    let refused = answer(&layer(MissingKey::Refuse), get("/x"));
    let blocked = refused.extensions().get::<Blocked>().unwrap();
    assert_eq!(blocked.kind(), BlockKind::MissingKey);
}

#[test]
fn no_request_weighs_more_than_a_call_may() {
    let (sentinel, _clock) = engine(Rules::new());
    let layer = SentinelLayer::with(sentinel.clone()).weight(|_| u32::MAX);
    for _ in 0..3 {
        assert_eq!(status(&layer, get("/heavy")), StatusCode::OK);
    }
    let totals = sentinel.node("/heavy").unwrap().totals();
    let most = 3 * u64::from(Call::MAX_WEIGHT);
    assert_eq!((totals.pass(), totals.complete()), (most, most));
}
