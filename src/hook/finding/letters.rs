//! The edit distance of two words, to find misspellings.

/// Returns how many letters have to be added, removed, replaced or swapped with their neighbour to
/// turn `one` into `other`. Time and memory grow with the product of the lengths, so callers limit
/// the lengths.
///
/// # Source
///
/// Optimal string alignment, which is the distance of Damerau and Levenshtein where no letter is
/// edited twice.
pub(crate) fn letters_apart(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let width = other.len() + 1;
    // For each `i` and `j`, the distance of the first `i` letters of `one` and the first `j`
    // letters of `other`.
    let mut table = vec![0; (one.len() + 1) * width];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            table[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let at = |i: usize, j: usize| table[i * width + j];
                let replaced = at(i - 1, j - 1) + usize::from(one[i - 1] != other[j - 1]);
                let mut least = replaced.min(at(i - 1, j) + 1).min(at(i, j - 1) + 1);
                let is_swapped =
                    i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
                if is_swapped {
                    least = least.min(at(i - 2, j - 2) + 1);
                }
                least
            };
        }
    }
    table[one.len() * width + other.len()]
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_edit_of_a_letter_is_one_step() {
        for (left, right, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("same", "same", 0),
            ("flwo", "flow", 1),
            ("lfwo", "flow", 2),
            ("ab", "ba", 1),
            // No letter is edited after a swap.
            ("ca", "abc", 3),
            ("übre", "über", 1),
        ] {
            assert_eq!(letters_apart(left, right), expected, "{left} {right}");
            assert_eq!(letters_apart(right, left), expected, "{right} {left}");
        }
    }
}
