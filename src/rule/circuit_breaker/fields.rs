//! The settings of a circuit breaker as a table.

use super::{CircuitBreakerRule, Strategy, TripThreshold};
use crate::base::number::WholeNumber;
use crate::rule::field::Accessor::{Count, Flag, Number, Switch, Text, Time};
use crate::rule::field::{Field, HasFields, Needed, OneOf, resource_row};

/// The conditions that exclude `min_calls` and `last_calls`.
const NO_COUNTING: &[&str] = &["consecutive_errors", "pushback"];
/// The settings that exclude `interval` and `buckets`, as calls are not counted in an interval.
const NO_WINDOW: &[&str] = &["consecutive_errors", "pushback", "last_calls"];
/// The condition that excludes the settings of counting and of the open time: the callee determines
/// how long the breaker is open.
const PUSHBACK: &[&str] = &["pushback"];

impl HasFields for CircuitBreakerRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[&[
        resource_row!(),
        Field::new(
            "max_rt",
            Time(Self::get_max_rt, |it, max_rt| Self {
                strategy: Strategy::Slow(max_rt),
                ..it
            }),
        )
        .needed_if(Needed::With(&["slow_ratio"], "")),
        Field::new(
            "slow_ratio",
            Number(Self::get_slow_ratio, |it, ratio| Self {
                threshold: TripThreshold::Ratio(ratio),
                ..it
            }),
        )
        .shown_as("ratio"),
        Field::new(
            "error_ratio",
            Number(Self::get_error_ratio, |it, ratio| Self {
                threshold: TripThreshold::Ratio(ratio),
                ..it
            }),
        )
        .shown_as("ratio")
        .not_beside(&["slow_ratio"]),
        Field::new(
            "error_count",
            Count(Self::get_error_count, |it, count| Self {
                threshold: TripThreshold::Count(count.into()),
                ..it
            }),
        )
        .shown_as("count")
        .always_written()
        .not_beside(&["slow_ratio", "error_ratio"]),
        Field::new(
            "consecutive_errors",
            Count(Self::get_consecutive_errors, |it, count| Self {
                threshold: TripThreshold::Consecutive(count.into()),
                ..it
            }),
        )
        .shown_as("count")
        .not_beside(&["slow_ratio", "error_ratio", "error_count"]),
        Field::new(
            "pushback",
            Switch(Self::is_pushback, |it| Self {
                strategy: Strategy::Pushback,
                threshold: TripThreshold::Pushback,
                ..it
            }),
        )
        .not_beside(&[
            "slow_ratio",
            "error_ratio",
            "error_count",
            "consecutive_errors",
        ]),
        Field::new("exceeds", Switch(|it| it.exceeds, Self::exceeds)).not_beside(PUSHBACK),
        Field::new(
            "min_calls",
            Count(|it| it.min_calls.map(WholeNumber::get), Self::min_calls),
        )
        .not_beside(NO_COUNTING),
        Field::new(
            "open_for",
            Time(
                |it| (!it.is_pushback()).then_some(it.open_for),
                Self::open_for,
            ),
        )
        .always_written()
        .not_beside(PUSHBACK),
        Field::new("open_up_to", Time(|it| it.open_up_to, Self::open_up_to)),
        Field::new(
            "last_calls",
            Count(|it| it.last_calls.map(WholeNumber::get), Self::last_calls),
        )
        .not_beside(NO_COUNTING),
        Field::new("interval", Time(Self::counted_interval, Self::interval))
            .always_written()
            .not_beside(NO_WINDOW),
        Field::new(
            "buckets",
            Count(|it| it.buckets.map(WholeNumber::get), Self::buckets),
        )
        .not_beside(NO_WINDOW)
        .kept(),
        Field::new("probes", Count(|it| Some(it.probes.get()), Self::probes)).kept(),
        Field::new(
            "count_cancelled_as_slow",
            Flag(
                |it| Some(it.cancelled_as_slow),
                Self::count_cancelled_as_slow,
            ),
        )
        .kept(),
        Field::new("id", Text(|it| it.id.as_deref(), Self::id)).kept(),
    ]];

    const ONE_OF: Option<OneOf> = Some(OneOf {
        names: &[
            "slow_ratio",
            "error_ratio",
            "error_count",
            "consecutive_errors",
            "pushback",
        ],
        without: "without a condition",
    });

    fn plain() -> Self {
        Self::error_count("", 1)
    }
}
