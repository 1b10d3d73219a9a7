//! Totals that grow on where a count of the engine begins anew.

use std::collections::HashMap;

use tower_sentinel::observe::{Family, FamilyKind, Sample, Value};

/// By how much each series has grown. A program that makes up names of rules without end has to
/// forget the oldest ones.
#[derive(Default)]
pub(crate) struct Totals(HashMap<String, Total>);

#[derive(Default)]
struct Total {
    /// The number and the sum that were read last.
    last: [f64; 2],
    /// By how much they have grown in all.
    grown: [f64; 2],
    is_there: bool,
}

impl Totals {
    /// Adds what `families` have counted since the last time.
    pub(crate) fn add(&mut self, families: &[Family]) {
        for total in self.0.values_mut() {
            total.is_there = false;
        }
        for family in families {
            for sample in family.samples() {
                let now = match sample.value() {
                    Value::Times { sum, count, .. } => [*count as f64, *sum],
                    value if family.kind() == FamilyKind::Counter => [value.as_f64(), 0.0],
                    _ => continue,
                };
                let total = self.0.entry(series(family.name(), sample)).or_default();
                if (0..2).any(|it| now[it] < total.last[it]) {
                    total.last = [0.0; 2];
                }
                for (it, now) in now.into_iter().enumerate() {
                    total.grown[it] += now - total.last[it];
                }
                (total.last, total.is_there) = (now, true);
            }
        }
        // A rule that has gone counts from 0 when it comes back.
        for (series, total) in &mut self.0 {
            if !total.is_there && series.contains("(\"rule\", ") {
                total.last = [0.0; 2];
            }
        }
    }

    /// The number and the sum of a series, which never fall.
    pub(crate) fn of(&self, family: &str, sample: &Sample) -> [f64; 2] {
        let total = self.0.get(&series(family, sample));
        total.map(|total| total.grown).unwrap_or_default()
    }
}

/// The name of a series.
fn series(family: &str, sample: &Sample) -> String {
    format!("{family} {:?}", sample.labels().collect::<Vec<_>>())
}
