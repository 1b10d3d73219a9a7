//! The books of a counter: its ledger as long as anything in that counts, and after that only its
//! terms.
//!
//! Most keys that have called once do not call again soon. A ledger in which nothing counts any
//! more is equivalent to a new one, so it is dropped, and the next call opens another one. The
//! store's clock is not lost with it: the rule of the counter knows it as well.

use super::ledger::Ledger;
use super::terms::{QuotaRule, Terms};
use crate::base::sync::Arc;

/// See the [module](self).
#[derive(Debug)]
pub(super) enum Books {
    AtRest(Arc<Terms>),
    Open(Box<Ledger>),
}

impl Books {
    pub(super) fn terms(&self) -> &Arc<Terms> {
        match self {
            Self::AtRest(terms) => terms,
            Self::Open(ledger) => &ledger.terms,
        }
    }

    pub(super) fn terms_mut(&mut self) -> &mut Arc<Terms> {
        match self {
            Self::AtRest(terms) => terms,
            Self::Open(ledger) => &mut ledger.terms,
        }
    }

    /// The ledger, unless it is at rest.
    pub(super) fn ledger(&mut self) -> Option<&mut Ledger> {
        match self {
            Self::AtRest(_) => None,
            Self::Open(ledger) => Some(ledger),
        }
    }

    /// The ledger; a new one if it was at rest.
    pub(super) fn open(&mut self, rule: &QuotaRule) -> &mut Ledger {
        if let Self::AtRest(terms) = self {
            *self = Self::Open(Box::new(rule.ledger(terms.clone())));
        }
        match self {
            Self::AtRest(_) => unreachable!("it is open by now"),
            Self::Open(ledger) => ledger,
        }
    }

    /// Forgets all but the terms.
    pub(super) fn close(&mut self) {
        *self = Self::AtRest(self.terms().clone());
    }
}
