//! Beats: a process reports to a store that it is alive, and the store answers.

use std::time::Duration;

use super::{Epoch, NodeId};

/// A process's report to a store that it is alive: see
/// [`QuotaStore::beat`](super::QuotaStore::beat).
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tower_sentinel::store::{Alive, Beat, Draw, Drawn, QuotaStore, StoreError, StoreFuture};
/// use tower_sentinel::Sentinel;
///
/// #[derive(Clone, Debug, Default)]
/// struct Beats(Arc<Mutex<Vec<Alive>>>);
///
/// impl QuotaStore for Beats {
///     fn draw<'a>(&'a self, _: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
///         Box::pin(async { Ok(Vec::new()) })
///     }
///
///     fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
///         self.0.lock().unwrap().push(alive);
///         Box::pin(async { Ok(Beat::new(1, 0, Default::default())) })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let store = Beats::default();
/// let sentinel = Sentinel::builder().store(store.clone()).build();
/// let handle = sentinel.start_store().unwrap();
/// tokio::time::sleep(std::time::Duration::from_millis(10)).await;
/// handle.shutdown().await;
/// let said = store.0.lock().unwrap().clone();
/// assert_eq!(said[0].node(), said[1].node());
/// assert_eq!((said[0].is_leaving(), said[1].is_leaving()), (false, true));
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    pub(crate) node: NodeId,
    /// Whether the process shuts down, so the store must no longer count it.
    pub(crate) is_leaving: bool,
    /// Whether this report announces that a key was reset.
    pub(crate) tells_reset: bool,
    /// The count of beats in the last answer that this process received; 0 before the first answer.
    pub(crate) seen: u64,
    pub(crate) settings: Agreed,
}

/// The settings that must be equal in all processes that share a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Agreed {
    /// A hash of the secret from which the names of counters are derived.
    pub(crate) secret: u32,
    /// The configured minimum number of processes.
    pub(crate) nodes: u32,
}

/// The answer to a [`beat`](super::QuotaStore::beat).
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{Beat, Epoch};
///
/// let beat = Beat::new(3, 0, Epoch::from_micros(1));
/// assert_eq!(beat, Beat::new(3, 0, Epoch::from_micros(1)));
/// assert_ne!(beat, beat.with_count(9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub(crate) nodes: u32,
    /// The position of this process among the live ones, from 0.
    pub(crate) rank: u32,
    /// The time since which the store has had its data.
    pub(crate) epoch: Epoch,
    /// The number of beats that the store has counted, including this one; 0 if it counts none.
    pub(crate) count: u64,
    /// The number of resets of keys that were reported to the store.
    pub(crate) resets: u64,
    /// For each setting, the number of live processes with another value than this process.
    pub(crate) others: Agreed,
}

impl Alive {
    /// Creates the report of a process that has received no answer yet.
    pub(crate) const fn new(node: NodeId, settings: Agreed) -> Self {
        Self {
            node,
            is_leaving: false,
            tells_reset: false,
            seen: 0,
            settings,
        }
    }

    /// Creates a report that a key was reset. Its process name is random, so that it does not
    /// interfere with the beats of this process.
    pub(crate) fn of_reset(settings: Agreed) -> Self {
        Self {
            is_leaving: true,
            tells_reset: true,
            ..Self::new(NodeId::random(), settings)
        }
    }

    /// Returns the name of the process.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns whether the process shuts down. A store no longer counts a process that leaves.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Returns whether this report announces that a key was
    /// [reset](crate::read::SharedKeyedView::reset). The store then [counts](Beat::with_resets) one
    /// more reset. The report has a random name, which belongs to no live process.
    #[must_use]
    pub const fn tells_reset(&self) -> bool {
        self.tells_reset
    }

    /// Returns the [count](Beat::with_count) of the last beat of this process that was answered; 0
    /// before the first one.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the settings that must be equal in all processes, encoded as one word that reveals
    /// no secret. A store that keeps this word with each process can report [how many processes
    /// differ](Beat::with_others).
    #[must_use]
    pub fn settings(&self) -> String {
        let Agreed { secret, nodes } = self.settings;
        format!("{secret:08x}:{nodes}")
    }

