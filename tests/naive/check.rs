//! Properties on random inputs, each of which counts what has happened in it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

thread_local! {
    /// How often each event has happened in the property that this thread checks.
    static SEEN: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// That has happened.
pub(crate) fn saw(event: &'static str) {
    SEEN.with_borrow_mut(|seen| *seen.entry(event).or_default() += 1);
}

/// Checks that `property` holds for so many `inputs`, and that what it is about did happen:
/// each of `events`, at least once for every twenty inputs.
#[track_caller]
pub(crate) fn check<S: Strategy>(
    cases: u32,
    inputs: S,
    events: &[&str],
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    SEEN.take();
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = None;
    let cases = config.cases;
    if let Err(failure) = TestRunner::new(config).run(&inputs, property) {
        panic!("{failure}");
    }
    let seen = SEEN.take();
    for event in events {
        let times = seen.get(event).copied().unwrap_or(0);
        assert!(
            times >= u64::from(cases) / 20,
            "{event}: {times} times, of {seen:?}"
        );
    }
}
