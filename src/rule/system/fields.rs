//! The settings of a system rule as a table.

use super::SystemRule;
use crate::base::number::WholeNumber;
use crate::rule::field::Accessor::{Choice, Count, Number, Text, Time};
use crate::rule::field::{Field, HasFields};
use crate::system::Capacity;

impl HasFields for SystemRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[&[
        Field::new("qps", Number(|it| it.qps, Self::qps)),
        Field::new("load", Number(|it| it.load, Self::load)),
        Field::new("cpu", Number(|it| it.cpu, Self::cpu)),
        Field::new("rt", Time(|it| it.rt, Self::rt)),
        Field::new(
            "concurrency",
            Count(|it| it.concurrency.map(WholeNumber::get), Self::concurrency),
        ),
        Field::new(
            "capacity",
            Choice(
                &Capacity::NAMES,
                |it: &Self| Some(it.capacity.as_str()),
                |it, place| it.capacity(Capacity::ALL[place]),
            ),
        ),
        Field::new("id", Text(|it| it.id.as_deref(), Self::id)).kept(),
    ]];

    fn plain() -> Self {
        Self::new()
    }
}
