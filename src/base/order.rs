//! Sorts items of any type with a single instance of the sort, which saves machine code.

use std::cmp::Ordering;

/// Returns the indices of `count` items, sorted by `compare`, which compares the items at two
/// indices.
pub(crate) fn sorted_places(
    count: usize,
    compare: &dyn Fn(usize, usize) -> Ordering,
) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    // Equal items keep their order.
    places.sort_unstable_by(|&one, &other| compare(one, other).then(one.cmp(&other)));
    places
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn equal_things_keep_their_order() {
        let things = ["b", "a", "c", "a", "b"];
        let places = sorted_places(things.len(), &|one, other| things[one].cmp(things[other]));
        assert_eq!(places, [1, 3, 0, 4, 2]);
    }
}
