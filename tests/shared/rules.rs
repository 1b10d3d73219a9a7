//! Which rules can be shared, and what is wrong with the others.

use tower_sentinel::document::{Document, Format};
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
            flow().warm_up(SECOND).into(),
            "shared",
            "one queue and one clock cannot be shared",
        ),
        (
            flow().memory(0.7..0.9, 1).into(),
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
            KeyedRule::per("/v1", 9, ms(18)).window().shared().into(),
            "interval",
            "a bucket lasts 10 ms",
        ),
        (
            FlowRule::per_second("/v1", 1 << 31).shared().into(),
            "threshold",
            "between 0 and 2147483647",
        ),
        (
            FlowRule::per_second("/v1", 1 << 31)
                .by_origin()
                .shared()
                .into(),
            "threshold",
            "between 0 and 2147483647",
        ),
        (
            KeyedRule::per_second("/v1", (1 << 30) + 1)
                .window()
                .cost("tokens")
                .shared()
                .into(),
            "threshold",
            "between 0 and 1073741824",
        ),
        (
            KeyedRule::concurrency("/v1", 3).shared().into(),
            "shared",
            "an owner and an expiry",
        ),
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

#[test]
fn kinds_that_cannot_be_shared_say_why_in_documents() {
    let cases = [
        (
            "kind = 'isolation'\nresource = '/a'\nmax = 3",
            "the permit of a call that runs would need an owner and an expiry",
        ),
        (
            "kind = 'circuit-breaker'\nresource = '/a'\nerror_count = 3",
            "such a rule judges what this process sees",
        ),
        (
            "kind = 'adaptive'\nresource = '/a'",
            "such a rule judges what this process sees",
        ),
        (
            "kind = 'system'\nqps = 3",
            "such a rule judges what this process sees",
        ),
        (
            "kind = 'authority'\nresource = '/a'\nallow = 'x'",
            "such a rule counts nothing",
        ),
    ];
    for (rule, why) in cases {
        let text = |shared: bool| format!("[store]\n[[rules]]\n{rule}\nshared = {shared}\n");
        let document = Document::read(&text(true), Format::Toml).unwrap();
        let line = text(true).lines().count();
        assert_eq!(
            document.strict().unwrap_err().to_string(),
            format!("line {line}, column 1: rules[0].shared is true, must be left out: {why}"),
        );
        let local = Document::read(&text(false), Format::Toml).unwrap();
        assert_eq!(local.strict().unwrap().len(), 1);
    }
}
