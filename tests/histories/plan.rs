//! How a history is set up, as its seed chooses.

use std::time::Duration;

use tower_sentinel::store::WhenDown;
use tower_sentinel::{FlowRule, Rules};

use crate::network::Weather;
use crate::support::Rng;

/// What goes wrong in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing: requests are slow and overtake each other, engines start and stop.
    Nothing,
    /// Requests are lost, late, or applied twice.
    Loss,
    /// Some engines are cut off for a while.
    Partition,
    /// All are.
    Outage,
    /// The store loses its data.
    Flush,
    /// The clock of the store is set.
    Step,
    /// Everything at once.
    All,
}

/// How a history is set up: chosen by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) trouble: Trouble,
    pub(crate) engines: usize,
    pub(crate) bucket_ms: u64,
    pub(crate) buckets: u32,
    pub(crate) limit: u32,
    /// The limit after a reload, which each engine has at another moment.
    pub(crate) later_limit: u32,
    pub(crate) exact: bool,
    pub(crate) when_down: WhenDown,
    /// How many origins call; one rule for all if 0.
    pub(crate) origins: usize,
    pub(crate) length_ms: u64,
    pub(crate) delay_ms: usize,
    /// Calls a second of all engines.
    pub(crate) load: usize,
    /// One call in so many is prioritized, and borrows; none if 0.
    pub(crate) prioritized: usize,
    /// For how long it waits.
    pub(crate) occupy_ms: u64,
    /// Which part of the limit each process lends.
    pub(crate) occupy_ratio: f64,
    /// From when on there is trouble, and until when.
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let troubles = [
            Trouble::Nothing,
            Trouble::Nothing,
            Trouble::Loss,
            Trouble::Partition,
            Trouble::Outage,
            Trouble::Flush,
            Trouble::Step,
            Trouble::All,
        ];
        let trouble = troubles[rng.below(troubles.len())];
        let bucket_ms = [50, 50, 100][rng.below(3)];
        let most = [6, 30, 120][rng.below(3)];
        let limit = 1 + rng.below(most) as u32;
        let later_limit = if rng.one_in(4) {
            1 + rng.below(60) as u32
        } else {
            limit
        };
        let buckets = [1, 1, 2, 3, 5][rng.below(5)];
        let window_ms = bucket_ms * u64::from(buckets);
        let length_ms = (3 * window_ms).max(300);
        let from_ms = rng.below(length_ms as usize * 2 / 3) as u64;
        let until_ms = from_ms + 1 + rng.below(length_ms as usize - from_ms as usize) as u64;
        // From half of the limit to five times as much.
        let per_second = u64::from(limit) * 1_000 / window_ms;
        let load = per_second as usize * (5 + rng.below(46)) / 10;
        let when_down = match rng.below(8) {
            0 => WhenDown::Closed,
            1 => WhenDown::Open,
            _ => WhenDown::LocalShare,
        };
        Self {
            trouble,
            engines: 2 + rng.below(3),
            bucket_ms,
            buckets,
            limit,
            later_limit,
            exact: rng.one_in(3),
            when_down,
            origins: [0, 0, 1, 3][rng.below(4)],
            length_ms,
            // There and back, a trip is less than a tenth of a bucket.
            delay_ms: rng.below(bucket_ms as usize / 25 + 1),
            load: load.clamp(20, 6_000),
            prioritized: [0, 2, 5, 20][rng.below(4)],
            occupy_ms: bucket_ms * [1, 1, 3][rng.below(3)],
            occupy_ratio: [1.0, 1.0, 0.5][rng.below(3)],
            from_ms,
            until_ms,
        }
    }

    pub(crate) fn bucket(&self) -> Duration {
        Duration::from_millis(self.bucket_ms)
    }

    pub(crate) fn rules(&self, limit: u32) -> Rules {
        let interval = self.bucket() * self.buckets;
        let rule = FlowRule::per("/r", limit, interval).buckets(self.buckets);
        let rule = rule.max_occupy_ratio(self.occupy_ratio);
        let rule = rule.shared().when_down(self.when_down);
        let rule = if self.exact { rule.exact() } else { rule };
        let rule = match self.origins {
            0 => rule,
            _ => rule.by_origin(),
        };
        rule.into()
    }

    pub(crate) fn weather(&self) -> Weather {
        Weather {
            delay_ms: self.delay_ms,
            cut: vec![false; self.engines],
            ..Weather::default()
        }
    }
}
