//! Shared rules in an engine that has no store, or that has not started it.

use tower_sentinel::store::{CannotStart, MemoryStore, StoreSettings};
use tower_sentinel::{Call, FlowRule, Rules, Sentinel, Verdict};

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
    assert_eq!(sentinel.start_store().unwrap_err(), CannotStart::NoStore);
    // Put in force all the same, it limits the process alone, by all of the limit.
    assert!(sentinel.reload(rule().into()));
    let call = || sentinel.try_enter(Call::new("/v1"));
    assert_eq!(
        (0..40)
            .filter(|_| matches!(call(), Verdict::Pass(_)))
            .count(),
        9
    );
}

#[test]
fn the_store_cannot_be_started_without_a_runtime() {
    let builder = || Sentinel::builder().store(MemoryStore::new());
    assert_eq!(
        builder().build().start_store().unwrap_err(),
        CannotStart::NoRuntime
    );
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
