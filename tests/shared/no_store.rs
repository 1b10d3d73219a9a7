//! Shared rules in an engine that has no store, or that has not started it.

use std::sync::mpsc;

use tower_sentinel::hook::{Finding, FindingKind};
use tower_sentinel::rule::InvalidRule;
use tower_sentinel::source::{Watch, WatchEvent, from_fn};
use tower_sentinel::store::{MemoryStore, StoreSettings, StoreState, WhenDown};
use tower_sentinel::{Call, FlowRule, KeyedRule, Rules, Sentinel, Verdict};

#[test]
fn a_shared_rule_without_a_store_is_an_error_that_says_so() {
    let rule = || FlowRule::per_second("/v1", 9).shared();
    let message = "rule 0 (flow \"/v1\"): shared is true, must be left out where the engine has \
         no store: give it one by `Builder::store`";
    assert_eq!(
        Sentinel::try_new([rule()]).unwrap_err().to_string(),
        message
    );
    let sentinel = Sentinel::new(Rules::new());
    assert_eq!(
        sentinel.try_reload([rule()]).unwrap_err().to_string(),
        message
    );
    assert!(sentinel.rules().is_empty());
    let build = std::panic::catch_unwind(|| Sentinel::new(rule()));
    assert_eq!(
        build.unwrap_err().downcast_ref::<String>().unwrap(),
        message
    );
    let error = sentinel.start_store().unwrap_err();
    assert_eq!(error.to_string(), "the engine has no store");
    // Each one is told, and rules by a key are no other matter.
    let keyed = KeyedRule::per_second("/v2", 9).window().shared();
    let rules = Rules::new().with(rule()).with(keyed);
    let all = sentinel.try_reload(rules).unwrap_err();
    let named: Vec<_> = all.problems().iter().map(InvalidRule::index).collect();
    assert_eq!(named, [0, 1]);
}

fn passed(sentinel: &Sentinel) -> usize {
    let call = || sentinel.try_enter(Call::new("/v1"));
    (0..40)
        .filter(|_| matches!(call(), Verdict::Pass(_)))
        .count()
}

#[test]
fn a_reload_without_a_store_limits_the_process_and_says_so() {
    let (tell, told) = mpsc::channel();
    let sentinel = Sentinel::builder()
        .on_finding(move |finding: &Finding| tell.send(finding.kind()).unwrap())
        .build();
    assert!(sentinel.reload(FlowRule::per_second("/v1", 9).shared().into()));
    // By what the rule says of a store that is away, which is all of the limit for one process.
    assert_eq!(passed(&sentinel), 9);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [FindingKind::NoStore]);
    let found = sentinel.findings();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "rule \"flow-0\" for \"/v1\" is shared, and limits this process alone: give the engine a \
         store by `Builder::store`",
    );
    for (when_down, expected) in [(WhenDown::Closed, 0), (WhenDown::Open, 40)] {
        let rule = FlowRule::per_second("/v1", 9).shared().when_down(when_down);
        assert!(sentinel.reload(rule.into()));
        assert_eq!(passed(&sentinel), expected, "{when_down}");
    }
    assert!(
        sentinel
            .store()
            .is_none_or(|store| store.state() == StoreState::Idle)
    );
    // With a store there is nothing to find.
    let with = Sentinel::builder()
        .rules(FlowRule::per_second("/v1", 9).shared())
        .store(MemoryStore::new())
        .build();
    assert_eq!(passed(&with), 9);
    let kinds: Vec<_> = with.findings().iter().map(Finding::kind).collect();
    assert!(!kinds.contains(&FindingKind::NoStore), "{kinds:?}");
}

#[test]
fn a_watch_refuses_what_needs_a_store_that_is_not_there() {
    let old = Rules::from(FlowRule::per_second("/v1", 3));
    let shared = Rules::from(FlowRule::per_second("/v1", 9).shared());
    let answers = || {
        let mut answers = [shared.clone(), shared.clone(), old.clone()].into_iter();
        from_fn(move || Ok(answers.next()))
    };
    let sentinel = Sentinel::new(old.clone());
    let watch = Watch::new(sentinel.clone(), answers());
    let event = watch.poll_once().unwrap();
    assert_eq!(
        event.to_string(),
        "rules kept: rule 0 (flow \"/v1\"): shared is true, must be left out where the engine has \
         no store: give it one by `Builder::store`",
    );
    assert_eq!(sentinel.rules(), old);
    assert!(watch.poll_once().is_none(), "it is told once");
    assert!(matches!(watch.poll_once(), Some(WatchEvent::Recovered)));
    assert_eq!((watch.reloads(), passed(&sentinel)), (0, 3));
    // With a store they come into force.
    let with = Sentinel::builder()
        .rules(old.clone())
        .store(MemoryStore::new())
        .build();
    let watch = Watch::new(with.clone(), answers());
    assert!(matches!(
        watch.poll_once(),
        Some(WatchEvent::Reloaded { .. })
    ));
    assert_eq!(with.rules(), shared);
}

#[test]
fn the_store_cannot_be_started_without_a_runtime() {
    let builder = || Sentinel::builder().store(MemoryStore::new());
    let error = builder().build().start_store().unwrap_err();
    assert_eq!(error.to_string(), "there is no tokio runtime with a timer");
    let bad = std::panic::catch_unwind(|| {
        builder()
            .store_settings(StoreSettings::new().nodes(0))
            .build()
    });
    let message = bad.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert_eq!(
        message,
        "store settings: nodes is 0, must be between 1 and 65535"
    );
}
