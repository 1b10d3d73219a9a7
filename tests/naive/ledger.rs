//! What a rule on parameters knows of its values, whatever limits it has had.

use crate::hot::{Hot, Paid, Seen};
use crate::versions::Named;
use crate::wants::Wants;

/// A rule, and the calls that it has counted.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) hot: Named<Hot>,
    /// What refusals call it.
    pub(crate) name: String,
    /// The place of each call among those that have passed, and what it has cost.
    counted: Vec<(usize, u64)>,
    /// How many calls had passed when it began, and how many had come.
    since: (usize, usize),
}

impl Ledger {
    pub(crate) fn new(hot: Named<Hot>, name: String, since: (usize, usize)) -> Self {
        Self {
            hot,
            name,
            counted: Vec::new(),
            since,
        }
    }

    /// The rule has other limits.
    pub(crate) fn go_on(self, hot: Named<Hot>, name: String) -> Self {
        Self { hot, name, ..self }
    }

    /// The call has passed that is the one at `index`.
    pub(crate) fn count(&mut self, index: usize, wants: &Wants) {
        if self.hot.key(wants).is_some() {
            let cost = self.hot.cost(wants).unwrap_or(0);
            self.counted.push((index, cost));
        }
    }

    /// The call at `index` does not run after all.
    pub(crate) fn forget(&mut self, index: usize) {
        self.counted.retain(|(counted, _)| *counted != index);
    }

    fn paid(&self, seen: &[Seen]) -> Vec<Paid> {
        let paid = |&(index, cost): &(usize, u64)| Paid {
            seen: seen[index],
            cost,
        };
        self.counted.iter().map(paid).collect()
    }

    /// From when on the rule lets the call pass.
    pub(crate) fn available_at(&self, wants: &Wants, now: u64, seen: &[Seen]) -> Option<u64> {
        self.hot.available_at(wants, now, &self.paid(seen))
    }

    pub(crate) fn has_left(&self, wants: &Wants, left: u32, now: u64, seen: &[Seen]) -> bool {
        self.hot.has_left(wants, left, now, &self.paid(seen))
    }

    /// How many calls without a value it has seen, at least and at most: those that
    /// passed, and those that came.
    pub(crate) fn missed(&self, seen: &[Seen], came: &[Wants]) -> (usize, usize) {
        let (passed, all) = self.since;
        let seen = seen[passed..].iter();
        let came = came[all..].iter();
        (
            seen.filter(|seen| self.hot.is_missed(&seen.wants)).count(),
            came.filter(|wants| self.hot.is_missed(wants)).count(),
        )
    }
}
