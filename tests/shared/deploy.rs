//! A deploy that changes a limit, one process after the other.

use tower_sentinel::{Call, FlowRule};

use super::Fleet;

/// The first limit, and the one that the deploy brings.
async fn deploy(old: u32, new: u32, is_exact: bool) -> Vec<usize> {
    let rule = |limit: u32| {
        let rule = FlowRule::per_second("/v1", limit).buckets(1).shared();
        if is_exact { rule.exact() } else { rule }
    };
    let fleet = Fleet::new::<3>(rule(old)).await;
    let mut passed = Vec::new();
    for index in 0..6 {
        // In the middle of a second the next process has the new limit.
        let mut in_second = fleet.passed(90, Call::new("/v1")).await;
        if let Some((engine, _)) = fleet.engines.get(index) {
            assert!(engine.try_reload([rule(new)]).unwrap());
        }
        in_second += fleet.passed(300, Call::new("/v1")).await;
        passed.push(in_second);
        fleet.begin_second().await;
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_admits_no_more_than_the_larger_limit() {
    for is_exact in [true, false] {
        for (old, new) in [(100, 60), (60, 100), (120, 100)] {
            let passed = deploy(old, new, is_exact).await;
            let larger = old.max(new) as usize;
            assert!(passed.iter().all(|count| *count <= larger), "{passed:?}");
            // All have the new one in the end.
            let settled = &passed[3..];
            let new = new as usize;
            let least = if is_exact { new } else { new * 9 / 10 };
            assert!(
                settled.iter().all(|count| (least..=new).contains(count)),
                "{old} to {new}: {passed:?}"
            );
        }
    }
}
