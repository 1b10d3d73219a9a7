//! The settings of an isolation rule as a table.

use super::IsolationRule;
use crate::rule::field::Accessor::{Count, Text, Time};
use crate::rule::field::{Field, HasFields, resource_row};

impl HasFields for IsolationRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[&[
        resource_row!(),
        Field::new(
            "max",
            Count(
                |it: &Self| Some(it.max.get()),
                |it, max| Self {
                    max: max.into(),
                    ..it
                },
            ),
        )
        .needed(),
        Field::new("for_origin", Text(|it| it.who.origin(), Self::for_origin)).shown_as("origin"),
        Field::new("when", Text(|it| it.related.as_deref(), Self::when)).shown_as("related"),
        Field::new("queue", Time(|it| it.queue, Self::queue)).kept(),
        Field::new(
            "max_waiting",
            Count(|it| Some(it.max_waiting.get()), Self::max_waiting),
        )
        .kept(),
        Field::new("id", Text(|it| it.id.as_deref(), Self::id)).kept(),
    ]];

    fn plain() -> Self {
        Self::new("", 0)
    }
}
