//! Reading the settings of a system rule.

use std::time::Duration;

use super::SystemRule;
use crate::system::Capacity;

impl SystemRule {
    /// Returns the limit on the [load](Self::load), if there is one.
    #[must_use]
    pub const fn get_load(&self) -> Option<f64> {
        self.load
    }

    /// Returns the limit on the [CPU use](Self::cpu), if there is one.
    #[must_use]
    pub const fn get_cpu(&self) -> Option<f64> {
        self.cpu
    }

    /// Returns the limit on the [calls per second](Self::qps), if there is one.
    #[must_use]
    pub const fn get_qps(&self) -> Option<f64> {
        self.qps
    }

    /// Returns the limit on the [response time](Self::rt), if there is one.
    #[must_use]
    pub const fn get_rt(&self) -> Option<Duration> {
        self.rt
    }

    /// Returns the limit on the [calls at once](Self::concurrency), if there is one.
    #[must_use]
    pub const fn get_concurrency(&self) -> Option<u32> {
        match self.concurrency {
            Some(number) => Some(number.get()),
            None => None,
        }
    }

    /// Returns how the [capacity](Self::capacity) is estimated.
    #[must_use]
    pub const fn get_capacity(&self) -> Capacity {
        self.capacity
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
