//! A list that nearly always has at most `N` entries, and then needs no heap.

/// See the [module](self).
#[derive(Clone, Debug)]
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

    /// Removes and returns the first item for which `is_it` is true. The order of the remaining
    /// items can change.
    pub(crate) fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.iter().position(is_it)?;
        let last = match self.more.pop() {
            Some(last) => last,
            None => self.inline.iter_mut().rev().find_map(Option::take)?,
        };
        let place = match self.inline.get_mut(at) {
            Some(place) => place.as_mut(),
            None => self.more.get_mut(at - N),
        };
        Some(match place {
            Some(place) => std::mem::replace(place, last),
            // The removed item was the last one.
            None => last,
        })
    }

    /// Returns the item at `place`; `None` if the list is shorter.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        match self.inline.get(place) {
            Some(item) => item.as_ref(),
            None => self.more.get(place - N),
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
    fn removing_an_item_keeps_all_others() {
        for length in 1..6 {
            for taken in 0..length {
                let mut list = SmallVec::<_, 2>::default();
                (0..length).for_each(|item| list.push(item));
                assert_eq!(list.remove(|item| *item == taken), Some(taken));
                assert_eq!(list.remove(|item| *item == taken), None);
                let mut left: Vec<_> = list.iter().copied().collect();
                left.sort_unstable();
                assert!(
                    left.into_iter()
                        .eq((0..length).filter(|item| *item != taken))
                );
            }
        }
    }

    #[test]
    fn items_stay_in_order() {
        let mut list = SmallVec::<_, 2>::default();
        assert_eq!(list.iter().count(), 0);
        for item in 1..=5 {
            list.push(item);
            assert!(list.iter().copied().eq(1..=item), "{list:?}");
        }
    }
}
