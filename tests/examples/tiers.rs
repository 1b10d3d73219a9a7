//! The example with plans: who has which quota.

use http::StatusCode;
use http::header::RETRY_AFTER;
use tokio::time::Instant;

use crate::server::Server;

/// Calls `server` with each of `keys` in turn, which are those of `who`, and checks
/// that they have a quota of `quota` a minute together, which nobody has used before.
async fn check(server: &Server, who: &str, keys: impl Iterator<Item = String>, quota: usize) {
    let mut caller = server.caller(None);
    let start = Instant::now();
    let mut passed = 0;
    for (number, key) in keys.enumerate() {
        caller.header = ("x-api-key", key);
        // Two routes, one quota.
        let path = ["/search", "/orders"][number % 2];
        let answer = caller.get(path).await;
        if answer.has_passed() {
            passed += 1;
            let body = String::from_utf8_lossy(&answer.body);
            assert!(body.contains(&format!(" for {who}")), "{body}");
        } else {
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
            let after = answer.headers[RETRY_AFTER].to_str();
            let after: usize = after.expect("it is text").parse().expect("it is a number");
            // When the next call is refilled, in whole seconds.
            assert!((1..=60_usize.div_ceil(quota)).contains(&after), "{after}");
        }
        assert!(number >= quota || passed == number + 1, "call {number}");
    }
    // It is refilled meanwhile.
    let seconds = start.elapsed().as_secs() as usize + 1;
    let most = quota + seconds * quota / 60;
    assert!((quota..=most).contains(&passed), "{passed} in {seconds} s");
}

#[tokio::test]
async fn tiers_give_each_customer_a_quota_and_made_up_keys_one_together() {
    let server = Server::start("tiers").await;
    let same = |key: &str, calls| std::iter::repeat_n(key.to_owned(), calls);
    let keys_of_ann = same("ann-4711", 3).chain(same("ann-0000", 5));
    check(&server, "ann", keys_of_ann, 5).await;
    check(&server, "bob", same("bob-0815", 8), 5).await;
    check(&server, "eve", same("eve-1234", 24), 20).await;
    let made_up = (0..8).map(|number| format!("made-up-{number}"));
    check(&server, "anybody", made_up, 5).await;
}
