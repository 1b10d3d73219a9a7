//! The findings that hooks have received: each is reported once, except refusals of the store.

use std::time::Duration;

use super::{Finding, FindingKind};
use crate::base::sync::{AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// The most findings that hooks receive. Limited, as some findings contain names of resources,
/// which clients can make up.
const MOST_REPORTED: usize = 1_024;
/// While the store refuses requests, the finding is reported again at this interval.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The most new resources that are compared with the names of rules. Limited, as each comparison
/// takes time and clients can make up names.
const MOST_COMPARED: u32 = 256;

/// The most searches for rules without calls. Each is started by a resource that has been called a
/// thousand times.
const MOST_LATE: u32 = 16;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ReportedFindings {
    /// The kind of each finding, its rule and the part of the rule. At most [`MOST_REPORTED`].
    findings: Lock<Vec<(FindingKind, Box<str>, u8)>>,
    /// When it was last reported that the store refuses requests.
    refused: Lock<Option<Tick>>,
    /// How many new resources have been compared with the names of rules; see [`MOST_COMPARED`].
    compared: AtomicU32,
    /// How many searches for rules without calls have been started; see [`MOST_LATE`].
    late: AtomicU32,
}

impl ReportedFindings {
    /// Returns whether `finding` is the first of its kind for its rule or, where the store refuses,
    /// the first within a minute. Notes that it was reported.
    pub(crate) fn is_first(&self, finding: &Finding, now: impl FnOnce() -> Tick) -> bool {
        if finding.kind == FindingKind::StoreRefuses {
            let (mut refused, now) = (self.refused.lock(), now());
            let is_due = refused.is_none_or(|before| now - before >= REPORT_INTERVAL);
            if is_due {
                *refused = Some(now);
            }
            return is_due;
        }
        // A key that no layer provides is missing in every call, so `KeyMissing` and `NotProvided`
        // are one finding.
        let kind = match finding.kind {
            FindingKind::KeyMissing => FindingKind::NotProvided,
            kind => kind,
        };
        let mut reported = self.findings.lock();
        if reported.len() >= MOST_REPORTED {
            return false;
        }
        for (known, rule, part) in reported.iter() {
            if (*known, &**rule, *part) == (kind, finding.rule(), finding.part) {
                return false;
            }
        }
        reported.push((kind, finding.rule().into(), finding.part));
        true
    }

    /// Returns whether the rules without calls may be searched for once more. Counts the search.
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
