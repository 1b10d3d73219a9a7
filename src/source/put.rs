//! Puts new rules in force while a program runs: checks, saves and loads them, or changes nothing.
//!
//! Rules are checked, then kept by a sink, and only then loaded. What may fail comes before what
//! cannot: a check changes nothing, a sink that fails has changed nothing, and rules that were
//! checked are loaded without fail. So after any failure the old rules are in force and in the
//! sink, and after success the new rules are in both.

use super::error::{SourceError, ask_user};
use super::sink::RuleSink;
use crate::rule::{InvalidRules, Rules};
use crate::sentinel::Sentinel;

/// Why rules were not put in force. The old rules stay in force.
#[derive(Debug)]
pub(crate) enum NotPut {
    /// The rules cannot be in force on this engine.
    Invalid(InvalidRules),
    /// The sink failed to save them.
    NotKept(SourceError),
}

/// Puts `after` in force in place of `before`, after `sink` has kept it. The sink is called only if
/// they differ. Returns false if the rules were in force already.
///
/// A caller that derives `after` from `before` holds the [turn](Sentinel::begin_change) meanwhile.
pub(crate) fn put(
    sentinel: &Sentinel,
    sink: &dyn RuleSink,
    before: &Rules,
    after: &Rules,
) -> Result<bool, NotPut> {
    sentinel.check_store(after).map_err(NotPut::Invalid)?;
    if before != after {
        let kept = ask_user("sink", || sink.store(before, after));
        kept.and_then(|kept| kept).map_err(NotPut::NotKept)?;
    }
    // Other rules may have come into force meanwhile. `after` replaces them, as the sink has saved
    // it.
    Ok(sentinel.reload(after.clone()))
}

impl From<NotPut> for SourceError {
    fn from(why: NotPut) -> Self {
        match why {
            NotPut::Invalid(rules) => Self::new(rules),
            NotPut::NotKept(error) => error,
        }
    }
}
