//! The keys of counters in a store.

use std::fmt::{self, Write};
use std::sync::Arc;

/// The maximum length of a prefix, in bytes.
const MOST_PREFIX: usize = 32;
/// The length of the part of a key after its prefix, in bytes: `:1:`, two braces and 32 digits.
const REST: usize = 37;

/// The key of a counter; its text is `{prefix}:1:{digest}`, see [`Draw::key`](super::Draw::key).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreKey {
    prefix: Arc<str>,
    digest: u128,
}

impl StoreKey {
    /// Creates the key of the counter `digest`. The prefix must be [valid](is_prefix).
    pub(crate) const fn new(prefix: Arc<str>, digest: u128) -> Self {
        Self { prefix, digest }
    }

    /// Returns the key as text, made in one allocation.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.prefix.len() + REST);
        let written = write!(text, "{self}");
        debug_assert!(written.is_ok(), "a string takes any text");
        text
    }
}

/// Returns whether `text` is a valid prefix for the keys of a store: 1 to 32 ASCII letters, digits,
/// `_`, `.`, `:` and `-`.
pub(crate) fn is_prefix(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=MOST_PREFIX).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:1:{{{:032x}}}", self.prefix, self.digest)
    }
}
