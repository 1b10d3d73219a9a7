//! Keys: the names by which calls are counted.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Encoded, canonical};

/// The maximum length of a text that is stored unchanged, in bytes. A longer key is replaced by a
/// keyed hash.
pub(crate) const MAX_KEY_BYTES: usize = 256;
/// The text of [`Key::OVERFLOW`].
pub(crate) const OVERFLOW: &str = "__overflow__";

/// A name under which calls are counted: a resource, an origin, a context, a tier, or the
/// value of a parameter; see the [glossary](crate::guide::words).
///
/// Looking up a known key does not allocate.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Key;
///
/// assert_eq!(Key::Joined("GET", "/users"), Key::from("GET /users"));
/// // A text is neither an address nor a number, even if it looks like one.
/// assert_ne!(Key::from("7"), Key::from(7_u64));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A text. If it is longer than 256 bytes, it is replaced by its hash.
    Str(&'a str),
    /// Two texts that stand for one text: the first text, a space, and the second text. An example
    /// is a method and a route.
    ///
    /// Only the joined text counts: `("acme eu", "bob")` is the same key as `("acme", "eu bob")`.
    /// So use a first text that clients cannot choose, or that cannot contain a space. To limit a
    /// pair, such as an address and an account, use [two parameters](crate::Call::params) with a
    /// rule for each. An address as a text would not be cut to 64 bits by the
    /// [extractors](crate::key), and a client has many addresses in its network.
    Joined(&'a str, &'a str),
    /// An address, used unchanged. [Extractors](crate::key) cut IPv6 addresses to 64 bits. If you
    /// create a key from an address yourself, cut it with [`cut_ip`](crate::key::cut_ip).
    Ip(IpAddr),
    /// A number.
    Int(u64),
    /// An encoded text, as in a URL. It is the same key as the decoded text.
    #[doc(hidden)]
    // Users cannot create or read the text inside.
    #[allow(private_interfaces, reason = "extractors alone make and read it")]
    Encoded(Encoded<'a>),
    /// The hash of a long or secret text.
    #[doc(hidden)]
    Digest(u64, u64),
    /// The digest of a secret text, which is the same in all processes of a service.
    #[doc(hidden)]
    Agreed(u64, u64),
    /// A key of the engine that many calls share. It is displayed as a text, but no text is equal
    /// to it.
    #[doc(hidden)]
    Reserved(&'static str),
}

impl<'a> Key<'a> {
    /// The key under which all calls without a key are counted together. It is displayed as `-`.
    /// The text `-`, which a client can send, is another key.
    pub const MISSING: Key<'static> = Key::Reserved("-");

    /// The key under which calls are counted if a full table has no place for their own key.
    pub(crate) const OVERFLOW: Key<'static> = Key::Reserved(OVERFLOW);

    /// Returns the reserved key that is displayed like this key, if this key is a text.
    pub(crate) fn reserved(&self) -> Option<Key<'static>> {
        let all = [("-", Self::MISSING), (OVERFLOW, Self::OVERFLOW)];
        let mut alike = all.into_iter().filter(|(text, _)| self.is(text));
        alike.next().map(|(_, key)| key)
    }

    /// Returns the key that a rule or a program means by this name: the reserved key that is
    /// displayed like it, if there is one; otherwise the key itself.
    pub(crate) fn meant(self) -> Self {
        self.reserved().unwrap_or(self)
    }

    /// Returns the keys for which `text` stands in a rule: the text itself, the address or number
    /// that it spells, and the reserved key that is displayed like it. Only the usual form of a
    /// number counts: "007" and "+7" are names. An IPv6 address that contains an IPv4 address also
    /// stands for the IPv4 address, by which extractors identify the client.
    pub(crate) fn spellings(text: &'a str) -> std::vec::IntoIter<Self> {
        let mut all = vec![Key::Str(text)];
        if let Ok(ip) = text.parse::<IpAddr>() {
            all.push(Key::Ip(ip));
            let plain = canonical(ip);
            if plain != ip {
                all.push(Key::Ip(plain));
            }
        }
        if let Ok(number) = text.parse::<u64>() {
            if number.to_string() == text {
                all.push(Key::Int(number));
            }
        }
        all.extend(Key::Str(text).reserved());
        all.into_iter()
    }

    /// Returns a key that is short enough to be stored: this key, or its digest, which is written
    /// to `room`. Returned by reference, because a key is large.
    #[inline]
    pub(crate) fn shortened<'k>(
        &'k self,
        hash: &[impl BuildHasher; 2],
        room: &'k mut Option<Key<'static>>,
    ) -> &'k Key<'k> {
        let is_long = match self {
            Key::Str(text) => text.len() > MAX_KEY_BYTES,
            Key::Joined(first, second) => first.len() + second.len() >= MAX_KEY_BYTES,
            Key::Encoded(encoded) => encoded.with_text(|text| text.len() > MAX_KEY_BYTES),
            _ => false,
        };
        if is_long {
            room.insert(self.digest(hash))
        } else {
            self
        }
    }

    /// Returns the digest that replaces this key in a table.
    #[cold]
    pub(crate) fn digest(&self, hash: &[impl BuildHasher; 2]) -> Key<'static> {
        Key::Digest(hash[0].hash_one(self), hash[1].hash_one(self))
    }

    /// Returns whether the stored key `kept` is the same key.
    #[inline]
    pub(crate) fn is_kept_as(&self, kept: &OwnedKey) -> bool {
        match (self, kept) {
            (Key::Str(text), OwnedKey::Str(kept)) => is_same(text.as_bytes(), kept.as_bytes()),
            (key, OwnedKey::Str(kept)) => key.is(kept),
            (Key::Ip(ip), OwnedKey::Ip(kept)) => ip == kept,
            (Key::Int(number), OwnedKey::Int(kept)) => number == kept,
            (Key::Digest(a, b), OwnedKey::Digest(c, d))
            | (Key::Agreed(a, b), OwnedKey::Agreed(c, d)) => (a, b) == (c, d),
            (Key::Reserved(text), OwnedKey::Reserved(kept)) => text == kept,
            _ => false,
        }
    }

    /// Returns whether the key is the text `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        match *self {
            Key::Str(text) => text == name,
            Key::Joined(first, second) => {
                name.len() == first.len() + 1 + second.len()
                    && name.starts_with(first)
                    && name.as_bytes()[first.len()] == b' '
                    && name.ends_with(second)
            }
            Key::Encoded(encoded) => encoded.is(name),
            _ => false,
        }
    }
}

