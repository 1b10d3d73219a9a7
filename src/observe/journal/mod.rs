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
//! Resources whose names [callers can make up](crate::NodeSnapshot::is_listed) are `others`
//! together. Names are escaped as in [JSON](crate::Snapshot::to_json). There are no spans: those
//! belong to the server, which knows a refusal by [`is_refusal`](crate::rejection::is_refusal).

mod breakers;
mod budget;
#[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
mod changes;
mod counts;
mod episodes;
mod lines;
mod shedding;
mod stores;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use breakers::BreakerEpisodes;
use budget::LineBudget;
#[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
pub(super) use changes::tell_changed;
#[cfg(feature = "dashboard")]
pub(super) use changes::tell_refused;
use counts::{Counts, Watched};
use episodes::Episodes;
use lines::LogLine;
use shedding::SheddingEpisodes;
use stores::StoreWatch;

use crate::base::sync::Lock;
use crate::base::thread::{PeriodicThread, ThreadHandle};
use crate::breaker::BreakerState;
use crate::hook::{BreakerEvent, Hook, Interest};
use crate::sentinel::Sentinel;
use crate::source::Watch;

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

/// Changes of breakers since the last look, in their order.
#[derive(Debug, Default)]
struct Changes(Lock<ChangeQueue>);

#[derive(Debug, Default)]
struct ChangeQueue {
    changes: Vec<Changed>,
    /// The number of changes beyond the bound.
    more: u64,
}

/// A breaker has changed its state.
#[derive(Clone, Debug)]
struct Changed {
    resource: String,
    direction: &'static str,
    rule: String,
    from: BreakerState,
    to: BreakerState,
    value: Option<f64>,
    /// For how many changes it stands, of which it is the last one.
    times: u64,
}

impl Hook for Changes {
    fn interest(&self) -> Interest {
        Interest::BREAKER
    }

    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let mut queue = self.0.lock();
        if queue.changes.len() == MOST_CHANGES {
            let mut latest = queue.changes.iter_mut().rev();
            let known = latest.find(|known| {
                known.resource == event.resource()
                    && known.direction == event.direction().as_str()
                    && known.rule == event.rule()
            });
            match known {
                Some(known) => (known.to, known.times) = (event.to(), known.times + 1),
                None => queue.more += 1,
            }
            return;
        }
        queue.changes.push(Changed {
            resource: event.resource().to_owned(),
            direction: event.direction().as_str(),
            rule: event.rule().to_owned(),
            from: event.from(),
            to: event.to(),
            value: event.value(),
            times: 1,
        });
    }
}

impl Journal {
    /// Creates the journal of `sentinel`. It tells what happens from now on.
    pub fn new(sentinel: &Sentinel) -> Self {
        let changes = Arc::new(Changes::default());
        sentinel.hooks().register(NAME, changes.clone());
        let state = LastLook {
            counts: Counts::of(sentinel),
            episodes: Episodes::default(),
            breakers: BreakerEpisodes::default(),
            budget: LineBudget::default(),
            shedding: SheddingEpisodes::default(),
            store: StoreWatch::of(sentinel),
            watched: Vec::new(),
        };
        Self {
            sentinel: sentinel.clone(),
            changes,
            state: Lock::new(state),
        }
    }

    /// Also logs when `watch` cannot read its rules, under `name`. The journal does not keep the
    /// [watch](crate::source::Watch) alive.
    pub fn watch(self, name: impl Into<String>, watch: &Watch) -> Self {
        let watched = Watched::new(name.into(), watch.status.clone());
        self.state.lock().watched.push(watched);
        self
    }

    /// Looks at the counters, and writes lines about what has changed since the last look. Call it
    /// about once a second, on one thread.
    pub fn poll_once(&self) {
        let mut lines = Vec::new();
        {
            let state = &mut *self.state.lock();
            let registry = self.sentinel.registry();
            let time = &registry.shared().time;
            let now = time.check_making(time.read());
            state.budget.begin(now, &mut state.episodes, &mut lines);
            let queue = std::mem::take(&mut *self.changes.0.lock());
            for change in queue.changes {
                let budget = &mut state.budget;
                state.breakers.changed(change, now, budget, &mut lines);
            }
            state.breakers.look(now, &mut state.budget, &mut lines);
            state.budget.unknown_breakers(queue.more);
            let (growth, mut others) = state.counts.look(&self.sentinel, now);
            for line in state.episodes.look(now, growth) {
                state.budget.refusals(line, &mut lines);
            }
            lines.append(&mut others);
            let told = state.shedding.look(&self.sentinel, now);
            state.budget.shedding(told, &mut lines);
            let mut told = Vec::new();
            state.store.look(&self.sentinel, now, &mut told);
            state.budget.store(told, &mut lines);
            lines.extend(state.watched.iter_mut().filter_map(Watched::look));
        }
        // Whoever listens may do as it likes.
        lines.iter().for_each(LogLine::write);
    }

    /// Looks on a thread of its own, at once and then at intervals of `every` (at least 10 ms),
    /// until the handle is dropped. A process that forks from this one has no such thread.
    ///
    /// # Errors
    ///
    /// If the operating system cannot create the thread.
    pub fn spawn(self, every: Duration) -> io::Result<ThreadHandle> {
        let thread = PeriodicThread::spawn("sentinel-journal", every, move || {
            // A subscriber that panics loses its line, and nothing else.
            let _ = crate::base::panics::catch_panic(|| self.poll_once());
        })?;
        Ok(ThreadHandle::new(thread))
    }
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
