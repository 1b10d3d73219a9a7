//! Log lines of a running engine, for [`tracing`]: episodes, not refusals.
//!
//! A line for each refusal is a second flood. A [`Journal`] compares counters once a second, and
//! says when refusals of a resource begin, that they go on, and how many there were when they have
//! ended; what breakers, reloads and sources of rules do; and what nobody would see otherwise,
//! such as calls that bring no key. So calls pay nothing for it, and names, origins, parameters
//! and keys that callers send are in no line.
//!
//! | event, with the target `tower_sentinel` | level | when |
//! |---|---|---|
//! | `refusals began` | WARN | the first ones of a resource after 10 s without |
//! | `refusals go on`, `refusals ended` | INFO | every 60 s; after 10 s without, with all there were |
//! | `breaker opened`, `breaker closed`, `breaker half-open` | WARN, INFO, DEBUG | each change |
//! | `breaker flapped` | WARN if it is open, or INFO | instead, from the second opening within a minute on: 10 s after the last change, or once a minute |
//! | `shedding began`, `shedding ended` | WARN, INFO | an adaptive rule has shut a class of calls; all are open again. At most once a minute for a resource |
//! | `critical calls are refused` | WARN | the first ones of an overload |
//! | `rules in force` | INFO | the rules were replaced |
//! | `rules changed` | INFO | the page or Sentinel's dashboard has changed them: each that was added, changed, removed; also without a journal |
//! | `rules refused` | WARN | Sentinel's dashboard has sent rules that were not taken, and why; also without a journal |
//! | `rules kept`, `rules readable again` | WARN, INFO | a [watch](Journal::watch) fails; it has recovered |
//! | `keys share a quota`, `calls without a key`, `no place for names` | WARN | there are some after 10 min without |
//! | `store down`, `store back` | WARN, INFO | the [store](crate::Builder::store) has failed; it answers again |
//! | `store refuses` | WARN | once a minute while it refuses requests |
//! | `hook panicked` | ERROR | a hook did |
//!
//! In a minute there are at most 20 lines `refusals began`, 10 of refusals that go on or have
//! ended, 20 of breakers, 10 of shedding and 10 of the store. What had no line for that is summed up in
//! `more refusals`, `more changes of breakers` and `more changes of the store` (INFO), with the
//! names that it was most of; these are among the lines of the next minute.
//!
//! Resources whose names [callers can make up](crate::read::NodeSnapshot::is_listed) are `others`
//! together. Names are escaped as in [JSON](crate::read::Snapshot::to_json). There are no spans: those
//! belong to the server, which knows a refusal by [`is_refusal`](crate::middleware::rejection::is_refusal).

mod breakers;
mod budget;
#[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
mod changes;
mod counts;
mod episodes;
mod hooked;
mod lines;
mod shedding;
mod stores;
mod writing;

use std::fmt;
use std::sync::Arc;

use breakers::BreakerEpisodes;
use budget::LineBudget;
#[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
pub(super) use changes::tell_changed;
#[cfg(feature = "dashboard")]
pub(super) use changes::tell_refused;
use counts::{Counts, Watched};
use episodes::Episodes;
use shedding::SheddingEpisodes;
use stores::StoreWatch;

use crate::base::sync::Lock;
use crate::sentinel::Sentinel;
use hooked::{Changed, Changes};

/// The hook's name.
const NAME: &str = "journal";
/// Most changes of breakers between two looks that are kept one by one.
const MOST_CHANGES: usize = 256;

/// Writes what becomes of an engine to the log, by [`tracing`]; see the [module](self).
///
/// It needs a thread that looks: [`spawn`](Self::spawn) one, or call
/// [`poll_once`](Self::poll_once) about once a second. Of changes of breakers it hears by a
/// [hook](crate::Hook) of the name `journal`, which wants nothing else; it is removed with the
/// journal. One engine has one journal.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::observe::journal::Journal;
/// use tower_sentinel::{FlowRule, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
/// // The thread looks at the counters until the handle is dropped.
/// let journal = Journal::new(&sentinel).spawn(Duration::from_secs(1))?;
/// assert_eq!(&*sentinel.hooks().names()[0], "journal");
/// drop(journal);
/// assert!(sentinel.hooks().names().is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a journal says nothing unless it is polled"]
pub struct Journal {
    sentinel: Sentinel,
    changes: Arc<Changes>,
    state: Lock<LastLook>,
}

/// The memory of one look for the next.
struct LastLook {
    counts: Counts,
    episodes: Episodes,
    breakers: BreakerEpisodes,
    budget: LineBudget,
    shedding: SheddingEpisodes,
    store: StoreWatch,
    watched: Vec<Watched>,
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.sentinel.hooks().remove(NAME);
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
