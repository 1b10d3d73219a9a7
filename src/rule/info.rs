//! What the kinds of rules say of themselves, each beside its settings in a file `info.rs`.

use std::time::Duration;

use super::guard::Guard;
use super::problem::Inspector;
#[cfg(any(feature = "page", feature = "serde"))]
use super::setting::WrittenSettings;
use super::{MissingKey, Rule, each_kind};
use crate::blocked::BlockKind;
use crate::hook::finding::Need;

/// Why a rule cannot be shared that judges by figures of its own process.
#[cfg(feature = "serde")]
pub(super) const JUDGES_THIS_PROCESS: &str = "left out: such a rule judges what this process sees";

/// The methods of [`RuleInfo`] that every kind answers by a field or a method of its own.
macro_rules! own_answers {
    () => {
        fn kind(&self) -> &'static str {
            <Self as $crate::rule::info::RuleKind>::NAME
        }

        fn resource(&self) -> &str {
            Self::resource(self)
        }

        fn id(&self) -> Option<&str> {
            self.id.as_deref()
        }

        fn check(&self, inspector: &mut $crate::rule::problem::Inspector) {
            self.inspect(inspector);
        }

        #[cfg(any(feature = "page", feature = "serde"))]
        fn list(&self, settings: &mut $crate::rule::setting::WrittenSettings) {
            $crate::rule::field::list(self, settings);
        }
    };
}

pub(super) use own_answers;

/// A kind of rules.
pub(crate) trait RuleKind: RuleInfo {
    /// The name of the kind in documents, ids and messages.
    const NAME: &'static str;
}

/// What a kind of rule says of itself, and what one rule of it says. The methods without a default
/// are those that each kind has to answer.
pub(crate) trait RuleInfo {
    /// The name of the kind in documents, ids and messages.
    fn kind(&self) -> &'static str;

    /// The kind of refusals that the rule makes where its limit is reached.
    fn refuses(&self) -> BlockKind;

    /// The resource that the rule is for.
    fn resource(&self) -> &str;

    /// The id that was set for the rule.
    fn id(&self) -> Option<&str>;

    /// Collects the problems of the rule by itself.
    fn check(&self, inspector: &mut Inspector);

    /// Lists the settings, in the order in which people would write them.
    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings);

    /// The limit as it is configured, if the rule has just one.
    fn limit(&self) -> Option<f64>;

    /// The time that the limit is for, if it is for any.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// The unit of the costs that the rule counts; `None`: it counts calls.
    fn unit(&self) -> Option<&str> {
        None
    }

    /// Why no rule of the kind can be shared, if that is so.
    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str>;

    /// Returns whether the rule counts over all processes of a store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns whether the rule may be for every resource without one of the same kind. A rule that
    /// keeps a table of callers may not: each name that a client makes up would have one.
    fn may_be_default(&self) -> bool;

    /// How many rules like this one a resource may have, and the name of these, if not any number.
    fn bound(&self) -> Option<(&'static str, usize)> {
        None
    }

    /// The resource that the rule looks at instead of its own.
    fn related(&self) -> Option<&str> {
        None
    }

    /// The parts of calls that the rule looks at, beside their resource.
    fn needs(&self) -> Vec<Need<'_>>;

    /// The tiers that have quotas of their own.
    fn tiers(&self) -> Vec<&str> {
        Vec::new()
    }

    /// How the rule treats calls without its key; `None` for a rule without one.
    fn missing_key(&self) -> Option<MissingKey> {
        None
    }

    /// Returns whether a call may wait because of the rule, for another reason than the store.
    fn has_queue(&self) -> bool {
        false
    }

    /// Returns whether it is a flow rule that counts all calls to its resource together, against a
    /// threshold that does not change.
    fn limits_all_alike(&self) -> bool {
        false
    }

    /// The guard that judges calls by the rule, for a kind of rules that neither takes nor keeps
    /// anything.
    fn guard(&self) -> Option<Guard> {
        None
    }

    /// Returns whether the rule looks at figures of the machine.
    fn looks_at_machine(&self) -> bool {
        false
    }
}

/// What depends on the list of kinds.
macro_rules! kinds {
    ($($kind:ident($rule:ident)),* $(,)?) => {
        impl Rule {
            /// The names of the kinds.
            #[cfg(feature = "observe")]
            pub(crate) const KINDS: &'static [&'static str] =
                &[$(<super::$rule as RuleKind>::NAME),*];

            /// What the rule says of itself, in shadow mode or not.
            pub(crate) fn info(&self) -> &dyn RuleInfo {
                match self {
                    $(Rule::$kind(rule) => rule,)*
                    Rule::Shadow(rule) => rule.info(),
                }
            }
        }
    };
}

each_kind!(kinds);
