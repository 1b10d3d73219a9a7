//! A store that is slow: whatever it answers within `store_wait` counts, and what it answers later
//! fails for itself alone.

use std::time::Duration;

use tower_sentinel::store::{Fault, StoreErrorKind, StoreSettings, StoreState, WhenDown};
use tower_sentinel::{Blocked, Call, FlowRule};

use super::{Fleet, SECOND, ms};

/// Engines whose store answers after `trip`, of a wait of so many ms.
async fn slow<const N: usize>(
    rule: FlowRule,
    nodes: u32,
    wait: u64,
    fault: fn(Duration) -> Fault,
    trip: u64,
) -> Fleet {
    let settings = StoreSettings::new().nodes(nodes).store_wait(ms(wait));
    let fleet = Fleet::with::<N>(rule, settings).await;
    fleet.begin_minute().await;
    fleet.store.set_fault(Some(fault(ms(trip))));
    fleet
}

const WAYS: [fn(Duration) -> Fault; 2] = [Fault::SlowRequest, Fault::SlowAnswer];
/// A wait, and trips that take less, in ms.
const TRIPS: [(u64, &[u64]); 3] = [
    (50, &[1, 10, 24, 26, 30, 40, 45, 48]),
    (200, &[26, 60, 98, 102, 150, 190]),
    (1_000, &[300, 501, 980]),
];

/// Calls that come so far apart, each on a task of its own. Returns what became of them, in order.
async fn calls(fleet: &Fleet, count: usize, apart: Duration) -> Vec<Result<(), Blocked>> {
    let mut all = Vec::new();
    for _ in 0..count {
        let engine = fleet.engine(0).clone();
        all.push(tokio::spawn(async move {
            engine.enter(Call::new("/v1")).await.map(drop)
        }));
        if !apart.is_zero() {
            tokio::time::sleep(apart).await;
        }
    }
    let mut ends = Vec::new();
    for call in all {
        ends.push(call.await.unwrap());
    }
    ends
}

fn passed(ends: &[Result<(), Blocked>]) -> usize {
    ends.iter().filter(|end| end.is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_a_draw_on_its_way_has_its_own_answer_in_time() {
    for way in WAYS {
        for (wait, trips) in TRIPS {
            for &trip in trips {
                // The second one comes while the first one is on its way: early, late, at its end.
                for apart in [0, 1, trip / 2, trip - 1, trip + 1] {
                    let rule = FlowRule::per_minute("/v1", 2).shared().exact();
                    let fleet = slow::<1>(rule, 2, wait, way, trip).await;
                    let ends = calls(&fleet, 2, ms(apart)).await;
                    let name = format!("wait {wait}, trip {trip}, {apart} apart");
                    assert_eq!(passed(&ends), 2, "{name}: {ends:?}");
                    let status = fleet.engine(0).store().unwrap();
                    assert_eq!(status.state(), StoreState::Live, "{name}");
                    assert_eq!(status.errors(StoreErrorKind::Late), 0, "{name}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_at_once_has_all_that_the_store_has() {
    for way in WAYS {
        for (wait, trips) in TRIPS {
            for &trip in trips {
                for (exact, apart) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
                    let rule = FlowRule::per_minute("/v1", 100).shared();
                    let rule = if exact { rule.exact() } else { rule };
                    let fleet = slow::<1>(rule, 10, wait, way, trip).await;
                    let ends = calls(&fleet, 30, ms(apart)).await;
                    let name = format!("wait {wait}, trip {trip}, {apart} apart, exact {exact}");
                    assert_eq!(passed(&ends), 30, "{name}");
                    // Together they ask far fewer times than they are.
                    let most = if apart == 0 { 8 } else { 32 };
                    assert!(
                        fleet.store.trips() <= most,
                        "{name}: {}",
                        fleet.store.trips()
                    );
                }
            }
        }
    }
}

/// How many calls pass of so many a second that are offered for two seconds.
async fn passed_of(rule: FlowRule, (wait, trip): (u64, u64), per_second: u32) -> usize {
    let fleet = slow::<1>(rule, 1, wait, Fault::SlowRequest, trip).await;
    let ends = calls(&fleet, 2 * per_second as usize, SECOND / per_second).await;
    let status = fleet.engine(0).store().unwrap();
    assert_eq!(status.state(), StoreState::Live);
    passed(&ends)
}

#[tokio::test(start_paused = true)]
async fn far_below_the_limit_nobody_is_refused() {
    for (wait, trip) in [
        (50, 10),
        (50, 30),
        (50, 45),
        (200, 30),
        (200, 60),
        (200, 150),
    ] {
        for (exact, offered) in [(true, 143), (false, 143), (true, 20), (false, 400)] {
            // One bucket for all of them: in that between two of them, an answer may be of no use.
            let rule = FlowRule::per_minute("/v1", 60_000).shared();
            let rule = if exact { rule.exact() } else { rule };
            let passed = passed_of(rule, (wait, trip), offered).await;
            let name = format!("wait {wait}, trip {trip}, exact {exact}");
            assert_eq!(passed, 2 * offered as usize, "{name}");
        }
    }
    // Also where buckets are half a second, and there is time to ask in the next one.
    for (trip, offered) in [(30, 143), (60, 143), (26, 40)] {
        let rule = FlowRule::per_second("/v1", 1_000).shared().exact();
        let passed = passed_of(rule, (200, trip), offered).await;
        assert_eq!(passed, 2 * offered as usize, "after {trip} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn above_the_limit_nobody_passes_without_the_store() {
    for (wait, trip) in [
        (50, 30),
        (50, 40),
        (50, 46),
        (200, 40),
        (200, 120),
        (200, 190),
    ] {
        let rule = FlowRule::per_minute("/v1", 100).shared().exact();
        let passed = passed_of(rule.when_down(WhenDown::Open), (wait, trip), 200).await;
        assert_eq!(passed, 100, "wait {wait}, trip {trip}");
    }
    for trip in [30, 40, 60] {
        let rule = FlowRule::per_second("/v1", 100).shared().exact();
        let passed = passed_of(rule.when_down(WhenDown::Open), (200, trip), 200).await;
        assert!((150..=200).contains(&passed), "trip {trip}: {passed}");
    }
}
