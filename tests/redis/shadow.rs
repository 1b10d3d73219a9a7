//! A shared rule in shadow mode beside the same rule where it is enforced.

use std::time::Duration;

use tower_sentinel::{Call, FlowRule};

use crate::redis::Server;
use crate::{passed, started, store};

const WAIT: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn it_has_a_counter_of_its_own_over_all_processes() {
    let Some(server) = Server::start("shadow", &[]).await else {
        return;
    };
    let rule = || FlowRule::per("/v1", 8, HOUR).shared().exact();
    let enforced = started(store(&server), rule(), WAIT).await;
    let (one, two) = (
        started(store(&server), rule().shadow(), WAIT).await,
        started(store(&server), rule().shadow(), WAIT).await,
    );
    let call = Call::new("/v1");
    for (sentinel, _) in [&one, &two] {
        assert_eq!(passed(sentinel, call, 20).await, 20);
    }
    assert_eq!(passed(&enforced.0, call, 20).await, 8);
    let judged = || {
        let (mut pass, mut block) = (0, 0);
        for (sentinel, _) in [&one, &two] {
            let seen = sentinel.shadows()[0].snapshot();
            pass += seen.totals().pass();
            block += seen.totals().block();
        }
        (pass, block)
    };
    for _ in 0..2_000 {
        if judged().0 + judged().1 == 40 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(judged(), (8, 32));
    let counters = server.say("KEYS ts:1:*");
    // The other two keys are those of the beats.
    assert_eq!(counters.matches("$39").count(), 2, "{counters}");
    for (_, handle) in [enforced, one, two] {
        handle.shutdown().await;
    }
}
