//! The settings of an authority rule as a table.

use super::{AuthorityRule, Treatment};
use crate::rule::field::Accessor::{Switch, Text, Texts};
use crate::rule::field::{Field, HasFields, OneOf, resource_row};

impl HasFields for AuthorityRule {
    const FIELDS: &'static [&'static [Field<Self>]] = &[&[
        resource_row!(),
        Field::new(
            "allow",
            Texts(
                |it: &Self| it.listed(Treatment::Allow),
                |it, origins| it.listing(Treatment::Allow, &origins),
            ),
        )
        .shown_as("origins")
        .always_written(),
        Field::new(
            "deny",
            Texts(
                |it: &Self| it.listed(Treatment::Deny),
                |it, origins| it.listing(Treatment::Deny, &origins),
            ),
        )
        .shown_as("origins")
        .always_written()
        .not_beside(&["allow"]),
        Field::new(
            "deny_unknown",
            Switch(|it| it.deny_unknown, Self::deny_unknown),
        )
        .kept(),
        Field::new("id", Text(|it| it.id.as_deref(), Self::id)).kept(),
    ]];

    const ONE_OF: Option<OneOf> = Some(OneOf {
        names: &["allow", "deny"],
        without: "without a list",
    });

    fn plain() -> Self {
        Self::new(Treatment::Deny, String::new(), [""; 0])
    }
}

impl AuthorityRule {
    /// The origins of the list, if the rule gives them this treatment.
    fn listed(&self, treatment: Treatment) -> Option<&[String]> {
        (self.strategy == treatment).then_some(&*self.origins)
    }

    /// Returns the rule with its list replaced by `origins`, which get this treatment.
    fn listing(self, treatment: Treatment, origins: &[String]) -> Self {
        Self {
            deny_unknown: self.deny_unknown,
            id: self.id,
            ..Self::new(treatment, self.resource, origins)
        }
    }
}
