//! Adding rules one by one, where a bad one must leave no trace.

use super::problem::verdict;
use super::{InvalidRules, Rule, Rules};

impl Rules {
    /// Adds one more rule, which messages call the one at `index`.
    ///
    /// Whether its templates conflict with others is looked at last, and only if
    /// nothing else is wrong: it costs most to take a template back.
    ///
    /// After the last one the set is to be [settled](Self::settle).
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the rule. The set is then as it was.
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

    /// Forgets for good the traces of bad rules.
    pub(crate) fn settle(&mut self) {
        self.templates.settle();
    }
}
