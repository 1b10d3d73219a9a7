//! Adding rules one by one, where a bad one must leave no trace.

use super::{InvalidRules, Rule, Rules};

impl Rules {
    /// Adds one more rule, which messages call the one at `index`.
    ///
    /// Whether its templates conflict with others is looked at last, and only if
    /// nothing else is wrong: it costs most to take a template back.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the rule. The set is then as it was.
    pub(crate) fn try_add(&mut self, rule: Rule, index: usize) -> Result<(), InvalidRules> {
        let is_new_id = rule.id().is_some_and(|id| !self.ids.contains(id));
        let mut problems = Vec::new();
        let mut inspector = rule.inspector(index, &mut problems);
        self.inspect(&rule, &mut inspector);
        if inspector.has_nothing() {
            let names = rule.resources().map(|(_, name)| name);
            let new: Vec<_> = names.filter(|name| !self.templates.has(name)).collect();
            self.name_resources(&rule, index, &mut inspector);
            if !inspector.has_nothing() {
                new.into_iter().for_each(|name| self.templates.remove(name));
            }
        }
        let verdict = super::verdict(problems);
        match verdict {
            Ok(()) => self.list.push(rule),
            Err(_) => self.take_back(&rule, is_new_id),
        }
        verdict
    }

    /// Counts a rule out that was counted in.
    fn take_back(&mut self, rule: &Rule, is_new_id: bool) {
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
