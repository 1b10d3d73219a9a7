//! Circuit breakers that open when the callee asks not to be called for a while.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::from_fn;
use tower_sentinel::middleware::Completion;
use tower_sentinel::read::BreakerState;
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, Entry, FlowRule, Key, Rules, Sentinel, SentinelLayer,
    Verdict,
};

use crate::support::bench::Bench;
use crate::support::{get, ms};

fn rule() -> CircuitBreakerRule {
    CircuitBreakerRule::pushback("r").id("pushed")
}

/// A call that passes.
fn pass(sentinel: &Sentinel) -> Entry {
    match sentinel.try_enter(Call::new("r")) {
        Verdict::Pass(entry) => entry,
        other => panic!("{other:?}"),
    }
}

/// After how many milliseconds a refused call may come back.
fn refused_for(sentinel: &Sentinel) -> u128 {
    match sentinel.try_enter(Call::new("r")) {
        Verdict::Block(blocked) => {
            assert_eq!(
                (blocked.kind(), blocked.rule()),
                (BlockKind::CircuitBreaker, "pushed")
            );
            blocked
                .retry_after()
                .expect("the callee said it")
                .as_millis()
        }
        other => panic!("{other:?}"),
    }
}

fn state(sentinel: &Sentinel) -> BreakerState {
    sentinel.node("r").unwrap().breakers()[0].state()
}

#[test]
fn it_is_open_for_as_long_as_the_callee_asks_for() {
    let Bench { sentinel, clock } = Bench::new(rule());
    // Nothing else opens it.
    for _ in 0..100 {
        pass(&sentinel).fail();
    }
    assert_eq!(state(&sentinel), BreakerState::Closed);
    pass(&sentinel).push_back(Duration::ZERO);
    assert_eq!(state(&sentinel), BreakerState::Closed);

    let mut entry = pass(&sentinel);
    entry.push_back(ms(7_000));
    assert_eq!(refused_for(&sentinel), 7_000, "before the call has ended");
    drop(entry);
    clock.advance(ms(6_999));
    assert_eq!(
        (state(&sentinel), refused_for(&sentinel)),
        (BreakerState::Open, 1)
    );
    clock.advance(ms(1));
    let probe = pass(&sentinel);
    assert_eq!(state(&sentinel), BreakerState::HalfOpen);
    assert!(matches!(
        sentinel.try_enter(Call::new("r")),
        Verdict::Block(_)
    ));
    drop(probe);
    assert_eq!(state(&sentinel), BreakerState::Closed);
}

#[test]
fn of_several_pushbacks_the_latest_time_counts() {
    let Bench { sentinel, clock } = Bench::new(rule());
    let mut calls: [Entry; 4] = std::array::from_fn(|_| pass(&sentinel));
    calls[0].push_back(ms(5_000));
    calls[1].push_back(ms(2_000));
    assert_eq!(refused_for(&sentinel), 5_000);
    clock.advance(ms(1_000));
    calls[2].push_back(ms(6_000));
    assert_eq!(refused_for(&sentinel), 6_000);

    // A call from before says as much as the probe does.
    clock.advance(ms(6_000));
    let probe = pass(&sentinel);
    calls[3].push_back(ms(3_000));
    assert_eq!(
        (state(&sentinel), refused_for(&sentinel)),
        (BreakerState::Open, 3_000)
    );
    drop(probe);
    assert_eq!(
        refused_for(&sentinel),
        3_000,
        "the probe decides nothing any more"
    );
}

#[test]
fn it_is_open_for_no_longer_than_the_rule_says() {
    for (rule, longest) in [(rule(), 60_000), (rule().open_up_to(ms(500)), 500)] {
        let Bench { sentinel, clock } = Bench::new(rule);
        for after in [ms(longest), Duration::from_secs(u64::MAX)] {
            pass(&sentinel).push_back(after);
            assert_eq!(refused_for(&sentinel), longest.into());
            clock.advance(ms(longest));
            drop(pass(&sentinel));
        }
    }
}

