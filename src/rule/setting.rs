//! The settings of a rule by name, for those who write rules down.

use std::time::Duration;

use super::{MissingKey, Rule};

/// One setting of a rule, under the name of its builder method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    Text(String),
    Texts(Vec<String>),
    Number(f64),
    Count(u32),
    Flag(bool),
    Time(Duration),
    /// Thresholds for values under the key of the first field.
    Thresholds(&'static str, Vec<(String, f64)>),
}

/// What is set in a rule, in the order in which people would write it. What has
/// its default is left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(pub(crate) Vec<(&'static str, Setting)>);

impl Settings {
    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        self.0.push((name, Setting::Text(text.to_owned())));
    }

    pub(super) fn number(&mut self, name: &'static str, number: f64) {
        self.0.push((name, Setting::Number(number)));
    }

    pub(super) fn count(&mut self, name: &'static str, count: u32) {
        self.0.push((name, Setting::Count(count)));
    }

    pub(super) fn flag(&mut self, name: &'static str, flag: bool) {
        self.0.push((name, Setting::Flag(flag)));
    }

    pub(super) fn time(&mut self, name: &'static str, time: Duration) {
        self.0.push((name, Setting::Time(time)));
    }

    pub(super) fn texts(&mut self, name: &'static str, texts: &[String]) {
        self.0.push((name, Setting::Texts(texts.to_vec())));
    }

    pub(super) fn thresholds(
        &mut self,
        name: &'static str,
        key: &'static str,
        list: &[(String, f64)],
    ) {
        if !list.is_empty() {
            self.0.push((name, Setting::Thresholds(key, list.to_vec())));
        }
    }

    pub(super) fn missing(&mut self, missing: MissingKey) {
        match missing {
            MissingKey::Share => {}
            MissingKey::Skip => self.text("missing", "skip"),
            MissingKey::Refuse => self.text("missing", "refuse"),
        }
    }

    pub(super) fn id(&mut self, id: Option<&String>) {
        if let Some(id) = id {
            self.text("id", id);
        }
    }
}

impl Rule {
    /// What is set in the rule, its kind first.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.text("kind", self.kind());
        match self {
            Rule::Flow(rule) => rule.list(&mut settings),
            Rule::Isolation(rule) => rule.list(&mut settings),
            Rule::Adaptive(rule) => rule.list(&mut settings),
            Rule::CircuitBreaker(rule) => rule.list(&mut settings),
            Rule::Authority(rule) => rule.list(&mut settings),
            Rule::System(rule) => rule.list(&mut settings),
            Rule::HotParam(rule) => rule.list(&mut settings),
            Rule::Shadow(rule) => {
                settings = rule.settings();
                settings.flag("shadow", true);
            }
        }
        settings
    }
}
