//! An engine whose clock stands at 10 s; times are told from there.

use tower_sentinel::clock::Tick;
use tower_sentinel::{Blocked, Builder, Call, Entry, ManualClock, Rules, Sentinel};

const START_MS: u64 = 10_000;

/// See the [module](self). Files add what else they ask of it.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) sentinel: Sentinel,
    pub(crate) clock: ManualClock,
}

impl Bench {
    pub(crate) fn new(rules: impl Into<Rules>) -> Self {
        Self::with(rules, |builder| builder)
    }

    /// The same, configured further by `configure`.
    pub(crate) fn with(
        rules: impl Into<Rules>,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let clock = ManualClock::starting_at(Tick::from_millis(START_MS));
        let builder = Sentinel::builder().rules(rules).clock(clock.clone());
        // Tables of origins are made for each engine, of which some tests make thousands.
        let builder = builder.max_origins(64);
        Self {
            sentinel: configure(builder).build(),
            clock,
        }
    }

    /// Moves the clock to so many milliseconds after the start.
    pub(crate) fn at(&self, millis: u64) -> &Self {
        self.clock.set(Tick::from_millis(START_MS + millis));
        self
    }

    /// A call that does not wait: it runs, or is refused.
    #[track_caller]
    pub(crate) fn enter(&self, call: Call<'_>) -> Result<Entry, Blocked> {
        super::enter(&self.sentinel, call)
    }
}
