//! Lines about rules that people change while a program runs.

use tracing::info;
#[cfg(feature = "dashboard")]
use tracing::warn;

use super::lines::{TARGET, escaped};
use crate::observe::diff::{Difference, differences_without_values};
use crate::rule::Rules;

/// The maximum number of rules in each of the three lists of a line, so that a large change is
/// still one readable line.
const MOST_LISTED: usize = 20;

/// Logs which rules `by` has added, changed and removed, in one line.
pub(in crate::observe) fn log_changed_rules(by: &'static str, before: &Rules, after: &Rules) {
    let all = differences_without_values(before, after);
    let added = listed(&all, |it| it.before.is_none());
    let changed = listed(&all, |it| it.before.is_some() && it.after.is_some());
    let removed = listed(&all, |it| it.after.is_none());
    info!(
        target: TARGET,
        {
            sentinel.by = by,
            sentinel.added = %added,
            sentinel.changed = %changed,
            sentinel.removed = %removed
        },
        "rules changed"
    );
}

/// Logs why the rules that `by` has sent were refused.
#[cfg(feature = "dashboard")]
pub(in crate::observe) fn log_refused_rules(by: &'static str, why: &str) {
    warn!(
        target: TARGET,
        {
            sentinel.by = by,
            sentinel.error = %escaped(why)
        },
        "rules refused"
    );
}

/// Lists the first differences that `is_meant` selects, and how many more there are.
fn listed(all: &[Difference], is_meant: fn(&Difference) -> bool) -> String {
    let meant = all.iter().filter(|it| is_meant(it));
    let more = meant.clone().count().saturating_sub(MOST_LISTED);
    let mut texts: Vec<_> = meant.take(MOST_LISTED).map(text).collect();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

fn text(it: &Difference) -> String {
    let id = it.id.as_ref().map(|id| format!(" ({})", escaped(id)));
    let settings = [&it.before, &it.after].into_iter().flatten();
    let settings: Vec<_> = settings.map(|text| escaped(text)).collect();
    format!(
        "{} {}{}: {}",
        it.kind,
        escaped(&it.resource),
        id.unwrap_or_default(),
        settings.join(" -> "),
    )
}
