//! A list that nearly always has at most `N` entries, and then needs no heap.

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SmallVec<T, const N: usize> {
    /// Filled from the front.
    inline: [Option<T>; N],
    more: Vec<T>,
}

impl<T, const N: usize> SmallVec<T, N> {
    pub(crate) fn push(&mut self, item: T) {
        match self.inline.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(item),
            None => self.more.push(item),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.inline
            .iter()
            .map_while(Option::as_ref)
            .chain(&self.more)
    }
}

impl<T, const N: usize> Default for SmallVec<T, N> {
    fn default() -> Self {
        Self {
            inline: [const { None }; N],
            more: Vec::new(),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_it_gets_in_order() {
        let mut list = SmallVec::<_, 2>::default();
        assert_eq!(list.iter().count(), 0);
        for item in 1..=5 {
            list.push(item);
            assert!(list.iter().copied().eq(1..=item), "{list:?}");
        }
    }
}
