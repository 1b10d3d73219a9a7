//! How a call comes to be judged: at once, or with a slot or a share for which it has waited.

use std::time::Duration;

use crate::clock::Tick;
use crate::engine::call::nodes::CallNodes;
use crate::rule::{OwnShare, ShareInLine, SlotLimit};
use crate::stat::SlotHold;

/// See the [module](self). That of a call which has not waited is the default.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// The slot that it has got in line. Whoever begins to judge the call gives back what is
    /// left here.
    pub(crate) slot: Option<SlotHold>,
    /// Its place in line, for the case that it has to go back there.
    pub(crate) place: Option<PlaceInLine>,
    /// The same of shares of the quotas of its values, if it has waited for one.
    pub(crate) shares: Option<Box<OfShares>>,
    /// When it came, if it has waited.
    pub(crate) since: Option<Tick>,
}

/// What a call has got in the lines of its values.
#[derive(Debug, Default)]
pub(crate) struct OfShares {
    /// The share that it has got in line, to be given back as a slot.
    pub(crate) own: Option<OwnShare>,
    /// Its places in lines: the last one is the latest.
    pub(crate) places: Vec<ShareInLine>,
}

/// Where a call stands in line for a slot, or has stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceInLine {
    pub(crate) ticket: u64,
    /// How long it may wait there in all that is to come.
    pub(crate) left: Duration,
    /// The limit that it waits for.
    pub(crate) slots: SlotLimit,
}

// === impl Arrival ===

impl Arrival {
    /// How long the call has waited at `now`.
    pub(crate) fn waited(&self, now: Tick) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Its places in the lines of its values, if it had any.
    pub(super) fn share_places(&self) -> &[ShareInLine] {
        self.shares.as_deref().map_or(&[], |shares| &shares.places)
    }

    /// Takes the share that it has got in line and that is not used.
    pub(crate) fn take_share(&mut self) -> Option<OwnShare> {
        self.shares.as_deref_mut()?.own.take()
    }

    /// The call starts at `now`: its wait is counted, if it had one.
    pub(super) fn count_wait(&self, nodes: &CallNodes, now: Tick) {
        if self.since.is_some() {
            nodes.each(|node| node.waited_in_line(self.waited(now)));
        }
    }
}
