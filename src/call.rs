//! All that the engine knows about one request: its resource and who calls.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest text, in bytes, that is kept as it is; a longer key is known by a
/// keyed hash of it.
pub(crate) const MAX_KEY_BYTES: usize = 256;

/// A name by which calls are counted: a resource, a caller, a parameter value.
///
/// Looking up a known key allocates nothing.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A text. Longer than 256 bytes, it is known by a hash of it.
    Str(&'a str),
    /// Two texts that stand for the first, a space, and the second, such as a
    /// method and a route.
    Joined(&'a str, &'a str),
    /// An address.
    Ip(IpAddr),
    /// A number.
    Int(u64),
    /// The hash of a long text.
    #[doc(hidden)]
    Digest(u64, u64),
}

impl<'a> Key<'a> {
    /// The key by which calls without one are counted together.
    pub const MISSING: Key<'static> = Key::Str("-");

    /// The same key, short enough to be kept; `room` holds the short form of a
    /// long one. By reference, because a key is dear to move.
    #[inline]
    pub(crate) fn shortened<'k>(
        &'k self,
        hash: &[impl BuildHasher; 2],
        room: &'k mut Option<Key<'static>>,
    ) -> &'k Key<'k> {
        let is_long = match self {
            Key::Str(text) => text.len() > MAX_KEY_BYTES,
            Key::Joined(first, second) => first.len() + second.len() >= MAX_KEY_BYTES,
            _ => false,
        };
        if is_long {
            room.insert(self.digest(hash))
        } else {
            self
        }
    }

    #[cold]
    fn digest(&self, hash: &[impl BuildHasher; 2]) -> Key<'static> {
        Key::Digest(hash[0].hash_one(self), hash[1].hash_one(self))
    }

    /// Whether `kept` is the same key.
    #[inline]
    pub(crate) fn is_kept_as(&self, kept: &OwnedKey) -> bool {
        match (self, kept) {
            (Key::Str(text), OwnedKey::Str(kept)) => **text == **kept,
            (key, OwnedKey::Str(kept)) => key.is(kept),
            (Key::Ip(ip), OwnedKey::Ip(kept)) => ip == kept,
            (Key::Int(number), OwnedKey::Int(kept)) => number == kept,
            (Key::Digest(a, b), OwnedKey::Digest(c, d)) => (a, b) == (c, d),
            _ => false,
        }
    }

    /// Whether the key is the text `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        match *self {
            Key::Str(text) => text == name,
            Key::Joined(first, second) => {
                name.len() == first.len() + 1 + second.len()
                    && name.starts_with(first)
                    && name.as_bytes()[first.len()] == b' '
                    && name.ends_with(second)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Str(text) => f.write_str(text),
            Key::Joined(first, second) => write!(f, "{first} {second}"),
            Key::Ip(ip) => ip.fmt(f),
            Key::Int(number) => number.fmt(f),
            Key::Digest(high, low) => write!(f, "#{high:016x}{low:016x}"),
        }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Key::Str(text)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        Key::Str(text)
    }
}

impl From<IpAddr> for Key<'_> {
    fn from(ip: IpAddr) -> Self {
        Key::Ip(ip)
    }
}

impl From<u64> for Key<'_> {
    fn from(number: u64) -> Self {
        Key::Int(number)
    }
}

impl Hash for Key<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match *self {
            // A text that may be two joined ones hashes as they do.
            Key::Str(text) => match split(text) {
                Some((first, second)) => Key::Joined(first, second).hash(state),
                None => text.hash(state),
            },
            Key::Joined(first, second) => {
                first.hash(state);
                second.hash(state);
            }
            Key::Ip(ip) => ip.hash(state),
            Key::Int(number) => number.hash(state),
            Key::Digest(high, low) => (high, low).hash(state),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Key::Joined(a, b), Key::Joined(c, d)) => a == c && b == d,
            (key, Key::Str(name)) | (Key::Str(name), key) => key.is(name),
            (Key::Ip(a), Key::Ip(b)) => a == b,
            (Key::Int(a), Key::Int(b)) => a == b,
            (Key::Digest(a, b), Key::Digest(c, d)) => a == c && b == d,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

/// The two parts of a text that begins like `GET /path`. Only those are looked
/// at, so that other texts hash in one go.
fn split(text: &str) -> Option<(&str, &str)> {
    if text.as_bytes().first().is_some_and(u8::is_ascii_uppercase) {
        text.split_once(' ')
    } else {
        None
    }
}

/// A key that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedKey {
    Str(Arc<str>),
    Ip(IpAddr),
    Int(u64),
    Digest(u64, u64),
}

