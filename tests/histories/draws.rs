//! What the counters of one process cost the store.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tower_sentinel::store::{Draw, Drawn, StoreError};

/// Timers go by whole milliseconds, and one of two clocks is a little slower.
const COARSE: Duration = Duration::from_millis(1);

/// The longest way of a request in a history without trouble.
const MOST_DELAY: Duration = Duration::from_millis(4);

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws {
    pub(crate) calls: u64,
    pub(crate) draws: u64,
    /// Answers of no use: grants that came when their bucket was over, and draws of the next bucket
    /// that arrived when it had begun.
    pub(crate) late: u64,
    /// Draws of keys of which the store had said that there is none yet.
    pub(crate) in_vain: u64,
    /// Until when there is none of a key, as the process knows.
    none_before: BTreeMap<String, Instant>,
    /// It gives back what it has.
    leaves: bool,
}

impl Draws {
    /// The process gives back what it has. Returns what it has cost by then.
    pub(crate) fn leaves(&mut self) -> Self {
        self.leaves = true;
        self.clone()
    }

    pub(crate) fn sends(&mut self, draws: &[Draw]) {
        if self.leaves {
            return;
        }
        let now = Instant::now();
        self.draws += draws.len() as u64;
        for draw in draws {
            let [firm, soft, next] = [3, 4, 6].map(|at| draw.arguments()[at]);
            let none_before = self.none_before.get(&draw.key());
            let is_early = none_before.is_some_and(|at| now + COARSE < *at);
            self.in_vain += u64::from(is_early && firm + soft > 0 && next == 0);
        }
    }

    /// Takes the answers to draws that were `sent`.
    pub(crate) fn hears(
        &mut self,
        draws: &[Draw],
        answers: &[Result<Drawn, StoreError>],
        sent: Instant,
    ) {
        let now = Instant::now();
        for (draw, answer) in draws.iter().zip(answers) {
            let &Ok(Drawn::Granted {
                permits,
                rest,
                wait,
                ..
            }) = answer
            else {
                continue;
            };
            let [bucket_us, firm, next] = [0, 3, 6].map(|at| draw.arguments()[at]);
            let bucket = Duration::from_micros(bucket_us);
            // One for the bucket after the present one may arrive when that has begun.
            let has_begun = next == 1 && bucket.saturating_sub(rest) < MOST_DELAY * 3;
            // All of the next bucket may be lent, and some of the present one there.
            let is_none = !wait.is_zero() && (next == 0 || u64::from(permits) < firm);
            // As a process sees it whose clock runs fast.
            let seen = rest.saturating_sub(bucket / 5_000);
            let key = draw.key();
            if wait.is_zero() {
                self.none_before.remove(&key);
            }
            if has_begun || (permits > 0 && now - sent >= seen) {
                self.late += 1;
            } else if is_none {
                self.none_before.insert(key, now + wait);
            }
        }
    }
}
