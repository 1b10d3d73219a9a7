//! The settings of an adaptive rule by name.

use super::AdaptiveRule;
use crate::rule::setting::WrittenSettings;

impl AdaptiveRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            floor,
            ceiling,
            start,
            tolerance,
            smoothing,
            id,
        } = self;
        let plain = Self::new("");
        settings.add("resource", resource);
        settings.add_changed("floor", floor, plain.floor);
        settings.add_changed("ceiling", ceiling, plain.ceiling);
        settings.add_given("start", start);
        settings.add_changed("tolerance", tolerance, plain.tolerance);
        settings.add_changed("smoothing", smoothing, plain.smoothing);
        settings.add_given("id", id);
    }
}
