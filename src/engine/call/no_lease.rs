//! A replacement for [`lease`](super::lease) in builds without the feature `shared`, in which no
//! call waits for permits of shared rules.

use std::task::Waker;
use std::time::Duration;

use crate::base::small_vec::SmallVec;
use crate::clock::Tick;
use crate::engine::resource::HeldLeases;
use crate::rule::{LeaseAccount, NoShare};

/// The permits of shared rules for a waiting call. The type has no variants, as no call needs such
/// permits.
#[derive(Debug)]
pub(crate) enum WaitLeases {}

/// The next step of a call whose turn has come.
pub(crate) enum TurnStep {
    /// The call has all its permits.
    Starts,
}

impl WaitLeases {
    pub(crate) const fn is_answered(&self, _: Option<&Waker>) -> bool {
        match *self {}
    }

    pub(crate) const fn settle(&mut self, _: Tick) -> bool {
        match *self {}
    }

    pub(crate) const fn refusal(&self) -> Option<NoShare> {
        match *self {}
    }

    pub(crate) const fn take(&mut self, _: Tick) -> Result<TurnStep, NoShare> {
        match *self {}
    }

    pub(crate) const fn most(&self) -> Duration {
        match *self {}
    }

    pub(crate) const fn start_after(&self, _: Tick) -> Option<Tick> {
        match *self {}
    }

    pub(crate) const fn hand_over(&mut self) -> Option<Box<HeldLeases>> {
        match *self {}
    }

    pub(crate) const fn refund(&mut self) {
        match *self {}
    }

    pub(crate) const fn spend(&mut self) -> SmallVec<LeaseAccount, 1> {
        match *self {}
    }
}
