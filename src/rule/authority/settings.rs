//! The settings of an authority rule by name.

use super::{AuthorityRule, Treatment};
use crate::rule::setting::WrittenSettings;

impl AuthorityRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            origins,
            strategy,
            deny_unknown,
            id,
        } = self;
        settings.add("resource", resource);
        match strategy {
            Treatment::Allow => settings.add("allow", origins),
            Treatment::Deny => settings.add("deny", origins),
        }
        settings.add_changed("deny_unknown", deny_unknown, false);
        settings.add_given("id", id);
    }
}
