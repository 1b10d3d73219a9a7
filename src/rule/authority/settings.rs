//! The settings of an authority rule by name.

use super::{AuthorityRule, Strategy};
use crate::rule::setting::Settings;

impl AuthorityRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
        let Self {
            resource,
            origins,
            strategy,
            deny_unknown,
            id,
        } = self;
        settings.text("resource", resource);
        match strategy {
            Strategy::Allow => settings.texts("allow", origins),
            Strategy::Deny => settings.texts("deny", origins),
        }
        if *deny_unknown {
            settings.flag("deny_unknown", true);
        }
        settings.id(id.as_ref());
    }
}
