//! Finds the old rules whose state new rules take over.

/// Returns whether a new rule can inherit from an old one.
type Test<'t, N, O> = &'t dyn Fn(&N, &O) -> bool;

/// Returns, for each item of `new`, the item of `old` that it inherits from. Each old item is
/// inherited at most once. The `tests` are applied in order, and the closest relation comes first:
/// an equal rule must not lose its state to a rule that is merely similar.
pub(crate) fn carry_over<'a, N, O>(
    new: &[N],
    old: &'a [O],
    tests: &[Test<'_, N, O>],
) -> Vec<Option<&'a O>> {
    let is_partner = |test: usize, one: usize, other: usize| tests[test](&new[one], &old[other]);
    let mut carry_over = Vec::with_capacity(new.len());
    for place in partners(new.len(), old.len(), tests.len(), &is_partner) {
        carry_over.push(place.map(|place| &old[place]));
    }
    carry_over
}

/// Returns, for each new item, the index of the old item that it inherits from. `new` and `old` are
/// the numbers of items. `is_partner(test, new, old)` applies a test to a new and an old item; all
/// are given by index.
fn partners(
    new: usize,
    old: usize,
    tests: usize,
    is_partner: &dyn Fn(usize, usize, usize) -> bool,
) -> Vec<Option<usize>> {
    let mut partners = vec![None; new];
    let mut left: Vec<usize> = (0..old).collect();
    for test in 0..tests {
        for (new, partner) in partners.iter_mut().enumerate() {
            if partner.is_none() {
                let found = left.iter().position(|&old| is_partner(test, new, old));
                *partner = found.map(|place| left.remove(place));
            }
        }
    }
    partners
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_closest_relation_goes_first_and_none_is_inherited_twice() {
        let tests: [Test<'_, i32, i32>; 2] = [&|a, b| a == b, &|a, b| a % 10 == b % 10];
        let found = carry_over(&[15, 5, 25, 35], &[5, 15, 45, 6], &tests);
        assert_eq!(found, [Some(&15), Some(&5), Some(&45), None]);
    }
}
