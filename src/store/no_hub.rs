//! A replacement for the hub in builds without the `shared` feature, in which an engine has no
//! store.

use super::StoreStatus;

/// An uninhabited type in place of the hub.
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
