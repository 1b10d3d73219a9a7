//! One key, else another.

use super::{Head, KeyExtractor};
use crate::call::Key;

/// The key of the first extractor, else that of the second; made by
/// [`KeyExtractor::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        self.first.key(head).or_else(|| self.second.key(head))
    }
}
