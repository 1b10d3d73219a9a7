//! Tests of a store that restarts with older data: from a snapshot, or as a lagging replica.

use super::*;

/// Returns the parameters of a run with windows of ten seconds, in each of which four processes
/// together make twice as many calls as the limit.
fn setup(buckets: u32) -> Setup {
    Setup {
        buckets,
        bucket: Duration::from_secs(10) / buckets,
        limit: 1_000,
        loads: [120, 50, 20, 10],
        windows: 2,
        ..Setup::default()
    }
}

/// Returns the maximum number of calls that a window admits if the store fails in the middle of a
/// window. The store is up again after `away_ms`, with its data from `saved_ms` before the failure;
/// with no data if `saved_ms` is `None`.
async fn worst(buckets: u32, saved_ms: Option<u64>, away_ms: u64) -> u32 {
    let setup = setup(buckets);
    // The run begins 600 ms into a window.
    let dies = 9_400 + 5_000;
    let log = run(setup, |ms, store, _| {
        if saved_ms.is_some_and(|before| ms == dies - before) {
            store.save();
        }
        if ms == dies {
            store.restore();
            if away_ms > 0 {
                store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
            }
        } else if ms == dies + away_ms {
            store.set_fault(Some(Fault::SlowRequest(setup.trip)));
        }
    })
    .await;
    assert!(log.total() > setup.limit, "{}", log.total());
    log.worst(buckets)
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_granted_twice_after_a_restore_from_a_snapshot() {
    for (buckets, away_ms, saved_ms) in [
        (1, 0, Some(5_000)),
        (1, 300, Some(5_000)),
        (1, 2_000, Some(1_000)),
        (1, 300, None),
        (2, 20, Some(2_500)),
        (10, 0, Some(1_000)),
        (10, 300, Some(5_000)),
        (10, 300, None),
    ] {
        let worst = worst(buckets, saved_ms, away_ms).await;
        println!("{buckets} {away_ms} {saved_ms:?}: {worst}");
        assert!(
            worst <= 1_050,
            "{worst} of 1000: {buckets} buckets, away for {away_ms} ms, saved {saved_ms:?} ms before",
        );
    }
}
