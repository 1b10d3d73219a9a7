//! The settings of a flow rule as a table.

use super::{FlowRule, MissingKey, Who};
use crate::clock::CalendarPeriod;
use crate::rule::field::Accessor::{
    Bytes, Choice, Count, Flag, Number, Place, Shares, Switch, Text, Time,
};
use crate::rule::field::{Field, HasFields, Needed, resource_row};

impl HasFields for FlowRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[
        &[
            resource_row!(),
            Field::new(
                "threshold",
                Number(
                    |it: &Self| Some(it.threshold),
                    |it, threshold| Self { threshold, ..it },
                ),
            )
            .needed(),
            Field::new(
                "calendar",
                Choice(
                    &CalendarPeriod::NAMES,
                    |it: &Self| it.calendar.map(CalendarPeriod::as_str),
                    |it, place| it.in_period(CalendarPeriod::ALL[place]),
                ),
            ),
            Field::new(
                "utc_offset",
                Place(
                    |it: &Self| it.utc_offset.as_ref().map(|_| it.get_utc_offset()),
                    Self::utc_offset,
                ),
            ),
            Field::new(
                "interval",
                Time(
                    |it: &Self| it.calendar.is_none().then_some(it.interval),
                    |it, interval| Self { interval, ..it },
                ),
            )
            .always_written()
            .not_beside(&["calendar"]),
            Field::new("cost", Text(Self::get_cost, Self::cost)),
            Field::new("buckets", Count(|it| Some(it.buckets.get()), Self::buckets)).kept(),
            Field::new("strict", Switch(|it| it.strict, Self::strict)),
            Field::new(
                "by_origin",
                Switch(|it| it.who == Who::Each, Self::by_origin),
            ),
            Field::new("for_origin", Text(|it| it.who.origin(), Self::for_origin))
                .shown_as("origin")
                .not_beside(&["by_origin"]),
            Field::new(
                "missing",
                Choice(
                    &MissingKey::NAMES,
                    |it: &Self| it.missing.map(MissingKey::as_str),
                    |it, place| it.missing(MissingKey::ALL[place]),
                ),
            ),
            Field::new("when", Text(Self::related, Self::when)).shown_as("related"),
            Field::new("in_context", Text(Self::get_in_context, Self::in_context))
                .shown_as("context")
                .not_beside(&["when"]),
            Field::new("throttle", Time(|it| it.shaping.max_wait, Self::throttle))
                .shown_as("max_wait"),
            Field::new("warm_up", Time(|it| it.shaping.warm_up, Self::warm_up)),
            Field::new(
                "cold_factor",
                Number(|it| it.shaping.cold_factor, Self::cold_factor),
            ),
            Field::new(
                "memory",
                Shares(
                    |it: &Self| Some(it.get_memory()?.0),
                    |it, marks| it.memory(marks, 0),
                ),
            ),
            Field::new(
                "memory_bytes",
                Bytes(
                    |it: &Self| Some(it.get_memory_bytes()?.0),
                    |it, marks| it.memory_bytes(marks, 0),
                ),
            )
            .shown_as("memory")
            .not_beside(&["memory"]),
            Field::new(
                "memory_threshold",
                Number(
                    |it| Some(it.shaping.memory?.threshold),
                    Self::memory_threshold,
                ),
            )
            .shown_as("memory.threshold")
            .needed_if(Needed::With(
                &["memory", "memory_bytes"],
                ", where the threshold falls with memory",
            )),
            Field::new("lend", Flag(|it| it.lend, Self::lend)).kept(),
            Field::new(
                "max_occupy_ratio",
                Number(|it| Some(it.max_occupy_ratio), Self::max_occupy_ratio),
            )
            .kept(),
            Field::new(
                "max_waiting",
                Count(|it| Some(it.max_waiting.get()), Self::max_waiting),
            )
            .kept(),
        ],
        Self::SHARING,
        &[Field::new("id", Text(|it| it.id.as_deref(), Self::id))],
    ];

    fn plain() -> Self {
        Self::per_second("", 0)
    }
}

impl FlowRule {
    /// Sets the lower threshold of a rule whose threshold falls with memory; ignored by other
    /// rules.
    fn memory_threshold(mut self, threshold: f64) -> Self {
        if let Some(memory) = &mut self.shaping.memory {
            memory.threshold = threshold;
        }
        self
    }
}
