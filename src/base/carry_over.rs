//! Whose state new rules take over when rules change.

/// Whether a new rule may inherit from an old one.
type Test<'t, N, O> = &'t dyn Fn(&N, &O) -> bool;

/// For each of `new`, the one of `old` that it inherits from, each of those at most once. Of the
/// `tests`, that of the closest relation comes first: an equal rule must not lose its state to one
/// that is merely alike.
pub(crate) fn carry_over<'a, N, O>(
    new: &[N],
    old: &'a [O],
    tests: &[Test<'_, N, O>],
) -> Vec<Option<&'a O>> {
    let mut carry_over = vec![None; new.len()];
    let mut left: Vec<_> = old.iter().collect();
    for is_partner in tests {
        for (new, partner) in new.iter().zip(&mut carry_over) {
            if partner.is_none() {
                let found = left.iter().position(|old| is_partner(new, old));
                *partner = found.map(|place| left.remove(place));
            }
        }
    }
    carry_over
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_closest_relation_goes_first_and_nobody_is_taken_twice() {
        let tests: [Test<'_, i32, i32>; 2] = [&|a, b| a == b, &|a, b| a % 10 == b % 10];
        let found = carry_over(&[15, 5, 25, 35], &[5, 15, 45, 6], &tests);
        assert_eq!(found, [Some(&15), Some(&5), Some(&45), None]);
    }
}