impl OwnedKey {
    pub(crate) fn as_key(&self) -> Key<'_> {
        match *self {
            OwnedKey::Str(ref text) => Key::Str(text),
            OwnedKey::Ip(ip) => Key::Ip(ip),
            OwnedKey::Int(number) => Key::Int(number),
            OwnedKey::Digest(high, low) => Key::Digest(high, low),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Str(text) => OwnedKey::Str(text.into()),
            Key::Joined(..) => OwnedKey::Str(key.to_string().into()),
            Key::Ip(ip) => OwnedKey::Ip(ip),
            Key::Int(number) => OwnedKey::Int(number),
            Key::Digest(high, low) => OwnedKey::Digest(high, low),
        }
    }
}

impl papaya::Equivalent<OwnedKey> for Key<'_> {
    #[inline]
    fn equivalent(&self, key: &OwnedKey) -> bool {
        self.is_kept_as(key)
    }
}

impl Hash for OwnedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_key().hash(state);
    }
}

/// Whether a call comes in to be served here or goes out to be served
/// elsewhere. Calls of the two directions are counted apart, also under one
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// Served here.
    #[default]
    Inbound,
    /// Served elsewhere.
    Outbound,
}

/// One call, as the engine sees it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("orders", 10));
/// let call = Call::new("orders").origin("shop").batch(4);
/// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
/// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
/// // 4 + 4 + 4 > 10
/// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub(crate) resource: Key<'a>,
    pub(crate) origin: Option<Key<'a>>,
    pub(crate) context: Option<Key<'a>>,
    pub(crate) param: Option<Key<'a>>,
    pub(crate) weight: u32,
    pub(crate) prioritized: bool,
    pub(crate) patience: Option<Duration>,
    pub(crate) direction: Direction,
}

impl<'a> Call<'a> {
    /// A call of weight 1 to `resource`, inbound and not prioritized.
    #[must_use]
    pub fn new(resource: impl Into<Key<'a>>) -> Self {
        Self {
            resource: resource.into(),
            origin: None,
            context: None,
            param: None,
            weight: 1,
            prioritized: false,
            patience: None,
            direction: Direction::Inbound,
        }
    }

    /// Who calls. Without one, rules [by origin](crate::FlowRule::by_origin)
    /// count the call under `-`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<Key<'a>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Through which entrance the call came; counted if the engine was built
    /// [with contexts](crate::Builder::contexts).
    #[must_use]
    pub fn context(mut self, context: impl Into<Key<'a>>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// The value of a parameter, for hooks.
    #[must_use]
    pub fn param(mut self, param: impl Into<Key<'a>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Whether the call may borrow from a later bucket instead of being
    /// refused.
    #[must_use]
    pub fn prioritized(mut self, prioritized: bool) -> Self {
        self.prioritized = prioritized;
        self
    }

    /// The longest that the call may wait, such as the time until its deadline.
    /// A call that would have to wait as long or longer is refused at once.
    /// Default: the engine's [occupy timeout](crate::Builder::occupy_timeout),
    /// which also is the most.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// How many tokens the call takes: its weight. A call of weight 0 passes
    /// while no limit is exceeded and counts nothing; one heavier than a limit
    /// can never pass.
    #[must_use]
    pub fn batch(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// A call that is served elsewhere.
    #[must_use]
    pub fn outbound(mut self) -> Self {
        self.direction = Direction::Outbound;
        self
    }

    pub(crate) fn directed(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use std::hash::RandomState;

    #[test]
    fn joined_texts_are_the_text_with_a_space() {
        let hash = RandomState::new();
        let pairs = [
            (Key::Joined("GET", "/a"), "GET /a"),
            (Key::Joined("GET", "/a b"), "GET /a b"),
            (Key::Joined("POST", ""), "POST "),
        ];
        for (joined, text) in pairs {
            assert_eq!(joined, Key::Str(text));
            assert_eq!(Key::Str(text), joined);
            assert_eq!(hash.hash_one(joined), hash.hash_one(Key::Str(text)));
            assert_eq!(hash.hash_one(joined), hash.hash_one(OwnedKey::from(joined)));
            assert_eq!(joined.to_string(), text);
        }
        let kept = OwnedKey::from(Key::Str("GET /a"));
        assert!(Key::Joined("GET", "/a").is_kept_as(&kept));
        assert!(!Key::Joined("GET", "/b").is_kept_as(&kept));
        assert!(!Key::Int(7).is_kept_as(&kept));
        assert_ne!(Key::Joined("GET", "/a"), Key::Str("GET/a"));
        assert_ne!(Key::Joined("GET", "/a"), Key::Str("GET  /a"));
    }

    #[test]
    fn a_long_key_is_known_by_its_hash() {
        let hash = [RandomState::new(), RandomState::new()];
        let long = "x".repeat(64 * 1024);
        let (mut room, mut again) = (None, None);
        let key = Key::Str(&long);
        let short = *key.shortened(&hash, &mut room);
        assert!(matches!(short, Key::Digest(..)));
        assert_eq!(short, *key.shortened(&hash, &mut again));
        assert!(short.to_string().len() <= MAX_KEY_BYTES);
        let key = Key::Str("abc");
        assert_eq!(*key.shortened(&hash, &mut None), Key::Str("abc"));
    }
}
