//! Encoded text, such as a part of a URL, which is identified by its decoded text.
//!
//! `ab` and `a%62` decode to the same text, and `ab` and `AB` are the same host. If each spelling
//! were a key, a client would have a fresh quota for every spelling of its name. So an encoded text
//! hashes and compares like the decoded text, and is decoded on the stack each time. A text without
//! anything to decode becomes an ordinary key at no cost.

use std::fmt;

use super::Key;

/// The maximum length of a text that is decoded without an allocation, in bytes.
const ROOM: usize = 512;

/// An encoded text, which is identified by its decoded text. Bytes that are not UTF-8 are replaced
/// like by [`String::from_utf8_lossy`].
#[derive(Clone, Copy)]
pub(crate) struct Encoded<'a> {
    text: &'a str,
    code: Code,
}

/// How a text is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// Percent-encoding: `%` and two hexadecimal digits for a byte. A `%` without digits stands for
    /// itself.
    Path,
    /// Percent-encoding with `+` for a space.
    Form,
    /// A host name, in which ASCII letters of both cases are equal. It decodes to lower case.
    Host,
}

impl<'a> Encoded<'a> {
    /// Creates an encoded text from the path of a URL.
    pub(crate) const fn path(text: &'a str) -> Self {
        let code = Code::Path;
        Self { text, code }
    }

    /// Creates an encoded text from the query of a URL.
    pub(crate) const fn form(text: &'a str) -> Self {
        let code = Code::Form;
        Self { text, code }
    }

    /// Creates an encoded text from a host name.
    pub(crate) const fn host(text: &'a str) -> Self {
        let code = Code::Host;
        Self { text, code }
    }

    /// Returns the decoded text as a key; `None` if the text is empty.
    pub(crate) fn key(self) -> Option<Key<'a>> {
        match self {
            Self { text: "", .. } => None,
            Self { text, .. } if self.is_plain() => Some(Key::Str(text)),
            _ => Some(Key::Encoded(self)),
        }
    }

    /// Returns the key to which all `spellings` decode; `None` if they decode to different texts,
    /// or if there are no spellings.
    pub(crate) fn only(mut spellings: impl Iterator<Item = Self>) -> Option<Key<'a>> {
        let first = spellings.next()?;
        // The first text is decoded only once, for all comparisons.
        first
            .with_text(|text| spellings.all(|spelling| spelling.is(text)))
            .then(|| first.key())?
    }

    /// Returns whether the encoded text decodes to `text`.
    pub(crate) fn is(&self, text: &str) -> bool {
        if self.is_plain() {
            self.text == text
        } else {
            // An encoded text is never shorter than the decoded text, apart from invalid UTF-8.
            self.text.len() >= text.len() && self.with_text(|own| own == text)
        }
    }

    /// Calls `look` with the decoded text.
    #[cold]
    #[inline(never)]
    pub(crate) fn with_text<R>(&self, look: impl FnOnce(&str) -> R) -> R {
        if self.is_plain() {
            return look(self.text);
        }
        if self.text.len() > ROOM {
            let bytes: Vec<u8> = self.bytes().collect();
            return look(&String::from_utf8_lossy(&bytes));
        }
        let mut room = [0; ROOM];
        let mut length = 0;
        for byte in self.bytes() {
            room[length] = byte;
            length += 1;
        }
        look(&String::from_utf8_lossy(&room[..length]))
    }

    /// Returns whether the encoded text equals the decoded text.
    fn is_plain(&self) -> bool {
        let code = self.code;
        !self.text.bytes().any(|byte| match code {
            Code::Path => byte == b'%',
            Code::Form => byte == b'%' || byte == b'+',
            Code::Host => byte.is_ascii_uppercase(),
        })
    }

    /// Returns the decoded bytes. Their number is at most that of the encoded bytes.
    fn bytes(&self) -> impl Iterator<Item = u8> + 'a {
        let code = self.code;
        let mut rest = self.text.as_bytes();
        std::iter::from_fn(move || {
            let (&first, behind) = rest.split_first()?;
            rest = behind;
            Some(match (first, behind) {
                _ if code == Code::Host => first.to_ascii_lowercase(),
                (b'%', &[high, low, ref behind @ ..]) => match (digit(high), digit(low)) {
                    (Some(high), Some(low)) => {
                        rest = behind;
                        high << 4 | low
                    }
                    _ => first,
                },
                (b'+', _) if code == Code::Form => b' ',
                _ => first,
            })
        })
    }
}

