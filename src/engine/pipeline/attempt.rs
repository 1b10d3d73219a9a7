//! One attempt to judge a call by all checks.

use super::EngineRef;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::arrival::Arrival;
use crate::engine::call::nodes::Claims;

/// The call, everything that the checks need to judge it, and the claims that it has made so far.
/// An attempt ends with a verdict. A call that has waited in line makes another attempt.
pub(super) struct Attempt<'a> {
    pub(super) engine: EngineRef<'a>,
    pub(super) call: &'a Call<'a>,
    /// The time of the attempt.
    pub(super) now: Tick,
    /// The claims so far.
    pub(super) claims: Claims,
    /// What the call has received while it waited, to be used by this attempt.
    pub(super) arrived: &'a mut Arrival,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        engine: EngineRef<'a>,
        call: &'a Call<'a>,
        now: Tick,
        arrived: &'a mut Arrival,
    ) -> Self {
        Self {
            engine,
            call,
            now,
            claims: Claims::default(),
            arrived,
        }
    }

    /// Returns the last of the call's turns and its rule, if the turn has not come yet.
    pub(super) fn later_turn(&self) -> Option<(Tick, u32)> {
        self.claims.last_turn().filter(|&(turn, _)| turn > self.now)
    }
}
