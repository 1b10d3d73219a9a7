//! What was admitted in a history, merged over all engines, and what may be.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tower_sentinel::store::WhenDown;

use crate::draws::Draws;
use crate::history::STORE_WAIT;
use crate::plan::{Plan, Trouble};

/// Timers go by whole milliseconds, and one of two clocks is a little slower.
const COARSE: Duration = Duration::from_millis(2);

/// What one bucket of the store admitted of one origin.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    permits: u32,
    last: Instant,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// By origin, era of the store's clock, and number of the bucket.
    buckets: BTreeMap<((usize, u64), u64), Bucket>,
    longest_wait: Duration,
    /// That of prioritized calls.
    longest_loan: Duration,
    /// Permits that were borrowed.
    borrowed: u64,
    /// When something was wrong.
    troubled: Vec<(Instant, Instant)>,
    /// When the store was away for all.
    away: Vec<(Instant, Instant)>,
    /// What each process has cost the store.
    draws: Vec<Draws>,
    /// At rest: what the store has counted, and what was admitted.
    rest: (u32, u32),
}

/// What many histories were like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) histories: u64,
    pub(crate) admitted: u64,
    pub(crate) borrowed: u64,
    /// Windows without trouble, and those of them that have all of the limit.
    pub(crate) calm: u64,
    pub(crate) full: u64,
    /// Draws by key in histories without trouble, and the calls that they were for.
    pub(crate) draws: u64,
    pub(crate) calls: u64,
    /// Windows with trouble.
    pub(crate) troubled: u64,
    /// Windows wholly without the store.
    pub(crate) away: u64,
    /// The worst window of each kind of trouble, in parts of the limit.
    pub(crate) worst: BTreeMap<String, f64>,
    /// What went wrong, with the history.
    pub(crate) wrong: Vec<String>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn admitted(&mut self, of: (usize, u64), bucket: u64, weight: u32) {
        let last = Instant::now();
        let entry = self.buckets.entry((of, bucket));
        let entry = entry.or_insert(Bucket { permits: 0, last });
        entry.permits += weight;
        entry.last = last;
    }

    pub(crate) fn waited(&mut self, wait: Duration, is_prioritized: bool) {
        let longest = if is_prioritized {
            &mut self.longest_loan
        } else {
            &mut self.longest_wait
        };
        *longest = wait.max(*longest);
    }

    pub(crate) fn borrowed(&mut self, permits: u64) {
        self.borrowed += permits;
    }

    pub(crate) fn drew(&mut self, draws: Draws) {
        self.draws.push(draws);
    }

    pub(crate) fn troubled(&mut self, from: Instant, until: Instant) {
        self.troubled.push((from, until));
    }

    pub(crate) fn away(&mut self, from: Instant, until: Instant) {
        self.away.push((from, until));
    }

    pub(crate) fn rests(&mut self, counted: u32, era: u64, first: u64) {
        let is_last = |of: &((usize, u64), u64)| of.0.1 == era && of.1 >= first;
        let admitted = self.buckets.iter().filter(|(of, _)| is_last(of));
        self.rest = (counted, admitted.map(|(_, bucket)| bucket.permits).sum());
    }

    /// Returns what is wrong, if anything is.
    pub(crate) fn check(&self, plan: &Plan, tally: &mut Tally) -> Result<(), String> {
        if self.longest_wait > STORE_WAIT + COARSE {
            return Err(format!("a call waited for {:?}", self.longest_wait));
        }
        let most = STORE_WAIT.max(Duration::from_millis(plan.occupy_ms)) + COARSE;
        if self.longest_loan > most {
            return Err(format!("a call borrowed for {:?}", self.longest_loan));
        }
        tally.borrowed += self.borrowed;
        let (counted, admitted) = self.rest;
        if counted != admitted {
            return Err(format!("at rest the store has {counted} of {admitted}"));
        }
        if plan.trouble == Trouble::Nothing && plan.origins > 0 {
            self.check_draws(plan, tally)?;
        }
        tally.histories += 1;
        for (&(of, last), bucket) in &self.buckets {
            tally.admitted += u64::from(bucket.permits);
            let first = (last + 1).saturating_sub(plan.buckets.into());
            let window = self.buckets.range((of, first)..=(of, last));
            let sum: u32 = window.map(|(_, bucket)| bucket.permits).sum();
            self.check_window(plan, tally, sum, bucket.last)?;
        }
        Ok(())
    }

    /// Checks what counters by key have cost the store.
    fn check_draws(&self, plan: &Plan, tally: &mut Tally) -> Result<(), String> {
        for process in &self.draws {
            let Draws {
                calls, draws, late, ..
            } = *process;
            tally.draws += draws;
            tally.calls += calls;
            if draws > calls + late {
                return Err(format!(
                    "{draws} draws for {calls} calls, {late} of them late"
                ));
            }
            // With other limits, others may be exhausted.
            if process.in_vain > 0 && plan.later_limit == plan.limit {
                return Err(format!("{} draws of exhausted keys", process.in_vain));
            }
        }
        Ok(())
    }

    /// Checks that a window with its last admission at `until` holds no more than it may.
    fn check_window(
        &self,
        plan: &Plan,
        tally: &mut Tally,
        sum: u32,
        until: Instant,
    ) -> Result<(), String> {
        let limit = plan.limit.max(plan.later_limit);
        let from = until - plan.bucket() * (plan.buckets + 1);
        let mut troubles = self.troubled.iter();
        let is_troubled = troubles.any(|trouble| trouble.0 <= until && from <= trouble.1);
        let is_away = |away: &(Instant, Instant)| away.0 <= from && until < away.1;
        let most = if !is_troubled {
            tally.calm += 1;
            tally.full += u64::from(sum == limit);
            Some(limit)
        } else if self.away.iter().any(is_away) {
            tally.away += 1;
            match plan.when_down {
                WhenDown::Closed => Some(0),
                WhenDown::LocalShare => Some(limit),
                _ => None,
            }
        } else {
            tally.troubled += 1;
            let worst = tally
                .worst
                .entry(format!("{:?} {}", plan.trouble, plan.when_down));
            let worst = worst.or_default();
            *worst = worst.max(f64::from(sum) / f64::from(limit));
            most_in_trouble(plan, limit)
        };
        match most {
            Some(most) if sum > most => Err(format!(
                "{sum} in a window that may hold {most}, troubled: {is_troubled}"
            )),
            _ => Ok(()),
        }
    }
}

/// The most that a window with trouble may hold; `None` if that is not bounded.
fn most_in_trouble(plan: &Plan, limit: u32) -> Option<u32> {
    let engines = plan.engines as u32;
    let most_share = limit.div_ceil(engines);
    match (plan.trouble, plan.when_down) {
        (_, WhenDown::Open) | (Trouble::All, _) => None,
        // By the old time, calls still have permits in hand, and others have borrowed those of the next
        // bucket; by the new time there is another one.
        (Trouble::Step, _) if plan.prioritized > 0 => Some(3 * limit),
        (Trouble::Flush | Trouble::Step, _) => Some(2 * limit),
        (_, WhenDown::Closed) => Some(limit),
        _ => Some(limit + (engines - 1) * most_share),
    }
}
