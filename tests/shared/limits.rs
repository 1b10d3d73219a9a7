//! How much passes where several engines share a limit.

use std::time::Duration;

use tower_sentinel::store::MemoryStore;
use tower_sentinel::{
    BlockKind, Call, FlowRule, IsolationRule, ManualClock, Rules, Sentinel, Verdict,
};

use super::{Fleet, ms};

#[tokio::test(start_paused = true)]
async fn two_engines_admit_one_limit_in_every_second() {
    let fleet = Fleet::new::<2>(FlowRule::per_second("/search", 100).buckets(1).shared()).await;
    for _ in 0..5 {
        let passed = fleet.passed(300, Call::new("/search")).await;
        // The permits that the slower one has ahead at the end are lost.
        assert!((90..=100).contains(&passed), "{passed}");
        fleet.begin_second().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_exact_rule_leaves_nothing_over() {
    let rule = FlowRule::per_second("/search", 100).shared().exact();
    let fleet = Fleet::new::<3>(rule).await;
    assert_eq!(fleet.passed(300, Call::new("/search")).await, 100);
    let refused = fleet
        .engine(0)
        .enter(Call::new("/search"))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.kind(), refused.limit()),
        (BlockKind::Flow, Some(100))
    );
    let retry_after = refused.retry_after().unwrap();
    assert!(
        retry_after > ms(900) && retry_after < ms(1_100),
        "{retry_after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rules_for_one_origin_or_context_leave_others_alone() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 2).for_origin("ann").shared())
        .with(FlowRule::per_minute("/v1", 3).in_context("batch").shared());
    let fleet = Fleet::new::<2>(rules).await;
    let call = Call::new("/v1");
    assert_eq!(fleet.passed(9, call.origin("ann")).await, 2);
    assert_eq!(fleet.passed(9, call.context("batch")).await, 3);
    assert_eq!(fleet.passed(9, call.origin("bob").context("web")).await, 9);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_one_rule_refuses_costs_the_others_nothing() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 5).shared().exact().id("all"))
        .with(
            FlowRule::per_minute("/v1", 2)
                .by_origin()
                .shared()
                .exact()
                .id("each"),
        )
        .with(FlowRule::per_minute("/v1", 3).id("local"));
    let fleet = Fleet::new::<1>(rules).await;
    let (engine, call) = (fleet.engine(0), Call::new("/v1"));
    assert_eq!(fleet.passed(9, call.origin("ann")).await, 2);
    let refused = engine.enter(call.origin("ann")).await.unwrap_err();
    assert_eq!(refused.rule(), "each");
    // Of the five for all three are left, but only one of the local rule.
    assert_eq!(fleet.passed(9, call.origin("bob")).await, 1);
    let refused = engine.enter(call.origin("eve")).await.unwrap_err();
    assert_eq!(refused.rule(), "local");
    // What was refused has given back what it had: two are still there.
    engine.reload(
        Rules::build(
            engine
                .rules()
                .into_iter()
                .filter(|rule| rule.id() != Some("local")),
        )
        .unwrap(),
    );
    assert_eq!(fleet.passed(9, call.origin("eve")).await, 2);
    assert_eq!(
        engine.enter(call.origin("zoe")).await.unwrap_err().rule(),
        "all"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_drawn_for_a_call_that_a_local_rule_refuses() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 100).shared().exact())
        .with(FlowRule::per_minute("/v1", 0).id("local"));
    let fleet = Fleet::new::<1>(rules).await;
    assert_eq!(fleet.passed(9, Call::new("/v1")).await, 0);
    assert_eq!(fleet.store.draws(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_counts_by_its_weight() {
    let fleet = Fleet::new::<2>(FlowRule::per_minute("/v1", 10).shared()).await;
    let heavy = Call::new("/v1").batch(4);
    assert_eq!(fleet.passed(6, heavy).await, 2);
    assert_eq!(fleet.passed(6, Call::new("/v1")).await, 2);
    let refused = fleet
        .engine(0)
        .enter(Call::new("/v1").batch(11))
        .await
        .unwrap_err();
    assert_eq!(refused.retry_after(), None, "it never passes");
    assert_eq!(fleet.passed(3, Call::new("/v1").batch(0)).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_limit_per_node_grows_with_the_processes() {
    let rule = FlowRule::per_minute("/v1", 10).shared().exact().per_node();
    let fleet = Fleet::new::<3>(rule).await;
    assert_eq!(fleet.passed(90, Call::new("/v1")).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_was_counted_and_goes_by_the_new_limit() {
    let rule = |limit: u32| FlowRule::per_minute("/v1", limit).shared().exact();
    let fleet = Fleet::new::<2>(rule(10)).await;
    assert_eq!(fleet.passed(40, Call::new("/v1")).await, 10);
    for (engine, _) in &fleet.engines {
        assert!(engine.try_reload([rule(12)]).unwrap());
    }
    assert_eq!(fleet.passed(40, Call::new("/v1")).await, 2);
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_permits_go_back_and_others_have_them() {
    let rule = FlowRule::per("/v1", 200, Duration::from_secs(60))
        .buckets(1)
        .shared();
    let mut fleet = Fleet::new::<2>(rule).await;
    let mut passed = 0;
    for _ in 0..100 {
        passed += usize::from(fleet.engine(0).enter(Call::new("/v1")).await.is_ok());
        tokio::time::sleep(ms(1)).await;
    }
    let (_, handle) = fleet.engines.remove(0);
    handle.shutdown().await;
    for _ in 0..200 {
        passed += usize::from(fleet.engine(0).enter(Call::new("/v1")).await.is_ok());
    }
    assert_eq!(passed, 200);
}

#[test]
fn a_permit_in_hand_comes_back_from_a_call_that_is_refused_here() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/v1", 100).shared().id("all"))
        .with(FlowRule::per_second("/v1", 3).id("local"))
        .with(IsolationRule::new("/v1", 2).id("slots"));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        // Nobody starts it: the share of the only process is in hand from the first call on.
        .store(MemoryStore::new())
        .build();
    let in_hand = || sentinel.snapshot().shared_rules()[0].in_hand();
    let refused = |call| match sentinel.try_enter(call) {
        Verdict::Block(blocked) => blocked.rule().to_owned(),
        other => panic!("{other:?}"),
    };
    let call = Call::new("/v1");
    let running = [sentinel.try_enter(call), sentinel.try_enter(call)];
    assert_eq!((refused(call), in_hand()), ("slots".to_owned(), 98));
    drop(running);
    drop(sentinel.try_enter(call));
    assert_eq!((refused(call), in_hand()), ("local".to_owned(), 97));
    // A call that is heavier than what is left is refused by the shared rule, for nothing.
    sentinel.reload(FlowRule::per_minute("/v1", 100).shared().id("all").into());
    assert_eq!((refused(call.batch(98)), in_hand()), ("all".to_owned(), 97));
    assert!(matches!(
        sentinel.try_enter(call.batch(97)),
        Verdict::Pass(_)
    ));
    assert_eq!((refused(call), in_hand()), ("all".to_owned(), 0));
}
