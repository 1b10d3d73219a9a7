//! Fields that tell what is left of each unit that rules count.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::any;
use tower::ServiceExt;
use tower_sentinel::key::from_fn;
use tower_sentinel::middleware::rejection::{Http, RateLimitFields};
use tower_sentinel::{FlowRule, Key, KeyedRule, Meter, Rules, Sentinel, SentinelLayer};

use crate::support::bench::Bench;
use crate::support::{get, ms};

/// Rules on requests, tokens and KiB; of tokens on all callers and on each.
fn rules() -> Rules {
    Rules::new()
        .with(FlowRule::per("/x", 100, ms(60_000)).id("rpm"))
        .with(
            FlowRule::per("/x", 10_000, ms(60_000))
                .cost("tokens")
                .id("tpm"),
        )
        .with(
            FlowRule::per("/x", 64, ms(60_000))
                .cost("KiB(out)")
                .id("kib"),
        )
        .with(
            KeyedRule::per("/x", 1_000, ms(60_000))
                .param("user")
                .window()
                .cost("tokens")
                .id("own"),
        )
}

fn layer(sentinel: &Sentinel, fields: RateLimitFields) -> SentinelLayer {
    SentinelLayer::with(sentinel.clone())
        .param_named("user", from_fn(|_| Some(Key::Str("ann"))))
        .reserve("tokens", |_| 400)
        .fields(fields)
        .reject(Http::new().fields(fields))
}

/// A router that answers with the meter of each call, which holds its reservation.
fn app(layer: SentinelLayer) -> Router {
    let answer = async |meter: Meter| {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(meter);
        response
    };
    Router::new().route("/x", any(answer)).layer(layer)
}

async fn ask(app: &Router) -> Response<Body> {
    let request: Request<Body> = get("/x");
    app.clone().oneshot(request).await.unwrap()
}

/// What the fields of `unit` say: the limit, what is left, and the reset.
fn told<'a>(response: &'a Response<Body>, unit: &str) -> [Option<&'a str>; 3] {
    ["limit", "remaining", "reset"].map(|part| {
        let value = response
            .headers()
            .get(format!("x-ratelimit-{part}-{unit}"))?;
        Some(value.to_str().unwrap())
    })
}

#[tokio::test]
async fn the_fields_of_each_unit_describe_its_tightest_rule() {
    let Bench { sentinel, .. } = Bench::new(rules());
    let app = app(layer(&sentinel, RateLimitFields::PerUnit));
    // At 10 s: a bucket leaves the windows at 60 s, or when the next one begins.
    let first = ask(&app).await;
    assert_eq!(
        told(&first, "requests"),
        [Some("100"), Some("99"), Some("50s")]
    );
    let [limit, left, _] = told(&first, "tokens");
    assert_eq!(
        (limit, left),
        (Some("1000"), Some("600")),
        "of ann, not of all"
    );
    // No name of a field may have brackets.
    let [limit, left, _] = told(&first, "kib-out-");
    assert_eq!((limit, left), (Some("64"), Some("64")));
    let second = ask(&app).await;
    assert_eq!(told(&second, "requests")[1], Some("98"));
    assert_eq!(told(&second, "tokens")[1], Some("200"));

    // The refusal is of the third rule of tokens, and says nothing of other units.
    let refused = ask(&app).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let [limit, left, reset] = told(&refused, "tokens");
    assert_eq!((limit, left), (Some("1000"), Some("0")));
    assert_eq!(reset, Some("1s"), "only reservations are in the way");
    assert_eq!(told(&refused, "requests"), [None; 3]);
}

#[tokio::test]
async fn of_two_layers_the_tightest_quota_of_each_unit_is_told() {
    let inner = Rules::new()
        .with(FlowRule::per("/x", 10, ms(60_000)))
        .with(FlowRule::per("/x", 10_000, ms(60_000)).cost("tokens"));
    let outer = Rules::new()
        .with(FlowRule::per("/x", 4, ms(60_000)))
        .with(FlowRule::per("/x", 1_000_000, ms(60_000)).cost("tokens"));
    let (inner, outer) = (Bench::new(inner).sentinel, Bench::new(outer).sentinel);
    let fields = RateLimitFields::PerUnit;
    let app = app(layer(&inner, fields)).layer(layer(&outer, fields));
    let response = ask(&app).await;
    assert_eq!(
        told(&response, "requests")[..2],
        [Some("4"), Some("3")],
        "outer"
    );
    assert_eq!(
        told(&response, "tokens")[..2],
        [Some("10000"), Some("9600")],
        "inner"
    );
}

#[tokio::test]
async fn an_upstream_that_has_nothing_left_of_a_unit_is_heard() {
    let Bench { sentinel, .. } = Bench::new(rules());
    let answer = async || {
        [
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-remaining-requests", "7"),
        ]
    };
    let app = Router::new()
        .route("/x", any(answer))
        .layer(layer(&sentinel, RateLimitFields::PerUnit));
    let response = ask(&app).await;
    assert_eq!(told(&response, "tokens"), [None, Some("0"), None]);
    assert_eq!(told(&response, "requests")[1], Some("99"));
}

#[tokio::test]
async fn a_layer_of_another_form_tells_of_no_larger_quota() {
    let small = FlowRule::per("/x", 2, ms(60_000));
    let large = FlowRule::per("/x", 100, ms(60_000));
    let (unit, number) = ("x-ratelimit-remaining-requests", "ratelimit-remaining");
    let forms = [
        (
            RateLimitFields::PerUnit,
            RateLimitFields::IetfDraft06,
            [unit, number],
        ),
        (
            RateLimitFields::IetfDraft06,
            RateLimitFields::PerUnit,
            [number, unit],
        ),
    ];
    for (inner, outer, [told, untold]) in forms {
        let (small, large) = (
            Bench::new(small.clone()).sentinel,
            Bench::new(large.clone()).sentinel,
        );
        let app = app(layer(&small, inner)).layer(layer(&large, outer));
        for (status, left) in [(200, "1"), (200, "0"), (429, "0")] {
            let response = ask(&app).await;
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()[told], left, "{inner:?}");
            assert!(!response.headers().contains_key(untold), "{outer:?}");
        }
    }
}

#[tokio::test]
async fn the_structured_field_names_the_unit_of_a_cost_only() {
    let of = async |rules: Rules| {
        let Bench { sentinel, .. } = Bench::new(rules);
        let app = app(layer(&sentinel, RateLimitFields::Ietf));
        let response = ask(&app).await;
        response.headers()["ratelimit-policy"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let rule = FlowRule::per("/x", 500, ms(60_000)).id("one");
    assert_eq!(of(rule.clone().into()).await, "\"one\";q=500;w=60");
    let told = of(rule.cost("tokens").into()).await;
    assert_eq!(told, "\"one\";q=500;w=60;qu=\"tokens\"");
}
