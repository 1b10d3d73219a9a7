//! What a rule on parameters knows of its values, whatever limits it has had.

use super::call::Asks;
use super::keyed::{Count, Counted, Keyed};
use super::rules::Named;

/// A rule, and the calls that it has counted.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) keyed: Named<Keyed>,
    /// What refusals call it.
    pub(crate) name: String,
    counted: Vec<Counted>,
    /// How many calls had passed when it began, and how many had come.
    pub(crate) since: (usize, usize),
}

impl Ledger {
    pub(crate) fn new(keyed: Named<Keyed>, name: String, since: (usize, usize)) -> Self {
        Self {
            keyed,
            name,
            counted: Vec::new(),
            since,
        }
    }

    /// The rule has other limits.
    pub(crate) fn go_on(self, keyed: Named<Keyed>, name: String) -> Self {
        Self {
            keyed,
            name,
            ..self
        }
    }

    /// The call passes or waits that comes as the one at `call`.
    pub(crate) fn count(&mut self, call: usize, asks: &Asks, now: u64) {
        if self.keyed.counts(asks) {
            let turn = self.turn(asks, now);
            self.counted.push(Counted {
                call,
                asks: *asks,
                at: now,
                cost: self.keyed.cost(asks).unwrap_or(0),
                single: self.keyed.cost(&Asks { weight: 1, ..*asks }).unwrap_or(0),
                turn: turn.map_or(now, |(_, turn)| turn),
                is_there: true,
            });
        }
    }

    /// The call neither waits nor runs any more.
    pub(crate) fn ends(&mut self, call: usize) {
        let mut counted = self.counted.iter_mut();
        if let Some(counted) = counted.find(|counted| counted.call == call) {
            counted.is_there = false;
        }
    }

    /// The call does not run after all. Those that stand behind it have been told when
    /// they start: its turn stays as a gap.
    pub(crate) fn forget(&mut self, call: usize) {
        self.ends(call);
        let Some(place) = self.counted.iter().position(|own| own.call == call) else {
            return;
        };
        let own = self.counted[place];
        let key = self.keyed.key(&own.asks);
        let mut behind = self.counted[place + 1..].iter();
        let is_behind =
            |other: &Counted| other.asks.weight > 0 && self.keyed.key(&other.asks) == key;
        let is_behind = own.asks.weight > 0 && behind.any(is_behind);
        match self.keyed.count {
            Count::Queue(_) if is_behind => {}
            // They have found a debt of its rate.
            Count::Refill if is_behind => self.counted[place].cost = 0,
            _ => _ = self.counted.remove(place),
        }
    }

    /// The turn of the call in the queue of its value, and from when on it may wait for it.
    pub(crate) fn turn(&self, asks: &Asks, now: u64) -> Option<(u64, u64)> {
        self.keyed.turn(asks, now, &self.counted)
    }

    /// From when on the rule lets the call pass or wait.
    pub(crate) fn available_at(&self, asks: &Asks, now: u64) -> Option<u64> {
        self.keyed.available_at(asks, now, &self.counted)
    }

    pub(crate) fn has_left(&self, asks: &Asks, left: u32, now: u64) -> bool {
        self.keyed.has_left(asks, left, now, &self.counted)
    }
}
