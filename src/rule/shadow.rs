//! Rules that only watch.

use super::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, HotParamRule, IsolationRule, Rule,
    Rules, SystemRule,
};

/// Which rules of a set an engine judges by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those that refuse.
    Enforced,
    /// Those that only watch.
    Shadow,
    /// None: all of them only watch.
    Nothing,
    /// All of them, to watch.
    Everything,
}

impl Part {
    /// The rule to judge by, if `rule` is one of these.
    pub(super) fn select(self, rule: &Rule) -> Option<&Rule> {
        match (self, rule) {
            (Part::Nothing, _) | (Part::Enforced, Rule::Shadow(_)) => None,
            (Part::Shadow | Part::Everything, Rule::Shadow(watching)) => Some(watching),
            (Part::Shadow, _) => None,
            (Part::Enforced | Part::Everything, rule) => Some(rule),
        }
    }

    /// Whether some of `rules` only watch, and these are not they.
    pub(crate) fn leaves_watchers(self, rules: &Rules) -> bool {
        match self {
            Part::Enforced => rules.iter().any(Rule::is_shadow),
            Part::Nothing => true,
            Part::Shadow | Part::Everything => false,
        }
    }
}

impl Rule {
    /// The same rule in *shadow mode*: it counts and judges as it would, and
    /// refuses nobody. What it would have refused is told to
    /// [`Hook::on_shadow_block`](crate::Hook::on_shadow_block) and counted as
    /// blocked on [`Sentinel::shadow_node`](crate::Sentinel::shadow_node).
    ///
    /// It judges what the enforced rules let pass, on figures of its own in which
    /// what it would have refused does not count: so its numbers are those that
    /// it would have when enforced. It never makes a call wait. While any rule
    /// watches, each call that passes is judged twice, and allocates.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(Rules::new().with(FlowRule::per_second("job", 2).shadow()))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// for _ in 0..5 {
    ///     assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Pass(_)));
    /// }
    /// let shadow = sentinel.shadow_node("job").expect("it has been judged");
    /// assert_eq!((shadow.totals().pass(), shadow.totals().block()), (2, 3));
    /// ```
    #[must_use]
    pub fn shadow(self) -> Self {
        match self {
            Rule::Shadow(_) => self,
            enforced => Rule::Shadow(Box::new(enforced)),
        }
    }

    /// Whether the rule only watches.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        matches!(self, Rule::Shadow(_))
    }

    /// The rule itself, watching or not.
    pub(crate) fn itself(&self) -> &Self {
        match self {
            Rule::Shadow(rule) => rule,
            rule => rule,
        }
    }
}

macro_rules! shadow {
    ($($rule:ty),* $(,)?) => {$(
        impl $rule {
            /// The same rule, which only watches; see [`Rule::shadow`].
            #[must_use]
            pub fn shadow(self) -> Rule {
                Rule::from(self).shadow()
            }
        }
    )*};
}

shadow!(
    AdaptiveRule,
    AuthorityRule,
    CircuitBreakerRule,
    FlowRule,
    HotParamRule,
    IsolationRule,
    SystemRule,
);
