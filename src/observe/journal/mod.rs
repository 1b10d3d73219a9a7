//! Logs what happens in a running engine, by [`tracing`]: episodes, not single refusals.
//!
//! A line for each refusal would answer a flood of calls with a flood of lines. A [`Journal`]
//! compares counters once a second, so calls pay nothing for it. It logs when refusals of a
//! resource begin, continue and end, and how many there were. It also logs what breakers, reloads
//! and sources of rules do, and problems that show nowhere else, such as calls without a key. No
//! line contains names, origins, parameters or keys that callers send.
//!
//! | event, with the target `tower_sentinel` | level | when |
//! |---|---|---|
//! | `refusals began` | WARN | the first refusals of a resource after 10 s without any |
//! | `refusals go on`, `refusals ended` | INFO | every 60 s while they continue; after 10 s without any. Both have the number of refusals |
//! | `breaker opened`, `breaker closed`, `breaker half-open` | WARN, INFO, DEBUG | each change |
//! | `breaker flapped` | WARN if it is open, or INFO | from the second opening within a minute on, instead of each change: 10 s after the last change, or once a minute |
//! | `shedding began`, `shedding ended` | WARN, INFO | an adaptive rule has shut a class of calls; all are open again. At most once a minute for a resource |
//! | `critical calls are refused` | WARN | the first critical calls that an overload refuses |
//! | `rules in force` | INFO | the rules were replaced |
//! | `rules changed` | INFO | the page or Sentinel's dashboard has changed rules: those added, changed and removed; also without a journal |
//! | `rules refused` | WARN | Sentinel's dashboard has sent rules that were refused, and why; also without a journal |
//! | `rules kept`, `rules readable again` | WARN, INFO | a [watch](Journal::watch) fails; it has recovered |
//! | `keys share a quota`, `calls without a key`, `no place for names` | WARN | the first calls with this problem after 10 min without any |
//! | `store down`, `store back` | WARN, INFO | the [store](crate::Builder::store) has failed; it answers again |
//! | `store refuses` | WARN | once a minute while it refuses requests |
//! | `hook panicked` | ERROR | a hook has panicked |
//!
//! A minute has at most 20 lines `refusals began`, 10 lines on refusals that continue or have
//! ended, 20 on breakers, 10 on shedding and 10 on the store. What is left out, except shedding, is
//! summed up in `more refusals`, `more changes of breakers` and `more changes of the store` (INFO),
//! with the most frequent names; these lines count for the next minute.
//!
//! Resources whose names [callers can make up](crate::read::NodeSnapshot::is_listed) are logged
//! together, as `others`. Names are escaped as in [JSON](crate::read::Snapshot::to_json). The
//! journal creates no spans: the server does, and recognizes a refusal by
//! [`is_refusal`](crate::middleware::rejection::is_refusal).

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
pub(super) use changes::log_changed_rules;
#[cfg(feature = "dashboard")]
pub(super) use changes::log_refused_rules;
use counts::{Counts, Watched};
use episodes::Episodes;
use shedding::SheddingEpisodes;
use stores::StoreWatch;

use crate::base::sync::Lock;
use crate::sentinel::Sentinel;
use hooked::{Changed, Changes};

/// The hook's name.
const NAME: &str = "journal";
/// The maximum number of changes of breakers between two polls that are queued separately.
const MOST_CHANGES: usize = 256;

/// Logs what happens in an engine, by [`tracing`]; see the [module](self).
///
/// A journal must be polled: [`spawn`](Self::spawn) a thread for it, or call
/// [`poll_once`](Self::poll_once) about once a second. It receives changes of breakers through a
/// [hook](crate::Hook) named `journal`, which receives nothing else and is removed when the journal
/// is dropped. Create one journal per engine.
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
    state: Lock<JournalState>,
}

/// The state that a poll keeps for the next poll.
struct JournalState {
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
