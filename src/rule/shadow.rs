//! Shadow mode: rules that count the calls that they would refuse, but refuse none.

use super::{Rule, Rules};

/// Which rules of a set an engine judges by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleSelection {
    /// The rules that refuse.
    Enforced,
    /// No rule: all rules are judged in shadow mode, with `Everything`.
    Nothing,
    /// All rules, in shadow mode.
    Everything,
    /// The rule at this index, in shadow mode.
    Only(u32),
}

impl RuleSelection {
    /// Returns the rule to judge by if this selection includes `rule`, which is at `index`.
    pub(super) fn select(self, index: u32, rule: &Rule) -> Option<&Rule> {
        match (self, rule) {
            (RuleSelection::Nothing, _) | (RuleSelection::Enforced, Rule::Shadow(_)) => None,
            (RuleSelection::Enforced, rule) => Some(rule),
            (RuleSelection::Everything, rule) => Some(rule.itself()),
            (RuleSelection::Only(place), rule) => (place == index).then_some(rule.itself()),
        }
    }

    /// Returns whether the selection is in shadow mode: its refusals are only recorded.
    pub(crate) const fn is_shadow(self) -> bool {
        matches!(self, RuleSelection::Everything | RuleSelection::Only(_))
    }

    /// Returns whether this selection leaves `rule` out, so that it is judged in shadow mode.
    pub(super) fn leaves_out(self, rule: &Rule) -> bool {
        match self {
            RuleSelection::Enforced => rule.is_shadow(),
            RuleSelection::Nothing => true,
            RuleSelection::Everything | RuleSelection::Only(_) => false,
        }
    }

    /// The rules to judge by, with their indices. `Only` does not visit the other rules.
    pub(super) fn selected(self, rules: &Rules) -> Vec<(u32, &Rule)> {
        let (first, most) = match self {
            RuleSelection::Only(place) => (place as usize, 1),
            _ => (0, rules.len()),
        };
        let mut selected = Vec::new();
        for index in first..rules.len().min(first.saturating_add(most)) {
            let place = index as u32;
            if let Some(rule) = self.select(place, &rules.list[index]) {
                selected.push((place, rule));
            }
        }
        selected
    }

    /// The rules of this selection and, for `Only`, all enforced rules, which also apply to the
    /// calls that it judges.
    pub(super) fn applying(self, rules: &Rules) -> Vec<&Rule> {
        let mut applying = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let applies = match self {
                RuleSelection::Only(place) => place as usize == index || !rule.is_shadow(),
                part => part.select(index as u32, rule).is_some(),
            };
            if applies {
                applying.push(rule.itself());
            }
        }
        applying
    }

    /// The shadow selections that are judged in addition to this one. For `Enforced`, there is one
    /// selection for each shadow rule, as shadow rules do not affect each other.
    pub(crate) fn shadows(self, rules: &Rules) -> Vec<RuleSelection> {
        match self {
            RuleSelection::Enforced => {
                let mut shadows = Vec::new();
                for (index, rule) in rules.iter().enumerate() {
                    if rule.is_shadow() {
                        shadows.push(RuleSelection::Only(index as u32));
                    }
                }
                shadows
            }
            RuleSelection::Nothing => vec![RuleSelection::Everything],
            RuleSelection::Everything | RuleSelection::Only(_) => Vec::new(),
        }
    }
}

impl Rule {
    /// Returns the rule in *shadow mode*: it counts and judges like the rule itself, but refuses no
    /// call. Each call that it would have refused is reported to
    /// [`Hook::on_shadow_block`](crate::Hook::on_shadow_block) and counted in
    /// [`Sentinel::shadows`](crate::Sentinel::shadows).
    ///
    /// The rule judges the calls that the enforced rules let pass. It has separate statistics,
    /// which do not include calls that it would have refused. So they are what they would be if the
    /// rule were enforced along with the other rules. There is one exception: a call that it would
    /// make wait starts at once, so the rule never refuses a call because [too many
    /// wait](crate::FlowRule::max_waiting). Rules in shadow mode do not affect each other. Each of
    /// them judges every call of its resource that passes, and allocates for it; each has separate
    /// tables, of 42 KiB when empty. A reload keeps the statistics of an equal rule, or else of a
    /// rule with the same id and resource. The resource that the rule names is a template, as
    /// for an enforced rule; see [rules for `*`](crate::rule#default-rules).
    ///
    /// A [shared](crate::FlowRule::shared) rule counts the calls of all processes in which it is in
    /// shadow mode, with a separate counter in the store, so it takes nothing from enforced rules.
    /// No call waits for the store because of it. A call is judged at once if the process holds
    /// permits, or knows that there are none. Any other call runs, and is judged when the store has
    /// answered, as if it had waited for the answer. It is counted as passed or as refused only
    /// after this judgement. So the counts are those of an enforced rule whose calls wait for the
    /// answer even beyond [`store_wait`](crate::FlowRule::store_wait). For such a late judgement,
    /// hooks are called from the task of the store, and the rule does not learn how the call ends.
    /// Draws for the rule are sent to the store together with other draws.
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
    /// let shadow = &sentinel.shadows()[0];
    /// assert_eq!((shadow.rule(), shadow.would_block()), ("flow-0", 3));
    /// ```
    #[doc(alias("dry_run"))]
    #[must_use]
    pub fn shadow(self) -> Self {
        match self {
            Rule::Shadow(_) => self,
            enforced => Rule::Shadow(Box::new(enforced)),
        }
    }

    /// Returns whether the rule is in shadow mode.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        matches!(self, Rule::Shadow(_))
    }

    /// The only resource that the rule depends on; `None` for system rules, default rules, and
    /// rules with a related resource.
    pub(crate) fn only_resource(&self) -> Option<&str> {
        match self.itself() {
            Rule::System(_) => None,
            rule if rule.related().is_some() => None,
            rule => (!rule.is_default()).then(|| rule.resource()),
        }
    }

    /// The rule itself, without the wrapper of shadow mode.
    pub(crate) fn itself(&self) -> &Self {
        match self {
            Rule::Shadow(rule) => rule.itself(),
            rule => rule,
        }
    }
}
