//! How a call is judged, from top to bottom.
//!
//! ```text
//! authority   who may call at all
//! system      what all inbound calls together may ask of the machine
//! breakers    whether the resource answers well
//! isolation   a concurrency slot of the resource, fixed or found by itself; held
//!             until the call ends
//! flow        rules that look at another resource; then one lane after the
//!             other, narrow to wide: rules of the origin, of the context, of the
//!             resource; what was taken is given back when a later one refuses
//! line        a turn in each line; tokens are then taken for the time of it
//! probe       of circuit breakers that are open and due
//! loan        a prioritized call that found a lane full: the same lanes once
//!             more, each for the bucket in which the call can run
//! ```
//!
//! The order is the semantics, so it is written down here and nowhere else:
//! cheap checks first, and nothing waits before everyone who may refuse has
//! spoken. A call waits once, until the latest of its places.

mod guard;
mod judge;
mod wait;

pub(crate) use judge::{detour, judge, pass_at_once};
