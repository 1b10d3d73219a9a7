//! The setting `cost` of rules: the unit of the costs that they count.

use super::problem::Inspector;

/// The longest name of a unit.
const MOST_LETTERS: usize = 64;

/// The name that counts by themselves have, and no cost may have.
const REQUESTS: &str = "requests";

/// Notes what is wrong with the name of a unit.
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
