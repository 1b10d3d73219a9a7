//! The digest that identifies a key in the table: its SipHash-1-3 under random hash keys.
//!
//! The hash is keyed so that a client, which does not know the hash keys, cannot choose names whose
//! digests collide or fall into one set of the table.
//!
//! The hashed message consists of the bytes of the key and a byte for its kind, so that different
//! keys give different messages:
//!
//! ```text
//! text      its UTF-8   ff        address   4 octets    04
//! number    8 bytes     08                  16 octets   06
//! digest    16 bytes    10        agreed    16 bytes    11
//! reserved  its text    fe
//! ```
//!
//! The standard library has the same function, but for messages that arrive in parts, which it
//! buffers in memory. Here the whole message is available, and the state stays in registers.
//! `benches/peers`, bin `keyed`, measures the difference. A test compares the results of the two
//! functions.
//!
//! # Source
//!
//! SipHash (Aumasson, Bernstein 2012), with one round for each block and three at
//! the end, as in the standard library's maps.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::call::{Key, joined};

// The bytes for the kinds of keys, as listed above. `LONG` is the kind `digest`.
const TEXT: u64 = 0xff;
const IP_V4: u64 = 4;
const IP_V6: u64 = 6;
const INT: u64 = 8;
const LONG: u64 = 16;
const AGREED: u64 = 17;
const RESERVED: u64 = 0xfe;

/// A keyed hash of a key. The table stores nothing else of the key. Two keys with the same digest
/// would share a quota; the probability that any two of a million keys do is 3 in 10⁸.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest(pub(super) u64);

impl Digest {
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

/// The state of SipHash after a part of a message. The initial state is derived from the hash keys.
#[derive(Clone, Copy)]
pub(crate) struct Sip([u64; 4]);

impl fmt::Debug for Sip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are secret.
        f.write_str("Sip(..)")
    }
}

impl Sip {
    /// Returns the initial state under random hash keys.
    pub(super) fn random() -> Self {
        // The random keys of a `RandomState` cannot be read, so two hashes under these keys serve
        // as random numbers.
        let random = RandomState::new();
        Self::keyed(random.hash_one(0), random.hash_one(1))
    }

    /// Returns the initial state under these hash keys.
    pub(crate) const fn keyed(first: u64, second: u64) -> Self {
        // "somepseudorandomlygeneratedbytes"
        Self([
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ])
    }

    /// Returns the digest of `key`.
    #[inline]
    pub(crate) fn digest(&self, key: &Key<'_>) -> Digest {
        // Matches by reference, because moving a key is slow.
        let hash = match key {
            Key::Str(text) => self.text(text.as_bytes(), TEXT),
            Key::Joined(first, second) => self.joined(first, second),
            Key::Ip(IpAddr::V4(ip)) => {
                let octets = u32::from_le_bytes(ip.octets());
                self.end(octets.into(), 4, IP_V4)
            }
            Key::Ip(IpAddr::V6(ip)) => {
                // Any fixed byte order will do.
                let octets = u128::from_le_bytes(ip.octets());
                let all = self.block(octets as u64).block((octets >> 64) as u64);
                all.end(0, 16, IP_V6)
            }
            Key::Int(number) => self.block(*number).end(0, 8, INT),
            Key::Encoded(encoded) => encoded.with_text(|text| self.text(text.as_bytes(), TEXT)),
            Key::Digest(high, low) => self.block(*high).block(*low).end(0, 16, LONG),
            Key::Agreed(high, low) => self.block(*high).block(*low).end(0, 16, AGREED),
            Key::Reserved(text) => self.text(text.as_bytes(), RESERVED),
        };
        // 0 is reserved, and is the digest of no key.
        Digest(hash.max(1))
    }

    /// Returns the hash of `bytes` that are not a key. Each use of this method has a different
    /// `kind`, below 16.
    pub(crate) fn hash(&self, bytes: &[u8], kind: u8) -> u64 {
        self.text(bytes, 0xe0 | u64::from(kind))
    }

    /// The hash of a message of the bytes `text` and a byte for its `kind`.
    #[inline]
    fn text(&self, text: &[u8], kind: u64) -> u64 {
        let mut sip = *self;
        let mut rest = text;
        while let Some((block, after)) = rest.split_first_chunk() {
            sip = sip.block(u64::from_le_bytes(*block));
            rest = after;
        }
        let tail = match text.last_chunk() {
            // Takes the last eight bytes, and shifts out those that are hashed already. Shifts in
            // two steps, because a single shift by 64 bits would overflow if no bytes are left.
            Some(last) => (u64::from_le_bytes(*last) >> 8) >> (56 - 8 * rest.len()),
            None => little_endian(rest),
        };
        sip.end(tail, text.len(), kind)
    }

    /// Hashes both texts with a space between them.
    #[cold]
    fn joined(&self, first: &str, second: &str) -> u64 {
        let mut sip = *self;
        let (mut block, mut length) = ([0; 8], 0);
        for byte in joined(first, second) {
            block[length % 8] = byte;
            length += 1;
            if length % 8 == 0 {
                sip = sip.block(u64::from_le_bytes(block));
            }
        }
        sip.end(little_endian(&block[..length % 8]), length, TEXT)
    }