#[test]
fn however_a_probe_ends_it_closes_or_the_next_call_probes() {
    let Bench { sentinel, clock } = Bench::new(rule());
    let open = || {
        pass(&sentinel).push_back(ms(1_000));
        clock.advance(ms(1_000));
    };
    open();
    pass(&sentinel).fail();
    assert_eq!(
        state(&sentinel),
        BreakerState::Closed,
        "it was not pushed back"
    );
    for end in [Entry::cancel as fn(Entry), |mut entry: Entry| {
        entry.ignore();
    }] {
        open();
        end(pass(&sentinel));
        assert_eq!(state(&sentinel), BreakerState::Open);
        drop(pass(&sentinel));
        assert_eq!(state(&sentinel), BreakerState::Closed);
    }
    open();
    let mut probe = pass(&sentinel);
    probe.push_back(ms(4_000));
    drop(probe);
    assert_eq!(refused_for(&sentinel), 4_000);
}

#[test]
fn a_reload_keeps_it_open_and_an_operator_decides() {
    let Bench { sentinel, clock } = Bench::new(rule());
    pass(&sentinel).push_back(ms(9_000));
    sentinel.reload(Rules::from(rule().open_up_to(ms(30_000))));
    clock.advance(ms(2_000));
    assert_eq!(refused_for(&sentinel), 7_000);
    // Another breaker in its place stays open as long.
    sentinel.reload(Rules::from(
        CircuitBreakerRule::error_count("r", 1).id("pushed"),
    ));
    assert_eq!(refused_for(&sentinel), 7_000);
    sentinel.reload(Rules::from(rule()));
    assert_eq!(refused_for(&sentinel), 7_000);
    sentinel.node("r").unwrap().breakers()[0].force_close();
    let mut entry = pass(&sentinel);
    sentinel.node("r").unwrap().breakers()[0].force_open();
    entry.push_back(ms(1_000));
    drop(entry);
    clock.advance(ms(60_000));
    assert!(matches!(
        sentinel.try_enter(Call::new("r")),
        Verdict::Block(_)
    ));
}

#[test]
fn a_rule_in_shadow_mode_learns_of_it() {
    let rules = Rules::new()
        .with(rule().shadow())
        .with(FlowRule::per_second("r", 100));
    let Bench { sentinel, .. } = Bench::new(rules);
    pass(&sentinel).push_back(ms(9_000));
    drop(pass(&sentinel));
    assert_eq!(sentinel.shadows()[0].would_block(), 1);
}

/// What `layer` answers where the service answers with `status` and this `Retry-After`.
async fn answer(layer: &SentinelLayer, status: u16, after: &'static str) -> Response<Body> {
    let service = service_fn(move |_: Request<Body>| async move {
        let response = Response::builder()
            .status(status)
            .header("retry-after", after);
        Ok::<_, Infallible>(response.body(Body::empty()).unwrap())
    });
    let response = layer.layer(service).oneshot(get("/")).await.unwrap();
    response.map(Body::new)
}

fn layer(sentinel: &Sentinel) -> SentinelLayer {
    SentinelLayer::with(sentinel.clone()).resource(from_fn(|_| Some(Key::Str("r"))))
}

#[tokio::test]
async fn a_layer_reads_it_from_responses() {
    for completion in [Completion::Body, Completion::Head] {
        let Bench { sentinel, clock } = Bench::new(rule());
        let layer = layer(&sentinel).completion(completion);
        for (status, after) in [(200, "9"), (500, "9"), (429, "soon")] {
            answer(&layer, status, after).await;
            assert_eq!(state(&sentinel), BreakerState::Closed, "{status}");
        }
        for status in [429, 503] {
            let response = answer(&layer, status, "9").await;
            assert_eq!(response.status().as_u16(), status, "the service said it");
            assert_eq!(refused_for(&sentinel), 9_000, "{completion:?}");
            let refused = answer(&layer, 200, "").await;
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refused.headers()["retry-after"], "9");
            clock.advance(ms(9_000));
            answer(&layer, 200, "").await;
            assert_eq!(state(&sentinel), BreakerState::Closed);
        }
    }
}

#[tokio::test]
async fn a_refusal_of_this_program_is_no_pushback() {
    let Bench { sentinel, .. } = Bench::new(rule());
    let Bench {
        sentinel: inner, ..
    } = Bench::new(FlowRule::per("r", 1, ms(60_000)));
    let service =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let service = layer(&sentinel).layer(layer(&inner).layer(service));
    service.clone().oneshot(get("/")).await.unwrap();
    let refused = service.oneshot(get("/")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(state(&sentinel), BreakerState::Closed);
}
