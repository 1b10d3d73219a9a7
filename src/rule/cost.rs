//! The setting `cost` of rules: the unit of the costs that they count.

use std::sync::OnceLock;

use super::problem::Inspector;

/// The longest name of a unit, in bytes. Short, as [`UncountedUnit`] stores a name inline.
const MOST_LETTERS: usize = 64;

/// The first cost unit of a call that no rule counts, kept for a finding. It is stored inline, so a
/// call that names it allocates nothing.
#[derive(Debug, Default)]
pub(super) struct UncountedUnit(OnceLock<([u8; MOST_LETTERS], usize)>);

// === impl UncountedUnit ===

impl UncountedUnit {
    /// Keeps `unit`, if none is kept yet and a rule could have a unit of this length.
    pub(super) fn note(&self, unit: &str) {
        if unit.is_empty() || unit.len() > MOST_LETTERS {
            return;
        }
        self.0.get_or_init(|| {
            let mut letters = [0; MOST_LETTERS];
            letters[..unit.len()].copy_from_slice(unit.as_bytes());
            (letters, unit.len())
        });
    }

    pub(super) fn get(&self) -> Option<&str> {
        let (letters, length) = self.0.get()?;
        std::str::from_utf8(&letters[..*length]).ok()
    }
}

/// The unit of counted requests in documents and figures, so no cost can have this name.
pub(crate) const REQUESTS: &str = "requests";

/// Reports what is wrong with the name of a unit.
pub(super) fn inspect_unit(unit: &str, inspector: &mut Inspector) {
    let is_word = unit.bytes().all(|letter| letter.is_ascii_graphic());
    if unit.is_empty() || unit.len() > MOST_LETTERS || !is_word {
        let shown: String = unit.chars().take(MOST_LETTERS).collect();
        let allowed = format!("1 to {MOST_LETTERS} visible ASCII characters without spaces");
        inspector.refuse("cost", format_args!("{shown:?}"), allowed);
    } else if unit == REQUESTS {
        let allowed = "another unit: a rule without `cost` counts requests";
        inspector.refuse("cost", format_args!("{unit:?}"), allowed);
    }
}
