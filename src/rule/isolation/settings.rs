//! The settings of an isolation rule by name.

use super::IsolationRule;
use crate::rule::setting::WrittenSettings;

impl IsolationRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            max,
            queue,
            max_waiting,
            id,
        } = self;
        let plain = Self::new("", 0);
        settings.add("resource", resource);
        settings.add("max", max);
        settings.add_given("queue", queue);
        settings.add_changed("max_waiting", max_waiting, plain.max_waiting);
        settings.add_given("id", id);
    }
}
