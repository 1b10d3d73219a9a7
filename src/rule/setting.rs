//! The settings of a rule by name, to write rules down.

use std::time::Duration;

use super::sharing::Sharing;
use super::{MissingKey, Rule};
use crate::base::number::WholeNumber;

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

macro_rules! settings {
    ($($kind:ident($value:ty)),* $(,)?) => {$(
        impl From<$value> for Setting {
            fn from(value: $value) -> Self {
                Self::$kind(value)
            }
        }
    )*};
}

settings!(
    Text(String),
    Texts(Vec<String>),
    Number(f64),
    Count(u32),
    Flag(bool),
    Time(Duration),
);

impl From<WholeNumber> for Setting {
    fn from(number: WholeNumber) -> Self {
        Self::Count(number.get())
    }
}

/// The settings of a rule, in the order in which people would write them. Defaults are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenSettings(pub(crate) Vec<(&'static str, Setting)>);

impl WrittenSettings {
    pub(super) fn add(&mut self, name: &'static str, value: impl Into<Setting>) {
        self.0.push((name, value.into()));
    }

    /// Adds a setting that has no value unless it was given one.
    pub(super) fn add_given(&mut self, name: &'static str, value: Option<impl Into<Setting>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds a setting unless it has the value that it has in a rule where it was not set.
    pub(super) fn add_changed<T>(&mut self, name: &'static str, value: T, plain: T)
    where
        T: Copy + PartialEq + Into<Setting>,
    {
        if value != plain {
            self.add(name, value);
        }
    }

    pub(super) fn thresholds(
        &mut self,
        name: &'static str,
        key: &'static str,
        list: Vec<(String, f64)>,
    ) {
        if !list.is_empty() {
            self.0.push((name, Setting::Thresholds(key, list)));
        }
    }

    pub(super) fn sharing(&mut self, sharing: &Sharing) {
        self.add_changed("shared", sharing.is_shared, false);
        self.add_changed("exact", sharing.is_exact, false);
        self.add_changed("per_node", sharing.is_per_node, false);
        let when_down = sharing.when_down.map(|it| it.as_str().to_owned());
        self.add_given("when_down", when_down);
        self.add_given("local_limit", sharing.local_limit);
        self.add_given("store_wait", sharing.store_wait);
    }

    pub(super) fn missing(&mut self, missing: MissingKey) {
        if missing != MissingKey::default() {
            self.add("missing", missing.as_str().to_owned());
        }
    }
}

impl Rule {
    /// The settings of the rule, its kind first.
    pub(crate) fn settings(&self) -> WrittenSettings {
        let mut settings = WrittenSettings::default();
        settings.add("kind", self.kind().to_owned());
        self.info().list(&mut settings);
        settings.add_changed("shadow", self.is_shadow(), false);
        settings
    }
}
