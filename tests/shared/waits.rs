//! Calls that wait for the store, or for something else as well.

use std::time::Duration;

use tower_sentinel::{BlockKind, Call, Clock, FlowRule, IsolationRule, Rules, Verdict};

use super::{Fleet, SECOND, ms};

#[tokio::test(start_paused = true)]
async fn a_call_in_a_queue_asks_when_its_turn_has_come() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/v1", 10).throttle(SECOND))
        .with(FlowRule::per_minute("/v1", 3).shared().exact().id("all"));
    let fleet = Fleet::new::<1>(rules).await;
    let engine = fleet.engine(0);
    let start = fleet.clock.now();
    for turn in 0..3 {
        drop(engine.enter(Call::new("/v1")).await.unwrap());
        let waited = fleet.clock.now() - start;
        assert!(
            waited >= ms(100) * turn && waited < ms(100) * turn + ms(60),
            "{waited:?}"
        );
    }
    assert_eq!(
        engine.enter(Call::new("/v1")).await.unwrap_err().rule(),
        "all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_slot_takes_its_permit_with_it() {
    let rules = Rules::new()
        .with(IsolationRule::new("/v1", 1).queue(SECOND))
        .with(FlowRule::per_minute("/v1", 2).shared().exact().id("all"));
    let fleet = Fleet::new::<1>(rules).await;
    let engine = fleet.engine(0);
    let running = engine.enter(Call::new("/v1")).await.unwrap();
    let (next, ()) = tokio::join!(engine.enter(Call::new("/v1")), async {
        tokio::time::sleep(ms(300)).await;
        drop(running);
    });
    drop(next.unwrap());
    assert_eq!(
        engine.enter(Call::new("/v1")).await.unwrap_err().rule(),
        "all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_verdict_to_wait_can_be_admitted_by_hand_or_dropped() {
    let fleet = Fleet::new::<1>(FlowRule::per_minute("/v1", 2).shared().exact()).await;
    let engine = fleet.engine(0);
    let Verdict::Wait(waiting) = engine.try_enter(Call::new("/v1")) else {
        panic!("the store must be asked");
    };
    assert_eq!(waiting.delay(), ms(50));
    tokio::time::sleep(ms(5)).await;
    drop(waiting.admit().unwrap());
    // Whoever is gone before the answer leaves the permit in the lease.
    drop(engine.try_enter(Call::new("/v1")));
    tokio::time::sleep(ms(5)).await;
    assert!(matches!(
        engine.try_enter(Call::new("/v1")),
        Verdict::Pass(_)
    ));
    let Verdict::Wait(last) = engine.try_enter(Call::new("/v1")) else {
        panic!("it must be asked again");
    };
    assert!(last.ready().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_after_its_answer_refunds_its_permit() {
    let fleet = Fleet::new::<1>(FlowRule::per_minute("/v1", 1).shared().exact()).await;
    let engine = fleet.engine(0);
    let waiting = engine.try_enter(Call::new("/v1"));
    tokio::time::sleep(ms(5)).await;
    drop(waiting);
    assert!(matches!(
        engine.try_enter(Call::new("/v1")),
        Verdict::Pass(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_patience_is_refused_and_warms_the_lease() {
    let fleet = Fleet::new::<1>(FlowRule::per_minute("/v1", 1).shared()).await;
    let engine = fleet.engine(0);
    let call = Call::new("/v1").patience(Duration::ZERO);
    let Verdict::Block(blocked) = engine.try_enter(call) else {
        panic!("it does not wait");
    };
    assert_eq!(
        (blocked.kind(), blocked.retry_after()),
        (BlockKind::Store, Some(SECOND))
    );
    tokio::time::sleep(ms(5)).await;
    assert!(matches!(engine.try_enter(call), Verdict::Pass(_)));
}