/// Returns whether both slices are equal. Compares whole words inline, as names are short and a
/// call of `memcmp` takes longer.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if let (Some(a_last), Some(b_last)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        a_last == b_last && a.chunks_exact(8).eq(b.chunks_exact(8))
    } else if let (Some(a_last), Some(b_last)) = (a.last_chunk::<4>(), b.last_chunk::<4>()) {
        a_last == b_last && a.first_chunk::<4>() == b.first_chunk()
    } else {
        a == b
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Str(text) => f.write_str(text),
            Key::Joined(first, second) => write!(f, "{first} {second}"),
            Key::Ip(ip) => ip.fmt(f),
            Key::Int(number) => number.fmt(f),
            Key::Encoded(encoded) => encoded.with_text(|text| f.write_str(text)),
            Key::Digest(high, low) | Key::Agreed(high, low) => write!(f, "#{high:016x}{low:016x}"),
            Key::Reserved(text) => f.write_str(text),
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
    /// Writes an end mark after each text: a byte that no text contains. So different keys, or
    /// different pairs of keys, never write the same bytes, even to a hasher that does not separate
    /// its writes.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_as::<true, H>(state);
    }
}

impl Key<'_> {
    /// Hashes the key without end marks, for the tables of resources, whose hasher foldhash
    /// separates its writes by itself.
    #[inline]
    pub(crate) fn hash_open<H: Hasher>(&self, state: &mut H) {
        self.hash_as::<false, H>(state);
    }

    /// Hashes the key, with end marks if `MARKS`.
    #[inline]
    fn hash_as<const MARKS: bool, H: Hasher>(&self, state: &mut H) {
        match self {
            Key::Str(text) if !may_be_joined(text) => hash_text::<MARKS, H>(text, state),
            _ => self.hash_otherwise::<MARKS, H>(state),
        }
    }

    /// Hashes a key that is not a plain text.
    #[inline(never)]
    fn hash_otherwise<const MARKS: bool, H: Hasher>(&self, state: &mut H) {
        let mut hash = |key: Key<'_>| key.hash_as::<MARKS, H>(state);
        match *self {
            // A text that can equal two joined texts is hashed like the joined texts.
            Key::Str(text) => match split(text) {
                Some((first, second)) => return hash(Key::Joined(first, second)),
                None => return hash_text::<MARKS, H>(text, state),
            },
            Key::Joined(first, second) if is_head(first) => {
                hash_text::<MARKS, H>(first, state);
                return hash_text::<MARKS, H>(second, state);
            }
            Key::Joined(first, second) => {
                return with_joined(first, second, |text| hash(Key::Str(text)));
            }
            Key::Encoded(encoded) => return encoded.with_text(|text| hash(Key::Str(text))),
            Key::Ip(ip) => ip.hash(state),
            Key::Int(number) => number.hash(state),
            Key::Digest(high, low) | Key::Agreed(high, low) => (high, low).hash(state),
            Key::Reserved(text) => state.write(text.as_bytes()),
        }
        if MARKS {
            state.write_u8(0xfe);
        }
    }
}

