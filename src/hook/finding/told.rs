//! The findings that hooks have received: each once.

use std::collections::HashSet;

use super::{Finding, FindingKind};
use crate::base::sync::{AtomicU32, Lock, Ordering};

/// Most findings that hooks receive. Clients choose the names of resources, of which some findings
/// speak.
const MOST_TOLD: usize = 1_024;
/// Most new resources that are compared with the names of rules. Clients make up names, and each
/// comparison takes time.
const MOST_COMPARED: u32 = 256;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Told {
    findings: Lock<HashSet<(FindingKind, Box<str>)>>,
    compared: AtomicU32,
}

impl Told {
    /// Whether `finding` is the first of its kind for its rule. Notes that it was reported.
    pub(crate) fn is_first(&self, finding: &Finding) -> bool {
        // A key that no layer provides is missing in every call.
        let kind = match finding.kind {
            FindingKind::KeyMissing => FindingKind::NotProvided,
            kind => kind,
        };
        let mut told = self.findings.lock();
        told.len() < MOST_TOLD && told.insert((kind, finding.rule().into()))
    }

    /// Whether a new resource may be compared with the names of rules. Counts the comparison.
    pub(crate) fn may_compare(&self) -> bool {
        // Read first: most resources come after the last comparison.
        self.compared.load(Ordering::Relaxed) < MOST_COMPARED
            && self.compared.fetch_add(1, Ordering::Relaxed) < MOST_COMPARED
    }
}
