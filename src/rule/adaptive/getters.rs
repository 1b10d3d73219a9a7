//! Reading the settings of an adaptive rule.

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

    /// Returns the factor by which response times [may grow](Self::tolerance).
    #[must_use]
    pub const fn get_tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Returns how far the limit [moves](Self::smoothing) after each window, as a fraction.
    #[must_use]
    pub const fn get_smoothing(&self) -> f64 {
        self.smoothing
    }

    /// Returns the [name](Self::id) that the rule was given; `None`: it goes by its place in
    /// the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
