//! A concurrency limit that adjusts itself, from response times alone, without knowledge of the
//! service behind it; and a bound for each class of calls around it.
//!
//! | file | what |
//! |---|---|
//! | `estimate` | from the samples of a window to the next limit |
//! | `window` | response times of many threads added up |
//! | `bounds` | from the limit to the bound of each class |
//! | `shed` | the bounds in atomics, made stricter by refusals |
//! | `learned` | what the closers of windows know |
//! | `limiter` | all of it together, as the engine holds it |
//! | `simulation`, `trace` | a service in virtual time, and the figures of a run |
//! | `claims`, `bars`, `cohorts` | what is promised, checked on it: of calls of one class, of several, with cohorts |

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
