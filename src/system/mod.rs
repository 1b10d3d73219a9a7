//! System protection: limits on figures of the machine, and on all inbound calls together.
//!
//! ```text
//! Probe ─ load, CPU ─→ Sampler ─ Readings ─┐
//!                                          ├→ judge → pass, or a SystemReason
//! inbound node ─ InboundFigures ───────────┘
//! ```
//!
//! A [`Probe`] reads figures of the machine, a [`Sampler`] reads the probe once a second, and a
//! [`SystemRule`](crate::rule::SystemRule) sets the limits. Unknown figures refuse nothing: a rule
//! on the CPU has no effect where no probe reports it.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tower_sentinel::system::{ManualProbe, Sampler};
//! use tower_sentinel::{BlockKind, Call, ManualClock, Sentinel, SystemRule, Verdict};
//!
//! let (clock, probe) = (ManualClock::new(), ManualProbe::new());
//! let sentinel = Sentinel::builder()
//!     .rules(SystemRule::new().cpu(0.85))
//!     .sampler(Sampler::new(probe.clone()))
//!     .clock(clock.clone())
//!     .build();
//! let refused_by = || match sentinel.try_enter(Call::new("job")) {
//!     Verdict::Block(blocked) => Some(blocked.kind()),
//!     _ => None,
//! };
//! // The CPU use is not known yet.
//! assert_eq!(refused_by(), None);
//! probe.set_cpu(0.9);
//! clock.advance(Duration::from_secs(1));
//! assert_eq!(refused_by(), Some(BlockKind::System));
//! ```

mod capacity;
mod figures;
mod limits;
mod probe;
mod sampler;

#[cfg(feature = "system")]
mod cgroup;
#[cfg(feature = "system")]
mod host;
#[cfg(feature = "system")]
mod proc;

pub use crate::blocked::SystemReason;
pub use capacity::Capacity;
pub(crate) use figures::{InboundFigures, judge};
#[cfg(feature = "system")]
pub use host::SystemProbe;
pub(crate) use limits::{Limits, RuleLimit};
pub use probe::{ManualProbe, Memory, Probe, Readings};
pub use sampler::Sampler;

#[cfg(all(test, sentinel_loom))]
mod models;
