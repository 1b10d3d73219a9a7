//! Sets of rules from single rules, lists and tuples, for rules that are part of a program.

use super::{InvalidRules, Rule, Rules};

impl<R: Into<Rule>> From<R> for Rules {
    /// Creates a set of one rule.
    ///
    /// # Panics
    ///
    /// Panics if the rule is invalid.
    #[track_caller]
    fn from(rule: R) -> Self {
        Self::new().with(rule)
    }
}

impl<R: Into<Rule>, const N: usize> From<[R; N]> for Rules {
    /// Creates a set of rules of one kind, or of [`Rule`]s of any kinds.
    ///
    /// # Panics
    ///
    /// Panics if a rule is invalid, with all problems of all rules.
    #[track_caller]
    fn from(rules: [R; N]) -> Self {
        valid(Self::build(rules))
    }
}

impl<R: Into<Rule>> From<Vec<R>> for Rules {
    /// Creates a set of rules of one kind, or of [`Rule`]s of any kinds. For rules from a
    /// configuration use [`build`](Rules::build).
    ///
    /// # Panics
    ///
    /// Panics if a rule is invalid, with all problems of all rules.
    #[track_caller]
    fn from(rules: Vec<R>) -> Self {
        valid(Self::build(rules))
    }
}

/// Returns the rules, and panics if they are invalid.
#[track_caller]
fn valid(rules: Result<Rules, InvalidRules>) -> Rules {
    match rules {
        Ok(rules) => rules,
        Err(error) => panic!("{error}"),
    }
}

/// Implements the conversions from tuples of rules, of any kinds.
macro_rules! tuples {
    ($(($($rule:ident)+))*) => {$(
        impl<$($rule: Into<Rule>),+> From<($($rule,)+)> for Rules {
            /// Creates a set of rules of any kinds.
            ///
            /// # Panics
            ///
            /// Panics if a rule is invalid, with all problems of all rules.
            #[track_caller]
            fn from(rules: ($($rule,)+)) -> Self {
                // Each rule is called like its type.
                #[allow(non_snake_case, reason = "each is called like its type")]
                let ($($rule,)+) = rules;
                Self::from(vec![$(Into::<Rule>::into($rule)),+])
            }
        }
    )*};
}

tuples!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F)(A B C D E F G)(A B C D E F G H));
tuples!((A B C D E F G H I)(A B C D E F G H I J)(A B C D E F G H I J K)(A B C D E F G H I J K L));
