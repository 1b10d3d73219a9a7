//! The settings of an isolation rule by name.

use super::IsolationRule;
use crate::rule::setting::Settings;

impl IsolationRule {
    pub(in crate::rule) fn list(self, settings: &mut Settings) {
        let Self { resource, max, id } = self;
        settings.add("resource", resource);
        settings.add("max", max);
        settings.add_given("id", id);
    }
}