/// Hashes a text, with an end mark if `MARKS`.
#[inline]
fn hash_text<const MARKS: bool, H: Hasher>(text: &str, state: &mut H) {
    state.write(text.as_bytes());
    if MARKS {
        state.write_u8(0xff);
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Key::Joined(a, b), Key::Joined(c, d)) => {
                (a == c && b == d) || joined(a, b).eq(joined(c, d))
            }
            (key, Key::Str(name)) | (Key::Str(name), key) => key.is(name),
            (key, Key::Encoded(encoded)) | (Key::Encoded(encoded), key) => {
                encoded.with_text(|text| key.is(text))
            }
            (Key::Ip(a), Key::Ip(b)) => a == b,
            (Key::Int(a), Key::Int(b)) => a == b,
            (Key::Digest(a, b), Key::Digest(c, d)) | (Key::Agreed(a, b), Key::Agreed(c, d)) => {
                a == c && b == d
            }
            (Key::Reserved(a), Key::Reserved(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

/// Splits a text that begins with a capital letter, like `GET /path`, at its first space. Other
/// texts are not split, so that they hash in one write.
fn split(text: &str) -> Option<(&str, &str)> {
    if may_be_joined(text) {
        text.split_once(' ')
    } else {
        None
    }
}

/// Returns whether `text` begins like a method, with a capital letter.
#[inline]
fn may_be_joined(text: &str) -> bool {
    text.as_bytes().first().is_some_and(u8::is_ascii_uppercase)
}

/// Returns whether [`split`] would separate `first` from the text that is joined to it.
fn is_head(first: &str) -> bool {
    may_be_joined(first) && !first.as_bytes().contains(&b' ')
}

/// Returns the bytes of the joined text: `first`, a space, and `second`.
pub(crate) fn joined(first: &str, second: &str) -> impl Iterator<Item = u8> {
    first.bytes().chain(*b" ").chain(second.bytes())
}

/// Calls `look` with the joined text. Allocates only if the text is too long to be stored.
#[cold]
fn with_joined<R>(first: &str, second: &str, look: impl FnOnce(&str) -> R) -> R {
    let mut room = [0; MAX_KEY_BYTES];
    let Some(text) = room.get_mut(..first.len() + 1 + second.len()) else {
        return look(&format!("{first} {second}"));
    };
    text.iter_mut()
        .zip(joined(first, second))
        .for_each(|(to, byte)| *to = byte);
    look(std::str::from_utf8(text).expect("two texts and a space are a text"))
}

/// A key in stored form, without borrowed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedKey {
    Str(Arc<str>),
    Ip(IpAddr),
    Int(u64),
    Digest(u64, u64),
    Agreed(u64, u64),
    Reserved(&'static str),
}

impl OwnedKey {
    /// Returns the borrowed form of the key.
    pub(crate) fn as_key(&self) -> Key<'_> {
        match *self {
            OwnedKey::Str(ref text) => Key::Str(text),
            OwnedKey::Ip(ip) => Key::Ip(ip),
            OwnedKey::Int(number) => Key::Int(number),
            OwnedKey::Digest(high, low) => Key::Digest(high, low),
            OwnedKey::Agreed(high, low) => Key::Agreed(high, low),
            OwnedKey::Reserved(text) => Key::Reserved(text),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Str(text) => OwnedKey::Str(text.into()),
            Key::Joined(..) | Key::Encoded(_) => OwnedKey::Str(key.to_string().into()),
            Key::Ip(ip) => OwnedKey::Ip(ip),
            Key::Int(number) => OwnedKey::Int(number),
            Key::Digest(high, low) => OwnedKey::Digest(high, low),
            Key::Agreed(high, low) => OwnedKey::Agreed(high, low),
            Key::Reserved(text) => OwnedKey::Reserved(text),
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

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/key.rs"]
mod tests;
