//! The settings of an isolation rule by name.

use super::IsolationRule;
use crate::rule::setting::Settings;

impl IsolationRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
        let Self { resource, max, id } = self;
        settings.text("resource", resource);
        settings.count("max", *max);
        settings.id(id.as_ref());
    }
}
