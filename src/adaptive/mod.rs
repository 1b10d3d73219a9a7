//! A concurrency limit that adjusts itself: from response times alone, without knowledge of the
//! service behind it.
//!
//! | file | what |
//! |---|---|
//! | `gradient` | the algorithm: from the samples of a window to the next limit |
//! | `window` | response times of many threads added up, closed by one of them |
//! | `limiter` | the two together, as the engine holds them |
//! | `simulation` | a service in virtual time that the claims are checked on |

mod gradient;
mod limiter;
mod window;

#[cfg(all(test, not(sentinel_loom)))]
mod claims;
#[cfg(all(test, sentinel_loom))]
mod models;
#[cfg(all(test, not(sentinel_loom)))]
mod simulation;

pub(crate) use gradient::LimiterSettings;
pub(crate) use limiter::Limiter;
