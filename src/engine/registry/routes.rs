//! The route templates of the rules in force.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc as StdArc;

use arc_swap::Guard;

use super::Registry;
use crate::base::sync::Ordering;
use crate::rule::RuleSet;

/// The route templates of the rules in force, loaded when they are first asked
/// for: most requests never ask.
pub(crate) struct Routes<'a> {
    pub(super) registry: &'a Registry,
    pub(super) loaded: OnceCell<Guard<StdArc<RuleSet>>>,
    /// The version of the rules by which calls were judged before a template was looked for.
    pub(super) version: u64,
}

impl fmt::Debug for Routes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes<'_> {
    /// The version of the rules by whose templates, or lack of them, a call was named. If
    /// others came into force between two looks at them, an older one, by which no call is
    /// judged any more.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        let loaded = self.loaded.get();
        loaded.map_or(self.version, |rules| rules.version().min(self.version))
    }

    /// The template that `path` matches; `None` as well if it is the path itself.
    #[inline]
    pub(crate) fn matching(&self, path: &str) -> Option<&str> {
        // Pairs with the last store in `put_in_force`: a call that sees that the new rules have
        // none sees their version when it is judged. That they have some is stored before it.
        if !self.registry.has_templates.load(Ordering::Acquire) {
            return None;
        }
        self.naming(path)
    }

    /// Returns the template that matches, or the path itself if a rule has it for its name.
    #[inline(never)]
    pub(crate) fn naming(&self, path: &str) -> Option<&str> {
        let rules = self.loaded.get_or_init(|| self.registry.rules.load());
        rules.rules().templates().matching(path)
    }
}