    /// Counts this beat for a store that has counted `count` beats since `epoch`. `now` is the
    /// reading of the store's clock. A store without data passes a count of 0 and the default
    /// epoch. Returns the new count and epoch, for the store to keep.
    ///
    /// A count below the count that the process has [seen](Self::seen) shows that the store's data
    /// is older than its last answer: the store was restarted from a snapshot, or a lagging replica
    /// has taken over. A new epoch then begins, like after a loss of all data.
    #[must_use]
    pub fn count(&self, count: u64, epoch: Epoch, now: Duration) -> (u64, Epoch) {
        let has_data = epoch != Epoch::default() && count >= self.seen;
        let epoch = if has_data {
            epoch
        } else {
            let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
            // Two epochs that begin at the same reading of the clock must differ as well.
            Epoch(now.max(epoch.0.saturating_add(1)))
        };
        (count.max(self.seen).saturating_add(1), epoch)
    }
}

impl Agreed {
    fn read(text: &str) -> Option<Self> {
        let (secret, nodes) = text.split_once(':')?;
        Some(Self {
            secret: u32::from_str_radix(secret, 16).ok()?,
            nodes: nodes.parse().ok()?,
        })
    }
}

impl Beat {
    /// Creates an answer: `nodes` processes are alive, this process has the position `rank` among
    /// them, from 0, and the store has had its data since `epoch`.
    #[must_use]
    pub const fn new(nodes: u32, rank: u32, epoch: Epoch) -> Self {
        Self {
            nodes,
            rank,
            epoch,
            count: 0,
            resets: 0,
            others: Agreed {
                secret: 0,
                nodes: 0,
            },
        }
    }

    /// Compares the [settings](Alive::settings) of all live processes with those of `alive`. If
    /// some differ, a [finding](crate::Sentinel::findings) reports it. Texts in another format are
    /// ignored.
    #[must_use]
    pub fn with_others<'a>(
        mut self,
        alive: &Alive,
        settings: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        for text in settings {
            let Some(other) = Agreed::read(text) else {
                continue;
            };
            self.others.secret += u32::from(other.secret != alive.settings.secret);
            self.others.nodes += u32::from(other.nodes != alive.settings.nodes);
        }
        self
    }

    /// Sets how many beats the store has [counted](Alive::count), including this one. The default
    /// of 0 means that the store counts no beats. If such a store falls back to older data, this is
    /// not detected.
    #[must_use]
    pub const fn with_count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    /// Sets how many reports have [announced a reset](Alive::tells_reset). When the number changes,
    /// each process asks the store again for keys that it refuses. The default of 0 means that the
    /// store counts no resets. Other processes then keep refusing a reset key until the time that
    /// the store had named.
    ///
    /// ```
    /// use tower_sentinel::store::{Beat, Epoch};
    ///
    /// let beat = Beat::new(3, 0, Epoch::from_micros(1));
    /// assert_ne!(beat, beat.with_resets(1));
    /// ```
    #[must_use]
    pub const fn with_resets(mut self, resets: u64) -> Self {
        self.resets = resets;
        self
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lower_count_begins_a_new_epoch() {
        let seen = |seen| Alive {
            seen,
            ..Alive::new(NodeId(1), Agreed::default())
        };
        let now = Duration::from_micros(100);
        for (own, count, epoch, counted) in [
            (0, 0, 0, (1, 100)), // the first beat of all
            (0, 7, 5, (8, 5)),
            (7, 7, 5, (8, 5)),
            (7, 9, 5, (10, 5)),
            (7, 6, 5, (8, 100)),   // an older state
            (7, 0, 0, (8, 100)),   // nothing at all
            (7, 6, 200, (8, 201)), // the clock went back as well
            (0, u64::MAX, 5, (u64::MAX, 5)),
        ] {
            let (count_after, epoch_after) = seen(own).count(count, Epoch(epoch), now);
            assert_eq!(
                (count_after, epoch_after.0),
                counted,
                "{own} {count} {epoch}"
            );
        }
    }

    #[test]
    fn settings_that_differ_are_counted() {
        let settings = Agreed {
            secret: 0xab,
            nodes: 3,
        };
        let alive = Alive::new(NodeId(1), settings);
        assert_eq!(alive.settings(), "000000ab:3");
        let all = [
            "000000ab:3",
            "000000ac:3",
            "000000ab:2",
            "0:0",
            "",
            "x:3",
            "1:",
        ];
        let beat = Beat::new(7, 0, Epoch(1)).with_others(&alive, all);
        assert_eq!((beat.others.secret, beat.others.nodes), (2, 2));
    }
}
