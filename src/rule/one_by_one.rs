//! Adding rules one by one, where a bad one must leave no trace.

use super::{InvalidRules, Rule, Rules};

impl Rules {
    /// Adds one more rule, which messages call the one at `index`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the rule. The set is then as it was.
    pub(crate) fn try_add(&mut self, rule: Rule, index: usize) -> Result<(), InvalidRules> {
        let names = rule.resources().map(|(_, name)| name);
        let is_new = |name: &&str| !self.templates.has(name);
        let new_templates: Vec<_> = names.filter(is_new).map(str::to_owned).collect();
        let is_new_id = rule.id().is_some_and(|id| !self.ids.contains(id));
        let mut problems = Vec::new();
        self.add_as(index, rule, &mut problems);
        let verdict = super::verdict(problems);
        if verdict.is_err() {
            self.take_back(&new_templates, is_new_id);
        }
        verdict
    }

    /// Undoes the last addition, which may have brought `new_templates`.
    fn take_back(&mut self, new_templates: &[String], is_new_id: bool) {
        let Some(rule) = self.list.pop() else {
            return;
        };
        for template in new_templates {
            self.templates.remove(template);
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
