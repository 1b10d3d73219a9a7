//! The settings of rules as rows of a table: the name of each, and how it is read and changed.
//!
//! A setting has a documented builder method and getter, and a row in the `fields.rs` of its kind.
//! Everything else goes through the rows: reading and writing documents, describing a rule on the
//! page, and keeping the settings that a form of the dashboard does not show.

use std::ops::Range;
use std::time::Duration;

use super::Rule;
use super::info::RuleInfo;
use super::setting::{Setting, WrittenSettings};

/// A kind of rules whose settings are listed in a table.
pub(crate) trait HasFields: RuleInfo + Into<Rule> + 'static {
    /// The settings, in the order in which people would write them. They come in groups, some of
    /// which several kinds share.
    const FIELDS: &'static [&'static [Field<Self>]];

    /// The settings of which a rule must have exactly one, if the kind has any.
    const ONE_OF: Option<OneOf> = None;

    /// Settings that older versions had: documents that contain them load, with a warning for each.
    #[cfg(feature = "serde")]
    const RETIRED: &'static [&'static str] = &[];

    /// Returns a rule of this kind in which nothing is set. It need not be valid.
    fn plain() -> Self;
}

/// One setting of the rules of the kind `R`.
pub(crate) struct Field<R: 'static> {
    pub(crate) terms: FieldTerms,
    pub(crate) access: Accessor<R>,
}

/// The properties of a setting that do not depend on the kind of its rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldTerms {
    /// The name of the builder method, which is the key in documents.
    pub(crate) name: &'static str,
    /// The name of the setting in [problems](super::InvalidRule::field) of the rule.
    pub(crate) shown_as: &'static str,
    /// Whether a document must have the setting.
    pub(crate) needed: Needed,
    /// The settings of earlier rows that a rule cannot have together with this setting.
    pub(crate) not_beside: &'static [&'static str],
    /// Whether documents contain it even if it has the value of a [plain](HasFields::plain) rule.
    is_always_written: bool,
    /// Whether a form of the dashboard, which does not show the setting, leaves it unchanged.
    #[cfg(feature = "dashboard")]
    is_kept: bool,
}

/// Whether a document must have a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needed {
    No,
    Yes,
    /// Required, unless the document has the other setting.
    Unless(&'static str),
    /// Required if the document has one of these settings, and refused otherwise. The text is
    /// appended to the message about a missing setting.
    With(&'static [&'static str], &'static str),
}

/// The settings of which a rule must have exactly one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneOf {
    pub(crate) names: &'static [&'static str],
    /// The value, in a problem, of a rule without any of these settings.
    pub(crate) without: &'static str,
}

/// How the value of a setting is read from a rule, and how it is set: by the builder method where
/// there is one. `None` stands for a setting that was not set.
pub(crate) enum Accessor<R> {
    Text(fn(&R) -> Option<&str>, fn(R, String) -> R),
    Texts(fn(&R) -> Option<&[String]>, fn(R, Vec<String>) -> R),
    Number(fn(&R) -> Option<f64>, fn(R, f64) -> R),
    Count(fn(&R) -> Option<u32>, fn(R, u32) -> R),
    /// An index in a list; a negative index counts from the end.
    Place(fn(&R) -> Option<i32>, fn(R, i32) -> R),
    Flag(fn(&R) -> Option<bool>, fn(R, bool) -> R),
    /// A flag whose builder method has no argument.
    Switch(fn(&R) -> bool, fn(R) -> R),
    Time(fn(&R) -> Option<Duration>, fn(R, Duration) -> R),
    /// One of some names; the setter takes its index in them.
    Choice(
        &'static [&'static str],
        fn(&R) -> Option<&'static str>,
        fn(R, usize) -> R,
    ),
    Shares(fn(&R) -> Option<Range<f64>>, fn(R, Range<f64>) -> R),
    Bytes(fn(&R) -> Option<Range<u64>>, fn(R, Range<u64>) -> R),
    /// Thresholds by name, and the key of the name in documents. The setter adds one at a time.
    Thresholds(
        &'static str,
        fn(&R) -> &[(String, f64)],
        fn(R, String, f64) -> R,
    ),
}

/// The row of the setting `resource`, for the kinds of rules that have it.
macro_rules! resource_row {
    () => {
        $crate::rule::field::Field::new(
            "resource",
            $crate::rule::field::Accessor::Text(
                |it: &Self| Some(&it.resource),
                |it, resource| Self { resource, ..it },
            ),
        )
        .needed()
    };
}

pub(super) use resource_row;

// === impl Field ===

impl<R> Field<R> {
    pub(super) const fn new(name: &'static str, access: Accessor<R>) -> Self {
        Self {
            terms: FieldTerms {
                name,
                shown_as: name,
                needed: Needed::No,
                not_beside: &[],
                is_always_written: false,
                #[cfg(feature = "dashboard")]
                is_kept: false,
            },
            access,
        }
    }

