//! A quota for each key over several engines.

use std::convert::Infallible;

use http::{Request, Response};
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::Bearer;
use tower_sentinel::store::{Fault, StoreErrorKind, WhenDown};
use tower_sentinel::{BlockKind, Call, FlowRule, KeyedRule, MissingKey, Rules, SentinelLayer};

use super::{Fleet, SECOND, ms};

#[tokio::test(start_paused = true)]
async fn callers_who_are_refused_cost_the_store_nothing() {
    let rule = FlowRule::per_minute("/search", 10).by_origin().shared();
    let fleet = Fleet::new::<2>(rule).await;
    let call = Call::new("/search").origin("ann");
    assert_eq!(fleet.passed(40, call).await, 10);
    let draws = fleet.store.draws();
    assert_eq!(fleet.passed(1_000, call).await, 0);
    assert_eq!(fleet.store.draws(), draws);
    // And another caller has a quota of its own.
    assert_eq!(
        fleet.passed(40, Call::new("/search").origin("bob")).await,
        10
    );
}

#[tokio::test(start_paused = true)]
async fn each_value_of_a_parameter_has_one_quota_over_all_engines() {
    let rule = KeyedRule::per_minute("/v1", 5)
        .window()
        .except("ann", 2)
        .tier("pro", 8)
        .except_unlimited("batch")
        .tier_unlimited("enterprise")
        .shared();
    let fleet = Fleet::new::<3>(rule).await;
    let by = |user| Call::new("/v1").param(user);
    let draws = fleet.store.draws();
    assert_eq!(fleet.passed(30, by("batch").tier("pro")).await, 30);
    assert_eq!(fleet.passed(30, by("ida").tier("enterprise")).await, 30);
    assert_eq!(
        fleet.passed(30, by("ann").tier("enterprise")).await,
        2,
        "an exception goes before a tier"
    );
    assert!(
        fleet.store.draws() - draws <= 4,
        "without a limit nothing is drawn"
    );
    assert_eq!(fleet.passed(30, by("bob")).await, 5);
    assert_eq!(fleet.passed(30, by("ann")).await, 0);
    assert_eq!(fleet.passed(30, by("eve").tier("pro")).await, 8);
    assert_eq!(
        fleet.passed(30, Call::new("/v1")).await,
        5,
        "those without one share"
    );
    let refused = fleet.engine(0).enter(by("ann")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.limit()),
        (BlockKind::Keyed, Some(2))
    );
}

#[tokio::test(start_paused = true)]
async fn each_engine_knows_what_a_key_has_left_over_all_of_them() {
    let rule = KeyedRule::per_minute("/v1", 10)
        .window()
        .except("eve", 2)
        .except_unlimited("batch")
        .tier("pro", 50)
        .shared()
        .exact()
        .id("per-user");
    let fleet = Fleet::new::<2>(rule).await;
    let by = |user| Call::new("/v1").param(user);
    let view = |index: usize| {
        let views = fleet
            .engine(index)
            .node("/v1")
            .unwrap()
            .shared_keyed_rules();
        let [view] = views.try_into().unwrap();
        view
    };
    assert!(fleet.engine(0).node("/v1").is_none());
    for engine in 0..2 {
        drop(fleet.engine(engine).enter(by("eve")).await.unwrap());
    }
    assert_eq!(view(0).rule(), "per-user");
    // An engine knows what the others have taken by its own last call.
    let figures = |index, key: &'static str| (view(index).limit(key), view(index).left(key));
    assert_eq!(
        [0, 1].map(|index| figures(index, "eve")),
        [(Some(2), Some(1)), (Some(2), Some(0))]
    );
    for (call, left) in (0..10_u32).rev().enumerate() {
        let engine = call % 2;
        drop(fleet.engine(engine).enter(by("ann")).await.unwrap());
        assert_eq!(figures(engine, "ann"), (Some(10), Some(left)), "{call}");
    }
    assert!(fleet.engine(0).enter(by("ann")).await.is_err());
    assert_eq!(figures(0, "ann"), (Some(10), Some(0)));
    // Nobody has called here, no limit, and a tier of a call.
    assert_eq!(figures(0, "bob"), (Some(10), Some(10)));
    assert_eq!(figures(0, "batch"), (None, None));
    drop(fleet.engine(1).enter(by("bob").tier("pro")).await.unwrap());
    assert_eq!(figures(1, "bob"), (Some(50), Some(49)));
    // Looking takes nothing, and draws nothing.
    let draws = fleet.store.draws();
    assert_eq!(figures(1, "bob"), (Some(50), Some(49)));
    assert_eq!(fleet.store.draws(), draws);
    // A window later the whole quota is there again.
    fleet.begin_minute().await;
    assert_eq!(figures(0, "ann"), (Some(10), Some(10)));
}

