//! The books of a counter: its ledger while any entry still counts, and otherwise only its terms.
//!
//! Most keys that have called once do not call again soon. A ledger whose entries have all expired
//! is equivalent to a new one. So it is dropped, which saves memory, and the next call opens a new
//! ledger. Its knowledge of the store's clock is not lost, as the rule of the counter keeps it as
//! well.

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

    /// Returns the ledger; `None` if the books are at rest.
    pub(super) fn ledger(&mut self) -> Option<&mut Ledger> {
        match self {
            Self::AtRest(_) => None,
            Self::Open(ledger) => Some(ledger),
        }
    }

    /// Returns the ledger, after creating it if the books were at rest.
    pub(super) fn open(&mut self, rule: &QuotaRule) -> &mut Ledger {
        if let Self::AtRest(terms) = self {
            *self = Self::Open(Box::new(rule.ledger(terms.clone())));
        }
        match self {
            Self::AtRest(_) => unreachable!("it is open by now"),
            Self::Open(ledger) => ledger,
        }
    }

    /// Drops the ledger and keeps its terms.
    pub(super) fn close(&mut self) {
        *self = Self::AtRest(self.terms().clone());
    }
}
