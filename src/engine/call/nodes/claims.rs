//! The claims of a call before it takes its tokens: turns and shares.

use super::QuotasLeft;
use crate::clock::Tick;
use crate::rule::{Shares, Turns};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Turns in queues.
    pub(crate) turns: Turns,
    /// Shares of the quotas of its parameters.
    pub(crate) shares: Shares,
    /// The rest of these quotas, for a call that wants to know.
    pub(crate) quotas: QuotasLeft,
}

impl Claims {
    /// The last turn to come, and the rule whose queue it is in.
    pub(crate) fn last_turn(&self) -> Option<(Tick, u32)> {
        let mut last: Option<(Tick, u32)> = None;
        let mut look = |start: Tick, rule: u32| {
            // Of equal ones the last.
            if last.is_none_or(|(latest, _)| latest <= start) {
                last = Some((start, rule));
            }
        };
        for queued in self.turns.iter() {
            look(queued.turn.start(), queued.rule);
        }
        for share in self.shares.iter() {
            look(share.start(), share.rule);
        }
        last
    }
}