impl fmt::Debug for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Returns the value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    Some(digit as u8)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::super::OwnedKey;
    use super::*;

    #[test]
    fn every_spelling_equals_the_decoded_text() {
        let long = "x".repeat(2_000);
        let long_spelled = format!("%78{}", &long[1..]);
        let cases = [
            ("ab", "ab"),
            ("a%62", "ab"),
            ("%61%62", "ab"),
            ("a+b", "a b"),
            ("a%20b", "a b"),
            ("a%2Bb", "a+b"),
            ("a%2bb", "a+b"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("%%34", "%4"),
            ("%2534", "%34"),
            ("caf%C3%A9", "caf\u{e9}"),
            ("%FF", "\u{fffd}"),
            ("%00", "\0"),
            ("GET%20/a", "GET /a"),
            (&long_spelled, &long),
        ];
        let hash = RandomState::new();
        let two = [RandomState::new(), RandomState::new()];
        for (spelled, text) in cases {
            let key = Encoded::form(spelled).key().unwrap();
            let plain = Key::Str(text);
            assert_eq!(key, plain, "{spelled}");
            assert_eq!(plain, key, "{spelled}");
            assert_eq!(key, key, "{spelled}");
            assert_eq!(key.to_string(), text);
            assert_eq!(hash.hash_one(key), hash.hash_one(plain), "{spelled}");
            let owned = OwnedKey::from(key);
            assert_eq!(owned, OwnedKey::from(plain), "{spelled}");
            assert!(key.is_kept_as(&owned), "{spelled}");
            // A long text is replaced by the same hash.
            let (mut room, mut other) = (None, None);
            let short = key.shortened(&two, &mut room);
            assert_eq!(short, plain.shortened(&two, &mut other), "{spelled}");
            assert_ne!(key, Key::Str("other"));
            assert_ne!(key, Key::Int(1));
        }
        let joined = Key::Joined("GET", "/a");
        assert_eq!(Encoded::path("GET%20/a").key(), Some(joined));
    }

    #[test]
    fn a_plus_is_a_space_only_in_a_query() {
        assert_eq!(Encoded::path("a+b").key(), Some(Key::Str("a+b")));
        assert_eq!(Encoded::form("a+b").key(), Some(Key::Str("a b")));
        assert_eq!(Encoded::path("").key(), None);
    }

    #[test]
    fn a_host_ignores_case() {
        let hash = RandomState::new();
        for spelled in ["api.example", "API.example", "aPi.ExamplE"] {
            let key = Encoded::host(spelled).key().unwrap();
            assert_eq!(key, Key::Str("api.example"));
            assert_eq!(hash.hash_one(key), hash.hash_one(Key::Str("api.example")));
            assert_eq!(OwnedKey::from(key), OwnedKey::from(Key::Str("api.example")));
        }
        let odd = Encoded::host("%41+\u{c9}").key().unwrap();
        assert_eq!(odd.to_string(), "%41+\u{c9}");
    }

    #[test]
    fn spellings_of_different_texts_give_no_key() {
        let only = |spellings: &[&'static str]| {
            let spellings = spellings.iter().copied();
            Encoded::only(spellings.map(Encoded::form)).map(|key| key.to_string())
        };
        assert_eq!(only(&[]), None);
        assert_eq!(only(&["a"]).as_deref(), Some("a"));
        assert_eq!(only(&["a", "%61", "a"]).as_deref(), Some("a"));
        assert_eq!(only(&["%61", "a"]).as_deref(), Some("a"));
        assert_eq!(only(&["a", "b"]), None);
        assert_eq!(only(&["", "a"]), None);
        assert_eq!(only(&["a", ""]), None);
    }
}
