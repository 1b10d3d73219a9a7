//! The settings of a rule by name, as documents and the page show them.

use std::time::Duration;

use super::Rule;

/// One setting of a rule, under the name of its builder method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    Text(String),
    Texts(Vec<String>),
    Number(f64),
    Count(u32),
    Flag(bool),
    Time(Duration),
    /// Thresholds by name; the first field is the key of the name in documents.
    Thresholds(&'static str, Vec<(String, f64)>),
}

/// The settings of a rule, in the order in which people would write them, without defaults.
#[derive(Clone, Debug)]
pub(crate) struct WrittenSettings(pub(crate) Vec<(&'static str, Setting)>);

impl Rule {
    /// The settings of the rule, starting with its kind.
    pub(crate) fn settings(&self) -> WrittenSettings {
        let kind = Setting::Text(self.kind().to_owned());
        let mut settings = WrittenSettings(vec![("kind", kind)]);
        self.info().list(&mut settings);
        if self.is_shadow() {
            settings.0.push(("shadow", Setting::Flag(true)));
        }
        settings
    }
}
