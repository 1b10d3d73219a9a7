//! The figures that readers get: totals, and the counts of one bucket.

use std::time::Duration;

use super::extremes::Extreme;
use crate::blocked::BlockKind;
use crate::clock::Tick;

/// Counts since the node was created. Unlike counts in a window, they do not fall as time passes.
///
/// All except [`pass`](Self::pass) only grow. A waiting call is counted as passed at the first
/// event after the beginning of its bucket, at the latest at its start. If it is dropped before it
/// starts, it no longer counts, so `pass` falls. As an exported counter must only grow, export
/// [`complete`](Self::complete) and [`cancelled`](Self::cancelled) instead. They add up to `pass`
/// when no calls are in flight.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let clock = ManualClock::new();
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 4))
///     .clock(clock.clone())
///     .build();
/// let running = sentinel.try_enter(Call::new("job").batch(3));
/// let refused = sentinel.try_enter(Call::new("job").batch(2));
/// assert!(matches!(refused, Verdict::Block(_)));
/// clock.advance(Duration::from_millis(20));
/// drop(running);
/// // Unlike figures per second, totals do not fall with time.
/// clock.advance(Duration::from_secs(3_600));
/// let totals = sentinel.inbound().totals();
/// assert_eq!((totals.pass(), totals.block(), totals.complete()), (3, 2, 3));
/// assert_eq!((totals.calls(), totals.rt()), (1, Duration::from_millis(20)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub(crate) pass: u64,
    pub(crate) block: u64,
    pub(crate) complete: u64,
    pub(crate) error: u64,
    pub(crate) cancelled: u64,
    pub(crate) occupied: u64,
    pub(crate) calls: u64,
    pub(crate) panicked: u64,
    pub(crate) rt_us: u64,
    pub(crate) waits: u64,
    pub(crate) waited_us: u64,
    pub(crate) waiting_dropped: u64,
    /// Refusals, indexed by kind.
    pub(crate) block_by: [u64; BlockKind::ALL.len()],
}

/// The counts of one bucket.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let at = Tick::from_millis;
/// let clock = ManualClock::starting_at(at(10_100));
/// let rules = FlowRule::per_second("job", 1);
/// let sentinel = Sentinel::builder().rules(rules).clock(clock.clone()).build();
/// let running = sentinel.try_enter(Call::new("job"));
/// drop(sentinel.try_enter(Call::new("job")));
/// clock.set(at(10_600));
/// drop(running);
///
/// let snapshot = sentinel.snapshot();
/// let buckets = snapshot.nodes()[0].buckets();
/// let counts: Vec<_> = buckets.iter().map(|b| (b.pass(), b.block(), b.complete())).collect();
/// assert_eq!(counts, [(1, 1, 0), (0, 0, 1)]);
/// assert_eq!((buckets[1].start(), buckets[0].average_rt()), (at(10_500), None));
/// assert_eq!(buckets[1].average_rt(), Some(Duration::from_millis(500)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBucket {
    pub(crate) start: Tick,
    pub(crate) pass: u64,
    pub(crate) block: u64,
    pub(crate) complete: u64,
    pub(crate) error: u64,
    pub(crate) cancelled: u64,
    pub(crate) occupied: u64,
    pub(crate) calls: u64,
    pub(crate) rt_us: u64,
    pub(crate) extreme: Extreme,
}

// === impl Totals ===

