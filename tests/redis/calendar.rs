//! Quotas of days and months of the calendar, over two engines of one server.

use std::time::Duration;

use tower_sentinel::{Call, KeyedRule};

use crate::redis::Server;
use crate::{passed, started, store};

const DAY: u64 = 86_400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_have_one_quota_in_the_month_of_the_server() {
    let month = || KeyedRule::per_calendar_month("/v1", 10).shared().exact();
    let day = KeyedRule::per_calendar_day("/v1", 10).shared().exact();
    for (number, rule) in [month(), month().cost("tokens"), day.utc_offset(-90)]
        .into_iter()
        .enumerate()
    {
        let Some(server) = Server::start(&format!("calendar{number}"), &[]).await else {
            return;
        };
        let wait = Duration::from_secs(5);
        let (one, _here) = started(store(&server), rule.clone(), wait).await;
        let (two, _there) = started(store(&server), rule.clone(), wait).await;
        let call = Call::new("/v1").param("ann").reserve("tokens", 1);
        assert_eq!(passed(&one, call, 6).await, 6, "{rule:?}");
        assert_eq!(passed(&two, call, 6).await, 4, "{rule:?}");
        for engine in [&one, &two] {
            assert_eq!(passed(engine, call, 6).await, 0, "{rule:?}");
            let blocked = engine.enter(call).await.unwrap_err();
            let after = blocked.retry_after().unwrap();
            assert!(after <= Duration::from_secs(31 * DAY), "{after:?}");
        }
        let view = &one.node("/v1").unwrap().shared_keyed_rules()[0];
        assert_eq!(view.reset("ann").await, Ok(true));
        assert_eq!(passed(&one, call, 12).await, 10, "{rule:?}");
        // The counter is kept for a day after it, by the server.
        let keys = server.say("KEYS ts:1:{????????????????????????????????}");
        let key = keys.lines().find(|line| line.starts_with("ts:1:")).unwrap();
        let left = server.say(&format!("TTL {}", key.trim()));
        let left: u64 = left.trim().trim_start_matches(':').parse().unwrap();
        assert!((DAY - 60..=32 * DAY).contains(&left), "{left}");
    }
}
