//! Values sorted by number, for queues of calls: a new value nearly always has the largest number.
//!
//! A value that is removed from the middle leaves a gap, so nothing moves. Gaps at the front are
//! dropped at once, and all gaps when they outnumber the values. So each operation costs at most a
//! binary search, amortized, except an insertion in the middle.

use std::collections::VecDeque;

/// See the [module](self). Unlike a tree, it generates no more code per type than a queue.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    /// In ascending order; `None` is a gap. The first entry is no gap.
    all: VecDeque<(u64, Option<T>)>,
    gaps: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            all: VecDeque::new(),
            gaps: 0,
        }
    }
}

impl<T> Numbered<T> {
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.gaps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Inserts `value` in the order of its number, or replaces the value that has this number. Fast
    /// if the number is the largest.
    pub(crate) fn insert(&mut self, number: u64, value: T) {
        let is_new = self.all.back().is_none_or(|&(last, _)| last < number);
        if is_new {
            self.all.push_back((number, Some(value)));
            return;
        }
        match self.search(number) {
            Ok(at) => {
                let old = self.all[at].1.replace(value);
                self.gaps -= usize::from(old.is_none());
            }
            Err(at) => self.all.insert(at, (number, Some(value))),
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.search(number).ok()?;
        self.all[at].1.as_mut()
    }

    /// Returns the value with the smallest number.
    pub(crate) fn first(&self) -> Option<&T> {
        self.all.front()?.1.as_ref()
    }

    pub(crate) fn pop_first(&mut self) -> Option<T> {
        let (_, first) = self.all.pop_front()?;
        self.drop_gaps();
        first
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.search(number).ok()?;
        let gone = self.all[at].1.take()?;
        self.gaps += 1;
        self.drop_gaps();
        Some(gone)
    }

    /// Returns the index of `number` or, as an error, the index at which it would be inserted.
    fn search(&self, number: u64) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, |&(own, _)| own)
    }

    /// Drops the gaps at the front, and all gaps if they are the majority.
    fn drop_gaps(&mut self) {
        while let Some((_, None)) = self.all.front() {
            self.all.pop_front();
            self.gaps -= 1;
        }
        if self.gaps > self.all.len() / 2 {
            self.all.retain(|(_, value)| value.is_some());
            self.gaps = 0;
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_behaves_like_a_sorted_map() {
        let (mut ours, mut map) = (Numbered::default(), BTreeMap::new());
        let (mut next, mut random) = (0_u64, 0x2545_f491_4f6c_dd1d_u64);
        for step in 0..20_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let known = random % (next + 1);
            match random >> 32 & 7 {
                0..=2 => {
                    next += 1;
                    ours.insert(next, step);
                    map.insert(next, step);
                }
                // A value that was removed is inserted again.
                3 => {
                    ours.insert(known, step);
                    map.insert(known, step);
                }
                4 | 5 => assert_eq!(ours.remove(known), map.remove(&known)),
                6 => assert_eq!(ours.get_mut(known), map.get_mut(&known)),
                // The queue runs empty now and then.
                _ if step % 1_000 < 20 => {
                    while let Some((_, first)) = map.pop_first() {
                        assert_eq!(ours.first(), Some(&first));
                        assert_eq!(ours.pop_first(), Some(first));
                    }
                }
                _ => assert_eq!(ours.pop_first(), map.pop_first().map(|(_, it)| it)),
            }
            assert_eq!((ours.len(), ours.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(ours.first(), map.first_key_value().map(|(_, it)| it));
            assert!(ours.gaps <= ours.all.len() / 2);
        }
    }
}
