//! Whether an engine and a naive one show the same.

use proptest::prelude::*;
use tower_sentinel::Sentinel;
use tower_sentinel::read::{BreakerView, KeyedView, NodeView};
use tower_sentinel::stat::Event;

use super::call::{Asks, End, NS, RESOURCES};
use super::engine::{Oracle, Stage};

/// The length of a bucket of the window that figures are read from, which has two.
const HALF: u64 = 500 * NS;

/// Those of keyed rules; flow rules by origin are kept in the same way.
fn views(node: &NodeView) -> impl Iterator<Item = KeyedView> {
    let views = node.keyed_rules().into_iter();
    views.filter(|view| view.rule().starts_with("key"))
}

/// The start of the window in which `now` is.
fn window(now: u64) -> u64 {
    (now / HALF).saturating_sub(1) * HALF
}

impl Oracle {
    /// Whether the figures of `resource` are those that `node` has.
    pub(crate) fn agrees(
        &mut self,
        resource: &'static str,
        node: &NodeView,
        now: u64,
    ) -> Result<(), TestCaseError> {
        self.agrees_on_calls(resource, node, now)?;
        let totals = node.totals();
        let blocked = self.blocked.get(resource).copied();
        prop_assert_eq!(totals.block(), blocked.unwrap_or(0));
        let by_kind = totals.blocks().map(|(_, count)| count);
        prop_assert_eq!(by_kind.sum::<u64>(), totals.block());
        let mut ended = [0; 3];
        for seen in self
            .calls
            .iter()
            .filter(|seen| seen.asks.resource == resource)
        {
            if let Stage::Ended(end) = seen.stage {
                let place = match end {
                    End::Good | End::Ignored => 0,
                    End::Failed => 1,
                    End::Cancelled => 2,
                };
                ended[place] += u64::from(seen.asks.weight);
            }
        }
        let [good, failed, cancelled] = ended;
        prop_assert_eq!((totals.complete(), totals.error()), (good + failed, failed));
        if !self.has_waited {
            prop_assert_eq!(totals.cancelled(), cancelled);
            prop_assert_eq!(totals.pass(), self.tokens(resource, 0));
            prop_assert_eq!(node.sum(Event::Pass), self.tokens(resource, window(now)));
        }
        prop_assert_eq!(views(node).count(), self.ledgers(resource).count());
        for (ledger, view) in self.ledgers(resource).zip(views(node)) {
            prop_assert_eq!(view.rule(), &ledger.name);
            let asks = Asks::with_all(resource);
            let left = view.left(ledger.keyed.value(&asks));
            let is_left = ledger.has_left(&asks, left, now);
            prop_assert!(is_left, "{:?}: {:?} left", ledger, left);
            // Of those without a value, those that passed are counted, and some of those
            // that came.
            let (passed, came) = ledger.since;
            let is_missed = |asks: &Asks| ledger.keyed.is_missed(asks);
            let passed = self.calls[passed..].iter().map(|seen| &seen.asks);
            let passed = passed.filter(|asks| is_missed(asks)).count();
            let came = self.came[came..].iter().filter(|asks| is_missed(asks));
            prop_assert!((passed..=came.count()).contains(&(view.missing() as usize)));
        }
        Ok(())
    }

    /// The same, only for the calls that run or wait, and for breakers.
    pub(crate) fn agrees_on_calls(
        &mut self,
        resource: &'static str,
        node: &NodeView,
        now: u64,
    ) -> Result<(), TestCaseError> {
        let mut views: Vec<_> = node
            .breakers()
            .iter()
            .map(|view: &BreakerView| (view.rule().to_owned(), view.state()))
            .collect();
        let circuits = self.circuits(resource);
        let mut expected: Vec<_> = circuits
            .map(|circuit| (circuit.name.clone(), circuit.state()))
            .collect();
        views.sort_by(|one, other| one.0.cmp(&other.0));
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        prop_assert_eq!(views, expected);
        let (mut running, mut waiting) = (0, 0);
        // A call that waits for its turn may count as running since its bucket began. One that
        // went after a reload may count as cancelled before that.
        let (mut early, mut late) = (0, 0);
        for seen in self
            .calls
            .iter()
            .filter(|seen| seen.asks.resource == resource)
        {
            let weight = seen.asks.weight as usize;
            match seen.stage {
                Stage::Runs => running += 1,
                Stage::Waits => (waiting, early) = (waiting + 1, early + weight),
                Stage::Gone if seen.at > now => late += weight,
                Stage::Ended(_) | Stage::Gone => {}
            }
        }
        prop_assert_eq!(node.waiting() as usize, waiting);
        let found = node.concurrency() as usize;
        let range = running - late.min(running)..=running + early;
        prop_assert!(range.contains(&found), "{found} of {range:?}");
        let isolation = self.rules.isolation;
        if self.found.contains_key(resource) || isolation.is_some_and(|(own, _)| own == resource) {
            prop_assert_eq!(node.slots_in_use(), running as u32);
        }
        Ok(())
    }

    /// The same for all inbound calls together.
    pub(crate) fn agrees_on_all(&self, sentinel: &Sentinel, now: u64) -> Result<(), TestCaseError> {
        let inbound = sentinel.inbound();
        let sum = |of: &dyn Fn(&str) -> usize| RESOURCES.map(of).iter().sum::<usize>();
        let waiting = sum(&|resource| self.waiting(resource));
        prop_assert_eq!(inbound.waiting() as usize, waiting);
        if !self.has_waited {
            let running = sum(&|resource| self.running(resource));
            prop_assert_eq!(inbound.concurrency() as usize, running);
            let tokens = sum(&|resource| self.tokens(resource, window(now)) as usize);
            prop_assert_eq!(inbound.sum(Event::Pass) as usize, tokens);
        }
        Ok(())
    }
}
