//! `Display` of a finding: one sentence for the operator.

use std::fmt;

use super::Finding;
use super::kind::FindingKind;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, resource) = (&self.rule, &self.resource);
        match self.kind {
            FindingKind::NoCalls => f.write_str("no call has come to the rules")?,
            FindingKind::RuleNotMet => write!(
                f,
                "rule {rule:?} for {resource:?} has met no call, although calls came"
            )?,
            FindingKind::RelatedNotCalled => write!(
                f,
                "rule {rule:?} looks at {resource:?}, which was never called"
            )?,
            FindingKind::NotProvided => write!(
                f,
                "rule {rule:?} for {resource:?} looks at a key that no call has"
            )?,
            FindingKind::KeyMissing => write!(
                f,
                "rule {rule:?} has met only calls to {resource:?} without its key"
            )?,
            FindingKind::BlockedTogether => write!(
                f,
                "rule {rule:?} blocks all calls to {resource:?} without its key at once"
            )?,
            FindingKind::UnknownTier => write!(
                f,
                "rule {rule:?} for {resource:?} has met calls of a tier that no rule knows"
            )?,
            FindingKind::UnusedParam => {
                f.write_str("a layer takes a parameter that no rule looks at")?;
            }
            FindingKind::BehindProxy => {
                f.write_str("all callers have the address of a proxy")?;
            }
            FindingKind::NoSampler => write!(
                f,
                "rule {rule:?} for {resource:?} looks at the machine, and refuses nothing by that"
            )?,
            FindingKind::OneCriticality => write!(
                f,
                "rule {rule:?} has met calls to {resource:?} of one class only"
            )?,
            FindingKind::CeilingReached => write!(
                f,
                "rule {rule:?} refuses calls to {resource:?} that could be served"
            )?,
            FindingKind::CostNotTold => write!(
                f,
                "rule {rule:?} has met calls to {resource:?} that cost something, and none told how \
                 much"
            )?,
            FindingKind::CostUnit => write!(
                f,
                "rule {rule:?} for {resource:?} counts a unit that no call tells"
            )?,
            FindingKind::CostTooLarge => write!(
                f,
                "rule {rule:?} has met a call to {resource:?} that cost more than its whole limit"
            )?,
            FindingKind::StoreNotStarted => f.write_str("shared rules count without the store")?,
            FindingKind::MoreNodes => {
                f.write_str("more processes use the store than the settings say")?;
            }
            FindingKind::StoreUnreachable => f.write_str("the store has not answered")?,
            FindingKind::NodesNotSet => {
                f.write_str("the number of processes that use the store was not set")?;
            }
            FindingKind::OtherSettings => {
                f.write_str("processes that use the store have other settings")?;
            }
            FindingKind::NoShare => write!(
                f,
                "rule {rule:?} for {resource:?} admits nothing in some processes without the store"
            )?,
            FindingKind::ShortBuckets => write!(
                f,
                "rule {rule:?} for {resource:?} has buckets that are over before the store has answered"
            )?,
            FindingKind::StoreRefuses => f.write_str("the store refuses requests")?,
            FindingKind::StoreEvicts => {
                f.write_str("the store removes counters when its memory is full")?;
            }
            FindingKind::PlainPassword => {
                f.write_str("the password of the store is sent in plain text")?;
            }
            FindingKind::NoStore => write!(
                f,
                "rule {rule:?} for {resource:?} is shared, and limits this process alone"
            )?,
        }
        if self.cause.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.cause)
    }
}
