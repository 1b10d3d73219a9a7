//! Names of counters in a store.

use std::fmt;
use std::sync::Arc;

/// Longest prefix, in bytes.
const MOST_PREFIX: usize = 32;

/// The key of a counter: `{prefix}:1:{digest}`, where the digest of 32 hexadecimal digits
/// stands in literal braces and says nothing about the rule or the user.
///
/// The braces make the digest the hash tag of a Redis Cluster, so a prefix moves no key to
/// another slot. 1 is the version of the format of the value.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::StoreKey;
///
/// let key = StoreKey::new("shop", 0x2a).unwrap();
/// assert_eq!(key.to_string(), "shop:1:{0000000000000000000000000000002a}");
/// assert!(StoreKey::new("a b", 0x2a).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreKey {
    prefix: Arc<str>,
    digest: u128,
}

impl StoreKey {
    /// Creates the key of the counter `digest`. `None` if the prefix is empty, longer than
    /// 32 bytes, or has other characters than ASCII letters, digits, `_`, `.`, `:` and `-`.
    #[must_use]
    pub fn new(prefix: &str, digest: u128) -> Option<Self> {
        is_prefix(prefix).then(|| Self {
            prefix: prefix.into(),
            digest,
        })
    }

    /// The same for a prefix that was checked.
    pub(crate) const fn of(prefix: Arc<str>, digest: u128) -> Self {
        Self { prefix, digest }
    }

    /// Returns the digest of what is counted.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.digest
    }
}

/// Whether `text` may stand before the keys of a store.
pub(crate) fn is_prefix(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=MOST_PREFIX).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:1:{{{:032x}}}", self.prefix, self.digest)
    }
}
