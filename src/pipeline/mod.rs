//! How a call is judged, from top to bottom.
//!
//! ```text
//! authority   who may call at all
//! system      what all inbound calls together may ask of the machine
//! breakers    whether the resource answers well
//! isolation   a concurrency slot of the resource, fixed or found by itself; held
//!             until the call ends
//! parameters  a share of the quota of each value that a rule looks at
//! flow        rules that look at another resource
//! line        a turn in each line; a call whose turn is not now waits for it, with
//!             tokens of each lane that are for that time
//! probe       of circuit breakers that are open and due
//! lanes       tokens of one lane after the other, narrow to wide: by rules of the
//!             origin, of the context, of the resource
//! loan        a prioritized call that found a lane full: the same lanes once
//!             more, each for the bucket in which the call can run
//! watchers    rules in shadow mode judge what the others let pass
//! ```
//!
//! Most calls need hardly any of it. What a resource has says, when it is made, which
//! [`Way`](crate::resource::Way) its calls go:
//!
//! ```text
//! way           what judges                               how
//! AtOnce        fixed slots, the ring                     pass_at_once
//! WithBreakers  the same, and breakers                    pass_at_once; judge, enter_alone
//!                                                         unless all are closed
//! WithShare     as at once, and one rule on a parameter   pass_at_once; as Full for who may
//!               that neither waits nor counts who runs    wait or is told what is left
//! Alone         the ring; authorities, system, breakers,  judge, enter_alone
//!               slots of any kind
//! Full          anything                                  judge, enter_everywhere
//! ```
//!
//! [`pass_at_once`] asks first, on whatever way. Where it does not let a call pass, it goes
//! on by [`detour`], which knows what has been asked already: it tells the refusal, finds
//! a place later for a call that is prioritized, or has all others judge it. A call that
//! makes its resource, or makes it anew after a reload, is judged by [`judge()`] on any way.
//!
//! The order is the semantics, so it is written down here and nowhere else:
//! cheap checks first, and nothing waits before everyone who may refuse has
//! spoken. Whatever was taken is given back when a later one refuses. A call
//! waits once, until the latest of its places.

mod at_once;
mod guard;
mod judge;
mod refusal;
mod wait;

pub(crate) use at_once::pass_at_once;
pub(crate) use judge::{detour, judge};
