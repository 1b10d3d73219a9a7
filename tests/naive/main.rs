//! The engine against a naive one: random rules and calls, equal answers.
//!
//! The naive engine of `tests/support/oracle` remembers every call for ever, and adds up what a
//! rule counts each time it is asked. `generator` makes rules, calls and reloads. A `side` is an
//! engine with its calls; a `pair` is one with a naive engine that hears the same.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "a hook of a test keeps a list")]

mod alike;
mod answers;
mod generator;
mod layers;
#[path = "../support/oracle/mod.rs"]
mod oracle;
mod pair;
mod shadows;
mod side;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod told;

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
/// each of `events`, which commas part, at least once for every twenty inputs.
#[track_caller]
pub(crate) fn check<S: Strategy>(
    cases: u32,
    inputs: S,
    events: &str,
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
    for event in events.split(", ") {
        let times = seen.get(event).copied().unwrap_or(0);
        let is_often = times >= u64::from(cases) / 20;
        assert!(is_often, "{event}: {times} times, of {seen:?}");
    }
}
