//! The pipeline that judges a call: all checks, in their order.
//!
//! ```text
//! check       what is checked or taken                                         in
//! authority   whether the origin of the call may call at all                   precheck.rs
//! system      whether the machine and all inbound calls leave room             precheck.rs
//! breakers    whether a circuit breaker refuses the call                       precheck.rs
//! isolation   whether a concurrency slot of the resource is free. If the       slow_path.rs
//!             rule has a queue, the call waits for a slot, and is then         line.rs
//!             judged again from the first check on
//! narrow      whether a slot of the origin is free, if a rule limits these     enter.rs
//! slots       slots, and whether few enough calls of related resources run
//! origin      whether a rule by origin refuses calls without an origin         enter.rs
//! parameters  takes a share of the quota of each value that a rule limits.     enter.rs
//!             For a concurrency limit with a queue, the call waits for a       line.rs
//!             share in the same way as for a slot
//! related     whether the related resources of flow rules have room            enter.rs
//! queue       takes a turn in each queue. A call whose turn comes later        enter.rs
//!             waits, with tokens for that time
//! lease       takes permits of each shared rule. Without local permits, the    lease.rs
//!             call waits for the store, and is judged again from the first
//!             check on with the granted permits. A call that waits for a
//!             turn or a loan takes its permits when this wait is over
//! place       takes the slots, which are held until the call ends; the         enter.rs
//!             probe of each circuit breaker that is open and due; and the
//!             reservation of the call at each limit on costs
//! tokens      takes tokens of each ring: of the origin, the context and the    enter.rs
//!             resource
//! loan        if a ring has no tokens and the call is prioritized: takes       wait.rs
//!             tokens of a coming bucket
//! shadow      rules in shadow mode judge calls that enforced rules let pass    ../shadow/
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
//! path               checks                                function
//! Fast               fixed slots, own ring                 try_fast_path
//! FastBesideRing     fixed slots, own and dedicated ring   try_beside_ring
//! FastAfterLease     local permits of the single shared    try_after_lease; judge if there are
//!                    rule without keys, then as Fast       no permits, and for calls that may
//!                                                          wait or show their quota
//! FastAfterBreakers  breakers, then as Fast                try_fast_path; judge unless all
//!                                                          breakers are closed
//! FastAfterParam     one rule on a parameter, without a    try_fast_path; judge for calls that
//!                    queue or a concurrency limit, then    may wait or show their quota
//!                    as Fast
//! FastAdaptive       as Fast, with adaptive slots          try_fast_path
//! Full               all checks                            judge
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
