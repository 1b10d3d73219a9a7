//! The settings of an isolation rule by name.

use super::IsolationRule;
use crate::rule::setting::WrittenSettings;

impl IsolationRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            max,
            who,
            related,
            queue,
            max_waiting,
            id,
        } = self;
        let plain = Self::new("", 0);
        settings.add("resource", resource);
        settings.add("max", max);
        settings.add_given("for_origin", who.origin().map(str::to_owned));
        settings.add_given("when", related);
        settings.add_given("queue", queue);
        settings.add_changed("max_waiting", max_waiting, plain.max_waiting);
        settings.add_given("id", id);
    }
}
