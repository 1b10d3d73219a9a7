//! The claims that a call makes before it takes its tokens: turns and shares.

use super::QuotasLeft;
use crate::clock::Tick;
use crate::rule::{Shares, Turns};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The turns that the call has in queues.
    pub(crate) turns: Turns,
    /// The shares of the quotas of its parameters that the call has.
    pub(crate) shares: Shares,
    /// The remaining quotas of the call's parameters, if the response reports them.
    pub(crate) quotas: QuotasLeft,
}

impl Claims {
    /// Returns the latest start of a turn or share, and its rule.
    pub(crate) fn last_turn(&self) -> Option<(Tick, u32)> {
        let mut last: Option<(Tick, u32)> = None;
        let mut look = |start: Tick, rule: u32| {
            // Of equal starts, the last one wins.
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
