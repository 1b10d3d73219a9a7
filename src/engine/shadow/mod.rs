//! Rules in shadow mode: they refuse no calls, but hooks are notified of the calls that they would
//! refuse.
//!
//! Each rule in shadow mode has its own engine, with the statistics that it would have if it were
//! enforced as well. It judges the calls that the enforced rules let pass. A call that the shadow
//! rule lets pass as well has an entry in the rule's engine, which ends with the call. A call that
//! the rule would refuse is counted as blocked in its engine, and hooks are notified. A call that
//! the rule would make wait starts at once.
//!
//! If a shared rule in shadow mode must ask the store, the call does not wait. The rule judges it
//! once the store has answered, as if it had waited for the answer.
//!
//! A reload can put a rule into shadow mode or enforce it. So the list of shadow rules has the
//! version of its set of rules, and comes into force together with this set. A call reads the list
//! before it is judged. If the list has another version than the rules of its resource, the
//! judgement starts over.

mod list;
mod rule;

pub(crate) use list::Shadows;
pub(crate) use rule::Shadow;