macro_rules! figures {
    ($type:ty { $($(#[$doc:meta])* $name:ident: $kind:ty),+ $(,)? }) => {
        impl $type {
            $($(#[$doc])*
            #[must_use]
            pub const fn $name(&self) -> $kind {
                self.$name
            })+
        }
    };
}

/// Adds the listed fields of another value, modulo 2⁶⁴.
macro_rules! add_each {
    ($mine:ident += $other:ident: $($field:ident),+) => {
        $($mine.$field = $mine.$field.wrapping_add($other.$field);)+
    };
}

figures!(Totals {
    /// Calls that passed, by weight, including calls that still wait although their bucket has
    /// begun. Falls when a call is dropped while it still waits.
    pass: u64,
    /// Calls that were refused, by weight.
    block: u64,
    /// Calls that delivered a response or an error, by weight.
    complete: u64,
    /// Calls that failed, by weight; they are among [`complete`](Self::complete).
    error: u64,
    /// Weight of the calls that passed and delivered nothing.
    cancelled: u64,
    /// Weight of the calls that passed with tokens borrowed from a later bucket.
    occupied: u64,
    /// Calls that delivered a response or an error, each counted as one.
    calls: u64,
    /// Calls that ended in a panic; they are among [`calls`](Self::calls).
    panicked: u64,
    /// Calls that waited and then started.
    waits: u64,
    /// Calls that were dropped while they waited. If all calls weigh 1 and none is running or
    /// waiting, this figure, [`pass`](Self::pass) and [`block`](Self::block) add up to the number
    /// of calls made. Calls whose tokens [stay spent](crate::Waiting#cancel-safety) are an
    /// exception: a call that is dropped or refused after its bucket has closed, or after a reload
    /// that changes buckets, also counts as cancelled and as passed.
    waiting_dropped: u64,
});

impl Totals {
    /// Returns the sum of all response times, each truncated to whole microseconds; a
    /// response time above a minute counts as a minute.
    #[must_use]
    pub const fn rt(&self) -> Duration {
        Duration::from_micros(self.rt_us)
    }

    /// Returns the sum of the times that calls waited before they started, each truncated
    /// to whole microseconds. A call may start later than its turn.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us)
    }

    /// Returns the calls that a rule of this `kind` refused, by weight.
    ///
    /// The counts of all kinds add up to [`block`](Self::block), except for refusals that
    /// are being counted at this moment.
    #[must_use]
    pub const fn block_by(&self, kind: BlockKind) -> u64 {
        self.block_by[kind as usize]
    }

    /// Iterates over [`block_by`](Self::block_by) for all kinds, including those with 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::{AuthorityRule, BlockKind, Call, FlowRule, Rules, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(
    ///     Rules::new()
    ///         .with(FlowRule::per_second("job", 0))
    ///         .with(AuthorityRule::deny("job", ["crawler"])),
    /// );
    /// for origin in ["crawler", "shop", "shop"] {
    ///     let verdict = sentinel.try_enter(Call::new("job").origin(origin));
    ///     assert!(matches!(verdict, Verdict::Block(_)));
    /// }
    /// let totals = *sentinel.snapshot().totals();
    /// assert_eq!((totals.block(), totals.block_by(BlockKind::Authority)), (3, 1));
    /// let seen: Vec<_> = totals.blocks().filter(|(_, count)| *count > 0).collect();
    /// assert_eq!(seen, [(BlockKind::Flow, 2), (BlockKind::Authority, 1)]);
    /// ```
    pub fn blocks(&self) -> impl Iterator<Item = (BlockKind, u64)> + use<> {
        BlockKind::ALL.into_iter().zip(self.block_by)
    }

    /// Adds the counts of another node.
    pub(crate) fn add(&mut self, other: &Self) {
        add_each!(self += other: pass, block, complete, error, cancelled, occupied, calls);
        add_each!(self += other: panicked, rt_us, waits, waited_us, waiting_dropped);
        for (mine, theirs) in self.block_by.iter_mut().zip(other.block_by) {
            *mine = mine.wrapping_add(theirs);
        }
    }
}

// === impl NodeBucket ===

figures!(NodeBucket {
    /// The time at which the bucket begins.
    start: Tick,
    /// Calls that passed, by weight.
    pass: u64,
    /// Calls that were refused, by weight.
    block: u64,
    /// Calls that delivered a response or an error, by weight.
    complete: u64,
    /// Calls that failed, by weight; they are among [`complete`](Self::complete).
    error: u64,
    /// Weight of the calls that passed and delivered nothing; not kept for whole seconds.
    cancelled: u64,
    /// Weight of the calls that passed with borrowed tokens; kept for whole seconds only.
    occupied: u64,
    /// Calls that delivered a response or an error, each counted as one.
    calls: u64,
});

/// Returns the average response time of `calls` calls that took `rt_us` µs together; `None` if
/// there was no call.
pub(crate) fn average_rt(calls: u64, rt_us: u64) -> Option<Duration> {
    (calls > 0).then(|| Duration::from_nanos(rt_us * 1_000 / calls))
}

impl NodeBucket {
    /// Adds the counts of another bucket. The start does not change.
    pub(crate) fn merge(&mut self, other: &Self) {
        add_each!(self += other: pass, block, complete, error, cancelled, occupied, calls, rt_us);
        self.extreme = self.extreme.merge(other.extreme);
    }

    /// Returns the sum of the response times of the bucket's calls.
    #[must_use]
    pub const fn rt(&self) -> Duration {
        Duration::from_micros(self.rt_us)
    }

    /// Returns the average response time; `None` if no call ended.
    #[must_use]
    pub fn average_rt(&self) -> Option<Duration> {
        average_rt(self.calls, self.rt_us)
    }

    /// Returns the smallest response time; `None` if no call ended. Not kept for whole
    /// seconds.
    #[must_use]
    pub fn min_rt(&self) -> Option<Duration> {
        self.extreme.min_rt()
    }

    /// Returns the largest number of calls in flight when a call of the bucket passed, including
    /// this call; not kept for whole seconds.
    #[must_use]
    pub const fn max_concurrency(&self) -> u32 {
        self.extreme.max_concurrency
    }
}
