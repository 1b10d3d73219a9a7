//! The settings of an adaptive rule by name.

use super::AdaptiveRule;
use crate::rule::setting::Settings;

impl AdaptiveRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
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
        settings.text("resource", resource);
        if *floor != plain.floor {
            settings.count("floor", *floor);
        }
        if *ceiling != plain.ceiling {
            settings.count("ceiling", *ceiling);
        }
        if let Some(start) = start {
            settings.count("start", *start);
        }
        if *tolerance != plain.tolerance {
            settings.number("tolerance", *tolerance);
        }
        if *smoothing != plain.smoothing {
            settings.number("smoothing", *smoothing);
        }
        settings.id(id.as_ref());
    }
}
