//! Which rules can be shared, and what is wrong with the others.

use tower_sentinel::store::WhenDown;
use tower_sentinel::{FlowRule, KeyedRule, Rule, Rules};

use super::{SECOND, ms};

#[test]
fn what_cannot_be_shared_says_why() {
    let flow = || FlowRule::per_second("/v1", 9).shared();
    let param = || KeyedRule::per_second("/v1", 9).shared();
    let cases: Vec<(Rule, &str, &str)> = vec![
        (
            flow().throttle(SECOND).into(),
            "shared",
            "one queue and one clock cannot be shared",
        ),
        (
            flow().when("/other").into(),
            "shared",
            "nothing is taken there",
        ),
        (
            flow().for_origin("other").into(),
            "shared",
            "name the origins",
        ),
        (flow().lend(true).into(), "lend", "does not lend"),
        (
            flow().buckets(200).into(),
            "buckets",
            "at most 128 with `shared`",
        ),
        (
            flow().buckets(125).into(),
            "interval",
            "a bucket lasts 10 ms",
        ),
        (
            param().into(),
            "shared",
            "a refilled quota has no buckets to lease from",
        ),
        (param().throttle(SECOND).into(), "shared", "one queue"),
        (
            KeyedRule::concurrency("/v1", 3).shared().into(),
            "shared",
            "an owner and an expiry",
        ),
        (flow().shadow(), "shared", "in shadow mode"),
        (
            FlowRule::per_second("/v1", 9).exact().into(),
            "exact",
            "left out without `shared`",
        ),
        (
            FlowRule::per_second("/v1", 9).per_node().into(),
            "per_node",
            "without `shared`",
        ),
        (
            FlowRule::per_second("/v1", 9).local_limit(3).into(),
            "local_limit",
            "without `shared`",
        ),
        (
            FlowRule::per_second("/v1", 9).store_wait(ms(3)).into(),
            "store_wait",
            "without",
        ),
        (
            FlowRule::per_second("/v1", 9)
                .when_down(WhenDown::Open)
                .into(),
            "when_down",
            "left out without `shared`",
        ),
        (
            flow().store_wait(ms(0)).into(),
            "store_wait",
            "between 1 ms and 10 s",
        ),
        (
            flow().when_down(WhenDown::Open).local_limit(3).into(),
            "local_limit",
            "unless `when_down` is local-share",
        ),
    ];
    for (rule, field, why) in cases {
        let error = Rules::build([rule.clone()]).unwrap_err();
        let problem = &error.problems()[0];
        assert_eq!(problem.field(), field, "{error}");
        assert!(problem.allowed().contains(why), "{error}");
    }
    let error = Rules::build([flow(), flow()]).unwrap_err();
    assert_eq!(error.problems()[0].field(), "id", "{error}");
    assert!(Rules::build([flow().id("a"), flow().id("b"), flow().by_origin()]).is_ok());
}
