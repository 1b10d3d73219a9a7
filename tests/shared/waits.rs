//! Calls that wait for the store, or for something else as well.

use std::time::Duration;

use tower_sentinel::store::Fault;
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
    assert_eq!(waiting.delay(), ms(200));
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

/// A process of a store that answers after 20 ms, which has had a call a millisecond for so long.
async fn busy(time_ms: u32) -> (Fleet, u32) {
    let fleet = Fleet::new::<1>(FlowRule::per_second("/v1", 2_000).buckets(1).shared()).await;
    fleet.store.set_fault(Some(Fault::SlowRequest(ms(20))));
    fleet.begin_second().await;
    let mut waited_late = 0;
    for now in 0..time_ms {
        if let Verdict::Wait(waiting) = fleet.engine(0).try_enter(Call::new("/v1")) {
            waited_late += u32::from(now >= 300);
            tokio::spawn(waiting.ready());
        }
        tokio::time::sleep(ms(1)).await;
    }
    (fleet, waited_late)
}

#[tokio::test(start_paused = true)]
async fn a_load_that_lasts_waits_for_no_trip_as_long_as_the_horizon() {
    let (_, waited_late) = busy(900).await;
    assert_eq!(waited_late, 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_while_a_draw_is_on_its_way_have_what_it_brings() {
    let (fleet, _) = busy(400).await;
    // No draw is on its way any more.
    tokio::time::sleep(ms(30)).await;
    let begun = fleet.clock.now();
    let enter = || {
        let (engine, clock) = (fleet.engine(0).clone(), fleet.clock);
        tokio::spawn(async move {
            assert!(engine.enter(Call::new("/v1")).await.is_ok());
            clock.now()
        })
    };
    let burst: Vec<_> = (0..200).map(|_| enter()).collect();
    tokio::time::sleep(ms(10)).await;
    let late = enter();
    for call in burst.into_iter().chain([late]) {
        let waited = call.await.unwrap() - begun;
        assert!(waited <= ms(21), "{waited:?}");
    }
}
