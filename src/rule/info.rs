//! `RuleInfo`, by which the rest of the crate asks a rule about itself; kinds implement it in
//! `info.rs`.

use std::time::Duration;

use super::guard::Guard;
use super::problem::Inspector;
#[cfg(any(feature = "page", feature = "serde"))]
use super::setting::WrittenSettings;
use super::{MissingKey, Rule, each_kind};
use crate::blocked::BlockKind;
use crate::hook::finding::Need;

/// The text of the problem that a rule is `shared` although its kind judges by figures of the local
/// process.
#[cfg(feature = "serde")]
pub(super) const JUDGES_THIS_PROCESS: &str = "left out: such a rule judges what this process sees";

/// Implements the methods of [`RuleInfo`] that return a field, or the result of a method, of the
/// kind.
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

/// The properties of a rule, and of its kind, that the rest of the crate asks for. Methods without
/// a default must be implemented by every kind.
pub(crate) trait RuleInfo {
    /// The name of the kind in documents, ids and messages.
    fn kind(&self) -> &'static str;

    /// The kind of the refusals that the rule causes when its limit is reached.
    fn refuses(&self) -> BlockKind;

    /// The resource that the rule is for.
    fn resource(&self) -> &str;

    /// The id that was set for the rule.
    fn id(&self) -> Option<&str>;

    /// Reports the problems that the rule has on its own, without regard to other rules.
    fn check(&self, inspector: &mut Inspector);

    /// Lists the settings, in the order in which people would write them.
    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings);

    /// The limit as it is configured, if the rule has just one.
    fn limit(&self) -> Option<f64>;

    /// The interval that the limit applies to; `None` if the limit is not per time.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// The unit of the costs that the rule counts; `None` if it counts calls.
    fn unit(&self) -> Option<&str> {
        None
    }

    /// Why no rule of the kind can be shared; `None` if some can.
    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str>;

    /// Returns whether the rule counts the calls of all processes that use the same store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns whether the rule can be for every resource without a rule of the same kind. A rule
    /// that keeps a table of callers cannot: every resource name that a client makes up would get a
    /// table.
    fn may_be_default(&self) -> bool;

    /// The name of this kind of rules, and how many of them a resource can have; `None` if there is
    /// no maximum.
    fn bound(&self) -> Option<(&'static str, usize)> {
        None
    }

    /// The related resource, whose calls the rule counts instead of the calls of its own resource.
    fn related(&self) -> Option<&str> {
        None
    }

    /// The parts of a call, besides its resource, that the rule reads.
    fn needs(&self) -> Vec<Need<'_>>;

    /// The tiers that the rule names.
    fn tiers(&self) -> Vec<&str> {
        Vec::new()
    }

    /// How the rule treats calls without a key; `None` if the rule has no key.
    fn missing_key(&self) -> Option<MissingKey> {
        None
    }

    /// Returns whether the rule itself can make a call wait, apart from waiting for the store.
    fn has_queue(&self) -> bool {
        false
    }

    /// Returns whether the rule is a flow rule that counts all calls of its resource together,
    /// against a threshold that does not change.
    fn limits_all_calls(&self) -> bool {
        false
    }

    /// The guard that judges calls by the rule; `None` for kinds whose rules take permits or keep
    /// state.
    fn guard(&self) -> Option<Guard> {
        None
    }

    /// Returns whether the rule reads figures of the machine, such as its load.
    fn looks_at_machine(&self) -> bool {
        false
    }
}

/// Implements the methods of [`Rule`] that need the list of all kinds.
macro_rules! kinds {
    ($($kind:ident($rule:ident)),* $(,)?) => {
        impl Rule {
            /// The names of the kinds.
            #[cfg(feature = "observe")]
            pub(crate) const KINDS: &'static [&'static str] =
                &[$(<super::$rule as RuleKind>::NAME),*];

            /// Returns the [`RuleInfo`] of the rule: for a rule in shadow mode, the `RuleInfo` of
            /// the wrapped rule.
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
