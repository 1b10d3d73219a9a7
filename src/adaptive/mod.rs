//! A concurrency limit that adjusts itself by response times alone, without knowledge of the
//! service, and derives a bound for each class of calls.
//!
//! | file | what |
//! |---|---|
//! | `estimate` | the next limit, from the samples of a window |
//! | `window` | sums of the response times of many threads |
//! | `bounds` | the bound of each class, from the limit |
//! | `shed` | the bounds in atomics, which refusals make stricter |
//! | `learned` | the state of the closers of windows |
//! | `limiter` | all parts together, as the engine uses them |
//! | `simulation`, `trace` | a service in virtual time, and the record of a run |
//! | `claims`, `bars`, `cohorts` | tests in simulation: one class, several classes, cohorts |

mod bounds;
mod estimate;
mod learned;
mod limiter;
mod shed;
mod window;

#[cfg(all(test, not(sentinel_loom)))]
mod bars;
#[cfg(all(test, not(sentinel_loom)))]
mod claims;
#[cfg(all(test, not(sentinel_loom)))]
mod cohorts;
#[cfg(all(test, sentinel_loom))]
mod models;
#[cfg(all(test, not(sentinel_loom)))]
mod simulation;
#[cfg(all(test, not(sentinel_loom)))]
mod tests;
#[cfg(all(test, not(sentinel_loom)))]
mod trace;

pub(crate) use estimate::LimiterSettings;
pub(crate) use limiter::{CallEnd, Limiter};