    /// Makes the setting required in documents.
    pub(super) const fn needed(self) -> Self {
        self.needed_if(Needed::Yes)
    }

    /// Sets whether documents must have the setting. Documents that are written then always have
    /// it.
    pub(super) const fn needed_if(mut self, needed: Needed) -> Self {
        self.terms.needed = needed;
        self.always_written()
    }

    /// Makes documents contain the setting even if it has its default.
    pub(super) const fn always_written(mut self) -> Self {
        self.terms.is_always_written = true;
        self
    }

    /// Sets the name of the setting in problems, if it differs from the name in documents.
    pub(super) const fn shown_as(mut self, name: &'static str) -> Self {
        self.terms.shown_as = name;
        self
    }

    /// Sets the settings of earlier rows that a rule cannot have together with this setting.
    pub(super) const fn not_beside(mut self, others: &'static [&'static str]) -> Self {
        self.terms.not_beside = others;
        self
    }

    /// Makes a form of the dashboard leave the setting unchanged.
    #[cfg(feature = "dashboard")]
    pub(super) const fn kept(mut self) -> Self {
        self.terms.is_kept = true;
        self
    }

    /// Does nothing: without a dashboard there is no form.
    #[cfg(not(feature = "dashboard"))]
    pub(super) const fn kept(self) -> Self {
        self
    }

    /// Returns the value of the setting in `rule`, if it was set.
    fn get(&self, rule: &R) -> Option<Setting> {
        Some(match self.access {
            Accessor::Text(get, _) => Setting::Text(get(rule)?.to_owned()),
            Accessor::Texts(get, _) => Setting::Texts(get(rule)?.to_vec()),
            Accessor::Number(get, _) => Setting::Number(get(rule)?),
            Accessor::Count(get, _) => Setting::Count(get(rule)?),
            Accessor::Place(get, _) => Setting::Number(get(rule)?.into()),
            Accessor::Flag(get, _) => Setting::Flag(get(rule)?),
            Accessor::Switch(get, _) => Setting::Flag(get(rule)),
            Accessor::Time(get, _) => Setting::Time(get(rule)?),
            Accessor::Choice(_, get, _) => Setting::Text(get(rule)?.to_owned()),
            Accessor::Shares(get, _) => {
                let Range { start, end } = get(rule)?;
                Setting::Text(format!("{start}..{end}"))
            }
            Accessor::Bytes(get, _) => {
                let Range { start, end } = get(rule)?;
                Setting::Text(format!("{start}..{end}"))
            }
            Accessor::Thresholds(key, get, _) => Setting::Thresholds(key, get(rule).to_vec()),
        })
    }

    /// Returns `rule` with the value that `old` has for this setting, if it was set there.
    #[cfg(feature = "dashboard")]
    fn copied(&self, mut rule: R, old: &R) -> R {
        fn with<R, T>(rule: R, value: Option<T>, set: fn(R, T) -> R) -> R {
            match value {
                Some(value) => set(rule, value),
                None => rule,
            }
        }
        match self.access {
            Accessor::Text(get, set) => with(rule, get(old).map(str::to_owned), set),
            Accessor::Texts(get, set) => with(rule, get(old).map(<[_]>::to_vec), set),
            Accessor::Number(get, set) => with(rule, get(old), set),
            Accessor::Count(get, set) => with(rule, get(old), set),
            Accessor::Place(get, set) => with(rule, get(old), set),
            Accessor::Flag(get, set) => with(rule, get(old), set),
            Accessor::Switch(get, set) => {
                if get(old) {
                    set(rule)
                } else {
                    rule
                }
            }
            Accessor::Time(get, set) => with(rule, get(old), set),
            Accessor::Choice(names, get, set) => {
                let place = get(old).and_then(|name| names.iter().position(|it| *it == name));
                with(rule, place, set)
            }
            Accessor::Shares(get, set) => with(rule, get(old), set),
            Accessor::Bytes(get, set) => with(rule, get(old), set),
            Accessor::Thresholds(_, get, set) => {
                for (name, threshold) in get(old) {
                    rule = set(rule, name.clone(), *threshold);
                }
                rule
            }
        }
    }
}

/// Lists the settings of `rule`, without settings that were not set or have their default.
pub(super) fn list<R: HasFields>(rule: &R, settings: &mut WrittenSettings) {
    let plain = R::plain();
    for field in R::FIELDS.iter().copied().flatten() {
        let Some(value) = field.get(rule) else {
            continue;
        };
        if field.terms.is_always_written || field.get(&plain).as_ref() != Some(&value) {
            settings.0.push((field.terms.name, value));
        }
    }
}

/// Returns `rule`, which was read from a form of the dashboard, with the settings of `old` that the
/// form does not show.
#[cfg(feature = "dashboard")]
pub(crate) fn kept<R: HasFields>(mut rule: R, old: &R) -> R {
    for field in R::FIELDS.iter().copied().flatten() {
        if field.terms.is_kept {
            rule = field.copied(rule, old);
        }
    }
    rule
}
