//! The route templates of the rules in force.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc as StdArc;

use arc_swap::Guard;

use super::Registry;
use crate::base::sync::Ordering;
use crate::rule::RuleSet;

/// A handle to the route templates of the rules in force. They are loaded when first needed, as
/// most requests do not need them.
pub(crate) struct Routes<'a> {
    pub(super) registry: &'a Registry,
    pub(super) loaded: OnceCell<Guard<StdArc<RuleSet>>>,
    /// The version of the rules in force when this handle was created.
    pub(super) version: u64,
}

impl fmt::Debug for Routes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes<'_> {
    /// Returns the version of the rules by which a call was named. If other rules came into force
    /// in the meantime, this is the older version. No call is judged by an older version, so the
    /// call is named again.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        let loaded = self.loaded.get();
        loaded.map_or(self.version, |rules| rules.version().min(self.version))
    }

    /// Returns the template that `path` matches; `None` if it matches none, or if no rule has a
    /// template that can match several paths.
    #[inline]
    pub(crate) fn matching(&self, path: &str) -> Option<&str> {
        // Pairs with the last store in `put_in_force`: a call that sees that the new rules have no
        // templates also sees their version when it is judged. If the new rules have templates,
        // this flag is set before their version is stored.
        if !self.registry.has_templates.load(Ordering::Acquire) {
            return None;
        }
        self.naming(path)
    }

    /// Returns the template that `path` matches, or the path itself if a rule names it.
    #[inline(never)]
    pub(crate) fn naming(&self, path: &str) -> Option<&str> {
        let rules = self.loaded.get_or_init(|| self.registry.rules.load());
        rules.rules().templates().matching(path)
    }
}
