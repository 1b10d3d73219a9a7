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
//! Most calls go to a resource whose own ring and slots are all that judges, but
//! perhaps for one rule on a parameter: [`pass_at_once`] is their whole way. Any
//! other goes on by [`detour`], which knows what has been asked already.
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
