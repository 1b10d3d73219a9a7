//! The settings of an adaptive rule as a table.

use super::AdaptiveRule;
use crate::base::number::WholeNumber;
use crate::rule::field::Accessor::{Count, Text, Time};
use crate::rule::field::{Field, HasFields, resource_row};

impl HasFields for AdaptiveRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[&[
        resource_row!(),
        Field::new("floor", Count(|it| Some(it.floor.get()), Self::floor)),
        Field::new("ceiling", Count(|it| Some(it.ceiling.get()), Self::ceiling)),
        Field::new(
            "start",
            Count(|it| it.start.map(WholeNumber::get), Self::start),
        ),
        Field::new("burst", Time(|it| Some(it.burst), Self::burst)),
        Field::new("id", Text(|it| it.id.as_deref(), Self::id)),
    ]];

    #[cfg(feature = "serde")]
    const RETIRED: &'static [&'static str] = &["tolerance", "smoothing"];

    fn plain() -> Self {
        Self::new("")
    }
}
