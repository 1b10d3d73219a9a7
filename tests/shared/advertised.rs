//! What calls are told of shared rules: how much is left, and when to come again.

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::store::{Fault, StoreErrorKind, WhenDown};
use tower_sentinel::{Call, FlowRule, KeyedRule, Rules, SentinelLayer};

use super::{Fleet, SECOND, ms};

/// The fields of a response of the engine at `index`.
async fn fields(fleet: &Fleet, index: usize) -> HeaderMap {
    let layer =
        SentinelLayer::with(fleet.engine(index).clone()).fields(RateLimitFields::IetfDraft06);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let request = Request::get("/v1").body(()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    response.headers().clone()
}

fn number(fields: &HeaderMap, name: &str) -> u64 {
    fields[name].to_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_that_of_all_processes() {
    let rule = FlowRule::per("/v1", 10, SECOND * 20)
        .buckets(1)
        .shared()
        .exact();
    let fleet = Fleet::new::<2>(rule).await;
    for (call, left) in (0..10).rev().enumerate() {
        let fields = fields(&fleet, call % 2).await;
        assert_eq!(number(&fields, "ratelimit-limit"), 10);
        assert_eq!(number(&fields, "ratelimit-remaining"), left);
        let reset = number(&fields, "ratelimit-reset");
        assert!((1..=20).contains(&reset), "{reset}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_that_of_the_tightest_rule() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 100).id("local"))
        .with(FlowRule::per_minute("/v1", 5).buckets(1).shared().exact());
    let fleet = Fleet::new::<1>(rules).await;
    assert_eq!(number(&fields(&fleet, 0).await, "ratelimit-remaining"), 4);
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 3).id("local"))
        .with(FlowRule::per_minute("/v1", 500).buckets(1).shared().exact());
    let fleet = Fleet::new::<1>(rules).await;
    assert_eq!(number(&fields(&fleet, 0).await, "ratelimit-remaining"), 2);
}

#[tokio::test(start_paused = true)]
async fn without_the_store_the_share_is_left_or_nothing_is_told() {
    let rule = || FlowRule::per_minute("/v1", 10).shared();
    let fleet = Fleet::new::<2>(rule()).await;
    let error = Fault::Error(StoreErrorKind::Unreachable);
    fleet.store.set_fault(Some(error));
    tokio::time::sleep(SECOND).await;
    let told = fields(&fleet, 0).await;
    assert_eq!(number(&told, "ratelimit-remaining"), 4, "of five");
    let fleet = Fleet::new::<2>(rule().when_down(WhenDown::Open)).await;
    fleet.store.set_fault(Some(error));
    tokio::time::sleep(SECOND).await;
    assert!(fields(&fleet, 0).await.get("ratelimit-remaining").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_tells_when_all_rules_have_room() {
    let all = || {
        FlowRule::per("/v1", 3, SECOND * 3_600)
            .buckets(1)
            .shared()
            .exact()
            .id("all")
    };
    let each = KeyedRule::per("/v1", 3, SECOND * 2).window().id("each");
    let fleet = Fleet::new::<1>(Rules::new().with(each).with(all())).await;
    let engine = fleet.engine(0);
    let ann = Call::new("/v1").param("ann");
    assert_eq!(fleet.passed(3, ann).await, 3);
    let refused = engine
        .enter(Call::new("/v1").param("bob"))
        .await
        .unwrap_err();
    assert_eq!(refused.rule(), "all");
    assert!(refused.retry_after().unwrap() > SECOND * 60);
    // Her own quota is there again in two seconds, and that of all is not.
    let refused = engine.enter(ann).await.unwrap_err();
    assert_eq!(refused.rule(), "each");
    assert!(refused.retry_after().unwrap() > SECOND * 60);
    // Where a local rule never has room, neither has the call.
    let never = FlowRule::per_second("/v1", 0).id("never");
    engine.reload(Rules::new().with(never).with(all()));
    let refused = engine.enter(ann).await.unwrap_err();
    assert_eq!((refused.rule(), refused.retry_after()), ("all", None));
}

#[tokio::test(start_paused = true)]
async fn a_call_by_key_is_told_of_its_own_quota() {
    let rule = KeyedRule::per("/v1", 5, Duration::from_secs(40))
        .window()
        .shared()
        .exact();
    let fleet = Fleet::new::<1>(rule).await;
    // Those without a key share one.
    assert_eq!(number(&fields(&fleet, 0).await, "ratelimit-remaining"), 4);
    assert_eq!(number(&fields(&fleet, 0).await, "ratelimit-remaining"), 3);
    let ann = Call::new("/v1").param("ann");
    assert_eq!(fleet.passed(9, ann).await, 5);
    let refused = fleet.engine(0).enter(ann).await.unwrap_err();
    let after = refused.retry_after().unwrap();
    assert!(after > SECOND && after <= SECOND * 40 + ms(1), "{after:?}");
}
