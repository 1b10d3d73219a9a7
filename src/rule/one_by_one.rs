//! Adding rules one by one, where a bad one must leave no trace.

use super::{InvalidRules, Rule, Rules};

impl Rules {
    /// Adds one more rule, which messages call the one at `index`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the rule. The set is then as it was.
    pub(crate) fn try_add(&mut self, rule: Rule, index: usize) -> Result<(), InvalidRules> {
        let is_new_template = !self.templates.has(rule.resource());
        let is_new_id = rule.id().is_some_and(|id| !self.ids.contains(id));
        let mut problems = Vec::new();
        self.add_as(index, rule, &mut problems);
        let verdict = super::verdict(problems);
        if verdict.is_err() {
            self.take_back(is_new_template, is_new_id);
        }
        verdict
    }

    /// Undoes the last addition.
    fn take_back(&mut self, is_new_template: bool, is_new_id: bool) {
        let Some(rule) = self.list.pop() else {
            return;
        };
        if is_new_template {
            self.templates.remove(rule.resource());
        }
        if let Some(id) = rule.id().filter(|_| is_new_id) {
            self.ids.remove(id);
        }
        if let Some((what, _)) = rule.bound() {
            let key = (what, rule.is_shadow(), rule.resource().to_owned());
            if let Some(count) = self.bounded.get_mut(&key) {
                *count -= 1;
            }
        }
    }
}