    /// The hash of a message of `length` bytes and a byte for its kind. The bytes after the last
    /// whole block are in `tail`.
    #[inline]
    fn end(mut self, tail: u64, length: usize, kind: u64) -> u64 {
        let mut last = tail | kind << (8 * (length % 8));
        if length % 8 == 7 {
            self = self.block(last);
            last = 0;
        }
        // The top byte is the length of the message, modulo 256.
        let mut all = self.block(last | (length as u64 + 1) << 56);
        all.0[2] ^= 0xff;
        let [a, b, c, d] = all.round().round().round().0;
        a ^ b ^ c ^ d
    }

    /// Adds the next eight bytes of the message.
    #[inline]
    fn block(mut self, block: u64) -> Self {
        self.0[3] ^= block;
        self = self.round();
        self.0[0] ^= block;
        self
    }

    /// Runs one round of SipHash.
    #[inline]
    const fn round(self) -> Self {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        Self([a, b, c, d])
    }
}

/// Reads at most eight bytes as a little-endian number.
fn little_endian(bytes: &[u8]) -> u64 {
    let higher_first = bytes.iter().rev();
    higher_first.fold(0, |all, &byte| all << 8 | u64::from(byte))
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    const TEXTS: &str = "GET /pets/{id}/toys/{toy}/parts";

    /// The standard library's hasher, SipHash-1-3 with keys of 0.
    fn by_std(message: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(message);
        hasher.finish()
    }

    /// The digest of `key` under hash keys of 0.
    fn plain(key: &Key<'_>) -> u64 {
        Sip::keyed(0, 0).digest(key).0
    }

    #[test]
    fn every_key_is_hashed_as_its_bytes_and_its_kind() {
        let with = |bytes: &[u8], kind| by_std(&[bytes, &[kind]].concat());
        for length in 0..TEXTS.len() {
            let text = &TEXTS[..length];
            assert_eq!(
                plain(&Key::Str(text)),
                with(text.as_bytes(), 0xff),
                "{text}"
            );
        }
        let long = TEXTS.repeat(20);
        assert_eq!(plain(&Key::Str(&long)), with(long.as_bytes(), 0xff));
        let number = 0x0123_4567_89ab_cdef_u64;
        assert_eq!(plain(&Key::Int(number)), with(&number.to_le_bytes(), 8));
        let v4 = [192, 0, 2, 7];
        assert_eq!(plain(&Key::Ip(v4.into())), with(&v4, 4));
        let v6: [u8; 16] = std::array::from_fn(|index| index as u8 * 15);
        assert_eq!(plain(&Key::Ip(v6.into())), with(&v6, 6));
        let both = [7_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat();
        assert_eq!(plain(&Key::Digest(7, 9)), with(&both, 16));
        assert_eq!(plain(&Key::MISSING), with(b"-", 0xfe));
    }

    /// Checks two test vectors of SipHash-1-3 from Rust's tests: the bytes 0, 1, 2 and so on, under
    /// the key of the bytes 0 to 15. They were chosen by length, because their last byte must equal
    /// the kind of the key.
    #[test]
    fn the_hash_depends_on_both_hash_keys() {
        let [first, second] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let sip = Sip::keyed(first, second);
        let digest = |key| sip.digest(&key).0.to_le_bytes();
        let nine = [0xe4, 0x3d, 0x06, 0x6c, 0xb3, 0x8e, 0xa4, 0x25];
        assert_eq!(digest(Key::Int(first)), nine);
        let seventeen = [0x0c, 0xd8, 0xdb, 0x63, 0x90, 0x68, 0xf2, 0x9c];
        assert_eq!(digest(Key::Digest(first, second)), seventeen);
    }

    #[test]
    fn a_joined_key_equals_the_joined_text() {
        for (at, _) in TEXTS.char_indices() {
            let (first, second) = TEXTS.split_at(at);
            let joined = Key::Joined(first, second);
            assert_eq!(
                plain(&joined),
                plain(&Key::Str(&format!("{first} {second}")))
            );
        }
    }

    #[test]
    fn keys_of_different_kinds_have_different_hashes() {
        let keys = [
            Key::Str("192.0.2.7"),
            Key::Ip([192, 0, 2, 7].into()),
            Key::Int(u64::from_le_bytes(*b"AAAAAAAA")),
            Key::Str("AAAAAAAA"),
            Key::Str("AAAAAAAA\u{8}"),
            Key::Str("ABCD\u{4}"),
            Key::Ip([b'A', b'B', b'C', b'D'].into()),
            Key::Str(""),
            Key::Str("\0"),
            Key::Str("-"),
            Key::MISSING,
        ];
        let mut hashes = keys.map(|key| plain(&key));
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn keys_are_random() {
        let key = Key::Int(1);
        assert_ne!(Sip::random().digest(&key), Sip::random().digest(&key));
    }
}
