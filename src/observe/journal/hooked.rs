//! Queues the changes of breakers that a hook receives, until the journal logs them.

use super::MOST_CHANGES;
use crate::base::sync::Lock;
use crate::breaker::BreakerState;
use crate::hook::{BreakerEvent, Hook, Interest};

/// The changes of breakers since the last poll, in their order.
#[derive(Debug, Default)]
pub(super) struct Changes(pub(super) Lock<ChangeQueue>);

#[derive(Debug, Default)]
pub(super) struct ChangeQueue {
    pub(super) changes: Vec<Changed>,
    /// The number of changes that found the queue full.
    pub(super) more: u64,
}

/// One or more changes of the state of one breaker.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) resource: String,
    pub(super) direction: &'static str,
    pub(super) rule: String,
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    /// Why the breaker opened, as in [`BreakerEvent`].
    pub(super) value: Option<f64>,
    /// The number of changes in this record: `from` is the state before the first, `to` the state
    /// after the last.
    pub(super) times: u64,
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
