//! How a call is judged: every check, in its order.
//!
//! ```text
//! check       what it asks                                                     in
//! authority   whether its origin may call at all                               precheck.rs
//! system      whether the machine and all inbound calls leave room             precheck.rs
//! breakers    whether one refuses                                              precheck.rs
//! isolation   whether a concurrency slot of the resource is free; if the rule  slow_path.rs
//!             has a queue, a call waits for one, and is judged from the        line.rs
//!             first check on when it has it
//! narrow      whether a slot of its origin is free, where a rule limits that;  enter.rs
//! slots       and whether few enough calls of other resources run
//! origin      whether a rule by origin refuses calls without one               enter.rs
//! parameters  for a share of the quota of each value that a rule looks at; if  enter.rs
//!             that is a limit of calls at once with a queue, a call waits for  line.rs
//!             its share as it does for a slot
//! related     whether the resources that a flow rule looks at have room        enter.rs
//! queue       for a turn in each queue; a call whose turn comes later waits,   enter.rs
//!             with tokens for that time
//! lease       for permits of each shared rule: those in hand, or the call waits for  lease.rs
//!             the store, and is judged from the first check on with what it got;
//!             for one that waits for its turn or a loan, when that has come
//! place       for those slots, held until the call ends, for the probe of      enter.rs
//!             each circuit breaker that is open and due, and for what the call
//!             reserves of each limit on costs
//! tokens      for tokens of each ring: of the origin, the context, the         enter.rs
//!             resource
//! loan        where a ring has none and the call is prioritized: for tokens    wait.rs
//!             of a bucket to come
//! shadow      rules in shadow mode, of calls that the others let pass          ../shadow.rs
//! ```
//!
//! The order is the semantics, and is written down here only: cheap checks come first, and a call
//! waits only when all that may refuse it have been asked. Everything that was taken is returned
//! when a later check refuses. A call waits for its turn and for loans once, until the latest of
//! the times at which it can run. It may wait for a slot or a share before, holding nothing, and
//! for a slot after, if it finds none then.
//!
//! Most calls need hardly any of these checks. Which ones is known when the resource is
//! made: its [`PathKind`](crate::engine::resource::PathKind).
//!
//! ```text
//! path               checks                                    function
//! Fast               fixed slots, the ring                     try_fast_path
//! FastBesideRing     the same, and one ring of a rule          try_beside_ring
//! FastAfterLease     as Fast, after permits in hand of one     try_after_lease; judge where they
//!                    shared rule for all calls together        are not there, and for calls as in
//!                                                              the next but one
//! FastAfterBreakers  as Fast, after breakers                   try_fast_path; judge unless all
//!                                                              are closed
//! FastAfterParam     as Fast, after one rule on a parameter    try_fast_path; judge for calls
//!                    with no queue and no limit at once        that may wait or show their quota
//! FastAdaptive       as Fast, with the slots of an adaptive    try_fast_path
//!                    limit
//! Full               anything                                  judge
//! ```
//!
//! Every call to a known resource begins in [`try_fast_path`], which stops at once where it is not
//! the path of the resource: there are functions of their own for a resource with a ring beside its
//! own, [`try_beside_ring`], and for one with a shared rule, [`try_after_lease`]. Then [`fall_back`]
//! continues where it has stopped: with the refusal, with a wait if the call is prioritized, or with
//! [`judge()`], the slow path through all checks. A call whose resource must be made first, or made
//! anew after a reload, begins with [`judge()`].

#[cfg_attr(not(feature = "shared"), path = "no_after_lease.rs")]
mod after_lease;
mod attempt;
mod beside;
mod crowded;
mod enter;
mod fast_path;
#[cfg_attr(not(feature = "shared"), path = "no_lease.rs")]
mod lease;
mod line;
mod precheck;
mod refusal;
mod slow_path;
mod wait;

use std::sync::{Arc, Weak};

use crate::engine::call::waiting::JudgeAgain;
use crate::engine::registry::Registry;

pub(crate) use after_lease::try_after_lease;
pub(crate) use beside::try_beside_ring;
pub(crate) use crowded::refuse_in_crowd;
pub(crate) use fast_path::{Fallback, try_fast_path};
pub(crate) use refusal::blocked_by_share;
pub(crate) use slow_path::{fall_back, judge};

/// An engine as its pipeline needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineRef<'a> {
    pub(crate) registry: &'a Registry,
    /// Judges calls that have waited.
    pub(crate) again: &'a Weak<dyn JudgeAgain>,
}

impl EngineRef<'_> {
    /// For a call that waits. It keeps the engine alive.
    fn again(self) -> Arc<dyn JudgeAgain> {
        self.again.upgrade().expect("the caller holds the engine")
    }
}
