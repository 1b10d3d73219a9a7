//! Rules in shadow mode: hooks learn which calls they would refuse, and those run all the same.
//!
//! Each such rule is judged by an engine of its own, with the figures that it would have if it were
//! enforced beside the enforced rules. It sees the calls that those let pass. A call that it lets
//! pass as well ends there with the call itself; one that it refuses is counted as blocked in its
//! engine, and hooks are notified; one that it would let wait starts at once.
//!
//! Where a shared rule must ask the store, the call runs, and the rule judges it when the store has
//! answered: as if the call had waited for that.
//!
//! A reload may take a rule into shadow mode or out of it. So the list of those rules has the
//! version of the set that they are of, and comes into force together with that set. A call
//! looks at the list before it is judged, and is judged anew if that is of another version
//! than the rules of its resource.

mod list;
mod rule;

pub(crate) use list::Shadows;
pub(crate) use rule::Shadow;
