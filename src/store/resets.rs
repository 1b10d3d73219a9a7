//! Keys that are reset: a person gives a key its whole quota back, in all processes.
//!
//! The store has no request for a reset. The process that resets a key sends draws that return all
//! permits counted in each bucket of the key's counter, and then announces the reset with a beat.
//! The answer to each beat contains the number of resets so far. If it has grown, a process forgets
//! the refusals that it remembers, so the next call of each refused key asks the store. By then,
//! the counter is empty.

use std::future::poll_fn;
use std::time::Duration;

use super::beat::Alive;
use super::digest::CounterDigest;
use super::draw::{Booking, Draw, Drawn, Epoch};
use super::hub::{Hub, HubMode};
use super::request::{self, Heard, Request};
use super::terms::{QuotaRule, Window};
use super::{QuotaStore, StoreError, StoreErrorKind, StoreKey};
use crate::base::sync::Ordering;
use crate::clock::Tick;

/// The state of a counter, as the store reports it.
#[derive(Debug, Default)]
struct FoundCount {
    /// The number of permits counted in the window.
    counted: u32,
    /// The present bucket in the store's numbering.
    bucket: u64,
    /// The present bucket in the rule's numbering: a day or month for a calendar window, otherwise
    /// the same as `bucket`.
    number: u64,
    /// The time until the bucket `number` ends.
    rest: Duration,
}

impl Hub {
    /// Notes that a key was reset before `now`.
    pub(super) fn note_reset(&self, now: Tick) {
        let after = now.as_nanos().saturating_add(1);
        self.reset_before.fetch_max(after, Ordering::Relaxed);
    }

    /// Returns whether a request that was sent at `sent` may have been answered before a reset.
    pub(super) fn may_precede_reset(&self, sent: Tick) -> bool {
        sent.as_nanos() < self.reset_before.load(Ordering::Relaxed)
    }

    /// Empties the counter `digest` of `rule` in the store. Returns the number of permits that it
    /// had counted.
    pub(super) async fn empty(
        &self,
        digest: CounterDigest,
        rule: &QuotaRule,
    ) -> Result<u32, StoreError> {
        let window = *rule.window;
        let mut number = rule.present_bucket(self.now());
        let mut found = self
            .look(self.key_in(digest, window, number), window)
            .await?;
        // For a calendar window, the store's day can differ from the day by this process's clock.
        if window.calendar.is_some() && found.number != number {
            number = found.number;
            found = self
                .look(self.key_in(digest, window, number), window)
                .await?;
        }
        if found.counted == 0 {
            return Ok(0);
        }
        // The permits are in the buckets of the window at the time of the answer, or in the bucket
        // after it.
        let next = found.bucket.saturating_add(1);
        let first = next.saturating_sub(window.buckets.into());
        let emptied = (first..=next).map(|bucket| Draw {
            back: Some(Booking {
                bucket,
                permits: u32::MAX,
            }),
            kept: window.kept(found.rest),
            ..self.nothing_of(self.key_in(digest, window, number), window)
        });
        self.apply(emptied.collect()).await?;
        Ok(found.counted)
    }

    /// Reads the count of the counter `key`, and the store's time.
    async fn look(&self, key: StoreKey, window: Window) -> Result<FoundCount, StoreError> {
        let look = self.nothing_of(key, window);
        // Permits borrowed from the next bucket count as well.
        let ahead = Draw {
            next: true,
            ..look.clone()
        };
        let mut found = FoundCount::default();
        for drawn in self.apply(vec![look, ahead]).await? {
            if let Drawn::Granted {
                free, bucket, rest, ..
            } = drawn
            {
                found.counted = found.counted.max(u32::MAX - free);
                found.bucket = bucket;
                (found.number, found.rest) = window.read(bucket, rest);
            }
        }
        Ok(found)
    }

    /// Creates a draw that takes no permits, to read a counter or as the base of another draw.
    fn nothing_of(&self, key: StoreKey, window: Window) -> Draw {
        let Window {
            bucket, buckets, ..
        } = window.in_store();
        Draw {
            key,
            bucket,
            buckets,
            limit: u32::MAX,
            firm: 0,
            soft: 0,
            divisor: 1,
            next: false,
            back: None,
            known: Epoch::default(),
            add: Vec::new(),
            kept: None,
            wait: self.settings.store_wait,
        }
    }

    /// Announces to all processes that a key was reset.
    pub(super) async fn tell_reset(&self) -> Result<(), StoreError> {
        let alive = Alive::of_reset(self.agreed());
        self.ask(|store| async move { store.beat(alive).await })
            .await
            .map(drop)
    }

    /// Sends `draws` in one request. Fails if the store does not apply all of them.
    async fn apply(&self, draws: Vec<Draw>) -> Result<Vec<Drawn>, StoreError> {
        self.figures.trips.add(1);
        self.figures.draws.add(draws.len() as u64);
        let asked = draws.len();
        let answers = self
            .ask(|store| async move { store.draw(&draws).await })
            .await?;
        if answers.len() != asked {
            let detail = "it did not answer each draw";
            return Err(StoreError::new(StoreErrorKind::Refused, detail));
        }
        answers.into_iter().collect()
    }

    /// Sends a request to the store directly, without the refiller. Fails if the store is down or
    /// was not started.
    async fn ask<T, F>(
        &self,
        question: impl FnOnce(std::sync::Arc<dyn QuotaStore>) -> F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let unreachable = |why| StoreError::new(StoreErrorKind::Unreachable, why);
        let (Some(store), true) = (self.store(), self.is_up()) else {
            return Err(unreachable(match self.mode() {
                HubMode::Down => "it is away",
                _ => "it was not started",
            }));
        };
        let request = Request::new(self, self.now(), question(store.clone()));
        let mut request = request.ok_or_else(|| unreachable("there is no runtime with a timer"))?;
        match poll_fn(|cx| request.poll(cx)).await {
            Heard::Answer(answer) => answer,
            Heard::Late => Err(request::late()),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::clock::timekeeper::Timekeeper;
    use crate::store::StoreSettings;

    #[test]
    fn answers_to_what_was_sent_before_a_reset_was_heard_of_are_in_doubt() {
        let time = Timekeeper::new(Box::new(ManualClock::new()));
        let hub = Hub::new(None, StoreSettings::new(), time);
        let [early, late] = [0, 5].map(Tick::from_millis);
        assert!(!hub.may_precede_reset(early));
        hub.note_reset(early);
        assert!(hub.may_precede_reset(early) && !hub.may_precede_reset(late));
        hub.note_reset(late);
        hub.note_reset(early);
        assert!(hub.may_precede_reset(late));
    }
}
