//! The findings that hooks have received: each once, but for refusals of the store.

use std::time::Duration;

use super::{Finding, FindingKind};
use crate::base::sync::{AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// Most findings that hooks receive. Clients choose the names of resources, of which some findings
/// speak.
const MOST_TOLD: usize = 1_024;
/// That the store refuses is reported again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// Most new resources that are compared with the names of rules. Clients make up names, and each
/// comparison takes time.
const MOST_COMPARED: u32 = 256;

/// Most looks at all rules when a resource has been called often.
const MOST_LATE: u32 = 16;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ToldFindings {
    /// At most [`MOST_TOLD`]: the kind of each, its rule and the part of that.
    findings: Lock<Vec<(FindingKind, Box<str>, u8)>>,
    /// When a refusal of the store was reported.
    refused: Lock<Option<Tick>>,
    compared: AtomicU32,
    /// How often a name that was called a thousand times has been compared with those of rules.
    late: AtomicU32,
}

impl ToldFindings {
    /// Returns whether `finding` is the first of its kind for its rule or, where the store refuses,
    /// the first within a minute. Notes that it was reported.
    pub(crate) fn is_first(&self, finding: &Finding, now: impl FnOnce() -> Tick) -> bool {
        if finding.kind == FindingKind::StoreRefuses {
            let (mut refused, now) = (self.refused.lock(), now());
            let is_due = refused.is_none_or(|before| now - before >= AGAIN);
            if is_due {
                *refused = Some(now);
            }
            return is_due;
        }
        // A key that no layer provides is missing in every call.
        let kind = match finding.kind {
            FindingKind::KeyMissing => FindingKind::NotProvided,
            kind => kind,
        };
        let mut told = self.findings.lock();
        if told.len() >= MOST_TOLD {
            return false;
        }
        for (known, rule, part) in told.iter() {
            if (*known, &**rule, *part) == (kind, finding.rule(), finding.part) {
                return false;
            }
        }
        told.push((kind, finding.rule().into(), finding.part));
        true
    }

    /// Returns whether the rules without calls may be looked for once more, late. Counts the look.
    pub(crate) fn may_look_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) < MOST_LATE
            && self.late.fetch_add(1, Ordering::Relaxed) < MOST_LATE
    }

    /// Returns whether a new resource may be compared with the names of rules. Counts the
    /// comparison.
    pub(crate) fn may_compare(&self) -> bool {
        // Read first: most resources come after the last comparison.
        self.compared.load(Ordering::Relaxed) < MOST_COMPARED
            && self.compared.fetch_add(1, Ordering::Relaxed) < MOST_COMPARED
    }
}
