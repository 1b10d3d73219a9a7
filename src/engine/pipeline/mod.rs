//! The pipeline that judges a call: all checks, in their order.
//!
//! ```text
//! check       what is checked or taken                                         in
//! authority   whether its origin may call at all                               precheck.rs
//! system      whether the machine and all inbound calls leave room             precheck.rs
//! breakers    whether a circuit breaker refuses                                precheck.rs
//! isolation   whether a concurrency slot of the resource is free; if the rule  slow_path.rs
//!             has a queue, the call waits for a slot, and is judged again from line.rs
//!             the first check on when it has got one
//! narrow      whether a slot of its origin is free, if a rule limits these;    enter.rs
//! slots       and whether few enough calls of related resources run
//! origin      whether a rule by origin refuses calls without one               enter.rs
//! parameters  takes a share of the quota of each value that a rule looks at;   enter.rs
//!             for a limit on calls at once with a queue, the call waits for    line.rs
//!             its share as it does for a slot
//! related     whether the related resources of flow rules have room            enter.rs
//! queue       takes a turn in each queue; a call whose turn comes later waits, enter.rs
//!             with tokens for that time
//! lease       takes permits of each shared rule; if there are no local ones,   lease.rs
//!             the call waits for the store, and is judged again from the first
//!             check on with the granted ones; a call that waits for its turn
//!             or a loan takes its permits when that has come
//! place       takes the slots, held until the call ends, the probe of each     enter.rs
//!             circuit breaker that is open and due, and the call's
//!             reservation at each limit on costs
//! tokens      takes tokens of each ring: of the origin, the context, the       enter.rs
//!             resource
//! loan        if a ring has no tokens and the call is prioritized: takes       wait.rs
//!             tokens of a coming bucket
//! shadow      rules in shadow mode judge calls that the others let pass        ../shadow.rs
//! ```
//!
//! The order is part of the semantics, and is documented only here. Cheap checks come first, and a
//! call waits only after all checks that can refuse it. Everything that was taken is returned if a
//! later check refuses. A call waits for its turn and for loans only once, until the latest of
//! these times. Before this wait, it can wait in line for a slot or a share, without holding
//! anything. After it, the call can wait for a slot again, if none is free.
//!
//! Most calls need hardly any of these checks. The checks that they need are determined when the
//! resource is created: see [`PathKind`](crate::engine::resource::PathKind).
//!
//! ```text
//! path               checks                                    function
//! Fast               fixed slots, the ring                     try_fast_path
//! FastBesideRing     as Fast, and one ring of a single rule    try_beside_ring
//! FastAfterLease     as Fast, after taking local permits of    try_after_lease; judge if there
//!                    the single shared rule without keys       are none, and for calls that may
//!                                                              wait or show their quota
//! FastAfterBreakers  as Fast, after breakers                   try_fast_path; judge unless all
//!                                                              are closed
//! FastAfterParam     as Fast, after one rule on a parameter    try_fast_path; judge for calls
//!                    without a queue or a limit on calls       that may wait or show their quota
//!                    at once
//! FastAdaptive       as Fast, with the slots of an adaptive    try_fast_path
//!                    limit
//! Full               anything                                  judge
//! ```
//!
//! Every call to a known resource begins in [`try_fast_path`], which returns at once if the
//! resource has another path. A resource with a second ring has its own function,
//! [`try_beside_ring`]. A resource with a shared rule has the function [`try_after_lease`]. If no
//! fast path lets the call pass, [`fall_back`] continues: with a refusal, with a wait if the call
//! is prioritized, or with [`judge()`], the slow path through all checks. A call whose resource
//! must first be created, or created again after a reload, begins with [`judge()`].

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

/// A reference to an engine, with the parts that the pipeline needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineRef<'a> {
    pub(crate) registry: &'a Registry,
    /// Judges calls that have waited.
    pub(crate) again: &'a Weak<dyn JudgeAgain>,
}

impl EngineRef<'_> {
    /// Returns the engine for a call that waits, which keeps it alive.
    fn again(self) -> Arc<dyn JudgeAgain> {
        self.again.upgrade().expect("the caller holds the engine")
    }
}
