//! Creates a journal, and polls it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::breakers::BreakerEpisodes;
use super::budget::LineBudget;
use super::counts::{Counts, Watched};
use super::episodes::Episodes;
use super::hooked::Changes;
use super::lines::LogLine;
use super::shedding::SheddingEpisodes;
use super::stores::StoreWatch;
use super::{Journal, JournalState, NAME};
use crate::base::sync::Lock;
use crate::base::thread::{PeriodicThread, ThreadHandle};
use crate::sentinel::Sentinel;
use crate::source::Watch;

impl Journal {
    /// Creates the journal of `sentinel`. It logs what happens from now on.
    pub fn new(sentinel: &Sentinel) -> Self {
        let changes = Arc::new(Changes::default());
        sentinel.hooks().register(NAME, changes.clone());
        let state = JournalState {
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

    /// Compares the counters with the counters at the last call, and logs what has changed. Call it
    /// about once a second, on one thread.
    pub fn poll_once(&self) {
        let mut lines = Vec::new();
        {
            let state = &mut *self.state.lock();
            let registry = self.sentinel.registry();
            let time = &registry.shared().time;
            let now = time.check_for_creation(time.read());
            state.budget.begin(now, &mut state.episodes, &mut lines);
            let queue = std::mem::take(&mut *self.changes.0.lock());
            for change in queue.changes {
                let budget = &mut state.budget;
                state.breakers.changed(change, now, budget, &mut lines);
            }
            state.breakers.poll(now, &mut state.budget, &mut lines);
            state.budget.unknown_breakers(queue.more);
            let (growth, mut others) = state.counts.poll(&self.sentinel, now);
            for line in state.episodes.poll(now, growth) {
                state.budget.refusals(line, &mut lines);
            }
            lines.append(&mut others);
            let due = state.shedding.poll(&self.sentinel, now);
            state.budget.shedding(due, &mut lines);
            let mut due = Vec::new();
            state.store.poll(&self.sentinel, now, &mut due);
            state.budget.store(due, &mut lines);
            lines.extend(state.watched.iter_mut().filter_map(Watched::poll));
        }
        // Without the lock: a subscriber can run any code, and even use this journal.
        lines.iter().for_each(LogLine::write);
    }

    /// Polls the journal on a dedicated thread, at once and then at intervals of `every` (at least
    /// 10 ms), until the handle is dropped. A forked process does not have the thread.
    ///
    /// # Errors
    ///
    /// If the operating system cannot create the thread.
    pub fn spawn(self, every: Duration) -> io::Result<ThreadHandle> {
        let thread = PeriodicThread::spawn("sentinel-journal", every, move || {
            // If the subscriber panics, this line and the remaining lines of this poll are lost.
            let _ = crate::base::panics::catch_panic(|| self.poll_once());
        })?;
        Ok(ThreadHandle::new(thread))
    }
}
