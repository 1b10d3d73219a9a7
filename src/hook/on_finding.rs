//! A hook made of a function that receives findings only.

use std::fmt;

use super::Hook;
use super::finding::Finding;
use super::interest::Interest;

/// A hook that passes findings on.
pub(crate) struct OnFinding<F>(pub(crate) F);

impl<F> fmt::Debug for OnFinding<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFinding(..)")
    }
}

impl<F: Fn(&Finding) + Send + Sync + 'static> Hook for OnFinding<F> {
    fn interest(&self) -> Interest {
        Interest::FINDING
    }

    fn on_finding(&self, finding: &Finding) {
        (self.0)(finding);
    }
}
