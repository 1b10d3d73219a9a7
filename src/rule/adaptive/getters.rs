//! Reading the settings of an adaptive rule.

use std::time::Duration;

use super::AdaptiveRule;

impl AdaptiveRule {
    /// Returns the [lower bound](Self::floor) of the limit.
    #[must_use]
    pub const fn get_floor(&self) -> u32 {
        self.floor.get()
    }

    /// Returns the [upper bound](Self::ceiling) of the limit.
    #[must_use]
    pub const fn get_ceiling(&self) -> u32 {
        self.ceiling.get()
    }

    /// Returns the limit [at the start](Self::start), if that was set.
    #[must_use]
    pub const fn get_start(&self) -> Option<u32> {
        match self.start {
            Some(number) => Some(number.get()),
            None => None,
        }
    }

    /// Returns how much work can exceed the limit in a [burst](Self::burst), as the time that it
    /// takes.
    #[must_use]
    pub const fn get_burst(&self) -> Duration {
        self.burst
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
