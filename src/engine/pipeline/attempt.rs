//! One attempt to judge a call by all checks.

use super::EngineRef;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::arrival::Arrival;
use crate::engine::call::nodes::Claims;

/// What every check from the first to the last needs of a call, and what the call has claimed on
/// the way. An attempt ends with a verdict; a call that has waited in line makes another one.
pub(super) struct Attempt<'a> {
    pub(super) engine: EngineRef<'a>,
    pub(super) call: &'a Call<'a>,
    pub(super) now: Tick,
    pub(super) claims: Claims,
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

    /// The last of its turns, and the rule whose queue it is in, if the turn is still to come.
    pub(super) fn later_turn(&self) -> Option<(Tick, u32)> {
        self.claims.last_turn().filter(|&(turn, _)| turn > self.now)
    }
}
