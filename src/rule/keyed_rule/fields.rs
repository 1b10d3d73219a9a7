//! The settings of a keyed rule as a table.

use super::{Burst, Counting, KeyedRule, MissingKey, ParamOf};
use crate::base::number::WholeNumber;
use crate::clock::CalendarPeriod;
use crate::rule::field::Accessor::{
    Choice, Count, Number, Place, Switch, Text, Texts, Thresholds, Time,
};
use crate::rule::field::{Field, HasFields, Needed, resource_row};

/// The setting that excludes the settings of a rate, as a concurrency limit has no rate.
const AT_ONCE: &[&str] = &["concurrency"];
/// The settings that exclude an interval: a concurrency limit has no rate, and the calendar has its
/// own periods.
const UNTIMED: &[&str] = &["concurrency", "calendar"];

impl HasFields for KeyedRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[
        &[
            resource_row!(),
            Field::new("param", Text(Self::get_param, Self::param)),
            Field::new("param_at", Place(Self::get_param_at, Self::param_at))
                .not_beside(&["param"]),
            Field::new(
                "by_origin",
                Switch(|it: &Self| it.of == ParamOf::Origin, Self::by_origin),
            )
            .not_beside(&["param", "param_at"]),
            Field::new(
                "concurrency",
                Count(Self::most_running, |it, most| Self {
                    threshold: most.into(),
                    count: Counting::Running,
                    ..it
                }),
            )
            .shown_as("threshold"),
            Field::new(
                "threshold",
                Number(
                    |it: &Self| it.rated(it.threshold),
                    |it, threshold| Self { threshold, ..it },
                ),
            )
            .needed_if(Needed::Unless("concurrency"))
            .not_beside(AT_ONCE),
            Field::new(
                "calendar",
                Choice(
                    &CalendarPeriod::NAMES,
                    |it: &Self| it.calendar().map(CalendarPeriod::as_str),
                    |it, place| it.in_period(CalendarPeriod::ALL[place]),
                ),
            )
            .not_beside(AT_ONCE),
            Field::new(
                "utc_offset",
                Place(
                    |it: &Self| it.utc_offset.map(WholeNumber::get_signed),
                    Self::utc_offset,
                ),
            )
            .not_beside(AT_ONCE),
            Field::new(
                "interval",
                Time(
                    |it: &Self| {
                        let rated = it.rated(it.interval);
                        rated.filter(|_| it.calendar().is_none())
                    },
                    |it, interval| Self { interval, ..it },
                ),
            )
            .always_written()
            .not_beside(UNTIMED),
            Field::new("cost", Text(Self::get_cost, Self::cost)).not_beside(AT_ONCE),
            Field::new(
                "window",
                Switch(|it| it.count == Counting::Window, Self::window),
            )
            .not_beside(UNTIMED),
            Field::new("throttle", Time(Self::get_throttle, Self::throttle))
                .shown_as("max_wait")
                .not_beside(&["concurrency", "calendar", "window"]),
            Field::new("burst", Count(Self::given_burst, Self::burst)).not_beside(UNTIMED),
            Field::new("capacity", Count(Self::get_capacity, Self::capacity)).not_beside(&[
                "concurrency",
                "calendar",
                "burst",
            ]),
            Field::new(
                "except",
                Thresholds("value", |it| &it.exceptions, Self::except),
            ),
            Field::new(
                "except_unlimited",
                Texts(
                    |it: &Self| unless_empty(&it.unlimited_values),
                    |it, values| values.into_iter().fold(it, Self::except_unlimited),
                ),
            ),
            Field::new("tier", Thresholds("name", |it| &it.tiers, Self::tier)),
            Field::new(
                "tier_unlimited",
                Texts(
                    |it: &Self| unless_empty(&it.unlimited_tiers),
                    |it, tiers| tiers.into_iter().fold(it, Self::tier_unlimited),
                ),
            ),
            Field::new(
                "max_keys",
                Count(|it| Some(it.max_keys.get()), Self::max_keys),
            )
            .kept(),
            Field::new("queue", Time(|it| it.queue, Self::queue)),
            Field::new(
                "max_waiting",
                Count(|it| it.max_waiting.map(WholeNumber::get), Self::max_waiting),
            ),
            Field::new("block_for", Time(|it| it.block_for, Self::block_for)).not_beside(UNTIMED),
            Field::new(
                "missing",
                Choice(
                    &MissingKey::NAMES,
                    |it: &Self| Some(it.missing.as_str()),
                    |it, place| it.missing(MissingKey::ALL[place]),
                ),
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

/// Returns `list` unless it is empty.
fn unless_empty(list: &[String]) -> Option<&[String]> {
    (!list.is_empty()).then_some(list)
}

impl KeyedRule {
    /// The concurrency limit, if the rule has one.
    fn most_running(&self) -> Option<u32> {
        (self.count == Counting::Running).then_some(self.threshold as u32)
    }

    /// Returns `part`, a setting of the rate; `None` if the rule limits concurrency.
    fn rated<T>(&self, part: T) -> Option<T> {
        (self.count != Counting::Running).then_some(part)
    }

    /// Returns the burst, if it was set as a burst and not as a capacity.
    const fn given_burst(&self) -> Option<u32> {
        match self.burst {
            Burst::AboveThreshold(burst) => Some(burst.get()),
            Burst::Capacity(_) => None,
        }
    }
}
