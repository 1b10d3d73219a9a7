//! Adding rules one by one, where an invalid rule leaves the set unchanged.

use super::problem::verdict;
use super::{InvalidRules, Rule, Rules};

impl Rules {
    /// Adds one more rule, to which messages refer by its `index`.
    ///
    /// Conflicts between its templates and other templates are checked last, and only if nothing
    /// else is wrong, because a template that is added must be removed again after a conflict,
    /// which is expensive.
    ///
    /// After the last rule, [settle](Self::settle) the set.
    ///
    /// # Errors
    ///
    /// Returns all problems of the rule. The set is then unchanged.
    pub(crate) fn try_add(&mut self, rule: Rule, index: usize) -> Result<(), InvalidRules> {
        let mut inspector = rule.inspector(index);
        self.inspect(&rule, &mut inspector);
        if inspector.problems.is_empty() {
            let mut new = rule.resources();
            new.retain(|(_, name)| !self.templates.has(name));
            self.name_resources(&rule, index, &mut inspector);
            if !inspector.problems.is_empty() {
                for (_, name) in new {
                    self.templates.remove(name);
                }
            }
        }
        verdict(inspector.problems)?;
        self.push(rule);
        Ok(())
    }

    /// Removes the templates of rejected rules for good.
    pub(crate) fn settle(&mut self) {
        self.templates.settle();
    }
}