#[tokio::test(start_paused = true)]
async fn what_keys_have_left_is_the_share_while_the_store_is_away() {
    let rules = [
        (WhenDown::LocalShare, [Some(4), Some(5)]),
        (WhenDown::Closed, [Some(0); 2]),
        (WhenDown::Open, [None; 2]),
    ];
    for (when_down, expected) in rules {
        let rule = FlowRule::per_minute("/v1", 10)
            .by_origin()
            .shared()
            .when_down(when_down);
        let fleet = Fleet::new::<2>(rule).await;
        let error = Fault::Error(StoreErrorKind::Unreachable);
        fleet.store.set_fault(Some(error));
        tokio::time::sleep(SECOND).await;
        let passes = fleet
            .engine(0)
            .enter(Call::new("/v1").origin("ann"))
            .await
            .is_ok();
        assert_eq!(passes, when_down != WhenDown::Closed);
        let views = fleet.engine(0).node("/v1").unwrap().shared_keyed_rules();
        let left = ["ann", "bob"].map(|key| views[0].left(key));
        assert_eq!(left, expected, "{when_down:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_beyond_a_full_table_has_its_quota_and_its_answer() {
    const PLACES: u64 = 64;
    let rule = KeyedRule::per_minute("/v1", 5)
        .window()
        .max_keys(PLACES as u32)
        .shared();
    let fleet = Fleet::new::<2>(rule).await;
    // As many as the table may hold, and as many again.
    for key in 0..PLACES * 2 {
        let call = Call::new("/v1").param(key);
        let passed = timeout(SECOND, fleet.passed(2, call)).await;
        assert_eq!(passed, Ok(2), "{key} is told nothing");
    }
    for key in [0, PLACES * 2 - 1] {
        let draws = fleet.store.draws();
        assert_eq!(
            fleet.passed(20, Call::new("/v1").param(key)).await,
            3,
            "{key}"
        );
        // At most one for each call.
        assert!(fleet.store.draws() - draws <= 20, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_key_is_what_the_rule_says() {
    let rule = |missing| {
        FlowRule::per_minute("/v1", 1)
            .by_origin()
            .missing(missing)
            .shared()
    };
    let fleet = Fleet::new::<1>(rule(MissingKey::Refuse)).await;
    let refused = fleet.engine(0).enter(Call::new("/v1")).await.unwrap_err();
    assert_eq!(refused.kind(), BlockKind::MissingKey);
    let fleet = Fleet::new::<1>(rule(MissingKey::Skip)).await;
    assert_eq!(fleet.passed(9, Call::new("/v1")).await, 9);
}

#[tokio::test(start_paused = true)]
async fn one_api_key_has_one_quota_over_three_engines() {
    let rule = || KeyedRule::per_minute("/v1", 5).window().shared();
    let fleet = Fleet::new::<3>(rule()).await;
    let request = |token: &str| {
        let token = format!("Bearer {token}");
        Request::get("/v1")
            .header("authorization", token)
            .body(())
            .unwrap()
    };
    // Each layer has an extractor of its own, as each process has.
    let services: Vec<_> = (0..3)
        .map(|index| {
            let layer = SentinelLayer::with(fleet.engine(index).clone());
            let layer = layer.param(Bearer::new().agreed("hush"));
            layer.layer(service_fn(|_: Request<()>| async {
                Ok::<_, Infallible>(Response::new(String::new()))
            }))
        })
        .collect();
    let mut passed = 0;
    for index in 0..30 {
        let service = services[index % 3].clone();
        let response = service.oneshot(request("k-1f9c")).await.unwrap();
        passed += usize::from(response.status() == 200);
    }
    assert_eq!(passed, 5);
    let response = services[0]
        .clone()
        .oneshot(request("k-77d0"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_each_process_hashes_by_itself_is_refused_loudly() {
    let fleet = Fleet::new::<1>(KeyedRule::per_minute("/v1", 5).window().shared()).await;
    let layer = SentinelLayer::with(fleet.engine(0).clone()).param(Bearer::new());
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let request = Request::get("/v1").header("authorization", "Bearer k-1f9c");
    let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 403);
}

#[tokio::test(start_paused = true)]
async fn a_key_may_have_more_than_a_lease_holds() {
    const MOST: u32 = (1 << 31) - 1;
    let keyed = KeyedRule::per("/v1", 2_000_000, 30 * 86_400 * SECOND)
        .window()
        .tier("most", MOST)
        .shared();
    // A window shorter than a second has no such limit where it is not shared.
    let short = FlowRule::per("/v2", 2_000_000, ms(500))
        .by_origin()
        .shared();
    let fleet = Fleet::new::<2>(Rules::new().with(keyed).with(short)).await;
    let month = |user| Call::new("/v1").param(user);
    let million = |call: Call<'static>| call.batch(1_000_000);
    for call in [month("ann"), Call::new("/v2").origin("ann")] {
        assert_eq!(fleet.passed(2, million(call)).await, 2);
        let refused = fleet.engine(0).enter(call).await.unwrap_err();
        assert_eq!(refused.limit(), Some(2_000_000));
    }
    assert_eq!(fleet.passed(4, month("bob").batch(500_000)).await, 4);
    assert_eq!(fleet.passed(4, month("bob")).await, 0);
    let most = month("eve").tier("most");
    assert_eq!(fleet.passed(127, most.batch(Call::MAX_WEIGHT)).await, 127);
    // 2²⁴ − 1 are left.
    let rest = most.batch(((1 << 24) - 1) / 15);
    assert_eq!(fleet.passed(15, rest).await, 15);
    assert_eq!(fleet.passed(2, most).await, 0);
}

#[tokio::test(start_paused = true)]
async fn calls_larger_than_a_lease_leave_little_of_a_quota_unused() {
    let limit = 128 * Call::MAX_WEIGHT - 1;
    let rule = KeyedRule::per_hour("/v1", limit).window().shared();
    let fleet = Fleet::new::<1>(rule).await;
    let call = Call::new("/v1").param("ann").batch(Call::MAX_WEIGHT);
    let mut passed = 0;
    for _ in 0..150 {
        passed += fleet.passed(1, call).await;
        // The demand becomes far more than a lease holds.
        tokio::time::sleep(ms(5)).await;
    }
    // The last of 127 can lack what is in the lease.
    assert!((126..=127).contains(&passed), "{passed}");
}

#[tokio::test(start_paused = true)]
async fn small_calls_get_all_of_a_large_quota() {
    let rule = KeyedRule::per_hour("/v1", 1_100_000).window().shared();
    let fleet = Fleet::new::<2>(rule).await;
    let ann = Call::new("/v1").param("ann");
    assert_eq!(fleet.passed(11_001, ann.batch(100)).await, 11_000);
    assert_eq!(fleet.passed(9, ann).await, 0);
}
