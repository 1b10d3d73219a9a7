//! The stand-in for what an engine shares with its store, where there can be none.

use super::StoreStatus;

/// Nothing makes a value of it.
#[derive(Debug)]
pub(crate) enum Hub {}

impl Hub {
    pub(crate) const fn store(&self) -> Option<()> {
        match *self {}
    }
}

impl StoreStatus {
    pub(crate) const fn of(hub: &Hub) -> Self {
        match *hub {}
    }
}
